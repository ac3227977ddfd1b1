//! Long-lived identities in certificates, including certificates that a dishonest CA makes up.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use rcgen::{CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, SanType};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    AuthorityError, Certificate, CertificateChain, CertificateError, Identity, KeyPair,
    LongLivedIdentity, SigningRequest, SigningRequestError, Validity, VerifyError,
};
use support::{ADDRESS, HOUR, TestPlatform};
use x509_parser::prelude::{FromDer, X509Certificate};

const EXTENSION: [u64; 15] = [
    1, 2, 840, 113_556, 1, 8000, 2554, 42964, 34295, 20436, 19583, 42606, 4_912_364, 344_408, 2,
];

/// The value of the extension as the CA of the platform writes it.
fn value(platform: &TestPlatform, owner: &KeyPair, agent: &Identity, key: &KeyPair) -> Vec<u8> {
    let chain = issue(platform, owner, agent, key).unwrap();
    let (_, parsed) = X509Certificate::from_der(chain.leaf()).unwrap();
    let is_ours = |oid: &x509_parser::oid_registry::Oid<'_>| oid.iter().unwrap().eq(EXTENSION);
    let mut extensions = parsed.extensions().iter();
    let found = extensions.find(|found| is_ours(&found.oid)).unwrap();
    assert!(!found.critical);
    found.value.to_vec()
}

fn issue(
    platform: &TestPlatform,
    owner: &KeyPair,
    agent: &Identity,
    key: &KeyPair,
) -> Result<CertificateChain, AuthorityError> {
    let stated = LongLivedIdentity::state(owner, agent, key.public_key(), None).unwrap();
    let request = key.signing_request_with(None, Some(&stated)).unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let grant = Grant::by_operator(agent.clone(), ADDRESS);
    let validity = Validity::starting(platform.now, HOUR);
    let issued = platform.authority.issue(&grant, &request, validity)?;
    Ok(issued.chain)
}

/// A certificate with these extensions, signed by the CA's own key.
fn made_up(
    platform: &TestPlatform,
    identity: &Identity,
    key: &KeyPair,
    values: &[&[u8]],
) -> Result<CertificateChain, rcgen::Error> {
    let now = platform.now.as_unix_seconds() as i64;
    let mut params = CertificateParams::default();
    params.not_before = time::OffsetDateTime::from_unix_timestamp(now - 60).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(now + 3600).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[7; 16]));
    params.subject_alt_names = vec![SanType::URI(identity.to_string().try_into().unwrap())];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    let extension = |value: &&[u8]| CustomExtension::from_oid_content(&EXTENSION, value.to_vec());
    params.custom_extensions = values.iter().map(extension).collect();
    let issuer = platform.authority.chain().leaf().to_vec().into();
    let issuer = rcgen::Issuer::from_ca_cert_der(&issuer, platform.authority.key())?;
    let leaf = params.signed_by(key, &issuer)?.der().clone();
    let mut certificates = vec![leaf];
    certificates.extend(platform.authority.chain().to_certificates());
    Ok(CertificateChain::new(certificates).unwrap())
}

fn refusal(platform: &TestPlatform, chain: &CertificateChain) -> CertificateError {
    match platform.trust.verify(chain, platform.now) {
        Err(VerifyError::Malformed(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn certificates_of_one_agent_are_known_by_the_identity() {
    let platform = TestPlatform::new("factory");
    let owner = KeyPair::generate().unwrap();
    let seller = platform.agent("seller");
    for _ in 0..2 {
        let key = KeyPair::generate().unwrap();
        let chain = issue(&platform, &owner, &seller, &key).unwrap();
        let found = platform.trust.verify(&chain, platform.now).unwrap();
        let certificate = found.certificate();
        assert_eq!(certificate.long_lived(), Some(owner.public_key()));
        assert_eq!(certificate.public_key(), key.public_key());
        assert!(chain.leaf().len() < 760, "{} bytes", chain.leaf().len());
    }
    let other = platform.credential(&seller);
    assert_eq!(other.certificate().unwrap().long_lived(), None);
}

#[test]
fn a_ca_signs_no_statement_that_is_not_the_owners() {
    let platform = TestPlatform::new("factory");
    let [owner, key, other] = [(); 3].map(|()| KeyPair::generate().unwrap());
    let (seller, buyer) = (platform.agent("seller"), platform.agent("buyer"));
    for (agent, certified) in [(&buyer, &key), (&seller, &other)] {
        let stated = LongLivedIdentity::state(&owner, agent, certified.public_key(), None).unwrap();
        let request = key.signing_request_with(None, Some(&stated)).unwrap();
        let request = SigningRequest::parse(&request).unwrap();
        let grant = Grant::by_operator(seller.clone(), ADDRESS);
        let validity = Validity::starting(platform.now, HOUR);
        let error = platform.authority.issue(&grant, &request, validity);
        let expected = AuthorityError::LongLivedIdentity(seller.clone());
        assert_eq!(error.unwrap_err(), expected);
    }
    // Processes, nodes and authorities have no long-lived identity.
    let node = platform.node("node-1");
    let error = issue(&platform, &owner, &node, &key).unwrap_err();
    assert_eq!(error, AuthorityError::LongLivedIdentity(node));
}

#[test]
fn nobody_believes_what_a_ca_makes_up() {
    let platform = TestPlatform::new("factory");
    let [owner, key, other] = [(); 3].map(|()| KeyPair::generate().unwrap());
    let (seller, buyer) = (platform.agent("seller"), platform.agent("buyer"));
    let own = value(&platform, &owner, &seller, &key);
    let believed = made_up(&platform, &seller, &key, &[&own]).unwrap();
    let found = platform.trust.verify(&believed, platform.now).unwrap();
    assert_eq!(found.certificate().long_lived(), Some(owner.public_key()));
    let another_agent = value(&platform, &owner, &buyer, &key);
    let another_key = value(&platform, &owner, &seller, &other);
    let elsewhere = TestPlatform::new("market");
    let another_platform = value(&elsewhere, &owner, &elsewhere.agent("seller"), &key);
    let expected = CertificateError::LongLivedIdentity(seller.clone());
    let zero: [u8; 98] = std::array::from_fn(|at| [4, 96, 0][at.min(2)]);
    let short = &own[..own.len() - 1];
    let long = [&own[..], &[0]].concat();
    for value in [
        &another_agent[..],
        &another_key,
        &another_platform,
        &zero,
        short,
        &long,
        &[],
    ] {
        let chain = made_up(&platform, &seller, &key, &[value]).unwrap();
        assert_eq!(refusal(&platform, &chain), expected);
    }
    let twice = made_up(&platform, &seller, &key, &[&own, &own]).unwrap();
    let error = refusal(&platform, &twice);
    assert!(matches!(error, CertificateError::Malformed(_)), "{error}");
    let node = platform.node("node-1");
    let chain = made_up(&platform, &node, &key, &[&own]).unwrap();
    let expected = CertificateError::LongLivedIdentity(node);
    assert_eq!(refusal(&platform, &chain), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_changed_bit_is_noticed(place in 0usize..98, bit in 0u8..8) {
        let platform = TestPlatform::new("factory");
        let [owner, key] = [(); 2].map(|()| KeyPair::generate().unwrap());
        let seller = platform.agent("seller");
        let mut changed = value(&platform, &owner, &seller, &key);
        changed[place] ^= 1 << bit;
        let chain = made_up(&platform, &seller, &key, &[&changed]).unwrap();
        prop_assert!(Certificate::parse(chain.leaf()).is_err());
    }

    #[test]
    fn a_request_with_a_changed_bit_is_refused_or_says_the_same(at: prop::sample::Index, bit in 0u8..8) {
        let platform = TestPlatform::new("factory");
        let [owner, key] = [(); 2].map(|()| KeyPair::generate().unwrap());
        let seller = platform.agent("seller");
        let stated = LongLivedIdentity::state(&owner, &seller, key.public_key(), None).unwrap();
        let mut request = key.signing_request_with(None, Some(&stated)).unwrap();
        let parsed = SigningRequest::parse(&request).unwrap();
        prop_assert_eq!(parsed.long_lived(), Some(&stated));
        let at = at.index(request.len());
        request[at] ^= 1 << bit;
        // The signature does not cover its own encoding.
        if let Ok(changed) = SigningRequest::parse(&request) {
            prop_assert_eq!(changed, parsed);
        }
    }
}

#[test]
fn a_request_with_what_is_no_identity_is_refused() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let extension = CustomExtension::from_oid_content(&EXTENSION, vec![4, 1, 0]);
    params.custom_extensions = vec![extension];
    let request = params.serialize_request(&key).unwrap();
    let error = SigningRequest::parse(request.der()).unwrap_err();
    assert_eq!(error, SigningRequestError::Extension);
}
