//! An encoding carries every value whole, or names the value that it cannot carry.

#![allow(clippy::unwrap_used)]

mod arbitrary;

use arbitrary::{portable_envelope, portable_message, wild_envelope, wild_message};
use proptest::prelude::*;
use sealbus_fipa::bitefficient::Rest;
use sealbus_fipa::{
    AclMessage, Aid, Content, Limits, Performative, bitefficient, detect, envelope, representation,
    representations, string,
};

/// Encodings are found by their FIPA names and by their short names.
#[test]
fn the_encodings_are_known_by_their_names() {
    let names: Vec<_> = representations()
        .iter()
        .map(|known| known.short_name())
        .collect();
    assert_eq!(names, ["bitefficient", "string", "xml", "json"]);
    for known in representations() {
        assert_eq!(representation(known.name()).unwrap().name(), known.name());
        assert_eq!(
            representation(known.short_name()).unwrap().name(),
            known.name()
        );
    }
    assert!(representation("LEAP").is_none());
}

/// JADE's mark of base64 says something of content alone.
#[test]
fn a_mark_of_base64_without_content_is_a_parameter_like_any_other() {
    let message =
        AclMessage::new(Performative::Inform).with_user_defined("X-JADE-Encoding", "Base64");
    for representation in representations() {
        let mut bytes = Vec::new();
        representation.encode(&message, &mut bytes).unwrap();
        let read = representation.decode(&bytes, &Limits::DEFAULT).unwrap();
        assert_eq!(read, message, "{}", representation.name());
    }
}

#[test]
fn a_view_knows_whether_there_are_user_defined_parameters() {
    let plain = AclMessage::new(Performative::Inform);
    let messages = [
        (plain.clone(), false),
        (plain.with_user_defined("X-hop", 3), true),
    ];
    for (message, has_some) in messages {
        let (mut bits, mut text) = (Vec::new(), Vec::new());
        bitefficient::encode(&message, &mut bits).unwrap();
        string::encode(&message, &mut text).unwrap();
        for view in [
            message.view(),
            bitefficient::decode_ref(&bits, &Limits::DEFAULT).unwrap(),
            string::decode_ref(&text, &Limits::DEFAULT).unwrap(),
        ] {
            assert_eq!(view.has_user_defined(), has_some);
            assert_eq!(view.user_defined().next().is_some(), has_some);
        }
    }
    // JADE's mark of base64 is not shown as a parameter.
    let marked = br#"(inform :content "AP8=" :X-JADE-Encoding Base64)"#;
    let view = string::decode_ref(marked, &Limits::DEFAULT).unwrap();
    assert_eq!(*view.content_bytes().unwrap(), [0_u8, 0xff]);
    assert!(!view.has_user_defined());
}

/// The part of the encoding that messages with other content begin with, too.
fn beginning(message: &AclMessage) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bitefficient::encode(message, &mut bytes).ok()?;
    let content = message.content_bytes().map_or(0, <[u8]>::len);
    bytes.truncate(bytes.len() - content - 2);
    Some(bytes)
}

#[test]
fn usual_messages_are_recognised_by_their_beginning() {
    let usual = AclMessage::new(Performative::Request)
        .with_sender(Aid::new("alice@factory").unwrap())
        .with_receiver(Aid::new("bob@factory").unwrap())
        .with_receiver(Aid::new("a".repeat(100)).unwrap())
        .with_language("fipa-sl")
        .with_encoding("utf-8")
        .with_ontology("sale")
        .with_protocol("fipa-request")
        .with_conversation_id("sale-7")
        .with_reply_with("two")
        .with_in_reply_to("one");
    for length in [0, 1, 64, 65, 255, 256, 65_535] {
        for content in [
            Content::from("x".repeat(length)),
            Content::from(vec![0_u8; length]),
        ] {
            let message = usual.clone().with_content(content);
            let mut whole = Vec::new();
            bitefficient::encode(&message, &mut whole).unwrap();
            let mut joined = beginning(&message).unwrap();
            let rest = Rest::behind(&message, &joined).unwrap();
            rest.append_to(&mut joined);
            assert_eq!(joined, whole);
        }
    }
    let begins = beginning(&usual.clone().with_content("x")).unwrap();
    for other in [
        usual.clone(),
        usual.clone().with_content("with a \0"),
        usual.clone().with_content(vec![1_u8]),
        usual
            .clone()
            .with_content("x")
            .with_conversation_id("sale-8"),
        usual
            .clone()
            .with_content("x")
            .with_reply_to(Aid::new("bob@factory").unwrap()),
    ] {
        assert_eq!(Rest::behind(&other, &begins), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn portable_messages_pass_from_each_encoding_to_each(message in portable_message()) {
        for first in representations() {
            let mut bytes = Vec::new();
            first.encode(&message, &mut bytes)
                .map_err(|error| TestCaseError::fail(format!("{}: {error}", first.name())))?;
            let read = first.decode(&bytes, &Limits::DEFAULT).map_err(|error| {
                TestCaseError::fail(format!("{}: {error} in {}", first.name(), bytes.escape_ascii()))
            })?;
            prop_assert_eq!(&read, &message, "{} {}", first.name(), bytes.escape_ascii());
            prop_assert_eq!(detect(&bytes).map(|found| found.name()), Some(first.name()));
            for second in representations() {
                let mut bytes = Vec::new();
                second.encode(&read, &mut bytes)
                    .map_err(|error| TestCaseError::fail(format!("{}: {error}", second.name())))?;
                let read = second.decode(&bytes, &Limits::DEFAULT)
                    .map_err(|error| TestCaseError::fail(format!("{}: {error}", second.name())))?;
                prop_assert_eq!(&read, &message, "{} to {}", first.name(), second.name());
            }
        }
    }

    #[test]
    fn the_two_parts_of_a_message_are_the_whole_of_it(message in wild_message()) {
        let (mut leading, mut rest, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let parts = bitefficient::encode_parts(&message, &mut leading, &mut rest);
        let encoded = bitefficient::encode(&message, &mut whole);
        prop_assert_eq!(parts.is_ok(), encoded.is_ok());
        if encoded.is_ok() {
            let joined = bitefficient::join_parts(&leading, &rest).unwrap().concat();
            prop_assert_eq!(joined.len(), whole.len());
            let mut in_place = vec![0; bitefficient::room_before_rest(&leading)];
            in_place.extend_from_slice(&rest);
            let in_place = bitefficient::join_in_place(&leading, in_place).unwrap();
            prop_assert_eq!(&joined, &in_place);
            let read = |bytes: &[u8]| bitefficient::decode(bytes, &Limits::DEFAULT).ok();
            prop_assert_eq!(read(&joined), read(&whole));
        }
    }

    #[test]
    fn any_bytes_are_no_parts_at_worst(
        leading in proptest::collection::vec(any::<u8>(), 0..40),
        rest in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let pieces = bitefficient::join_parts(&leading, &rest);
        let mut bytes = vec![0; bitefficient::room_before_rest(&leading)];
        bytes.extend_from_slice(&rest);
        let joined = bitefficient::join_in_place(&leading, bytes);
        prop_assert_eq!(pieces.map(|pieces| pieces.concat()), joined.ok());
        prop_assert!(bitefficient::join_in_place(&leading, leading.clone()).is_err());
    }

    #[test]
    fn around_its_content_a_message_is_the_same(message in wild_message()) {
        let (mut whole, mut around) = (b"before".to_vec(), b"before".to_vec());
        let encoded = bitefficient::encode(&message, &mut whole);
        match bitefficient::encode_around_content(&message, &mut around) {
            Err(error) => prop_assert_eq!(encoded, Err(error)),
            Ok(rest) => {
                prop_assert!(encoded.is_ok());
                if let Some(tail) = rest {
                    around.extend_from_slice(message.content_bytes().unwrap());
                    around.extend_from_slice(tail);
                }
            }
        }
        prop_assert_eq!(around, whole);
    }

    #[test]
    fn behind_a_beginning_stands_the_rest_of_the_encoding(
        message in wild_message(),
        other in wild_message(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut whole = Vec::new();
        let encoded = bitefficient::encode(&message, &mut whole);
        let with_other_content = AclMessage { content: other.content.clone(), ..message.clone() };
        for from in [&message, &with_other_content, &other] {
            let Some(beginning) = beginning(from) else { continue };
            for end in [beginning.len(), cut.index(beginning.len() + 1)] {
                let mut joined = beginning[..end].to_vec();
                if let Some(rest) = Rest::behind(&message, &joined) {
                    rest.append_to(&mut joined);
                    prop_assert_eq!(rest.length(), joined.len() - end);
                    prop_assert!(encoded.is_ok());
                    prop_assert_eq!(&joined, &whole);
                }
            }
        }
    }

    #[test]
    fn nothing_is_changed_silently(message in wild_message()) {
        for representation in representations() {
            let mut bytes = b"before".to_vec();
            match representation.encode(&message, &mut bytes) {
                Err(error) => {
                    prop_assert!(!error.field.is_empty(), "{error}");
                    prop_assert_eq!(&bytes, b"before");
                }
                Ok(()) => {
                    let read = representation.decode(&bytes[6..], &Limits::DEFAULT).map_err(|error| {
                        TestCaseError::fail(format!(
                            "{}: {error} in {}", representation.name(), bytes.escape_ascii()
                        ))
                    })?;
                    prop_assert_eq!(
                        &read, &message, "{} {}", representation.name(), bytes.escape_ascii()
                    );
                }
            }
        }
    }

    #[test]
    fn the_borrowed_view_reads_what_the_owned_message_holds(message in portable_message()) {
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        let view = bitefficient::decode_ref(&bytes, &Limits::DEFAULT).unwrap();
        prop_assert_eq!(&view.to_owned(), &message);
        let mut text = Vec::new();
        string::encode(&message, &mut text).unwrap();
        let view = string::decode_ref(&text, &Limits::DEFAULT).unwrap();
        prop_assert_eq!(&view.to_owned(), &message);
        prop_assert_eq!(
            view.sender().map(|aid| aid.name().to_owned()),
            message.sender.as_ref().map(|aid| aid.name.clone())
        );
        prop_assert_eq!(view.receivers().count(), message.receivers.len());
    }

    #[test]
    fn a_bitefficient_message_knows_its_length(message in portable_message(), tail in any::<Vec<u8>>()) {
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        let length = bytes.len();
        bytes.extend_from_slice(&tail);
        let encoded = bitefficient::EncodedMessage::new(bytes, &Limits::DEFAULT).unwrap();
        prop_assert_eq!(encoded.length(), length);
        prop_assert_eq!(&encoded.message().to_owned(), &message);
    }

    #[test]
    fn envelopes_pass_from_each_encoding_to_each(envelope in portable_envelope()) {
        for first in envelope::representations() {
            for second in envelope::representations() {
                let mut read = envelope.clone();
                for representation in [first, second] {
                    let name = representation.name();
                    let fail = |error: String| TestCaseError::fail(format!("{name}: {error}"));
                    let mut bytes = Vec::new();
                    representation.encode(&read, &mut bytes).map_err(|error| fail(error.to_string()))?;
                    let length = bytes.len();
                    let (again, end) = representation.decode(&bytes, &Limits::DEFAULT)
                        .map_err(|error| fail(format!("{error} in {}", bytes.escape_ascii())))?;
                    prop_assert_eq!(end, length);
                    read = again;
                }
                prop_assert_eq!(format!("{read:#?}"), format!("{envelope:#?}"));
            }
        }
    }

    #[test]
    fn nothing_in_an_envelope_is_changed_silently(envelope in wild_envelope()) {
        for representation in envelope::representations() {
            let mut bytes = b"before".to_vec();
            match representation.encode(&envelope, &mut bytes) {
                Err(error) => {
                    prop_assert!(!error.field.is_empty(), "{error}");
                    prop_assert_eq!(&bytes, b"before");
                }
                Ok(()) => {
                    let (read, _) = representation.decode(&bytes[6..], &Limits::DEFAULT)
                        .map_err(|error| TestCaseError::fail(format!(
                            "{}: {error} in {}", representation.name(), bytes.escape_ascii()
                        )))?;
                    prop_assert_eq!(
                        format!("{read:#?}"), format!("{envelope:#?}"), "{}", representation.name()
                    );
                }
            }
        }
    }
}
