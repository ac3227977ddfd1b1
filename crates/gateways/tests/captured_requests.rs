//! Whole requests as running JADE platforms sent them. `crates/fipa/tests/vectors/README.md` describes their capture.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use proptest::prelude::*;
use sealbus_fipa::envelope::Envelope;
use sealbus_fipa::{AclMessage, Aid, DateTime, EncodeError, Limits, Performative};
use sealbus_gateways::http::transmission::{self, Encoding, Transmission, Writer};

fn captured() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fipa/tests/vectors/wire");
    let mut found: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    found.sort();
    found
}

/// The content type, and the body cut at its length, since JADE sends an empty line after it.
fn taken_apart(request: &[u8]) -> (String, &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Request::new(&mut headers);
    let start = head.parse(request).unwrap().unwrap();
    let header = |name: &str| {
        let mut all = head.headers.iter();
        let found = all.find(|header| header.name.eq_ignore_ascii_case(name));
        str::from_utf8(found.unwrap().value).unwrap()
    };
    let length: usize = header("content-length").parse().unwrap();
    let body = &request[start..];
    assert!(matches!(&body[length..], b"" | b"\r\n"));
    (header("content-type").to_owned(), &body[..length])
}

fn read(request: &[u8]) -> Transmission {
    let (content_type, body) = taken_apart(request);
    transmission::read(&content_type, body, &Limits::default()).unwrap()
}

#[test]
fn everything_jade_sent_is_read() {
    let all = captured();
    assert!(all.len() >= 25);
    for (name, request) in all {
        let read = read(&request);
        let current = read.envelope.current();
        assert_eq!(current.intended_receivers.len(), 1, "{name}");
        assert!(current.date.is_some(), "{name}");
        let sender = read.message.sender.as_ref().unwrap();
        assert_eq!(sender.platform(), Some("plat1"), "{name}");
        let kind = name
            .split('-')
            .find(|it| ["string", "xml", "bitefficient"].contains(it));
        assert_eq!(Some(read.representation.short_name()), kind, "{name}");
        assert_eq!(read.envelope_representation.short_name(), "xml", "{name}");
    }
}

#[test]
fn what_jade_said_is_understood() {
    for (name, request) in captured() {
        let message = read(&request).message;
        if name.ends_with("-0.http") && !name.contains("reply") {
            assert_eq!(message.performative, Performative::Inform, "{name}");
            assert!(
                message.content_text().unwrap().starts_with("ping-"),
                "{name}"
            );
        }
    }
}

/// A whole request, with a boundary that occurs in most messages.
fn written(
    envelope: Envelope,
    message: &AclMessage,
    encoding: Encoding,
) -> Result<Vec<u8>, EncodeError> {
    let rest = Writer::new("b".to_owned()).request(envelope, message, encoding)?;
    Ok([b"POST http://h:7778/acc HTTP/1.1\r\n", rest.as_slice()].concat())
}

/// A message from JADE means the same after Sealbus has written it.
#[test]
fn written_again_they_say_the_same() {
    for (name, request) in captured() {
        let first = read(&request);
        for envelopes in sealbus_fipa::envelope::representations() {
            let encoding = Encoding {
                envelope: *envelopes,
                message: first.representation,
            };
            let again = written(first.envelope.clone(), &first.message, encoding).unwrap();
            let again = read(&again);
            assert_eq!(again.message, first.message, "{name}");
            assert_eq!(
                again.envelope.receivers(),
                first.envelope.receivers(),
                "{name}"
            );
            assert_eq!(again.envelope.base.date, first.envelope.base.date, "{name}");
        }
    }
}

proptest! {
    #[test]
    fn damaged_requests_never_panic(
        number in 0_usize..25,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let all = captured();
        let (_, request) = &all[number % all.len()];
        let (content_type, body) = taken_apart(request);
        let mut body = body.to_vec();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let _ = transmission::read(&content_type, &body, &Limits::default());
        body.truncate(cut.index(body.len()));
        let _ = transmission::read(&content_type, &body, &Limits::default());
    }

    #[test]
    fn any_text_arrives_as_it_was(content in "\\PC{0,200}", number in 0_usize..3) {
        let aid = |name: &str| Aid::new(name).unwrap().with_address("http://h:7778/acc");
        let message = AclMessage::new(Performative::Inform)
            .with_sender(aid("a@one"))
            .with_receiver(aid("b@two"))
            .with_content(content.as_str());
        let encoding = Encoding {
            message: sealbus_fipa::representations()[number],
            ..Encoding::default()
        };
        let envelope = Envelope::new(
            vec![aid("b@two")],
            aid("a@one"),
            "",
            DateTime::from_unix_ms(0).unwrap(),
        );
        // Text that ends in a backslash has no form in the string encoding.
        let request = written(envelope, &message, encoding);
        prop_assume!(request.is_ok());
        let again = read(&request.unwrap());
        prop_assert_eq!(again.message.content_text(), Some(content.as_str()));
    }
}
