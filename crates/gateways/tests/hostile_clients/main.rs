//! Requests of hostile or faulty clients: each is refused with a status, and counted.

#![allow(clippy::unwrap_used)]

mod limits;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use sealbus_gateways::{GatewayConfig, GatewayLimits};
use support::{PATIENCE, Platform, allow, content};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ENVELOPE: &str = "<?xml version=\"1.0\"?>\n<envelope><params index=\"1\"><to>TO</to><from>FROM</from>\
    <acl-representation>fipa.acl.rep.string.std</acl-representation><date>20261121Z050545446</date>\
    <intended-receiver>TO</intended-receiver>STAMP</params></envelope>";
const MESSAGE: &str = "(INFORM :sender (agent-identifier :name SENDER) :receiver (set (agent-identifier :name bob@two)) :content \"hi\")";

fn aid(name: &str) -> String {
    format!(
        "<agent-identifier><name>{name}</name><addresses><url>http://h:1/acc</url></addresses></agent-identifier>"
    )
}

fn body(to: &str, from: &str, sender: &str, stamp: &str) -> String {
    let envelope = ENVELOPE
        .replace("TO", &aid(to))
        .replace("FROM", &aid(from))
        .replace("STAMP", stamp);
    let message = MESSAGE.replace("SENDER", sender);
    format!(
        "--b\r\nContent-Type: application/xml\r\n\r\n{envelope}\r\n--b\r\nContent-Type: application/text\r\n\r\n{message}\r\n--b--\r\n"
    )
}

fn good() -> String {
    body("bob@two", "a@one", "a@one", "")
}

fn post_as(content_type: &str, body: &str) -> String {
    format!(
        "POST /acc HTTP/1.1\r\nHost: h\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn post(body: &str) -> String {
    post_as("multipart/mixed ; boundary=\"b\"", body)
}

async fn two(limits: GatewayLimits) -> Platform {
    let config = GatewayConfig {
        allow: vec![allow("one", "bob"), allow("one", "dora")],
        limits,
        ..GatewayConfig::default()
    };
    Platform::new("two", config).await
}

async fn connect(platform: &Platform) -> TcpStream {
    let address: sealbus_gateways::http::HttpAddress = platform.address.parse().unwrap();
    TcpStream::connect((address.host(), address.port()))
        .await
        .unwrap()
}

/// The bytes until the connection is closed.
async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        // A reset ends it as well as an orderly end.
        while let Ok(count) = stream.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            all.extend_from_slice(&buffer[..count]);
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the connection is to be closed");
    String::from_utf8_lossy(&all).into_owned()
}

/// Sends, ends its own side, and returns the whole answer.
async fn exchange(platform: &Platform, request: &[u8]) -> String {
    let mut stream = connect(platform).await;
    // The request may be refused before all is written.
    let _ = stream.write_all(request).await;
    let _ = stream.shutdown().await;
    rest(&mut stream).await
}

fn status(answer: &str) -> u16 {
    let line = answer.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

async fn counted(platform: &Platform, what: &str, count: u64) {
    let waiting = async {
        while platform
            .gateway
            .counters()
            .refused
            .get(what)
            .copied()
            .unwrap_or(0)
            < count
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}: {:?}", platform.gateway.counters()));
    assert_eq!(platform.gateway.counters().refused[what], count);
}

#[tokio::test]
async fn the_same_request_in_good_order_is_taken() {
    let two = two(GatewayLimits::default()).await;
    let (_bob, mut bobs) = two.agent("bob");
    let plain = exchange(&two, post(&good()).as_bytes()).await;
    assert_eq!(status(&plain), 200, "{plain}");
    // JADE's client needs this form: no body, and no header that it would take for the end of the connection.
    assert!(
        plain.to_ascii_lowercase().contains("content-length: 0"),
        "{plain}"
    );
    let chunked = format!(
        "POST http://h/acc HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/mixed;boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        good().len(),
        good()
    );
    assert_eq!(status(&exchange(&two, chunked.as_bytes()).await), 200);
    let old = post(&good()).replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(status(&exchange(&two, old.as_bytes()).await), 200);
    // JADE ends each request with a superfluous empty line. The requests are pipelined.
    let jade = format!("{}\r\n", post(&good())).repeat(3);
    let answers = exchange(&two, jade.as_bytes()).await;
    assert_eq!(answers.matches("200 OK").count(), 3, "{answers}");
    for _ in 0..6 {
        assert_eq!(content(&mut bobs).await, "hi");
    }
    assert!(two.gateway.counters().refused.is_empty());
}

/// JADE sends an empty line, and then waits for the answer on the same connection.
#[tokio::test]
async fn an_empty_line_after_a_request_does_not_hold_its_answer_back() {
    let two = two(GatewayLimits::default()).await;
    let (_bob, mut bobs) = two.agent("bob");
    let mut stream = connect(&two).await;
    let request = format!("{}\r\n", post(&good()));
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut buffer = [0; 512];
            let reading = stream.read(&mut buffer);
            let count = tokio::time::timeout(PATIENCE, reading).await.unwrap();
            answer.extend_from_slice(&buffer[..count.unwrap()]);
        }
        assert_eq!(status(&String::from_utf8_lossy(&answer)), 200);
        assert_eq!(content(&mut bobs).await, "hi");
    }
}

#[tokio::test]
async fn malformed_bodies_are_told_what_is_wrong() {
    let two = two(GatewayLimits::default()).await;
    let cases: Vec<(String, u16, &str)> = vec![
        (post("nothing"), 400, "begins a part"),
        (post("--b\r\n\r\nx\r\n--b--"), 400, "1 parts"),
        (post(&good().replace("--b--", "")), 400, "ends before"),
        (
            post(&good().replace("</envelope>", "")),
            400,
            "envelope does not decode",
        ),
        (
            post(&good().replace("(INFORM", "(")),
            400,
            "message does not decode",
        ),
        (
            post(&good().replace("string.std", "morse.std")),
            415,
            "morse",
        ),
        (post_as("text/plain", &good()), 415, "multipart/mixed"),
        (post_as("multipart/mixed", &good()), 400, "boundary"),
        (
            post(&good().replace("a@one", "nobody")),
            400,
            "agent@platform",
        ),
        (post(&good()).replace("POST", "PUT"), 405, "by POST"),
        (
            "POST /acc HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            411,
            "Content-Length",
        ),
    ];
    let count = cases.len() as u64;
    for (request, expected, text) in cases {
        let answer = exchange(&two, request.as_bytes()).await;
        assert_eq!(status(&answer), expected, "{answer}");
        assert!(answer.contains(text), "{text}: {answer}");
    }
    counted(&two, "malformed", count).await;
    assert_eq!(two.bus.refusals().total(), count);
}

#[tokio::test]
async fn what_is_no_http_is_turned_away() {
    let two = two(GatewayLimits::default()).await;
    for request in [
        "\x16\x03\x01\x02\x00\x01\x00",
        "GET\r\n\r\n",
        "POST /acc HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /acc HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "POST /acc HTTP/1.1\r\nBad Header : x\r\n\r\n",
    ] {
        assert_eq!(
            status(&exchange(&two, request.as_bytes()).await),
            400,
            "{request:?}"
        );
    }
    counted(&two, "malformed", 5).await;
}

#[tokio::test]
async fn who_ends_within_a_body_is_told_so() {
    let two = two(GatewayLimits::default()).await;
    let request = post(&good());
    let head = request.len() - good().len();
    let mut count = 0;
    let mut check = |answer: &str, end: usize| {
        assert_eq!(status(answer), 400, "{end}: {answer}");
        assert!(
            answer.contains("ended before its length"),
            "{end}: {answer}"
        );
        count += 1;
    };
    // The end may be anywhere, also before the body has begun.
    for end in (head..request.len()).step_by(37) {
        check(&exchange(&two, &request.as_bytes()[..end]).await, end);
    }
    let chunked = format!(
        "POST /acc HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/mixed;boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}",
        good().len(),
        good()
    );
    for end in [chunked.len(), chunked.len() - 20] {
        check(&exchange(&two, &chunked.as_bytes()[..end]).await, end);
    }
    // While the gateway waits for the rest.
    let request = request.replace("Host: h", "Host: h\r\nExpect: 100-continue");
    let mut stream = connect(&two).await;
    let (head, body) = request.split_at(request.len() - good().len());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    let reading = stream.read_exact(&mut go_on);
    tokio::time::timeout(PATIENCE, reading)
        .await
        .unwrap()
        .unwrap();
    stream.write_all(&body.as_bytes()[..9]).await.unwrap();
    stream.shutdown().await.unwrap();
    check(&rest(&mut stream).await, 9);
    counted(&two, "malformed", count).await;
}

#[tokio::test]
async fn what_follows_a_body_that_is_longer_than_its_length_is_no_request() {
    let two = two(GatewayLimits::default()).await;
    let length = format!("Content-Length: {}", good().len());
    let longer = post(&good()).replace(&length, "Content-Length: 10");
    let answer = exchange(&two, longer.as_bytes()).await;
    assert_eq!(status(&answer), 400, "{answer}");
    assert!(two.gateway.counters().refused["malformed"] >= 1);
}

#[tokio::test]
async fn nobody_passes_for_one_of_ours_and_nothing_is_passed_on() {
    let two = two(GatewayLimits::default()).await;
    let (_bob, bobs) = two.agent("bob");
    let (_ca, cas) = two.agent("ca");
    let cases = [
        // A sender that claims to be of this platform, in any letter case.
        (
            body("bob@two", "bob@two", "bob@two", ""),
            403,
            "forged-sender",
        ),
        (
            body("bob@two", "bob@TWO", "bob@TWO", ""),
            403,
            "forged-sender",
        ),
        // The envelope is of an allowed platform and the message of another, and the reverse.
        (
            body("bob@two", "a@one", "a@three", ""),
            403,
            "forged-sender",
        ),
        (
            body("bob@two", "a@three", "a@one", ""),
            403,
            "forged-sender",
        ),
        // A receiver elsewhere.
        (body("x@elsewhere", "a@one", "a@one", ""), 403, "relay"),
        (body("x", "a@one", "a@one", ""), 403, "relay"),
        // Agents that the rules do not name.
        (
            body("carol@two", "a@one", "a@one", ""),
            403,
            "not-permitted",
        ),
        (body("ca@two", "a@one", "a@one", ""), 403, "not-permitted"),
        (
            body("bob@two", "a@three", "a@three", ""),
            403,
            "not-permitted",
        ),
        // A message that was here before.
        (
            body(
                "bob@two",
                "a@one",
                "a@one",
                &format!(
                    "<received><received-by value=\"{}\"/><received-date value=\"20261121T050545446Z\"/></received>",
                    two.address
                ),
            ),
            508,
            "loop",
        ),
    ];
    for (body, expected, reason) in cases {
        let before = two
            .gateway
            .counters()
            .refused
            .get(reason)
            .copied()
            .unwrap_or(0);
        let answer = exchange(&two, post(&body).as_bytes()).await;
        assert_eq!(status(&answer), expected, "{reason}: {answer}");
        counted(&two, reason, before + 1).await;
    }
    assert!(bobs.is_empty() && cas.is_empty());
    assert_eq!(two.gateway.counters().received, 0);
}

#[tokio::test]
async fn a_message_that_comes_twice_is_delivered_once() {
    let two = two(GatewayLimits::default()).await;
    let (_bob, mut bobs) = two.agent("bob");
    let stamp = "<received><received-by value=\"http://one/acc\"/><received-date value=\"20261121T050545446Z\"/><received-id value=\"7\"/></received>";
    let same = post(&body("bob@two", "a@one", "a@one", stamp));
    for _ in 0..2 {
        assert_eq!(status(&exchange(&two, same.as_bytes()).await), 200);
    }
    let other = same.replace("value=\"7\"", "value=\"8\"");
    assert_eq!(status(&exchange(&two, other.as_bytes()).await), 200);
    content(&mut bobs).await;
    content(&mut bobs).await;
    assert!(bobs.is_empty());
    assert_eq!(two.gateway.counters().repeated, 1);
}

#[tokio::test]
async fn who_asks_by_get_is_told_about_the_platform() {
    let two = two(GatewayLimits::default()).await;
    let answer = exchange(
        &two,
        b"GET /acc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(status(&answer), 200);
    assert!(
        answer.contains("(ap-description :name two :ap-services"),
        "{answer}"
    );
    assert!(answer.contains(&two.address), "{answer}");
}
