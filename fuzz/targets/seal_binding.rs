//! Any bytes: an error, or a binding that is written back as it was and proves nobody.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_seal::binding::{Binding, BoundConnection, Role};
use sealbus_seal::{PlatformName, RootAuthority, SecurityLevel, Timestamp, Trust, Validity};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let platform = PlatformName::new("factory").expect("a legal name");
    let day = Duration::from_secs(86_400);
    let root = RootAuthority::create(&platform, Validity::starting(NOW, day)).expect("a root");
    Trust::new(platform, &[root.certificate().clone()], Duration::ZERO).expect("its trust")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(binding) = Binding::decode(bytes) {
        let mut again = Vec::new();
        binding.encode(&mut again);
        assert_eq!(again, bytes);
        let channel = BoundConnection::with_exporter([0; 32], SecurityLevel::Auth, 1);
        assert!(binding.verify(&channel, Role::Client, &TRUST, NOW).is_err());
    }
});
