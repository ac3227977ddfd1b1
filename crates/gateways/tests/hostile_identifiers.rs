//! Identifiers of agents that try to write into the head of a request. No part of them gets there.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;

use sealbus_fipa::Aid;
use sealbus_gateways::{GatewayConfig, KnownPlatform};
use support::{PATIENCE, Platform, inform, open_to_all, receive};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

#[tokio::test]
async fn an_address_with_line_ends_is_never_used() {
    // XML carries any character of an address, but String has no form for some.
    let in_xml = |platform: &str| {
        let xml = KnownPlatform {
            encoding: Some("xml".to_owned()),
            ..KnownPlatform::default()
        };
        GatewayConfig {
            platforms: BTreeMap::from([(platform.to_owned(), xml)]),
            ..open_to_all()
        }
    };
    let two = Platform::new("two", in_xml("evil")).await;
    let (bob, mut bobs) = two.agent("bob");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = format!("http://{}/acc", listener.local_addr().unwrap());
    let evil = format!("{good} HTTP/1.1\r\nX-Injected: yes\r\nX-Rest: x");
    let to = |addresses: &[&String]| {
        let mut receiver = Aid::new("x@evil").unwrap();
        receiver.addresses = addresses.iter().map(ToString::to_string).collect();
        inform(receiver, "hello")
    };

    // If the evil address is the only one, the message comes back with the reason.
    bob.send(to(&[&evil])).await.unwrap();
    let failure = receive(&mut bobs).await.into_message();
    let text = failure.content_text().unwrap();
    assert!(text.contains("control characters"), "{text}");

    // If there is another address, that one is used.
    bob.send(to(&[&evil, &good])).await.unwrap();
    let reading = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    };
    let head = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert!(
        head.starts_with(&format!("POST {good} HTTP/1.1\r\n")),
        "{head}"
    );
    assert!(!head.contains("X-"), "{head}");
}
