//! Any text as the address of an object: an error, or ways to an object that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_giop::cdr::Decoder;
use sealbus_giop::{Ior, ObjectAddress};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ior) = Decoder::encapsulated(bytes).and_then(|mut it| Ior::decode(&mut it)) {
        for profile in ior.iiop_profiles() {
            let _ = profile.code_sets();
            let written = profile.to_profile(Default::default());
            let again = sealbus_giop::IiopProfile::of(&written).expect("for IIOP");
            assert_eq!(again.expect("it was written"), profile);
        }
        if let Ok((again, _)) = Ior::from_text(&ior.to_string()) {
            assert_eq!(again, ior);
        }
    }
    let Ok(address) = String::from_utf8_lossy(bytes).parse::<ObjectAddress>() else {
        return;
    };
    for profile in address.endpoints() {
        let corbaloc = ObjectAddress::corbaloc(profile);
        let Ok(again) = corbaloc.parse::<ObjectAddress>() else {
            assert!(corbaloc.len() > 1000);
            continue;
        };
        assert_eq!(again.endpoints()[0].key, profile.key);
    }
});
