//! The calls of `message` that real ORBs sent, as the gateway reads them. `crates/giop/tests/vectors/README.md` describes
//! their capture.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Instant;

use data_encoding::HEXLOWER;
use proptest::prelude::*;
use sealbus_fipa::Limits;
use sealbus_gateways::iiop::transmission::{self, TransmissionError};
use sealbus_giop::cdr::{ByteOrder, Decoder, Encoder};
use sealbus_giop::mts::FipaMessage;
use sealbus_giop::{Assembler, AssemblyLimits, CodeSet, CodeSets, Message};

fn unhex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.as_bytes()).unwrap()
}

/// The messages of each connection, with the character set that holds there.
fn captured() -> Vec<(String, CodeSet, FipaMessage)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../giop/tests/vectors");
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".hex") {
            continue;
        }
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        let mut assembler = Assembler::new(AssemblyLimits::of_messages(1 << 20));
        let mut code_set = CodeSet::Unnamed;
        for line in text.lines().filter_map(|line| line.strip_prefix("c2s ")) {
            assembler.push(&unhex(line));
            let Some(whole) = assembler.next_message(Instant::now()).unwrap() else {
                continue;
            };
            let Message::Request(request, body) =
                Message::decode(&whole.header, &whole.bytes).unwrap()
            else {
                continue;
            };
            code_set = CodeSets::find(&request.contexts).map_or(code_set, |it| it.char_set);
            if &*request.operation == b"message" {
                let message = FipaMessage::decode(&mut body.decoder()).unwrap();
                found.push((name.clone(), code_set, message));
            }
        }
    }
    found
}

#[test]
fn everything_jade_sent_is_read() {
    let mut read = 0;
    for (name, code_set, message) in captured() {
        let found = transmission::read(&message, code_set, &Limits::default());
        if name.starts_with("jade") {
            let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found.message.sender.is_some(), "{name}");
            let current = found.envelope.current();
            assert_eq!(current.intended_receivers.len(), 1, "{name}");
            assert!(current.from.is_some(), "{name}");
            read += 1;
        } else if let Err(error) = found {
            // The benchmarks of the ORBs carry bytes that are no ACL message.
            assert!(
                matches!(error, TransmissionError::Payload(_)),
                "{name}: {error}"
            );
        }
    }
    assert!(read > 15, "{read}");
}

proptest! {
    /// A real call with some bytes changed is an error, or is written and read back as itself.
    #[test]
    fn what_is_read_is_written_and_read_again(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        thread_local!(static ALL: Vec<(String, CodeSet, FipaMessage)> = captured());
        let mut bytes = ALL.with(|all| {
            let mut out = Encoder::new(ByteOrder::Big);
            which.get(all).2.encode(&mut out);
            out.into_bytes()
        });
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let decode = |bytes: &[u8]| FipaMessage::decode(&mut Decoder::new(bytes, 0, ByteOrder::Big));
        let limits = Limits::default();
        let Ok(message) = decode(&bytes) else { return Ok(()) };
        let Ok(read) = transmission::read(&message, CodeSet::Unnamed, &limits) else { return Ok(()) };
        let envelope = read.envelope.clone();
        let Ok(written) =
            transmission::write(envelope, &read.message, read.representation, CodeSet::Utf8)
        else {
            return Ok(());
        };
        let again = decode(&written).unwrap();
        if read.envelope.revisions.is_empty() {
            let again = transmission::read(&again, CodeSet::Utf8, &limits).unwrap();
            prop_assert_eq!(format!("{:?}", again.message), format!("{:?}", read.message));
        }
    }
}
