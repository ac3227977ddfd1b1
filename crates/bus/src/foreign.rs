//! Agents of other platforms, as this bus sees them.
//!
//! One agent of a platform, [`GATEWAY`], speaks with other platforms. On the bus of the gateway's process, each foreign
//! agent that is written to has a *stand-in*: a mailbox like any other, which the gateway reads. Messages to a foreign
//! agent thus go the way of all messages: in order, and held back when their reader is slow. The gateway
//! [relays](crate::Outbox::relay) messages from outside under the foreign sender's name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use sealbus_fipa::{AclMessageRef, Performative};
use sealbus_seal::PlatformName;

use crate::agent::LocalAgent;
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

/// The stand-ins of a bus. They are on the gateway's bus.
pub(crate) struct StandIns {
    gateway: Arc<LocalAgent>,
    limits: MailboxLimits,
    most: usize,
    reader: StandInReader,
    agents: RwLock<HashMap<Arc<str>, Arc<LocalAgent>>>,
}

impl StandIns {
    pub(crate) fn new(
        gateway: Arc<LocalAgent>,
        limits: MailboxLimits,
        most: usize,
        reader: StandInReader,
    ) -> Self {
        Self {
            gateway,
            limits,
            most,
            reader,
            agents: RwLock::default(),
        }
    }

    /// The stand-in for `name`; made if there is none. `None` if there are too many.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<LocalAgent>> {
        if let Some(agent) = self.agents.read().get(name) {
            return Some(agent.clone());
        }
        let mut agents = self.agents.write();
        if let Some(agent) = agents.get(name) {
            return Some(agent.clone());
        }
        if agents.len() >= self.most {
            tracing::warn!(
                name,
                most = self.most,
                "too many agents of other platforms are written to: no more are let in"
            );
            return None;
        }
        let (sender, reader) = mailbox(self.limits);
        let agent = Arc::new(LocalAgent::stand_in(name, sender, self.gateway.clone()));
        agents.insert(agent.name().clone(), agent.clone());
        drop(agents);
        (self.reader)(agent.name().clone(), reader);
        Some(agent)
    }

    pub(crate) fn all(&self) -> Vec<Arc<LocalAgent>> {
        self.agents.read().values().cloned().collect()
    }

    pub(crate) fn is_of(&self, gateway: &str) -> bool {
        **self.gateway.name() == *gateway
    }

    /// Closes a stand-in. Its reader keeps the messages still in its mailbox.
    pub(crate) fn retire(&self, name: &str) -> Option<Arc<LocalAgent>> {
        let agent = self.agents.write().remove(name)?;
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
