//! The form of a protocol: a table of steps, which both roles follow.

use core::fmt;

use sealbus_fipa::Performative;

/// A role in a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The agent that opens the conversation.
    Initiator,
    /// An agent that the initiator addresses.
    Participant,
}

impl Role {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Participant,
            Self::Participant => Self::Initiator,
        }
    }
}

/// The stage of the conversation between the initiator and one participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The initiator asked, or proposed; the participant has not answered.
    Asked,
    /// The participant agreed and works.
    Agreed,
    /// Answers come, any number of them.
    Active,
    /// An auction began. The initiator calls for bids next.
    Announced,
    /// The initiator called for proposals.
    Called,
    /// The participant made a proposal, and the initiator decides.
    Proposed,
    /// The initiator accepted the proposal. In a contract net, the participant works.
    Ordered,
    /// The participant's bid leads the auction.
    Leading,
    /// The participant's bid leads the auction, and the initiator called for higher ones.
    Defending,
    /// The auction is over, and the participant may have won. The initiator's request completes the deal.
    Settling,
}

impl Stage {
    /// The name of the stage, such as `asked`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Agreed => "agreed",
            Self::Active => "active",
            Self::Announced => "announced",
            Self::Called => "called",
            Self::Proposed => "proposed",
            Self::Ordered => "ordered",
            Self::Leading => "leading",
            Self::Defending => "defending",
            Self::Settling => "settling",
        }
    }
}

/// How the conversation between the initiator and one participant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The participant did the requested act.
    Done,
    /// The participant accepted the initiator's proposal (Propose).
    Accepted,
    /// The participant refused.
    Refused,
    /// The participant tried and failed.
    Failed,
    /// The proposal was rejected.
    Rejected,
    /// The auction ended.
    Closed,
    /// One side answered `not-understood`.
    NotUnderstood,
    /// The initiator cancelled, and the participant confirmed it.
    Cancelled,
    /// The initiator cancelled, and the participant did not answer in time.
    Unconfirmed,
    /// A deadline passed before the conversation was complete. The stage names the missing message.
    TimedOut,
    /// The platform could not deliver a message to the other side.
    Undeliverable,
}

impl Outcome {
    /// The name of the outcome, such as `timed-out`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Closed => "closed",
            Self::NotUnderstood => "not-understood",
            Self::Cancelled => "cancelled",
            Self::Unconfirmed => "unconfirmed",
            Self::TimedOut => "timed-out",
            Self::Undeliverable => "undeliverable",
        }
    }
}

/// The cause of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The initiator sends this act.
    Initiator(Performative),
    /// The participant sends this act.
    Participant(Performative),
    /// The deadline passes.
    Silence,
}

/// The effect of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Goes(Stage),
    Ends(Outcome),
}

/// One row of a protocol's table.
#[derive(Debug)]
pub(crate) struct Step(pub(crate) Stage, pub(crate) Cause, pub(crate) Effect);

impl Step {
    fn is_by(&self, role: Role) -> Option<&Performative> {
        match (&self.1, role) {
            (Cause::Initiator(act), Role::Initiator)
            | (Cause::Participant(act), Role::Participant) => Some(act),
            _ => None,
        }
    }
}

/// A FIPA interaction protocol: which act may follow which, and from whom.
///
/// `cancel` by the initiator and `not-understood` by either side are possible in every protocol at every stage, so no
/// table names them.
pub struct Protocol {
    pub(crate) name: &'static str,
    pub(crate) document: &'static str,
    pub(crate) opening: &'static [Performative],
    pub(crate) first: Stage,
    pub(crate) steps: &'static [&'static [Step]],
    /// Steps that nobody may take, but that the receiver sees when messages cross or overtake each other.
    pub(crate) tolerated: &'static [Step],
    /// Whether agents that are not participants answer the initiator.
    pub(crate) recruits: bool,
}

impl Protocol {
    /// The value of `:protocol`, such as `fipa-request`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The number of the FIPA document that defines the protocol.
    pub fn document(&self) -> &'static str {
        self.document
    }

    /// The acts that open a conversation.
    pub fn opening(&self) -> &'static [Performative] {
        self.opening
    }

    fn rows(&self) -> impl Iterator<Item = &'static Step> {
        self.steps.iter().copied().flatten()
    }

    /// The step that `by` may take.
    pub(crate) fn step(&self, stage: Stage, by: Role, act: &Performative) -> Option<Effect> {
        Self::find(self.rows(), stage, by, act)
    }

    /// The step that the receiver accepts from `by`.
    pub(crate) fn received(&self, stage: Stage, by: Role, act: &Performative) -> Option<Effect> {
        Self::find(self.rows().chain(self.tolerated), stage, by, act)
    }

    fn find(
        mut rows: impl Iterator<Item = &'static Step>,
        stage: Stage,
        by: Role,
        act: &Performative,
    ) -> Option<Effect> {
        rows.find(|row| row.0 == stage && row.is_by(by) == Some(act))
            .map(|row| row.2)
    }

    /// The effect of a passed deadline, unless that is a time-out.
    pub(crate) fn silence(&self, stage: Stage) -> Option<Effect> {
        self.rows()
            .find(|row| row.0 == stage && row.1 == Cause::Silence)
            .map(|row| row.2)
    }

    /// Whether `role` has something to send at this stage.
    pub(crate) fn awaits(&self, stage: Stage, role: Role) -> bool {
        self.rows()
            .any(|row| row.0 == stage && row.is_by(role).is_some())
    }

    /// Whether `role` ever sends this act.
    pub(crate) fn knows(&self, role: Role, act: &Performative) -> bool {
        (role == Role::Initiator && self.opening.contains(act))
            || self.rows().any(|row| row.is_by(role) == Some(act))
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
