//! Any text as an address of another platform: an error, or addresses whose hosts a request can name. One of HTTP is written
//! as one that is read as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_gateways::Address;

fuzz_target!(|text: &str| {
    for address in Address::read(text).unwrap_or_default() {
        let Address::Http(http) = &address else {
            continue;
        };
        let written = http.to_string();
        assert!(written.bytes().all(|byte| byte.is_ascii_graphic()));
        // With a port and a path that were left out, it may be longer than an address can be.
        if written.len() <= text.len() {
            assert_eq!(Address::read(&written), Ok(vec![address]));
        }
    }
});
