//! Agents of other platforms, as this bus sees them.
//!
//! One agent of a platform, [`GATEWAY`], speaks with other platforms. On the bus of the gateway's process, each foreign
//! agent that is written to has a *stand-in*: a mailbox like any other, which the gateway reads. Messages to a foreign
//! agent thus go the way of all messages: in order, and held back when their reader is slow. The gateway
//! [relays](crate::Outbox::relay) messages from outside under the foreign sender's name.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use sealbus_fipa::{AclMessageRef, Performative};
use sealbus_seal::PlatformName;

use crate::agent::LocalAgent;
use crate::foreign_room::ForeignRoom;
use crate::mailbox::{Closed, Mailbox, MailboxLimits, mailbox};
use crate::message::Provenance;
use crate::origin::ForeignOrigin;

/// The local name of the agent that speaks with other platforms. No other agent can have this name.
pub const GATEWAY: &str = "gateway";

/// Whether an agent of that name belongs to another platform than `platform`. The comparison ignores letter case, so
/// that no outsider can pass for a local agent by another spelling. A name without `@` belongs to no platform.
pub fn is_foreign(name: &str, platform: &PlatformName) -> bool {
    name.rsplit_once('@')
        .is_some_and(|(_, home)| !home.eq_ignore_ascii_case(platform.as_str()))
}

/// The provenance of `message`, which `gateway` proved to have sent, if the gateway may send it in another's name. The
/// gateway may send messages of foreign agents, and the AMS's failure notices for messages that could not be carried
/// outside.
pub(crate) fn spoken_for(
    gateway: &str,
    platform: &PlatformName,
    message: &AclMessageRef<'_>,
) -> Option<Provenance> {
    let is_gateway = gateway
        .strip_prefix(GATEWAY)
        .and_then(|rest| rest.strip_prefix('@'))
        .is_some_and(|home| home == platform.as_str());
    let claimed = message.sender()?.name();
    if !is_gateway {
        return None;
    }
    if is_foreign(claimed, platform) {
        let origin = ForeignOrigin::read(message);
        return Some(Provenance::Foreign(Arc::new(origin)));
    }
    let is_ams = claimed
        .strip_prefix("ams@")
        .is_some_and(|home| home == platform.as_str());
    (is_ams && message.performative() == Performative::Failure).then_some(Provenance::Platform)
}

/// The callback that takes the mailbox of a new stand-in.
pub type StandInReader = Box<dyn Fn(Arc<str>, Mailbox) + Send + Sync>;

/// The limits of the stand-ins of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandInLimits {
    /// The most stand-ins at a time.
    pub most: usize,
    /// The limits of the mailbox of each.
    pub mailbox: MailboxLimits,
    /// The bytes of messages of other processes on their way to other platforms, for all stand-ins together.
    pub room: usize,
}

/// The most stand-ins of a process that are looked at to find room for another one. Three such looks see the share of a
/// process in the usual limit of a gateway. After six denials, a sender's bus believes that there is no such agent.
const LOOKED_AT: usize = 4096;
/// The most stand-ins that give way together. All links are told of them, which costs much more than to end one stand-in.
pub(crate) const GIVE_WAY: usize = 64;
/// The pause after a look that found no idle stand-in. A process may ask for stand-ins without end, and such a look takes
/// thousands of locks. A sender that was denied a stand-in asks again no sooner.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// The stand-ins of a bus. They are on the gateway's bus.
pub(crate) struct StandIns {
    gateway: Arc<LocalAgent>,
    limits: StandInLimits,
    room: Arc<ForeignRoom>,
    reader: StandInReader,
    known: RwLock<Known>,
}

/// The stand-ins that there are.
#[derive(Default)]
struct Known {
    /// By name.
    agents: HashMap<Arc<str>, StandIn>,
    /// The stand-ins that each process made; `None`: this process.
    made: HashMap<Option<Arc<str>>, Made>,
}

struct StandIn {
    agent: Arc<LocalAgent>,
    /// The process that made it; `None`: this process.
    maker: Option<Arc<str>>,
}

/// The stand-ins that one process made.
#[derive(Default)]
struct Made {
    /// By their numbers, so that the oldest come first.
    agents: BTreeMap<u64, Arc<LocalAgent>>,
    /// The number at which the next look begins.
    next: u64,
    /// Until when there is no look, because the last one found no idle stand-in.
    pause: Option<Instant>,
}

/// A stand-in, and those that have given way to it. The transport must still be told of these.
pub(crate) struct Found {
    pub(crate) agent: Arc<LocalAgent>,
    pub(crate) gave_way: Vec<Arc<LocalAgent>>,
}

/// A process has used up its share of the stand-ins.
pub(crate) struct ShareUsedUp {
    /// The number of stand-ins that it made.
    pub(crate) own: usize,
    /// The most stand-ins of all processes.
    pub(crate) most: usize,
}

impl Made {
    /// Closes those of the next [`LOOKED_AT`] stand-ins that are idle, up to [`GIVE_WAY`] of them. A message that comes
    /// later finds its stand-in closed, and thus goes no other way than the messages behind it.
    fn close_idle(&mut self, now: Instant) -> Vec<Arc<LocalAgent>> {
        let mut idle = Vec::new();
        if self.pause.is_some_and(|until| now < until) {
            return idle;
        }
        let (before, behind) = (..self.next, self.next..);
        let line = self.agents.range(behind).chain(self.agents.range(before));
        for (number, agent) in line.take(LOOKED_AT) {
            self.next = *number + 1;
            if agent.mailbox().close_if_idle() {
                idle.push(agent.clone());
            }
            if idle.len() == GIVE_WAY {
                break;
            }
        }
        self.pause = idle.is_empty().then_some(now + PAUSE);
        idle
    }
}

impl Known {
    fn made_by(&self, maker: &Option<Arc<str>>) -> usize {
        self.made.get(maker).map_or(0, |made| made.agents.len())
    }

    /// Takes out idle stand-ins to make room for one of `maker`: its own, or else those of the process that has the
    /// most. An idle stand-in holds no message, and the next message makes it anew.
    fn give_way(&mut self, maker: &Option<Arc<str>>, now: Instant) -> Vec<Arc<LocalAgent>> {
        let own = self.made_by(maker);
        let made = self.made.get_mut(maker);
        let mut idle = made.map(|made| made.close_idle(now)).unwrap_or_default();
        let others = self.made.values_mut();
        if idle.is_empty()
            && let Some(most) = others.max_by_key(|made| made.agents.len())
            && most.agents.len() > own
        {
            idle = most.close_idle(now);
        }
        for agent in &idle {
            self.remove(agent.name());
        }
        idle
    }

    fn insert(&mut self, agent: Arc<LocalAgent>, maker: Option<Arc<str>>) {
        let made = self.made.entry(maker.clone()).or_default();
        made.agents.insert(agent.number(), agent.clone());
        let name = agent.name().clone();
        self.agents.insert(name, StandIn { agent, maker });
    }

    fn remove(&mut self, name: &str) -> Option<Arc<LocalAgent>> {
        let StandIn { agent, maker } = self.agents.remove(name)?;
        if let Some(made) = self.made.get_mut(&maker) {
            made.agents.remove(&agent.number());
            if made.agents.is_empty() {
                self.made.remove(&maker);
            }
        }
        Some(agent)
    }
}

impl StandIns {
    pub(crate) fn new(
        gateway: Arc<LocalAgent>,
        limits: StandInLimits,
        reader: StandInReader,
    ) -> Self {
        Self {
            gateway,
            limits,
            room: ForeignRoom::new(limits.room),
            reader,
            known: RwLock::default(),
        }
    }

    /// The stand-in for `name`; made for `writer` if there is none. Another process gets no more stand-ins than it
    /// leaves to others. This process has no share, because nothing in it is safe from its own agents.
    pub(crate) fn get(
        &self,
        name: &str,
        writer: Option<&Arc<str>>,
        now: Instant,
    ) -> Result<Found, ShareUsedUp> {
        let is_known = |known: &Known| {
            let known = known.agents.get(name)?;
            Some(Found {
                agent: known.agent.clone(),
                gave_way: Vec::new(),
            })
        };
        if let Some(found) = is_known(&self.known.read()) {
            return Ok(found);
        }
        let mut known = self.known.write();
        if let Some(found) = is_known(&known) {
            return Ok(found);
        }
        let maker = writer.cloned();
        let (own, most) = (known.made_by(&maker), self.limits.most);
        let free = most.saturating_sub(known.agents.len());
        let is_over = free == 0 || maker.is_some() && own >= free;
        let gave_way = match is_over {
            true => known.give_way(&maker, now),
            false => Vec::new(),
        };
        if is_over && gave_way.is_empty() {
            return Err(ShareUsedUp { own, most });
        }
        let (sender, reader) = mailbox(self.limits.mailbox);
        let (gateway, room) = (self.gateway.clone(), self.room.clone());
        let agent = Arc::new(LocalAgent::stand_in(name, sender, gateway, room));
        known.insert(agent.clone(), maker);
        drop(known);
        (self.reader)(agent.name().clone(), reader);
        Ok(Found { agent, gave_way })
    }

    pub(crate) fn all(&self) -> Vec<Arc<LocalAgent>> {
        let known = self.known.read();
        let agents = known.agents.values();
        agents.map(|known| known.agent.clone()).collect()
    }

    pub(crate) fn is_of(&self, gateway: &str) -> bool {
        **self.gateway.name() == *gateway
    }

    /// Closes a stand-in. Its reader keeps the messages still in its mailbox.
    pub(crate) fn retire(&self, name: &str) -> Option<Arc<LocalAgent>> {
        let agent = self.known.write().remove(name)?;
        agent.mailbox().close(Closed::Gone);
        Some(agent)
    }
}

impl fmt::Debug for StandIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandIns")
            .field("gateway", self.gateway.name())
            .finish_non_exhaustive()
    }
}
