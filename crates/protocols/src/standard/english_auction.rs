//! English Auction (FIPA XC00031): the price rises until nobody bids more, and the leader gets the goods.
//!
//! The initiator announces the auction (`inform`) and calls for bids in rounds (`cfp`). It accepts one bid of each round
//! and rejects the others. A silent bidder stays in the auction. After the last round, the initiator informs all. A
//! leader may have won and waits for the initiator's `request`, which completes the deal as in Request. Below the reserve,
//! and for a leader that was outbid in the last round, the initiator cancels instead, or lets the deadline pass.

use sealbus_fipa::Performative::{AcceptProposal, Cfp, Inform, Propose, Request};

use super::auction::ROUNDS;
use super::request::ANSWER;
use crate::protocol::Cause::{Initiator, Participant, Silence};
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-auction-english` (XC00031, experimental).
pub static ENGLISH_AUCTION: Protocol = Protocol {
    name: "fipa-auction-english",
    document: "XC00031",
    opening: &[Inform],
    first: Stage::Announced,
    steps: &[ROUNDS, LEADING, ANSWER],
    // The bid came too late for its round.
    tolerated: &[
        Step(Stage::Proposed, Initiator(Cfp), Goes(Stage::Called)),
        Step(Stage::Proposed, Initiator(Inform), Goes(Stage::Settling)),
    ],
    recruits: false,
};

const LEADING: &[Step] = &[
    Step(
        Stage::Proposed,
        Initiator(AcceptProposal),
        Goes(Stage::Leading),
    ),
    Step(Stage::Leading, Initiator(Cfp), Goes(Stage::Defending)),
    Step(
        Stage::Defending,
        Participant(Propose),
        Goes(Stage::Proposed),
    ),
    Step(Stage::Defending, Silence, Goes(Stage::Defending)),
    Step(Stage::Defending, Initiator(Cfp), Goes(Stage::Called)),
    Step(Stage::Leading, Initiator(Inform), Goes(Stage::Settling)),
    Step(Stage::Defending, Initiator(Inform), Goes(Stage::Settling)),
    Step(Stage::Settling, Initiator(Request), Goes(Stage::Asked)),
    Step(Stage::Settling, Silence, Ends(Outcome::Closed)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        let led = "inform > > cfp < propose > accept-proposal > cfp > inform";
        plays(
            &ENGLISH_AUCTION,
            &format!("{led} > request < agree < inform"),
            Outcome::Done,
        );
        plays(
            &ENGLISH_AUCTION,
            &format!("{led} > request < failure"),
            Outcome::Failed,
        );
        let raised = "inform > > cfp < propose > accept-proposal > cfp < propose > accept-proposal";
        plays(
            &ENGLISH_AUCTION,
            &format!("{raised} > inform > request < inform"),
            Outcome::Done,
        );
        let lost = "inform > > cfp < propose > reject-proposal > cfp > inform";
        plays(&ENGLISH_AUCTION, lost, Outcome::Closed);
        plays(
            &ENGLISH_AUCTION,
            "inform > > cfp > cfp > inform",
            Outcome::Closed,
        );
        plays(
            &ENGLISH_AUCTION,
            "inform > > cfp < not-understood",
            Outcome::NotUnderstood,
        );
    }

    #[test]
    fn only_a_leader_is_asked_for_the_deal() {
        refuses(&ENGLISH_AUCTION, "inform > > request");
        refuses(&ENGLISH_AUCTION, "inform > > cfp > request");
        refuses(&ENGLISH_AUCTION, "inform > < propose");
        refuses(&ENGLISH_AUCTION, "inform > > cfp < propose > cfp");
    }
}
