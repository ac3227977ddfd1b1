//! Processes that may not use a mesh endpoint of level `auth`, or that break its protocol. They lose their connection,
//! and no other process does.
#![allow(clippy::unwrap_used)]

mod intruder;
mod support;

use std::time::Duration;

use intruder::scene::{Scene, deny, expired, from, is_refused, some_process};
use intruder::{Intruder, Seen, handshake};
use sealbus_bus::{Provenance, RefusalReason};
use sealbus_fipa::bitefficient;
use sealbus_mesh::frame::{Frame, GoodbyeReason, Kind, PREFACE, PROTOCOL_VERSION};
use sealbus_seal::binding::{Binding, BoundConnection, Role};
use sealbus_seal::{Credential, SecurityLevel};
use support::{Authority, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn may_not_connect(
    scene: &Scene,
    level: SecurityLevel,
    credential: &Credential,
) -> std::io::Error {
    let address = scene.process.endpoint.local_address();
    // The intruder trusts the server. The test shows whether the server trusts the intruder.
    let trust = scene.platform.authority.trust();
    match soon(handshake(address, level, credential, trust)).await {
        Err(error) => error,
        Ok(mut stream) => soon(stream.read(&mut [0; 64]))
            .await
            .expect_err("the server let the intruder in"),
    }
}

#[tokio::test]
async fn a_process_without_a_certificate_is_refused() {
    let scene = Scene::new().await;
    let error = may_not_connect(&scene, SecurityLevel::Tls, &scene.credential).await;
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    scene.refused(RefusalReason::NotProved, "127.0.0.1").await;
    scene.unharmed().await;
}

/// The certificate was valid in the handshake, and no link checks it again before the process says hello.
#[tokio::test]
async fn a_process_that_is_revoked_before_it_says_hello_is_refused() {
    let scene = Scene::new().await;
    let (address, trust) = (
        scene.process.endpoint.local_address(),
        scene.platform.authority.trust(),
    );
    let handshake = handshake(address, SecurityLevel::Auth, &scene.credential, trust);
    let stream = soon(handshake).await.unwrap();
    // If the other side takes longer, it refuses the certificate itself.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let certificate = scene.credential.certificate().unwrap();
    deny(&scene, certificate.serial());
    let channel =
        BoundConnection::of(stream.get_ref().1, SecurityLevel::Auth, PROTOCOL_VERSION).unwrap();
    let mut intruder = Intruder::over(Box::new(stream), channel, Role::Client);
    let level = SecurityLevel::Auth.code();
    let _ = intruder.hello(certificate.identity(), level).await;
    let _ = intruder.bind(0, &scene.mallory()).await;
    assert!(!soon(intruder.opens_target(0, "victim@factory")).await);
    scene.refused(RefusalReason::Revoked, "").await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_process_names_no_address_that_others_then_connect_to() {
    let scene = Scene::new().await;
    let mut intruder = scene.dial().await;
    intruder.target(0, "victim@factory").await;
    let links = scene.process.endpoint.links();
    assert_eq!(links[0].address, ([127, 0, 0, 1], 9).into());
    scene.unharmed().await;
}

#[tokio::test]
async fn a_process_of_another_authority_is_refused() {
    let scene = Scene::new().await;
    let impostor = Authority::new("factory");
    let credential = impostor.certify(some_process(&impostor));
    let error = may_not_connect(&scene, SecurityLevel::Auth, &credential).await;
    assert!(error.to_string().contains("UnknownCA"), "{error}");
    scene
        .refused(RefusalReason::UnknownIssuer, "127.0.0.1")
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn an_agents_certificate_opens_no_connection() {
    let scene = Scene::new().await;
    may_not_connect(&scene, SecurityLevel::Auth, &scene.mallory()).await;
    scene
        .refused(RefusalReason::WrongIdentity, "127.0.0.1")
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn an_expired_process_is_refused() {
    let scene = Scene::new().await;
    let identity = some_process(&scene.platform.authority);
    let expired = expired(&scene.platform.authority, identity);
    let error = may_not_connect(&scene, SecurityLevel::Auth, &expired).await;
    assert!(error.to_string().contains("CertificateExpired"), "{error}");
    scene.refused(RefusalReason::Expired, "127.0.0.1").await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_process_that_calls_itself_another_is_refused() {
    let scene = Scene::new().await;
    let other = some_process(&scene.platform.authority);
    let address = scene.process.endpoint.local_address();
    let trust = scene.platform.authority.trust();
    let code = SecurityLevel::Auth.code();
    let mut intruder = soon(Intruder::dial_as(
        address,
        &scene.credential,
        trust,
        &other,
        code,
    ))
    .await
    .unwrap();
    intruder.until_end().await;
    scene.refused(RefusalReason::WrongIdentity, "").await;
    scene.unharmed().await;
}

#[tokio::test]
async fn nobody_is_talked_down() {
    let scene = Scene::new().await;
    let identity = scene.credential.certificate().unwrap().identity().clone();
    let address = scene.process.endpoint.local_address();
    for level in [
        SecurityLevel::None,
        SecurityLevel::Tls,
        SecurityLevel::Signed,
    ] {
        let trust = scene.platform.authority.trust();
        let dialled = Intruder::dial_as(address, &scene.credential, trust, &identity, level.code());
        let mut intruder = soon(dialled).await.unwrap();
        let seen = intruder.until_end().await;
        assert!(
            seen.iter().any(|seen| matches!(
                seen,
                Seen::Goodbye {
                    reason: GoodbyeReason::LevelMismatch
                }
            )),
            "{level}: {seen:?}"
        );
    }
    // Without TLS, as at level none.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(&PREFACE).await.unwrap();
    let mut answer = Vec::new();
    soon(plain.read_to_end(&mut answer)).await.unwrap();
    assert!(
        String::from_utf8_lossy(&answer).contains("level auth"),
        "{answer:?}"
    );
    scene.refused(RefusalReason::LevelMismatch, "").await;
    scene.unharmed().await;
}

// ---- bytes that are not the protocol ----

#[tokio::test]
async fn other_protocols_lose_their_connection_and_nothing_else() {
    let scene = Scene::new().await;
    let mut bystander = scene.ready(&scene.mallory()).await;
    let address = scene.process.endpoint.local_address();
    let noise: Vec<u8> = (0..4096u32)
        .map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0; 64],
        &[0x16, 3, 1, 0xff, 0xff],
        &noise,
    ] {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        let _ = tcp.shutdown().await;
        let mut answer = Vec::new();
        // The connection was closed, or reset because it was not read to its end.
        let _ = soon(tcp.read_to_end(&mut answer)).await;
    }
    // Earlier connections are still open.
    bystander.send(&Frame::Ping).await.unwrap();
    bystander
        .until(|seen| matches!(seen, Seen::Other(Kind::Pong)))
        .await;
    scene.refused(RefusalReason::Malformed, "127.0.0.1").await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_process_that_refuses_without_end_has_a_share_of_the_log() {
    let scene = Scene::new().await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    let refused = Frame::Refused {
        handle: 0,
        reason: RefusalReason::Malformed,
        text: "no",
    };
    for _ in 0..100 {
        intruder.send(&refused).await.unwrap();
    }
    intruder.send(&Frame::Ping).await.unwrap();
    intruder
        .until(|seen| matches!(seen, Seen::Other(Kind::Pong)))
        .await;
    let peer = scene.credential.certificate().unwrap();
    let bus = &scene.process.bus;
    assert_eq!(bus.admit_line(&peer.identity().to_string()), None);
    assert!(bus.admit_line("somebody else").is_some());
    scene.unharmed().await;
}

/// A certified process sends each of these, on a connection of its own, in place of an honest frame.
#[tokio::test]
async fn whoever_breaks_the_protocol_loses_the_connection() {
    let scene = Scene::new().await;
    let header = |length: u32, kind: u8, sequence: u32| {
        let mut header = length.to_le_bytes().to_vec();
        header.extend_from_slice(&[kind, 0, 0, 0]);
        header.extend_from_slice(&sequence.to_le_bytes());
        header
    };
    let after_target = |frame: &Frame<'_>, sequence: u64| {
        let mut out = Vec::new();
        frame.encode(sequence, &mut out);
        out
    };
    let crimes: Vec<(&str, Vec<u8>)> = vec![
        ("a frame of 4 GiB", header(u32::MAX, Kind::Message as u8, 1)),
        ("an unknown kind", header(0, 99, 1)),
        (
            "a body cut short",
            [header(2, Kind::Acknowledge as u8, 0), vec![0; 2]].concat(),
        ),
        (
            "a second hello",
            [header(0, Kind::Hello as u8, 0), vec![]].concat(),
        ),
        (
            "a gap in the count",
            after_target(&Frame::CloseTarget { target: 0 }, 77),
        ),
        (
            "a target that was not opened",
            after_target(
                &Frame::Message {
                    is_signed: false,
                    sender: 0,
                    target: 9,
                    payload: b"x",
                },
                1,
            ),
        ),
        (
            "a target opened twice",
            after_target(
                &Frame::Target {
                    handle: 0,
                    name: "a@factory",
                },
                1,
            ),
        ),
        (
            "a handle beyond all limits",
            after_target(
                &Frame::Target {
                    handle: u32::MAX,
                    name: "a@factory",
                },
                1,
            ),
        ),
        (
            "a piece of no message",
            after_target(
                &Frame::Continue {
                    target: 0,
                    piece: b"x",
                },
                1,
            ),
        ),
        (
            "a message of 4 GiB in pieces",
            after_target(
                &Frame::Begin {
                    is_signed: false,
                    sender: 0,
                    target: 0,
                    total: u32::MAX,
                    piece: b"x",
                },
                1,
            ),
        ),
        (
            "acknowledging what was never sent",
            after_target(&Frame::Acknowledge { received: 1 << 40 }, 0),
        ),
    ];
    for (crime, bytes) in crimes {
        let mut intruder = scene.ready(&scene.mallory()).await;
        intruder.send_bytes(&bytes).await.unwrap();
        let end = tokio::time::timeout(Duration::from_secs(120), intruder.until_end()).await;
        assert!(end.is_ok(), "{crime}: the connection goes on");
    }
    scene.unharmed().await;
}

/// A frame with a row of messages of this payload to target 0, from an agent that was never bound. The payload is sent once.
fn row(sequence: u32, payload: &[u8], count: usize) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_le_bytes();
    let mut row = [5_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    row.extend_from_slice(payload);
    // All other messages end where the first one does.
    row.resize(row.len() + 2 * (count - 1), 0);
    row.extend_from_slice(&length);
    row.extend_from_slice(&length);
    let mut frame = u32::try_from(row.len()).unwrap().to_le_bytes().to_vec();
    frame.extend_from_slice(&[Kind::Row as u8, 0, 0, 0]);
    frame.extend_from_slice(&sequence.to_le_bytes());
    frame.extend_from_slice(&row);
    frame
}

fn nobodys(length: usize) -> Vec<u8> {
    let message = from("mallory@factory").with_content("x".repeat(length));
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload).unwrap();
    payload
}

#[tokio::test]
async fn a_small_frame_does_not_become_many_large_messages() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    let frame = row(1, &nobodys(30_000), 15_000);
    intruder.send_bytes(&frame).await.unwrap();
    intruder.until_end().await;
    scene.refused(RefusalReason::Malformed, "").await;
    assert_eq!(scene.count(RefusalReason::NotProved), 0);
    scene.unharmed().await;
}

/// All messages are refused and go back, and the intruder takes none of them.
#[tokio::test]
async fn a_process_that_takes_nothing_back_loses_its_session_and_nothing_of_it_is_kept() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    let payload = nobodys(4_000);
    let count = (2 << 20) / payload.len();
    for sequence in 1..2_000 {
        let frame = row(sequence, &payload, count);
        if intruder.send_bytes(&frame).await.is_err() {
            break;
        }
    }
    intruder.until_end().await;
    scene.refused(RefusalReason::OverLimit, "").await;
    let kept = scene.process.endpoint.links()[0].unacknowledged;
    assert!(kept < 1 << 20, "{kept} bytes are kept");
    let refused = scene.count(RefusalReason::NotProved);
    assert!(refused < 40_000, "{refused} messages came back");
    scene.unharmed().await;
}

#[tokio::test]
async fn more_than_the_receiver_allowed_ends_the_connection() {
    let mut scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    let mut message = from("mallory@factory");
    message = message.with_content("x".repeat(60_000));
    // The victim reads nothing, and Mallory does not wait for credit.
    let flood = async {
        for _ in 0..20_000 {
            if intruder.message(0, 0, &message).await.is_err() {
                return;
            }
        }
        panic!("1.2 GB were taken for an agent that does not read");
    };
    // Reading keeps the connection from blocking on the peer's answers.
    soon(flood).await;
    let mut taken = 0;
    while scene.mailbox.try_recv().is_some() {
        taken += 1;
    }
    assert!(taken < 1_000, "{taken} messages of 60 kB were kept");
    scene.unharmed().await;
}

/// No agent has these names. There are far fewer of them than the handles that a process may have.
#[tokio::test]
async fn a_process_that_names_agents_without_end_loses_its_session() {
    const AT_ONCE: u32 = 256;
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    for first in (1..100_000).step_by(AT_ONCE as usize) {
        let handles = first..first + AT_ONCE;
        let names: Vec<_> = handles.clone().map(|it| format!("{it:0>1000}")).collect();
        let frames: Vec<_> = handles
            .zip(&names)
            .map(|(handle, name)| Frame::Target { handle, name })
            .collect();
        if intruder.send_together(&frames).await.is_err() {
            break;
        }
    }
    intruder.until_end().await;
    scene.refused(RefusalReason::OverLimit, "").await;
    scene.unharmed().await;
}

/// Each handle keeps a certificate chain, so one agent has few handles.
#[tokio::test]
async fn one_agent_is_not_bound_under_any_number_of_handles() {
    let mut scene = Scene::new().await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    let mut proof = Vec::new();
    Binding::prove(&mallory, &intruder.channel, intruder.role)
        .unwrap()
        .encode(&mut proof);
    let bind = |handle| Frame::Bind {
        handle,
        proof: &proof,
    };
    let frames: Vec<Frame<'_>> = (1..=1024).map(bind).collect();
    intruder.send_together(&frames).await.unwrap();
    let refused = intruder.until(is_refused(RefusalReason::OverLimit)).await;
    assert!(
        matches!(refused, Seen::Refused { handle: 1024, .. }),
        "{refused:?}"
    );
    // A freed handle makes room again.
    intruder
        .send_together(&[Frame::Unbind { handle: 1 }, bind(1024)])
        .await
        .unwrap();
    let message = from("mallory@factory");
    intruder.message(1024, 0, &message).await.unwrap();
    let received = soon(scene.mailbox.recv()).await.unwrap();
    assert!(matches!(received.provenance(), Provenance::Proved(_)));
    scene.unharmed().await;
}
