//! Issued certificates and refused requests.
#![allow(clippy::unwrap_used)]

mod support;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, SanType};
use rustls_pki_types::CertificateDer;
use sealbus_seal::issuance::{self, Grant, IssuanceRefusal};
use sealbus_seal::{
    AuthorityError, AuthorityKey, Certificate, CertificateChain, CertificateError, Credential,
    Identity, IssuingAuthority, KeyPair, RootAuthority, Serial, SigningRequest,
    SigningRequestError, Validity, VerifyError,
};
use support::{ADDRESS, HOUR, PlacedAgents, TestPlatform, YEAR, request};
use x509_parser::prelude::{FromDer, X509Certificate};

#[test]
fn an_agent_certificate_says_what_the_ca_decided() {
    let platform = TestPlatform::new("factory");
    let (key, issued) = platform.issue(
        &platform.agent("seller-3"),
        Validity::starting(platform.now, HOUR),
    );
    let certificate = &issued.certificate;
    assert_eq!(certificate.identity(), &platform.agent("seller-3"));
    assert_eq!(certificate.address(), Some(ADDRESS));
    assert_eq!(certificate.public_key(), key.public_key());
    assert_eq!(certificate.not_after(), platform.now.plus(HOUR));
    assert!(certificate.not_before() <= platform.now);
    assert!(!certificate.is_authority());

    let (_, x509) = X509Certificate::from_der(issued.chain.leaf()).unwrap();
    // RFC 4514 prints the last attribute first: UID=seller-3,CN=10.1.2.3.
    let oids: Vec<_> = x509
        .subject()
        .iter_attributes()
        .map(|attribute| {
            (
                attribute.attr_type().to_id_string(),
                attribute.as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        oids,
        [
            ("2.5.4.3".to_owned(), "10.1.2.3"),
            ("0.9.2342.19200300.100.1.1".to_owned(), "seller-3")
        ]
    );
    let names = x509.subject_alternative_name().unwrap().unwrap();
    let names: Vec<_> = names
        .value
        .general_names
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        names,
        [
            "IPAddress(0a:01:02:03)",
            "URI(spiffe://factory/agent/seller-3)"
        ]
    );
    let usage = x509.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && usage.server_auth && !usage.any && usage.other.is_empty());
    let usage = x509.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && !usage.value.key_cert_sign());
    assert!(x509.basic_constraints().unwrap().is_none());
    assert!(
        issued.chain.leaf().len() < 640,
        "{} bytes",
        issued.chain.leaf().len()
    );
}

#[test]
fn authorities_are_confined() {
    let platform = TestPlatform::new("factory");
    let root = platform.root.certificate().clone();
    for (der, below) in [(root.as_ref(), 1), (platform.authority.chain().leaf(), 0)] {
        let (_, x509) = X509Certificate::from_der(der).unwrap();
        let constraints = x509.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(below));
        let usage = x509.key_usage().unwrap().unwrap().value;
        assert!(usage.key_cert_sign() && !usage.digital_signature());
    }
    let (_, x509) = X509Certificate::from_der(platform.authority.chain().leaf()).unwrap();
    // Java cannot read a certificate that forbids all names of a kind, and some other programs do not know constraints
    // at all.
    assert!(x509.name_constraints().unwrap().is_none());
}

#[test]
fn no_two_serials_and_no_two_authority_keys_are_alike() {
    let platform = TestPlatform::new("factory");
    let other = platform
        .root
        .create_authority("ca-2", Validity::starting(platform.now, YEAR));
    assert_ne!(
        other.unwrap().key().public_key(),
        platform.authority.key().public_key()
    );
    let identity = platform.agent("a");
    let serials: std::collections::HashSet<Serial> = (0..64)
        .map(|_| {
            platform
                .issue(&identity, Validity::starting(platform.now, HOUR))
                .1
        })
        .map(|issued| issued.certificate.serial())
        .collect();
    assert_eq!(serials.len(), 64);
}

#[test]
fn both_authorities_of_a_platform_are_believed() {
    let platform = TestPlatform::new("factory");
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(platform.now, YEAR));
    let key = KeyPair::generate().unwrap();
    let issued = second
        .unwrap()
        .issue(
            &Grant::by_operator(platform.agent("a"), "::1".parse().unwrap()),
            &request(&key),
            Validity::starting(platform.now, HOUR),
        )
        .unwrap();
    let verified = platform.trust.verify(&issued.chain, platform.now).unwrap();
    assert_eq!(verified.identity(), &platform.agent("a"));
    assert_eq!(verified.address(), Some("::1".parse().unwrap()));
}

#[test]
fn an_authority_stands_only_for_what_it_issued() {
    let platform = TestPlatform::new("factory");
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(platform.now, YEAR));
    let second = second.unwrap();
    let by = |authority: &IssuingAuthority| {
        let key = KeyPair::generate().unwrap();
        let grant = Grant::by_operator(platform.agent("a"), ADDRESS);
        let validity = Validity::starting(platform.now, HOUR);
        authority
            .issue(&grant, &request(&key), validity)
            .unwrap()
            .chain
    };
    // From the second round on, both authorities are remembered.
    for _ in 0..3 {
        for authority in [&platform.authority, &second] {
            platform.trust.verify(&by(authority), platform.now).unwrap();
        }
        for (issuer, shown) in [
            (&platform.authority, &second),
            (&second, &platform.authority),
        ] {
            let mixed = CertificateChain::new(vec![
                CertificateDer::from(by(issuer).leaf().to_vec()),
                CertificateDer::from(shown.chain().leaf().to_vec()),
            ]);
            let error = platform
                .trust
                .verify(&mixed.unwrap(), platform.now)
                .unwrap_err();
            assert!(
                matches!(error, VerifyError::UnknownIssuer { .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn what_a_request_demands_is_ignored() {
    let platform = TestPlatform::new("factory");
    let key = KeyPair::generate().unwrap();
    let mut demands = CertificateParams::default();
    demands.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    demands.distinguished_name.push(DnType::CommonName, "root");
    demands.subject_alt_names = vec![SanType::URI(
        "spiffe://factory/authority/root".try_into().unwrap(),
    )];
    demands.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let request = demands.serialize_request(&key).unwrap();
    let request = SigningRequest::parse(request.der()).unwrap();

    let grant = Grant::by_operator(platform.agent("seller-1"), ADDRESS);
    let issued = platform
        .authority
        .issue(&grant, &request, Validity::starting(platform.now, HOUR))
        .unwrap();
    assert_eq!(issued.certificate.identity(), &platform.agent("seller-1"));
    assert!(!issued.certificate.is_authority());
    let (_, x509) = X509Certificate::from_der(issued.chain.leaf()).unwrap();
    assert!(!x509.is_ca());
    assert!(
        !x509
            .extended_key_usage()
            .unwrap()
            .unwrap()
            .value
            .code_signing
    );
}

#[test]
fn requests_without_possession_or_of_other_keys_are_refused() {
    let key = KeyPair::generate().unwrap();
    let good = key.signing_request().unwrap();
    assert_eq!(
        SigningRequest::parse(&good).unwrap().public_key(),
        key.public_key()
    );

    let other = KeyPair::generate().unwrap();
    let position = good
        .windows(32)
        .position(|bytes| bytes == key.public_key().as_bytes());
    let position = position.unwrap();
    let mut stolen = good.clone();
    stolen[position..position + 32].copy_from_slice(other.public_key().as_bytes());
    assert_eq!(
        SigningRequest::parse(&stolen),
        Err(SigningRequestError::NotProved)
    );

    let p256 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let p256 = CertificateParams::default()
        .serialize_request(&p256)
        .unwrap();
    assert_eq!(
        SigningRequest::parse(p256.der()),
        Err(SigningRequestError::Algorithm)
    );

    for cut in 0..good.len() {
        assert!(matches!(
            SigningRequest::parse(&good[..cut]),
            Err(SigningRequestError::Malformed(_))
        ));
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(matches!(
        SigningRequest::parse(&longer),
        Err(SigningRequestError::Malformed(_))
    ));
    assert_eq!(
        SigningRequest::parse(&[0x30; 9000]),
        Err(SigningRequestError::TooLong(9000))
    );
}

#[test]
fn requests_in_text_are_read_and_bounded() {
    let key = KeyPair::generate().unwrap();
    let der = key.signing_request().unwrap();
    let body = base64::engine::general_purpose::STANDARD.encode(&der);
    let text = |label: &str, body: &str| {
        format!("noise\n-----BEGIN {label}-----\r\n{body}\r\n-----END {label}-----\n").into_bytes()
    };
    let label = "CERTIFICATE REQUEST";
    let (first, rest) = body.split_at(64);
    let lines = text(label, &format!("{first}\r\n{rest}"));
    assert_eq!(SigningRequest::from_pem(&lines), Ok(der));
    for wrong in [
        Vec::new(),
        vec![0xff; 100],
        text("CERTIFICATE", &body),
        text(label, ""),
        text(label, "!!!!"),
        text(label, &body[..body.len() - 4]),
        lines[..lines.len() - 40].to_vec(),
        vec![b'-'; 100_000],
    ] {
        assert!(SigningRequest::from_pem(&wrong).is_err());
    }
}

#[test]
fn a_node_gets_certificates_for_what_was_placed_on_it() {
    let platform = TestPlatform::new("factory");
    let node = platform.verified(&platform.node("node-1"));
    let placed = PlacedAgents(
        [("a", "node-1"), ("b", "node-2")].into(),
        vec!["node-1", "node-2"],
    );

    for wanted in [
        platform.agent("a"),
        platform.node("node-1"),
        platform.process("node-1"),
    ] {
        let grant = issuance::decide(&node, &wanted, &placed).unwrap();
        assert_eq!(grant.identity(), &wanted);
        assert_eq!(grant.address(), ADDRESS);
        assert_eq!(grant.on_behalf_of(), Some(node.identity()));
    }

    let refused = |wanted: &Identity| issuance::decide(&node, wanted, &placed).unwrap_err();
    assert!(matches!(
        refused(&platform.agent("b")),
        IssuanceRefusal::PlacedElsewhere { placed_on, .. } if placed_on.as_str() == "node-2"
    ));
    assert!(matches!(
        refused(&platform.agent("c")),
        IssuanceRefusal::NotPlaced { .. }
    ));
    assert!(matches!(
        refused(&platform.node("node-2")),
        IssuanceRefusal::NotItsOwn { .. }
    ));
    assert!(matches!(
        refused(&platform.process("node-2")),
        IssuanceRefusal::NotItsOwn { .. }
    ));
    let authority = Identity::authority(&platform.name, "ca-9").unwrap();
    assert!(matches!(
        refused(&authority),
        IssuanceRefusal::Authority { .. }
    ));
    let elsewhere = TestPlatform::new("elsewhere");
    assert!(matches!(
        refused(&elsewhere.agent("a")),
        IssuanceRefusal::WrongPlatform { .. }
    ));

    let agent = platform.verified(&platform.agent("a"));
    assert!(matches!(
        issuance::decide(&agent, &platform.agent("a"), &placed),
        Err(IssuanceRefusal::NotANode(_))
    ));
    let process = platform.verified(&platform.process("node-1"));
    assert!(matches!(
        issuance::decide(&process, &platform.agent("a"), &placed),
        Err(IssuanceRefusal::NotANode(_))
    ));
    let stranger = platform.verified(&platform.node("node-3"));
    assert!(matches!(
        issuance::decide(&stranger, &platform.node("node-3"), &placed),
        Err(IssuanceRefusal::NotAMember(_))
    ));
}

#[test]
fn an_authority_signs_for_its_platform_and_its_own_lifetime_only() {
    let platform = TestPlatform::new("factory");
    let key = KeyPair::generate().unwrap();
    let foreign = Grant::by_operator(TestPlatform::new("elsewhere").agent("a"), ADDRESS);
    let valid = Validity::starting(platform.now, HOUR);
    assert!(matches!(
        platform.authority.issue(&foreign, &request(&key), valid),
        Err(AuthorityError::WrongPlatform { .. })
    ));
    let authority = Identity::authority(&platform.name, "ca-2").unwrap();
    assert!(matches!(
        platform.authority.issue(
            &Grant::by_operator(authority, ADDRESS),
            &request(&key),
            valid
        ),
        Err(AuthorityError::NotAnAuthority(_))
    ));
    let grant = Grant::by_operator(platform.agent("a"), ADDRESS);
    let long = Validity::starting(platform.now, 5 * YEAR);
    let issued = platform
        .authority
        .issue(&grant, &request(&key), long)
        .unwrap();
    assert_eq!(
        issued.certificate.not_after(),
        platform.authority.certificate().not_after()
    );
    let late = Validity::starting(platform.now.plus(2 * YEAR), HOUR);
    assert!(matches!(
        platform.authority.issue(&grant, &request(&key), late),
        Err(AuthorityError::OutOfTime { .. })
    ));
}

#[test]
fn authorities_load_from_their_files() {
    let platform = TestPlatform::new("factory");
    let key = |key: &AuthorityKey| KeyPair::from_pkcs8_pem(&key.to_text().unwrap()).unwrap();
    let root = RootAuthority::load(
        key(platform.root.key()),
        platform.root.certificate().clone(),
    )
    .unwrap();
    assert_eq!(root.fingerprint(), platform.root.fingerprint());
    assert_eq!(root.platform(), &platform.name);
    let mut wire = Vec::new();
    platform.authority.chain().encode(&mut wire);
    let chain = CertificateChain::decode(&wire).unwrap();
    let authority = IssuingAuthority::load(key(platform.authority.key()), chain.clone()).unwrap();
    assert_eq!(authority.identity(), platform.authority.identity());

    let wrong = IssuingAuthority::load(KeyPair::generate().unwrap(), chain);
    assert!(matches!(
        wrong,
        Err(AuthorityError::Certificate(CertificateError::KeyMismatch(
            _
        )))
    ));
    let (leaf_key, leaf) =
        platform.issue(&platform.agent("a"), Validity::starting(platform.now, HOUR));
    assert!(matches!(
        IssuingAuthority::load(leaf_key, leaf.chain.clone()),
        Err(AuthorityError::NotAnAuthority(_))
    ));
    assert!(matches!(
        Credential::new(KeyPair::generate().unwrap(), leaf.chain),
        Err(CertificateError::KeyMismatch(_))
    ));
}

#[test]
fn chains_travel_and_share_their_issuers() {
    let platform = TestPlatform::new("factory");
    let credential = platform.credential(&platform.agent("a"));
    let mut wire = Vec::new();
    credential.chain().encode(&mut wire);
    let decoded = CertificateChain::decode(&wire).unwrap();
    assert_eq!(&decoded, credential.chain());
    for cut in 0..wire.len() {
        assert!(CertificateChain::decode(&wire[..cut]).is_err());
    }
    wire.push(0);
    assert_eq!(
        CertificateChain::decode(&wire),
        Err(CertificateError::ChainEncoding)
    );
    assert_eq!(
        CertificateChain::decode(&[0]),
        Err(CertificateError::ChainLength(0))
    );
    assert_eq!(
        CertificateChain::decode(&[9]),
        Err(CertificateError::ChainLength(9))
    );
    assert_eq!(
        CertificateChain::decode(&[1, 0xff, 0xff]),
        Err(CertificateError::TooLong(0xffff))
    );

    let other = platform.credential(&platform.agent("b"));
    assert!(std::ptr::eq(
        other.chain().issuers(),
        credential.chain().issuers()
    ));
    let mut decoded = decoded;
    assert!(!std::ptr::eq(
        decoded.issuers(),
        credential.chain().issuers()
    ));
    decoded.share_issuers(credential.chain());
    assert!(std::ptr::eq(
        decoded.issuers(),
        credential.chain().issuers()
    ));
}

#[test]
fn certificate_parsing_survives_every_cut_and_flip() {
    let platform = TestPlatform::new("factory");
    let credential = platform.credential(&platform.agent("a"));
    let der = credential.chain().leaf();
    assert_eq!(
        Certificate::parse(der).unwrap().identity(),
        &platform.agent("a")
    );
    for cut in 0..der.len() {
        assert!(Certificate::parse(&der[..cut]).is_err());
    }
    let issuers = credential.chain().issuers().to_vec();
    for position in 0..der.len() {
        let mut flipped = der.to_vec();
        flipped[position] ^= 1;
        let mut chain = vec![CertificateDer::from(flipped)];
        chain.extend(issuers.iter().cloned());
        let chain = CertificateChain::new(chain).unwrap();
        assert!(
            platform.trust.verify(&chain, platform.now).is_err(),
            "byte {position}"
        );
    }
}
