//! The memory that a message asks for: none to read it, and no more than a small multiple of its length to own it, for
//! any bytes.

#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use sealbus_fipa::{
    AclMessage, AclMessageRef, Aid, Limits, Performative, bitefficient, envelope, representations,
    string,
};

fn message() -> AclMessage {
    let agent = |name: &str| {
        Aid::new(name)
            .unwrap()
            .with_address("http://127.0.0.1:7778/acc")
            .with_user_defined("X-role", 7)
    };
    AclMessage::new(Performative::Request)
        .with_sender(agent("buyer@shop"))
        .with_receiver(agent("seller-1@shop").with_resolver(agent("ams@shop")))
        .with_receiver(agent("seller-2@shop"))
        .with_language("fipa-sl")
        .with_ontology("market")
        .with_protocol("fipa-request")
        .with_conversation_id("sale-7")
        .with_reply_with("offer 12")
        .with_reply_by("20260304T050607089Z".parse().unwrap())
        .with_user_defined("X-hop", 3)
        .with_content("((action seller (sell box)))")
}

/// Looks at everything that costs nothing to look at.
fn look(view: AclMessageRef<'_>) -> usize {
    let mut length = view.sender().map_or(0, |aid| aid.name().len());
    for aid in view.receivers() {
        length += aid.name().len();
        length += aid.addresses().map(str::len).sum::<usize>();
        length += aid.resolvers().map(|aid| aid.name().len()).sum::<usize>();
        length += aid
            .user_defined()
            .map(|(name, _)| name.len())
            .sum::<usize>();
    }
    length += view.content_text().map_or(0, |text| text.len());
    for value in [
        view.language(),
        view.ontology(),
        view.conversation_id(),
        view.reply_with(),
    ] {
        length += value
            .and_then(|value| value.text())
            .map_or(0, |text| text.len());
    }
    length += view.protocol().map_or(0, |text| text.len());
    length += view
        .user_defined()
        .map(|(name, _)| name.len())
        .sum::<usize>();
    length + usize::from(view.reply_by().is_some())
}

#[test]
fn looking_at_a_message_allocates_nothing() {
    let message = message();
    let (mut bits, mut text) = (Vec::new(), Vec::new());
    bitefficient::encode(&message, &mut bits).unwrap();
    string::encode(&message, &mut text).unwrap();
    let mut lengths = [0; 3];
    let counted = measure(|| {
        lengths[0] = look(bitefficient::decode_ref(&bits, &Limits::DEFAULT).unwrap());
        lengths[1] = look(string::decode_ref(&text, &Limits::DEFAULT).unwrap());
        lengths[2] = look(message.view());
    });
    assert_eq!(counted.count_total, 0);
    assert!(
        lengths[0] > 150 && lengths.iter().all(|length| *length == lengths[0]),
        "{lengths:?}"
    );
}

#[test]
fn writing_into_a_buffer_with_room_allocates_nothing() {
    let message = message();
    let mut out = Vec::with_capacity(4096);
    let counted = measure(|| {
        bitefficient::encode(&message, &mut out).unwrap();
        string::encode(&message, &mut out).unwrap();
    });
    assert_eq!(counted.count_total, 0);
    assert!(out.len() > 500);
}

/// Inputs that ask for as many or as large values as possible in as few bytes as possible.
fn greedy(size: usize) -> Vec<Vec<u8>> {
    let repeat = |start: &[u8], part: &[u8], end: &[u8]| {
        let mut bytes = start.to_vec();
        while bytes.len() < size {
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(end);
        bytes
    };
    vec![
        // A byte string that says it is 4 GiB long.
        repeat(b"\xfa\x10\x08\x04\x19\xff\xff\xff\xff", b"x", b"\x01"),
        repeat(b"(inform :content #4294967295\"", b"x", b")"),
        repeat(b"(inform :content #18446744073709551615\"", b"x", b")"),
        // Agents, addresses, empty lists, numbers, empty words.
        repeat(b"\xfa\x10\x08\x03", b"\x02\x10a\x00\x01", b"\x01\x01"),
        repeat(
            b"\xfa\x10\x08\x02\x02\x10a\x00\x02",
            b"\x10\x00",
            b"\x01\x01\x01",
        ),
        repeat(b"\xfa\x10\x08\x0b\x60", b"\x60\x40", b"\x40\x01"),
        repeat(b"\xfa\x10\x08\x0b\x60", b"\x10\x00", b"\x40\x01"),
        repeat(b"\xfa\x10\x08\x0b\x60", b"\x12\x10", b"\x40\x01"),
        repeat(b"\xfa\x10\x08", b"\x00\x10a\x00\x12\x10", b"\x01"),
        repeat(
            b"(inform :receiver (set",
            b"(agent-identifier :name a)",
            b"))",
        ),
        repeat(b"(inform :ontology (", b"a ", b"))"),
        repeat(b"(inform :ontology (", b"()", b"))"),
        repeat(b"(inform", b":X-a 1 ", b")"),
        repeat(
            b"<fipa-message act='a'><receiver>",
            b"<agent-identifier><name id='a'/></agent-identifier>",
            b"</receiver></fipa-message>",
        ),
        repeat(
            b"<fipa-message act='a'><ontology>(",
            b"()",
            b")</ontology></fipa-message>",
        ),
        repeat(
            b"<fipa-message act='a'>",
            b"<X-a>1</X-a>",
            b"</fipa-message>",
        ),
        repeat(
            b"<fipa-message act='a'><content>",
            b"&lt;",
            b"</content></fipa-message>",
        ),
        repeat(b"{\"performative\":\"a\",\"ontology\":[0", b",0", b"]}"),
        repeat(b"{\"performative\":\"a\",\"ontology\":[[]", b",[]", b"]}"),
        repeat(
            b"{\"performative\":\"a\",\"ontology\":[1e300",
            b",1e300",
            b"]}",
        ),
        repeat(
            b"{\"performative\":\"a\",\"receiver\":[{\"name\":\"a\"}",
            b",{\"name\":\"a\"}",
            b"]}",
        ),
        // Nesting.
        repeat(b"\xfa\x10\x08\x0b", b"\x60", b""),
        repeat(b"\xfa\x10\x08\x02", b"\x02\x10a\x00\x03", b""),
        repeat(b"(inform :ontology ", b"(", b""),
        repeat(b"<fipa-message act='a'>", b"<a>", b""),
        repeat(b"<fipa-message act='a' ", b"b='' ", b"/>"),
        repeat(b"{\"performative\":\"a\",\"ontology\":", b"[", b""),
        // Envelopes.
        repeat(
            b"\xfe\x00\x00\x00\x00\x00\x00\x10\x20\x31\x37\x14\x15\x16\x17\x18\x19\xa0",
            b"\x00a\x00\x00",
            b"\x01",
        ),
        repeat(b"\xfd\xff\xff\x00", b"\xfd\xff\xff\x00", b""),
        repeat(
            b"<envelope><params index='1'><to>",
            b"<agent-identifier><name>a</name></agent-identifier>",
            b"</to></params></envelope>",
        ),
        repeat(b"<envelope>", b"<params/>", b"</envelope>"),
        repeat(b"{\"base\":{},\"revisions\":[{}", b",{}", b"]}"),
        repeat(
            b"{\"base\":{\"user-defined\":{\"a\":\"\"",
            b",\"b\":\"\"",
            b"}}}",
        ),
    ]
}

/// The most bytes of memory at a time for each byte of input, and for the first byte. Lists are the most expensive: two
/// bytes make an expression of 32, twice that while a vector grows, and its own items.
const MULTIPLE: u64 = 64;
const START: u64 = 64 << 10;

#[test]
fn memory_is_a_small_multiple_of_the_input() {
    for size in [1 << 10, 16 << 10, 128 << 10] {
        for bytes in greedy(size) {
            let head = bytes[..40.min(bytes.len())].escape_ascii().to_string();
            let most = START + MULTIPLE * bytes.len() as u64;
            for representation in representations() {
                let counted = measure(|| drop(representation.decode(&bytes, &Limits::DEFAULT)));
                let name = representation.short_name();
                assert!(
                    counted.bytes_max <= most,
                    "{name} {head}: {counted:?} for {}",
                    bytes.len()
                );
            }
            for representation in envelope::representations() {
                let counted = measure(|| drop(representation.decode(&bytes, &Limits::DEFAULT)));
                let name = representation.short_name();
                assert!(
                    counted.bytes_max <= most,
                    "{name} {head}: {counted:?} for {}",
                    bytes.len()
                );
            }
        }
    }
}

#[test]
fn the_number_of_values_is_limited() {
    let limits = Limits {
        values: 100,
        ..Limits::DEFAULT
    };
    for bytes in greedy(64 << 10) {
        for representation in representations() {
            let counted = measure(|| drop(representation.decode(&bytes, &limits)));
            // This covers the values, and the bytes themselves where they are copied.
            let most = START + 100 * 512 + 3 * bytes.len() as u64;
            let head = bytes[..40.min(bytes.len())].escape_ascii().to_string();
            assert!(
                counted.bytes_max <= most,
                "{} {head}: {counted:?}",
                representation.name()
            );
        }
    }
}
