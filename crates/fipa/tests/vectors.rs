//! Data from other implementations, read and written again. `vectors/README.md` names its sources. `docs/encodings.md`
//! lists where the other implementations leave the standard.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use sealbus_fipa::{
    AclMessage, Aid, Content, DateTime, Expression, Limits, bitefficient, detect, envelope, string,
    xml,
};
use serde_json::Value;

fn vectors(file: &str) -> Vec<Value> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/vectors", file]
        .iter()
        .collect();
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn field<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} in {vector}"))
}

/// Vectors made with code tables are only readable in sequence.
fn plain(vector: &Value) -> bool {
    vector["codetable"].is_null()
}

fn content(vector: &Value) -> Option<Content> {
    match (&vector["content"], &vector["content_bytes_hex"]) {
        (Value::String(text), _) => Some(Content::Text(text.clone())),
        (_, Value::String(hex)) => Some(Content::Bytes(unhex(hex))),
        _ => None,
    }
}

/// The message without details in which encodings may differ: the kind of a parameter's value, of which only the text
/// is kept, and the order of user-defined parameters.
fn flattened(mut message: AclMessage) -> String {
    let flatten = |value: &mut Expression| {
        if let Some(text) = value.as_str() {
            *value = Expression::String(text.to_owned());
        }
    };
    for value in [
        &mut message.language,
        &mut message.encoding,
        &mut message.ontology,
        &mut message.conversation_id,
        &mut message.reply_with,
        &mut message.in_reply_to,
    ] {
        value.as_mut().map(flatten);
    }
    message
        .user_defined
        .iter_mut()
        .for_each(|(_, value)| flatten(value));
    message
        .user_defined
        .sort_by(|one, other| one.0.cmp(&other.0));
    format!("{message:#?}")
}

#[test]
fn every_bit_efficient_vector_is_read() {
    let mut count = 0;
    for vector in vectors("acl-vectors.jsonl")
        .iter()
        .filter(|vector| plain(vector))
    {
        let id = field(vector, "id");
        for codec in ["biteff_sonera_hex", "biteff_cascom_hex"] {
            let bytes = unhex(field(vector, codec));
            let message = bitefficient::decode(&bytes, &Limits::DEFAULT)
                .unwrap_or_else(|error| panic!("{id} {codec}: {error}"));
            let performative = field(vector, "performative");
            assert!(
                message
                    .performative
                    .as_str()
                    .eq_ignore_ascii_case(performative),
                "{id}"
            );
            match (id, codec) {
                // Leaves empty content out.
                ("content-empty", "biteff_cascom_hex") => assert_eq!(message.content, None),
                // Both cut the text after as many bytes as it has characters, which is inside a character.
                ("content-unicode", _) => {
                    let cut = &"ümläut € 日本".as_bytes()[..11];
                    assert_eq!(message.content, Some(Content::Bytes(cut.to_vec())));
                }
                _ => assert_eq!(message.content, content(vector), "{id} {codec}"),
            }
            count += 1;
        }
    }
    assert!(count > 80, "{count}");
}
#[test]
fn every_string_vector_says_the_same_as_its_bit_efficient_twin() {
    for vector in vectors("acl-vectors.jsonl")
        .iter()
        .filter(|vector| plain(vector))
    {
        let id = field(vector, "id");
        let bytes = unhex(field(vector, "biteff_cascom_hex"));
        let twin = bitefficient::decode(&bytes, &Limits::DEFAULT).unwrap();
        let message = string::decode(field(vector, "string_std").as_bytes(), &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        match id {
            // The platform's character set had no such characters.
            "content-unicode" => assert_eq!(message.content_text(), Some("?ml?ut ? ??")),
            // One encoding has an expression, the other has the same text in quotes.
            _ if id.starts_with("p-ontology-expr-tab") => {}
            // The other codec puts `X-` before the names of an agent's parameters, even if it is already there.
            "aid-userslot" => {
                let parameters =
                    |message: &AclMessage| message.sender.clone().unwrap().user_defined;
                assert_eq!(parameters(&message)[0].0, "X-X-role");
                assert_eq!(parameters(&twin)[0].0, "X-role");
            }
            _ => assert_eq!(flattened(message), flattened(twin), "{id}"),
        }
    }
}

/// CASCOM puts the ontology first, Sealbus the sender. The rest is in the same order.
fn with_ontology_first(message: &AclMessage) -> Vec<u8> {
    let encode = |message: &AclMessage| {
        let mut bytes = Vec::new();
        bitefficient::encode(message, &mut bytes).unwrap();
        bytes
    };
    let ontology = AclMessage {
        ontology: message.ontology.clone(),
        ..AclMessage::new(message.performative.clone())
    };
    let without = AclMessage {
        ontology: None,
        ..message.clone()
    };
    let (ontology, without) = (encode(&ontology), encode(&without));
    [&ontology[..ontology.len() - 1], &without[3..]].concat()
}

#[test]
fn what_cascom_writes_by_the_standard_we_write_to_the_byte() {
    let mut equal = 0;
    for vector in vectors("acl-vectors.jsonl")
        .iter()
        .filter(|vector| plain(vector))
    {
        let id = field(vector, "id");
        let theirs = unhex(field(vector, "biteff_cascom_hex"));
        let message = bitefficient::decode(&theirs, &Limits::DEFAULT).unwrap();
        let ours = with_ontology_first(&message);
        match id {
            // Text that is not UTF-8 is written as bytes, and a number as a number, not a word.
            "content-unicode" | "p-ontology-number" => assert_ne!(ours, theirs, "{id}"),
            _ => {
                assert_eq!(
                    ours.escape_ascii().to_string(),
                    theirs.escape_ascii().to_string(),
                    "{id}"
                );
                equal += 1;
            }
        }
    }
    assert!(equal > 40, "{equal}");
}

#[test]
fn both_forms_of_text_that_rock_is_given_are_read_as_the_same() {
    for vector in vectors("acl-vectors-rock.jsonl") {
        let id = field(&vector, "id");
        let decode = |name| {
            let bytes = unhex(field(&vector, name));
            bitefficient::decode(&bytes, &Limits::DEFAULT)
                .unwrap_or_else(|error| panic!("{id} {name}: {error}"))
        };
        let plain = decode("cascom_hex");
        if vector["quoted_content_hex"].is_string() && id != "content-unicode" {
            assert_eq!(
                format!("{:?}", decode("quoted_content_hex")),
                format!("{plain:?}"),
                "{id}"
            );
        }
    }
}

/// Leaves out the parts that JADE's XML codec does not write.
fn without_what_xml_drops(mut message: AclMessage) -> AclMessage {
    let forget = |aid: &mut Aid| {
        aid.resolvers.clear();
        aid.user_defined.clear();
    };
    message.sender.iter_mut().for_each(forget);
    message.receivers.iter_mut().for_each(forget);
    message.reply_to.iter_mut().for_each(forget);
    message.user_defined.clear();
    message
}

#[test]
fn every_xml_vector_says_the_same_as_its_bit_efficient_twin() {
    for vector in vectors("acl-vectors.jsonl")
        .iter()
        .filter(|vector| plain(vector))
    {
        let id = field(vector, "id");
        let bytes = unhex(field(vector, "biteff_cascom_hex"));
        let twin = bitefficient::decode(&bytes, &Limits::DEFAULT).unwrap();
        let message = xml::decode(field(vector, "xml_std").as_bytes(), &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        match id {
            "content-unicode" => assert_eq!(message.content, content(vector)),
            // XML reads all line ends as line feeds.
            "content-newlines" => assert_eq!(message.content_text(), Some("line1\nline2\n\tx")),
            // The other codec puts an expression in quotes because of its blanks.
            "p-ontology-expr" => assert!(matches!(message.ontology, Some(Expression::List(_)))),
            _ => assert_eq!(
                flattened(message),
                flattened(without_what_xml_drops(twin)),
                "{id}"
            ),
        }
    }
}

#[test]
fn what_rock_wrote_again_says_the_same() {
    let mut count = 0;
    for vector in vectors("acl-vectors-rock.jsonl") {
        let id = field(&vector, "id");
        let Some(hex) = vector["rock_reencode_hex"].as_str() else {
            continue;
        };
        let theirs = bitefficient::decode(&unhex(hex), &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        let bytes = unhex(field(&vector, "cascom_hex"));
        let ours = bitefficient::decode(&bytes, &Limits::DEFAULT).unwrap();
        match id {
            // Makes up a sender where there is none.
            "min-inform" | "receiver-only" => {
                assert_eq!(theirs.sender.unwrap().name, "agent_id:undefined", "{id}");
                assert_eq!(theirs.receivers, ours.receivers, "{id}");
            }
            // Drops the letter of the date-time.
            "p-reply-by" | "p-reply-by-1999" => {
                let (theirs, ours) = (theirs.reply_by.unwrap(), ours.reply_by.unwrap());
                assert_eq!(format!("{theirs}Z"), ours.to_string(), "{id}");
            }
            // Turns the receivers around.
            "multi-receiver" => {
                let theirs: Vec<_> = theirs.receivers.iter().rev().collect();
                assert_eq!(theirs, ours.receivers.iter().collect::<Vec<_>>(), "{id}");
            }
            // The other codec writes short bytes without a zero as text, and cut text as well.
            "bin-1" | "content-unicode" => {
                assert_eq!(
                    theirs.content.unwrap().as_bytes(),
                    ours.content.unwrap().as_bytes(),
                    "{id}"
                );
            }
            // The other codec writes the text of an expression, without blanks, in quotes that it does not escape.
            _ if id.starts_with("p-ontology-expr") => {
                assert!(
                    matches!(theirs.ontology, Some(Expression::String(_))),
                    "{id}"
                );
            }
            _ => assert_eq!(flattened(theirs), flattened(ours), "{id}"),
        }
        count += 1;
    }
    assert!(count > 40, "{count}");
}

#[test]
fn hand_written_messages_and_captured_payloads_are_read() {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/vectors"]
        .iter()
        .collect();
    for name in ["ping.acl", "ping.xml", "ping.be"] {
        let bytes = std::fs::read(directory.join(name)).unwrap();
        let message = detect(&bytes)
            .unwrap()
            .decode(&bytes, &Limits::DEFAULT)
            .unwrap();
        assert_eq!(message.sender.unwrap().name, "pinger@pyplat", "{name}");
        assert_eq!(message.content.unwrap().as_bytes(), b"ping-77", "{name}");
    }
    let mut count = 0;
    for entry in std::fs::read_dir(directory.join("wire")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let payload = part(&bytes, 1);
        let message = detect(payload)
            .unwrap_or_else(|| panic!("{path:?}: {}", payload.escape_ascii()))
            .decode(payload, &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert!(message.sender.is_some(), "{path:?}");
        count += 1;
    }
    assert_eq!(count, 25);
}

/// One of the two parts in the body of an HTTP request: the envelope, then the payload.
fn part(request: &[u8], index: usize) -> &[u8] {
    let find = |bytes: &[u8], what: &[u8]| memchr::memmem::find(bytes, what);
    let start = find(request, b"boundary=\"").unwrap() + 10;
    let length = find(&request[start..], b"\"").unwrap();
    let delimiter = [b"\r\n--", &request[start..start + length]].concat();
    let places: Vec<_> = memchr::memmem::find_iter(request, &delimiter).collect();
    let part = &request[places[index]..places[index + 1]];
    &part[find(part, b"\r\n\r\n").unwrap() + 4..]
}

#[test]
fn every_envelope_vector_is_read_the_same_in_both_forms() {
    for vector in vectors("envelope-vectors.jsonl") {
        let id = field(&vector, "id");
        let text = field(&vector, "xml_std").as_bytes();
        let from_xml = envelope::xml::decode(text, &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        let bytes = [&unhex(field(&vector, "bitefficient_hex")), &b"payload"[..]].concat();
        let (mut from_bits, end) = envelope::bitefficient::decode(&bytes, &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(&bytes[end..], b"payload", "{id}");
        if id == "env-received" {
            // In XML the stamp is a part of the base. Here it is a revision, and the base repeats it.
            assert_eq!(from_bits.stamps().count(), 2);
            from_bits.revisions.clear();
        }
        // JADE writes dates without their letter.
        let date = |moment: &mut DateTime| *moment = format!("{moment}Z").parse().unwrap();
        let mut from_xml = from_xml;
        from_xml.base.date.as_mut().map(date);
        if let Some(received) = &mut from_xml.base.received {
            date(&mut received.date);
        }
        assert_eq!(format!("{from_xml:#?}"), format!("{from_bits:#?}"), "{id}");
        if id != "env-received" {
            let mut ours = Vec::new();
            envelope::bitefficient::encode(&from_bits, &mut ours).unwrap();
            assert_eq!(
                ours.escape_ascii().to_string(),
                bytes[..end].escape_ascii().to_string()
            );
        }
    }
}

#[test]
fn envelopes_of_the_standard_are_read_to_the_byte() {
    // A revision, and the base before a message of four bytes.
    let revision = "fd0037687474703a2f2f712f61636300243137141516171911105a02687474703a2f2f702f616363000369642d31000468747470000101";
    let base = "fe003810243137141516171819a05a02026240710002687474703a2f2f712f61636300010101030261407000010650090262407100010101fa100801";
    let bytes = unhex(&[revision, base].concat());
    let (envelope, end) = envelope::bitefficient::decode(&bytes, &Limits::DEFAULT).unwrap();
    assert_eq!(&bytes[end..], [0xfa, 0x10, 0x08, 0x01]);
    let current = envelope.current();
    assert_eq!(current.payload_length, Some(4));
    assert_eq!(current.received.unwrap().by, "http://q/acc");
    assert_eq!(envelope.receivers()[0].name, "b@q");
    let mut ours = Vec::new();
    envelope::bitefficient::encode(&envelope, &mut ours).unwrap();
    assert_eq!(ours, &bytes[..end]);
}

#[test]
fn envelopes_captured_from_jade_are_read() {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/vectors/wire"]
        .iter()
        .collect();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let envelope = envelope::xml::decode(part(&bytes, 0), &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let current = envelope.current();
        assert!(current.from.is_some() && current.date.is_some(), "{path:?}");
        assert_eq!(envelope.receivers().len(), 1, "{path:?}");
    }
}
