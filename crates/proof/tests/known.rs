//! A proof that an earlier program made, in `tests/known`: proofs are checked years after they were made.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use sealbus_proof::{Hash, Proof, Statement, Verifier};
use sealbus_seal::{CertificateChain, PlatformName, SecurityLevel, Timestamp, Trust};
use support::NOW;

const ROOT: &[u8] = include_bytes!("known/root.der");
const CHAIN: &[u8] = include_bytes!("known/chain");
const PROOF: &[u8] = include_bytes!("known/proof");

/// Message 1 of 5 by this author, which is the second of three in the batch; for `seller-1@factory` on `/dates`.
fn said(message: &[u8]) -> Hash {
    let statement = Statement {
        channel: Some("/dates"),
        qos: "priority=7",
        receivers: &["seller-1@factory"],
        message,
    };
    statement.hash()
}

#[test]
fn a_proof_of_an_earlier_program_is_believed() {
    let platform = PlatformName::new("factory").unwrap();
    let trust = Trust::new(platform.clone(), &[ROOT.to_vec().into()], Duration::ZERO).unwrap();
    let proof = Proof::decode(PROOF).unwrap();
    assert_eq!(proof.time(), NOW);
    assert_eq!(proof.number(), 1);
    assert_eq!(proof.level(), SecurityLevel::Signed);
    // The certificate ended long ago. It was valid when the proof says that it was made.
    let then = Timestamp::from_unix_seconds(proof.time() / 1000);
    let chain = CertificateChain::decode(CHAIN).unwrap();
    let author = trust.verify(&chain, then).unwrap();
    let years_later = NOW + 10 * 365 * 86_400_000;
    assert!(
        trust
            .verify(&chain, Timestamp::from_unix_seconds(years_later / 1000))
            .is_err()
    );
    let mut verifier = Verifier::new(platform, SecurityLevel::Signed);
    let mut judge = |message| verifier.verify(&author, &proof, &said(message), years_later);
    assert_eq!(judge(b"message 1"), Ok(()));
    assert!(judge(b"message 2").is_err());
}
