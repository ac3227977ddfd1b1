//! Level `sealed`: messages that only their receiver reads. A sealed message is an ACL message as well. Its parameters
//! lead it to its receiver, and its content holds the sealed message, whole.
//!
//! The performative is `sealed`. Sender, receivers, `:conversation-id`, `:reply-with` and [`LEVEL_PARAMETER`] are those of
//! the message inside; nothing else of it shows. The author signs the outer message, as at level `signed`. It contains a
//! commitment to the inner one, so that the receiver can later show what the author wrote ([`Opened::salt`]), and no more.

use bytes::Bytes;
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_fipa::{AclMessage, AclMessageRef, Content, EncodeError, Limits, Performative};
use sealbus_proof::is_inside;
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::{
    Commitment, Encapsulation, EncryptionError, EncryptionKey, EncryptionKeyId,
    EncryptionPublicKey, Opening, Salt, Sealing,
};
use thiserror::Error;

use crate::level::{level_of, set_level};
use crate::moment::Moment;
use crate::resolver::BoxFuture;

/// The performative of a sealed message.
const SEALED: &str = "sealed";
/// The version of the form.
const VERSION: u8 = 1;
/// The first bytes of what the secret is bound to.
const CONTEXT: &[u8] = b"sealbus sealed message v1\0";
/// The lengths of the parts before the sealed bytes: version, key, encapsulation, number, commitment.
const HEAD: usize = 1 + EncryptionKeyId::LENGTH + Encapsulation::LENGTH + 8 + Commitment::LENGTH;

/// The bytes that sealing adds to the encoding of a message, besides the parameters of the outer message.
pub const SEALED_OVERHEAD: usize = HEAD + Salt::LENGTH + Sealing::ADDED;

/// Why a message was not sealed. The text tells the sender what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotSealed(pub String);

impl From<EncryptionError> for NotSealed {
    fn from(error: EncryptionError) -> Self {
        Self(error.to_string())
    }
}

impl From<EncodeError> for NotSealed {
    fn from(error: EncodeError) -> Self {
        Self(format!("the message cannot be encoded: {error}"))
    }
}

/// The service of a process that seals messages of its agents, and opens those for its agents.
pub trait Sealer: Send + Sync {
    /// Whether messages that do not ask for a level are sealed, too: level `sealed` holds on the platform.
    fn is_for_all(&self) -> bool;

    /// Whether this is an agent of the platform itself. It reads what is written to it, and others read what it writes,
    /// also where all others seal their messages.
    fn is_of_platform(&self, agent: &str) -> bool;

    /// Seals a message to one of its receivers. Looks the receiver's key up if it is not known. `kept`: the message waits
    /// for its receiver, and is not delivered before that moment, if there is one.
    ///
    /// # Errors
    /// [`NotSealed`] names the receiver, and says why nothing can be sealed to it.
    fn seal<'a>(
        &'a self,
        message: &'a AclMessage,
        receiver: &'a str,
        kept: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<AclMessage, NotSealed>>;

    /// The same for a message that is delivered at once, without waiting. `None`: the receiver's key must be looked up.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<AclMessage>, NotSealed>;

    /// Opens a sealed message for an agent of this process.
    ///
    /// # Errors
    /// Why it does not open.
    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, String>;
}

/// A secret that a sender shares with a receiver, for a row of messages.
pub struct SealedRow {
    key: EncryptionKeyId,
    encapsulation: Encapsulation,
    sealing: Sealing,
}

/// A message that was sealed.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The message inside.
    pub message: EncodedMessage<Bytes>,
    /// With this salt, the author [committed](Commitment) to the message in the outer one.
    pub salt: Salt,
}

/// The content of a sealed message.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The receiver's key.
    pub key: EncryptionKeyId,
    /// The secret, for the holder of that key.
    pub encapsulation: &'a [u8],
    /// The message's number under the secret.
    pub number: u64,
    /// The author's commitment to the message.
    pub commitment: Commitment,
    sealed: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the content of a sealed message.
    ///
    /// # Errors
    /// If it has another form.
    pub fn parse(content: &'a [u8]) -> Result<Self, String> {
        let malformed = || "its content has not the form of a sealed message".to_owned();
        let (version, rest) = content.split_first().ok_or_else(malformed)?;
        if *version != VERSION {
            return Err(format!(
                "it has version {version}, and this process knows {VERSION}"
            ));
        }
        let (key, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (encapsulation, rest) = rest
            .split_at_checked(Encapsulation::LENGTH)
            .ok_or_else(malformed)?;
        let (number, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (commitment, sealed) = rest.split_first_chunk().ok_or_else(malformed)?;
        if sealed.len() < Salt::LENGTH + Sealing::ADDED {
            return Err(malformed());
        }
        Ok(Self {
            key: EncryptionKeyId::from_bytes(*key),
            encapsulation,
            number: u64::from_be_bytes(*number),
            commitment: Commitment::from_bytes(*commitment),
            sealed,
        })
    }

    /// Takes the secret with the receiver's key. The secret is good for all messages with this encapsulation from this
    /// sender to this receiver.
    ///
    /// # Errors
    /// If the secret is not for this key.
    pub fn opening(
        &self,
        key: &EncryptionKey,
        sender: &str,
        receiver: &str,
    ) -> Result<Opening, EncryptionError> {
        let encapsulation = Encapsulation::from_bytes(self.encapsulation)?;
        Opening::begin(key, &encapsulation, &context(sender, receiver))
    }
}

/// The sender and the receiver: a secret is worthless for others.
fn context(sender: &str, receiver: &str) -> Vec<u8> {
    let mut context = CONTEXT.to_vec();
    for name in [sender, receiver] {
        context.extend_from_slice(&(name.len() as u64).to_be_bytes());
        context.extend_from_slice(name.as_bytes());
    }
    context
}

/// Whether this message is the outer one of a sealed message.
pub fn is_sealed(message: &AclMessageRef<'_>) -> bool {
    matches!(message.performative(), Performative::Other(name) if &*name == SEALED)
        && asks_for_sealing(message)
}

/// Whether a message says that it is, or is to be, sealed.
pub(crate) fn asks_for_sealing(message: &AclMessageRef<'_>) -> bool {
    matches!(level_of(message), Ok(Some(SecurityLevel::Sealed)))
}

impl SealedRow {
    /// Makes a secret that only the owner of `key` shares.
    ///
    /// # Errors
    /// If nothing can be encrypted to the key.
    pub fn begin(
        key: &EncryptionPublicKey,
        sender: &str,
        receiver: &str,
    ) -> Result<Self, EncryptionError> {
        let (encapsulation, sealing) = Sealing::begin(key, &context(sender, receiver))?;
        Ok(Self {
            key: key.id(),
            encapsulation,
            sealing,
        })
    }

    /// How many messages were sealed with the secret.
    pub fn length(&self) -> u64 {
        self.sealing.number()
    }

    /// Seals the next message of the row. The message names its sender.
    ///
    /// # Errors
    /// [`NotSealed`].
    pub fn seal(&mut self, message: &AclMessage) -> Result<AclMessage, NotSealed> {
        let salt = Salt::random()?;
        let mut inner = salt.as_bytes().to_vec();
        bitefficient::encode(message, &mut inner)?;
        let mut content = Vec::with_capacity(HEAD + inner.len() + Sealing::ADDED);
        content.push(VERSION);
        content.extend_from_slice(self.key.as_bytes());
        content.extend_from_slice(self.encapsulation.as_bytes());
        content.extend_from_slice(&self.sealing.number().to_be_bytes());
        let commitment = Commitment::new(&salt, &inner[Salt::LENGTH..]);
        content.extend_from_slice(commitment.as_bytes());
        let mut outer = AclMessage::new(Performative::from(SEALED));
        outer.sender.clone_from(&message.sender);
        outer.receivers.clone_from(&message.receivers);
        outer.conversation_id.clone_from(&message.conversation_id);
        outer.reply_with.clone_from(&message.reply_with);
        set_level(&mut outer, SecurityLevel::Sealed);
        outer.content = Some(Content::Bytes(content));
        let mut associated = Vec::new();
        bitefficient::encode(&outer, &mut associated)?;
        self.sealing.seal(&associated, &mut inner)?;
        if let Some(Content::Bytes(content)) = &mut outer.content {
            content.extend_from_slice(&inner);
        }
        Ok(outer)
    }
}

/// Opens a sealed message. `opening` returns its secret.
///
/// # Errors
/// Why the message does not open. It was changed, or is not what its outer message says.
pub fn open(
    outer: &AclMessageRef<'_>,
    opening: impl FnOnce(&Envelope<'_>, &str) -> Result<Opening, String>,
) -> Result<(Opened, Opening), String> {
    let content = outer.content_bytes().unwrap_or_default();
    let envelope = Envelope::parse(&content)?;
    let sender = outer.sender().ok_or("it names no sender")?;
    let mut opening = opening(&envelope, sender.name())?;
    let mut header = outer.to_owned();
    header.content = Some(Content::Bytes(content[..HEAD].to_vec()));
    let mut associated = Vec::new();
    bitefficient::encode(&header, &mut associated).map_err(|error| error.to_string())?;
    let mut inner = envelope.sealed.to_vec();
    opening.go_to(envelope.number);
    let length = opening
        .open(&associated, &mut inner)
        .map_err(|error| error.to_string())?
        .len();
    inner.truncate(length);
    let mut inner = Bytes::from(inner);
    let salt = inner.split_to(Salt::LENGTH);
    let salt = salt.first_chunk().copied().unwrap_or_default();
    let opened = Opened {
        message: EncodedMessage::new(inner, &Limits::default())
            .map_err(|error| format!("what is sealed is no ACL message: {error}"))?,
        salt: Salt::from_bytes(salt),
    };
    if envelope.commitment != Commitment::new(&opened.salt, opened.message.bytes()) {
        return Err("its author committed to another message".to_owned());
    }
    let inside = opened.message.message().to_owned();
    match is_inside(&inside, &header) {
        true => Ok((opened, opening)),
        false => Err("the message inside has another sender, receiver or conversation".to_owned()),
    }
}
