//! Any bytes: as a message that an agent opens, an error, or what was sealed; as a message to seal, it opens as it was, and
//! not for another agent.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sealbus_bus::{Envelope, Opened, SealedRow, aid_of, open_sealed};
use sealbus_fipa::{AclMessage, Limits, bitefficient};
use sealbus_seal::encryption::EncryptionKey;

const BEN: &str = "ben@factory";

static KEY: LazyLock<EncryptionKey> = LazyLock::new(|| EncryptionKey::generate().expect("a key"));

fn opened(outer: &AclMessage, receiver: &str) -> Result<Opened, String> {
    let secret = |envelope: &Envelope<'_>, sender: &str| {
        let opening = envelope.opening(&KEY, sender, receiver);
        opening.map_err(|error| error.to_string())
    };
    open_sealed(&outer.view(), secret).map(|(opened, _)| opened)
}

fuzz_target!(|bytes: &[u8]| {
    let _ = Envelope::parse(bytes);
    let Ok(message) = bitefficient::decode_ref(bytes, &Limits::default()) else {
        return;
    };
    let mut message = message.to_owned();
    assert!(opened(&message, BEN).is_err());
    message.sender = Some(aid_of("ann@factory"));
    let mut row = SealedRow::begin(KEY.public(), "ann@factory", BEN).expect("a secret");
    let Ok(outer) = row.seal(&message) else {
        return;
    };
    let found = opened(&outer, BEN).expect("its own message opens");
    let mut encoded = Vec::new();
    bitefficient::encode(&message, &mut encoded).expect("it was encoded before");
    assert_eq!(found.message.bytes(), &encoded);
    assert!(opened(&outer, "cleo@factory").is_err());
});
