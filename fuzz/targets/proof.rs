//! Any bytes as a proof, and as the evidence of a message: an error, or a proof that is written back as it was and
//! convinces nobody. The same for delegations.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_proof::{BatchKeyDelegation, Evidence, LONGEST_PROOF, NotProved, Proof, Verifier};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CertificateChain, Identity, KeyPair, PlatformName, RootAuthority, SecurityLevel,
    SigningRequest, Timestamp, Trust, Validity, VerifiedIdentity,
};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

/// An agent whose key nobody has any more, and the trust that proves it.
static AUTHOR: LazyLock<(VerifiedIdentity, Trust)> = LazyLock::new(|| {
    let platform = PlatformName::new("factory").expect("a legal name");
    let validity = Validity::starting(NOW, Duration::from_secs(86_400));
    let root = RootAuthority::create(&platform, validity).expect("a root");
    let authority = root.create_authority("ca", validity).expect("a CA");
    let identity = Identity::agent(&platform, "a").expect("a legal name");
    let request = KeyPair::generate()
        .expect("a key")
        .signing_request()
        .expect("a request");
    let request = SigningRequest::parse(&request).expect("its own request");
    let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let chain: CertificateChain = authority
        .issue(&grant, &request, validity)
        .expect("a certificate")
        .chain;
    let trust =
        Trust::new(platform, &[root.certificate().clone()], Duration::ZERO).expect("its trust");
    let author = trust.verify(&chain, NOW).expect("a proved identity");
    (author, trust)
});

fuzz_target!(|bytes: &[u8]| {
    let (author, trust) = &*AUTHOR;
    let now = NOW.as_unix_seconds() * 1000;
    assert!(Evidence::decode(bytes, [7; 32], SecurityLevel::Signed, trust, now).is_err());
    if let Ok(delegation) = BatchKeyDelegation::decode(bytes) {
        let mut again = Vec::new();
        delegation.encode(&mut again);
        assert_eq!(again, bytes);
    }
    let Ok(proof) = Proof::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    proof.encode(&mut again);
    assert_eq!(again, bytes);
    assert!(bytes.len() <= LONGEST_PROOF);
    assert_eq!(proof.length(), bytes.len());
    let mut verifier = Verifier::new(author.identity().platform().clone(), proof.level());
    let judged = verifier.verify(author, &proof, &[7; 32], now);
    assert!(judged.is_err());

    // The same bytes with the author's serial number and a good time: only the delegation is wrong.
    let mut bent = bytes.to_vec();
    let time = 2 + proof.delegation().length();
    bent[time..time + 8].copy_from_slice(&now.to_be_bytes());
    bent[time + 12..time + 28].copy_from_slice(author.serial().as_bytes());
    let bent = Proof::decode(&bent).expect("the fields have any value");
    let judged = verifier.verify(author, &bent, &[7; 32], now);
    assert!(matches!(judged, Err(NotProved::NotDelegated { .. })));
    let other = [SecurityLevel::Signed, SecurityLevel::Sealed]
        .into_iter()
        .find(|level| *level != proof.level());
    let mut elsewhere = Verifier::new(
        author.identity().platform().clone(),
        other.expect("another level"),
    );
    let judged = elsewhere.verify(author, &bent, &[7; 32], now);
    assert!(matches!(judged, Err(NotProved::OtherLevel { .. })));
});
