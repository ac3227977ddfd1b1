//! The conversation between the initiator and one participant, for either side.

use alloc::string::String;
use alloc::vec::Vec;
use core::slice;

use sealbus_fipa::{AclMessage, Aid, Expression, Performative};

use crate::protocol::{Effect, Protocol};
use crate::{ActError, Outcome, Reason, Role, Stage};

/// The meaning of a message that the conversation accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A step of the protocol. The branch has the new stage, or its outcome.
    Step,
    /// The initiator cancels. Answer with [`Participant::answer_cancel`](crate::Participant::answer_cancel), or finish
    /// as if nothing had come.
    Cancel,
    /// The participant could not cancel, and the conversation goes on.
    NotCancelled,
    /// An answer by an agent that is no participant, which the recruiter found. Anyone who knows the conversation-id can
    /// send one.
    Recruit,
}

/// The conversation with one agent.
#[derive(Debug, Clone)]
pub struct Branch {
    agent: Aid,
    /// The agents that the opening message named for the answers.
    reply_to: Vec<Aid>,
    stage: Stage,
    outcome: Option<Outcome>,
    /// The tag of the latest message to the agent, except `cancel`.
    sent: Option<Expression>,
    /// The tag of the message from the agent that the next message answers.
    received: Option<Expression>,
    cancelling: bool,
    cancel: Option<Expression>,
    answer_by: Option<i64>,
    /// The act that tells the agent that a deadline passed.
    notice: Option<Performative>,
}

impl Branch {
    pub(crate) fn new(agent: Aid, first: Stage) -> Self {
        Self {
            agent,
            reply_to: Vec::new(),
            stage: first,
            outcome: None,
            sent: None,
            received: None,
            cancelling: false,
            cancel: None,
            answer_by: None,
            notice: None,
        }
    }

    /// The other side.
    pub fn agent(&self) -> &Aid {
        &self.agent
    }

    /// The present stage, or the last one if the branch has ended.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// How the branch ended; `None` while it goes on.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Whether a `cancel` is not answered yet.
    pub fn is_cancelling(&self) -> bool {
        self.cancelling
    }

    pub(crate) fn is_with(&self, name: &str) -> bool {
        self.agent.name == name || self.reply_to.iter().any(|agent| agent.name == name)
    }

    pub(crate) fn receivers(&self) -> &[Aid] {
        if self.reply_to.is_empty() {
            slice::from_ref(&self.agent)
        } else {
            &self.reply_to
        }
    }

    pub(crate) fn opened_by(&mut self, message: &AclMessage) {
        self.reply_to.clone_from(&message.reply_to);
        self.received.clone_from(&message.reply_with);
    }

    /// The tag that the next message repeats. A participant answers the same message several times; an initiator
    /// answers a proposal once, and its later messages answer nothing.
    pub(crate) fn answered(&mut self, own: Role) -> Option<Expression> {
        match own {
            Role::Initiator => self.received.take(),
            Role::Participant => self.received.clone(),
        }
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        self.answer_by = None;
    }

    pub(crate) fn take(
        &mut self,
        protocol: &Protocol,
        by: Role,
        effect: Effect,
        reply_by: Option<i64>,
    ) {
        match effect {
            Effect::Ends(outcome) => self.end(outcome),
            Effect::Goes(stage) => {
                self.stage = stage;
                // The deadline of a `cancel` stands until it is answered.
                if !self.cancelling {
                    self.answer_by = reply_by.filter(|_| protocol.awaits(stage, by.other()));
                }
            }
        }
    }

    pub(crate) fn sent(&mut self, tag: Expression) {
        self.sent = Some(tag);
    }

    pub(crate) fn cancel(&mut self, tag: Option<Expression>, reply_by: Option<i64>) {
        self.cancelling = true;
        self.cancel = tag;
        self.answer_by = reply_by;
    }

    /// Takes the answer to a `cancel`, which is `inform` or `failure`.
    pub(crate) fn cancel_answered(&mut self, act: &Performative) -> Received {
        if *act == Performative::Inform {
            self.end(Outcome::Cancelled);
            return Received::Step;
        }
        self.cancelling = false;
        self.answer_by = None;
        Received::NotCancelled
    }

    pub(crate) fn cancel_tag(&self) -> Option<Expression> {
        self.cancel.clone()
    }

    /// The effect of sending `act`, if the protocol allows it.
    pub(crate) fn may_send(
        &self,
        protocol: &Protocol,
        own: Role,
        act: &Performative,
    ) -> Result<Effect, ActError> {
        if let Some(outcome) = self.outcome {
            let agent = self.agent.name.clone();
            return Err(ActError::Ended { agent, outcome });
        }
        if *act == Performative::NotUnderstood {
            return Ok(Effect::Ends(Outcome::NotUnderstood));
        }
        let step = match own {
            Role::Initiator if self.cancelling => None,
            Role::Initiator if *act == Performative::Cancel => Some(Effect::Goes(self.stage)),
            _ => protocol.step(self.stage, own, act),
        };
        step.ok_or_else(|| ActError::Forbidden {
            protocol: protocol.name,
            agent: self.agent.name.clone(),
            act: act.clone(),
            stage: self.stage,
        })
    }

    /// Takes a message from `by`, the other side.
    pub(crate) fn receive(
        &mut self,
        protocol: &Protocol,
        by: Role,
        message: &AclMessage,
        reply_by: Option<i64>,
    ) -> Result<Received, Reason> {
        let act = &message.performative;
        let agent = || self.agent.name.clone();
        if let Some(outcome) = self.outcome {
            return Err(Reason::Late {
                agent: agent(),
                act: act.clone(),
                outcome,
            });
        }
        if *act == Performative::NotUnderstood {
            self.end(Outcome::NotUnderstood);
            return Ok(Received::Step);
        }
        if by == Role::Initiator && *act == Performative::Cancel {
            self.cancel(message.reply_with.clone(), reply_by);
            return Ok(Received::Cancel);
        }
        let step = protocol.received(self.stage, by, act);
        if by == Role::Participant && self.cancelling && self.answers_cancel(message, step) {
            return Ok(self.cancel_answered(act));
        }
        if let (Some(answered), Some(sent)) = (&message.in_reply_to, &self.sent)
            && !same(answered, sent)
        {
            return Err(Reason::Stale {
                agent: agent(),
                act: act.clone(),
            });
        }
        if let Some(effect) = step {
            self.received.clone_from(&message.reply_with);
            self.take(protocol, by, effect, reply_by);
            return Ok(Received::Step);
        }
        if protocol.knows(by, act) {
            return Err(Reason::OutOfOrder {
                agent: agent(),
                act: act.clone(),
                stage: self.stage,
            });
        }
        let agent = agent();
        self.end(Outcome::NotUnderstood);
        Err(Reason::Forbidden {
            protocol: protocol.name,
            agent,
            act: act.clone(),
        })
    }

    /// A message without `in-reply-to` is a step of the protocol if it can be one: agents that leave it out seldom know
    /// `cancel`.
    fn answers_cancel(&self, message: &AclMessage, step: Option<Effect>) -> bool {
        matches!(
            message.performative,
            Performative::Inform | Performative::Failure
        ) && match (&message.in_reply_to, &self.cancel) {
            (Some(answered), Some(cancel)) => same(answered, cancel),
            _ => step.is_none(),
        }
    }

    /// Whether a refused proposal is a late one, which the initiator rejects.
    pub(crate) fn rejects_late(&self, protocol: &Protocol, act: &Performative) -> bool {
        *act == Performative::Propose
            && matches!(self.outcome, None | Some(Outcome::TimedOut))
            && matches!(self.stage, Stage::Called | Stage::Announced)
            && protocol.knows(Role::Initiator, &Performative::RejectProposal)
    }

    /// The moment at which something follows from silence.
    pub(crate) fn deadline(&self, end_by: Option<i64>) -> Option<i64> {
        if self.notice.is_some() {
            return Some(i64::MIN);
        }
        let waits = self.outcome.is_none();
        self.answer_by
            .into_iter()
            .chain(end_by)
            .filter(|_| waits)
            .min()
    }

    /// Lets time pass.
    pub(crate) fn expire(&mut self, protocol: &Protocol, own: Role, end_by: Option<i64>, now: i64) {
        if self.deadline(end_by).is_none_or(|deadline| now < deadline) || self.notice.is_some() {
            return;
        }
        let at_end = end_by.is_some_and(|end| now >= end);
        match protocol.silence(self.stage) {
            _ if self.cancelling => self.end(Outcome::Unconfirmed),
            Some(Effect::Ends(outcome)) => self.end(outcome),
            Some(Effect::Goes(stage)) if !at_end => {
                self.stage = stage;
                self.answer_by = None;
            }
            _ => {
                self.end(Outcome::TimedOut);
                self.notice = self.time_out_notice(protocol, own);
            }
        }
    }

    /// The initiator tells the participant that nothing more is wanted. A silent participant in a contract net needs no
    /// message: its proposal is rejected if it still comes.
    fn time_out_notice(&self, protocol: &Protocol, own: Role) -> Option<Performative> {
        let reject = Performative::RejectProposal;
        let silent = protocol.silence(self.stage).is_none() && self.stage == Stage::Called;
        match own {
            Role::Participant => None,
            Role::Initiator if protocol.step(self.stage, own, &reject).is_some() => Some(reject),
            Role::Initiator => (!silent).then_some(Performative::Cancel),
        }
    }

    pub(crate) fn take_notice(&mut self) -> Option<Performative> {
        self.notice.take()
    }

    /// Ends the branch if nothing more has to come.
    pub(crate) fn conclude(&mut self, protocol: &Protocol) {
        if let (None, Some(Effect::Ends(outcome))) = (self.outcome, protocol.silence(self.stage)) {
            self.end(outcome);
        }
    }

    pub(crate) fn name(&self) -> &String {
        &self.agent.name
    }
}

/// Encodings may turn a word into a string or back, so textual parameters are compared as texts.
pub(crate) fn same(one: &Expression, other: &Expression) -> bool {
    match (one.as_str(), other.as_str()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}
