//! Any bytes behind the beginning of a deny list: never one that a trusted authority signed.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealbus_seal::{IssuingAuthority, PlatformName, RootAuthority, Timestamp, Trust, Validity};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);
const CONTEXT: &[u8] = b"sealbus deny list v2\0";

static TRUSTED: LazyLock<(Trust, IssuingAuthority)> = LazyLock::new(|| {
    let platform = PlatformName::new("factory").expect("a legal name");
    let validity = Validity::starting(NOW, Duration::from_secs(86_400));
    let root = RootAuthority::create(&platform, validity).expect("a root");
    let authority = root
        .create_authority("ca-1", validity)
        .expect("an authority");
    let trust = Trust::new(platform, &[root.certificate().clone()], Duration::ZERO);
    (trust.expect("its trust"), authority)
});

fuzz_target!(|bytes: &[u8]| {
    let (trust, authority) = &*TRUSTED;
    assert!(trust.apply_deny_list(bytes, NOW).is_err());
    assert!(trust.open_kept_deny_list(bytes, None).is_err());
    // With a trusted chain in place the parser goes on into the entries.
    let mut begun = CONTEXT.to_vec();
    authority.chain().encode(&mut begun);
    begun.extend_from_slice(bytes);
    assert!(trust.apply_deny_list(&begun, NOW).is_err());
    assert!(trust.open_kept_deny_list(&begun, None).is_err());
});
