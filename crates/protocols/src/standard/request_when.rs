//! Request When (FIPA SC00028): the initiator asks for an action once a condition holds.
//!
//! The participant must agree, because it cannot act at once. If the condition can no longer hold, it sends `failure`.

use sealbus_fipa::Performative::{Agree, Failure, Inform, Refuse, RequestWhen};

use crate::protocol::Cause::Participant;
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-request-when` (SC00028).
pub static REQUEST_WHEN: Protocol = Protocol {
    name: "fipa-request-when",
    document: "SC00028",
    opening: &[RequestWhen],
    first: Stage::Asked,
    steps: &[&[
        Step(Stage::Asked, Participant(Refuse), Ends(Outcome::Refused)),
        Step(Stage::Asked, Participant(Agree), Goes(Stage::Agreed)),
        Step(Stage::Agreed, Participant(Failure), Ends(Outcome::Failed)),
        Step(Stage::Agreed, Participant(Inform), Ends(Outcome::Done)),
    ]],
    // A participant that found the condition true may have left out `agree`.
    tolerated: &[
        Step(Stage::Asked, Participant(Failure), Ends(Outcome::Failed)),
        Step(Stage::Asked, Participant(Inform), Ends(Outcome::Done)),
    ],
    recruits: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        plays(
            &REQUEST_WHEN,
            "request-when > < agree < inform",
            Outcome::Done,
        );
        plays(
            &REQUEST_WHEN,
            "request-when > < agree < failure",
            Outcome::Failed,
        );
        plays(&REQUEST_WHEN, "request-when > < refuse", Outcome::Refused);
    }

    #[test]
    fn the_participant_agrees_before_it_informs() {
        refuses(&REQUEST_WHEN, "request-when > < inform");
    }
}
