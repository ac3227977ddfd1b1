//! Any bytes: an error, or a key for encryption that is written back as it was and is nobody's.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_seal::encryption::CertifiedEncryptionKey;
use sealbus_seal::{Identity, PlatformName, RootAuthority, Timestamp, Trust, Validity};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

static TRUST: LazyLock<(Identity, Trust)> = LazyLock::new(|| {
    let platform = PlatformName::new("factory").expect("a legal name");
    let day = Duration::from_secs(86_400);
    let root = RootAuthority::create(&platform, Validity::starting(NOW, day)).expect("a root");
    let agent = Identity::agent(&platform, "a").expect("a legal name");
    let roots = [root.certificate().clone()];
    let trust = Trust::new(platform, &roots, Duration::ZERO).expect("its trust");
    (agent, trust)
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(stated) = CertifiedEncryptionKey::decode(bytes) {
        let mut again = Vec::new();
        stated.encode(&mut again);
        assert_eq!(again, bytes);
        let (agent, trust) = &*TRUST;
        assert!(stated.verify(agent, trust, NOW).is_err());
    }
});
