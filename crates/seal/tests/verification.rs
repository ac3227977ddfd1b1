//! Chains that are believed or refused, by dates, issuers and revocation.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, SanType};
use rustls_pki_types::CertificateDer;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CertificateChain, Fingerprint, GRANT, Identity, IssuingAuthority, KeyPair, RootAuthority,
    Timestamp, Trust, Validity, VerifyError,
};
use support::{ADDRESS, HOUR, SKEW, TestPlatform, YEAR, request, seconds};

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

    // A verifier that has never seen the chain gives the same answer, so the cache decides nothing.
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

/// Chains are public: others may show a leaf with other certificates behind it.
#[test]
fn nobody_shortens_the_life_of_anothers_chain() {
    let platform = TestPlatform::new("factory");
    let (trust, now) = (&platform.trust, platform.now);
    let own = platform.credential(&platform.agent("a"));
    let brief = Validity::starting(now, seconds(100));
    let shown = |behind: &[&[u8]]| {
        let mut all = own.chain().to_certificates();
        all.truncate(1);
        all.extend(behind.iter().map(|der| CertificateDer::from(der.to_vec())));
        CertificateChain::new(all).unwrap()
    };
    let authority = platform.authority.chain().leaf();
    let made_up = RootAuthority::create(&platform.name, brief).unwrap();
    for beside in [made_up.certificate().as_ref(), authority] {
        let error = trust.verify(&shown(&[authority, beside]), now).unwrap_err();
        assert!(matches!(error, VerifyError::Unacceptable { .. }), "{error}");
    }
    // Another certificate of the CA is also accepted, and ends sooner.
    let renewed = platform.root.renew_authority(&platform.authority, brief);
    let by_renewed = shown(&[renewed.unwrap().chain().leaf()]);
    let verified = trust.verify(&by_renewed, now).unwrap();
    assert_eq!(verified.not_after(), now.plus(seconds(100)));
    // Some peers also show the root.
    let with_root = shown(&[authority, platform.root.certificate().as_ref()]);
    for chain in [own.chain(), &with_root] {
        let verified = trust.verify(chain, now.plus(seconds(200))).unwrap();
        assert_eq!(verified.not_after(), now.plus(HOUR));
    }
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
    // A root that certifies an authority for another platform, against its promise.
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
        .unwrap()
        .whole();
    assert!(platform.trust.apply_deny_list(&list, platform.now).is_err());
}

/// A certificate signed by the holder of `key` under the name of `issuer`.
fn forge(
    identity: &str,
    issuer: &CertificateDer<'_>,
    key: &impl rcgen::SigningKey,
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

/// A CA that does not know the platform's state, such as that of a former leader, may renew for a day. If it renews for
/// longer, it is not believed.
#[test]
fn a_certificate_that_is_renewed_for_longer_than_its_authority_may_is_refused() {
    const HOLDING: [u64; 15] = [
        1, 2, 840, 113_556, 1, 8000, 2554, 42964, 34295, 20436, 19583, 42606, 4_912_364, 344_408, 1,
    ];
    let platform = TestPlatform::new("factory");
    let issuing = CertificateDer::from(platform.authority.chain().leaf().to_vec());
    let renewing = |start: Timestamp| {
        let (process, serial) = ("0123456789abcdef".repeat(2), "7".repeat(32));
        let text = format!("{process} node-1 {serial} {}", start.as_unix_seconds());
        let mut value = vec![0x0c, u8::try_from(text.len()).unwrap()];
        value.extend_from_slice(text.as_bytes());
        let holding = rcgen::CustomExtension::from_oid_content(&HOLDING, value);
        let key = platform.authority.key();
        let leaf = forge("spiffe://factory/agent/seller", &issuing, key, |params| {
            params.custom_extensions.push(holding);
        });
        CertificateChain::new(vec![leaf, issuing.clone()]).unwrap()
    };
    let now = platform.now;
    // Both last for an hour.
    let held = renewing(now.minus(GRANT - HOUR / 2));
    assert!(held.certificate().unwrap().renews().is_some());
    assert!(platform.trust.verify(&held, now).is_ok());
    let end = now.plus(HOUR / 2 + SKEW);
    assert!(platform.trust.verify(&held, end).is_ok());
    let late = platform.trust.verify(&held, end.plus(seconds(1)));
    assert!(matches!(late, Err(VerifyError::Expired { .. })), "{late:?}");
    let held = renewing(now.minus(GRANT + HOUR));
    let late = platform.trust.verify(&held, now);
    assert!(matches!(late, Err(VerifyError::Expired { .. })), "{late:?}");
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
        .apply_deny_list(&list.sign(&platform.authority).unwrap().whole(), now)
        .unwrap();
    let error = trust.check(&open, now).unwrap_err();
    assert!(error.to_string().starts_with("revoked: "), "{error}");
    assert!(error.to_string().contains("moved"), "{error}");
    assert!(matches!(verify(&first), Err(VerifyError::Revoked { .. })));
    verify(&second).unwrap();
    // It stays revoked after it has expired.
    let late = first.certificate.not_after().plus(HOUR);
    let error = trust.check(&open, late).unwrap_err();
    assert!(matches!(error, VerifyError::Revoked { .. }), "{error}");

    let killed = Denial {
        at: now,
        reason: Reason::Killed,
    };
    list.deny_identity(platform.agent("a"), now.plus(HOUR), killed)
        .unwrap();
    trust
        .apply_deny_list(&list.sign(&platform.authority).unwrap().whole(), now)
        .unwrap();
    assert!(matches!(verify(&second), Err(VerifyError::Revoked { .. })));
    verify(&other).unwrap();

    // The same name may be certified again, at once.
    let floor = trust.denied_before(&platform.agent("a")).unwrap();
    let (_, again) = platform.issue(&platform.agent("a"), valid.not_before_at_least(floor));
    verify(&again).unwrap();
    // It can also be denied again in the same second.
    list.deny_identity(platform.agent("a"), now.plus(HOUR), killed)
        .unwrap();
    trust
        .apply_deny_list(&list.sign(&platform.authority).unwrap().whole(), now)
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
        .apply_deny_list(&list.sign(&second).unwrap().whole(), platform.now)
        .unwrap();
    let error = platform
        .trust
        .verify(credential.chain(), platform.now)
        .unwrap_err();
    assert!(matches!(error, VerifyError::Revoked { .. }), "{error}");
    // Its own lists are no longer trusted either.
    let list = DenyList::new(platform.authority.identity().clone());
    let signed = list.sign(&platform.authority).unwrap().whole();
    assert!(
        platform
            .trust
            .apply_deny_list(&signed, platform.now)
            .is_err()
    );
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
