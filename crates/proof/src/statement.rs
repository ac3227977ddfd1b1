//! The bytes that an author signs. Each field has a length before it, so that two different statements never have the
//! same bytes.

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_seal::{Fingerprint, PlatformName, SecurityLevel, Serial};
use sealbus_transparency::{Hash, leaf_hash};

/// The first bytes of a message's statement. They set it apart from every other kind of statement.
const MESSAGE_CONTEXT: &[u8] = b"sealbus message v1\0";
/// The first bytes of a batch's statement.
const BATCH_CONTEXT: &[u8] = b"sealbus batch v1\0";

/// An author's statement about one message.
///
/// The author, its certificate, the platform, the level, the time and the message's number are the same for a whole
/// [batch](crate::Batch) or follow from it. They are signed with the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The channel, such as `/dates/business`; `None` for a direct message.
    pub channel: Option<&'a str>,
    /// The quality of service, in the text form of addresses; empty for the default.
    pub qos: &'a str,
    /// The agents that the message is for, as its envelope names them (`:intended-receiver`, FIPA00067 section 2.2);
    /// none for an event to all subscribers.
    pub receivers: &'a [&'a str],
    /// The message, encoded bit-efficiently (FIPA00069).
    pub message: &'a [u8],
}

impl Statement<'_> {
    /// The hash of the statement of a direct message to one agent.
    pub fn direct(receiver: &str, message: &[u8]) -> Hash {
        let statement = Statement {
            channel: None,
            qos: "",
            receivers: &[receiver],
            message,
        };
        statement.hash()
    }

    /// The hash of the statement as a leaf of the batch's tree.
    ///
    /// The statement contains the SHA-256 of the message, not the message: a verifier that has only this hash learns the
    /// other fields and nothing of the message.
    pub fn hash(&self) -> Hash {
        let mut bytes = Vec::with_capacity(160);
        self.encode(&mut bytes);
        leaf_hash(&bytes)
    }

    /// Appends the statement's bytes, as docs/evidence.md describes them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MESSAGE_CONTEXT);
        match self.channel {
            None => out.push(0),
            Some(channel) => {
                out.push(1);
                put(out, channel.as_bytes());
            }
        }
        put(out, self.qos.as_bytes());
        put_number(out, self.receivers.len() as u64);
        for receiver in self.receivers {
            put(out, receiver.as_bytes());
        }
        out.extend_from_slice(digest(&SHA256, self.message).as_ref());
    }
}

/// The content of one signature: the root of a batch's tree, and the facts that all messages of the batch share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchStatement<'a> {
    pub(crate) platform: &'a PlatformName,
    pub(crate) level: SecurityLevel,
    /// The author's name, such as `seller-1@factory`.
    pub(crate) author: &'a str,
    pub(crate) serial: Serial,
    pub(crate) certificate: Fingerprint,
    /// When it was signed, by the author's clock: milliseconds since 1970.
    pub(crate) time: u64,
    /// The number of the first message.
    pub(crate) first: u64,
    pub(crate) size: u16,
    pub(crate) root: Hash,
}

impl BatchStatement<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(224);
        out.extend_from_slice(BATCH_CONTEXT);
        out.push(self.level.code());
        put(&mut out, self.platform.as_str().as_bytes());
        put(&mut out, self.author.as_bytes());
        out.extend_from_slice(self.serial.as_bytes());
        out.extend_from_slice(self.certificate.as_bytes());
        put_number(&mut out, self.time);
        put_number(&mut out, self.first);
        put_number(&mut out, u64::from(self.size));
        out.extend_from_slice(&self.root);
        out
    }
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put(out: &mut Vec<u8>, field: &[u8]) {
    put_number(out, field.len() as u64);
    out.extend_from_slice(field);
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = "c4cf64bf9963f639c6e3a533cc3bebec17c6f6a9a4ed63de134b1cb000296354";
    const DIRECT: &str = "361117b2bb71201483fd6597e3f1fa183cea010c48cde8036274cf4eab9ae708";
    const BATCH: &str = "ea8d3abcfc6765b8161d6bbb72937d60de34f416420eb7a0186ac0312a05773d";

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The expected values were computed with Python's hashlib from docs/evidence.md.
    #[test]
    fn known_answers() {
        let event = Statement {
            channel: Some("/dates/business"),
            qos: "at-least-once,priority=7",
            receivers: &[],
            message: b"hello",
        };
        assert_eq!(hexadecimal(&event.hash()), EVENT);
        let direct = Statement {
            channel: None,
            qos: "",
            receivers: &["seller-1@factory", "seller-2@factory"],
            message: &[],
        };
        assert_eq!(hexadecimal(&direct.hash()), DIRECT);
        let batch = BatchStatement {
            platform: &PlatformName::new("factory").unwrap(),
            level: SecurityLevel::Signed,
            author: "buyer-1@factory",
            serial: Serial::from_bytes([1; 16]),
            certificate: Fingerprint::from_bytes([2; 32]),
            time: 1_795_000_000_123,
            first: 7,
            size: 64,
            root: [3; 32],
        };
        let hash = digest(&SHA256, &batch.encode());
        assert_eq!(hexadecimal(hash.as_ref()), BATCH);
    }
}
