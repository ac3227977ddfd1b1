//! Proofs on a platform whose signatures are ML-DSA-65.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sealbus_proof::{
    BatchKey, Evidence, LONGEST_PROOF, NotProved, Proof, SignError, Signer, Verifier,
};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    Credential, Identity, KeyPair, MlDsaKeyPair, SecurityLevel, SignatureAlgorithm, SigningRequest,
    Timestamp, Validity, VerifiedIdentity,
};
use support::{NOW, Said, TestPlatform, alone, encoded, statements};

fn quantum() -> TestPlatform {
    TestPlatform::with("factory", SignatureAlgorithm::MlDsa65)
}

fn verifier(platform: &TestPlatform) -> Verifier {
    Verifier::new(platform.name.clone(), SecurityLevel::Signed)
}

#[test]
fn messages_of_many_agents_are_proved() {
    let platform = quantum();
    let authors: Vec<_> = (0..3)
        .map(|it| platform.author(&format!("buyer-{it}")))
        .collect();
    let these = statements(5);
    let said: Vec<_> = authors
        .iter()
        .map(|it| (&it.signer, these.clone()))
        .collect();
    let said = Said::of(&said, NOW).unwrap();
    let mut verifier = verifier(&platform);
    verifier.signed(&said.batch, NOW).unwrap();
    for (place, author) in authors.iter().enumerate() {
        for (number, statement) in these.iter().enumerate() {
            let proof = said.proof(place, number).unwrap();
            let algorithm = proof.delegation().key().algorithm();
            assert_eq!(algorithm, SignatureAlgorithm::MlDsa65);
            assert!(proof.length() <= LONGEST_PROOF);
            let proof = Proof::decode(&encoded(&proof)).unwrap();
            let judged = verifier.verify(&author.verified, &proof, statement, NOW);
            assert_eq!(judged, Ok(()));
            let others = &authors[(place + 1) % 3].verified;
            assert!(verifier.verify(others, &proof, statement, NOW).is_err());
        }
    }
}

/// An agent of which somebody has the Ed25519 key. Its certificate may have a second key, which is not at hand.
fn classical(
    platform: &TestPlatform,
    name: &str,
    has_second: bool,
) -> (Credential, VerifiedIdentity) {
    let (key, second) = (
        KeyPair::generate().unwrap(),
        MlDsaKeyPair::generate().unwrap(),
    );
    let second = Some(second.public_key()).filter(|_| has_second);
    let request = key.signing_request_with(second, None).unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let identity = Identity::agent(&platform.name, name).unwrap();
    let grant = Grant::by_operator(identity, Ipv4Addr::LOCALHOST.into());
    let now = Timestamp::from_unix_seconds(NOW / 1000);
    let validity = Validity::starting(now, Duration::from_secs(3600));
    let issued = platform
        .authority
        .issue(&grant, &request, validity)
        .unwrap();
    let verified = platform.trust.verify(&issued.chain, now).unwrap();
    (Credential::new(key, issued.chain).unwrap(), verified)
}

#[test]
fn a_classical_signature_proves_nothing() {
    let platform = quantum();
    let statement = statements(1)[0];
    for has_second in [true, false] {
        let (stolen, verified) = classical(&platform, "buyer-2", has_second);
        let stolen = Arc::new(stolen);
        let own = BatchKey::new(platform.name.clone(), SecurityLevel::Signed);
        let signer = Signer::new(stolen.clone(), Arc::new(own)).unwrap();
        let proof = alone(&signer, statement, NOW);
        let judged = verifier(&platform).verify(&verified, &proof, &statement, NOW);
        assert!(
            matches!(judged, Err(NotProved::NotDelegated { .. })),
            "{judged:?}"
        );
        // One process has one key.
        platform.author("buyer-1");
        let mixed = Signer::new(stolen, platform.key.clone()).unwrap_err();
        assert!(matches!(mixed, SignError::Algorithm { .. }), "{mixed}");
    }
}

#[test]
fn what_is_kept_is_proved_to_others() {
    let platform = quantum();
    let author = platform.author("buyer-1");
    let statement = statements(1)[0];
    let kept = author.signer.sign_one(statement, NOW).unwrap();
    let level = SecurityLevel::Signed;
    let trust = &platform.trust;
    let evidence = Evidence::decode(&kept, statement, level, trust, NOW).unwrap();
    assert_eq!(evidence.author().identity(), author.verified.identity());
    let mut other = statement;
    other[0] ^= 1;
    assert!(Evidence::decode(&kept, other, level, trust, NOW).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_changed_bit_is_noticed(at: prop::sample::Index, bit in 0u8..8) {
        let platform = quantum();
        let author = platform.author("buyer-1");
        let statement = statements(1)[0];
        let mut bytes = encoded(&alone(&author.signer, statement, NOW));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let judged = Proof::decode(&bytes).map(|proof| {
            verifier(&platform).verify(&author.verified, &proof, &statement, NOW)
        });
        prop_assert!(!matches!(judged, Ok(Ok(()))), "byte {at}");
    }
}
