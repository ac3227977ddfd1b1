//! The initiator of a conversation.

use alloc::string::String;
use alloc::vec::Vec;

use sealbus_fipa::{AclMessage, Aid, Performative};

use crate::branch::{Branch, Received};
use crate::conversation::Conversation;
use crate::{ActError, Outcome, Protocol, Refused, Role, Stage};

/// The participants that a message goes to.
#[derive(Debug, Clone, Copy)]
pub enum To<'a> {
    /// All whose branch has not ended.
    All,
    /// All at this stage.
    Stage(Stage),
    /// These participants.
    Agents(&'a [Aid]),
}

/// The initiator's side of a conversation: one branch for each participant.
///
/// Times are milliseconds after 1 January 1970 UTC.
#[derive(Clone, Debug)]
pub struct Initiator(Conversation);

impl Initiator {
    /// Opens a conversation. Returns the messages to send.
    ///
    /// The conversation-id must be globally unique. `draft` has the opening act, the content, and `reply-by` if the answers
    /// have a deadline. The conversation fills in receivers, protocol, conversation-id and tags, here and in all later
    /// messages.
    ///
    /// # Errors
    /// [`ActError`] if the conversation-id or the list of participants is empty, a participant is listed twice, or the
    /// act does not open the protocol.
    pub fn open(
        protocol: &'static Protocol,
        conversation_id: impl Into<String>,
        participants: impl IntoIterator<Item = Aid>,
        draft: &AclMessage,
        now: i64,
    ) -> Result<(Self, Vec<AclMessage>), ActError> {
        let id = conversation_id.into();
        if id.is_empty() {
            return Err(ActError::NoConversationId);
        }
        if !protocol.opening.contains(&draft.performative) {
            return Err(ActError::NotOpening {
                protocol: protocol.name,
                act: draft.performative.clone(),
            });
        }
        let participants = participants.into_iter();
        let mut branches: Vec<_> = participants
            .map(|agent| Branch::new(agent, protocol.first))
            .collect();
        branches.sort_by(|one, other| one.name().cmp(other.name()));
        if branches.is_empty() {
            return Err(ActError::NoParticipants);
        }
        if let Some([twice, _]) = branches
            .array_windows()
            .find(|[one, other]| one.name() == other.name())
        {
            return Err(ActError::NamedTwice(twice.name().clone()));
        }
        let mut conversation =
            Conversation::new(protocol, Some(id.into()), Role::Initiator, branches);
        let messages = conversation.open(draft, now);
        Ok((Self(conversation), messages))
    }

    /// Takes a message of this conversation.
    ///
    /// # Errors
    /// [`Refused`] if the message is no part of the conversation: it is late, repeated, foreign or against the protocol.
    pub fn receive(&mut self, message: &AclMessage, now: i64) -> Result<Received, Refused> {
        self.0.receive(message, now)
    }

    /// Sends a further message: to all chosen participants, or to none. Returns the messages to send, one for all
    /// participants whose last messages have the same tag.
    ///
    /// `cancel` is possible at every stage. The branch then goes on until the participant answers, so the result may still
    /// cross the `cancel`. Give it a `reply-by`: not every agent answers.
    ///
    /// # Errors
    /// [`ActError`] if the protocol does not allow the act for one of the chosen participants, or none is chosen.
    pub fn send(
        &mut self,
        to: To<'_>,
        draft: &AclMessage,
        now: i64,
    ) -> Result<Vec<AclMessage>, ActError> {
        self.0.expire_all(now);
        let chosen = |choose: &dyn Fn(&Branch) -> bool| {
            let branches = self.0.branches.iter().enumerate();
            let live = branches.filter(|(_, it)| it.outcome().is_none() && choose(it));
            live.map(|(index, _)| index).collect::<Vec<_>>()
        };
        let mut chosen = match to {
            To::All => chosen(&|_| true),
            To::Stage(stage) => chosen(&|it| it.stage() == stage),
            To::Agents(agents) => agents
                .iter()
                .map(|agent| {
                    let found = self.0.position(&agent.name);
                    found.ok_or_else(|| ActError::NotAParticipant(agent.name.clone()))
                })
                .collect::<Result<_, _>>()?,
        };
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.is_empty() {
            let act = draft.performative.clone();
            return Err(ActError::Nobody { act });
        }
        self.0.send(&chosen, draft, now)
    }

    /// The moment at which [`advance`](Self::advance) is due.
    pub fn deadline(&self) -> Option<i64> {
        self.0.deadline()
    }

    /// Sets the moment at which the whole conversation ends, even if answers are missing. `reply-by` covers the next
    /// answer alone: after `agree`, only this moment limits the wait for the result.
    pub fn end_by(&mut self, moment: i64) {
        self.0.end_by = Some(moment);
    }

    /// Lets time pass. Returns the messages that tell participants about it: `reject-proposal` for proposals without
    /// decision, and `cancel` for participants that may still work.
    pub fn advance(&mut self, now: i64) -> Vec<AclMessage> {
        self.0.advance(now)
    }

    /// Whether a proposal may still come that is too late, from a participant that was silent. [`receive`](Self::receive)
    /// answers it with `reject-proposal`.
    pub fn may_come_late(&self) -> bool {
        let branches = self.branches().iter();
        let late = |it: &Branch| it.rejects_late(self.0.protocol, &Performative::Propose);
        branches.filter(|it| it.outcome().is_some()).any(late)
    }

    /// Ends the branches in which nothing more has to come, such as those of a broker that has passed all answers on.
    pub fn conclude(&mut self) {
        self.0.conclude();
    }

    /// Ends the branch of a participant that the platform could not deliver a message to.
    pub fn undeliverable(&mut self, participant: &Aid) {
        self.0.undeliverable(&participant.name);
    }

    /// The branches, in the order of the participants' names.
    pub fn branches(&self) -> &[Branch] {
        &self.0.branches
    }

    /// The branch of this participant.
    pub fn branch(&self, participant: &Aid) -> Option<&Branch> {
        let index = self.0.position(&participant.name)?;
        self.0.branches.get(index)
    }

    /// The participants that go on at this stage. None at [`Stage::Called`] means that every proposal is in.
    pub fn at(&self, stage: Stage) -> impl Iterator<Item = &Branch> {
        let branches = self.branches().iter();
        branches.filter(move |it| it.outcome().is_none() && it.stage() == stage)
    }

    /// The participants from which something was missing at a deadline. Their stage says what.
    pub fn silent(&self) -> impl Iterator<Item = &Branch> {
        let outcomes = [Some(Outcome::TimedOut), Some(Outcome::Unconfirmed)];
        let branches = self.branches().iter();
        branches.filter(move |it| outcomes.contains(&it.outcome()))
    }

    /// Whether every branch has ended.
    pub fn has_ended(&self) -> bool {
        self.0.ended()
    }

    /// The number of messages that [`receive`](Self::receive) refused.
    pub fn refused(&self) -> u64 {
        self.0.refused
    }
}
