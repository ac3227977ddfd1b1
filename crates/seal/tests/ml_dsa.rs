//! A platform whose root and CA sign with ML-DSA-65.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyUsagePurpose, SanType};
use rustls_pki_types::CertificateDer;
use sealbus_seal::denylist::{Denial, DenyList, DenyListError, Reason};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    AuthorityError, AuthorityKey, Certificate, CertificateChain, CertificateError, Credential,
    Identity, IssuingAuthority, KeyPair, LongLivedIdentity, MlDsaKeyPair, RootAuthority,
    SignatureAlgorithm, SigningRequest, SigningRequestError, Trust, Validity, VerifyError,
};
use support::{HOUR, SKEW, TestPlatform, YEAR};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The extension with a long-lived identity.
const IDENTITY: [u64; 15] = [
    1, 2, 840, 113_556, 1, 8000, 2554, 42964, 34295, 20436, 19583, 42606, 4_912_364, 344_408, 2,
];

fn refused(platform: &TestPlatform, chain: &CertificateChain) -> VerifyError {
    platform.trust.verify(chain, platform.now).unwrap_err()
}

#[test]
fn chains_lead_to_the_root() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let root = platform.root.certificate();
    let seller = platform.agent("seller");
    let credential = platform.credential(&seller);
    let verified = platform.trust.verify(credential.chain(), platform.now);
    let verified = verified.unwrap();
    assert_eq!(verified.identity(), &seller);
    assert_eq!(verified.public_key(), credential.key().public_key());
    let key = platform.authority.certificate().public_key();
    assert_eq!(key.algorithm(), SignatureAlgorithm::MlDsa65);
    let leaf = credential.chain().leaf().len();
    assert!(leaf < 4096 && root.len() < 6144, "{leaf}, {}", root.len());
    // Another root of the same name and algorithm is still another root.
    let other = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let error = refused(&other, credential.chain());
    assert!(
        matches!(error, VerifyError::UnknownIssuer { .. }),
        "{error}"
    );
}

#[test]
fn authorities_have_the_roots_algorithm() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let validity = Validity::starting(platform.now, YEAR);
    let request = |algorithm| {
        let key = AuthorityKey::generate(algorithm).unwrap();
        SigningRequest::parse(&key.signing_request().unwrap()).unwrap()
    };
    let classical = request(SignatureAlgorithm::Ed25519);
    let error = platform
        .root
        .certify_authority("ca-2", &classical, validity);
    let expected = AuthorityError::OtherAlgorithm {
        wanted: SignatureAlgorithm::MlDsa65,
        found: SignatureAlgorithm::Ed25519,
    };
    assert_eq!(error.unwrap_err(), expected);
    let quantum = request(SignatureAlgorithm::MlDsa65);
    let root = RootAuthority::create(&platform.name, validity).unwrap();
    let error = root
        .certify_authority("ca-2", &quantum, validity)
        .err()
        .unwrap();
    assert!(
        matches!(error, AuthorityError::OtherAlgorithm { .. }),
        "{error}"
    );
    // An agent's own key stays Ed25519, because TLS knows no other.
    let grant = Grant::by_operator(platform.agent("seller"), support::ADDRESS);
    let error = platform.authority.issue(&grant, &quantum, validity);
    let expected = AuthorityError::Certificate(CertificateError::Algorithm);
    assert_eq!(error.unwrap_err(), expected);
}

/// The certificate of an authority with this key and these extensions, signed by the root's own key.
fn made_up(
    platform: &TestPlatform,
    key: &AuthorityKey,
    extensions: Vec<CustomExtension>,
) -> CertificateDer<'static> {
    let identity = Identity::authority(&platform.name, "ca-1").unwrap();
    let now = platform.now.as_unix_seconds() as i64;
    let mut params = CertificateParams::default();
    params.not_before = time::OffsetDateTime::from_unix_timestamp(now - 60).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(now + 7200).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from_slice(&[7; 16]));
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = identity.to_string();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, &name);
    params.subject_alt_names = vec![SanType::URI(name.try_into().unwrap())];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.custom_extensions = extensions;
    let (root, signer) = (platform.root.certificate(), platform.root.key());
    let issuer = rcgen::Issuer::from_ca_cert_der(root, signer).unwrap();
    params.signed_by(key, &issuer).unwrap().der().clone()
}

/// An attacker who breaks Ed25519 cannot use a classical authority below a root of ML-DSA-65, nor the other way round.
#[test]
fn an_authority_of_another_algorithm_below_the_root_is_not_believed() {
    for signatures in SignatureAlgorithm::ALL {
        for below in SignatureAlgorithm::ALL {
            let platform = TestPlatform::with("factory", signatures);
            let (trust, now) = (&platform.trust, platform.now);
            let key = AuthorityKey::generate(below).unwrap();
            let chain = CertificateChain::new(vec![made_up(&platform, &key, Vec::new())]);
            let authority = IssuingAuthority::load(key, chain.unwrap()).unwrap();
            let grant = Grant::by_operator(platform.agent("seller"), support::ADDRESS);
            let request = support::request(&KeyPair::generate().unwrap());
            let validity = Validity::starting(now, HOUR);
            let issued = authority.issue(&grant, &request, validity).unwrap();
            let list = DenyList::new(authority.identity().clone());
            let list = list.sign(&authority).unwrap().whole();
            let agent = trust.verify(&issued.chain, now).err();
            let itself = trust.verify_authority(authority.chain().leaf(), now).err();
            let list = trust.apply_deny_list(&list, now).err();
            if below == signatures {
                assert_eq!((agent, itself, list), (None, None, None));
                continue;
            }
            for error in [agent, itself] {
                assert!(
                    matches!(error, Some(VerifyError::UnknownIssuer { .. })),
                    "{below} below {signatures}: {error:?}"
                );
            }
            assert!(
                matches!(list, Some(DenyListError::NotTrusted(_))),
                "{below} below {signatures}: {list:?}"
            );
        }
    }
}

#[test]
fn an_authority_has_no_long_lived_identity() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let owner = KeyPair::generate().unwrap();
    let (_, _, chain) = agent(&platform, Some(&owner));
    let chain = chain.unwrap();
    let (_, parsed) = X509Certificate::from_der(chain.leaf()).unwrap();
    let is_ours = |oid: &x509_parser::oid_registry::Oid<'_>| oid.iter().unwrap().eq(IDENTITY);
    let mut extensions = parsed.extensions().iter();
    let found = extensions.find(|found| is_ours(&found.oid)).unwrap();
    let extension = CustomExtension::from_oid_content(&IDENTITY, found.value.to_vec());
    let key = AuthorityKey::generate(SignatureAlgorithm::MlDsa65).unwrap();
    let without = Certificate::parse(&made_up(&platform, &key, Vec::new())).unwrap();
    let error = Certificate::parse(&made_up(&platform, &key, vec![extension])).unwrap_err();
    let authority = without.identity().clone();
    assert_eq!(error, CertificateError::LongLivedIdentity(authority));
}

#[test]
fn authorities_load_from_their_files() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let text = platform.authority.key().to_text().unwrap();
    let key = AuthorityKey::from_pkcs8_pem(&text).unwrap();
    assert_eq!(key.public_key(), platform.authority.key().public_key());
    IssuingAuthority::load(key, platform.authority.chain().clone()).unwrap();
    let other = KeyPair::generate().unwrap();
    let error = IssuingAuthority::load(other, platform.authority.chain().clone());
    assert!(error.is_err());
}

#[test]
fn deny_lists_are_signed_with_it() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let seller = platform.agent("seller");
    let credential = platform.credential(&seller);
    let mut list = DenyList::new(platform.authority.identity().clone());
    let denial = Denial {
        at: platform.now,
        reason: Reason::ByOperator,
    };
    let serial = credential.certificate().unwrap().serial();
    list.deny_serial(serial, platform.now.plus(HOUR), denial)
        .unwrap();
    let whole = list.sign(&platform.authority).unwrap().whole();
    for at in [whole.len() / 8, whole.len() - 200] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        platform
            .trust
            .apply_deny_list(&changed, platform.now)
            .unwrap_err();
    }
    for cut in [whole.len() - 1, whole.len() - 3309, 100] {
        platform
            .trust
            .apply_deny_list(&whole[..cut], platform.now)
            .unwrap_err();
    }
    platform
        .trust
        .apply_deny_list(&whole, platform.now)
        .unwrap();
    let error = refused(&platform, credential.chain());
    assert!(matches!(error, VerifyError::Revoked { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_changed_bit_in_a_chain_is_noticed(at: prop::sample::Index, bit in 0u8..8) {
        let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
        let credential = platform.credential(&platform.agent("seller"));
        let mut bytes = Vec::new();
        credential.chain().encode(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let believed = CertificateChain::decode(&bytes)
            .is_ok_and(|chain| platform.trust.verify(&chain, platform.now).is_ok());
        prop_assert!(!believed, "byte {at} of {}", bytes.len());
    }
}

#[test]
fn a_root_of_each_kind_may_be_trusted_at_once() {
    let quantum = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let classical = TestPlatform::new("factory");
    let roots = [&quantum, &classical].map(|it| it.root.certificate().clone());
    let trust = Trust::new(quantum.name.clone(), &roots, SKEW).unwrap();
    for platform in [&quantum, &classical] {
        let credential = platform.credential(&platform.agent("seller"));
        trust.verify(credential.chain(), platform.now).unwrap();
    }
}

/// An agent's two keys, and its certificate.
fn agent(
    platform: &TestPlatform,
    owner: Option<&KeyPair>,
) -> (
    KeyPair,
    MlDsaKeyPair,
    Result<CertificateChain, AuthorityError>,
) {
    let (key, second) = (
        KeyPair::generate().unwrap(),
        MlDsaKeyPair::generate().unwrap(),
    );
    let seller = platform.agent("seller");
    let public = Some(second.public_key());
    let state = |owner| LongLivedIdentity::state(owner, &seller, key.public_key(), public);
    let stated = owner.map(|owner| state(owner).unwrap());
    let request = key.signing_request_with(public, stated.as_ref()).unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    assert_eq!(request.second(), public);
    let grant = Grant::by_operator(seller, support::ADDRESS);
    let validity = Validity::starting(platform.now, HOUR);
    let issued = platform.authority.issue(&grant, &request, validity);
    (key, second, issued.map(|issued| issued.chain))
}

#[test]
fn an_agent_has_a_second_key_for_its_proofs() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let (key, second, chain) = agent(&platform, None);
    let chain = chain.unwrap();
    let public = second.public_key().clone();
    let verified = platform.trust.verify(&chain, platform.now).unwrap();
    assert_eq!(verified.proof_key(), Some(&public));
    assert_eq!(verified.public_key(), key.public_key());
    assert!(chain.leaf().len() < 6144, "{} bytes", chain.leaf().len());
    let credential = Credential::new(key, chain).unwrap();
    let credential = credential.with_second(second).unwrap();
    assert_eq!(credential.proof_algorithm(), SignatureAlgorithm::MlDsa65);
    let signature = credential.sign_proof(b"said").unwrap();
    assert!(public.verifies(b"said", &signature));
    let other = MlDsaKeyPair::generate().unwrap();
    let mismatch = credential.with_second(other).unwrap_err();
    assert!(
        matches!(mismatch, CertificateError::KeyMismatch(_)),
        "{mismatch}"
    );
}

#[test]
fn without_it_an_agent_proves_nothing_there() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let verified = platform.verified(&platform.agent("seller"));
    assert_eq!(verified.proof_key(), None);
    let classical = TestPlatform::new("factory");
    let verified = classical.verified(&classical.agent("seller"));
    assert_eq!(verified.proof_key().unwrap(), verified.public_key());
    // A classical CA certifies no second key, because its word is only as strong as its own key.
    let (_, _, chain) = agent(&classical, None);
    assert!(matches!(chain.unwrap_err(), AuthorityError::SecondKey(_)));
}

#[test]
fn nobody_but_an_agent_has_a_second_key() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let (key, second) = (
        KeyPair::generate().unwrap(),
        MlDsaKeyPair::generate().unwrap(),
    );
    let request = key
        .signing_request_with(Some(second.public_key()), None)
        .unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let node = platform.node("node-1");
    let grant = Grant::by_operator(node.clone(), support::ADDRESS);
    let validity = Validity::starting(platform.now, HOUR);
    let error = platform
        .authority
        .issue(&grant, &request, validity)
        .unwrap_err();
    assert_eq!(error, AuthorityError::SecondKey(node));
    // An Ed25519 key is not allowed as a second key.
    let other = (*KeyPair::generate().unwrap().public_key()).into();
    let request = key.signing_request_with(Some(&other), None).unwrap();
    let error = SigningRequest::parse(&request).unwrap_err();
    assert_eq!(error, SigningRequestError::Extension);
}

#[test]
fn a_long_lived_identity_signs_for_both_keys() {
    let platform = TestPlatform::with("factory", SignatureAlgorithm::MlDsa65);
    let owner = KeyPair::generate().unwrap();
    let (_, _, chain) = agent(&platform, Some(&owner));
    let certificate = chain.unwrap().certificate().unwrap();
    assert_eq!(certificate.long_lived(), Some(owner.public_key()));
    // The statement for one key does not hold for both, so a CA cannot add a second key of its own.
    let (key, second) = (
        KeyPair::generate().unwrap(),
        MlDsaKeyPair::generate().unwrap(),
    );
    let seller = platform.agent("seller");
    let stated = LongLivedIdentity::state(&owner, &seller, key.public_key(), None).unwrap();
    let public = Some(second.public_key());
    let request = key.signing_request_with(public, Some(&stated)).unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let grant = Grant::by_operator(seller.clone(), support::ADDRESS);
    let validity = Validity::starting(platform.now, HOUR);
    let error = platform
        .authority
        .issue(&grant, &request, validity)
        .unwrap_err();
    assert_eq!(error, AuthorityError::LongLivedIdentity(seller));
}
