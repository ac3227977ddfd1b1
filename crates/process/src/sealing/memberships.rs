//! The groups in which agents of this process read events of sealed channels.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sealbus_bus::Opened;
use sealbus_channels::{GroupName, OpenedPart, SealedPart};
use sealbus_mls::{GroupError, Member};
use sealbus_seal::{Timestamp, Trust, sha256};

/// The most groups of all agents of a process. Tests need fewer.
pub(super) const MOST: usize = if cfg!(test) { 64 } else { 4096 };
/// The most bytes of the groups' Welcomes, which show how much room the groups take.
const MOST_BYTES: usize = 256 << 20;
/// A Welcome of this many bytes takes as much room as another group.
const EACH: usize = MOST_BYTES / MOST;
/// The reason why an agent cannot open anything.
const NO_MEMBER: &str = "the agent is not a member of the group, or has lost what it knew of it";
const AGAIN: &str = "the agent has opened it before";

/// The groups of this process's agents. For each publisher and channel, an agent has the latest one.
#[derive(Default)]
pub(super) struct Memberships {
    /// The readers, by publisher and channel.
    channels: HashMap<(String, String), Readers>,
    count: usize,
    bytes: usize,
    /// The number of uses so far.
    clock: u64,
}

/// The agents that read a channel of a publisher.
#[derive(Default)]
struct Readers {
    members: BTreeMap<Arc<str>, Membership>,
    openers: BTreeMap<GroupName, Opener>,
}

struct Membership {
    group: GroupName,
    member: Member,
    bytes: usize,
    used: u64,
}

/// The agent whose state opens the events of an epoch for all members here. Only its state knows which events were
/// opened, so it stays until the epoch ends, even if the agent leaves.
struct Opener {
    agent: Arc<str>,
    epoch: u64,
    /// The state of an opener that has left.
    left_behind: Option<Member>,
    /// The digest of the last event, and the agents that got it. Other agents may get the event in a second frame.
    last: Option<([u8; 32], BTreeSet<Arc<str>>)>,
}

impl Memberships {
    fn key(part: &SealedPart<'_>) -> (String, String) {
        (part.publisher.to_owned(), part.channel.to_owned())
    }

    /// Opens an event once for all of these agents that are members of its group.
    pub(super) fn open(
        &mut self,
        part: &SealedPart<'_>,
        agents: &BTreeSet<Arc<str>>,
    ) -> OpenedPart {
        let mut opening = OpenedPart::default();
        self.clock += 1;
        let readers = self.channels.get_mut(&Self::key(part));
        let Some(readers) = readers else {
            let failed = agents.iter().map(|it| (it.clone(), NO_MEMBER.to_owned()));
            opening.failed.extend(failed);
            return opening;
        };
        // Members that lag behind are in another epoch.
        let mut epochs: BTreeMap<u64, BTreeSet<Arc<str>>> = BTreeMap::new();
        for agent in agents {
            let membership = readers.members.get_mut(agent);
            let Some(membership) = membership.filter(|it| it.group == part.group) else {
                opening.failed.insert(agent.clone(), NO_MEMBER.to_owned());
                continue;
            };
            membership.used = self.clock;
            let epoch = membership.member.epoch();
            epochs.entry(epoch).or_default().insert(agent.clone());
        }
        for (epoch, agents) in epochs {
            let event = readers.open(part, epoch, agents, &mut opening.failed);
            opening.event = event.or(opening.event);
        }
        opening
    }

    /// Applies a change of a group.
    pub(super) fn follow(&mut self, part: &SealedPart<'_>, agent: &str) -> Result<(), String> {
        let readers = self.channels.get_mut(&Self::key(part));
        let membership = readers
            .and_then(|readers| readers.members.get_mut(agent))
            .filter(|it| it.group == part.group)
            .ok_or(NO_MEMBER)?;
        let followed = membership.member.follow(part.bytes);
        if matches!(followed, Err(GroupError::Removed)) {
            self.leave(&Self::key(part), agent);
        }
        followed.map_err(|error| error.to_string())
    }

    /// Notes that an agent has joined a group by a Welcome. If there are too many groups, one is forgotten; its agent
    /// joins again with the next event that it should read.
    pub(super) fn join(&mut self, part: &SealedPart<'_>, agent: &Arc<str>, member: Member) {
        let (key, bytes) = (Self::key(part), part.bytes.len());
        self.leave(&key, agent);
        while self.count >= MOST || self.bytes + bytes > MOST_BYTES {
            let Some((key, agent)) = self.least_needed() else {
                break;
            };
            self.leave(&key, &agent);
        }
        self.clock += 1;
        self.count += 1;
        self.bytes += bytes;
        let membership = Membership {
            group: part.group,
            member,
            bytes,
            used: self.clock,
        };
        let readers = self.channels.entry(key).or_default();
        readers.members.insert(agent.clone(), membership);
    }

    /// The least recently used group of the publisher whose groups take the most room, so that no publisher pushes out
    /// groups of another.
    fn least_needed(&self) -> Option<((String, String), Arc<str>)> {
        let mut publishers = HashMap::new();
        for (key, readers) in &self.channels {
            for (agent, it) in &readers.members {
                let place = (it.used, key, agent);
                let (occupied, oldest) = publishers.entry(&key.0).or_insert((0_usize, place));
                *occupied += 1 + it.bytes / EACH;
                *oldest = place.min(*oldest);
            }
        }
        let most = publishers.into_values();
        let most = most.max_by_key(|(occupied, (used, ..))| (*occupied, Reverse(*used)));
        most.map(|(_, (_, key, agent))| (key.clone(), agent.clone()))
    }

    /// Notes that an agent has left its group.
    pub(super) fn leave(&mut self, key: &(String, String), agent: &str) {
        let Some(readers) = self.channels.get_mut(key) else {
            return;
        };
        if let Some(left) = readers.members.remove(agent) {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(left.bytes);
            if readers.members.values().all(|it| it.group != left.group) {
                readers.openers.remove(&left.group);
            } else if let Some(opener) = readers.openers.get_mut(&left.group)
                && *opener.agent == *agent
                && opener.epoch == left.member.epoch()
            {
                opener.left_behind.get_or_insert(left.member);
            }
        }
        if readers.members.is_empty() {
            self.channels.remove(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Forgets the groups of agents that are no longer here, and of publishers whose certificate is no longer valid.
    pub(super) fn forget(
        &mut self,
        trust: &Arc<Trust>,
        now: Timestamp,
        is_here: impl Fn(&str) -> bool,
    ) {
        let mut over = Vec::new();
        for (key, readers) in &self.channels {
            for (agent, it) in &readers.members {
                if !is_here(agent) || trust.check(it.member.publisher(), now).is_err() {
                    over.push((key.clone(), agent.clone()));
                }
            }
        }
        for (key, agent) in over {
            self.leave(&key, &agent);
        }
    }
}

impl Readers {
    /// Opens an event for these members, which are in this epoch. Returns the event, and adds the agents that do not
    /// get it to `failed`.
    fn open(
        &mut self,
        part: &SealedPart<'_>,
        epoch: u64,
        mut agents: BTreeSet<Arc<str>>,
        failed: &mut BTreeMap<Arc<str>, String>,
    ) -> Option<Opened> {
        let digest = sha256(&[part.bytes]);
        let first = agents.first()?.clone();
        let opener = self.openers.entry(part.group);
        let opener = opener.or_insert_with(|| Opener::new(&first, epoch));
        if opener.epoch < epoch {
            *opener = Opener::new(&first, epoch);
        }
        let member = match &mut opener.last {
            // These members lag behind, and must not get what others open.
            _ if opener.epoch != epoch => None,
            Some((last, served)) if *last == digest => {
                let again: Vec<_> = agents.intersection(served).cloned().collect();
                for agent in again {
                    agents.remove(&agent);
                    failed.insert(agent, AGAIN.to_owned());
                }
                // The opener's state has opened the event already. Another agent's state, which has not, opens it once more.
                served.extend(agents.iter().cloned());
                self.members
                    .get_mut(agents.first()?)
                    .map(|it| &mut it.member)
            }
            _ => match &mut opener.left_behind {
                Some(member) => Some(member),
                None => {
                    let membership = self.members.get_mut(&opener.agent);
                    let is_its = |it: &&mut Membership| it.group == part.group;
                    membership.filter(is_its).map(|it| &mut it.member)
                }
            },
        };
        let opened = member.ok_or_else(|| NO_MEMBER.to_owned()).and_then(|it| {
            let inside = it.open(&part.context(), part.bytes);
            part.opened(inside.map_err(|error| error.to_string())?)
        });
        match opened {
            Ok(event) => {
                match &mut opener.last {
                    Some((last, _)) if *last == digest => {}
                    last => *last = Some((digest, agents)),
                }
                Some(event)
            }
            Err(why) => {
                failed.extend(agents.into_iter().map(|agent| (agent, why.clone())));
                None
            }
        }
    }
}

impl Opener {
    fn new(agent: &Arc<str>, epoch: u64) -> Self {
        Self {
            agent: agent.clone(),
            epoch,
            left_behind: None,
            last: None,
        }
    }
}
