//! Any text: an error, or a token that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_seal::token::Token;

fuzz_target!(|text: &str| {
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string().parse().as_ref(), Ok(&token));
    }
});
