//! Clients that call the gateway's object in every way, and in others than they should.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sealbus_gateways::{GatewayConfig, GatewayLimits};
use sealbus_giop::cdr::{ByteOrder, Encoder};
use sealbus_giop::mts::{AgentId, Envelope, FipaMessage};
use sealbus_giop::{
    Assembler, AssemblyLimits, HEADER_LENGTH, Header, Kind, LocateRequest, LocateStatus, Message,
    ObjectAddress, ReplyStatus, Request, Response, SystemException, Target, Version, Whole,
};
use support::{PATIENCE, Platform, content, ior, open_to_all, receive, two, with_iiop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn address(platform: &Platform) -> (SocketAddr, Vec<u8>) {
    let object: ObjectAddress = ior(platform).parse().unwrap();
    let profile = &object.endpoints()[0];
    let ip = profile.host.parse().unwrap();
    (SocketAddr::new(ip, profile.port), profile.key.clone())
}

/// A client that sends any bytes.
struct Client {
    stream: TcpStream,
    answers: Assembler,
}

impl Client {
    async fn new(platform: &Platform) -> Self {
        let stream = TcpStream::connect(address(platform).0).await.unwrap();
        Self {
            stream,
            answers: Assembler::new(AssemblyLimits::of_messages(1 << 16)),
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        // The other side may have ended already.
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next message; `None` once the connection has ended.
    async fn next(&mut self) -> Option<Whole> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(whole) = self.answers.next_message(Instant::now()).unwrap() {
                return Some(whole);
            }
            let reading = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer));
            match reading.await.expect("an answer is due") {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.answers.push(&buffer[..count]),
            }
        }
    }

    /// The next reply: the exception's name, or the bytes of the result.
    async fn reply(&mut self) -> Result<Vec<u8>, String> {
        let whole = self.next().await.expect("a reply is due");
        match Message::decode(&whole.header, &whole.bytes).unwrap() {
            Message::Reply(reply, body) if reply.status == ReplyStatus::NoException => {
                Ok(body.bytes().to_vec())
            }
            Message::Reply(_, body) => {
                Err(SystemException::decode(&mut body.decoder()).unwrap().name())
            }
            other => panic!("{other:?}"),
        }
    }
}

fn call(
    key: &[u8],
    operation: &'static str,
    response: Response,
    arguments: impl FnOnce(&mut Encoder),
) -> Vec<u8> {
    Request::new(7, response, key, operation).encode(Version::V1_2, ByteOrder::Little, arguments)
}

fn named(name: &str) -> AgentId {
    AgentId {
        name: name.as_bytes().to_vec(),
        ..AgentId::default()
    }
}

fn message(from: &str, to: &str) -> FipaMessage {
    let body = format!(
        "(INFORM :sender (agent-identifier :name {from}) :receiver (set (agent-identifier :name {to})) :content \"hi\")"
    );
    FipaMessage {
        envelopes: vec![Envelope {
            to: vec![named(to)],
            from: Some(named(from)),
            acl_representation: b"fipa.acl.rep.string.std".to_vec(),
            intended_receivers: vec![named(to)],
            ..Envelope::default()
        }],
        body: body.into_bytes(),
    }
}

#[tokio::test]
async fn every_question_has_its_answer_in_every_version() {
    let two = two().await;
    let (_bob, mut bobs) = two.agent("bob");
    let (_, key) = address(&two);
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for order in [ByteOrder::Big, ByteOrder::Little] {
            let mut client = Client::new(&two).await;
            let ask = |key: &[u8], operation: &'static str, argument: &[u8]| {
                let request = Request::new(1, Response::Wanted, key, operation);
                request.encode(version, order, |out| {
                    if !argument.is_empty() {
                        out.string(argument);
                    }
                })
            };
            for (operation, argument, expected) in [
                ("_non_existent", &b""[..], Ok(vec![0])),
                ("_is_a", b"IDL:FIPA/MTS:1.0", Ok(vec![1])),
                ("_is_a", b"IDL:omg.org/CORBA/Object:1.0", Ok(vec![1])),
                ("_is_a", b"IDL:Other:1.0", Ok(vec![0])),
                ("_is_a", b"", Err("MARSHAL")),
                ("_interface", b"", Err("BAD_OPERATION")),
                ("bogus", b"", Err("BAD_OPERATION")),
            ] {
                client.send(&ask(&key, operation, argument)).await;
                assert_eq!(
                    client.reply().await,
                    expected.map_err(str::to_owned),
                    "{operation}"
                );
            }
            client.send(&ask(b"other", "_non_existent", b"")).await;
            assert_eq!(client.reply().await, Err("OBJECT_NOT_EXIST".to_owned()));
            for (key, expected) in [
                (&key[..], LocateStatus::Here),
                (b"x", LocateStatus::Unknown),
            ] {
                let target = Target::Key(key.to_vec());
                let question = LocateRequest { id: 9, target };
                client.send(&question.encode(version, order)).await;
                let whole = client.next().await.unwrap();
                match Message::decode(&whole.header, &whole.bytes).unwrap() {
                    Message::LocateReply(it) => assert_eq!((it.id, it.status), (9, expected)),
                    other => panic!("{other:?}"),
                }
            }
            // As FIPA00075 says, and as other ORBs call it: without a reply.
            let oneway = Request::new(2, Response::None, &key, "message");
            let fipa = message("a@one", "bob@two");
            client
                .send(&oneway.encode(version, order, |out| fipa.encode(out)))
                .await;
            assert_eq!(content(&mut bobs).await, "hi");
        }
    }
}

#[tokio::test]
async fn a_character_set_holds_for_its_connection() {
    let two = two().await;
    let (_bob, mut bobs) = two.agent("bob");
    let (_, key) = address(&two);
    for (char_set, name) in [
        (sealbus_giop::CodeSet::Latin1, &b"bj\xf6rn@one"[..]),
        (sealbus_giop::CodeSet::Utf8, "björn@one".as_bytes()),
    ] {
        let mut client = Client::new(&two).await;
        let mut first = Request::new(1, Response::Wanted, &key, "_non_existent");
        first
            .contexts
            .push(sealbus_giop::CodeSets { char_set }.to_context());
        client
            .send(&first.encode(Version::V1_2, ByteOrder::Big, |_| {}))
            .await;
        assert_eq!(client.reply().await, Ok(vec![0]));
        let mut fipa = message("x@one", "bob@two");
        fipa.envelopes[0].from = Some(AgentId {
            name: name.to_vec(),
            ..AgentId::default()
        });
        fipa.body = b"(INFORM :content \"hi\")".to_vec();
        client
            .send(&call(&key, "message", Response::Wanted, |out| {
                fipa.encode(out)
            }))
            .await;
        assert_eq!(client.reply().await, Ok(Vec::new()));
        let received = receive(&mut bobs).await.into_message();
        assert_eq!(received.sender.as_ref().unwrap().name, "björn@one");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_message_has_an_exception_and_is_counted() {
    let two = two().await;
    let (_bob, mut bobs) = two.agent("bob");
    let (_, key) = address(&two);
    let without = |change: fn(&mut FipaMessage)| {
        let mut it = message("a@one", "bob@two");
        change(&mut it);
        it
    };
    let mut client = Client::new(&two).await;
    for (fipa, exception, counted) in [
        (
            message("bob@two", "bob@two"),
            "NO_PERMISSION",
            "forged-sender",
        ),
        (message("a@one", "bob@three"), "NO_PERMISSION", "relay"),
        (without(|it| it.envelopes.clear()), "BAD_PARAM", "malformed"),
        (without(|it| it.body.clear()), "BAD_PARAM", "malformed"),
        (
            without(|it| it.envelopes[0].acl_representation.clear()),
            "BAD_PARAM",
            "malformed",
        ),
        (
            without(|it| it.envelopes[0].acl_representation = b"other".to_vec()),
            "BAD_PARAM",
            "malformed",
        ),
        (
            without(|it| it.envelopes[0].from = Some(named("x@three"))),
            "NO_PERMISSION",
            "forged-sender",
        ),
        (
            without(|it| it.envelopes[0].comments = vec![b'x'; 70_000]),
            "BAD_PARAM",
            "malformed",
        ),
    ] {
        let before = two
            .gateway
            .counters()
            .refused
            .get(counted)
            .copied()
            .unwrap_or(0);
        client
            .send(&call(&key, "message", Response::Wanted, |out| {
                fipa.encode(out)
            }))
            .await;
        assert_eq!(client.reply().await, Err(exception.to_owned()), "{fipa:?}");
        assert!(two.gateway.counters().refused[counted] > before);
        // The same without a reply: nothing comes back, and the connection goes on.
        client
            .send(&call(&key, "message", Response::None, |out| {
                fipa.encode(out)
            }))
            .await;
    }
    // Arguments that are no message: lengths beyond the end, sequences of 2^31 elements, another alignment.
    let huge = |out: &mut Encoder| out.ulong(0x8000_0000);
    let cut = |out: &mut Encoder| out.raw(&[1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 0, 0]);
    let shifted = |out: &mut Encoder| {
        let mut own = Encoder::new(ByteOrder::Little);
        message("a@one", "bob@two").encode(&mut own);
        out.octet(0);
        out.raw(own.bytes());
    };
    for bytes in [
        call(&key, "message", Response::Wanted, huge),
        call(&key, "message", Response::Wanted, cut),
        call(&key, "message", Response::Wanted, shifted),
        call(&key, "message", Response::Wanted, |_| {}),
    ] {
        client.send(&bytes).await;
        assert_eq!(client.reply().await, Err("MARSHAL".to_owned()));
    }
    // Fields of the request itself.
    let mut bytes = call(&key, "message", Response::Wanted, |_| {});
    bytes[24..28].fill(0xff);
    client.send(&bytes).await;
    assert_eq!(client.reply().await, Err("MARSHAL".to_owned()));
    let fipa = message("a@one", "bob@two");
    client
        .send(&call(&key, "message", Response::Wanted, |out| {
            fipa.encode(out)
        }))
        .await;
    assert_eq!(client.reply().await, Ok(Vec::new()));
    assert_eq!(content(&mut bobs).await, "hi");
}

fn begun(id: u32, data: usize, kind: Kind) -> Vec<u8> {
    let header = Header {
        version: Version::V1_2,
        order: ByteOrder::Big,
        has_more: true,
        kind,
        size: u32::try_from(data + 4).unwrap(),
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(id.to_be_bytes());
    bytes.resize(HEADER_LENGTH + 4 + data, 0);
    bytes
}

/// The connection ends with MessageError or CloseConnection, and the next one is served.
async fn ends(two: &Platform, bytes: &[u8], counted: &str) {
    let before = two
        .gateway
        .counters()
        .refused
        .get(counted)
        .copied()
        .unwrap_or(0);
    let mut client = Client::new(two).await;
    client.send(bytes).await;
    while let Some(whole) = client.next().await {
        assert!(matches!(
            whole.header.kind,
            Kind::MessageError | Kind::CloseConnection
        ));
    }
    assert!(
        two.gateway.counters().refused[counted] > before,
        "{counted}"
    );
    is_served(two, Client::new(two).await).await;
}

/// The gateway answers this client.
async fn is_served(two: &Platform, mut client: Client) {
    let key = address(two).1;
    client
        .send(&call(&key, "_non_existent", Response::Wanted, |_| {}))
        .await;
    assert_eq!(client.reply().await, Ok(vec![0]));
}

#[tokio::test]
async fn what_is_no_message_ends_its_connection() {
    let limits = GatewayLimits {
        body: 64 << 10,
        body_time: 300,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..with_iiop(open_to_all())
    };
    let two = Platform::new("two", config).await;
    ends(&two, b"GET / HTTP/1.0\r\n\r\n", "malformed").await;
    ends(&two, b"GIOP\x01\x03\x00\x00\x00\x00\x00\x00", "malformed").await;
    ends(&two, b"GIOP\x02\x00\x00\x00\x00\x00\x00\x00", "malformed").await;
    ends(&two, b"GIOP\x01\x02\x00\x09\x00\x00\x00\x00", "malformed").await;
    ends(&two, b"GIOP\x01\x02\x00\x00\xff\xff\xff\xff", "too-large").await;
    ends(&two, b"GIOP\x01\x02\x00\x00\x7f\xff\xff\xff", "too-large").await;
    // Half a header, and a message that is announced and does not come.
    ends(&two, b"GIOP\x01\x02", "too-slow").await;
    ends(&two, b"GIOP\x01\x02\x00\x00\x00\x00\x10\x00abc", "too-slow").await;
    // Parts without end, in one message and in many.
    let mut endless = begun(1, 1020, Kind::Request);
    for _ in 0..100 {
        endless.extend(begun(1, 1020, Kind::Fragment));
    }
    ends(&two, &endless, "too-large").await;
    let many: Vec<u8> = (0..32)
        .flat_map(|id| begun(id, 60, Kind::Request))
        .collect();
    ends(&two, &many, "too-many").await;
}

/// A platform whose gateway waits 200 ms for the rest of a message.
async fn impatient() -> Platform {
    let limits = GatewayLimits {
        body_time: 200,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..with_iiop(open_to_all())
    };
    Platform::new("two", config).await
}

#[tokio::test]
async fn a_message_in_parts_that_nobody_continues_is_forgotten() {
    let two = impatient().await;
    let mut client = Client::new(&two).await;
    client.send(&begun(1, 60, Kind::Request)).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    is_served(&two, client).await;
}

/// Neither whole messages nor further parts give a message in parts more time. Its bytes would keep their room for ever.
#[tokio::test]
async fn a_message_in_parts_does_not_outlive_its_time_among_others() {
    let time = Duration::from_millis(200);
    let two = impatient().await;
    let (_, key) = address(&two);
    let ask = call(&key, "_non_existent", Response::Wanted, |_| {});
    let is_asked_alone = async |client: &mut Client| {
        client.send(&ask).await;
        let whole = client.next().await.expect("a reply is due");
        match Message::decode(&whole.header, &whole.bytes).unwrap() {
            Message::Reply(reply, _) => assert_eq!(reply.id, 7),
            other => panic!("{other:?}"),
        }
    };
    // A whole request, but its header says that more of it follows.
    let first = Request::new(1, Response::Wanted, &key, "_non_existent");
    let mut first = first.encode(Version::V1_2, ByteOrder::Big, |_| {});
    first[6] |= 2;
    let mut last = begun(1, 0, Kind::Fragment);
    last[6] &= !2;
    let mut client = Client::new(&two).await;
    client.send(&first).await;
    is_asked_alone(&mut client).await;
    let until = Instant::now() + 3 * time;
    while Instant::now() < until {
        client.send(&begun(1, 8, Kind::Fragment)).await;
        is_asked_alone(&mut client).await;
        tokio::time::sleep(time / 2).await;
    }
    is_asked_alone(&mut client).await;
    client.send(&last).await;
    is_asked_alone(&mut client).await;
}

#[tokio::test]
async fn a_thousand_idle_connections_keep_nobody_out_for_ever() {
    let limits = GatewayLimits {
        connections_per_address: 64,
        head_time: 2000,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig {
        limits,
        ..with_iiop(open_to_all())
    };
    let two = Platform::new("two", config).await;
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(Client::new(&two).await);
    }
    for client in &mut idle {
        let whole = client.next().await;
        assert!(whole.is_none_or(|it| it.header.kind == Kind::CloseConnection));
    }
    // If the machine stalls between two of them, places are free again meanwhile.
    let refused = two.gateway.counters().refused;
    assert!(refused["too-many"] > 0);
    assert_eq!(refused["too-many"] + refused["too-slow"], 1000);
    // Their places are free again soon.
    let ask = call(&address(&two).1, "_non_existent", Response::Wanted, |_| {});
    let serving = async {
        loop {
            let mut client = Client::new(&two).await;
            client.send(&ask).await;
            if let Some(whole) = client.next().await
                && whole.header.kind == Kind::Reply
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, serving).await.unwrap();
}
