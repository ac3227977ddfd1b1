//! The message as an owned structure (FIPA00061).

use crate::{Aid, DateTime, Expression, Performative};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// An ACL message (FIPA00061): its act, its sender and receivers, and its content.
///
/// ```
/// use sealbus_fipa::{AclMessage, Aid, Performative};
///
/// let message = AclMessage::new(Performative::Request)
///     .with_receiver(Aid::new("seller-1@factory")?)
///     .with_conversation_id("sale-7")
///     .with_content("((action (agent-identifier :name seller-1@factory) (sell box)))");
/// assert_eq!(message.receivers[0].local_name(), "seller-1");
/// # Ok::<(), sealbus_fipa::AidError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclMessage {
    /// The communicative act.
    pub performative: Performative,
    /// The sender. `None` for an anonymous message, or before the bus has filled it in.
    pub sender: Option<Aid>,
    /// The intended receivers: several for a multicast.
    pub receivers: Vec<Aid>,
    /// The agents that answers go to instead of the sender.
    pub reply_to: Vec<Aid>,
    /// The content. `language`, `encoding` and `ontology` tell how to read it.
    pub content: Option<Content>,
    /// The language of the content, such as `fipa-sl`.
    pub language: Option<Expression>,
    /// The encoding of the content.
    pub encoding: Option<Expression>,
    /// The meaning of the symbols in the content.
    pub ontology: Option<Expression>,
    /// The interaction protocol, a word such as `fipa-request`. A protocol requires a conversation-id.
    pub protocol: Option<String>,
    /// The conversation the message belongs to.
    pub conversation_id: Option<Expression>,
    /// The tag that an answer must repeat as `in_reply_to`.
    pub reply_with: Option<Expression>,
    /// The `reply_with` of the message this one answers.
    pub in_reply_to: Option<Expression>,
    /// The latest moment at which the sender wants the next message.
    pub reply_by: Option<DateTime>,
    /// User-defined parameters, named `X-…`, without the colon of the String encoding.
    pub user_defined: Vec<(String, Expression)>,
}

/// The content of a message, opaque to the platform.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Content {
    /// The text, unless the content is bytes.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }

    /// The bytes of content of either kind.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

macro_rules! with_expression {
    ($($(#[$doc:meta])* $method:ident $field:ident),* $(,)?) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $method(mut self, value: impl Into<Expression>) -> Self {
                self.$field = Some(value.into());
                self
            }
        )*
    };
}

impl AclMessage {
    /// A message with nothing but its act.
    pub fn new(performative: Performative) -> Self {
        Self {
            performative,
            sender: None,
            receivers: Vec::new(),
            reply_to: Vec::new(),
            content: None,
            language: None,
            encoding: None,
            ontology: None,
            protocol: None,
            conversation_id: None,
            reply_with: None,
            in_reply_to: None,
            reply_by: None,
            user_defined: Vec::new(),
        }
    }

    /// Sets the sender. On the bus this is done for you.
    #[must_use]
    pub fn with_sender(mut self, sender: Aid) -> Self {
        self.sender = Some(sender);
        self
    }

    /// Adds a receiver.
    #[must_use]
    pub fn with_receiver(mut self, receiver: Aid) -> Self {
        self.receivers.push(receiver);
        self
    }

    /// Adds receivers.
    #[must_use]
    pub fn with_receivers(mut self, receivers: impl IntoIterator<Item = Aid>) -> Self {
        self.receivers.extend(receivers);
        self
    }

    /// Adds an agent that answers go to instead of the sender.
    #[must_use]
    pub fn with_reply_to(mut self, agent: Aid) -> Self {
        self.reply_to.push(agent);
        self
    }

    /// Sets the content, text or bytes.
    #[must_use]
    pub fn with_content(mut self, content: impl Into<Content>) -> Self {
        self.content = Some(content.into());
        self
    }

    with_expression! {
        /// Sets the language of the content.
        with_language language,
        /// Sets the encoding of the content.
        with_encoding encoding,
        /// Sets the ontology of the content.
        with_ontology ontology,
        /// Sets the conversation the message belongs to.
        with_conversation_id conversation_id,
        /// Sets the tag that the answer must repeat.
        with_reply_with reply_with,
        /// Sets the tag of the message this one answers.
        with_in_reply_to in_reply_to,
    }

    /// Sets the interaction protocol, which must be a word.
    #[must_use]
    pub fn with_protocol(mut self, protocol: impl Into<String>) -> Self {
        self.protocol = Some(protocol.into());
        self
    }

    /// Sets the latest moment at which the next message is wanted.
    #[must_use]
    pub fn with_reply_by(mut self, moment: DateTime) -> Self {
        self.reply_by = Some(moment);
        self
    }

    /// Adds a user-defined parameter, named `X-…`.
    #[must_use]
    pub fn with_user_defined(
        mut self,
        name: impl Into<String>,
        value: impl Into<Expression>,
    ) -> Self {
        self.user_defined.push((name.into(), value.into()));
        self
    }

    /// The content if it is text.
    pub fn content_text(&self) -> Option<&str> {
        self.content.as_ref().and_then(Content::as_text)
    }

    /// The bytes of the content, whether it is text or bytes.
    pub fn content_bytes(&self) -> Option<&[u8]> {
        self.content.as_ref().map(Content::as_bytes)
    }

    /// The value of a user-defined parameter; names are compared without regard to case.
    pub fn user_defined_value(&self, name: &str) -> Option<&Expression> {
        let mut parameters = self.user_defined.iter();
        let found = parameters.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}
