//! Delegation: on whose behalf an agent asks.
//!
//! An agent that asks others while it serves a request names, in the parameter [`ON_BEHALF_OF`], the agents on whose
//! behalf it asks. The agent that asked first stands first, and the one that asked the sender stands last. The
//! transport proves the sender. Each name before the sender is only claimed by the agents after it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use sealbus_fipa::{AclMessage, AclMessageRef, Performative};
use thiserror::Error;

use crate::refusal::{ExplainedRefusal, RefusalReason};

/// The parameter with the agents on whose behalf a message asks: their names, with a space between two of them.
pub const ON_BEHALF_OF: &str = "X-Sealbus-On-Behalf-Of";

/// The most agents on whose behalf a message may ask.
pub const MOST_ASKERS: usize = 8;

/// The longest name in a chain, in bytes.
pub const LONGEST_ASKER: usize = 512;

/// How often an agent may stand in a chain, including its sender. A chain may thus ask an agent back once.
const MOST_TURNS: usize = 2;

/// The agents on whose behalf something is asked, the first asker first. Empty if the sender asks for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delegation {
    askers: Vec<String>,
}

/// A chain that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DelegationError {
    /// It is not a list of names.
    #[error("{ON_BEHALF_OF} is not a list of agents' names with one space between two of them")]
    Malformed,
    /// It has too many agents.
    #[error(
        "it is asked on behalf of {count} agents one after the other ({chain}), and at most {MOST_ASKERS} are allowed"
    )]
    TooLong {
        /// The number of agents.
        count: usize,
        /// Their names.
        chain: String,
    },
    /// An agent occurs too often.
    #[error("it is asked in a circle, {chain}: {agent} would ask on its own behalf")]
    Circle {
        /// The agent that comes too often.
        agent: String,
        /// The chain, with the sender at its end.
        chain: String,
    },
}

impl From<DelegationError> for ExplainedRefusal {
    fn from(error: DelegationError) -> Self {
        Self {
            reason: match error {
                DelegationError::Malformed => RefusalReason::Malformed,
                _ => RefusalReason::NotPermitted,
            },
            explanation: error.to_string(),
        }
    }
}

tokio::task_local! {
    static CARRIED: Delegation;
}

impl Delegation {
    /// A chain of these agents, the first asker first.
    ///
    /// # Errors
    /// [`DelegationError`] if there are too many agents, or a name is not legal.
    pub fn new(
        askers: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, DelegationError> {
        let askers = askers.into_iter().take(4 * MOST_ASKERS).map(Into::into);
        let askers: Vec<String> = askers.collect();
        let is_name = |name: &String| {
            (1..=LONGEST_ASKER).contains(&name.len())
                && !name.chars().any(|it| it.is_whitespace() || it.is_control())
        };
        if !askers.iter().all(is_name) {
            return Err(DelegationError::Malformed);
        }
        if askers.len() > MOST_ASKERS {
            return Err(DelegationError::TooLong {
                count: askers.len(),
                chain: askers.join(", "),
            });
        }
        Ok(Self { askers })
    }

    /// The chain that a message carries; empty if it carries none.
    ///
    /// # Errors
    /// [`DelegationError`] if the parameter is not a legal chain.
    pub fn of(message: &AclMessageRef<'_>) -> Result<Self, DelegationError> {
        let mut parameters = message.user_defined();
        let mut chains = parameters
            .by_ref()
            .filter(|(name, _)| name.eq_ignore_ascii_case(ON_BEHALF_OF));
        let Some((_, value)) = chains.next() else {
            return Ok(Self::default());
        };
        if chains.next().is_some() {
            return Err(DelegationError::Malformed);
        }
        let value = value.to_owned();
        let text = value.as_str().ok_or(DelegationError::Malformed)?;
        Self::new(text.split(' '))
    }

    /// As [`of`](Self::of), for a message from `sender`. Also checks that the message does not ask in a circle.
    ///
    /// # Errors
    /// [`DelegationError`], also if the sender occurs too often.
    pub fn from_sender(message: &AclMessageRef<'_>, sender: &str) -> Result<Self, DelegationError> {
        let chain = Self::of(message)?;
        chain.check(sender)?;
        Ok(chain)
    }

    /// Whether a message says that it asks on behalf of others.
    #[inline]
    pub(crate) fn is_in(message: &AclMessage) -> bool {
        let mut parameters = message.user_defined.iter();
        parameters.any(|(name, _)| name.eq_ignore_ascii_case(ON_BEHALF_OF))
    }

    fn check(&self, sender: &str) -> Result<(), DelegationError> {
        let is_too_often = |name: &str| {
            let turns = self.askers.iter().filter(|it| *it == name).count();
            turns + usize::from(name == sender) > MOST_TURNS
        };
        let agent = match self.askers.last() {
            // No agent asks on its own behalf.
            Some(last) if last == sender => Some(last),
            _ => self.askers.iter().find(|it| is_too_often(it)),
        };
        match agent {
            None => Ok(()),
            Some(agent) => Err(DelegationError::Circle {
                agent: agent.clone(),
                chain: format!("{self}, {sender}"),
            }),
        }
    }

    /// The chain for the work that a message asks for: the agents on whose behalf it asks, and then its sender. Empty
    /// for a message that asks for nothing, such as an `inform`.
    pub fn by(message: &AclMessageRef<'_>) -> Self {
        match message.sender() {
            Some(sender) if asks(&message.performative()) => {
                let mut chain = Self::of(message).unwrap_or_default();
                chain.askers.push(sender.name().to_owned());
                chain
            }
            _ => Self::default(),
        }
    }

    /// The agents' names, the first asker first.
    pub fn askers(&self) -> &[String] {
        &self.askers
    }

    /// Whether the sender asks for itself.
    pub fn is_empty(&self) -> bool {
        self.askers.is_empty()
    }

    /// Runs `work`; the messages that agents send in it are on behalf of these agents. With an empty chain, they are on
    /// nobody's behalf. A task that the work spawns does not inherit the chain.
    pub async fn carry<F: Future>(self, work: F) -> F::Output {
        CARRIED.scope(self, work).await
    }

    /// As [`carry`](Self::carry), for a function.
    pub fn carry_in<T>(self, work: impl FnOnce() -> T) -> T {
        CARRIED.sync_scope(self, work)
    }

    /// The message with the chain of the work that sends it.
    pub fn carried(message: Arc<AclMessage>) -> Arc<AclMessage> {
        CARRIED
            .try_with(|chain| chain.put_into(message.clone()))
            .unwrap_or(message)
    }

    /// The message on behalf of these agents. A message to the last asker stays unchanged: it is an answer, or a
    /// question back.
    pub fn put_into(&self, mut message: Arc<AclMessage>) -> Arc<AclMessage> {
        let Some(asker) = self.askers.last() else {
            return message;
        };
        let receivers = &message.receivers;
        // A message to a channel names no receiver.
        if !receivers.is_empty() && receivers.iter().all(|it| it.name == *asker) {
            return message;
        }
        let parameters = &mut Arc::make_mut(&mut message).user_defined;
        parameters.retain(|(name, _)| !name.eq_ignore_ascii_case(ON_BEHALF_OF));
        parameters.push((ON_BEHALF_OF.to_owned(), self.askers.join(" ").into()));
        message
    }
}

/// Whether an act asks its receiver to do something. All other acts only state something.
fn asks(act: &Performative) -> bool {
    !matches!(
        act,
        Performative::Agree
            | Performative::Confirm
            | Performative::Disconfirm
            | Performative::Failure
            | Performative::Inform
            | Performative::InformIf
            | Performative::InformRef
            | Performative::NotUnderstood
            | Performative::Refuse
            | Performative::RejectProposal
    )
}

/// `boss@factory, clerk@factory`.
impl fmt::Display for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.askers.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sealbus_fipa::Aid;

    use super::*;

    fn request(from: &str, to: &str) -> Arc<AclMessage> {
        let message = AclMessage::new(Performative::Request)
            .with_sender(Aid::new(from).unwrap())
            .with_receiver(Aid::new(to).unwrap());
        Arc::new(message)
    }

    /// `agent` asks `next` while it serves `message`.
    fn passed_on(message: &AclMessage, agent: &str, next: &str) -> Arc<AclMessage> {
        Delegation::by(&AclMessage::view(message))
            .carry_in(|| Delegation::carried(request(agent, next)))
    }

    fn chain(message: &AclMessage) -> Result<Vec<String>, DelegationError> {
        let sender = message.sender.as_ref().unwrap();
        Delegation::from_sender(&AclMessage::view(message), &sender.name).map(|it| it.askers)
    }

    #[test]
    fn each_agent_adds_the_one_that_asked_it() {
        let first = request("boss@a", "clerk@a");
        assert_eq!(chain(&first), Ok(vec![]));
        let second = passed_on(&first, "clerk@a", "store@a");
        assert_eq!(chain(&second).unwrap(), ["boss@a"]);
        let third = passed_on(&second, "store@a", "van@a");
        assert_eq!(chain(&third).unwrap(), ["boss@a", "clerk@a"]);
        // The answer does not tell the asker on whose behalf it asked.
        assert_eq!(chain(&passed_on(&second, "store@a", "clerk@a")), Ok(vec![]));
        let said = AclMessage::new(Performative::Inform).with_sender(Aid::new("boss@a").unwrap());
        assert!(Delegation::by(&said.view()).is_empty());
    }

    #[test]
    fn an_agent_is_asked_back_once_and_no_circle_goes_on() {
        let names = ["a@p", "b@p", "c@p"];
        let mut message = request(names[0], names[1]);
        let mut hops = 0;
        let circle = loop {
            let (own, next) = (names[(hops + 1) % 3], names[(hops + 2) % 3]);
            message = passed_on(&message, own, next);
            match chain(&message) {
                Ok(_) => hops += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(hops, 5, "{circle}");
        assert!(
            circle
                .to_string()
                .contains("a@p, b@p, c@p, a@p, b@p, c@p, a@p"),
            "{circle}"
        );
        let own = request("a@p", "b@p");
        let own = Delegation::new(["a@p"]).unwrap().put_into(own);
        assert!(
            matches!(chain(&own), Err(DelegationError::Circle { agent, .. }) if agent == "a@p")
        );
    }

    #[test]
    fn a_chain_has_an_end() {
        let names = |count: usize| (0..count).map(|it| format!("agent-{it}@p"));
        assert!(Delegation::new(names(MOST_ASKERS)).is_ok());
        let long = Delegation::new(names(MOST_ASKERS + 1));
        assert!(
            matches!(long, Err(DelegationError::TooLong { count: 9, .. })),
            "{long:?}"
        );
        let mut message = request("agent-0@p", "agent-1@p");
        for hop in 1.. {
            message = passed_on(
                &message,
                &format!("agent-{hop}@p"),
                &format!("agent-{}@p", hop + 1),
            );
            if let Err(error) = chain(&message) {
                assert!(matches!(error, DelegationError::TooLong { .. }));
                assert_eq!(hop, MOST_ASKERS + 1);
                return;
            }
        }
    }

    #[test]
    fn what_is_no_chain_is_refused() {
        let with = |values: &[&str]| {
            let mut message = AclMessage::clone(&request("a@p", "b@p"));
            for value in values {
                message = message.with_user_defined("x-sealbus-on-behalf-of", *value);
            }
            chain(&message)
        };
        assert_eq!(with(&["c@p d@p"]).unwrap(), ["c@p", "d@p"]);
        let long = "x".repeat(LONGEST_ASKER + 1);
        for wrong in [
            &["", "b@p"][..],
            &[""],
            &["a@p "],
            &["c@p  d@p"],
            &["c@p\td@p"],
            &[&long],
        ] {
            assert_eq!(with(wrong), Err(DelegationError::Malformed), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_as_it_is_read(text in "\\PC*|([a-d]@p ){0,10}[a-d]@p") {
            if let Ok(chain) = Delegation::new(text.split(' ')) {
                let message = chain.put_into(request("x@p", "y@p"));
                prop_assert_eq!(Delegation::of(&AclMessage::view(&message)), Ok(chain));
            }
        }
    }
}
