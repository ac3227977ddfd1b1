//! The platform's notices about messages that were not delivered.

use sealbus_bus::Provenance;
use sealbus_fipa::sl::Content;
use sealbus_fipa::{Limits, Performative};
use sealbus_management::client::undelivered;

use crate::message::Message;

/// The platform's notice that a message was not delivered to one of its receivers (FIPA00067).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// The receiver that did not get the message.
    pub receiver: String,
    /// The reason.
    pub reason: String,
}

impl Undelivered {
    /// Reads a message as such a notice. Returns `None` if it is another message. Only notices from the platform itself
    /// count, so that no agent can make another believe that its messages are lost.
    pub fn read(message: &Message) -> Option<Undelivered> {
        if !matches!(message.provenance(), Provenance::Platform)
            || message.performative != Performative::Failure
        {
            return None;
        }
        let content = Content::parse(message.content_bytes()?, &Limits::default()).ok()?;
        let (receiver, reason) = undelivered(&content)?;
        Some(Undelivered {
            receiver: receiver.name,
            reason,
        })
    }
}
