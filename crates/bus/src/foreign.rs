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
use sealbus_fipa::{AclMessageRef, Expression, Performative};
use sealbus_seal::PlatformName;

use crate::agent::LocalAgent;
use crate::mailbox::{Closed, Mailbox, MailboxLimits, mailbox};
use crate::message::Provenance;

/// The local name of the agent that speaks with other platforms. No other agent can have this name.
pub const GATEWAY: &str = "gateway";

/// The parameter in which the gateway notes the origin of a message from outside. The parameter counts only in messages
/// that the gateway relays. The gateway removes it from all messages that come in or go out.
pub const ORIGIN_PARAMETER: &str = "X-Sealbus-Origin";

/// The known facts about the sender of a message from another platform. The sender's name is only claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignOrigin {
    /// The network address that the message came from, as the gateway saw it. Empty if the gateway was not told.
    pub address: String,
    /// SHA-256 fingerprint, in lower-case hexadecimal, of the certificate shown on the connection that carried the
    /// message. The gateway's policy decides which certificates are accepted.
    pub certificate: Option<String>,
    /// Whether the policy lets agents of that platform register themselves in this platform's DF.
    pub may_register: bool,
}

impl ForeignOrigin {
    /// The value of [`ORIGIN_PARAMETER`].
    pub fn to_expression(&self) -> Expression {
        Expression::List(vec![
            Expression::String(self.address.clone()),
            Expression::String(self.certificate.clone().unwrap_or_default()),
            Expression::Word(
                if self.may_register {
                    "register"
                } else {
                    "none"
                }
                .to_owned(),
            ),
        ])
    }

    /// The gateway's note in a message that it relayed. Trust the note only in a message that is known to be relayed.
    pub fn read(message: &AclMessageRef<'_>) -> Self {
        let told = message
            .user_defined()
            .find(|(name, _)| name.eq_ignore_ascii_case(ORIGIN_PARAMETER));
        let Some(Expression::List(told)) = told.map(|(_, value)| value.to_owned()) else {
            return Self::default();
        };
        let text = |at: usize| told.get(at).and_then(Expression::as_str).unwrap_or("");
        Self {
            address: text(0).to_owned(),
            certificate: Some(text(1)).filter(|it| !it.is_empty()).map(str::to_owned),
            may_register: text(2) == "register",
        }
    }
}

/// Whether an agent of that name belongs to another platform than `platform`. Platform names are compared here without
/// regard to letter case, so that no outsider can pass for a local agent by another spelling. A name without `@`
/// belongs to no platform.
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

    /// The stand-in for `name`, made anew if there is none. `None` if there are too many.
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

#[cfg(test)]
mod tests {
    use sealbus_fipa::{AclMessage, Aid, Limits, bitefficient};

    use super::*;

    /// The gateway's process and the receiver's are seldom the same.
    #[test]
    fn what_is_known_of_a_sender_travels_over_the_mesh() {
        for may_register in [false, true] {
            let known = ForeignOrigin {
                address: "192.0.2.7".to_owned(),
                certificate: None,
                may_register,
            };
            let mut message = AclMessage::new(Performative::Inform)
                .with_sender(Aid::new("a@plat1").unwrap())
                .with_receiver(Aid::new("b@factory").unwrap());
            message
                .user_defined
                .push((ORIGIN_PARAMETER.to_owned(), known.to_expression()));
            let mut bytes = Vec::new();
            bitefficient::encode(&message, &mut bytes).unwrap();
            let read = bitefficient::decode(&bytes, &Limits::default()).unwrap();
            assert_eq!(ForeignOrigin::read(&AclMessage::view(&read)), known);
        }
    }
}
