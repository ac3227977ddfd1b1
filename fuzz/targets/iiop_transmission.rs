//! Any bytes as the arguments of `message`: an error, or a transmission that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_fipa::Limits;
use sealbus_gateways::iiop::transmission;
use sealbus_giop::CodeSet;
use sealbus_giop::cdr::{ByteOrder, Decoder};
use sealbus_giop::mts::FipaMessage;

fuzz_target!(|bytes: &[u8]| {
    let decode = |bytes: &[u8]| FipaMessage::decode(&mut Decoder::new(bytes, 0, ByteOrder::Big));
    let Ok(message) = decode(bytes) else { return };
    let limits = Limits::DEFAULT;
    let _ = transmission::read(&message, CodeSet::Latin1, &limits);
    let Ok(read) = transmission::read(&message, CodeSet::Utf8, &limits) else {
        return;
    };
    let envelope = read.envelope.clone();
    let Ok(written) =
        transmission::write(envelope, &read.message, read.representation, CodeSet::Utf8)
    else {
        return;
    };
    // A revision may have named the receivers, and only the base is written.
    let Ok(again) = decode(&written) else {
        panic!("what was written is a message");
    };
    if let Ok(again) = transmission::read(&again, CodeSet::Utf8, &limits) {
        assert_eq!(
            format!("{:?}", again.message),
            format!("{:?}", read.message)
        );
    }
});
