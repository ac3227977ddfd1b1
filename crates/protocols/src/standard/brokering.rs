//! Brokering (FIPA SC00033): a broker finds agents for an embedded message, and passes their answers on.
//!
//! The broker talks with the agents it found in conversations of their own, each an [`Initiator`](crate::Initiator) of the
//! embedded message's protocol. It passes answers on as `inform`, one by one or all in one. No act says that one was the
//! last, so either side concludes when it has all of them: [`Initiator::conclude`](crate::Initiator::conclude).

use sealbus_fipa::Performative::{Agree, Failure, Inform, Proxy, Refuse};

use crate::protocol::Cause::{Participant, Silence};
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-brokering` (SC00033).
pub static BROKERING: Protocol = Protocol {
    name: "fipa-brokering",
    document: "SC00033",
    opening: &[Proxy],
    first: Stage::Asked,
    steps: &[&[
        Step(Stage::Asked, Participant(Refuse), Ends(Outcome::Refused)),
        Step(Stage::Asked, Participant(Agree), Goes(Stage::Agreed)),
        Step(Stage::Agreed, Participant(Failure), Ends(Outcome::Failed)),
        Step(Stage::Agreed, Participant(Inform), Goes(Stage::Active)),
        Step(Stage::Active, Participant(Inform), Goes(Stage::Active)),
        Step(Stage::Active, Participant(Failure), Ends(Outcome::Failed)),
        Step(Stage::Active, Silence, Ends(Outcome::Done)),
    ]],
    tolerated: &[
        Step(Stage::Asked, Participant(Inform), Goes(Stage::Active)),
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
        let agreed = "proxy > < agree";
        plays(&BROKERING, "proxy > < refuse", Outcome::Refused);
        plays(&BROKERING, &format!("{agreed} < failure"), Outcome::Failed);
        plays(
            &BROKERING,
            &format!("{agreed} < inform < inform conclude"),
            Outcome::Done,
        );
        plays(
            &BROKERING,
            &format!("{agreed} < inform < failure"),
            Outcome::Failed,
        );
    }

    #[test]
    fn the_broker_agrees_first() {
        refuses(&BROKERING, "proxy > < inform");
        refuses(&BROKERING, "proxy > < failure");
    }
}
