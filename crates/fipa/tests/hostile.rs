//! Broken messages: cut, changed and invented. None may panic, and an accepted message must be carried on unchanged.
//! `fuzz/` looks further; this part fits into every test run.

#![allow(clippy::unwrap_used)]

use sealbus_fipa::envelope::{Envelope, EnvelopeParameters};
use sealbus_fipa::{AclMessage, Aid, DateTime, Expression, Performative};
use sealbus_fipa::{Limits, bitefficient, detect, envelope, representations};
use serde_json::Value;

fn lines(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Every vector in every encoding, and our own encodings of it, except the very long ones.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for vector in lines("acl-vectors.jsonl")
        .iter()
        .chain(&lines("envelope-vectors.jsonl"))
    {
        for (name, value) in vector.as_object().unwrap() {
            match (name.as_str(), value.as_str()) {
                ("string_std" | "xml_std", Some(text)) => seeds.push(text.as_bytes().to_vec()),
                (_, Some(hex)) if name.starts_with("bite") && name.ends_with("_hex") => {
                    seeds.push(unhex(hex));
                }
                _ => {}
            }
        }
    }
    seeds.retain(|seed| seed.len() < 1500);
    assert!(!seeds.is_empty());
    let mut ours = Vec::new();
    for seed in &seeds {
        for representation in representations() {
            if let Ok(message) = bitefficient::decode(seed, &Limits::DEFAULT) {
                let mut bytes = Vec::new();
                if representation.encode(&message, &mut bytes).is_ok() {
                    ours.push(bytes);
                }
            }
        }
        for representation in envelope::representations() {
            if let Ok((envelope, _)) = envelope::bitefficient::decode(seed, &Limits::DEFAULT) {
                let mut bytes = Vec::new();
                if representation.encode(&envelope, &mut bytes).is_ok() {
                    ours.push(bytes);
                }
            }
        }
    }
    seeds.append(&mut ours);
    seeds.sort();
    seeds.dedup();
    seeds
}

/// Tries every decoder. If one accepts the bytes, checks that the message survives being written.
fn try_all(bytes: &[u8]) {
    let limits = Limits::DEFAULT;
    for representation in representations() {
        match representation.decode(bytes, &limits) {
            Err(error) => assert!(error.offset <= bytes.len(), "{error}"),
            Ok(message) => {
                let mut again = Vec::new();
                if representation.encode(&message, &mut again).is_ok() {
                    let read = representation.decode(&again, &limits).unwrap();
                    assert_eq!(
                        format!("{read:?}"),
                        format!("{message:?}"),
                        "{}",
                        bytes.escape_ascii()
                    );
                }
            }
        }
    }
    for representation in envelope::representations() {
        match representation.decode(bytes, &limits) {
            Err(error) => assert!(error.offset <= bytes.len(), "{error}"),
            Ok((envelope, end)) => {
                assert!(end <= bytes.len());
                let mut again = Vec::new();
                if representation.encode(&envelope, &mut again).is_ok() {
                    let (read, _) = representation.decode(&again, &limits).unwrap();
                    assert_eq!(
                        format!("{read:?}"),
                        format!("{envelope:?}"),
                        "{}",
                        bytes.escape_ascii()
                    );
                }
            }
        }
    }
}

#[test]
fn seeds_cut_anywhere() {
    for seed in seeds().iter().step_by(7) {
        for end in 0..seed.len() {
            try_all(&seed[..end]);
        }
    }
}

/// A fixed row of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn seeds_changed_at_random() {
    const BYTES: &[u8] = b"\x00\x01\x02\x03\x04\x10\x11\x12\x14\x16\x17\x19\x40\x50\x58\x60\x70\x78\xfa\xfb\xfd\xfe\xff()\"\\#09:<>&;={}[], \n";
    let seeds = seeds();
    assert!(seeds.len() > 150, "{}", seeds.len());
    let mut numbers = Numbers(7);
    for _ in 0..8_000 {
        let mut bytes = seeds[numbers.next(seeds.len())].clone();
        for _ in 0..=numbers.next(4) {
            if bytes.is_empty() {
                break;
            }
            let at = numbers.next(bytes.len());
            let other = BYTES[numbers.next(BYTES.len())];
            match numbers.next(6) {
                0 => bytes[at] = other,
                1 => bytes[at] ^= 1 << numbers.next(8),
                2 => bytes.insert(at, other),
                3 => drop(bytes.remove(at)),
                4 => {
                    let end = (at + numbers.next(32)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let seed = &seeds[numbers.next(seeds.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(&seed[numbers.next(seed.len())..]);
                }
            }
        }
        try_all(&bytes);
    }
}

#[test]
fn nesting_is_limited_and_not_a_matter_of_the_stack() {
    let deep = |start: &[u8], part: &[u8]| [start, &part.repeat(500_000)].concat();
    for bytes in [
        deep(b"\xfa\x10\x08\x0b", b"\x60"),
        deep(b"\xfa\x10\x08\x02", b"\x02\x10a\x00\x03"),
        deep(b"\xfa\x10\x08\x0b\xff\x14", b"("),
        deep(b"(inform :ontology ", b"("),
        deep(
            b"(inform :sender ",
            b"(agent-identifier :name a :resolvers (sequence ",
        ),
        deep(
            b"<fipa-message act='inform'><sender>",
            b"<agent-identifier><resolvers>",
        ),
        deep(b"<fipa-message act='inform'><ontology>", b"("),
        deep(b"{\"performative\":\"inform\",\"ontology\":", b"["),
        deep(
            b"\xfe\x00\x00\x00\x10\x00\x00\x10\x20\x31\x37\x14\x15\x16\x17\x18\x19\xa0\x03",
            b"\x02a\x00\x03",
        ),
        deep(
            b"<envelope><params index='1'><from>",
            b"<agent-identifier><resolvers>",
        ),
    ] {
        let most = Limits {
            depth: usize::MAX,
            values: usize::MAX,
            ..Limits::DEFAULT
        };
        for limits in [Limits::DEFAULT, most] {
            for representation in representations() {
                assert!(representation.decode(&bytes, &limits).is_err());
            }
            for representation in envelope::representations() {
                assert!(representation.decode(&bytes, &limits).is_err());
            }
        }
    }
}

#[test]
fn the_number_of_agents_in_one_list_is_limited() {
    let few = Limits {
        agents: 3,
        ..Limits::DEFAULT
    };
    for count in [3, 4] {
        let agents = || (0..count).map(|number| Aid::new(format!("a{number}@p")).unwrap());
        let mut to_many = AclMessage::new(Performative::Inform);
        to_many.receivers.extend(agents());
        let mut answered_by_many = AclMessage::new(Performative::Inform);
        answered_by_many.reply_to.extend(agents());
        let sender = Aid {
            resolvers: agents().collect(),
            ..Aid::new("a@p").unwrap()
        };
        let found_by_many = AclMessage::new(Performative::Inform).with_sender(sender.clone());
        for message in [&to_many, &answered_by_many, &found_by_many] {
            for representation in representations() {
                let mut bytes = Vec::new();
                representation.encode(message, &mut bytes).unwrap();
                let decoded = representation.decode(&bytes, &few);
                let name = representation.name();
                assert_eq!(decoded.is_ok(), count == 3, "{name}: {decoded:?}");
                if let Err(error) = decoded {
                    let error = error.to_string();
                    assert!(
                        error.contains("more than 3 agents in one list"),
                        "{name}: {error}"
                    );
                }
                assert!(
                    representation.decode(&bytes, &Limits::DEFAULT).is_ok(),
                    "{name}"
                );
            }
        }
        let name = "fipa.acl.rep.string.std";
        let moment = DateTime::from_unix_ms(0).unwrap();
        let of_one = Aid::new("a@p").unwrap();
        for envelope in [
            Envelope::new(agents().collect(), of_one.clone(), name, moment),
            Envelope::new(vec![of_one], sender, name, moment),
        ] {
            for representation in envelope::representations() {
                let mut bytes = Vec::new();
                representation.encode(&envelope, &mut bytes).unwrap();
                let decoded = representation.decode(&bytes, &few);
                let name = representation.name();
                assert_eq!(decoded.is_ok(), count == 3, "{name}: {decoded:?}");
            }
        }
    }
}

#[test]
fn the_values_of_all_lists_in_a_message_count_together() {
    let limits = Limits {
        values: 12,
        ..Limits::DEFAULT
    };
    let list = Expression::List(vec![Expression::from("a"); 6]);
    let one = AclMessage::new(Performative::Inform).with_language(list.clone());
    let two = one.clone().with_ontology(list);
    for representation in representations() {
        for (message, is_read) in [(&one, true), (&two, false)] {
            let mut bytes = Vec::new();
            representation.encode(message, &mut bytes).unwrap();
            let decoded = representation.decode(&bytes, &limits);
            let name = representation.name();
            assert_eq!(decoded.is_ok(), is_read, "{name}: {decoded:?}");
        }
    }
}

/// Comparing each with each would take minutes.
#[test]
fn revisions_with_many_parameters_are_combined_soon() {
    const MANY: usize = 200_000;
    let part = |first: usize, value: &str| EnvelopeParameters {
        user_defined: (first..first + MANY)
            .map(|number| (format!("X-{number}"), value.to_owned()))
            .collect(),
        ..EnvelopeParameters::default()
    };
    let envelope = Envelope {
        base: part(0, "old"),
        revisions: vec![part(MANY / 2, "new")],
    };
    let current = envelope.into_current().user_defined;
    assert_eq!(current.len(), MANY + MANY / 2);
    for (number, (name, value)) in current.iter().enumerate() {
        assert_eq!(*name, format!("X-{number}"));
        assert_eq!(value == "new", number >= MANY / 2, "{name}");
    }
}

/// A protocol is a word. A list or bytes in its place would not be found in the message.
#[test]
fn a_protocol_that_is_no_text_is_refused() {
    for (bytes, offset) in [
        (&b"(inform :protocol (fipa request))"[..], 18),
        (b"(inform :protocol #2\"ab)", 18),
        (b"\xfa\x10\x08\x0c\x70a\0\x40\x01", 4),
        (b"\xfa\x10\x08\x0c\x16\x02ab\x01", 4),
        (b"\xfa\x10\x08\x0c\xff\x14(a)\0\x01", 4),
    ] {
        let representation = detect(bytes).unwrap();
        let error = representation.decode(bytes, &Limits::DEFAULT).unwrap_err();
        assert_eq!(error.offset, offset, "{error}");
        let error = error.to_string();
        assert!(error.contains("the name of a protocol, a word"), "{error}");
    }
    for bytes in [
        &b"(inform :protocol \"fipa-request\")"[..],
        b"\xfa\x10\x08\x0c\x14\"fipa-request\"\0\x01",
        b"\xfa\x10\x08\x0c\x10fipa-request\0\x01",
    ] {
        let representation = detect(bytes).unwrap();
        let message = representation.decode(bytes, &Limits::DEFAULT).unwrap();
        assert_eq!(message.protocol.as_deref(), Some("fipa-request"));
    }
}

#[test]
fn errors_say_where_and_what() {
    let error = |bytes: &[u8]| {
        bitefficient::decode(bytes, &Limits::DEFAULT)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(b""),
        "byte 0: expected the message id FA, FB or FC, found the end of the input"
    );
    assert_eq!(
        error(b"\xfa\x10\x08\x02\x02\x10\x00\x01\x01"),
        "byte 6: expected the name of an agent, found 00"
    );
    assert_eq!(
        error(b"\xfa\x10\x08\x04\x16\x05ab"),
        "byte 8: expected as many bytes as the byte string's length says, found the end of the input"
    );
    assert_eq!(
        error(b"\xfa\x10\x08\x04\x14a\x00\x04\x14b\x00\x01"),
        "byte 7: the parameter 'content' is given a second time"
    );
    let short = Limits {
        message_length: 3,
        ..Limits::DEFAULT
    };
    assert_eq!(
        bitefficient::decode(b"\xfa\x10\x08\x01", &short)
            .unwrap_err()
            .to_string(),
        "byte 3: more than 3 bytes; raise the reader's Limits if this is legitimate"
    );
}
