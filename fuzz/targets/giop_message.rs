//! Any bytes on a connection: an error, or messages that are written and read back as themselves.
#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use sealbus_giop::mts::FipaMessage;
use sealbus_giop::{Assembler, AssemblyLimits, Header, Ior, Message, SystemException};

fuzz_target!(|bytes: &[u8]| {
    let limits = AssemblyLimits::of_messages(16 << 10);
    let mut assembler = Assembler::new(limits);
    for piece in bytes.chunks(1000) {
        assembler.push(piece);
        loop {
            // After an error, the connection ends.
            let Ok(next) = assembler.next_message(Instant::now()) else {
                return;
            };
            let Some(whole) = next else {
                break;
            };
            let (version, order) = (whole.header.version, whole.header.order);
            let Ok(Message::Request(request, body)) = Message::decode(&whole.header, &whole.bytes)
            else {
                continue;
            };
            let _ = SystemException::decode(&mut body.decoder());
            let _ = Ior::decode(&mut body.decoder());
            let _ = sealbus_giop::CodeSets::find(&request.contexts);
            let Ok(message) = FipaMessage::decode(&mut body.decoder()) else {
                continue;
            };
            let written = request.encode(version, order, |out| message.encode(out));
            let header = written
                .first_chunk()
                .and_then(Header::read)
                .expect("a header");
            let Ok(Message::Request(again, body)) = Message::decode(&header, &written) else {
                panic!("what was written is a request");
            };
            // Before 1.2 there is only the key.
            assert_eq!(again.operation, request.operation);
            let again = FipaMessage::decode(&mut body.decoder()).expect("it was written");
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
        }
        assert!(assembler.waiting() <= 2 * limits.message + 1000);
    }
});
