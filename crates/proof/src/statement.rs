//! The bytes that an author signs. Each field has a length before it, so that two different statements never have the
//! same bytes.

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_seal::{Fingerprint, PlatformName, SecurityLevel, Serial};
use sealbus_transparency::{Hash, leaf_hash, tree_root};

use crate::key::BatchPublicKey;

/// The first bytes of a message's statement. They set it apart from every other kind of statement.
const MESSAGE_CONTEXT: &[u8] = b"sealbus message v1\0";
/// The first bytes of a batch's statement.
const BATCH_CONTEXT: &[u8] = b"sealbus batch v2\0";
/// The first bytes of an author's entry in a batch.
const AUTHOR_CONTEXT: &[u8] = b"sealbus author v1\0";
/// The first bytes of a delegation's statement.
const DELEGATION_CONTEXT: &[u8] = b"sealbus delegation v1\0";

/// An author's statement about one message.
///
/// The author, its certificate, the platform, the level, the time and the message's number follow from the
/// [batch](crate::Batch), and are signed with it.
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
        // Most statements are short: no memory is taken for them. The first byte is that of a leaf.
        let mut short = [0; 256];
        let length = self.length();
        let Some(mut rest) = short.get_mut(1..=length) else {
            let mut bytes = Vec::with_capacity(length);
            self.encode(&mut bytes);
            return leaf_hash(&bytes);
        };
        self.write(|field| {
            // The length is that of all fields.
            if let Some((place, after)) =
                std::mem::take(&mut rest).split_at_mut_checked(field.len())
            {
                place.copy_from_slice(field);
                rest = after;
            }
        });
        sha256(&short[..=length])
    }

    /// Appends the statement's bytes, as docs/evidence.md describes them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(|field| out.extend_from_slice(field));
    }

    fn length(&self) -> usize {
        let channel = self.channel.map_or(0, |channel| 8 + channel.len());
        let receivers: usize = self.receivers.iter().map(|it| 8 + it.len()).sum();
        MESSAGE_CONTEXT.len() + 1 + channel + 8 + self.qos.len() + 8 + receivers + 32
    }

    /// Hands out the statement's bytes in their order.
    #[inline]
    fn write(&self, mut put: impl FnMut(&[u8])) {
        let number = |number: usize| (number as u64).to_be_bytes();
        put(MESSAGE_CONTEXT);
        match self.channel {
            None => put(&[0]),
            Some(channel) => {
                put(&[1]);
                put(&number(channel.len()));
                put(channel.as_bytes());
            }
        }
        put(&number(self.qos.len()));
        put(self.qos.as_bytes());
        put(&number(self.receivers.len()));
        for receiver in self.receivers {
            put(&number(receiver.len()));
            put(receiver.as_bytes());
        }
        put(&sha256(self.message));
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// The facts of an author's certificate that statements repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certified<'a> {
    pub(crate) platform: &'a PlatformName,
    /// The author's name, such as `seller-1@factory`.
    pub(crate) author: &'a str,
    pub(crate) serial: Serial,
    pub(crate) certificate: Fingerprint,
}

/// The content of an author's signature: a batch key signs for the holder of a certificate.
pub(crate) fn delegation(certified: &Certified<'_>, key: &BatchPublicKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(192);
    out.extend_from_slice(DELEGATION_CONTEXT);
    put(&mut out, certified.platform.as_str().as_bytes());
    put(&mut out, certified.author.as_bytes());
    out.extend_from_slice(certified.serial.as_bytes());
    out.extend_from_slice(certified.certificate.as_bytes());
    key.encode(&mut out);
    out
}

/// The messages of one author in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorEntry {
    /// The serial number of the author's certificate.
    pub serial: Serial,
    /// SHA-256 of the certificate.
    pub certificate: Fingerprint,
    /// The number of the first message under this certificate.
    pub first: u64,
    /// How many messages.
    pub count: u16,
}

impl AuthorEntry {
    /// The hash of the entry as a leaf of the batch's tree, with the author's statements by their
    /// [hashes](crate::Statement::hash).
    pub fn leaf(&self, statements: &[Hash]) -> Hash {
        self.leaf_over(&tree_root(statements))
    }

    /// As [`leaf`](Self::leaf), from the root of the tree of the statements.
    pub(crate) fn leaf_over(&self, root: &Hash) -> Hash {
        const LENGTH: usize = AUTHOR_CONTEXT.len() + 16 + 32 + 8 + 8 + 32;
        let mut bytes = [0; LENGTH];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(AUTHOR_CONTEXT);
        put(self.serial.as_bytes());
        put(self.certificate.as_bytes());
        put(&self.first.to_be_bytes());
        put(&u64::from(self.count).to_be_bytes());
        put(root);
        leaf_hash(&bytes)
    }
}

/// The content of a batch key's signature: the root of a batch's tree, and the facts that all its messages share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchStatement<'a> {
    pub(crate) platform: &'a PlatformName,
    pub(crate) level: SecurityLevel,
    pub(crate) key: &'a BatchPublicKey,
    /// When it was signed, by the clock of the authors' process: milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) authors: u64,
    pub(crate) root: Hash,
}

impl BatchStatement<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.extend_from_slice(BATCH_CONTEXT);
        out.push(self.level.code());
        put(&mut out, self.platform.as_str().as_bytes());
        self.key.encode(&mut out);
        put_number(&mut out, self.time);
        put_number(&mut out, self.authors);
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
    use data_encoding::HEXLOWER;

    use super::*;

    #[test]
    fn long_and_short_statements_are_hashed_alike() {
        for length in 0..400 {
            let receiver = "r".repeat(length);
            let statement = Statement {
                channel: None,
                qos: "",
                receivers: &[&receiver],
                message: b"hello",
            };
            let mut bytes = Vec::new();
            statement.encode(&mut bytes);
            assert_eq!(bytes.len(), statement.length());
            assert_eq!(statement.hash(), leaf_hash(&bytes));
        }
    }

    const EVENT: &str = "c4cf64bf9963f639c6e3a533cc3bebec17c6f6a9a4ed63de134b1cb000296354";
    const DIRECT: &str = "361117b2bb71201483fd6597e3f1fa183cea010c48cde8036274cf4eab9ae708";
    const DELEGATION: &str = "8b63fe7911835990837cd5111bc7f2d7005497b8a1469bc5e2fd83d64af13e97";
    const AUTHOR: &str = "7f764a4e17cec9540d48e1285c644be961e6f8c836739a9e0be799b6ee609e39";
    const BATCH: &str = "62c6cf8828b985763d76cd014ede861476b86f7c23f4c39f369c52d20000f607";

    /// The expected values were computed with Python's hashlib from docs/evidence.md.
    #[test]
    fn known_answers() {
        let event = Statement {
            channel: Some("/dates/business"),
            qos: "at-least-once,priority=7",
            receivers: &[],
            message: b"hello",
        };
        assert_eq!(HEXLOWER.encode(&event.hash()), EVENT);
        let direct = Statement {
            channel: None,
            qos: "",
            receivers: &["seller-1@factory", "seller-2@factory"],
            message: &[],
        };
        assert_eq!(HEXLOWER.encode(&direct.hash()), DIRECT);
        let platform = PlatformName::new("factory").unwrap();
        let (key, _) = BatchPublicKey::decode_prefix(&[&[1], &[4; 32][..]].concat()).unwrap();
        let (serial, certificate) = (
            Serial::from_bytes([1; 16]),
            Fingerprint::from_bytes([2; 32]),
        );
        let certified = Certified {
            platform: &platform,
            author: "buyer-1@factory",
            serial,
            certificate,
        };
        let hash = digest(&SHA256, &delegation(&certified, &key));
        assert_eq!(HEXLOWER.encode(hash.as_ref()), DELEGATION);
        let entry = AuthorEntry {
            serial,
            certificate,
            first: 7,
            count: 64,
        };
        assert_eq!(HEXLOWER.encode(&entry.leaf(&[[3; 32]])), AUTHOR);
        let batch = BatchStatement {
            platform: &platform,
            level: SecurityLevel::Signed,
            key: &key,
            time: 1_795_000_000_123,
            authors: 5,
            root: [3; 32],
        };
        let hash = digest(&SHA256, &batch.encode());
        assert_eq!(HEXLOWER.encode(hash.as_ref()), BATCH);
    }
}
