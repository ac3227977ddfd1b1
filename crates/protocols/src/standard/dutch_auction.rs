//! Dutch Auction (FIPA XC00032): the price falls until somebody buys.
//!
//! The initiator announces the auction (`inform`) and calls for bids at a falling price (`cfp`). It accepts the first bid,
//! and rejects others of the same round. If goods are left, it calls again, the buyers included. At the end it informs
//! all.

use sealbus_fipa::Performative::{AcceptProposal, Cfp, Inform};

use super::auction::ROUNDS;
use crate::protocol::Cause::Initiator;
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-auction-dutch` (XC00032, experimental).
pub static DUTCH_AUCTION: Protocol = Protocol {
    name: "fipa-auction-dutch",
    document: "XC00032",
    opening: &[Inform],
    first: Stage::Announced,
    steps: &[ROUNDS, SALES],
    // The bid came too late for its round.
    tolerated: &[
        Step(Stage::Proposed, Initiator(Cfp), Goes(Stage::Called)),
        Step(Stage::Proposed, Initiator(Inform), Ends(Outcome::Closed)),
    ],
    recruits: false,
};

const SALES: &[Step] = &[
    Step(
        Stage::Proposed,
        Initiator(AcceptProposal),
        Goes(Stage::Ordered),
    ),
    Step(Stage::Ordered, Initiator(Cfp), Goes(Stage::Called)),
    Step(Stage::Ordered, Initiator(Inform), Ends(Outcome::Closed)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        let sold = "inform > > cfp > cfp < propose > accept-proposal";
        plays(&DUTCH_AUCTION, &format!("{sold} > inform"), Outcome::Closed);
        plays(
            &DUTCH_AUCTION,
            &format!("{sold} > cfp > inform"),
            Outcome::Closed,
        );
        let late = "inform > > cfp < propose > reject-proposal > inform";
        plays(&DUTCH_AUCTION, late, Outcome::Closed);
    }

    #[test]
    fn other_sequences_are_refused() {
        refuses(&DUTCH_AUCTION, "inform > < propose");
        refuses(&DUTCH_AUCTION, "inform > > accept-proposal");
        refuses(&DUTCH_AUCTION, "inform > > cfp < propose > inform");
    }
}
