//! Any bytes, as DER and as PEM: an error, or a request whose proof of possession was checked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_seal::SigningRequest;

fuzz_target!(|bytes: &[u8]| {
    let _ = SigningRequest::parse(bytes);
    if let Ok(der) = SigningRequest::from_pem(bytes) {
        assert!(SigningRequest::parse(&der).is_ok());
    }
});
