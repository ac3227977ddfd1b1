//! Any bytes as a request over gRPC: an error, or parameters that the other bindings could have brought.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_a2a::proto::OPERATIONS;
use sealbus_a2a::wire::{SendMessage, read};

fuzz_target!(|bytes: &[u8]| {
    for operation in OPERATIONS {
        if let Ok(params) = operation.read(bytes)
            && operation.name == "SendMessage"
            && let Ok(request) = read::<SendMessage>(params.into())
        {
            let _ = request.check();
        }
    }
});
