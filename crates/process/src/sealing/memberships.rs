//! The groups in which agents of this process read: what was said to them on sealed channels.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sealbus_bus::Opened;
use sealbus_channels::{GroupName, OpenedPart, SealedPart};
use sealbus_mls::{GroupError, Member};
use sealbus_seal::{Timestamp, Trust};

/// Most groups of all agents of a process, and the bytes of their Welcomes, which say how much they occupy.
const MOST: usize = 4096;
const MOST_BYTES: usize = 256 << 20;
/// The reason why an agent opens nothing.
const NO_MEMBER: &str = "the agent is not a member of the group, or has lost what it knew of it";

/// The groups of this process's agents. Of each publisher and channel an agent has the latest one.
#[derive(Default)]
pub(super) struct Memberships {
    /// By publisher and channel.
    channels: HashMap<(String, String), Readers>,
    count: usize,
    bytes: usize,
    /// Counts the uses.
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

/// The agent whose state opens the events of an epoch for all members here. It alone knows which events were opened, so
/// no other one takes its place in that epoch.
struct Opener {
    agent: Arc<str>,
    epoch: u64,
}

impl Memberships {
    fn key(part: &SealedPart<'_>) -> (String, String) {
        (part.publisher.to_owned(), part.channel.to_owned())
    }

    /// Opens an event once, for all these agents that are members of its group.
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
        let mut opened = None;
        for agent in agents {
            let membership = readers.members.get_mut(agent);
            let Some(membership) = membership.filter(|it| it.group == part.group) else {
                opening.failed.insert(agent.clone(), NO_MEMBER.to_owned());
                continue;
            };
            membership.used = self.clock;
            let epoch = membership.member.epoch();
            let (of, outcome) = match opened.take() {
                Some((of, outcome)) if of == epoch => (of, outcome),
                _ => (epoch, readers.open(part, agent, epoch)),
            };
            match &outcome {
                Ok(event) => opening.event = Some(Opened::clone(event)),
                Err(why) => drop(opening.failed.insert(agent.clone(), why.clone())),
            }
            opened = Some((of, outcome));
        }
        opening
    }

    /// Takes a change of a group.
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

    /// An agent has joined a group by a Welcome. If there are too many groups, the one that was not used for the longest
    /// time is forgotten: its agent joins again with the next event.
    pub(super) fn join(&mut self, part: &SealedPart<'_>, agent: &Arc<str>, member: Member) {
        let (key, bytes) = (Self::key(part), part.bytes.len());
        self.leave(&key, agent);
        while self.count >= MOST || self.bytes + bytes > MOST_BYTES {
            let all = self.channels.iter().flat_map(|(key, readers)| {
                let members = readers.members.iter();
                members.map(move |(agent, it)| (it.used, key, agent))
            });
            let oldest = all.min_by_key(|(used, ..)| *used);
            let Some((key, agent)) = oldest.map(|(_, key, agent)| (key.clone(), agent.clone()))
            else {
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

    /// An agent has left its group.
    fn leave(&mut self, key: &(String, String), agent: &str) {
        let Some(readers) = self.channels.get_mut(key) else {
            return;
        };
        if let Some(left) = readers.members.remove(agent) {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(left.bytes);
            if readers.members.values().all(|it| it.group != left.group) {
                readers.openers.remove(&left.group);
            }
        }
        if readers.members.is_empty() {
            self.channels.remove(key);
        }
    }

    /// Forgets the groups of agents that are not here any more, and of publishers whose certificate is not good.
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
    /// Opens an event for the members of this epoch, of which `agent` is one.
    fn open(
        &mut self,
        part: &SealedPart<'_>,
        agent: &Arc<str>,
        epoch: u64,
    ) -> Result<Opened, String> {
        let first = || Opener {
            agent: agent.clone(),
            epoch,
        };
        let opener = self.openers.entry(part.group).or_insert_with(first);
        if opener.epoch < epoch {
            *opener = first();
        }
        let opener = opener.agent.clone();
        let membership = self.members.get_mut(&opener);
        let membership =
            membership.filter(|it| it.group == part.group && it.member.epoch() == epoch);
        let member = &mut membership.ok_or(NO_MEMBER)?.member;
        let inside = member
            .open(&part.context(), part.bytes)
            .map_err(|error| error.to_string())?;
        part.opened(&inside)
    }
}
