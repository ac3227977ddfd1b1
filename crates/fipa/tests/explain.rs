//! Explanations leave no byte out, and checks find every fault.

#![allow(clippy::unwrap_used)]

mod arbitrary;

use arbitrary::portable_message;
use proptest::prelude::*;
use sealbus_fipa::{
    AclMessage, Aid, DateTime, Expectations, Expression, Limits, Performative, Severity, explain,
    representations, validate,
};

fn aid(name: &str) -> Aid {
    Aid::new(name).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_is_explained(message in portable_message()) {
        for representation in representations() {
            let mut bytes = Vec::new();
            representation.encode(&message, &mut bytes).unwrap();
            let explanation = representation.explain(&bytes, &Limits::DEFAULT);
            prop_assert_eq!(&explanation.error, &None);
            let mut end = 0;
            for piece in &explanation.pieces {
                let between = bytes.get(end..piece.range.start);
                // White space and the commas between JSON's members.
                let separators = |between: &[u8]| between.iter().all(|byte| *byte <= 0x20 || *byte == b',');
                prop_assert!(
                    between.is_some_and(separators),
                    "{} at {end}: {piece:?}", representation.name()
                );
                end = piece.range.end;
            }
            prop_assert_eq!(end, bytes.len());
            prop_assert!(explanation.to_string().lines().count() > explanation.pieces.len());
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_explained_up_to_the_cut(
        message in portable_message(), cut in any::<prop::sample::Index>()
    ) {
        for representation in representations() {
            let mut bytes = Vec::new();
            representation.encode(&message, &mut bytes).unwrap();
            bytes.truncate(cut.index(bytes.len()));
            let explanation = representation.explain(&bytes, &Limits::DEFAULT);
            prop_assert!(explanation.error.is_some(), "{}", representation.name());
            let ends = explanation.pieces.iter().all(|piece| piece.range.end <= bytes.len());
            prop_assert!(ends && explanation.to_string().contains("stops at byte"));
        }
    }
}

#[test]
fn an_explanation_shows_offset_bytes_meaning_and_rule() {
    let bytes = b"\xfa\x10\x13\x02\x02\x10alice\x00\x01\x06\x21\x11\x11\x11\x11\x11\x11\x41\x11\x10\x01\x00";
    let shown = explain(bytes, &Limits::DEFAULT).unwrap().to_string();
    let expected = [
        "fipa.acl.rep.bitefficient.std, 26 bytes",
        "0000  fa                                               message id: no code tables  [FIPA00069 MessageId]",
        "0001  10                                               version 1.0  [FIPA00069 Version]",
        "0002  13                                               request: Please do this action.  [FIPA00069 MessageType, FIPA00037]",
        "0003  02                                               parameter: sender  [FIPA00069 MessageParameter, FIPA00061]",
        "0004  02                                                 AID, its name follows  [FIPA00069 AgentIdentifier]",
        "0005  10 61 6c 69 63 65 00                                 word alice  [FIPA00069 BinWord]",
        "000c  01                                               end of AID  [FIPA00069 EndOfCollection]",
        "000d  06                                               parameter: reply-by  [FIPA00069 MessageParameter, FIPA00061]",
        "000e  21 11 11 11 11 11 11 41 11 10                    date-time +00000000T000030000  [FIPA00069 BinDateTimeToken]",
        "0018  01                                               end of message  [FIPA00069 EndOfMessage]",
        "0019  1 bytes follow that are not of the message",
    ];
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_sound_message_has_no_findings() {
    let message = AclMessage::new(Performative::Request)
        .with_sender(aid("buyer@shop"))
        .with_receiver(aid("seller@shop"))
        .with_protocol("fipa-request")
        .with_conversation_id("c-1")
        .with_in_reply_to("offer-7")
        .with_reply_by("20260304T050607089Z".parse().unwrap())
        .with_language("fipa-sl")
        .with_content("((action x))");
    let expectations = Expectations {
        received_unix_ms: Some(0),
        // The same tag, read from another encoding.
        awaited: Some(&[Expression::String("offer-7".to_owned())]),
    };
    assert_eq!(validate(&message, &expectations), []);
}

#[test]
fn each_flaw_is_found() {
    let moment: DateTime = "20200304T050607089".parse().unwrap();
    let mut message = AclMessage::new(Performative::from("bid"))
        .with_receiver(aid("seller"))
        .with_receiver(aid("seller"))
        .with_protocol("fipa-request")
        .with_in_reply_to("offer-8")
        .with_reply_by(moment)
        .with_user_defined("hop", 3)
        .with_content("x");
    message.ontology = Some(Expression::List(vec![Expression::Word(
        "two words".to_owned(),
    )]));
    message.receivers[0].name.push('\n');
    let expectations = Expectations {
        received_unix_ms: Some(1_700_000_000_000),
        awaited: Some(&[]),
    };
    let findings = validate(&message, &expectations);
    let found: Vec<_> = findings
        .iter()
        .map(|finding| (finding.severity, finding.field.as_ref()))
        .collect();
    use Severity::{Error, Warning};
    assert_eq!(
        found,
        [
            (Warning, "performative"),
            (Warning, "sender"),
            (Error, "receiver[0].name"),
            (Warning, "receiver[1].name"),
            (Error, "conversation-id"),
            (Error, "in-reply-to"),
            (Warning, "reply-by"),
            (Warning, "reply-by"),
            (Warning, "language"),
            (Error, "ontology"),
            (Error, "hop"),
        ],
        "{findings:#?}"
    );
}
