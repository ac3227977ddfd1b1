//! A participant of a conversation.

use alloc::vec;

use sealbus_fipa::{AclMessage, Aid, Expression, Performative};

use crate::branch::{Branch, Received};
use crate::conversation::{Conversation, moment};
use crate::{ActError, Outcome, Protocol, Reason, Refused, Role, Stage};

/// A participant's side of a conversation.
///
/// Times are milliseconds after 1 January 1970 UTC.
#[derive(Debug)]
pub struct Participant(Conversation);

impl Participant {
    /// Enters the conversation that this message opens. A later message with the same sender and conversation-id belongs
    /// to [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`Refused`] if the message has no sender, names another protocol or does not open this one.
    pub fn open(
        protocol: &'static Protocol,
        message: &AclMessage,
        now: i64,
    ) -> Result<Self, Refused> {
        let sender = message.sender.clone().ok_or(Reason::NoSender)?;
        let branch = Branch::new(sender, protocol.first);
        let id = message.conversation_id.clone();
        let mut conversation = Conversation::new(protocol, id, Role::Participant, vec![branch]);
        conversation.accept_opening(message, moment(message.reply_by, now))?;
        Ok(Self(conversation))
    }

    /// Takes a message of this conversation.
    ///
    /// # Errors
    /// [`Refused`] if the message is no part of the conversation: it is late, repeated, foreign or against the protocol.
    pub fn receive(&mut self, message: &AclMessage, now: i64) -> Result<Received, Refused> {
        self.0.receive(message, now)
    }

    /// Sends a message of the protocol. It goes to the `reply-to` of the opening message, otherwise to its sender.
    ///
    /// # Errors
    /// [`ActError`] if the protocol does not allow the act now.
    pub fn send(&mut self, draft: &AclMessage, now: i64) -> Result<AclMessage, ActError> {
        self.0.expire_all(now);
        let mut messages = self.0.send(&[0], draft, now)?;
        messages.pop().ok_or_else(|| ActError::Nobody {
            act: draft.performative.clone(),
        })
    }

    /// Answers a `cancel`: `inform` confirms it and ends the conversation; after `failure` the conversation goes on.
    ///
    /// # Errors
    /// [`ActError`] if there is no `cancel` to answer, or the act is another one.
    pub fn answer_cancel(&mut self, draft: &AclMessage, now: i64) -> Result<AclMessage, ActError> {
        self.0.expire_all(now);
        self.0.answer_cancel(draft)
    }

    /// The moment at which [`advance`](Self::advance) is due.
    pub fn deadline(&self) -> Option<i64> {
        self.0.deadline()
    }

    /// Sets the moment at which the whole conversation ends, even if messages are missing.
    pub fn end_by(&mut self, moment: i64) {
        self.0.end_by = Some(moment);
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: i64) {
        self.0.expire_all(now);
    }

    /// Ends the conversation if nothing more has to come, as after a broker's last answer.
    pub fn conclude(&mut self) {
        self.0.conclude();
    }

    /// Ends the conversation because the platform could not deliver a message to the initiator.
    pub fn undeliverable(&mut self) {
        let name = self.branch().name().clone();
        self.0.undeliverable(&name);
    }

    /// The agent that opened the conversation.
    pub fn initiator(&self) -> &Aid {
        self.branch().agent()
    }

    /// The present stage, or the last one if the conversation has ended.
    pub fn stage(&self) -> Stage {
        self.branch().stage()
    }

    /// How the conversation ended; `None` while it goes on.
    pub fn outcome(&self) -> Option<Outcome> {
        self.branch().outcome()
    }

    /// Whether a `cancel` waits for an answer.
    pub fn is_cancelling(&self) -> bool {
        self.branch().is_cancelling()
    }

    /// The conversation-id of the opening message.
    pub fn conversation_id(&self) -> Option<&Expression> {
        self.0.id.as_ref()
    }

    /// The number of messages that [`receive`](Self::receive) refused.
    pub fn refused(&self) -> u64 {
        self.0.refused
    }

    fn branch(&self) -> &Branch {
        &self.0.branches[0]
    }
}

impl Conversation {
    fn accept_opening(
        &mut self,
        message: &AclMessage,
        reply_by: Option<i64>,
    ) -> Result<(), Refused> {
        self.check_protocol(message)?;
        self.branches[0].opened_by(message);
        let act = &message.performative;
        if !self.protocol.opening.contains(act) {
            let protocol = self.protocol.name;
            let reason = Reason::NotOpening {
                protocol,
                act: act.clone(),
            };
            // An answer to `not-understood` would be answered in turn.
            let answer =
                (*act != Performative::NotUnderstood).then_some(Performative::NotUnderstood);
            return Err(self.refused_with(reason, answer, 0, message));
        }
        self.opened(0, reply_by);
        Ok(())
    }

    fn answer_cancel(&mut self, draft: &AclMessage) -> Result<AclMessage, ActError> {
        let (protocol, act) = (self.protocol, &draft.performative);
        let tag = self.tag();
        let branch = &mut self.branches[0];
        let agent = branch.name().clone();
        if let Some(outcome) = branch.outcome() {
            return Err(ActError::Ended { agent, outcome });
        }
        let answers = matches!(act, Performative::Inform | Performative::Failure);
        if !(branch.is_cancelling() && answers) {
            return Err(ActError::Forbidden {
                protocol: protocol.name,
                agent,
                act: act.clone(),
                stage: branch.stage(),
            });
        }
        let (receivers, cancel) = (branch.receivers().to_vec(), branch.cancel_tag());
        branch.cancel_answered(act);
        Ok(self.compose(draft.clone(), receivers, cancel, tag))
    }
}
