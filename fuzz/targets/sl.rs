//! Any bytes: an error, or content that is written in one way and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_fipa::sl::{Content, Term};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(content) = Content::parse(bytes, &Limits::DEFAULT) {
        let written = content.to_bytes();
        let read = Content::parse(&written, &Limits::DEFAULT);
        assert_eq!(read.as_ref(), Ok(&content));
        assert_eq!(read.map(|content| content.to_bytes()), Ok(written));
        assert!(content.check(content.profile()).is_ok());
        assert_eq!(content.clone().into_owned(), content);
    }
    if let Ok(term) = Term::parse(bytes, &Limits::DEFAULT) {
        assert_eq!(
            Term::parse(&term.to_bytes(), &Limits::DEFAULT).as_ref(),
            Ok(&term)
        );
    }
});
