//! Envelopes in AMQP: the meaning of each property.

use std::sync::Arc;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use sealbus_bus::RefusalReason;

use super::names;
use crate::config::BrokerPromise;
use crate::envelope::{BrokerDelivery, BrokerEnvelope, Kind, Receiver};
use crate::stamp::OrderStamp;

/// The delivery mode of a message that the broker keeps on disk.
const PERSISTENT: u8 = 2;
/// The delivery mode of a message that the broker keeps in memory.
const TRANSIENT: u8 = 1;
/// The header that names the agent that wrote a frame. Without it the process wrote the frame.
const AUTHOR: &str = "author";
/// The header with the author's proof.
const PROOF: &str = "proof";
/// The header with the evidence that the author wrote the message or the frame.
const EVIDENCE: &str = "evidence";
/// The header with the process. It counts at the levels at which the broker does not prove the process.
const PROCESS: &str = "process";
/// The header with the reason for which a frame is sent back.
const REASON: &str = "reason";
/// The header with the same reason for people.
const TEXT: &str = "text";
/// The property `type` of a frame.
const KIND_FRAME: &str = "frame";
/// The property `type` of a refused frame that is sent back.
const KIND_REFUSED: &str = "refused";

/// The exchange and the routing key that lead an envelope to its queue.
pub(super) fn address(to: &Receiver) -> (&'static str, String) {
    match to {
        Receiver::Agent(name) => (names::MESSAGES, name.to_string()),
        Receiver::Process(number) => (names::CHANNELS, names::key_of_process(number)),
    }
}

/// The properties of an envelope that `user` publishes.
pub(super) fn write(
    envelope: &BrokerEnvelope,
    user: &str,
    promise: BrokerPromise,
) -> BasicProperties {
    let mut properties = BasicProperties::default()
        .with_delivery_mode(match promise {
            BrokerPromise::Durable => PERSISTENT,
            BrokerPromise::Transient => TRANSIENT,
        })
        .with_user_id(user.into())
        .with_message_id(envelope.stamp.to_string().into());
    if let Some(life) = envelope.life {
        properties = properties.with_expiration(life.as_millis().to_string().into());
    }
    let mut headers = FieldTable::default();
    let mut put = |name: &str, value: &[u8]| {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    };
    if let Some(process) = &envelope.process {
        put(PROCESS, process.as_bytes());
    }
    if let Some(author) = &envelope.author {
        put(AUTHOR, author.as_bytes());
    }
    if let Some(proof) = &envelope.proof {
        put(PROOF, proof);
    }
    if let Some(evidence) = &envelope.evidence {
        put(EVIDENCE, evidence);
    }
    let kind = match &envelope.kind {
        Kind::Message => {
            let properties = properties.with_content_type(names::ACL_MESSAGE.into());
            return match envelope.evidence {
                Some(_) => properties.with_headers(headers),
                None => properties,
            };
        }
        Kind::Frame => KIND_FRAME,
        Kind::Refused {
            reason,
            explanation,
        } => {
            put(REASON, reason.as_str().as_bytes());
            put(TEXT, explanation.as_bytes());
            KIND_REFUSED
        }
    };
    properties
        .with_content_type(names::FRAME.into())
        .with_type(kind.into())
        .with_headers(headers)
}

/// Reads a delivery.
pub(super) fn read(delivery: lapin::message::Delivery) -> BrokerDelivery {
    let properties = &delivery.properties;
    let headers = properties.headers().as_ref();
    let header = |name: &str| match headers?.inner().get(name)? {
        // Clients of other makes write bytes that are no text in the other form.
        AMQPValue::LongString(text) => Some(text.as_bytes()),
        AMQPValue::ByteArray(bytes) => Some(bytes.as_slice()),
        _ => None,
    };
    let text = |name| header(name).and_then(|bytes| str::from_utf8(bytes).ok());
    let stamp = properties.message_id().as_ref();
    let refused = || {
        let reason = text(REASON)?;
        let mut reasons = RefusalReason::ALL.into_iter();
        Some(Kind::Refused {
            reason: reasons.find(|it| it.as_str() == reason)?,
            explanation: text(TEXT)?.into(),
        })
    };
    BrokerDelivery {
        tag: delivery.delivery_tag,
        from: properties
            .user_id()
            .as_ref()
            .map(|user| user.as_str().to_owned()),
        stamp: stamp.and_then(|id| OrderStamp::parse(id.as_str())),
        kind: match properties.kind().as_ref().map(|kind| kind.as_str()) {
            None => Some(Kind::Message),
            Some(KIND_FRAME) => Some(Kind::Frame),
            Some(KIND_REFUSED) => refused(),
            Some(_) => None,
        },
        process: text(PROCESS).map(Arc::from),
        author: text(AUTHOR).map(Arc::from),
        proof: header(PROOF).map(Bytes::copy_from_slice),
        evidence: header(EVIDENCE).map(Bytes::copy_from_slice),
        payload: delivery.data.into(),
    }
}
