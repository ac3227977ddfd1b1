//! An entry of an agent's mailbox: the message, and the known facts about its writer.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_fipa::{AclMessage, AclMessageRef, DecodeError, EncodeError};
use sealbus_proof::{Disclosure, Evidence};
use sealbus_seal::encryption::Salt;
use sealbus_seal::{Identity, VerifiedIdentity};

use crate::foreign_room::MessageRoom;
use crate::letter::Kept;
use crate::limits::ANY_LENGTH;
use crate::origin::{ForeignOrigin, ORIGIN_PARAMETER};
use crate::sealed::{Opened, OpenedRow};

/// The bus's knowledge about the sender of a received message.
#[derive(Clone, Debug)]
pub enum Provenance {
    /// The sender is an agent of this process; the bus itself filled in its name.
    SameProcess,
    /// The sender proved its identity on the connection that carried the message.
    Proved(VerifiedIdentity),
    /// The sender signed the message (level `signed`), so that others can check who wrote it.
    Signed(Evidence),
    /// The receiver moved here from another process, to which the sender was proved. That process handed the message on
    /// through its node.
    Carried(Arc<Identity>),
    /// The sender is an agent of another platform, and the gateway relays its message. The sender's name is only
    /// claimed.
    Foreign(Arc<ForeignOrigin>),
    /// The sender proved its identity to the broker that carried the message. The broker proved its own identity to
    /// this process.
    Vouched(Arc<Identity>),
    /// The sender's name is only claimed (levels `none` and `tls`).
    Claimed,
    /// The platform itself wrote the message, such as a notice that a message was not delivered.
    Platform,
}

impl Provenance {
    /// The provenance's name in Python and on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::SameProcess => "same-process",
            Self::Proved(_) => "proved",
            Self::Signed(_) => "signed",
            Self::Vouched(_) => "vouched",
            Self::Carried(_) => "carried",
            Self::Foreign(_) => "foreign",
            Self::Claimed => "claimed",
            Self::Platform => "platform",
        }
    }

    /// The certified sender, if it proved itself to this process.
    pub fn certified(&self) -> Option<&VerifiedIdentity> {
        match self {
            Self::Proved(verified) => Some(verified),
            Self::Signed(evidence) => Some(evidence.author()),
            _ => None,
        }
    }

    /// The evidence that the sender wrote the message, which others can check.
    pub const fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Signed(evidence) => Some(evidence),
            _ => None,
        }
    }

    /// Whether the platform itself wrote the message.
    pub const fn is_of_platform(&self) -> bool {
        matches!(self, Self::Platform)
    }

    /// Whether the sender's name is more than a claim.
    pub fn is_trusted(&self) -> bool {
        !matches!(self, Self::Claimed | Self::Foreign(_))
    }
}

#[derive(Clone, Debug)]
enum Body {
    Shared(Arc<AclMessage>),
    Encoded(EncodedMessage<Bytes>),
}

impl Body {
    #[inline]
    fn view(&self) -> AclMessageRef<'_> {
        match self {
            Self::Shared(message) => AclMessage::view(message),
            Self::Encoded(message) => message.message(),
        }
    }
}

/// A message in a mailbox.
///
/// Between agents of one process it is the sender's own message, shared and never encoded. From another process it is
/// the bit-efficient encoding (FIPA00069), which is checked on arrival and decoded when read.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    body: Body,
    provenance: Provenance,
    /// Boxed: most messages have nothing of it.
    more: Option<Box<More>>,
    /// If the message was sealed, the outer message; `body` is then the inner one.
    sealed: Option<Box<Sealed>>,
}

/// The facts that only few messages have.
#[derive(Clone, Debug, Default)]
struct More {
    kept: Option<Kept>,
    /// The room that the message takes on its way to another platform.
    room: Option<Arc<MessageRoom>>,
}

/// The words of a sealed message, with which others can check that its author wrote them. The text form is that of a
/// [`Disclosure`].
#[derive(Clone, Debug)]
pub struct SealedWords {
    salt: Salt,
    inside: Bytes,
}

impl fmt::Display for SealedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Disclosure::new(&self.salt, &self.inside).fmt(f)
    }
}

/// A sealed message as it arrived.
#[derive(Clone, Debug)]
struct Sealed {
    outer: Body,
    salt: Salt,
    row: Option<Arc<OpenedRow>>,
}

impl ReceivedMessage {
    /// A message shared inside this process.
    #[inline]
    pub fn shared(message: Arc<AclMessage>, provenance: Provenance) -> Self {
        Self {
            body: Body::Shared(message),
            provenance,
            more: None,
            sealed: None,
        }
    }

    /// A message in the bit-efficient encoding, which was checked when `message` was made.
    #[inline]
    pub fn encoded(message: EncodedMessage<Bytes>, provenance: Provenance) -> Self {
        Self {
            body: Body::Encoded(message),
            provenance,
            more: None,
            sealed: None,
        }
    }

    /// The same message with the message that was sealed in it ([`Bus::open`](crate::Bus::open)).
    #[must_use]
    #[inline]
    pub fn opened(mut self, opened: Option<Opened>) -> Self {
        if let Some(opened) = opened {
            self.put_inside(opened);
        }
        self
    }

    /// Replaces this message by the one that was sealed in it.
    pub(crate) fn put_inside(&mut self, Opened { message, salt, row }: Opened) {
        let outer = std::mem::replace(&mut self.body, Body::Encoded(message));
        self.sealed = Some(Box::new(Sealed { outer, salt, row }));
    }

    /// Whether the message was sealed, so that only its sender and its receivers can read it.
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// The salt of a sealed message, and the encoding of the inner message, to which its author committed. With both,
    /// the outer message ([`to_bytes`](Self::to_bytes)) and its evidence, others can check what the author wrote.
    pub fn committed(&self) -> Option<(&Salt, &Bytes)> {
        match (&self.sealed, &self.body) {
            (Some(sealed), Body::Encoded(inside)) => Some((&sealed.salt, inside.bytes())),
            _ => None,
        }
    }

    /// The row's secret, without which a sealed message cannot be opened in another process; `None` if the message
    /// contains it.
    pub fn row(&self) -> Option<&Arc<OpenedRow>> {
        self.sealed.as_ref()?.row.as_ref()
    }

    /// The words of a sealed message, for others to check.
    pub fn words(&self) -> Option<SealedWords> {
        let (salt, inside) = self.committed()?;
        Some(SealedWords {
            salt: *salt,
            inside: inside.clone(),
        })
    }

    /// The message as others see it: the outer one if it is sealed.
    pub fn seen(&self) -> AclMessageRef<'_> {
        self.travelled().view()
    }

    /// The message as it arrived.
    #[inline]
    fn travelled(&self) -> &Body {
        self.sealed
            .as_ref()
            .map_or(&self.body, |sealed| &sealed.outer)
    }

    /// A message from its bit-efficient encoding, as [`to_bytes`](Self::to_bytes) gave it.
    ///
    /// # Errors
    /// If the bytes are no ACL message.
    pub fn from_bytes(payload: Bytes, provenance: Provenance) -> Result<Self, DecodeError> {
        Ok(Self::encoded(
            EncodedMessage::new(payload, &ANY_LENGTH)?,
            provenance,
        ))
    }

    /// The same message, marked as kept for its receiver.
    #[must_use]
    pub fn with_kept(mut self, kept: Kept) -> Self {
        self.more.get_or_insert_default().kept = Some(kept);
        self
    }

    /// The facts about the message if it was kept for its receiver ([`Delivery::persistent`](crate::Delivery)).
    #[inline]
    pub fn kept(&self) -> Option<&Kept> {
        self.more.as_ref()?.kept.as_ref()
    }

    /// For transports: the same message with the room that it takes on its way to another platform.
    #[must_use]
    pub fn with_room(mut self, room: MessageRoom) -> Self {
        self.more.get_or_insert_default().room = Some(Arc::new(room));
        self
    }

    /// For the gateway: takes over the room of a message that goes to another platform.
    pub fn take_room(&mut self) -> Option<Arc<MessageRoom>> {
        self.more.as_mut()?.room.take()
    }

    /// The known facts about the sender.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// A borrowed view of the message.
    pub fn message(&self) -> AclMessageRef<'_> {
        self.body.view()
    }

    /// The message itself, shared if it already was. The gateway's note in a message from outside is removed; the
    /// [provenance](Self::provenance) holds its facts.
    pub fn into_message(self) -> Arc<AclMessage> {
        let is_foreign = matches!(self.provenance, Provenance::Foreign(_));
        let mut message = match self.body {
            Body::Shared(message) => message,
            Body::Encoded(message) => Arc::new(message.message().to_owned()),
        };
        if is_foreign {
            Arc::make_mut(&mut message)
                .user_defined
                .retain(|(name, _)| !name.eq_ignore_ascii_case(ORIGIN_PARAMETER));
        }
        message
    }

    /// The bit-efficient encoding, in which the message moves to another node with the agent's mailbox. A sealed
    /// message stays sealed.
    ///
    /// # Errors
    /// If a shared message cannot be encoded.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        match self.travelled() {
            Body::Shared(message) => {
                let mut out = Vec::new();
                bitefficient::encode(message, &mut out)?;
                Ok(out.into())
            }
            Body::Encoded(message) => Ok(message.bytes().clone()),
        }
    }

    /// Whether the platform wrote the message to report a message that was not delivered.
    #[inline]
    pub(crate) fn is_notice(&self) -> bool {
        self.provenance.is_of_platform()
    }

    /// The bytes that the message counts as in a mailbox (payload only).
    #[inline]
    pub fn size(&self) -> usize {
        match self.travelled() {
            Body::Shared(message) => shared_size(message),
            Body::Encoded(message) => message.bytes().len(),
        }
    }
}

/// The size of a shared message: its content, which may be large, and a fixed sum for names and parameters.
pub fn shared_size(message: &AclMessage) -> usize {
    message.content_bytes().map_or(0, <[u8]>::len) + 64 * (1 + message.receivers.len())
}
