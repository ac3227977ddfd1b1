//! The same message for the libraries that are compared with Sealbus.

use quick_xml::events::Event;
use quick_xml::reader::Reader;
use sealbus_fipa::{AclMessage, Aid, Expression};
use serde::{Deserialize, Serialize};

/// An AID for `serde_json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SerdeAid {
    name: String,
    addresses: Vec<String>,
}

/// A message for `serde_json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SerdeMessage {
    performative: String,
    sender: Option<SerdeAid>,
    receivers: Vec<SerdeAid>,
    reply_to: Vec<SerdeAid>,
    content: Option<String>,
    language: Option<String>,
    ontology: Option<String>,
    protocol: Option<String>,
    conversation_id: Option<String>,
    reply_with: Option<String>,
    in_reply_to: Option<String>,
}

/// An AID for `prost`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProstAid {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    addresses: Vec<String>,
}

/// A message for `prost`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProstMessage {
    #[prost(uint32, tag = "1")]
    performative: u32,
    #[prost(message, optional, tag = "2")]
    sender: Option<ProstAid>,
    #[prost(message, repeated, tag = "3")]
    receivers: Vec<ProstAid>,
    #[prost(message, repeated, tag = "4")]
    reply_to: Vec<ProstAid>,
    #[prost(string, optional, tag = "5")]
    content: Option<String>,
    #[prost(string, optional, tag = "6")]
    language: Option<String>,
    #[prost(string, optional, tag = "7")]
    ontology: Option<String>,
    #[prost(string, optional, tag = "8")]
    protocol: Option<String>,
    #[prost(string, optional, tag = "9")]
    conversation_id: Option<String>,
    #[prost(string, optional, tag = "10")]
    reply_with: Option<String>,
    #[prost(string, optional, tag = "11")]
    in_reply_to: Option<String>,
}

fn text(value: &Option<Expression>) -> Option<String> {
    value
        .as_ref()
        .and_then(Expression::as_str)
        .map(str::to_owned)
}

impl From<&Aid> for SerdeAid {
    fn from(aid: &Aid) -> Self {
        Self {
            name: aid.name.clone(),
            addresses: aid.addresses.clone(),
        }
    }
}

impl From<&AclMessage> for SerdeMessage {
    fn from(message: &AclMessage) -> Self {
        Self {
            performative: message.performative.as_str().to_owned(),
            sender: message.sender.as_ref().map(SerdeAid::from),
            receivers: message.receivers.iter().map(SerdeAid::from).collect(),
            reply_to: message.reply_to.iter().map(SerdeAid::from).collect(),
            content: message.content_text().map(str::to_owned),
            language: text(&message.language),
            ontology: text(&message.ontology),
            protocol: message.protocol.clone(),
            conversation_id: text(&message.conversation_id),
            reply_with: text(&message.reply_with),
            in_reply_to: text(&message.in_reply_to),
        }
    }
}

impl From<&Aid> for ProstAid {
    fn from(aid: &Aid) -> Self {
        Self {
            name: aid.name.clone(),
            addresses: aid.addresses.clone(),
        }
    }
}

impl From<&AclMessage> for ProstMessage {
    fn from(message: &AclMessage) -> Self {
        Self {
            performative: u32::from(message.performative.code()),
            sender: message.sender.as_ref().map(ProstAid::from),
            receivers: message.receivers.iter().map(ProstAid::from).collect(),
            reply_to: message.reply_to.iter().map(ProstAid::from).collect(),
            content: message.content_text().map(str::to_owned),
            language: text(&message.language),
            ontology: text(&message.ontology),
            protocol: message.protocol.clone(),
            conversation_id: text(&message.conversation_id),
            reply_with: text(&message.reply_with),
            in_reply_to: text(&message.in_reply_to),
        }
    }
}

/// Parses XML completely, and does nothing with the result.
pub(super) fn pass_over_xml(bytes: &[u8]) -> usize {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let mut reader = Reader::from_str(text);
    let mut events = 0;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) | Err(_) => return events,
            Ok(_) => events += 1,
        }
    }
}
