//! The refusals of the mesh: they are reported on both sides, with the reason, without disturbing other agents.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use sealbus_bus::{
    Location, Mailbox, Outbox, ProcessEndpoint, RefusalReason, Returned, SendError,
    UndeliverableReason,
};
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};
use sealbus_mesh::frame::{Frame, GoodbyeReason, HEADER_LENGTH, PREFACE, parse};
use sealbus_seal::denylist::DenyList;
use sealbus_seal::permission::{Messages, Policy, Rule};
use sealbus_seal::{Identity, SecurityLevel};
use support::{Authority, Platform, Process, inform, now, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn count(process: &Process, reason: RefusalReason) -> u64 {
    process
        .bus
        .refusals()
        .counts()
        .iter()
        .find(|(found, _)| *found == reason)
        .unwrap()
        .1
}

async fn until_refused(process: &Process, reason: RefusalReason) {
    soon(async {
        while count(process, reason) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Sends until the outcome is as wanted, and returns the last notice. A link with a short give-up time may be given up
/// before its handshake has reached the point of refusal.
async fn turned_away(
    sender: &Outbox,
    mailbox: &mut Mailbox,
    receiver: &str,
    wanted: impl Fn(&AclMessage) -> bool,
) -> Arc<AclMessage> {
    soon(async {
        loop {
            sender.send(inform(receiver, "let me in")).await.unwrap();
            let notice = mailbox.recv().await.unwrap().into_message();
            assert_eq!(notice.performative, Performative::Failure);
            if wanted(&notice) {
                return notice;
            }
        }
    })
    .await
}

/// A pair of agents that talk. A further call checks that they still can.
async fn still_talks(platform: &Platform, here: &Process, there: &Process, round: usize) {
    let names = (
        format!("ann-{round}@factory"),
        format!("ben-{round}@factory"),
    );
    let (ann, mut ann_mailbox) = platform.agent(here, &names.0);
    let (ben, mut ben_mailbox) = platform.agent(there, &names.1);
    ann.send(inform(&names.1, "hello")).await.unwrap();
    soon(ben_mailbox.recv()).await.unwrap();
    ben.send(inform(&names.0, "hello yourself")).await.unwrap();
    let answer = soon(ann_mailbox.recv()).await.unwrap();
    assert_eq!(answer.message().performative(), Performative::Inform);
}

#[tokio::test]
async fn a_forged_sender() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (_alice, _) = platform.agent(&there, "alice@factory");
    let (eve, mut eve_mailbox) = platform.agent(&here, "eve@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    // Her own bus does not do it for her.
    let forged = inform("bob@factory", "pay eve").with_sender(Aid::new("alice@factory").unwrap());
    assert!(matches!(
        eve.send(forged.clone()).await,
        Err(SendError::ForgedSender { .. })
    ));
    // Eve goes around the bus, as a program that speaks the protocol itself can.
    let mut payload = Vec::new();
    bitefficient::encode(&forged, &mut payload).unwrap();
    let letter = Returned {
        sender: "eve@factory".into(),
        payload: payload.into(),
    };
    here.bus.returned("bob@factory", vec![letter], false, || {});
    until_refused(&there, RefusalReason::ForgedSender).await;
    let refusal = there.bus.refusals().last().pop().unwrap();
    assert_eq!(refusal.tried_by, "alice@factory");
    assert_eq!(
        refusal.proved.as_deref(),
        Some("spiffe://factory/agent/eve")
    );
    assert_eq!(refusal.receiver.as_deref(), Some("bob@factory"));
    // An honest message after it arrives. The forged message never does, and Eve was told.
    eve.send(inform("bob@factory", "it was me")).await.unwrap();
    let received = soon(bob_mailbox.recv()).await.unwrap();
    assert_eq!(received.message().content_text().unwrap(), "it was me");
    assert_eq!(here.bus.counters().undeliverable, 1);
    drop(eve_mailbox.try_recv());
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_at_once_under_open_connections() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (mallory, mut mallory_mailbox) = platform.agent(&here, "mallory@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    mallory.send(inform("bob@factory", "before")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();

    let mut list = DenyList::new(platform.authority.issuing.identity().clone());
    let identity = Identity::from_agent_name("mallory@factory").unwrap();
    let denial = support::denial(now());
    list.deny_identity(identity, now().plus(support::DAY), denial)
        .unwrap();
    let signed = list.sign(&platform.authority.issuing).unwrap();
    there.trust.apply_deny_list(&signed, now()).unwrap();
    there.endpoint.trust_changed();

    let after = inform("bob@factory", "after").with_conversation_id("scheme");
    mallory.send(after).await.unwrap();
    let notice = soon(mallory_mailbox.recv()).await.unwrap().into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert_eq!(notice.conversation_id, Some("scheme".into()));
    assert!(
        notice.content_text().unwrap().contains("revoked"),
        "{:?}",
        notice.content_text()
    );
    assert!(bob_mailbox.try_recv().is_none());
    assert!(count(&there, RefusalReason::Revoked) > 0);
    still_talks(&platform, &here, &there, 0).await;
}

#[tokio::test]
async fn an_expired_certificate_delivers_nothing_more() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    // The certificate expired by more than the clock tolerance. A wrong clock at the CA makes such certificates.
    let name = "late@factory";
    let identity = Identity::from_agent_name(name).unwrap();
    let credential = platform
        .authority
        .certify_until(identity, now().minus(Duration::from_secs(20)));
    let (late, mut late_mailbox) = here.bus.attach(name, Some(credential), None).unwrap();
    late.send(inform("bob@factory", "too late")).await.unwrap();
    let notice = soon(late_mailbox.recv()).await.unwrap().into_message();
    assert!(
        notice.content_text().unwrap().contains("expired"),
        "{:?}",
        notice.content_text()
    );
    assert!(bob_mailbox.try_recv().is_none());
    // With a renewed certificate the agent continues, on the same connection.
    here.bus
        .set_credential(name, platform.authority.agent(name))
        .unwrap();
    late.send(inform("bob@factory", "in time")).await.unwrap();
    assert!(soon(bob_mailbox.recv()).await.is_some());
    assert_eq!(here.endpoint.links()[0].connections, 1);
}

#[tokio::test]
async fn a_process_with_a_certificate_of_another_authority() {
    let platform = Platform::new(SecurityLevel::Auth);
    let there = platform.process("node-2").await;
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    // The foreign platform has the same platform and process names and its own authority. It trusts the real authority,
    // to get that far.
    let mut foreign = Platform::new(SecurityLevel::Auth);
    foreign.directory = platform.directory.clone();
    foreign.trusted = Some(platform.authority.trust());
    let here = foreign
        .process_with("node-1", |config| {
            config.give_up = Duration::from_millis(200)
        })
        .await;
    let (eve, mut eve_mailbox) = foreign.agent(&here, "eve@factory");
    turned_away(&eve, &mut eve_mailbox, "bob@factory", |_| {
        count(&there, RefusalReason::UnknownIssuer) > 0
    })
    .await;
    assert!(there.endpoint.links().is_empty());
    assert!(bob_mailbox.try_recv().is_none());
}

#[tokio::test]
async fn a_process_at_another_level() {
    for (ours, theirs) in [
        (SecurityLevel::None, SecurityLevel::Auth),
        (SecurityLevel::Auth, SecurityLevel::None),
        (SecurityLevel::Tls, SecurityLevel::Auth),
        (SecurityLevel::Auth, SecurityLevel::Tls),
        (SecurityLevel::None, SecurityLevel::Tls),
        (SecurityLevel::Tls, SecurityLevel::None),
    ] {
        let mut platform = Platform::new(ours);
        let here = platform
            .process_with("node-1", |config| {
                config.give_up = Duration::from_millis(100)
            })
            .await;
        let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
        platform.level = theirs;
        let there = platform.process("node-2").await;
        let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
        // Both sides say it.
        turned_away(&alice, &mut alice_mailbox, "bob@factory", |notice| {
            count(&there, RefusalReason::LevelMismatch) > 0
                && (count(&here, RefusalReason::LevelMismatch) > 0
                    || notice.content_text().unwrap().contains("level"))
        })
        .await;
        assert!(bob_mailbox.try_recv().is_none(), "{ours} to {theirs}");
    }
}

#[tokio::test]
async fn what_the_policy_forbids() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    let messages = Messages {
        from: vec!["alice".into()],
        to: vec!["bob".into()],
    };
    let policy = Policy {
        rules: vec![Rule::Deny(messages)],
        ..Policy::default()
    };
    there.bus.set_permissions(Arc::new(
        policy.compile(&platform.authority.platform).unwrap(),
    ));
    alice.send(inform("bob@factory", "hello")).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
    assert!(notice.content_text().unwrap().contains("not-permitted"));
    assert!(bob_mailbox.try_recv().is_none());
    assert_eq!(count(&there, RefusalReason::NotPermitted), 1);
}

#[tokio::test]
async fn messages_over_the_limit_and_to_nobody() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| config.largest_message = 100_000)
        .await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    alice.send(inform("bob@factory", "short")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    let error = alice
        .send(inform("bob@factory", "x".repeat(200_000)))
        .await
        .unwrap_err();
    let SendError::Impossible {
        reason: UndeliverableReason::TooLarge { size, limit },
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(size > 200_000 && limit == 100_000);
    alice.send(inform("nobody@factory", "hello")).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
    assert!(notice.content_text().unwrap().contains("nobody@factory"));
    // Running work continues.
    alice
        .send(inform("bob@factory", "short again"))
        .await
        .unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_not_the_protocol() {
    for level in [SecurityLevel::None, SecurityLevel::Auth] {
        let platform = Platform::new(level);
        // Long enough for honest ones on a busy machine.
        let quick = |config: &mut sealbus_mesh::MeshConfig| {
            config.handshake_time = Duration::from_secs(2);
            config.unproved_connections = 8;
        };
        let here = platform.process_with("node-1", quick).await;
        let there = platform.process_with("node-2", quick).await;
        still_talks(&platform, &here, &there, 0).await;
        let address = there.endpoint.local_address();
        let mut too_long = PREFACE.to_vec();
        Frame::Ping.encode(0, &mut too_long);
        too_long[PREFACE.len()..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let garbage = [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![0; 1000],
            vec![0xff; 100_000],
            vec![0x16, 3, 1, 0xff, 0xff, 0, 0, 0],
            PREFACE[..5].to_vec(),
            too_long,
            [&PREFACE[..], &[1; HEADER_LENGTH + 20]].concat(),
        ];
        let strangers = garbage.map(|garbage| async move {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            // The connection may be gone before all is written.
            let _ = stranger.write_all(&garbage).await;
            let mut answer = Vec::new();
            // The connection is closed at the latest when the time for the greeting is over.
            let _ = soon(stranger.read_to_end(&mut answer)).await;
            assert!(answer.len() < 1000);
        });
        futures_util::future::join_all(strangers).await;
        // Silent connections do not keep others out for longer than the greeting may take.
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        still_talks(&platform, &here, &there, 1).await;
        let third = platform.process("node-3").await;
        still_talks(&platform, &third, &there, 2).await;
        assert!(there.bus.refusals().total() > 0);
    }
}

#[tokio::test]
async fn a_peer_that_breaks_the_rules_is_cut_off_alone() {
    let platform = Platform::new(SecurityLevel::None);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    still_talks(&platform, &here, &there, 0).await;
    let (_bob, _bob_mailbox) = platform.agent(&there, "bob@factory");
    let greeting =
        support::hello_of("spiffe://factory/node/node-9/process/00000000000000000000000000000009");
    for rule in 0..6 {
        let mut stranger = TcpStream::connect(there.endpoint.local_address())
            .await
            .unwrap();
        let mut out = PREFACE.to_vec();
        let mut hello = greeting.clone();
        hello.incarnation[0] = rule;
        hello.connection = 1;
        Frame::Hello(hello).encode(0, &mut out);
        match rule {
            // A message to a target that was never opened.
            0 => Frame::Message {
                sender: 0,
                target: 0,
                payload: b"x",
            }
            .encode(0, &mut out),
            // A handle far beyond.
            1 => Frame::Target {
                handle: u32::MAX,
                name: "bob@factory",
            }
            .encode(0, &mut out),
            // A frame is missing.
            2 => Frame::Target {
                handle: 0,
                name: "bob@factory",
            }
            .encode(7, &mut out),
            // More than was allowed.
            3 => {
                Frame::Bind {
                    handle: 0,
                    proof: b"eve@factory",
                }
                .encode(0, &mut out);
                Frame::Target {
                    handle: 0,
                    name: "bob@factory",
                }
                .encode(0, &mut out);
                for number in 1..2000 {
                    let payload = vec![0; 60_000];
                    Frame::Message {
                        sender: 0,
                        target: 0,
                        payload: &payload,
                    }
                    .encode(number, &mut out);
                }
            }
            // Acknowledging what was not sent.
            4 => Frame::Acknowledge { received: 1000 }.encode(0, &mut out),
            // A second hello.
            _ => Frame::Hello(greeting.clone()).encode(0, &mut out),
        }
        let _ = stranger.write_all(&out).await;
        let mut answer = Vec::new();
        let _ = soon(stranger.read_to_end(&mut answer)).await;
        // The readable part of the answer ends with a goodbye that gives the reason.
        let mut rest = answer.get(PREFACE.len()..).unwrap_or_default();
        let mut last = None;
        while let Ok(Some(parsed)) = parse(rest, usize::MAX) {
            rest = &rest[parsed.length..];
            last = Some(parsed.frame);
        }
        if let Some(Frame::Goodbye { reason, .. }) = last {
            assert_eq!(reason, GoodbyeReason::Violation);
        } else {
            assert_eq!(rule, 3, "no goodbye for rule {rule}, but {last:?}");
        }
    }
    assert!(count(&there, RefusalReason::Malformed) >= 6);
    still_talks(&platform, &here, &there, 1).await;
}

/// Believes everybody, as an attacker does.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ED25519]
    }
}

#[tokio::test]
async fn a_process_without_a_certificate() {
    let platform = Platform::new(SecurityLevel::Auth);
    let there = platform.process("node-2").await;
    let mut config = rustls::ClientConfig::builder_with_provider(sealbus_seal::tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"sealbus-mesh/1/auth".to_vec()];
    let tcp = TcpStream::connect(there.endpoint.local_address())
        .await
        .unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    // The client's side of the handshake may be over before the server has looked for the certificate.
    if let Ok(mut stream) = connector
        .connect(sealbus_seal::tls::server_name(), tcp)
        .await
    {
        let mut answer = Vec::new();
        assert!(soon(stream.read_to_end(&mut answer)).await.is_err());
    }
    until_refused(&there, RefusalReason::NotProved).await;
    let refusal = there.bus.refusals().last().pop().unwrap();
    assert!(
        refusal.explanation.contains("no certificate"),
        "{}",
        refusal.explanation
    );
}

#[tokio::test]
async fn a_process_that_poses_as_another() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| {
            config.give_up = Duration::from_millis(100)
        })
        .await;
    let there = platform.process("node-2").await;
    let impostor = platform.process("node-3").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&impostor, "bob@factory");
    // The directory names node-2's process, but node-3's answers at its address.
    let endpoint = ProcessEndpoint {
        identity: there.identity.clone(),
        address: impostor.endpoint.local_address(),
    };
    platform
        .directory
        .put("bob@factory", Location::Process(endpoint));
    turned_away(&alice, &mut alice_mailbox, "bob@factory", |_| {
        count(&here, RefusalReason::WrongIdentity) > 0
    })
    .await;
    assert!(bob_mailbox.try_recv().is_none());
}

#[test]
fn authorities_of_the_same_name_are_not_the_same() {
    assert_ne!(
        Authority::new("factory").root.fingerprint(),
        Authority::new("factory").root.fingerprint()
    );
}
