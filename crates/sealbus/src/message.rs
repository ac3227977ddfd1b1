//! A message as an agent gets it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use sealbus_bus::{Delegation, Provenance, ReceivedMessage, SealedWords};
use sealbus_fipa::AclMessage;

use crate::body::{Body, BodyError};

/// A message that an agent received: an [`AclMessage`] to read, and the facts known about its sender.
///
/// Agents of one process share the sender's own message, which is not copied.
#[derive(Clone, Debug)]
pub struct Message {
    message: Arc<AclMessage>,
    provenance: Provenance,
    kept: Option<(u64, bool)>,
    /// The plaintext of a sealed message, to show to others.
    words: Option<Box<SealedWords>>,
}

/// The content of a message does not have the requested form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The message has no content.
    #[error("the {performative} from {sender} has no content")]
    Missing {
        /// The act that the message performs.
        performative: String,
        /// The sender.
        sender: String,
    },
    /// The content is bytes.
    #[error(
        "the content of the {performative} from {sender} is bytes, not text: read it with content_bytes"
    )]
    NotText {
        /// The act that the message performs.
        performative: String,
        /// The sender.
        sender: String,
    },
}

impl Message {
    /// Reads a message that came from the bus.
    pub fn new(received: ReceivedMessage) -> Message {
        let provenance = received.provenance().clone();
        let kept = received.kept().map(|kept| (kept.number, kept.again));
        let words = received.words().map(Box::new);
        Message {
            message: received.into_message(),
            provenance,
            kept,
            words,
        }
    }

    /// Whether the message was sealed, so that only its sender and its receivers can read it.
    pub fn is_sealed(&self) -> bool {
        self.words.is_some()
    }

    /// The plaintext of a sealed direct message, as a text for others. With this text, `sealbus evidence disclose` lets a
    /// file of evidence show what the author wrote. The text holds the message itself, so keep it as carefully as the message.
    pub fn disclosure(&self) -> Option<String> {
        self.words.as_deref().map(ToString::to_string)
    }

    /// The bus's knowledge of the sender.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The agents on whose behalf the sender asks, beginning with the first that asked. Empty if the sender asks for itself.
    ///
    /// Only the sender is proved: each name before the sender is only claimed by the agents after it. A handler of this
    /// message sends on behalf of these agents and of the sender automatically. [`Delegation::by`] and
    /// [`Delegation::carry`] do the same for work beside handlers.
    pub fn on_behalf_of(&self) -> Delegation {
        // The bus refuses messages whose chain is not valid.
        Delegation::of(&AclMessage::view(&self.message)).unwrap_or_default()
    }

    /// The message's number among the messages kept for this agent, if it was kept. The number is greater than that of
    /// each message kept before it. An agent that must do nothing twice, even if it is killed, can note the numbers of
    /// the messages that it has handled.
    pub fn kept_number(&self) -> Option<u64> {
        self.kept.map(|(number, _)| number)
    }

    /// Whether this agent may have had this message before, because its process ended before its node knew of it.
    pub fn may_be_again(&self) -> bool {
        self.kept.is_some_and(|(_, again)| again)
    }

    /// The sender's name, or `nobody` for an anonymous message.
    pub fn sender_name(&self) -> &str {
        self.message
            .sender
            .as_ref()
            .map_or("nobody", |sender| &sender.name)
    }

    /// The content as text.
    pub fn text(&self) -> Result<&str, ContentError> {
        let what = || {
            (
                self.message.performative.to_string(),
                self.sender_name().to_owned(),
            )
        };
        match &self.message.content {
            Some(content) => content.as_text().ok_or_else(|| {
                let (performative, sender) = what();
                ContentError::NotText {
                    performative,
                    sender,
                }
            }),
            None => {
                let (performative, sender) = what();
                Err(ContentError::Missing {
                    performative,
                    sender,
                })
            }
        }
    }

    /// The content as a value of a declared type.
    ///
    /// # Errors
    /// [`BodyError`] with the place that does not fit.
    pub fn body<B: Body>(&self) -> Result<B, BodyError> {
        B::read(&AclMessage::view(&self.message))
    }

    pub(crate) fn shared(&self) -> Arc<AclMessage> {
        self.message.clone()
    }

    /// The ACL message itself, to keep or pass on.
    pub fn into_message(self) -> Arc<AclMessage> {
        self.message
    }
}

impl Deref for Message {
    type Target = AclMessage;

    fn deref(&self) -> &AclMessage {
        &self.message
    }
}

/// `inform from seller-1@factory`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} from {}",
            self.message.performative,
            self.sender_name()
        )
    }
}
