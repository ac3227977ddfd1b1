//! TLS handshakes between connections in memory, at each level, including handshakes that must fail.
#![allow(clippy::unwrap_used)]

mod refusals;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;

use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ConnectionCommon, Error as RustlsError,
    NamedGroup, ProtocolVersion, ServerConfig, ServerConnection, SideData,
};
use sealbus_seal::binding::{Binding, BoundConnection, Role};
use sealbus_seal::tls::{self, Acceptor, CertificateSource, Connector, ExpectedPeer, TlsError};
use sealbus_seal::{Identity, IdentityKind, SecurityLevel, SignatureAlgorithm, VerifyError};
use support::{SKEW, TestPlatform};

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

/// The verdict of each end: client, then server.
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
                // The alert must arrive, so that the peer knows, too.
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
    both_ends_know_each_other(&TestPlatform::new("factory"));
}

/// TLS shows only the keys of the ends. The verifiers here check those of the CA and the root.
#[test]
fn both_ends_know_each_other_by_authorities_with_ml_dsa() {
    let signatures = SignatureAlgorithm::MlDsa65;
    both_ends_know_each_other(&TestPlatform::with("factory", signatures));
}

fn both_ends_know_each_other(platform: &TestPlatform) {
    let (one, two) = (End::new(platform, "node-1"), End::new(platform, "node-2"));
    let (server, server_refusal) = two
        .acceptor(platform, SecurityLevel::Auth)
        .accept()
        .unwrap();
    let (client, client_refusal) = one
        .connector(platform, SecurityLevel::Auth)
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
    let channel = |connection: &ConnectionCommon<_>| {
        BoundConnection::of(connection, SecurityLevel::Auth, 1).unwrap()
    };
    let at_client = channel(&ends.client);
    let at_server = BoundConnection::of(&ends.server, SecurityLevel::Auth, 1).unwrap();
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
    let channel = BoundConnection::of(&first.client, SecurityLevel::Auth, 1).unwrap();
    let proof = Binding::prove(&alice, &channel, Role::Client).unwrap();
    let channel = BoundConnection::of(&first.server, SecurityLevel::Auth, 1).unwrap();
    proof
        .verify(&channel, Role::Client, &platform.trust, platform.now)
        .unwrap();
    let channel = BoundConnection::of(&second.server, SecurityLevel::Auth, 1).unwrap();
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
    assert!(BoundConnection::of(&client, SecurityLevel::Auth, 1).is_err());
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
    assert!(attempt("factory", root, &acceptor).is_ok());

    // The root is still shown after a renewal.
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

    // An attacker in between has a certificate of its own, under the true root, which everybody may know.
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
