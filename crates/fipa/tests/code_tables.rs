//! Messages whose texts are numbers in a table that sender and receiver share.

#![allow(clippy::unwrap_used)]

mod arbitrary;

use arbitrary::portable_message;
use proptest::prelude::*;
use sealbus_fipa::bitefficient::{self, CodeTable};
use sealbus_fipa::{AclMessage, Aid, DecodeProblem, Expression, Limits, Performative, string};
use serde_json::Value;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tables_stay_in_step(
        messages in prop::collection::vec((portable_message(), any::<bool>()), 1..12),
        bits in 8u32..10,
    ) {
        let (mut ours, mut theirs) = (CodeTable::new(bits).unwrap(), CodeTable::new(bits).unwrap());
        for (message, update) in &messages {
            let mut bytes = Vec::new();
            if *update {
                ours.encode(message, &mut bytes).unwrap();
            } else {
                ours.encode_without_update(message, &mut bytes).unwrap();
            }
            let read = theirs.decode(&bytes, &Limits::DEFAULT)
                .map_err(|error| TestCaseError::fail(format!("{error} in {}", bytes.escape_ascii())))?;
            prop_assert_eq!(format!("{read:#?}"), format!("{message:#?}"));
        }
    }
}

#[test]
fn a_full_table_forgets_what_was_not_used_for_longest() {
    let (mut ours, mut theirs) = (CodeTable::new(8).unwrap(), CodeTable::new(8).unwrap());
    let often = Aid::new("often@p").unwrap();
    for number in 0..2000 {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(often.clone())
            .with_conversation_id(format!("c{number}"))
            .with_reply_with(format!("r{}", number % 300));
        let mut bytes = Vec::new();
        ours.encode(&message, &mut bytes).unwrap();
        let read = theirs.decode(&bytes, &Limits::DEFAULT).unwrap();
        assert_eq!(format!("{read:?}"), format!("{message:?}"));
        if number > 0 {
            // Used by each message, so never forgotten.
            assert_eq!(bytes[..6], [0xfb, 0x10, 0x08, 0x02, 0x02, 0x11]);
        }
    }
}

#[test]
fn what_the_codecs_for_jade_wrote_is_read() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/vectors/acl-vectors.jsonl"
    );
    let lines = std::fs::read_to_string(path).unwrap();
    let vectors: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (prefix, bits) in [("ct8-", 8), ("ct10-", 10)] {
        for codec in ["biteff_sonera_hex", "biteff_cascom_hex"] {
            let mut table = CodeTable::new(bits).unwrap().with_content_entered();
            let series = vectors
                .iter()
                .filter(|it| it["id"].as_str().unwrap().starts_with(prefix));
            let mut count = 0;
            for vector in series {
                let hex = vector[codec].as_str().unwrap();
                let bytes: Vec<u8> = (0..hex.len() / 2)
                    .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap())
                    .collect();
                let read = table.decode(&bytes, &Limits::DEFAULT).unwrap();
                let text = vector["string_std"].as_str().unwrap();
                let expected = string::decode(text.as_bytes(), &Limits::DEFAULT).unwrap();
                assert_eq!(format!("{read:#?}"), format!("{expected:#?}"), "{codec}");
                count += 1;
            }
            assert_eq!(count, 2);
        }
    }
}

#[test]
fn without_table_such_messages_are_refused() {
    let mut table = CodeTable::new(8).unwrap();
    let mut bytes = Vec::new();
    let message = AclMessage::new(Performative::Inform).with_conversation_id("c");
    table.encode(&message, &mut bytes).unwrap();
    let error = bitefficient::decode(&bytes, &Limits::DEFAULT).unwrap_err();
    assert_eq!(error.problem, DecodeProblem::CodeTable);
    // The second message has the number of a text that another table does not know.
    bytes.clear();
    table.encode(&message, &mut bytes).unwrap();
    let error = CodeTable::new(8)
        .unwrap()
        .decode(&bytes, &Limits::DEFAULT)
        .unwrap_err();
    assert_eq!(error.problem, DecodeProblem::NoTableEntry { index: 0 });
    assert_eq!(error.offset, 4);
    assert!(CodeTable::new(7).is_none() && CodeTable::new(17).is_none());
}

#[test]
fn a_table_does_not_make_a_small_message_large() {
    let mut table = CodeTable::new(8).unwrap();
    let long = "x".repeat(60_000);
    let mut bytes = Vec::new();
    let message = AclMessage::new(Performative::Inform).with_conversation_id(long);
    table.encode(&message, &mut bytes).unwrap();
    let mut receiver = CodeTable::new(8).unwrap();
    receiver.decode(&bytes, &Limits::DEFAULT).unwrap();
    // A thousand times that text, in two bytes each.
    let mut bomb = vec![0xfb, 0x10, 0x08, 0x0b, 0x60];
    bomb.extend([0x11, 0x00].repeat(1000));
    bomb.extend([0x40, 0x01]);
    let limits = Limits {
        message_length: 1 << 20,
        ..Limits::DEFAULT
    };
    let error = receiver.decode(&bomb, &limits).unwrap_err();
    assert!(
        matches!(error.problem, DecodeProblem::Limit { .. }),
        "{error}"
    );
}

/// The codecs for JADE mark every text from the table as a word.
#[test]
fn what_was_no_word_at_first_is_none_when_it_comes_from_the_table() {
    let mut table = CodeTable::new(8).unwrap().with_content_entered();
    let mut read = |bytes: &[u8]| table.decode(bytes, &Limits::DEFAULT).unwrap();
    let in_quotes = read(b"\xfb\x10\x08\x05\x14\"a b\"\0\x01");
    let text = Expression::String("a b".to_owned());
    assert_eq!(in_quotes.reply_with, Some(text));
    assert_eq!(read(b"\xfb\x10\x08\x05\x11\0\x01"), in_quotes);
    for content in [&b"\xff\xfe"[..], b"ab"] {
        let mut table = CodeTable::new(8).unwrap().with_content_entered();
        let mut read = |bytes: &[u8]| table.decode(bytes, &Limits::DEFAULT).unwrap();
        let in_full = read(&[b"\xfb\x10\x08\x04\x16\x02", content, b"\x01"].concat());
        assert_eq!(in_full.content, Some(content.into()));
        assert_eq!(read(b"\xfb\x10\x08\x04\x11\0\x01"), in_full);
    }
}

/// The receiver never gets such a message, so its texts must not be in the sender's table either.
#[test]
fn a_message_that_has_no_room_in_the_table_leaves_it_as_it_was() {
    let (mut ours, mut theirs) = (CodeTable::new(8).unwrap(), CodeTable::new(8).unwrap());
    let long = |number: usize| {
        AclMessage::new(Performative::Inform)
            .with_conversation_id(format!("c{number}"))
            .with_user_defined("X-long", number.to_string().repeat(3 << 20))
    };
    let mut first = Vec::new();
    ours.encode(&long(1), &mut first).unwrap();
    assert!(theirs.decode(&first, &Limits::DEFAULT).unwrap() == long(1));
    let mut second = Vec::new();
    assert!(ours.encode(&long(2), &mut second).is_err());
    assert!(second.is_empty());
    for number in [2, 1] {
        let short =
            AclMessage::new(Performative::Inform).with_conversation_id(format!("c{number}"));
        let mut bytes = Vec::new();
        ours.encode(&short, &mut bytes).unwrap();
        assert_eq!(theirs.decode(&bytes, &Limits::DEFAULT).unwrap(), short);
    }
}
