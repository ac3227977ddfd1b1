//! Any body of a request, and any query: an error with a code, or parameters within the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_a2a::push::PushConfig;
use sealbus_a2a::wire::{Call, ListTasks, OneConfig, OneTask, SendMessageRequest, read};

fuzz_target!(|bytes: &[u8]| {
    match Call::read(bytes) {
        Ok(call) => {
            let sent = read::<SendMessageRequest>(call.params.clone());
            if let Err(fault) = sent.and_then(|request| request.check()) {
                assert!(fault.to_rpc()["code"].is_i64());
            }
            let _ = read::<OneTask>(call.params.clone());
            let _ = read::<OneConfig>(call.params.clone());
            if let Ok(config) = read::<PushConfig>(call.params.clone()) {
                let _ = config.check("");
            }
            let _ = read::<ListTasks>(call.params);
        }
        Err((_, fault)) => assert!(fault.to_rest().0.is_client_error()),
    }
    if let Ok(list) = ListTasks::from_query(&String::from_utf8_lossy(bytes)) {
        if let Ok(page) = list.page() {
            assert!((1..=100).contains(&page));
        }
        let _ = (list.token(), list.after());
    }
});
