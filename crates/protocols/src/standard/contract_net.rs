//! Contract Net (FIPA SC00029): the initiator calls for proposals, accepts some, and the chosen participants work.
//!
//! The initiator may accept several proposals or none. A proposal that comes after the deadline of the call is rejected
//! without a decision.

use sealbus_fipa::Performative::{
    AcceptProposal, Cfp, Failure, Inform, Propose, Refuse, RejectProposal,
};

use crate::protocol::Cause::{Initiator, Participant};
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-contract-net` (SC00029).
pub static CONTRACT_NET: Protocol = Protocol {
    name: "fipa-contract-net",
    document: "SC00029",
    opening: &[Cfp],
    first: Stage::Called,
    steps: &[ROUND],
    tolerated: &[],
    recruits: false,
};

/// One round: a call, a proposal, a decision, and the work.
pub(super) const ROUND: &[Step] = &[
    Step(Stage::Called, Participant(Refuse), Ends(Outcome::Refused)),
    Step(Stage::Called, Participant(Propose), Goes(Stage::Proposed)),
    Step(
        Stage::Proposed,
        Initiator(RejectProposal),
        Ends(Outcome::Rejected),
    ),
    Step(
        Stage::Proposed,
        Initiator(AcceptProposal),
        Goes(Stage::Ordered),
    ),
    Step(Stage::Ordered, Participant(Failure), Ends(Outcome::Failed)),
    Step(Stage::Ordered, Participant(Inform), Ends(Outcome::Done)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        let proposed = "cfp > < propose";
        let ordered = "cfp > < propose > accept-proposal";
        plays(&CONTRACT_NET, "cfp > < refuse", Outcome::Refused);
        plays(
            &CONTRACT_NET,
            "cfp > < not-understood",
            Outcome::NotUnderstood,
        );
        plays(
            &CONTRACT_NET,
            &format!("{proposed} > reject-proposal"),
            Outcome::Rejected,
        );
        plays(&CONTRACT_NET, &format!("{ordered} < inform"), Outcome::Done);
        plays(
            &CONTRACT_NET,
            &format!("{ordered} < failure"),
            Outcome::Failed,
        );
    }

    #[test]
    fn other_sequences_are_refused() {
        refuses(&CONTRACT_NET, "cfp > > accept-proposal");
        refuses(&CONTRACT_NET, "cfp > < agree");
        refuses(&CONTRACT_NET, "cfp > < propose > cfp");
        refuses(&CONTRACT_NET, "cfp > < propose < inform");
    }
}
