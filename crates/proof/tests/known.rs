//! A proof that an earlier program made, in `tests/known`: proofs are checked years after they were made.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use sealbus_proof::{Proof, Statement, Verifier};
use sealbus_seal::{CertificateChain, PlatformName, SecurityLevel, Timestamp, Trust};
use support::NOW;

const ROOT: &[u8] = include_bytes!("known/root.der");
const CHAIN: &[u8] = include_bytes!("known/chain");
const PROOF: &[u8] = include_bytes!("known/proof");

/// Messages 1 and 2 of a batch of 5, for `seller-1@factory` on the channel `/dates`.
fn said(message: &[u8]) -> Statement<'_> {
    Statement {
        channel: Some("/dates"),
        qos: "priority=7",
        receivers: &["seller-1@factory"],
        message,
    }
}

#[test]
fn a_proof_of_an_earlier_program_is_believed() {
    let platform = PlatformName::new("factory").unwrap();
    let trust = Trust::new(platform.clone(), &[ROOT.to_vec().into()], Duration::ZERO).unwrap();
    let proof = Proof::decode(PROOF).unwrap();
    assert_eq!(proof.time(), NOW);
    assert_eq!(proof.numbers(), 1..3);
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
    let mut judge = |messages: [&[u8]; 2]| {
        let statements = messages.map(|message| said(message).hash());
        verifier.verify(&author, &proof, &statements, years_later)
    };
    assert_eq!(judge([b"message 1", b"message 2"]), Ok(()));
    assert!(judge([b"message 2", b"message 1"]).is_err());
}
