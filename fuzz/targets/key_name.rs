//! Any text as the name of a key in a token: an error, or a name that is read from its own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_pkcs11::KeyName;

fuzz_target!(|text: &str| {
    if let Ok(name) = text.parse::<KeyName>() {
        assert_eq!(name.as_str(), text);
        assert_eq!(name.to_string().parse(), Ok(name));
    }
});
