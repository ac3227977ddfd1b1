//! Request (FIPA SC00026): the initiator asks for an action, and the participant does it.
//!
//! The participant may leave out `agree` if the result follows at once.

use sealbus_fipa::Performative::{Agree, Failure, Inform, Refuse, Request};

use crate::protocol::Cause::Participant;
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-request` (SC00026).
pub static REQUEST: Protocol = Protocol {
    name: "fipa-request",
    document: "SC00026",
    opening: &[Request],
    first: Stage::Asked,
    steps: &[ANSWER],
    tolerated: &[],
    recruits: false,
};

/// The answers to an act that asks for one thing.
pub(super) const ANSWER: &[Step] = &[
    Step(Stage::Asked, Participant(Refuse), Ends(Outcome::Refused)),
    Step(Stage::Asked, Participant(Agree), Goes(Stage::Agreed)),
    Step(Stage::Asked, Participant(Failure), Ends(Outcome::Failed)),
    Step(Stage::Asked, Participant(Inform), Ends(Outcome::Done)),
    Step(Stage::Agreed, Participant(Failure), Ends(Outcome::Failed)),
    Step(Stage::Agreed, Participant(Inform), Ends(Outcome::Done)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        plays(&REQUEST, "request > < agree < inform", Outcome::Done);
        plays(&REQUEST, "request > < inform", Outcome::Done);
        plays(&REQUEST, "request > < agree < failure", Outcome::Failed);
        plays(&REQUEST, "request > < failure", Outcome::Failed);
        plays(&REQUEST, "request > < refuse", Outcome::Refused);
        plays(
            &REQUEST,
            "request > < not-understood",
            Outcome::NotUnderstood,
        );
    }

    #[test]
    fn other_sequences_are_refused() {
        refuses(&REQUEST, "request > < agree < refuse");
        refuses(&REQUEST, "request > < propose");
        refuses(&REQUEST, "request > > accept-proposal");
        refuses(&REQUEST, "query-if >");
    }
}
