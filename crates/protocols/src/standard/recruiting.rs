//! Recruiting (FIPA SC00034): a recruiter finds agents for an embedded message, which answer the designated receiver
//! directly.
//!
//! The recruiter sends the embedded message on with [`forward`]. The answers keep the original conversation-id. The
//! initiator gets them as [`Received::Recruit`](crate::Received::Recruit) unless it designated another receiver.

use sealbus_fipa::Performative::{Agree, Failure, Proxy, Refuse};
use sealbus_fipa::{AclMessage, Aid};

use crate::protocol::Cause::{Participant, Silence};
use crate::protocol::Effect::{Ends, Goes};
use crate::protocol::{Protocol, Step};
use crate::{Outcome, Stage};

/// `fipa-recruiting` (SC00034).
pub static RECRUITING: Protocol = Protocol {
    name: "fipa-recruiting",
    document: "SC00034",
    opening: &[Proxy],
    first: Stage::Asked,
    steps: &[&[
        Step(Stage::Asked, Participant(Refuse), Ends(Outcome::Refused)),
        Step(Stage::Asked, Participant(Agree), Goes(Stage::Agreed)),
        Step(Stage::Agreed, Participant(Failure), Ends(Outcome::Failed)),
        Step(Stage::Agreed, Silence, Ends(Outcome::Done)),
    ]],
    tolerated: &[Step(
        Stage::Asked,
        Participant(Failure),
        Ends(Outcome::Failed),
    )],
    recruits: true,
};

/// The embedded message as the recruiter sends it to the agents it found. They answer `designated`, under the
/// conversation-id of `proxy`.
pub fn forward(
    embedded: AclMessage,
    proxy: &AclMessage,
    targets: impl IntoIterator<Item = Aid>,
    designated: Aid,
) -> AclMessage {
    AclMessage {
        receivers: targets.into_iter().collect(),
        reply_to: [designated].into(),
        conversation_id: proxy.conversation_id.clone(),
        ..embedded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standard::sequence::{aid, plays, refuses};
    use crate::{Initiator, Participant, Received, standard};
    use sealbus_fipa::Performative;

    #[test]
    fn the_sequences_of_the_standard() {
        plays(&RECRUITING, "proxy > < refuse", Outcome::Refused);
        plays(&RECRUITING, "proxy > < agree < failure", Outcome::Failed);
        plays(&RECRUITING, "proxy > < agree conclude", Outcome::Done);
        refuses(&RECRUITING, "proxy > < agree < inform");
    }

    #[test]
    fn a_recruit_answers_the_initiator_in_the_original_conversation() {
        let draft = AclMessage::new(Performative::Proxy);
        let (mut initiator, messages) =
            Initiator::open(&RECRUITING, "c1", [aid("recruiter")], &draft, 0).unwrap();
        let proxy = messages[0].clone().with_sender(aid("initiator"));
        let embedded = AclMessage::new(Performative::QueryRef)
            .with_protocol("fipa-query")
            .with_reply_with("q1");
        let query = forward(embedded, &proxy, [aid("target")], aid("initiator"))
            .with_sender(aid("recruiter"));
        let mut target = Participant::open(&standard::QUERY, &query, 0).unwrap();
        let answer = target
            .send(&AclMessage::new(Performative::Inform), 0)
            .unwrap();
        assert_eq!(answer.receivers, [aid("initiator")]);
        assert_eq!(answer.conversation_id, Some("c1".into()));
        assert_eq!(answer.in_reply_to, Some("q1".into()));
        let answer = answer.with_sender(aid("target"));
        assert_eq!(initiator.receive(&answer, 0), Ok(Received::Recruit));
    }
}
