//! The addresses that a gateway writes to, and its reports on the answers.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_bus::{MailboxLimits, ORIGIN_PARAMETER, Provenance, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative};
use sealbus_gateways::{GatewayConfig, GatewayLimits, GatewayRule};
use support::{PATIENCE, Platform, allow, content, inform, open_to_all, receive, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// A server at a place of its own, and the address that it claims.
fn third_party(host: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind((host, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (
        listener,
        format!("http://{host}:{port}/internal-admin?really"),
    )
}

/// A place at which nobody listens, and no other program does meanwhile.
fn nobody() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = format!("http://{}/acc", socket.local_addr().unwrap());
    (socket, address)
}

fn assert_untouched(listener: &TcpListener) {
    let accepted = listener.accept();
    let untouched = matches!(&accepted, Err(error) if error.kind() == ErrorKind::WouldBlock);
    assert!(untouched, "{accepted:?}");
}

fn soon() -> GatewayLimits {
    GatewayLimits {
        patience: 300,
        ..GatewayLimits::default()
    }
}

#[tokio::test]
async fn addresses_inside_are_written_to_only_where_a_rule_names_them() {
    let config = GatewayConfig {
        allow: vec![GatewayRule::new("*", ["*"]), allow("plat1", "*")],
        limits: soon(),
        ..GatewayConfig::default()
    };
    let one = Platform::new("one", config).await;
    let (alice, mut alices) = one.agent("alice");
    // Rules without a network admit no address of this machine. The rule of plat1 names 127.0.0.1 alone.
    for (host, name) in [
        ("127.0.0.1", "x@far"),
        ("127.0.0.2", "x@plat1"),
        ("localhost", "x@far"),
    ] {
        let (listener, address) = third_party(host);
        let to = Aid::new(name).unwrap().with_address(address);
        alice.send(inform(to, "secret")).await.unwrap();
        let failure = receive(&mut alices).await.into_message();
        assert_eq!(failure.performative, Performative::Failure);
        let text = failure.content_text().unwrap();
        assert!(
            text.contains("an address of this machine") && text.contains("sealbus gateway allow"),
            "{text}"
        );
        assert_untouched(&listener);
    }
}

#[tokio::test]
async fn an_answer_goes_to_no_address_that_only_its_asker_claims() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let (listener, address) = third_party("127.0.0.2");
    let (_alice, _alices) = one.agent("alice");
    let (bob, mut bobs) = two.agent("bob");
    // The message claims to be from an agent of platform one, with another address for that agent.
    let (forger, _forgers) = one.bus.attach("forger@one", None, None).unwrap();
    let question = inform(two.aid("bob"), "question");
    forger.send(question).await.unwrap();
    let mut question = (*receive(&mut bobs).await.into_message()).clone();
    question.sender.as_mut().unwrap().addresses = vec![address];
    bob.send(question.create_reply(Performative::Inform))
        .await
        .unwrap();
    let failure = receive(&mut bobs).await.into_message();
    let text = failure.content_text().unwrap();
    assert!(
        text.contains("127.0.0.2 is an address of this machine"),
        "{text}"
    );
    assert_untouched(&listener);
}

/// The gateway knows nothing of the subscriber's platform, as after a restart. The DF has kept what the gateway told it.
#[tokio::test]
async fn after_a_restart_a_notice_goes_to_no_address_that_only_its_subscriber_claims() {
    let config = GatewayConfig {
        limits: soon(),
        ..open_to_all()
    };
    let one = Platform::new("one", config).await;
    let (df, mut dfs) = one.agent("df");
    // Both are on the open internet.
    let mut to = Aid::new("x@far")
        .unwrap()
        .with_address("http://203.0.113.9:7778/acc");
    let wrote_from = Expression::from("198.51.100.7");
    to.user_defined
        .push((ORIGIN_PARAMETER.to_owned(), wrote_from));
    df.send(inform(to, "news")).await.unwrap();
    let failure = receive(&mut dfs).await.into_message();
    let text = failure.content_text().unwrap();
    assert!(
        text.contains("far is not known to be at 203.0.113.9"),
        "{text}"
    );
}

#[tokio::test]
async fn the_df_alone_is_told_where_a_subscriber_wrote_from() {
    let one = Platform::new("one", open_to_all()).await;
    let two = Platform::new("two", open_to_all()).await;
    let (alice, mut alices) = one.agent("alice");
    let (df, mut dfs) = two.agent("df");
    let (_bob, mut bobs) = two.agent("bob");
    let subscribe = |receiver: Aid| {
        AclMessage::new(Performative::Subscribe)
            .with_receiver(receiver)
            .with_content("news")
    };
    alice.send(subscribe(two.aid("bob"))).await.unwrap();
    let taken = receive(&mut bobs).await.into_message();
    assert!(taken.sender.as_ref().unwrap().user_defined.is_empty());
    alice.send(subscribe(two.aid("df"))).await.unwrap();
    let taken = receive(&mut dfs).await.into_message();
    let told = &taken.sender.as_ref().unwrap().user_defined;
    let (name, address) = told.first().unwrap();
    assert_eq!(name, ORIGIN_PARAMETER);
    assert_eq!(address.as_str(), Some("127.0.0.1"));
    // No other platform gets to see it.
    let notice = taken.create_reply(Performative::Inform);
    df.send(notice.with_content("news")).await.unwrap();
    let notice = receive(&mut alices).await.into_message();
    assert_eq!(notice.content_text(), Some("news"));
    assert!(notice.receivers[0].user_defined.is_empty());
}

#[tokio::test]
async fn answers_to_others_are_asked_for_only_where_the_sender_may_write() {
    let one = Platform::new("one", open_to_all()).await;
    let config = GatewayConfig {
        allow: vec![allow("one", "bob")],
        ..GatewayConfig::default()
    };
    let two = Platform::new("two", config).await;
    let (alice, mut alices) = one.agent("alice");
    let (_bob, mut bobs) = two.agent("bob");
    for (answered, turned) in [("x@third", "relay"), ("dora@two", "not-permitted")] {
        let mut message = inform(two.aid("bob"), "no");
        message.reply_to.push(Aid::new(answered).unwrap());
        alice.send(message).await.unwrap();
        let failure = receive(&mut alices).await.into_message();
        let text = failure.content_text().unwrap();
        assert!(text.contains("403"), "{text}");
        assert_eq!(two.gateway.counters().refused[turned], 1);
    }
    for answered in ["carol@one", "bob@two"] {
        let mut message = inform(two.aid("bob"), answered);
        message.reply_to.push(Aid::new(answered).unwrap());
        alice.send(message).await.unwrap();
        assert_eq!(content(&mut bobs).await, answered);
    }
}

#[tokio::test]
async fn redirections_are_not_followed_and_answers_not_repeated() {
    let one = Platform::new("one", open_to_all()).await;
    let (alice, mut alices) = one.agent("alice");
    let (elsewhere, target) = third_party("127.0.0.1");
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/acc", server.local_addr().unwrap());
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).unwrap();
        let answer = format!(
            "HTTP/1.1 307 Secret-Reason\r\nLocation: {target}\r\nContent-Length: 11\r\n\r\nroot:secret"
        );
        stream.write_all(answer.as_bytes()).unwrap();
        // The test waits until the gateway has read it.
        let _ = stream.read(&mut request);
    });
    let to = Aid::new("x@far").unwrap().with_address(address);
    alice.send(inform(to, "1")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    let text = failure.content_text().unwrap();
    assert!(text.contains("status 307 (Temporary Redirect)"), "{text}");
    assert!(!text.to_lowercase().contains("secret"), "{text}");
    assert_untouched(&elsewhere);
    drop(one);
    answers.join().unwrap();
}

/// One message at a time has room on its way, and the platform is away. All waiting messages share one limit. A
/// patience for each would begin only when the message before it had come back.
#[tokio::test]
async fn patience_is_a_bound_for_all_that_waits() {
    const MESSAGES: u32 = 250;
    let patience = Duration::from_millis(500);
    let (_gone, address) = nobody();
    let config = GatewayConfig {
        limits: GatewayLimits {
            patience: 500,
            outgoing: 1024,
            ..GatewayLimits::default()
        },
        ..open_to_all()
    };
    let one = Platform::new("one", config).await;
    let (alice, mut alices) = one.agent("alice");
    let to = Aid::new("x@far").unwrap().with_address(address);
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        alice.send(inform(to.clone(), "1")).await.unwrap();
    }
    for _ in 0..MESSAGES {
        let failure = receive(&mut alices).await.into_message();
        assert_eq!(failure.performative, Performative::Failure);
    }
    let took = begin.elapsed();
    assert!(took < patience * MESSAGES / 2, "{took:?}");
}

/// Alice writes on and on to a platform that is away, and reads nothing.
#[tokio::test]
async fn notices_that_nobody_reads_fill_no_memory() {
    const MESSAGES: usize = 500;
    let (_gone, address) = nobody();
    let config = GatewayConfig {
        limits: GatewayLimits {
            patience: 1,
            waiting: 4096,
            ..GatewayLimits::default()
        },
        ..open_to_all()
    };
    let one = Platform::new("one", config).await;
    let small = MailboxLimits {
        messages: 1,
        ..MailboxLimits::default()
    };
    let (alice, mut alices) = one.bus.attach("alice@one", None, Some(small)).unwrap();
    let to = Aid::new("x@far").unwrap().with_address(address);
    for _ in 0..MESSAGES {
        alice.send(inform(to.clone(), "1")).await.unwrap();
    }
    until(|| one.gateway.counters().failed == MESSAGES as u64).await;
    // No notice is on its way to the line any more.
    tokio::time::sleep(Duration::from_secs(2)).await;
    // One notice was in the mailbox, and others before it.
    let mut read = 0;
    while read < 2 {
        let notice = tokio::time::timeout(PATIENCE, alices.recv()).await;
        assert!(notice.unwrap().is_some());
        read += 1;
    }
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), alices.recv()).await {
        read += 1;
    }
    assert!(read < 100, "{read} notices waited");
}

/// A message of another process takes room among those to all platforms. The other platform does not answer at first.
#[tokio::test]
async fn a_message_has_its_room_until_the_other_platform_has_taken_it() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/acc", server.local_addr().unwrap());
    let one = Platform::new("one", open_to_all()).await;
    let writer: Arc<str> = "another process".into();
    let agent = one.bus.receiver("x@far", Some(&writer)).unwrap();
    let room = agent.foreign_room().unwrap();
    // More than half of all the room that there is.
    let taken = room.take(&writer, 200 << 20).unwrap();
    let to = Aid::new("x@far").unwrap().with_address(address);
    let message = inform(to, "1").with_sender(one.aid("alice"));
    let message = ReceivedMessage::shared(Arc::new(message), Provenance::Claimed);
    let pushed = agent.mailbox().try_push(message.with_room(taken));
    pushed.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
    assert!(room.take(&writer, 0).is_none());
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await
        .unwrap();
    until(|| room.take(&writer, 0).is_some()).await;
}

/// Each answer of the other platform comes byte by byte and never ends.
#[tokio::test]
async fn a_platform_whose_answers_drip_holds_nothing_up() {
    const MESSAGES: usize = 5;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/acc", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n");
                while stream.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    let config = GatewayConfig {
        limits: GatewayLimits {
            patience: 1000,
            answer_time: 500,
            ..GatewayLimits::default()
        },
        ..open_to_all()
    };
    let one = Platform::new("one", config).await;
    let (alice, mut alices) = one.agent("alice");
    let to = Aid::new("x@far").unwrap().with_address(address);
    for _ in 0..MESSAGES {
        alice.send(inform(to.clone(), "1")).await.unwrap();
    }
    for _ in 0..MESSAGES {
        let failure = receive(&mut alices).await.into_message();
        assert_eq!(failure.performative, Performative::Failure);
    }
}
