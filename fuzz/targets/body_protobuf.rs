//! Any bytes as a protobuf body: an error, or a message that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus::body::{Protobuf, WithBody};
use sealbus::{AclMessage, Performative};

#[derive(Clone, PartialEq, prost::Message)]
struct Task {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(int64, repeated, tag = "2")]
    hours: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    parts: Vec<Task>,
}

impl prost::Name for Task {
    const NAME: &'static str = "Task";
    const PACKAGE: &'static str = "factory.v1";
}

fuzz_target!(|bytes: &[u8]| {
    let message = AclMessage::new(Performative::Request).with_content(bytes);
    match message.body::<Protobuf<Task>>() {
        Ok(task) => {
            let again = AclMessage::new(Performative::Request).with_body(&task);
            assert_eq!(again.and_then(|message| message.body()), Ok(task));
        }
        Err(error) => assert!(error.to_string().len() < 2000),
    }
});
