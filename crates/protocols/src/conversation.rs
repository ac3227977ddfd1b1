//! The part that both roles share: branches, tags, deadlines, and the judgement of received messages.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use sealbus_fipa::{AclMessage, Aid, DateTime, Expression, Limits, Performative};

use crate::branch::{Branch, Received, same};
use crate::protocol::Effect;
use crate::{ActError, Outcome, Protocol, Reason, Refused, Role};

#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) protocol: &'static Protocol,
    pub(crate) id: Option<Expression>,
    pub(crate) own: Role,
    /// The branches, in the order of the agents' names.
    pub(crate) branches: Vec<Branch>,
    pub(crate) end_by: Option<i64>,
    pub(crate) refused: u64,
    messages: u64,
}

impl Conversation {
    pub(crate) fn new(
        protocol: &'static Protocol,
        id: Option<Expression>,
        own: Role,
        branches: Vec<Branch>,
    ) -> Self {
        Self {
            protocol,
            id,
            own,
            branches,
            end_by: None,
            refused: 0,
            messages: 0,
        }
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let found = self
            .branches
            .binary_search_by(|branch| branch.name().as_str().cmp(name));
        found.ok().or_else(|| {
            let mut branches = self.branches.iter();
            branches.position(|branch| branch.is_with(name))
        })
    }

    pub(crate) fn ended(&self) -> bool {
        self.branches.iter().all(|it| it.outcome().is_some())
    }

    pub(crate) fn deadline(&self) -> Option<i64> {
        let branches = self.branches.iter();
        branches.filter_map(|it| it.deadline(self.end_by)).min()
    }

    fn expire(&mut self, index: usize, now: i64) {
        self.branches[index].expire(self.protocol, self.own, self.end_by, now);
    }

    pub(crate) fn expire_all(&mut self, now: i64) {
        for index in 0..self.branches.len() {
            self.expire(index, now);
        }
    }

    /// Lets time pass. Returns the messages about it to the other side.
    pub(crate) fn advance(&mut self, now: i64) -> Vec<AclMessage> {
        self.expire_all(now);
        let mut out = Vec::new();
        let tag = self.tag();
        for index in 0..self.branches.len() {
            if let Some(act) = self.branches[index].take_notice() {
                self.address(&mut out, index, &AclMessage::new(act), &tag);
            }
        }
        out
    }

    pub(crate) fn conclude(&mut self) {
        for branch in &mut self.branches {
            branch.conclude(self.protocol);
        }
    }

    pub(crate) fn undeliverable(&mut self, name: &str) {
        let found = self.position(name);
        if let Some(branch) = found.and_then(|index| self.branches.get_mut(index))
            && branch.outcome().is_none()
        {
            branch.end(Outcome::Undeliverable);
        }
    }

    // ---- sending --------------------------------------------------------------------------------

    /// Sends a message of the protocol to these branches, or to none of them.
    pub(crate) fn send(
        &mut self,
        to: &[usize],
        draft: &AclMessage,
        now: i64,
    ) -> Result<Vec<AclMessage>, ActError> {
        let act = &draft.performative;
        let reply_by = moment(draft.reply_by, now);
        let (protocol, own) = (self.protocol, self.own);
        let effects = to
            .iter()
            .map(|index| self.branches[*index].may_send(protocol, own, act))
            .collect::<Result<Vec<_>, _>>()?;
        let tag = self.tag();
        let mut out = Vec::new();
        for (index, effect) in to.iter().zip(effects) {
            self.address(&mut out, *index, draft, &tag);
            let branch = &mut self.branches[*index];
            if own == Role::Initiator && *act == Performative::Cancel {
                branch.cancel(Some(tag.clone()), reply_by);
            } else {
                branch.sent(tag.clone());
                branch.take(protocol, own, effect, reply_by);
            }
        }
        Ok(out)
    }

    /// Completes the opening message.
    pub(crate) fn open(&mut self, draft: &AclMessage, now: i64) -> Vec<AclMessage> {
        let tag = self.tag();
        let reply_by = moment(draft.reply_by, now);
        let mut out = Vec::new();
        for index in 0..self.branches.len() {
            self.address(&mut out, index, draft, &tag);
            self.branches[index].sent(tag.clone());
            self.opened(index, reply_by);
        }
        out
    }

    pub(crate) fn opened(&mut self, index: usize, reply_by: Option<i64>) {
        let first = Effect::Goes(self.protocol.first);
        self.branches[index].take(self.protocol, Role::Initiator, first, reply_by);
    }

    /// Adds the agents of a branch to the last message if it answers the same, otherwise adds a message.
    fn address(
        &mut self,
        out: &mut Vec<AclMessage>,
        index: usize,
        draft: &AclMessage,
        tag: &Expression,
    ) {
        let answered = match draft.performative {
            Performative::Cancel => None,
            _ => self.branches[index].answered(self.own),
        };
        let receivers = self.branches[index].receivers();
        if let Some(last) = out.last_mut()
            && last.performative == draft.performative
            && last.in_reply_to == answered
            && last.receivers.len() + receivers.len() <= Limits::DEFAULT.agents
        {
            last.receivers.extend_from_slice(receivers);
            return;
        }
        let message = self.compose(draft.clone(), receivers.to_vec(), answered, tag.clone());
        out.push(message);
    }

    pub(crate) fn compose(
        &self,
        draft: AclMessage,
        receivers: Vec<Aid>,
        in_reply_to: Option<Expression>,
        tag: Expression,
    ) -> AclMessage {
        AclMessage {
            receivers,
            protocol: Some(self.protocol.name.into()),
            conversation_id: self.id.clone(),
            reply_with: Some(tag),
            in_reply_to,
            ..draft
        }
    }

    /// A `reply-with` that no other message of this side of the conversation has.
    pub(crate) fn tag(&mut self) -> Expression {
        self.messages += 1;
        let role = match self.own {
            Role::Initiator => 'i',
            Role::Participant => 'p',
        };
        let id = self.id.as_ref().and_then(Expression::as_str);
        Expression::from(format!("{}-{role}{}", id.unwrap_or("tag"), self.messages))
    }

    // ---- receiving ------------------------------------------------------------------------------

    pub(crate) fn receive(&mut self, message: &AclMessage, now: i64) -> Result<Received, Refused> {
        let done = self.judge(message, now);
        if done.is_err() {
            self.refused = self.refused.saturating_add(1);
        }
        done
    }

    fn judge(&mut self, message: &AclMessage, now: i64) -> Result<Received, Refused> {
        match (&message.conversation_id, &self.id) {
            (Some(one), Some(other)) if same(one, other) => {}
            (None, None) => {}
            _ => return Err(Reason::OtherConversation.into()),
        }
        self.check_protocol(message)?;
        let sender = message.sender.as_ref().ok_or(Reason::NoSender)?;
        let Some(index) = self.position(&sender.name) else {
            if self.protocol.recruits && self.own == Role::Initiator && !self.ended() {
                return Ok(Received::Recruit);
            }
            return Err(Reason::Stranger(sender.name.clone()).into());
        };
        self.expire(index, now);
        let by = self.own.other();
        let branch = &mut self.branches[index];
        let reply_by = moment(message.reply_by, now);
        branch
            .receive(self.protocol, by, message, reply_by)
            .map_err(|reason| self.refuse(reason, index, message))
    }

    /// A recruit may run the protocol of the message that it was sent.
    pub(crate) fn check_protocol(&self, message: &AclMessage) -> Result<(), Reason> {
        match &message.protocol {
            Some(name)
                if !self.protocol.recruits && !name.eq_ignore_ascii_case(self.protocol.name) =>
            {
                Err(Reason::OtherProtocol(name.clone()))
            }
            _ => Ok(()),
        }
    }

    fn refuse(&mut self, reason: Reason, index: usize, message: &AclMessage) -> Refused {
        let answer = match &reason {
            Reason::Forbidden { .. } => Some(Performative::NotUnderstood),
            _ if self.own == Role::Initiator
                && self.branches[index].rejects_late(self.protocol, &message.performative) =>
            {
                Some(Performative::RejectProposal)
            }
            _ => None,
        };
        self.refused_with(reason, answer, index, message)
    }

    pub(crate) fn refused_with(
        &mut self,
        reason: Reason,
        answer: Option<Performative>,
        index: usize,
        message: &AclMessage,
    ) -> Refused {
        let answer = answer.map(|act| {
            let receivers = self.branches[index].receivers().to_vec();
            let draft = AclMessage::new(act).with_content(reason.to_string());
            let tag = self.tag();
            Box::new(self.compose(draft, receivers, message.reply_with.clone(), tag))
        });
        Refused { reason, answer }
    }
}

/// The moment of a `reply-by`, in milliseconds after 1 January 1970 UTC. A moment that cannot be read sets no deadline.
pub(crate) fn moment(reply_by: Option<DateTime>, now: i64) -> Option<i64> {
    reply_by?.unix_ms(now).ok()
}
