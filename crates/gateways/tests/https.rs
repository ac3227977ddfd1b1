//! Two platforms over HTTPS, with certificates from files. Both sides may show one.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ED25519};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use sealbus_bus::Provenance;
use sealbus_gateways::http::HttpAddress;
use sealbus_gateways::{GatewayConfig, GatewayRule};
use sealbus_seal::Fingerprint;
use sealbus_web::tls::TlsConfig;
use support::{PATIENCE, Platform, inform, open_to_all, receive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An authority and the certificates for 127.0.0.1 that it signed, as files in a folder.
struct Files {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(parameters, key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        Self { folder, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The certificate's fingerprint.
    fn certify(&self, name: &str) -> String {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        Fingerprint::of(certificate.der()).to_string()
    }

    fn config(&self, name: &str, trust: &Path, clients: Option<PathBuf>) -> GatewayConfig {
        GatewayConfig {
            tls: Some(TlsConfig {
                certificate: Some(self.path(&format!("{name}.pem"))),
                key: Some(self.path(&format!("{name}.key"))),
                clients,
            }),
            trust: Some(trust.to_owned()),
            ..open_to_all()
        }
    }
}

/// A client that knows the authority.
async fn connect(platform: &Platform, files: &Files) -> TlsStream<TcpStream> {
    let address: HttpAddress = platform.address.parse().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(files.authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect((address.host(), address.port()))
        .await
        .unwrap();
    let name = ServerName::try_from(address.host().to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

async fn line(stream: &mut TlsStream<TcpStream>) -> String {
    let reading = async {
        let mut line = String::new();
        while !line.ends_with("\r\n") {
            line.push(stream.read_u8().await.unwrap().into());
        }
        line
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap()
}

#[tokio::test]
async fn who_is_one_too_many_is_told_so_after_the_handshake() {
    let files = Files::new();
    files.certify("two");
    let mut config = files.config("two", &files.path("ca.pem"), None);
    config.limits.connections_per_address = 1;
    let two = Platform::new("two", config).await;
    let mut served = connect(&two, &files).await;
    let ask = b"GET /acc HTTP/1.1\r\nHost: h\r\n\r\n";
    served.write_all(ask).await.unwrap();
    assert_eq!(line(&mut served).await, "HTTP/1.1 200 OK\r\n");
    // The client need not ask for anything.
    let mut too_many = connect(&two, &files).await;
    let answer = line(&mut too_many).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(two.gateway.counters().refused["too-many"], 1);
    // Clients that are being served are not affected.
    served.write_all(ask).await.unwrap();
    let mut rest = String::new();
    while !rest.contains("HTTP/1.1 200 OK") {
        rest = line(&mut served).await;
    }
}

#[tokio::test]
async fn a_rule_can_demand_a_certificate() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let shown = files.certify("one");
    files.certify("two");
    files.certify("three");
    let mut config = files.config("two", &ca, Some(ca.clone()));
    config.allow = vec![GatewayRule {
        certificate: Some(shown.clone()),
        ..GatewayRule::new("*", ["bob"])
    }];
    let two = Platform::new("two", config).await;
    assert!(two.address.starts_with("https://"));
    let (_bob, mut bobs) = two.agent("bob");

    let one = Platform::new("one", files.config("one", &ca, None)).await;
    let (alice, _alices) = one.agent("alice");
    alice.send(inform(two.aid("bob"), "hello")).await.unwrap();
    let received = receive(&mut bobs).await;
    let Provenance::Foreign(origin) = received.provenance() else {
        panic!("{:?}", received.provenance());
    };
    assert_eq!(origin.certificate.as_deref(), Some(shown.as_str()));

    // Another certificate of the same authority gets in, but the rule does not name it.
    let three = Platform::new("three", files.config("three", &ca, None)).await;
    let (carol, mut carols) = three.agent("carol");
    carol.send(inform(two.aid("bob"), "no")).await.unwrap();
    let failure = receive(&mut carols).await.into_message();
    assert!(failure.content_text().unwrap().contains("403"));
    assert_eq!(two.gateway.counters().refused["not-permitted"], 1);
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_not_spoken_to() {
    let (files, strangers) = (Files::new(), Files::new());
    files.certify("two");
    strangers.certify("one");
    let two = Platform::new("two", files.config("two", &files.path("ca.pem"), None)).await;
    let mut config = strangers.config("one", &strangers.path("ca.pem"), None);
    config.limits.patience = 300;
    let one = Platform::new("one", config).await;
    let (alice, mut alices) = one.agent("alice");
    alice.send(inform(two.aid("bob"), "hello")).await.unwrap();
    let failure = receive(&mut alices).await.into_message();
    let text = failure.content_text().unwrap();
    assert!(text.contains("certificate"), "{text}");
}
