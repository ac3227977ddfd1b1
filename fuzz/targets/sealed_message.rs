//! Any bytes: as a message that an agent opens, an error, or what was sealed; as a message to seal, it opens as it was, and
//! not for another agent.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use sealbus_bus::{
    NotOpened, Opened, OpenedRow, OpenedRows, SealedEnvelope, SealedRow, SentRows, SessionNumber,
    aid_of,
};
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_fipa::{AclMessage, Limits, bitefficient};
use sealbus_seal::encryption::EncryptionKey;

const BEN: &str = "ben@factory";

static KEY: LazyLock<Arc<EncryptionKey>> =
    LazyLock::new(|| Arc::new(EncryptionKey::generate().expect("a key")));

fn opened(rows: &mut OpenedRows, outer: &[u8], receiver: &str) -> Result<Opened, NotOpened> {
    let outer = EncodedMessage::new(outer, &Limits::default()).expect("an encoded message");
    rows.open(&outer.message(), receiver, Instant::now(), |_| {
        Ok(KEY.clone())
    })
}

fuzz_target!(|bytes: &[u8]| {
    let _ = SealedEnvelope::parse(bytes);
    let _ = OpenedRow::decode(bytes, BEN);
    let _ = SentRows::default().whole(bytes.to_vec().into());
    let Ok(message) = bitefficient::decode_ref(bytes, &Limits::default()) else {
        return;
    };
    let mut rows = OpenedRows::default();
    assert!(opened(&mut rows, bytes, BEN).is_err());
    let mut message: AclMessage = message.to_owned();
    message.sender = Some(aid_of("ann@factory"));
    let now = Instant::now();
    let mut row = SealedRow::begin(KEY.public(), "ann@factory", BEN, now).expect("a secret");
    let mut sent = SentRows::default();
    sent.note(&row);
    let mut encoded = Vec::new();
    // With the row's secret, then without it.
    for _ in 0..2 {
        let Ok(outer) = row.seal(&message) else {
            return;
        };
        outer.went_over(SessionNumber::next());
        for outer in [
            outer.bytes(),
            &sent.whole(outer.bytes().clone()).expect("its secret"),
        ] {
            let found = opened(&mut rows, outer, BEN).expect("its own message opens");
            let found = found.message.message().to_owned();
            encoded.clear();
            bitefficient::encode(&found, &mut encoded).expect("it was encoded before");
            let mut said = Vec::new();
            bitefficient::encode(&message, &mut said).expect("it was encoded before");
            assert_eq!(encoded, said);
            assert!(opened(&mut rows, outer, "cleo@factory").is_err());
        }
    }
});
