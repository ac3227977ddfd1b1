//! Any bytes as the proof that a certificate is in the issuance log, alone and behind a chain: an error, or a proof that
//! is written back as it was, and that convinces nobody.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CertificateChain, Identity, KeyPair, LONGEST_INCLUSION, PlatformName, RootAuthority,
    SigningRequest, Timestamp, Validity,
};
use sealbus_transparency::Inclusion;

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

/// A certificate that no log has.
static CHAIN: LazyLock<CertificateChain> = LazyLock::new(|| {
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
    authority
        .issue(&grant, &request, validity)
        .expect("a certificate")
        .chain
});

fuzz_target!(|bytes: &[u8]| {
    if let Some(proof) = Inclusion::decode(bytes) {
        assert_eq!(proof.encode(), bytes);
        assert!(proof.check(&CHAIN).is_err());
    }
    let Ok(chain) = CHAIN.clone().with_inclusion(bytes.to_vec()) else {
        assert!(bytes.len() > LONGEST_INCLUSION);
        return;
    };
    let mut wire = Vec::new();
    chain.encode(&mut wire);
    let (again, rest) = CertificateChain::decode_prefix(&wire).expect("its own form");
    assert_eq!((&again, rest.len()), (&chain, 0));
});
