//! Any bytes on a platform's own sockets, in two pieces: an error, or frames whose bodies are requests, answers, notices, or
//! none of these. And the same bytes as a node's word to a Master, or as the reply. A value that was read is written so that it is read again as it was.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use sealbus_control::admin::{AdminAnswer, AdminRequest};
use sealbus_control::attachment::{AttachmentAnswer, AttachmentNotice, AttachmentRequest};
use sealbus_control::authority::{AuthorityAnswer, AuthorityRequest};
use sealbus_control::enrolment::{EnrolmentAnswer, EnrolmentRequest};
use sealbus_control::node::{MasterAnswer, MasterRequest, NodeAnswer, NodeRequest};
use sealbus_control::rpc::{Decoder, Frame};
use sealbus_control::traffic::{ProcessAnswer, ProcessRequest};
use sealbus_control::word::{Reply, Word};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(text: &str) {
    if let Ok(value) = serde_json::from_str::<T>(text) {
        let written = serde_json::to_string(&value).expect("it has a form");
        let again = serde_json::from_str::<T>(&written).ok();
        assert_eq!(again.as_ref(), Some(&value));
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = str::from_utf8(bytes) {
        read::<Word>(text);
        read::<Reply>(text);
    }
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut decoder = Decoder::new(65_536);
    for piece in [first, rest] {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(Frame::Call { body, .. } | Frame::Notice { body })) => {
                    read::<AttachmentRequest>(body.get());
                    read::<AttachmentNotice>(body.get());
                    read::<EnrolmentRequest>(body.get());
                    read::<MasterRequest>(body.get());
                    read::<NodeRequest>(body.get());
                    read::<AuthorityRequest>(body.get());
                    read::<ProcessRequest>(body.get());
                    read::<AdminRequest>(body.get());
                }
                Ok(Some(Frame::Answer { body, .. })) => {
                    read::<AttachmentAnswer>(body.get());
                    read::<EnrolmentAnswer>(body.get());
                    read::<MasterAnswer>(body.get());
                    read::<NodeAnswer>(body.get());
                    read::<AuthorityAnswer>(body.get());
                    read::<ProcessAnswer>(body.get());
                    read::<AdminAnswer>(body.get());
                }
                Ok(Some(Frame::Fault { .. })) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
