//! Clients that send too much, too slowly or too often.

use std::time::Duration;

use sealbus_bus::{Mailbox, MailboxLimits, Outbox};
use sealbus_gateways::GatewayLimits;
use tokio::io::AsyncWriteExt;

use super::support::{PATIENCE, Platform, content};
use super::{body, connect, counted, exchange, good, post, rest, status, two};

#[tokio::test]
async fn size_is_limited() {
    let limits = GatewayLimits {
        body: 2000,
        head: 8192,
        ..GatewayLimits::default()
    };
    let two = two(limits).await;
    let large = good().replace("hi", &"x".repeat(3000));
    let answer = exchange(&two, post(&large).as_bytes()).await;
    assert_eq!(status(&answer), 413, "{answer}");
    let chunked = format!(
        "POST /acc HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/mixed;boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    assert_eq!(status(&exchange(&two, chunked.as_bytes()).await), 413);
    counted(&two, "too-large", 2).await;
    let head = format!("POST /acc HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(&exchange(&two, head.as_bytes()).await), 431);
    let many = format!("POST /acc HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(500));
    assert_eq!(status(&exchange(&two, many.as_bytes()).await), 431);
    counted(&two, "too-large", 4).await;
}

#[tokio::test]
async fn the_slow_are_not_waited_for() {
    let limits = GatewayLimits {
        head_time: 300,
        body_time: 300,
        ..GatewayLimits::default()
    };
    let two = two(limits).await;
    let mut body_never = connect(&two).await;
    let request = post(&good());
    body_never
        .write_all(&request.as_bytes()[..request.len() - 20])
        .await
        .unwrap();
    let mut head_never = connect(&two).await;
    head_never
        .write_all(b"POST /acc HTTP/1.1\r\nHost:")
        .await
        .unwrap();
    let answer = rest(&mut body_never).await;
    assert_eq!(status(&answer), 408, "{answer}");
    let answer = rest(&mut head_never).await;
    assert_eq!(status(&answer), 408, "{answer}");
    counted(&two, "too-slow", 2).await;
}

/// Answers that nobody reads fill the connection. It must not keep its place for ever.
#[tokio::test]
async fn those_who_read_no_answers_are_not_waited_for() {
    let limits = GatewayLimits {
        connections_per_address: 1,
        body_time: 300,
        ..GatewayLimits::default()
    };
    let two = two(limits).await;
    let mut never_reads = connect(&two).await;
    let many = "GET /acc HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
    let writing = async { while never_reads.write_all(many.as_bytes()).await.is_ok() {} };
    let ended = tokio::time::timeout(PATIENCE, writing).await;
    ended.expect("the gateway is to end the connection");
    counted(&two, "too-slow", 1).await;
    // Its place is free, as soon as that is noticed.
    let again = async {
        loop {
            let ask = b"GET /acc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            if exchange(&two, ask).await.contains("200 OK") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
}

/// Nobody needs a right to be refused, so a refusal must not be as long as the request.
#[tokio::test]
async fn long_names_make_no_long_answers() {
    let two = two(GatewayLimits::default()).await;
    let long = "x".repeat(1 << 20);
    let was_here = format!(
        "<received><received-by value=\"{}\"/><received-date value=\"20261121T050545446Z\"/></received>",
        two.address
    );
    for (request, expected) in [
        (body(&format!("{long}@two"), "a@one", "a@one", ""), 403),
        (body(&format!("bob@{long}"), "a@one", "a@one", ""), 403),
        (body("bob@two", &format!("a@{long}"), "a@one", ""), 403),
        (
            body("bob@two", "a@one", &format!("a@{long}"), &was_here),
            508,
        ),
    ] {
        let answer = exchange(&two, post(&request).as_bytes()).await;
        assert_eq!(status(&answer), expected, "{} bytes", answer.len());
        assert!(answer.len() < 4096, "{} bytes", answer.len());
        // The log counts it against the address.
        let refused = two.bus.refusals().last();
        let tried_by = &refused.last().unwrap().tried_by;
        assert!(tried_by.ends_with(" at 127.0.0.1"), "{tried_by}");
    }
}

/// Bodies that were begun take memory. One address has a share of it, with any number of connections.
#[tokio::test]
async fn bodies_that_are_being_read_are_limited_together() {
    let limits = GatewayLimits {
        body: 4000,
        bodies_per_address: 5000,
        bodies: 10_000,
        ..GatewayLimits::default()
    };
    let two = two(limits).await;
    let large = post(&good().replace("hi", &"x".repeat(2800)));
    let mut begun = connect(&two).await;
    begun
        .write_all(&large.as_bytes()[..large.len() - 20])
        .await
        .unwrap();
    // The time counts from when the first of them was read.
    let refused = async {
        loop {
            let answer = exchange(&two, large.as_bytes()).await;
            if status(&answer) == 503 {
                break answer;
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert!(answer.contains("bodies-per-address"), "{answer}");
    // A small body has room, and a refused one has room later.
    assert_eq!(status(&exchange(&two, post(&good()).as_bytes()).await), 200);
    begun
        .write_all(&large.as_bytes()[large.len() - 20..])
        .await
        .unwrap();
    begun.shutdown().await.unwrap();
    assert_eq!(status(&rest(&mut begun).await), 200);
    assert_eq!(status(&exchange(&two, large.as_bytes()).await), 200);
}

#[tokio::test]
async fn connections_are_limited() {
    let limits = GatewayLimits {
        connections_per_address: 2,
        ..GatewayLimits::default()
    };
    let two = two(limits).await;
    let (_bob, mut bobs) = two.agent("bob");
    let mut first = connect(&two).await;
    let mut second = connect(&two).await;
    // Both are served.
    for stream in [&mut first, &mut second] {
        stream.write_all(post(&good()).as_bytes()).await.unwrap();
        assert_eq!(content(&mut bobs).await, "hi");
    }
    let mut third = connect(&two).await;
    let answer = rest(&mut third).await;
    assert_eq!(status(&answer), 503, "{answer}");
    counted(&two, "too-many", 1).await;
    drop(first);
    // There is room again, as soon as it is noticed.
    let again = async {
        loop {
            let answer = exchange(&two, post(&good()).as_bytes()).await;
            if answer.contains("200 OK") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
}

/// A platform on which bob has room for two messages.
async fn with_little_room(limits: GatewayLimits) -> (Platform, Outbox, Mailbox) {
    let two = two(limits).await;
    let small = MailboxLimits {
        messages: 2,
        ..MailboxLimits::default()
    };
    let (bob, bobs) = two.bus.attach("bob@two", None, Some(small)).unwrap();
    (two, bob, bobs)
}

#[tokio::test]
async fn a_full_mailbox_is_said_to_be_full() {
    let limits = GatewayLimits {
        waiting: good().len(),
        ..GatewayLimits::default()
    };
    let (two, _bob, mut bobs) = with_little_room(limits).await;
    // Two messages are in the mailbox, and one in the line before it.
    for _ in 0..3 {
        assert_eq!(status(&exchange(&two, post(&good()).as_bytes()).await), 200);
    }
    let answer = exchange(&two, post(&good()).as_bytes()).await;
    assert_eq!(status(&answer), 503, "{answer}");
    assert!(answer.contains("Connection: close"), "{answer}");
    counted(&two, "busy", 1).await;
    for _ in 0..3 {
        content(&mut bobs).await;
    }
    // The line ends a moment after its last message was taken.
    let until = std::time::Instant::now() + PATIENCE;
    while status(&exchange(&two, post(&good()).as_bytes()).await) != 200 {
        assert!(std::time::Instant::now() < until);
    }
    content(&mut bobs).await;
}

#[tokio::test]
async fn messages_for_others_do_not_wait_behind_a_full_mailbox() {
    let (two, _bob, mut bobs) = with_little_room(GatewayLimits::default()).await;
    let (_dora, mut doras) = two.agent("dora");
    let mut requests: String = (0..20)
        .map(|number| post(&good().replace("\"hi\"", &format!("\"{number}\""))))
        .collect();
    requests.push_str(&post(&good().replace("bob@two", "dora@two")));
    // All requests share one connection: dora is reached while bob has read nothing.
    let answers = exchange(&two, requests.as_bytes()).await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 21, "{answers}");
    content(&mut doras).await;
    assert_eq!(two.gateway.counters().received, 21);
    for number in 0..20 {
        assert_eq!(content(&mut bobs).await, number.to_string());
    }
}
