//! Issued certificates and refused requests.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, SanType};
use rustls_pki_types::CertificateDer;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::issuance::{self, Grant, Refusal};
use sealbus_seal::{
    AuthorityError, Certificate, CertificateChain, CertificateError, Credential, Fingerprint,
    Identity, IssuingAuthority, KeyPair, RequestError, RootAuthority, Serial, SigningRequest,
    Trust, Validity, VerifyError,
};
use support::{ADDRESS, HOUR, PlacedAgents, SKEW, TestPlatform, YEAR, request, seconds};
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
    // Java reads no certificate that forbids all names of a kind, and some other programs know no constraints at all.
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
    // From the second round on both authorities are remembered.
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
    assert_eq!(SigningRequest::parse(&stolen), Err(RequestError::NotProved));

    let p256 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let p256 = CertificateParams::default()
        .serialize_request(&p256)
        .unwrap();
    assert_eq!(
        SigningRequest::parse(p256.der()),
        Err(RequestError::NotEd25519)
    );

    for cut in 0..good.len() {
        assert!(matches!(
            SigningRequest::parse(&good[..cut]),
            Err(RequestError::Malformed(_))
        ));
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(matches!(
        SigningRequest::parse(&longer),
        Err(RequestError::Malformed(_))
    ));
    assert_eq!(
        SigningRequest::parse(&[0x30; 5000]),
        Err(RequestError::TooLong(5000))
    );
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
        Refusal::PlacedElsewhere { placed_on, .. } if placed_on.as_str() == "node-2"
    ));
    assert!(matches!(
        refused(&platform.agent("c")),
        Refusal::NotPlaced { .. }
    ));
    assert!(matches!(
        refused(&platform.node("node-2")),
        Refusal::NotItsOwn { .. }
    ));
    assert!(matches!(
        refused(&platform.process("node-2")),
        Refusal::NotItsOwn { .. }
    ));
    let authority = Identity::authority(&platform.name, "ca-9").unwrap();
    assert!(matches!(refused(&authority), Refusal::Authority { .. }));
    let elsewhere = TestPlatform::new("elsewhere");
    assert!(matches!(
        refused(&elsewhere.agent("a")),
        Refusal::WrongPlatform { .. }
    ));

    let agent = platform.verified(&platform.agent("a"));
    assert!(matches!(
        issuance::decide(&agent, &platform.agent("a"), &placed),
        Err(Refusal::NotANode(_))
    ));
    let process = platform.verified(&platform.process("node-1"));
    assert!(matches!(
        issuance::decide(&process, &platform.agent("a"), &placed),
        Err(Refusal::NotANode(_))
    ));
    let stranger = platform.verified(&platform.node("node-3"));
    assert!(matches!(
        issuance::decide(&stranger, &platform.node("node-3"), &placed),
        Err(Refusal::NotAMember(_))
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
    let key = |key: &KeyPair| KeyPair::from_pkcs8_pem(&key.to_pkcs8_pem()).unwrap();
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
fn dates_are_judged_with_the_tolerance_for_clocks() {
    let platform = TestPlatform::new("factory");
    let trust = &platform.trust;
    let (_, issued) = platform.issue(&platform.agent("a"), Validity::starting(platform.now, HOUR));
    let (start, end) = (
        issued.certificate.not_before(),
        issued.certificate.not_after(),
    );
    for good in [start.minus(SKEW), start, platform.now, end, end.plus(SKEW)] {
        let verified = trust.verify(&issued.chain, good).unwrap();
        assert_eq!(verified.not_after(), end);
    }
    let late = end.plus(SKEW).plus(seconds(1));
    let error = trust.verify(&issued.chain, late).unwrap_err();
    assert!(
        matches!(error, VerifyError::Expired { by_seconds: 11, .. }),
        "{error}"
    );
    let early = start.minus(SKEW).minus(seconds(1));
    let error = trust.verify(&issued.chain, early).unwrap_err();
    assert!(
        matches!(error, VerifyError::NotYetValid { by_seconds: 11, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("clock"));

    // A verifier that has never seen the chain gives the same answer: the cache decides nothing.
    let fresh = Trust::new(
        platform.name.clone(),
        &[platform.root.certificate().clone()],
        SKEW,
    )
    .unwrap();
    assert!(matches!(
        fresh.verify(&issued.chain, late),
        Err(VerifyError::Expired { .. })
    ));
    assert!(matches!(
        fresh.verify(&issued.chain, early),
        Err(VerifyError::NotYetValid { .. })
    ));
}

#[test]
fn a_chain_lives_no_longer_than_its_authority() {
    let platform = TestPlatform::new("factory");
    let authority = platform
        .root
        .create_authority("brief", Validity::starting(platform.now, seconds(100)))
        .unwrap();
    let key = KeyPair::generate().unwrap();
    let grant = Grant::by_operator(platform.agent("a"), ADDRESS);
    let issued = authority
        .issue(
            &grant,
            &request(&key),
            Validity::starting(platform.now, HOUR),
        )
        .unwrap();
    let verified = platform.trust.verify(&issued.chain, platform.now).unwrap();
    assert_eq!(verified.not_after(), platform.now.plus(seconds(100)));
    let error = platform
        .trust
        .verify(&issued.chain, platform.now.plus(seconds(111)))
        .unwrap_err();
    assert!(matches!(error, VerifyError::Expired { .. }));
}

#[test]
fn foreign_authorities_are_unknown_even_under_our_names() {
    let platform = TestPlatform::new("factory");
    let impostor = TestPlatform::new("factory");
    let stolen_name = impostor.credential(&impostor.agent("a"));
    let error = platform
        .trust
        .verify(stolen_name.chain(), platform.now)
        .unwrap_err();
    assert!(
        matches!(error, VerifyError::UnknownIssuer { .. }),
        "{error}"
    );

    // Our own issuing certificate above their leaf does not help.
    let mixed = CertificateChain::new(vec![
        CertificateDer::from(stolen_name.chain().leaf().to_vec()),
        CertificateDer::from(platform.authority.chain().leaf().to_vec()),
    ])
    .unwrap();
    let error = platform.trust.verify(&mixed, platform.now).unwrap_err();
    assert!(
        matches!(error, VerifyError::UnknownIssuer { .. }),
        "{error}"
    );

    // A leaf without its issuer fails as well.
    let (_, issued) = platform.issue(&platform.agent("b"), Validity::starting(platform.now, HOUR));
    let bare =
        CertificateChain::new(vec![CertificateDer::from(issued.chain.leaf().to_vec())]).unwrap();
    let error = platform.trust.verify(&bare, platform.now).unwrap_err();
    assert!(
        matches!(error, VerifyError::UnknownIssuer { .. }),
        "{error}"
    );
}

#[test]
fn a_certificate_of_another_platform_under_the_same_root_is_refused() {
    // A root that breaks its word and certifies an authority for another platform.
    let platform = TestPlatform::new("factory");
    let key = KeyPair::generate().unwrap();
    let elsewhere = TestPlatform::new("elsewhere");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.subject_alt_names = vec![SanType::URI(
        "spiffe://elsewhere/authority/ca-1".try_into().unwrap(),
    )];
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[1; 16]));
    let issuer =
        rcgen::Issuer::from_ca_cert_der(platform.root.certificate(), platform.root.key()).unwrap();
    let der = params.signed_by(&key, &issuer).unwrap();
    let authority =
        IssuingAuthority::load(key, CertificateChain::new(vec![der.der().clone()]).unwrap())
            .unwrap();
    let agent = KeyPair::generate().unwrap();
    let issued = authority
        .issue(
            &Grant::by_operator(elsewhere.agent("a"), ADDRESS),
            &request(&agent),
            Validity::starting(platform.now, HOUR),
        )
        .unwrap();
    let error = platform
        .trust
        .verify(&issued.chain, platform.now)
        .unwrap_err();
    assert!(
        matches!(error, VerifyError::WrongPlatform { .. }),
        "{error}"
    );
    let list = DenyList::new(authority.identity().clone())
        .sign(&authority)
        .unwrap();
    assert!(platform.trust.apply_deny_list(&list, platform.now).is_err());
}

/// A certificate signed by the holder of `key` under the name of `issuer`.
fn forge(
    identity: &str,
    issuer: &CertificateDer<'_>,
    key: &KeyPair,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateDer<'static> {
    let now = support::now().as_unix_seconds() as i64;
    let mut params = CertificateParams::default();
    params.not_before = time::OffsetDateTime::from_unix_timestamp(now - 60).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(now + 3600).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[7; 16]));
    params.subject_alt_names = vec![SanType::URI(identity.try_into().unwrap())];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    change(&mut params);
    let issuer = rcgen::Issuer::from_ca_cert_der(issuer, key).unwrap();
    params
        .signed_by(&KeyPair::generate().unwrap(), &issuer)
        .unwrap()
        .der()
        .clone()
}

#[test]
fn an_agent_cannot_sign_for_others() {
    let platform = TestPlatform::new("factory");
    let agent = platform.credential(&platform.agent("mallory"));
    let own = CertificateDer::from(agent.chain().leaf().to_vec());
    let forged = forge("spiffe://factory/agent/ams", &own, agent.key(), |_| ());
    let chain = CertificateChain::new(vec![
        forged,
        own,
        CertificateDer::from(platform.authority.chain().leaf().to_vec()),
    ])
    .unwrap();
    let error = platform.trust.verify(&chain, platform.now).unwrap_err();
    assert!(
        matches!(
            error,
            VerifyError::Unacceptable { .. } | VerifyError::UnknownIssuer { .. }
        ),
        "{error}"
    );
}

#[test]
fn an_issuing_authority_cannot_make_others() {
    let platform = TestPlatform::new("factory");
    let issuing = CertificateDer::from(platform.authority.chain().leaf().to_vec());
    let sub_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.subject_alt_names = vec![SanType::URI(
        "spiffe://factory/authority/sub".try_into().unwrap(),
    )];
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[9; 16]));
    let issuer = rcgen::Issuer::from_ca_cert_der(&issuing, platform.authority.key()).unwrap();
    let sub = params.signed_by(&sub_key, &issuer).unwrap().der().clone();
    let leaf = forge("spiffe://factory/agent/a", &sub, &sub_key, |_| ());
    let chain = CertificateChain::new(vec![leaf, sub, issuing]).unwrap();
    let error = platform.trust.verify(&chain, platform.now).unwrap_err();
    assert!(matches!(error, VerifyError::Unacceptable { .. }), "{error}");
}

#[test]
fn certificates_of_odd_shape_are_refused() {
    let platform = TestPlatform::new("factory");
    let issuing = CertificateDer::from(platform.authority.chain().leaf().to_vec());
    let forge = |identity: &str, change: &dyn Fn(&mut CertificateParams)| {
        let der = forge(identity, &issuing, platform.authority.key(), change);
        let chain = CertificateChain::new(vec![der, issuing.clone()]).unwrap();
        platform
            .trust
            .verify(&chain, platform.now)
            .map(|verified| verified.identity().clone())
    };
    let agent = "spiffe://factory/agent/a";
    assert_eq!(forge(agent, &|_| ()), Ok(platform.agent("a")));

    let malformed =
        |result: Result<Identity, VerifyError>| matches!(result, Err(VerifyError::Malformed(_)));
    let with_dns = |params: &mut CertificateParams| {
        params
            .subject_alt_names
            .push(SanType::DnsName("example.com".try_into().unwrap()));
    };
    assert!(malformed(forge(agent, &with_dns)));
    let two_names = |params: &mut CertificateParams| {
        let other = "spiffe://factory/agent/b".try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(other));
    };
    assert!(malformed(forge(agent, &two_names)));
    let nameless = |params: &mut CertificateParams| params.subject_alt_names.clear();
    assert!(malformed(forge(agent, &nameless)));
    let ca = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    assert!(malformed(forge(agent, &ca)));
    let client_only = |params: &mut CertificateParams| {
        params.extended_key_usages.truncate(1);
    };
    assert!(malformed(forge(agent, &client_only)));
    let authority = forge("spiffe://factory/authority/a", &|_| ());
    assert!(malformed(authority));
    let long_serial = |params: &mut CertificateParams| {
        params.serial_number = Some(rcgen::SerialNumber::from_slice(&[1; 17]));
    };
    assert!(malformed(forge(agent, &long_serial)));
    assert!(malformed(forge("https://factory/agent/a", &|_| ())));
    assert!(malformed(forge("spiffe://factory/agent/../a", &|_| ())));
}

#[test]
fn revocation_is_immediate_for_serials_and_identities() {
    let platform = TestPlatform::new("factory");
    let trust = &platform.trust;
    let now = platform.now;
    let verify = |issued: &sealbus_seal::Issued| trust.verify(&issued.chain, now);
    let valid = Validity::starting(now, HOUR);
    let (_, first) = platform.issue(&platform.agent("a"), valid);
    let (_, second) = platform.issue(&platform.agent("a"), valid);
    let (_, other) = platform.issue(&platform.agent("b"), valid);
    let open = verify(&first).unwrap();

    let mut list = DenyList::new(platform.authority.identity().clone());
    let denial = Denial {
        at: now,
        reason: Reason::Moved,
    };
    list.deny_serial(
        first.certificate.serial(),
        first.certificate.not_after(),
        denial,
    )
    .unwrap();
    trust
        .apply_deny_list(&list.sign(&platform.authority).unwrap(), now)
        .unwrap();
    let error = trust.check(&open, now).unwrap_err();
    assert!(error.to_string().starts_with("revoked: "), "{error}");
    assert!(error.to_string().contains("moved"), "{error}");
    assert!(matches!(verify(&first), Err(VerifyError::Revoked { .. })));
    verify(&second).unwrap();

    let killed = Denial {
        at: now,
        reason: Reason::Killed,
    };
    list.deny_identity(platform.agent("a"), now.plus(HOUR), killed)
        .unwrap();
    trust
        .apply_deny_list(&list.sign(&platform.authority).unwrap(), now)
        .unwrap();
    assert!(matches!(verify(&second), Err(VerifyError::Revoked { .. })));
    verify(&other).unwrap();

    // The same name may be certified again, at once.
    let floor = trust.denied_before(&platform.agent("a")).unwrap();
    let (_, again) = platform.issue(&platform.agent("a"), valid.not_before_at_least(floor));
    verify(&again).unwrap();
    // And be denied again, in the same second.
    list.deny_identity(platform.agent("a"), now.plus(HOUR), killed)
        .unwrap();
    trust
        .apply_deny_list(&list.sign(&platform.authority).unwrap(), now)
        .unwrap();
    assert!(matches!(verify(&again), Err(VerifyError::Revoked { .. })));
}

#[test]
fn a_denied_authority_takes_all_it_issued_with_it() {
    let platform = TestPlatform::new("factory");
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(platform.now, YEAR))
        .unwrap();
    let credential = platform.credential(&platform.agent("a"));
    platform
        .trust
        .verify(credential.chain(), platform.now)
        .unwrap();
    let mut list = DenyList::new(second.identity().clone());
    let authority = platform.authority.certificate();
    let denial = Denial {
        at: platform.now,
        reason: Reason::ByOperator,
    };
    list.deny_serial(authority.serial(), authority.not_after(), denial)
        .unwrap();
    platform
        .trust
        .apply_deny_list(&list.sign(&second).unwrap(), platform.now)
        .unwrap();
    let error = platform
        .trust
        .verify(credential.chain(), platform.now)
        .unwrap_err();
    assert!(matches!(error, VerifyError::Revoked { .. }), "{error}");
    // Its own lists are no longer trusted either.
    let list = DenyList::new(platform.authority.identity().clone());
    let signed = list.sign(&platform.authority).unwrap();
    assert!(
        platform
            .trust
            .apply_deny_list(&signed, platform.now)
            .is_err()
    );
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

#[test]
fn trust_needs_a_fitting_root() {
    let platform = TestPlatform::new("factory");
    let elsewhere = TestPlatform::new("elsewhere");
    assert!(Trust::new(platform.name.clone(), &[], SKEW).is_err());
    let foreign = [elsewhere.root.certificate().clone()];
    assert!(Trust::new(platform.name.clone(), &foreign, SKEW).is_err());
    let leaf = platform
        .credential(&platform.agent("a"))
        .chain()
        .leaf()
        .to_vec();
    assert!(Trust::new(platform.name.clone(), &[leaf.into()], SKEW).is_err());
    let own = platform.root.fingerprint();
    assert_eq!(
        platform
            .trust
            .root_fingerprints()
            .collect::<Vec<Fingerprint>>(),
        [own]
    );
}

#[test]
fn many_threads_verify_with_one_trust() {
    let platform = Arc::new(TestPlatform::new("factory"));
    let chains: Vec<_> = (0..20)
        .map(|number| {
            platform
                .credential(&platform.agent(&format!("a{number}")))
                .chain()
                .clone()
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for chain in chains.iter().chain(&chains) {
                    platform.trust.verify(chain, platform.now).unwrap();
                }
            });
        }
    });
}
