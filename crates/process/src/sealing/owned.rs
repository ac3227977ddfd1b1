//! The groups of this process's publishers, as MLS has them, and their members by name.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_bus::NotSealed;
use sealbus_channels::{GroupChange, GroupName, PartKind, Reader, SealedPart};
use sealbus_mls::{Candidate, Change, Group, GroupError};
use sealbus_seal::{Credential, Identity, Timestamp, VerifiedIdentity};

/// A member that could not open an event joins again at once. If that happens repeatedly, it waits longer each time, up
/// to the second of these durations.
const REJOINING: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// The group of a publisher of this process.
pub(super) struct Owned {
    pub(super) group: Group,
    pub(super) name: GroupName,
    /// The publisher's certificate when it made the group.
    pub(super) credential: Arc<Credential>,
    pub(super) members: BTreeMap<Arc<str>, Joined>,
    /// The readers about whose absence the publisher was told.
    pub(super) told: HashSet<Arc<str>>,
    pub(super) used: Instant,
}

/// A member of a group.
pub(super) struct Joined {
    pub(super) session: u64,
    pub(super) verified: VerifiedIdentity,
    pub(super) at: Instant,
    /// How often the member has joined in this session.
    pub(super) times: u32,
    /// Whether the member could not open an event.
    pub(super) is_lost: bool,
}

impl Joined {
    /// Whether the member must join again now.
    pub(super) fn must_rejoin(&self) -> bool {
        let pause = REJOINING.0 * 4_u32.saturating_pow(self.times.saturating_sub(1).min(8));
        self.is_lost && (self.times < 2 || self.at.elapsed() >= pause.min(REJOINING.1))
    }
}

impl Owned {
    pub(super) fn new(group: Group, credential: Arc<Credential>) -> Result<Self, NotSealed> {
        let name = group.name().try_into();
        Ok(Self {
            name: name.map_err(|_| NotSealed("the group has no name".to_owned()))?,
            group,
            credential,
            members: BTreeMap::new(),
            told: HashSet::new(),
            used: Instant::now(),
        })
    }

    pub(super) fn part<'a>(
        &self,
        (publisher, channel): (&'a str, &'a str),
        kind: PartKind,
        bytes: &'a [u8],
    ) -> SealedPart<'a> {
        SealedPart {
            publisher,
            channel,
            group: self.name,
            kind,
            bytes,
        }
    }

    /// Makes one change of the group, in the form that its members get.
    pub(super) fn change(
        &mut self,
        of: (&str, &str),
        leaving: &[Arc<str>],
        joining: &[(Reader, Candidate)],
        now: Timestamp,
    ) -> Result<Vec<GroupChange>, GroupError> {
        let gone: Vec<Identity> = leaving
            .iter()
            .filter_map(|agent| Identity::from_agent_name(agent).ok())
            .collect();
        let candidates: Vec<Candidate> = joining.iter().map(|(_, it)| it.clone()).collect();
        let Change { commit, welcome } = self.group.change(&gone, &candidates, now)?;
        for agent in leaving {
            self.members.remove(agent);
        }
        let mut times = HashMap::new();
        for (reader, _) in joining {
            let former = self.members.remove(&reader.agent);
            let former = former.filter(|it| it.session == reader.session);
            times.insert(&reader.agent, former.map_or(0, |it| it.times));
        }
        let staying: BTreeSet<Arc<str>> = self.members.keys().cloned().collect();
        for (reader, candidate) in joining {
            let joined = Joined {
                session: reader.session,
                verified: candidate.verified().clone(),
                at: Instant::now(),
                times: times.get(&reader.agent).map_or(1, |times| times + 1),
                is_lost: false,
            };
            self.members.insert(reader.agent.clone(), joined);
        }
        let new = joining.iter().map(|(it, _)| it.agent.clone()).collect();
        let parts = [
            (PartKind::Commit, commit, staying),
            (PartKind::Welcome, welcome, new),
        ];
        let changes = parts.into_iter().filter_map(|(kind, bytes, readers)| {
            let message = self.part(of, kind, &bytes?).to_message();
            Some(GroupChange {
                message: Arc::new(message),
                readers,
            })
        });
        Ok(changes.collect())
    }
}
