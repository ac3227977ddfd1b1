//! Any bytes on a platform's own sockets, in two pieces: an error, or frames whose bodies are requests or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_control::admin::AdminRequest;
use sealbus_control::attachment::AttachmentRequest;
use sealbus_control::enrolment::EnrolmentRequest;
use sealbus_control::node::MasterRequest;
use sealbus_control::rpc::{Decoder, Frame};

fuzz_target!(|bytes: &[u8]| {
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut decoder = Decoder::new(65_536);
    for piece in [first, rest] {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(Frame::Call { body, .. } | Frame::Notice { body })) => {
                    let _ = serde_json::from_str::<AttachmentRequest>(body.get());
                    let _ = serde_json::from_str::<EnrolmentRequest>(body.get());
                    let _ = serde_json::from_str::<MasterRequest>(body.get());
                    let _ = serde_json::from_str::<AdminRequest>(body.get());
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
