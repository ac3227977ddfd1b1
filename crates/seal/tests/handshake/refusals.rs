//! Refused handshakes, and the reasons that both ends get.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, Error as RustlsError, ServerConnection, SignatureScheme};
use rustls_pki_types::PrivatePkcs8KeyDer;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::tls::{self, CertificateSource, ExpectedPeer};
use sealbus_seal::{RootAuthority, SecurityLevel, Validity, VerifyError};

use super::support::{HOUR, TestPlatform, seconds};
use super::{End, handshake, must_fail};

#[test]
fn a_client_without_a_certificate_is_refused_at_auth() {
    let platform = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let (server, refusal) = two
        .acceptor(&platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let (client, client_refusal) = one
        .connector(&platform, SecurityLevel::Tls)
        .connect_to_any()
        .unwrap();
    let (client, server) = must_fail(client, server);
    let server = server.unwrap_err();
    assert_eq!(server, RustlsError::NoCertificatesPresented);
    assert!(tls::explain(&server, &refusal).contains("no certificate was presented"));
    let client = client.unwrap_err();
    assert_eq!(
        client,
        RustlsError::AlertReceived(AlertDescription::CertificateRequired)
    );
    assert!(tls::explain(&client, &client_refusal).contains("asks for a certificate"));
}

/// The server's reason, and the alert that `client` gets from a fresh server.
fn refusal_of(platform: &TestPlatform, client: &End) -> (VerifyError, AlertDescription) {
    let server = End::new(platform, "node-9");
    let (server_config, refusal) = server
        .acceptor(platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let (client_config, _) = client
        .connector(platform, SecurityLevel::Auth)
        .connect_to_any()
        .unwrap();
    let (client, server) = must_fail(client_config, server_config);
    let reason = refusal.get().unwrap().clone();
    assert_eq!(
        tls::explain(&server.unwrap_err(), &refusal),
        reason.to_string()
    );
    match client.unwrap_err() {
        RustlsError::AlertReceived(alert) => (reason, alert),
        error => panic!("{error}"),
    }
}

#[test]
fn a_client_of_a_foreign_authority_is_refused() {
    let platform = TestPlatform::new("factory");
    let foreign = TestPlatform::new("factory");
    let (reason, alert) = refusal_of(&platform, &End::new(&foreign, "node-1"));
    assert!(
        matches!(reason, VerifyError::UnknownIssuer { .. }),
        "{reason}"
    );
    assert!(reason.to_string().starts_with("unknown issuer"), "{reason}");
    assert_eq!(alert, AlertDescription::UnknownCA);
}

#[test]
fn expired_future_and_revoked_clients_are_refused() {
    let platform = TestPlatform::new("factory");
    let identity = platform.process("node-1");
    let with = |validity| {
        let (key, issued) = platform.issue(&identity, validity);
        let credential = sealbus_seal::Credential::new(key, issued.chain).unwrap();
        let source = CertificateSource::new(&credential).unwrap();
        (
            End {
                identity: identity.clone(),
                source,
            },
            issued.certificate,
        )
    };
    // The certificate was issued a minute ago for 40 s. Its validity cannot begin before its authority's.
    let (end, _) = with(Validity::starting(
        platform.now.minus(seconds(55)),
        seconds(10),
    ));
    let (reason, alert) = refusal_of(&platform, &end);
    assert!(
        matches!(
            reason,
            VerifyError::Expired {
                by_seconds: 40..,
                ..
            }
        ),
        "{reason}"
    );
    assert_eq!(alert, AlertDescription::CertificateExpired);

    let (end, _) = with(Validity::starting(platform.now.plus(HOUR), HOUR));
    let (reason, alert) = refusal_of(&platform, &end);
    assert!(
        matches!(reason, VerifyError::NotYetValid { .. }),
        "{reason}"
    );
    assert_eq!(alert, AlertDescription::CertificateExpired);

    let (end, certificate) = with(Validity::starting(platform.now, HOUR));
    let mut list = DenyList::new(platform.authority.identity().clone());
    let denial = Denial {
        at: platform.now,
        reason: Reason::ByOperator,
    };
    list.deny_serial(certificate.serial(), certificate.not_after(), denial)
        .unwrap();
    let list = list.sign(&platform.authority).unwrap().whole();
    platform.trust.apply_deny_list(&list, platform.now).unwrap();
    let (reason, alert) = refusal_of(&platform, &end);
    assert!(matches!(reason, VerifyError::Revoked { .. }), "{reason}");
    assert_eq!(alert, AlertDescription::CertificateRevoked);
}

#[test]
fn an_agent_certificate_opens_no_connection() {
    let platform = TestPlatform::new("factory");
    let identity = platform.agent("mallory");
    let source = CertificateSource::new(&platform.credential(&identity)).unwrap();
    let (reason, _) = refusal_of(&platform, &End { identity, source });
    assert!(matches!(reason, VerifyError::WrongKind { .. }), "{reason}");
}

/// A client that shows these certificates, but has a key of its own.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A server judges certificates before it knows whether the client has their key; and certificates are public.
#[test]
fn a_stranger_who_shows_the_certificates_of_another_does_it_no_harm() {
    let platform = TestPlatform::new("factory");
    let victim = platform.credential(&platform.process("node-1"));
    let brief = Validity::starting(platform.now, seconds(60));
    let made_up = RootAuthority::create(&platform.name, brief).unwrap();
    let mut shown = victim.chain().to_certificates();
    shown.push(made_up.certificate().clone());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let key = key.serialize_der();
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(key.as_slice())).unwrap();

    let (server, refusal) = End::new(&platform, "node-9")
        .acceptor(&platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let (client, _) = End::new(&platform, "node-2")
        .connector(&platform, SecurityLevel::Auth)
        .connect_to_any()
        .unwrap();
    let mut client = (*client).clone();
    client.client_auth_cert_resolver = Arc::new(Shows(Arc::new(CertifiedKey::new(shown, key))));
    let (_, server) = must_fail(Arc::new(client), server);
    assert!(server.is_err());
    let refusal = refusal.get();
    assert!(
        matches!(refusal, Some(VerifyError::Unacceptable { .. })),
        "{refusal:?}"
    );
    let later = platform.now.plus(seconds(600));
    platform.trust.verify(victim.chain(), later).unwrap();
}

#[test]
fn a_client_refuses_servers_that_are_not_whom_it_called() {
    let platform = TestPlatform::new("factory");
    let foreign = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let impostor = End::new(&foreign, "node-2");
    let connector = one.connector(&platform, SecurityLevel::Auth);

    for level in [SecurityLevel::Tls, SecurityLevel::Auth] {
        let (client, refusal) = connector.connect_to_any().unwrap();
        let (server, _) = impostor.acceptor(&platform, level).accept().unwrap();
        let (client, server) = must_fail(client, server);
        assert!(matches!(
            refusal.get(),
            Some(VerifyError::UnknownIssuer { .. })
        ));
        assert!(client.is_err());
        assert_eq!(
            server,
            Err(RustlsError::AlertReceived(AlertDescription::UnknownCA))
        );
    }

    let elsewhere = ExpectedPeer::Exactly(platform.process("node-2"));
    let (client, refusal) = connector.connect(elsewhere).unwrap();
    let (server, _) = two
        .acceptor(&platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let _ = must_fail(client, server);
    assert!(matches!(
        refusal.get(),
        Some(VerifyError::WrongIdentity { .. })
    ));
}

#[test]
fn each_handshake_has_its_own_refusal() {
    let platform = TestPlatform::new("factory");
    let acceptor = End::new(&platform, "node-2").acceptor(&platform, SecurityLevel::Auth);
    let foreign = End::new(&TestPlatform::new("factory"), "node-1");
    let good = End::new(&platform, "node-1");
    let (server, bad_refusal) = acceptor.accept().unwrap();
    let (client, _) = foreign
        .connector(&platform, SecurityLevel::Auth)
        .connect_to_any()
        .unwrap();
    let _ = must_fail(client, server);
    let (server, good_refusal) = acceptor.accept().unwrap();
    let (client, _) = good
        .connector(&platform, SecurityLevel::Auth)
        .connect_to_any()
        .unwrap();
    assert!(handshake(client, server).is_ok());
    assert!(bad_refusal.get().is_some() && good_refusal.get().is_none());
}

/// A client of TLS 1.2, written by hand because the library does not speak it at all.
#[test]
fn older_tls_is_refused() {
    let mut hello = vec![3, 3]; // TLS 1.2
    hello.extend_from_slice(&[7; 32]); // random
    hello.push(0); // no session
    hello.extend_from_slice(&[0, 4, 0xc0, 0x2b, 0xc0, 0x2f]); // two cipher suites of TLS 1.2
    hello.extend_from_slice(&[1, 0]); // no compression
    let extensions: &[u8] = &[
        0, 10, 0, 4, 0, 2, 0, 29, // supported_groups: x25519
        0, 13, 0, 4, 0, 2, 8, 7, // signature_algorithms: ed25519
    ];
    hello.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
    hello.extend_from_slice(extensions);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&(hello.len() as u16 + 4).to_be_bytes());
    record.extend_from_slice(&[1, 0]);
    record.extend_from_slice(&(hello.len() as u16).to_be_bytes());
    record.extend_from_slice(&hello);

    let platform = TestPlatform::new("factory");
    let acceptor = End::new(&platform, "node-1").acceptor(&platform, SecurityLevel::Tls);
    let (config, _) = acceptor.accept().unwrap();
    let mut server = ServerConnection::new(config).unwrap();
    server.read_tls(&mut record.as_slice()).unwrap();
    let error = server.process_new_packets().unwrap_err();
    assert!(matches!(error, RustlsError::PeerIncompatible(_)), "{error}");
    let mut answer = Vec::new();
    server.write_tls(&mut answer).unwrap();
    assert_eq!(
        answer,
        [21, 3, 3, 0, 2, 2, 70],
        "a fatal alert: protocol_version"
    );
}

#[test]
fn garbage_is_refused() {
    let platform = TestPlatform::new("factory");
    let acceptor = End::new(&platform, "node-1").acceptor(&platform, SecurityLevel::Auth);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 64],
        &[22, 3, 1, 0xff, 0xff, 1, 2, 3],
    ] {
        let (config, _) = acceptor.accept().unwrap();
        let mut server = ServerConnection::new(config).unwrap();
        server.read_tls(&mut &garbage[..]).unwrap();
        assert!(server.process_new_packets().is_err());
    }
}
