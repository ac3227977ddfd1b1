//! Messages as JADE writes and reads them. JADE drops a message with a wrong byte without a word.

#![allow(clippy::unwrap_used)]

use sealbus_fipa::{
    AclMessage, Aid, Content, Expression, Limits, Performative, bitefficient, representations,
    string, xml,
};

fn written(message: &AclMessage) -> String {
    let mut out = Vec::new();
    string::encode(message, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(text: &str) -> AclMessage {
    string::decode(text.as_bytes(), &Limits::DEFAULT)
        .unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn inform() -> AclMessage {
    AclMessage::new(Performative::Inform)
}

/// JADE's lexer knows only words of the characters 21 to 7E. It drops a message with any other word.
#[test]
fn text_that_is_not_plain_ascii_is_written_in_quotes() {
    for text in ["größe", "日本", "del\u{7f}", "nbsp\u{a0}x", "\u{2028}"] {
        let message = inform()
            .with_language(text)
            .with_encoding(text)
            .with_ontology(text)
            .with_protocol(text)
            .with_conversation_id(text)
            .with_reply_with(text)
            .with_in_reply_to(text)
            .with_user_defined("X-size", text)
            .with_user_defined(
                "X-list",
                Expression::List(vec![Expression::from(text), Expression::from("word")]),
            )
            .with_receiver(Aid::new("bob@plat2").unwrap().with_address(text));
        let wire = written(&message);
        assert_eq!(
            wire.matches(text).count(),
            wire.matches(&format!("\"{text}\"")).count(),
            "{wire}"
        );
        assert_eq!(read(&wire), message, "{wire}");
        for representation in representations() {
            let mut bytes = Vec::new();
            representation.encode(&message, &mut bytes).unwrap();
            let again = representation.decode(&bytes, &Limits::DEFAULT).unwrap();
            assert_eq!(again, message, "{}", representation.name());
        }
    }
}

/// The template of a JADE agent compares such an id letter by letter.
#[test]
fn what_looks_like_a_number_comes_back_to_the_letter() {
    for id in [
        "12345E67",
        "2.5E-10",
        "1e5",
        "007",
        "+7",
        "-0",
        ".50",
        "0x00Ff",
        "0XAB",
        "0xab",
        "1E5X",
        "20260304T050607089Z",
        "20260304t050607089z",
    ] {
        let text = format!(
            "(inform :reply-with {id} :conversation-id {id} :X-id {id} :X-list ({id} ({id})))"
        );
        let message = read(&text);
        for representation in representations() {
            let name = representation.name();
            let mut bytes = Vec::new();
            representation.encode(&message, &mut bytes).unwrap();
            let again = representation.decode(&bytes, &Limits::DEFAULT).unwrap();
            assert_eq!(again, message, "{name}");
            let wire = written(&again);
            let found = wire.matches(id).count();
            assert_eq!(found, 5, "{id} through {name}: {wire}");
            let answer = again.create_reply(Performative::Agree);
            let id = Some(id.to_owned());
            let text = |value: &Option<Expression>| match value {
                Some(Expression::DateTime(moment)) => Some(moment.to_string()),
                Some(value) => value.as_str().map(str::to_owned),
                None => None,
            };
            assert_eq!(text(&answer.conversation_id), id, "{name}");
            assert_eq!(text(&answer.in_reply_to), id, "{name}");
        }
    }
}

/// JADE takes the longest literal: `\"` ends a literal only if no other quote follows.
#[test]
fn content_may_end_in_a_backslash() {
    let from_jade = "(INFORM\n :sender  ( agent-identifier :name alice@plat1 )\n \
        :content  \"C:\\temp\\\" \n :conversation-id  c1 )";
    let message = read(from_jade);
    assert_eq!(message.content_text(), Some("C:\\temp\\"));
    assert_eq!(
        message
            .conversation_id
            .as_ref()
            .and_then(Expression::as_str),
        Some("c1")
    );
    let quoted_before = read(
        "(INFORM :content  \"say \\\"C:\\temp\\\" :conversation-id  c1 :X-drive  C:\\temp\\ )",
    );
    assert_eq!(quoted_before.content_text(), Some("say \"C:\\temp\\"));
    for text in [
        "\\",
        "\\\\",
        "C:\\temp\\",
        "say \"C:\\temp\\",
        "\"\\",
        "\\\"\\",
        "ä\\",
    ] {
        let message = inform()
            .with_receiver(Aid::new("bob@plat2").unwrap())
            .with_ontology("two words")
            .with_user_defined("X-name", "in \"quotes\"")
            .with_content(text);
        let wire = written(&message);
        assert_eq!(read(&wire).content, Some(Content::from(text)), "{wire}");
        assert_eq!(read(&wire), message, "{wire}");
    }
}

/// A later quote makes the literal end there. JADE then does not accept the message either.
#[test]
fn a_backslash_before_the_end_of_an_earlier_literal_is_an_escape() {
    let ambiguous = "(INFORM :content  \"C:\\temp\\\" :reply-with  \"a b\" )";
    assert!(string::decode(ambiguous.as_bytes(), &Limits::DEFAULT).is_err());
}

/// White space in XML is blank, tab and line end; any other character is text.
#[test]
fn xml_keeps_text_that_only_looks_blank() {
    for text in [
        "\u{2028}",
        "\u{a0}",
        "\u{85}",
        "\u{a0}x\u{2003}",
        "\u{feff}",
    ] {
        let message = inform()
            .with_protocol(text)
            .with_language(text)
            .with_conversation_id(text)
            .with_user_defined("X-space", text)
            .with_content(text)
            .with_sender(Aid::new("alice@plat1").unwrap().with_address(text));
        let mut bytes = Vec::new();
        xml::encode(&message, &mut bytes).unwrap();
        let again = xml::decode(&bytes, &Limits::DEFAULT).unwrap();
        assert_eq!(again, message, "{}", bytes.escape_ascii());
        assert_eq!(again.protocol.as_deref(), Some(text));
    }
    let spaced =
        b"<fipa-message act=\"inform\"><protocol>\n fipa-request\t</protocol></fipa-message>";
    let message = xml::decode(spaced, &Limits::DEFAULT).unwrap();
    assert_eq!(message.protocol.as_deref(), Some("fipa-request"));
}

/// The bus carries the message that a gateway has read. Nothing may change on the way.
#[test]
fn a_word_of_any_letters_passes_the_bus() {
    let mut bytes = b"\xfa\x10\x08\x0b\x10".to_vec();
    bytes.extend_from_slice("größe".as_bytes());
    bytes.extend_from_slice(b"\0\x01");
    let message = bitefficient::decode(&bytes, &Limits::DEFAULT).unwrap();
    assert_eq!(message.ontology, Some(Expression::from("größe")));
    assert!(written(&message).contains(":ontology \"größe\""));
}

/// Content was an expression before 2002. The standard writes text content in quotes.
#[test]
fn content_that_is_not_utf8_keeps_its_bytes() {
    let content = |bytes: &[u8]| {
        let message = bitefficient::decode(bytes, &Limits::DEFAULT).unwrap();
        message.content
    };
    let list = content(b"\xfa\x10\x08\x04\x70a\0\x16\x01\xff\x40\x01");
    assert_eq!(list, Some(Content::Bytes(b"(a #1\"\xff)".to_vec())));
    let text = b"caf\xe9 \"noir\"".to_vec();
    for quoted in [
        &b"\xfa\x10\x08\x04\x14\"caf\xe9 \\\"noir\\\"\"\0\x01"[..],
        b"\xfa\x10\x08\x04\x14#11\"caf\xe9 \"noir\"\0\x01",
        b"\xfa\x10\x08\x04\x14caf\xe9 \"noir\"\0\x01",
    ] {
        assert_eq!(content(quoted), Some(Content::Bytes(text.clone())));
    }
}

#[test]
fn attributes_with_a_prefix_are_not_fipas() {
    let text = br#"<fipa-message xmlns:act="urn:x" act="inform"><sender><agent-identifier>
        <name xml:id="n1" id="alice@plat1"/></agent-identifier></sender></fipa-message>"#;
    let message = xml::decode(text, &Limits::DEFAULT).unwrap();
    assert_eq!(message.performative, Performative::Inform);
    assert_eq!(
        message.sender.map(|it| it.name).as_deref(),
        Some("alice@plat1")
    );
}
