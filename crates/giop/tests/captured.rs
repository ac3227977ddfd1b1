//! Whole connections of seven ORBs: every message is read as another program read it, and written byte for byte.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Instant;

use data_encoding::HEXLOWER;
use sealbus_giop::mts::{AgentId, DateTime, FipaMessage, Property};
use sealbus_giop::{
    Any, Assembler, AssemblyLimits, Ior, LocateStatus, Message, ReplyStatus, SystemException,
    Target, TypedValue, Version, Whole,
};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn unhex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.as_bytes()).unwrap()
}

fn assembler() -> Assembler {
    Assembler::new(AssemblyLimits::of_messages(1 << 20))
}

/// Texts in the index were read as UTF-8, or else as ISO 8859-1.
fn text(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!(bytes.iter().copied().map(char::from).collect::<String>()),
    }
}

fn any(value: &Any) -> Value {
    match value {
        Any::Null => json!([0, null]),
        Any::Short(it) => json!([2, it]),
        Any::Long(it) => json!([3, it]),
        Any::ULong(it) => json!([5, it]),
        Any::Double(bits) => json!([7, f64::from_bits(*bits)]),
        Any::Boolean(it) => json!([8, u8::from(*it)]),
        Any::Octet(it) => json!([10, it]),
        Any::LongLong(it) => json!([23, it]),
        Any::String { text: it, .. } => json!([18, text(it)]),
        Any::WString { .. } => json!([27, value.to_text(|_| None).unwrap()]),
        // The index names the id in the type code too, which says nothing.
        Any::Value { value: typed, .. } => match typed {
            TypedValue::Text(_) => json!([value.to_text(|_| None).unwrap()]),
            TypedValue::Integer(_, number) => json!([number]),
        },
        other => panic!("{other:?} is in no capture"),
    }
}

fn properties(all: &[Property]) -> Value {
    let one = |it: &Property| json!({"keyword": text(&it.keyword), "value": any(&it.value)});
    all.iter().map(one).collect()
}

fn agents(all: &[AgentId]) -> Value {
    let one = |it: &AgentId| {
        json!({
            "name": text(&it.name),
            "addresses": it.addresses.iter().map(|it| text(it)).collect::<Value>(),
            "resolvers": agents(&it.resolvers),
            "props": properties(&it.user_defined),
        })
    };
    all.iter().map(one).collect()
}

fn date(it: &DateTime) -> Value {
    let mut all: Vec<Value> = it.fields.iter().map(|it| json!(it)).collect();
    all.push(json!(char::from(it.designator).to_string()));
    Value::Array(all)
}

fn envelopes(message: &FipaMessage) -> Value {
    let one = |it: &sealbus_giop::mts::Envelope| {
        let stamp = it.received.iter().map(|it| {
            json!({
                "by": text(&it.by), "from": text(&it.from), "date": date(&it.date), "id": text(&it.id),
                "via": text(&it.via),
            })
        });
        json!({
            "to": agents(&it.to),
            "from": agents(it.from.as_slice()),
            "comments": text(&it.comments),
            "aclRepresentation": text(&it.acl_representation),
            "payloadLength": it.payload_length,
            "payloadEncoding": text(&it.payload_encoding),
            "date": it.date.iter().map(date).collect::<Value>(),
            "encrypted": it.encrypted.iter().map(|it| text(it)).collect::<Value>(),
            "intendedReceiver": agents(&it.intended_receivers),
            "received": stamp.collect::<Value>(),
            "transportBehaviour": it.transport_behaviour.iter().map(|it| properties(it)).collect::<Value>(),
            "userDefinedProperties": properties(&it.user_defined),
        })
    };
    message.envelopes.iter().map(one).collect()
}

/// The index as [`any`] writes it: of a value, its content alone.
fn without_value_ids(value: &mut Value) {
    match value {
        Value::Array(all) => {
            if all.first() == Some(&json!("value")) && all.len() == 5 {
                *value = json!([all[4]]);
            } else {
                all.iter_mut().for_each(without_value_ids);
            }
        }
        Value::Object(all) => all.values_mut().for_each(without_value_ids),
        _ => {}
    }
}

fn assert_has(file: &str, expected: &Value, name: &str, found: Value) {
    assert_eq!(expected[name], found, "{file}: {name} in {expected}");
}

/// Writes a message as it was read. A body is written as it came, unless it is read, too.
fn written(whole: &Whole) -> Vec<u8> {
    let (version, order) = (whole.header.version, whole.header.order);
    match Message::decode(&whole.header, &whole.bytes).unwrap() {
        Message::Request(request, body) => request.encode(version, order, |out| {
            if &*request.operation == b"message" && !body.bytes().is_empty() {
                let mut decoder = body.decoder();
                FipaMessage::decode(&mut decoder).unwrap().encode(out);
                assert_eq!(decoder.left(), 0);
            } else {
                out.raw(body.bytes());
            }
        }),
        Message::Reply(reply, body) => reply.encode(version, order, |out| match reply.status {
            ReplyStatus::SystemException => {
                SystemException::decode(&mut body.decoder())
                    .unwrap()
                    .encode(out);
            }
            ReplyStatus::LocationForward => {
                Ior::decode(&mut body.decoder()).unwrap().encode(out);
            }
            _ => out.raw(body.bytes()),
        }),
        Message::CancelRequest(it) => it.encode(version, order),
        Message::LocateRequest(it) => it.encode(version, order),
        Message::LocateReply(it) => it.encode(version, order),
        Message::CloseConnection => {
            let mut bytes = sealbus_giop::close_connection(version);
            bytes[6] = order.flag();
            bytes
        }
        Message::MessageError => sealbus_giop::message_error(version),
    }
}

fn compare(file: &str, whole: &Whole, expected: &Value) {
    match Message::decode(&whole.header, &whole.bytes).unwrap() {
        Message::Request(request, body) => {
            assert_has(file, expected, "id", json!(request.id));
            assert_has(file, expected, "op", text(&request.operation));
            assert_has(
                file,
                expected,
                "key",
                json!(HEXLOWER.encode(&request.target.key().unwrap())),
            );
            let contexts = expected["contexts"].as_array().unwrap();
            assert_eq!(contexts.len(), request.contexts.len(), "{file}");
            let named = contexts.iter().find(|it| it["id"] == "CodeSets");
            let found = sealbus_giop::CodeSets::find(&request.contexts);
            let number = found.map(|it| json!(format!("{:#x}", it.char_set.number())));
            assert_eq!(named.map(|it| it["char"].clone()), number, "{file}");
            if let Some(fipa) = expected.get("fipa") {
                let message = FipaMessage::decode(&mut body.decoder()).unwrap();
                let mut named = fipa["envelopes"].clone();
                without_value_ids(&mut named);
                assert_eq!(named, envelopes(&message), "{file}");
                match fipa["body"].get("hex") {
                    Some(bytes) => {
                        assert_eq!(*bytes, json!(HEXLOWER.encode(&message.body)), "{file}")
                    }
                    None => assert_has(file, &fipa["body"], "bytes", json!(message.body.len())),
                }
            }
        }
        Message::Reply(reply, body) => {
            assert_has(file, expected, "id", json!(reply.id));
            assert_has(file, expected, "status", json!(reply.status as u32));
            if reply.status == ReplyStatus::SystemException {
                let found = SystemException::decode(&mut body.decoder()).unwrap();
                assert_has(file, expected, "exception", text(&found.id));
                assert_has(file, expected, "completed", json!(found.completed as u32));
            } else if let Some(result) = expected.get("result") {
                assert_eq!(*result, json!(HEXLOWER.encode(body.bytes())), "{file}");
            }
        }
        Message::LocateRequest(it) => {
            assert_has(file, expected, "id", json!(it.id));
            assert_has(
                file,
                expected,
                "key",
                json!(HEXLOWER.encode(&it.target.key().unwrap())),
            );
        }
        Message::LocateReply(it) => {
            assert_has(file, expected, "id", json!(it.id));
            let status = match it.status {
                LocateStatus::Unknown => 0,
                LocateStatus::Here => 1,
                LocateStatus::Forward(_) => 2,
                LocateStatus::Other(other) => other,
            };
            assert_has(file, expected, "status", json!(status));
        }
        Message::CancelRequest(_) | Message::CloseConnection | Message::MessageError => {}
    }
}

/// All that a message says, without its padding.
fn meaning(head: &sealbus_giop::Header, whole: &[u8]) -> String {
    match Message::decode(head, whole).unwrap() {
        Message::Request(request, body) if &*request.operation == b"message" => {
            format!("{request:?} {:?}", FipaMessage::decode(&mut body.decoder()))
        }
        Message::Request(request, body) => format!("{request:?} {:?}", body.bytes()),
        Message::Reply(reply, body) => match reply.status {
            ReplyStatus::SystemException => {
                format!(
                    "{reply:?} {:?}",
                    SystemException::decode(&mut body.decoder())
                )
            }
            ReplyStatus::LocationForward => {
                format!("{reply:?} {:?}", Ior::decode(&mut body.decoder()))
            }
            _ => format!("{reply:?} {:?}", body.bytes()),
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn every_captured_message_is_read_as_indexed_and_written_byte_for_byte() {
    let (mut messages, mut rubbish) = (0, 0);
    for line in lines("index.jsonl") {
        let file = line["file"].as_str().unwrap();
        let captured = std::fs::read_to_string(folder().join(file)).unwrap();
        let mut ways = [assembler(), assembler()];
        let indexed = line["messages"].as_array().unwrap();
        assert_eq!(captured.lines().count(), indexed.len(), "{file}");
        for (line, expected) in captured.lines().zip(indexed) {
            let (way, bytes) = line.split_once(' ').unwrap();
            let bytes = unhex(bytes);
            let assembler = &mut ways[usize::from(way == "s2c")];
            assembler.push(&bytes);
            let whole = assembler.next_message(Instant::now()).unwrap();
            let is_part = expected.get("part").is_some();
            assert_eq!(whole.is_none(), is_part, "{file}: {expected}");
            let Some(whole) = whole else { continue };
            messages += 1;
            compare(file, &whole, expected);
            let mut written = written(&whole);
            let head = whole.header;
            let mut whole = whole.bytes;
            if expected.get("last_part").is_some() {
                assert_eq!(expected["assembled"], json!(whole.len()), "{file}");
                // The first part says its own length, and that others follow.
                for bytes in [&mut written, &mut whole] {
                    bytes[6] &= 1;
                    bytes[8..12].fill(0);
                }
            }
            assert_eq!(written.len(), whole.len(), "{file}: {expected}");
            // Some ORBs leave rubbish in padding, which is zero here. All else is the same.
            assert_eq!(meaning(&head, &written), meaning(&head, &whole), "{file}");
            for (theirs, ours) in whole.iter_mut().zip(&written) {
                if *theirs != *ours && *ours == 0 {
                    rubbish += 1;
                    *theirs = 0;
                }
            }
            assert_eq!(written, whole, "{file}: {expected}");
        }
    }
    assert!(messages > 350, "{messages}");
    assert!((1..2000).contains(&rubbish), "{rubbish}");
}

#[test]
fn references_of_every_orb_are_read_and_written() {
    for line in lines("iors.jsonl") {
        let address = line["ior"].as_str().unwrap();
        let (ior, order) = Ior::from_text(address).unwrap();
        let decoded = &line["decoded"];
        assert_eq!(decoded["type"], text(&ior.type_id));
        if line["from"] != "combat" {
            assert!(ior.to_text(order).eq_ignore_ascii_case(address));
        }
        let indexed = decoded["profiles"].as_array().unwrap();
        let indexed = indexed.iter().filter(|it| it["tag"] == 0);
        let found: Vec<_> = ior.iiop_profiles().collect();
        assert_eq!(found.len(), indexed.clone().count());
        for (found, indexed) in found.iter().zip(indexed) {
            assert_eq!(indexed["host"], json!(found.host));
            assert_eq!(indexed["port"], json!(found.port));
            assert_eq!(indexed["key"], json!(HEXLOWER.encode(&found.key)));
            assert_eq!(
                indexed["version"],
                json!(format!("1.{}", found.version.minor()))
            );
            let components = indexed["components"].as_array().unwrap();
            let sets = components.iter().find(|it| it.get("char").is_some());
            let own = found
                .code_sets()
                .map(|it| format!("{:#x}", it.native.number()));
            assert_eq!(
                sets.map(|it| &it["char"][0]),
                own.map(|it| json!(it)).as_ref()
            );
        }
    }
}

#[test]
fn addresses_that_name_an_object_are_read() {
    for line in lines("addresses.jsonl") {
        let (label, address) = (
            line["label"].as_str().unwrap(),
            line["address"].as_str().unwrap(),
        );
        let read = address.parse::<sealbus_giop::ObjectAddress>();
        if label.starts_with("corbaname") || label == "iiop-url" {
            assert!(read.is_err(), "{label}");
            continue;
        }
        let read = read.unwrap();
        let last = read.endpoints().last().unwrap();
        if label == "ior-unknown-key" {
            assert_eq!(last.key, b"nosuchkey");
        } else {
            assert_eq!(last.key.len(), 14, "{label}");
            assert_eq!(last.host, "127.0.0.1", "{label}");
        }
        let expected = match label {
            "corbaloc-no-port" => 2809,
            "corbaloc-port-40000" => 40000,
            "ior-closed-port" => 1,
            _ => 12110,
        };
        assert_eq!(last.port, expected, "{label}");
        let corbaloc = sealbus_giop::ObjectAddress::corbaloc(last);
        let again: sealbus_giop::ObjectAddress = corbaloc.parse().unwrap();
        let again = &again.endpoints()[0];
        assert_eq!((again.port, &again.key), (last.port, &last.key));
        assert_eq!(again.version, Version::V1_0);
    }
}

#[test]
fn handmade_input_is_read_or_refused() {
    let mut refused = Vec::new();
    for line in lines("handmade.jsonl") {
        let name = line["name"].as_str().unwrap();
        let mut assembler = assembler();
        let mut wrong = false;
        for piece in line["send"].as_array().unwrap() {
            let Some(piece) = piece.as_str() else {
                continue;
            };
            assembler.push(&unhex(piece));
            loop {
                match assembler.next_message(Instant::now()) {
                    Ok(None) => break,
                    Ok(Some(whole)) => match Message::decode(&whole.header, &whole.bytes) {
                        Ok(Message::Request(request, body)) => {
                            assert!(
                                matches!(request.target, Target::Key(_)) || name.contains("target")
                            );
                            if &*request.operation == b"message" {
                                wrong |= FipaMessage::decode(&mut body.decoder()).is_err();
                            } else if &*request.operation == b"_is_a" {
                                wrong |= body.decoder().string().is_err();
                            }
                        }
                        Ok(_) => {}
                        Err(_) => wrong = true,
                    },
                    Err(_) => {
                        wrong = true;
                        break;
                    }
                }
            }
        }
        if wrong {
            refused.push(name.to_owned());
        }
    }
    for name in [
        "1.3 _is_a",
        "2.0 _is_a",
        "bad magic",
        "HTTP",
        "size 0xffffffff",
        "truncated header fields",
        "negative string length",
        "sequence of 2^31 envelopes",
    ] {
        assert!(
            refused.iter().any(|it| it == name),
            "{name} was not refused"
        );
    }
    for name in [
        "1.0 _is_a",
        "1.1 fragmented _is_a",
        "1.2 fragment cut off by 4",
        "1.2 unfinished, then another",
    ] {
        assert!(!refused.iter().any(|it| it == name), "{name} was refused");
    }
}
