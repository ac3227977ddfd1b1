//! Connections that are unlike those of a process of the platform.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use sealbus_bus::{Location, ProcessEndpoint, RefusalReason};
use sealbus_mesh::frame::{Frame, GoodbyeReason, HEADER_LENGTH, PREFACE, parse};
use sealbus_seal::SecurityLevel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{self, Platform, soon};
use super::{GIVE_UP, count, still_talks, turned_away, until_refused};

#[tokio::test]
async fn bytes_that_are_not_the_protocol() {
    for level in [SecurityLevel::None, SecurityLevel::Auth] {
        let platform = Platform::new(level);
        // Long enough for honest connections on a busy machine.
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
            // The connection may be gone before everything is written.
            let _ = stranger.write_all(&garbage).await;
            let mut answer = Vec::new();
            // The connection is closed when the time for the greeting is over, or earlier.
            let _ = soon(stranger.read_to_end(&mut answer)).await;
            assert!(answer.len() < 1000);
        });
        futures_util::future::join_all(strangers).await;
        // Silent connections do not keep out others for longer than the greeting may take.
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
                is_signed: false,
                sender: 0,
                target: 0,
                payload: b"x",
            }
            .encode(0, &mut out),
            // A handle far beyond the others.
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
            // More than the credit allows.
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
                        is_signed: false,
                        sender: 0,
                        target: 0,
                        payload: &payload,
                    }
                    .encode(number, &mut out);
                }
            }
            // Acknowledging frames that were not sent.
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

/// Trusts everybody, as an attacker does.
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
        .process_with("node-1", |config| config.give_up = GIVE_UP)
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
