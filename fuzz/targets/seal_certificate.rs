//! Any bytes, as a certificate and as a chain of them: an error, or a value that is written back as the same bytes.
//! Nothing that did not come from the one trusted root is believed.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_seal::{
    Certificate, CertificateChain, PlatformName, RootAuthority, Timestamp, Trust, Validity,
};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let platform = PlatformName::new("factory").expect("a legal name");
    let day = Duration::from_secs(86_400);
    let root = RootAuthority::create(&platform, Validity::starting(NOW, day)).expect("a root");
    Trust::new(platform, &[root.certificate().clone()], Duration::ZERO).expect("its trust")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(certificate) = Certificate::parse(bytes) {
        let uri = certificate.identity().to_string();
        assert_eq!(uri.parse().as_ref(), Ok(certificate.identity()));
    }
    if let Ok(chain) = CertificateChain::decode(bytes) {
        let mut again = Vec::new();
        chain.encode(&mut again);
        assert_eq!(again, bytes);
        assert!(TRUST.verify(&chain, NOW).is_err());
    }
});
