//! TLS handshakes between connections in memory, at each level, including handshakes that must fail.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ConnectionCommon, Error as RustlsError,
    NamedGroup, ProtocolVersion, ServerConfig, ServerConnection, SideData,
};
use sealbus_seal::binding::{Binding, Channel, Role};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::tls::{self, Acceptor, CertificateSource, Connector, ExpectedPeer, TlsError};
use sealbus_seal::{Identity, IdentityKind, SecurityLevel, Validity, VerifyError};
use support::{HOUR, SKEW, TestPlatform, seconds};

const PROTOCOL: &[u8] = b"sealbus/1";
const PROTOCOLS: &[&[u8]] = &[PROTOCOL];

struct End {
    identity: Identity,
    source: Arc<CertificateSource>,
}

impl End {
    fn new(platform: &TestPlatform, node: &str) -> Self {
        let identity = platform.process(node);
        let source = CertificateSource::new(&platform.credential(&identity)).unwrap();
        Self { identity, source }
    }

    fn acceptor(&self, platform: &TestPlatform, level: SecurityLevel) -> Acceptor {
        let trust = platform.trust.clone();
        Acceptor::new(
            level,
            self.source.clone(),
            trust,
            ExpectedPeer::ENDPOINT,
            PROTOCOLS,
        )
        .unwrap()
    }

    fn connector(&self, platform: &TestPlatform, level: SecurityLevel) -> Connector {
        Connector::new(
            level,
            self.source.clone(),
            platform.trust.clone(),
            PROTOCOLS,
        )
        .unwrap()
    }
}

fn transfer<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
) -> Result<bool, RustlsError> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(!bytes.is_empty())
}

/// The verdict of both ends: client, then server.
type Verdicts = (Result<(), RustlsError>, Result<(), RustlsError>);

struct Connected {
    client: ClientConnection,
    server: ServerConnection,
}

fn handshake(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> Result<Connected, Box<Verdicts>> {
    let mut client = ClientConnection::new(client, tls::server_name()).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    loop {
        let to_server = transfer(&mut client, &mut server);
        let to_client = transfer(&mut server, &mut client);
        match (to_client, to_server) {
            (Ok(false), Ok(false)) => return Ok(Connected { client, server }),
            (Ok(_), Ok(_)) => {}
            (client_error, server_error) => {
                // Let the alert arrive, so that the peer knows too.
                let to_server = server_error.and_then(|_| transfer(&mut client, &mut server));
                return Err(Box::new((client_error.map(drop), to_server.map(drop))));
            }
        }
    }
}

fn must_fail(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Verdicts {
    match handshake(client, server) {
        Ok(_) => panic!("the handshake succeeded"),
        Err(verdicts) => *verdicts,
    }
}

#[test]
fn both_ends_know_each_other_at_auth() {
    let platform = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let (server, server_refusal) = two
        .acceptor(&platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let (client, client_refusal) = one
        .connector(&platform, SecurityLevel::Auth)
        .connect(ExpectedPeer::Exactly(two.identity.clone()))
        .unwrap();
    let Ok(ends) = handshake(client, server) else {
        panic!("refused")
    };

    let peer = tls::peer_identity(&ends.server, &platform.trust, platform.now).unwrap();
    assert_eq!(peer.identity(), &one.identity);
    let peer = tls::peer_identity(&ends.client, &platform.trust, platform.now).unwrap();
    assert_eq!(peer.identity(), &two.identity);
    assert_eq!(
        ends.client.protocol_version(),
        Some(ProtocolVersion::TLSv1_3)
    );
    assert_eq!(ends.client.alpn_protocol(), Some(PROTOCOL));
    let group = ends.client.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::X25519MLKEM768);
    assert!(client_refusal.get().is_none() && server_refusal.get().is_none());
    assert_eq!(ends.client.tls13_tickets_received(), 0);

    // An agent of each process proves itself to the other on this connection.
    let channel =
        |connection: &ConnectionCommon<_>| Channel::of(connection, SecurityLevel::Auth, 1).unwrap();
    let at_client = channel(&ends.client);
    let at_server = Channel::of(&ends.server, SecurityLevel::Auth, 1).unwrap();
    let alice = platform.credential(&platform.agent("alice"));
    let proof = Binding::prove(&alice, &at_client, Role::Client).unwrap();
    let verified = proof
        .verify(&at_server, Role::Client, &platform.trust, platform.now)
        .unwrap();
    assert_eq!(verified.identity(), &platform.agent("alice"));
    let bob = platform.credential(&platform.agent("bob"));
    let proof = Binding::prove(&bob, &at_server, Role::Server).unwrap();
    proof
        .verify(&at_client, Role::Server, &platform.trust, platform.now)
        .unwrap();
    assert!(
        proof
            .verify(&at_client, Role::Client, &platform.trust, platform.now)
            .is_err()
    );
}

#[test]
fn a_proof_is_worthless_on_the_next_connection() {
    let platform = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let connect = || {
        let (server, _) = two
            .acceptor(&platform, SecurityLevel::Auth)
            .accept()
            .unwrap();
        let (client, _) = one
            .connector(&platform, SecurityLevel::Auth)
            .connect_to_any()
            .unwrap();
        let Ok(ends) = handshake(client, server) else {
            panic!("refused")
        };
        ends
    };
    let (first, second) = (connect(), connect());
    let alice = platform.credential(&platform.agent("alice"));
    let channel = Channel::of(&first.client, SecurityLevel::Auth, 1).unwrap();
    let proof = Binding::prove(&alice, &channel, Role::Client).unwrap();
    let channel = Channel::of(&first.server, SecurityLevel::Auth, 1).unwrap();
    proof
        .verify(&channel, Role::Client, &platform.trust, platform.now)
        .unwrap();
    let channel = Channel::of(&second.server, SecurityLevel::Auth, 1).unwrap();
    assert!(
        proof
            .verify(&channel, Role::Client, &platform.trust, platform.now)
            .is_err()
    );
}

#[test]
fn the_exporter_waits_for_the_handshake() {
    let platform = TestPlatform::new("factory");
    let end = End::new(&platform, "node-1");
    let (client, _) = end
        .connector(&platform, SecurityLevel::Auth)
        .connect_to_any()
        .unwrap();
    let client = ClientConnection::new(client, tls::server_name()).unwrap();
    assert!(Channel::of(&client, SecurityLevel::Auth, 1).is_err());
}

#[test]
fn only_the_server_is_known_at_tls() {
    let platform = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let (server, _) = two
        .acceptor(&platform, SecurityLevel::Tls)
        .accept()
        .unwrap();
    let (client, _) = one
        .connector(&platform, SecurityLevel::Tls)
        .connect_to_any()
        .unwrap();
    let Ok(ends) = handshake(client, server) else {
        panic!("refused")
    };
    let peer = tls::peer_identity(&ends.client, &platform.trust, platform.now).unwrap();
    assert_eq!(peer.identity(), &two.identity);
    assert_eq!(
        tls::peer_identity(&ends.server, &platform.trust, platform.now),
        Err(VerifyError::NoCertificate)
    );
}

#[test]
fn there_is_no_tls_at_none() {
    let platform = TestPlatform::new("factory");
    let end = End::new(&platform, "node-1");
    let acceptor = Acceptor::new(
        SecurityLevel::None,
        end.source.clone(),
        platform.trust.clone(),
        ExpectedPeer::ENDPOINT,
        PROTOCOLS,
    );
    assert!(matches!(
        acceptor,
        Err(TlsError::NoTls(SecurityLevel::None))
    ));
    let connector = Connector::new(
        SecurityLevel::None,
        end.source,
        platform.trust.clone(),
        PROTOCOLS,
    );
    assert!(matches!(
        connector,
        Err(TlsError::NoTls(SecurityLevel::None))
    ));
}

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

/// The server's reason and the alert the client gets when `client` connects to a fresh server.
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
    let list = list.sign(&platform.authority).unwrap();
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

#[test]
fn a_renewed_certificate_is_shown_without_a_new_configuration() {
    let platform = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let acceptor = two.acceptor(&platform, SecurityLevel::Auth);
    let connector = one.connector(&platform, SecurityLevel::Auth);
    let serials = || {
        let (server, _) = acceptor.accept().unwrap();
        let (client, _) = connector.connect_to_any().unwrap();
        let Ok(ends) = handshake(client, server) else {
            panic!("refused")
        };
        (
            tls::peer_identity(&ends.client, &platform.trust, platform.now)
                .unwrap()
                .serial(),
            tls::peer_identity(&ends.server, &platform.trust, platform.now)
                .unwrap()
                .serial(),
        )
    };
    let before = serials();
    two.source
        .renew(&platform.credential(&two.identity))
        .unwrap();
    one.source
        .renew(&platform.credential(&one.identity))
        .unwrap();
    let after = serials();
    assert_ne!(before.0, after.0);
    assert_ne!(before.1, after.1);
}

#[test]
fn protocols_must_agree() {
    let platform = TestPlatform::new("factory");
    let (one, two) = (End::new(&platform, "node-1"), End::new(&platform, "node-2"));
    let other: &[&[u8]] = &[b"http/1.1"];
    let connector = Connector::new(
        SecurityLevel::Auth,
        one.source,
        platform.trust.clone(),
        other,
    )
    .unwrap();
    let (client, _) = connector.connect_to_any().unwrap();
    let (server, _) = two
        .acceptor(&platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let (client, server) = must_fail(client, server);
    assert_eq!(server, Err(RustlsError::NoApplicationProtocol));
    assert_eq!(
        client,
        Err(RustlsError::AlertReceived(
            AlertDescription::NoApplicationProtocol
        ))
    );
}

#[test]
fn a_newcomer_pins_the_root_of_its_token() {
    let platform = TestPlatform::new("factory");
    let node = platform.credential(&platform.node("master"));
    let source = CertificateSource::with_root(&node, platform.root.certificate()).unwrap();
    let acceptor = Acceptor::for_enrolment(source.clone(), PROTOCOLS);
    let to = |expected: ExpectedPeer, name: &str, root, acceptor: &Acceptor| {
        let name = sealbus_seal::PlatformName::new(name).unwrap();
        let connector = Connector::for_enrolment(name, root, SKEW, expected, PROTOCOLS);
        let (client, refusal) = connector.connect_to_any().unwrap();
        let (server, _) = acceptor.accept().unwrap();
        match handshake(client, server) {
            Ok(ends) => Ok(ends),
            Err(_) => Err(refusal.get().unwrap().clone()),
        }
    };
    let attempt =
        |name: &str, root, acceptor: &Acceptor| to(ExpectedPeer::NODE, name, root, acceptor);
    let root = platform.root.fingerprint();
    let ends = attempt("factory", root, &acceptor).unwrap();
    assert_eq!(
        &tls::pinned_root(&ends.client, root).unwrap(),
        platform.root.certificate()
    );

    // The root stays there after a renewal.
    source
        .renew(&platform.credential(&platform.node("master")))
        .unwrap();
    assert!(attempt("factory", root, &acceptor).is_ok());

    let other = TestPlatform::new("factory").root.fingerprint();
    assert!(matches!(
        attempt("factory", other, &acceptor),
        Err(VerifyError::WrongRoot { .. })
    ));
    assert!(matches!(
        attempt("elsewhere", root, &acceptor),
        Err(VerifyError::WrongRoot { .. })
    ));

    // An attacker in between has a certificate of its own, under the true root, which all may know.
    let foreign = TestPlatform::new("factory");
    let mallory = foreign.credential(&foreign.node("master"));
    let source = CertificateSource::with_root(&mallory, platform.root.certificate()).unwrap();
    let acceptor = Acceptor::for_enrolment(source, PROTOCOLS);
    assert!(matches!(
        attempt("factory", root, &acceptor),
        Err(VerifyError::UnknownIssuer { .. })
    ));

    // An agent's process has a certificate of the platform, but is not a node.
    let process = platform.credential(&platform.process("node-1"));
    let source = CertificateSource::with_root(&process, platform.root.certificate()).unwrap();
    let acceptor = Acceptor::for_enrolment(source, PROTOCOLS);
    assert!(matches!(
        attempt("factory", root, &acceptor),
        Err(VerifyError::WrongKind {
            expected: &[IdentityKind::Node],
            ..
        })
    ));

    // Another node shows a certificate of the same platform, but is not the Master.
    let master = || ExpectedPeer::Exactly(platform.node("master"));
    let node = platform.credential(&platform.node("node-1"));
    let source = CertificateSource::with_root(&node, platform.root.certificate()).unwrap();
    let acceptor = Acceptor::for_enrolment(source, PROTOCOLS);
    assert!(attempt("factory", root, &acceptor).is_ok());
    assert!(matches!(
        to(master(), "factory", root, &acceptor),
        Err(VerifyError::WrongIdentity { .. })
    ));
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
