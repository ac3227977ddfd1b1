//! Query (FIPA SC00027): the initiator asks whether something is true (`query-if`) or which objects match an expression
//! (`query-ref`).

use sealbus_fipa::Performative::{QueryIf, QueryRef};

use super::request::ANSWER;
use crate::Stage;
use crate::protocol::Protocol;

/// `fipa-query` (SC00027).
pub static QUERY: Protocol = Protocol {
    name: "fipa-query",
    document: "SC00027",
    opening: &[QueryIf, QueryRef],
    first: Stage::Asked,
    steps: &[ANSWER],
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
        for ask in ["query-if >", "query-ref >"] {
            plays(&QUERY, &format!("{ask} < agree < inform"), Outcome::Done);
            plays(&QUERY, &format!("{ask} < inform"), Outcome::Done);
            plays(&QUERY, &format!("{ask} < refuse"), Outcome::Refused);
            plays(&QUERY, &format!("{ask} < agree < failure"), Outcome::Failed);
        }
    }

    #[test]
    fn other_sequences_are_refused() {
        refuses(&QUERY, "request >");
        refuses(&QUERY, "query-if > < inform-if");
    }
}
