//! Any set of keys, and any token: nothing is granted, because nobody signed it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_callers::token::{Expected, KeySet};

const KEYS: &[u8] = br#"{"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

fuzz_target!(|bytes: &[u8]| {
    let expected = Expected {
        issuer: "joe",
        resource: "https://tea.example",
        certificate: None,
    };
    let text = String::from_utf8_lossy(bytes);
    let (set, token) = text.split_once('\n').unwrap_or((&text, &text));
    if let Ok(keys) = KeySet::read(KEYS) {
        assert!(keys.check(token, &expected).is_err());
    }
    if let Ok(keys) = KeySet::read(set.as_bytes()) {
        // A set of the fuzzer's own may have a key that verifies what it signed; it must not panic.
        let _ = keys.check(token, &expected);
    }
});
