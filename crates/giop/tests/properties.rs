//! Every written value is read back as itself, in every version and order, in any number of parts. No bytes make a
//! reader panic or take memory that they do not fill.

#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sealbus_giop::cdr::{ByteOrder, Decoder, Encoder};
use sealbus_giop::mts::{AgentId, DateTime, Envelope, FipaMessage, Property, ReceivedObject};
use sealbus_giop::{
    Any, AssembleError, Assembler, AssemblyLimits, CodeSet, Completed, HEADER_LENGTH, Header,
    IiopProfile, Ior, Kind, Message, ObjectAddress, Reply, ReplyStatus, Request, Response,
    SystemException, TaggedData, Target, TypedValue, Version, Whole,
};

fn order() -> impl Strategy<Value = ByteOrder> {
    prop::sample::select(vec![ByteOrder::Big, ByteOrder::Little])
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(vec![Version::V1_0, Version::V1_1, Version::V1_2])
}

/// A string, which has no NUL.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1..=u8::MAX, 0..12)
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn value() -> impl Strategy<Value = Any> {
    prop_oneof![
        Just(Any::Null),
        Just(Any::Void),
        any::<i16>().prop_map(Any::Short),
        any::<i32>().prop_map(Any::Long),
        any::<u16>().prop_map(Any::UShort),
        any::<u32>().prop_map(Any::ULong),
        any::<u32>().prop_map(Any::Float),
        any::<u64>().prop_map(Any::Double),
        any::<bool>().prop_map(Any::Boolean),
        any::<u8>().prop_map(Any::Char),
        any::<u8>().prop_map(Any::Octet),
        any::<i64>().prop_map(Any::LongLong),
        any::<u64>().prop_map(Any::ULongLong),
        (any::<u32>(), text()).prop_map(|(bound, text)| Any::String { bound, text }),
        (any::<u32>(), octets()).prop_map(|(bound, text)| Any::WString { bound, text }),
        ".*".prop_map(|text| Any::text(&text)),
        (octets(), any::<i32>()).prop_map(|(type_code, number)| Any::Value {
            kind: 29,
            type_code,
            value: TypedValue::Integer(b"RMI:java.lang.Integer:1:2".to_vec(), number),
        }),
    ]
}

fn properties() -> impl Strategy<Value = Vec<Property>> {
    let one = (text(), value()).prop_map(|(keyword, value)| Property { keyword, value });
    prop::collection::vec(one, 0..3)
}

fn agent() -> impl Strategy<Value = AgentId> {
    let leaf = (text(), prop::collection::vec(text(), 0..3), properties()).prop_map(
        |(name, addresses, user_defined)| AgentId {
            name,
            addresses,
            resolvers: Vec::new(),
            user_defined,
        },
    );
    leaf.prop_recursive(3, 6, 2, |inner| {
        (text(), prop::collection::vec(inner, 0..2)).prop_map(|(name, resolvers)| AgentId {
            name,
            resolvers,
            ..AgentId::default()
        })
    })
}

fn date() -> impl Strategy<Value = DateTime> {
    (any::<[i16; 7]>(), any::<u8>())
        .prop_map(|(fields, designator)| DateTime { fields, designator })
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let agents = || prop::collection::vec(agent(), 0..3);
    let stamp = (text(), text(), date(), text(), text()).prop_map(|(by, from, date, id, via)| {
        ReceivedObject {
            by,
            from,
            date,
            id,
            via,
        }
    });
    (
        (agents(), prop::option::of(agent()), text(), text()),
        (any::<i32>(), text(), prop::option::of(date())),
        (prop::collection::vec(text(), 0..2), agents()),
        (
            prop::option::of(stamp),
            prop::option::of(properties()),
            properties(),
        ),
    )
        .prop_map(|(first, second, third, fourth)| Envelope {
            to: first.0,
            from: first.1,
            comments: first.2,
            acl_representation: first.3,
            payload_length: second.0,
            payload_encoding: second.1,
            date: second.2,
            encrypted: third.0,
            intended_receivers: third.1,
            received: fourth.0,
            transport_behaviour: fourth.1,
            user_defined: fourth.2,
        })
}

fn message() -> impl Strategy<Value = FipaMessage> {
    let body = prop::collection::vec(any::<u8>(), 0..3000);
    (prop::collection::vec(envelope(), 0..3), body)
        .prop_map(|(envelopes, body)| FipaMessage { envelopes, body })
}

fn contexts() -> impl Strategy<Value = Vec<TaggedData>> {
    let one = (any::<u32>(), octets()).prop_map(|(id, data)| TaggedData { id, data });
    prop::collection::vec(one, 0..3)
}

fn request() -> impl Strategy<Value = Request<'static>> {
    let response = prop::sample::select(vec![Response::None, Response::Wanted]);
    (any::<u32>(), response, octets(), text(), contexts()).prop_map(
        |(id, response, key, operation, contexts)| Request {
            id,
            response,
            target: Target::Key(key),
            operation: Cow::Owned(operation),
            contexts,
            principal: Cow::Borrowed(&[]),
        },
    )
}

fn header(whole: &[u8]) -> Header {
    Header::read(whole.first_chunk().unwrap()).unwrap()
}

/// Cuts a message into parts that end at multiples of 8 (CORBA 3.3 part 2, 9.4.9), of about `size` bytes.
fn in_parts(whole: &[u8], size: usize) -> Vec<Vec<u8>> {
    let head = header(whole);
    let part = |head: Header, id: &[u8], data: &[u8], has_more| {
        let size = u32::try_from(id.len() + data.len()).unwrap();
        let head = Header {
            has_more,
            size,
            ..head
        };
        [&head.to_bytes()[..], id, data].concat()
    };
    let size = size.next_multiple_of(8).max(16);
    let body = &whole[HEADER_LENGTH..];
    if head.version == Version::V1_0 || body.len() <= size {
        return vec![whole.to_vec()];
    }
    let (first, mut rest) = body.split_at(size - HEADER_LENGTH % 8);
    let fragment = Header {
        kind: Kind::Fragment,
        ..head
    };
    let id: &[u8] = if head.version == Version::V1_2 {
        &body[..4]
    } else {
        &[]
    };
    let mut parts = vec![part(head, &[], first, true)];
    while !rest.is_empty() {
        let (data, after) = rest.split_at(size.min(rest.len()));
        parts.push(part(fragment, id, data, !after.is_empty()));
        rest = after;
    }
    parts
}

fn limits() -> AssemblyLimits {
    AssemblyLimits::of_messages(1 << 20)
}

/// All messages that come out when the bytes arrive in pieces of these sizes.
fn assembled(
    bytes: &[u8],
    pieces: &[usize],
    limits: AssemblyLimits,
) -> Result<Vec<Whole>, AssembleError> {
    let mut assembler = Assembler::new(limits);
    let (mut rest, mut all) = (bytes, Vec::new());
    let mut sizes = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
        assembler.push(piece);
        while let Some(whole) = assembler.next_message(Instant::now())? {
            all.push(whole);
        }
        assert!(assembler.waiting() <= limits.message + limits.unfinished_bytes);
        rest = after;
    }
    Ok(all)
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(
        request in request(), message in message(), version in version(), order in order(),
    ) {
        let bytes = request.encode(version, order, |out| message.encode(out));
        let Ok(Message::Request(again, body)) = Message::decode(&header(&bytes), &bytes) else {
            panic!("it is a request");
        };
        prop_assert_eq!(&again, &request);
        let mut decoder = body.decoder();
        prop_assert_eq!(FipaMessage::decode(&mut decoder).unwrap(), message);
        prop_assert_eq!(decoder.left(), 0);
    }

    #[test]
    fn parts_of_several_messages_are_joined_however_they_arrive(
        messages in prop::collection::vec((request(), message()), 1..4),
        size in 16_usize..600,
        pieces in prop::collection::vec(1_usize..900, 1..8),
        version in version(), order in order(),
    ) {
        let mut expected = Vec::new();
        let mut queues = Vec::new();
        for (number, (request, message)) in messages.into_iter().enumerate() {
            let request = Request { id: u32::try_from(number).unwrap(), ..request };
            let bytes = request.encode(version, order, |out| message.encode(out));
            queues.push(in_parts(&bytes, size).into_iter().collect::<std::collections::VecDeque<_>>());
            expected.push((request, message));
        }
        // In 1.2 the parts of several messages may alternate.
        let mut stream = Vec::new();
        while queues.iter().any(|it| !it.is_empty()) {
            for queue in &mut queues {
                let count = if version == Version::V1_2 { 1 } else { usize::MAX };
                queue.drain(..count.min(queue.len())).for_each(|it| stream.extend(it));
            }
        }
        let mut found = Vec::new();
        for whole in assembled(&stream, &pieces, limits()).unwrap() {
            let Ok(Message::Request(request, body)) = Message::decode(&whole.header, &whole.bytes) else {
                panic!("it is a request");
            };
            let message = FipaMessage::decode(&mut body.decoder()).unwrap();
            found.push((request.id, message));
        }
        found.sort_by_key(|it| it.0);
        let expected: Vec<_> = expected.into_iter().map(|it| (it.0.id, it.1)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(
        id: u32, contexts in contexts(), version in version(), order in order(), minor: u32,
    ) {
        let exception = SystemException { id: b"IDL:omg.org/CORBA/TRANSIENT:1.0".to_vec(), minor, completed: Completed::No };
        let reply = Reply { id, status: ReplyStatus::SystemException, contexts };
        let bytes = reply.encode(version, order, |out| exception.encode(out));
        let Ok(Message::Reply(again, body)) = Message::decode(&header(&bytes), &bytes) else {
            panic!("it is a reply");
        };
        prop_assert_eq!(again, reply);
        prop_assert_eq!(SystemException::decode(&mut body.decoder()).unwrap(), exception);
    }

    #[test]
    fn references_and_corbalocs_name_the_same_object(
        host in "[a-z0-9.-]{1,80}", port in 1_u16.., key in octets(), version in version(),
        components in contexts(), order in order(),
    ) {
        let components = if version == Version::V1_0 { Vec::new() } else { components };
        let profile = IiopProfile { version, host, port, key, components };
        let ior = Ior { type_id: b"IDL:FIPA/MTS:1.0".to_vec(), profiles: vec![profile.to_profile(order)] };
        let (again, written_in) = Ior::from_text(&ior.to_text(order)).unwrap();
        prop_assert_eq!(written_in, order);
        prop_assert_eq!(&again, &ior);
        prop_assert_eq!(again.iiop_profiles().collect::<Vec<_>>(), vec![profile.clone()]);
        let corbaloc: ObjectAddress = ObjectAddress::corbaloc(&profile).parse().unwrap();
        let found = &corbaloc.endpoints()[0];
        prop_assert_eq!((&found.host, found.port, &found.key), (&profile.host, port, &profile.key));
    }

    #[test]
    fn texts_are_read_in_the_character_set_they_were_written_in(text in "\\PC*") {
        prop_assert_eq!(CodeSet::Utf8.decode(&CodeSet::Utf8.encode(&text).unwrap()).unwrap(), text.clone());
        match CodeSet::Latin1.encode(&text) {
            Ok(bytes) => prop_assert_eq!(CodeSet::Latin1.decode(&bytes).unwrap(), text.clone()),
            Err(_) => prop_assert!(text.chars().any(|c| u32::from(c) > 255)),
        }
        prop_assert_eq!(Any::text(&text).to_text(|_| None), Some(text));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), order in order()) {
        let _ = FipaMessage::decode(&mut Decoder::new(&bytes, 0, order));
        let _ = Any::decode(&mut Decoder::new(&bytes, 0, order));
        let _ = Ior::decode(&mut Decoder::new(&bytes, 0, order));
        let _ = SystemException::decode(&mut Decoder::new(&bytes, 0, order));
        let _ = String::from_utf8_lossy(&bytes).parse::<ObjectAddress>();
    }

    /// A real message with some bytes changed comes near every check.
    #[test]
    fn no_changed_message_makes_a_reader_panic(
        message in message(), version in version(), order in order(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        size in 16_usize..200,
    ) {
        let request = Request::new(1, Response::None, b"key", "message");
        let whole = request.encode(version, order, |out| message.encode(out));
        let mut bytes: Vec<u8> = in_parts(&whole, size).concat();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let limits = AssemblyLimits { message: 8192, unfinished: 4, unfinished_bytes: 8192 };
        for whole in assembled(&bytes, &[700], limits).unwrap_or_default() {
            if let Ok(Message::Request(_, body)) = Message::decode(&whole.header, &whole.bytes) {
                let _ = FipaMessage::decode(&mut body.decoder());
            }
        }
    }
}

#[test]
fn lengths_are_judged_before_memory_is_taken() {
    let mut out = Encoder::new(ByteOrder::Big);
    out.ulong(0x8000_0000);
    out.raw(&[0; 100]);
    assert!(FipaMessage::decode(&mut Decoder::new(out.bytes(), 0, ByteOrder::Big)).is_err());

    let mut endless = Header {
        version: Version::V1_2,
        order: ByteOrder::Big,
        has_more: false,
        kind: Kind::Request,
        size: u32::MAX,
    };
    let refused = assembled(&endless.to_bytes(), &[12], limits());
    assert!(matches!(refused, Err(AssembleError::TooLong { .. })));

    // Fragments without end, and messages that are begun and never ended.
    endless.size = 4 + 1000;
    endless.has_more = true;
    let part = |header: Header, id: u32| {
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(id.to_be_bytes());
        bytes.resize(HEADER_LENGTH + 1004, 7);
        bytes
    };
    let fragment = Header {
        kind: Kind::Fragment,
        ..endless
    };
    let mut stream = part(endless, 1);
    for _ in 0..2000 {
        stream.extend(part(fragment, 1));
    }
    let refused = assembled(&stream, &[16_384], limits());
    assert!(
        matches!(refused, Err(AssembleError::TooLong { .. })),
        "{refused:?}"
    );
    let begun: Vec<u8> = (0..20).flat_map(|id| part(endless, id)).collect();
    assert_eq!(
        assembled(&begun, &[999], limits()),
        Err(AssembleError::TooManyParts)
    );
}

#[test]
fn messages_in_parts_that_do_not_end_are_forgotten() {
    let begin = Instant::now();
    let mut assembler = Assembler::new(limits());
    let request = Request::new(1, Response::None, b"key", "message");
    let whole = request.encode(Version::V1_2, ByteOrder::Big, |out| out.raw(&[0; 64]));
    let parts = in_parts(&whole, 16);
    assembler.push(&parts[0]);
    assert_eq!(assembler.next_message(begin), Ok(None));
    // A further part does not restart the time.
    assembler.push(&parts[1]);
    let later = begin + Duration::from_secs(29);
    assert_eq!(assembler.next_message(later), Ok(None));
    assert_eq!(assembler.oldest(), Some(begin));
    assembler.forget_older_than(begin + Duration::from_secs(30));
    assert_eq!((assembler.oldest(), assembler.waiting()), (None, 0));
    // The late rest says nothing any more.
    for part in &parts[2..] {
        assembler.push(part);
    }
    assert_eq!(assembler.next_message(begin), Ok(None));
}

#[test]
fn resolvers_lie_only_so_deep() {
    let nested = |depth: usize| {
        let mut agent = AgentId::default();
        for _ in 0..depth {
            agent = AgentId {
                resolvers: vec![agent],
                ..AgentId::default()
            };
        }
        let message = FipaMessage {
            envelopes: vec![Envelope {
                to: vec![agent],
                ..Envelope::default()
            }],
            body: Vec::new(),
        };
        let mut out = Encoder::new(ByteOrder::Big);
        message.encode(&mut out);
        FipaMessage::decode(&mut Decoder::new(out.bytes(), 0, ByteOrder::Big)).is_ok()
    };
    assert!(nested(4) && !nested(5) && !nested(1000));
}

#[test]
fn a_corbaloc_is_read_whole_or_refused() {
    let port = |text: &str| {
        let address = text.parse::<ObjectAddress>();
        address.map(|it| it.endpoints()[0].port)
    };
    assert_eq!(port("corbaloc::[::1]:9000/key"), Ok(9000));
    assert_eq!(port("corbaloc::[::1]/key"), Ok(2809));
    assert!(port("corbaloc::[::1]9000/key").is_err());
}
