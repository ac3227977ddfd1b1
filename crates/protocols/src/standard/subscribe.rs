//! Subscribe (FIPA SC00035): the participant informs the initiator of a value now and whenever it changes.
//!
//! The initiator ends the subscription with `cancel`, the participant with `failure`.

use sealbus_fipa::Performative::{Agree, Failure, Inform, Refuse, Subscribe};

use crate::protocol::Cause::Participant;
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-subscribe` (SC00035).
pub static SUBSCRIBE: Protocol = Protocol {
    name: "fipa-subscribe",
    document: "SC00035",
    opening: &[Subscribe],
    first: Stage::Asked,
    steps: &[&[
        Step(Stage::Asked, Participant(Refuse), Ends(Outcome::Refused)),
        Step(Stage::Asked, Participant(Agree), Goes(Stage::Active)),
        Step(Stage::Asked, Participant(Inform), Goes(Stage::Active)),
        Step(Stage::Active, Participant(Inform), Goes(Stage::Active)),
        Step(Stage::Active, Participant(Failure), Ends(Outcome::Failed)),
    ]],
    tolerated: &[
        Step(Stage::Asked, Participant(Failure), Ends(Outcome::Failed)),
        Step(Stage::Active, Participant(Agree), Goes(Stage::Active)),
    ],
    recruits: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{plays, refuses};

    #[test]
    fn the_sequences_of_the_standard() {
        plays(&SUBSCRIBE, "subscribe > < refuse", Outcome::Refused);
        plays(
            &SUBSCRIBE,
            "subscribe > < agree < inform < inform < failure",
            Outcome::Failed,
        );
        plays(
            &SUBSCRIBE,
            "subscribe > < inform > cancel confirm",
            Outcome::Cancelled,
        );
        plays(
            &SUBSCRIBE,
            "subscribe > < agree > cancel < inform confirm",
            Outcome::Cancelled,
        );
        plays(
            &SUBSCRIBE,
            "subscribe > < agree > cancel deny < inform < failure",
            Outcome::Failed,
        );
    }

    #[test]
    fn other_sequences_are_refused() {
        refuses(&SUBSCRIBE, "subscribe > < failure");
        refuses(&SUBSCRIBE, "subscribe > < agree < refuse");
        refuses(&SUBSCRIBE, "subscribe > confirm");
    }
}
