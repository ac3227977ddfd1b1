//! Propose (FIPA SC00036): the initiator proposes to do something, and the participant accepts or rejects.
//!
//! An answer ends the protocol: the proposed act itself lies outside it.

use sealbus_fipa::Performative::{AcceptProposal, Propose, RejectProposal};

use crate::protocol::Cause::Participant;
use crate::protocol::Effect::Ends;
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-propose` (SC00036).
pub static PROPOSE: Protocol = Protocol {
    name: "fipa-propose",
    document: "SC00036",
    opening: &[Propose],
    first: Stage::Asked,
    steps: &[&[
        Step(
            Stage::Asked,
            Participant(AcceptProposal),
            Ends(Outcome::Accepted),
        ),
        Step(
            Stage::Asked,
            Participant(RejectProposal),
            Ends(Outcome::Rejected),
        ),
    ]],
    tolerated: &[],
    recruits: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        plays(&PROPOSE, "propose > < accept-proposal", Outcome::Accepted);
        plays(&PROPOSE, "propose > < reject-proposal", Outcome::Rejected);
        plays(
            &PROPOSE,
            "propose > < not-understood",
            Outcome::NotUnderstood,
        );
        plays(&PROPOSE, "propose > > cancel confirm", Outcome::Cancelled);
        refuses(&PROPOSE, "propose > < inform");
    }
}
