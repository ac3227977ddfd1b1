//! Iterated Contract Net (FIPA SC00030): as Contract Net, but the initiator may answer proposals with a new call.
//!
//! All rounds share one conversation-id. The initiator calls a subset again and rejects the rest, or decides.

use sealbus_fipa::Performative::Cfp;

use super::contract_net::ROUND;
use crate::Stage;
use crate::protocol::Cause::Initiator;
use crate::protocol::Effect::Goes;
use crate::protocol::{Protocol, Step};

/// `fipa-iterated-contract-net` (SC00030).
pub static ITERATED_CONTRACT_NET: Protocol = Protocol {
    name: "fipa-iterated-contract-net",
    document: "SC00030",
    opening: &[Cfp],
    first: Stage::Called,
    steps: &[
        ROUND,
        &[Step(Stage::Proposed, Initiator(Cfp), Goes(Stage::Called))],
    ],
    tolerated: &[],
    recruits: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        let second = "cfp > < propose > cfp < propose";
        let rejected = format!("{second} > reject-proposal");
        let done = format!("{second} > accept-proposal < inform");
        plays(&ITERATED_CONTRACT_NET, &rejected, Outcome::Rejected);
        plays(&ITERATED_CONTRACT_NET, &done, Outcome::Done);
        plays(
            &ITERATED_CONTRACT_NET,
            "cfp > < propose > cfp < refuse",
            Outcome::Refused,
        );
    }

    #[test]
    fn a_call_follows_a_proposal() {
        refuses(&ITERATED_CONTRACT_NET, "cfp > > cfp");
    }
}
