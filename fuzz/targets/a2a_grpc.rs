//! Any bytes over gRPC: as a request, an error or parameters that the other bindings could have brought; as the body of an answer,
//! messages that are told as those of the other bindings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_a2a::frames::first;
use sealbus_a2a::neighbour::answer::Told;
use sealbus_a2a::proto::{OPERATIONS, reason};
use sealbus_a2a::wire::{SendMessageRequest, read};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((message, after))) = first(rest, 1 << 16) {
        assert!(message.len() <= 1 << 16 && after.len() < rest.len());
        for operation in OPERATIONS {
            if let Ok(answer) = operation.read_answer(message) {
                let _ = Told::read(answer.clone().into());
                let _ = Told::task(answer.into());
            }
        }
        rest = after;
    }
    let _ = reason(bytes);
    for operation in OPERATIONS {
        if let Ok(params) = operation.read(bytes)
            && operation.name == "SendMessage"
            && let Ok(request) = read::<SendMessageRequest>(params.into())
        {
            let _ = request.check();
        }
    }
});
