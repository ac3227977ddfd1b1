//! One view for readers, of an owned message or of an encoded one.

mod expression;

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::aid::split_name;
use crate::parameter::Parameter;
use crate::{AclMessage, Aid, Content, DateTime, Expression, Performative};
use crate::{bitefficient, string};

pub use expression::{ExpressionRef, Expressions, NumberRef};

/// A message that is read in place: in an [`AclMessage`] or in the bytes it was received as.
///
/// A view allocates nothing, unless a method's documentation says otherwise.
#[derive(Clone, Copy)]
pub struct AclMessageRef<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Owned(&'a AclMessage),
    BitEfficient(bitefficient::View<'a>),
    String(string::View<'a>),
}

macro_rules! expression_parameters {
    ($($(#[$doc:meta])* $method:ident $parameter:ident),* $(,)?) => {
        $(
            $(#[$doc])*
            pub fn $method(&self) -> Option<ExpressionRef<'a>> {
                match self.0 {
                    Source::Owned(message) => message.$method.as_ref().map(ExpressionRef::from),
                    Source::BitEfficient(view) => view.expression(Parameter::$parameter),
                    Source::String(view) => view.expression(Parameter::$parameter),
                }
            }
        )*
    };
}

impl<'a> AclMessageRef<'a> {
    pub(crate) fn from_bitefficient(view: bitefficient::View<'a>) -> Self {
        Self(Source::BitEfficient(view))
    }

    pub(crate) fn from_string(view: string::View<'a>) -> Self {
        Self(Source::String(view))
    }

    /// The communicative act. Allocates for a user-defined one.
    pub fn performative(&self) -> Performative {
        match self.0 {
            Source::Owned(message) => message.performative.clone(),
            Source::BitEfficient(view) => view.performative(),
            Source::String(view) => view.performative(),
        }
    }

    /// Whether this is the communicative act, as it is written. Allocates nothing.
    #[inline]
    pub fn is_act(&self, name: &str) -> bool {
        match self.0 {
            Source::Owned(message) => message.performative.as_str() == name,
            Source::BitEfficient(view) => view.is_act(name),
            Source::String(view) => view.performative().as_str() == name,
        }
    }

    /// The length in bytes of an encoded message. A look-up of a parameter may search all of it. `None` for an owned
    /// message.
    #[inline]
    pub fn encoded_length(&self) -> Option<usize> {
        match self.0 {
            Source::Owned(_) => None,
            Source::BitEfficient(view) => Some(view.length()),
            Source::String(view) => Some(view.length()),
        }
    }

    /// The bytes before the parameter of the content, the content, and the bytes behind it up to the end of the message.
    /// `None` unless the message is in the bit-efficient encoding and its content is bytes.
    pub fn around_content(&self) -> Option<[&'a [u8]; 3]> {
        match self.0 {
            Source::BitEfficient(view) => view.around_content(),
            Source::Owned(_) | Source::String(_) => None,
        }
    }

    /// The sender.
    pub fn sender(&self) -> Option<AidRef<'a>> {
        match self.0 {
            Source::Owned(message) => message.sender.as_ref().map(AidRef::from),
            Source::BitEfficient(view) => view.sender(),
            Source::String(view) => view.sender(),
        }
    }

    /// The intended receivers.
    pub fn receivers(&self) -> Aids<'a> {
        self.aids(Parameter::Receiver)
    }

    /// The agents that answers go to instead of the sender.
    pub fn reply_to(&self) -> Aids<'a> {
        self.aids(Parameter::ReplyTo)
    }

    fn aids(&self, parameter: Parameter) -> Aids<'a> {
        Aids(match self.0 {
            Source::Owned(message) if parameter == Parameter::Receiver => {
                AidsSource::Owned(message.receivers.iter())
            }
            Source::Owned(message) => AidsSource::Owned(message.reply_to.iter()),
            Source::BitEfficient(view) => AidsSource::BitEfficient(view.aids(parameter)),
            Source::String(view) => AidsSource::String(view.aids(parameter)),
        })
    }

    /// The content. Allocates only for quoted text that holds escapes.
    pub fn content(&self) -> Option<ContentRef<'a>> {
        match self.0 {
            Source::Owned(message) => message.content.as_ref().map(ContentRef::from),
            Source::BitEfficient(view) => view.content(),
            Source::String(view) => view.content(),
        }
    }

    /// The content if it is text. Allocates only for quoted text that holds escapes.
    pub fn content_text(&self) -> Option<Cow<'a, str>> {
        match self.content()? {
            ContentRef::Text(text) => Some(text),
            ContentRef::Bytes(_) => None,
        }
    }

    /// The bytes of the content, whether it is text or bytes.
    pub fn content_bytes(&self) -> Option<Cow<'a, [u8]>> {
        Some(match self.content()? {
            ContentRef::Text(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
            ContentRef::Text(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
            ContentRef::Bytes(bytes) => bytes,
        })
    }

    expression_parameters! {
        /// The language of the content.
        language Language,
        /// The encoding of the content.
        encoding Encoding,
        /// The meaning of the symbols in the content.
        ontology Ontology,
        /// The conversation the message belongs to.
        conversation_id ConversationId,
        /// The tag that an answer must repeat.
        reply_with ReplyWith,
        /// The `reply_with` of the message this one answers.
        in_reply_to InReplyTo,
    }

    /// The interaction protocol.
    pub fn protocol(&self) -> Option<Cow<'a, str>> {
        match self.0 {
            Source::Owned(message) => message.protocol.as_deref().map(Cow::Borrowed),
            Source::BitEfficient(view) => view.expression(Parameter::Protocol)?.text(),
            Source::String(view) => view.expression(Parameter::Protocol)?.text(),
        }
    }

    /// The latest moment at which the sender wants the next message.
    pub fn reply_by(&self) -> Option<DateTime> {
        match self.0 {
            Source::Owned(message) => message.reply_by,
            Source::BitEfficient(view) => view.reply_by(),
            Source::String(view) => view.reply_by(),
        }
    }

    /// Whether there are user-defined parameters. Costs less than a look at the first one.
    #[inline]
    pub fn has_user_defined(&self) -> bool {
        match &self.0 {
            Source::Owned(message) => !message.user_defined.is_empty(),
            Source::BitEfficient(view) => view.has_user_defined(),
            Source::String(view) => view.user_defined().next().is_some(),
        }
    }

    /// The user-defined parameters in their order, names without a colon.
    #[inline]
    pub fn user_defined(&self) -> UserDefined<'a> {
        UserDefined(match self.0 {
            Source::Owned(message) => UserDefinedSource::Owned(message.user_defined.iter()),
            Source::BitEfficient(view) => UserDefinedSource::BitEfficient(view.user_defined()),
            Source::String(view) => UserDefinedSource::String(view.user_defined()),
        })
    }

    /// A copy that owns everything.
    pub fn to_owned(&self) -> AclMessage {
        let expression = |value: Option<ExpressionRef<'a>>| value.map(|value| value.to_owned());
        match self.0 {
            Source::Owned(message) => message.clone(),
            _ => AclMessage {
                performative: self.performative(),
                sender: self.sender().map(|aid| aid.to_owned()),
                receivers: self.receivers().map(|aid| aid.to_owned()).collect(),
                reply_to: self.reply_to().map(|aid| aid.to_owned()).collect(),
                content: self.content().map(ContentRef::into_owned),
                language: expression(self.language()),
                encoding: expression(self.encoding()),
                ontology: expression(self.ontology()),
                protocol: self.protocol().map(Cow::into_owned),
                conversation_id: expression(self.conversation_id()),
                reply_with: expression(self.reply_with()),
                in_reply_to: expression(self.in_reply_to()),
                reply_by: self.reply_by(),
                user_defined: self
                    .user_defined()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            },
        }
    }

    /// An answer to this message; see [`AclMessage::create_reply`].
    #[must_use]
    pub fn create_reply(&self, performative: Performative) -> AclMessage {
        let expression = |value: Option<ExpressionRef<'a>>| value.map(|value| value.to_owned());
        let mut receivers: Vec<Aid> = self.reply_to().map(|aid| aid.to_owned()).collect();
        if receivers.is_empty() {
            receivers.extend(self.sender().map(|aid| aid.to_owned()));
        }
        AclMessage {
            receivers,
            language: expression(self.language()),
            ontology: expression(self.ontology()),
            protocol: self.protocol().map(Cow::into_owned),
            conversation_id: expression(self.conversation_id()),
            in_reply_to: expression(self.reply_with()),
            ..AclMessage::new(performative)
        }
    }
}

impl AclMessage {
    /// The view of the message. Readers use views for both owned and encoded messages.
    pub fn view(&self) -> AclMessageRef<'_> {
        AclMessageRef(Source::Owned(self))
    }

    /// An answer to this message. It goes to the `reply_to` agents or else the sender, in the same conversation,
    /// protocol, language and ontology. Its `in_reply_to` is the `reply_with` of this message.
    ///
    /// The sender is left open for the bus to fill in.
    #[must_use]
    pub fn create_reply(&self, performative: Performative) -> Self {
        self.view().create_reply(performative)
    }
}

impl fmt::Debug for AclMessageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_owned().fmt(f)
    }
}

/// An AID to be read where it is.
#[derive(Clone, Copy)]
pub struct AidRef<'a>(AidSource<'a>);

#[derive(Clone, Copy)]
enum AidSource<'a> {
    Owned(&'a Aid),
    BitEfficient(bitefficient::AidView<'a>),
    String(string::AidView<'a>),
}

impl<'a> AidRef<'a> {
    pub(crate) fn from_bitefficient(view: bitefficient::AidView<'a>) -> Self {
        Self(AidSource::BitEfficient(view))
    }

    pub(crate) fn from_string(view: string::AidView<'a>) -> Self {
        Self(AidSource::String(view))
    }

    /// The globally unique name.
    pub fn name(&self) -> &'a str {
        match self.0 {
            AidSource::Owned(aid) => &aid.name,
            AidSource::BitEfficient(view) => view.name(),
            AidSource::String(view) => view.name(),
        }
    }

    /// Whether both AIDs name the same agent: their names are equal. Addresses may differ (FIPA00023).
    pub fn names_same_agent(&self, other: &AidRef<'_>) -> bool {
        self.name() == other.name()
    }

    /// The name without its platform: everything before the last `@`.
    pub fn local_name(&self) -> &'a str {
        split_name(self.name()).0
    }

    /// The home platform: everything after the last `@`.
    pub fn platform(&self) -> Option<&'a str> {
        split_name(self.name()).1
    }

    /// Transport addresses, the preferred one first.
    pub fn addresses(&self) -> Addresses<'a> {
        Addresses(match self.0 {
            AidSource::Owned(aid) => AddressesSource::Owned(aid.addresses.iter()),
            AidSource::BitEfficient(view) => AddressesSource::BitEfficient(view.addresses()),
            AidSource::String(view) => AddressesSource::String(view.addresses()),
        })
    }

    /// Agents that can find out addresses for this name.
    pub fn resolvers(&self) -> Aids<'a> {
        Aids(match self.0 {
            AidSource::Owned(aid) => AidsSource::Owned(aid.resolvers.iter()),
            AidSource::BitEfficient(view) => AidsSource::BitEfficient(view.resolvers()),
            AidSource::String(view) => AidsSource::String(view.resolvers()),
        })
    }

    /// Further parameters.
    pub fn user_defined(&self) -> UserDefined<'a> {
        UserDefined(match self.0 {
            AidSource::Owned(aid) => UserDefinedSource::Owned(aid.user_defined.iter()),
            AidSource::BitEfficient(view) => UserDefinedSource::BitEfficient(view.user_defined()),
            AidSource::String(view) => UserDefinedSource::String(view.user_defined()),
        })
    }

    /// A copy that owns everything.
    pub fn to_owned(&self) -> Aid {
        match self.0 {
            AidSource::Owned(aid) => aid.clone(),
            _ => Aid {
                name: self.name().to_owned(),
                addresses: self.addresses().map(str::to_owned).collect(),
                resolvers: self.resolvers().map(|aid| aid.to_owned()).collect(),
                user_defined: self
                    .user_defined()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            },
        }
    }
}

impl<'a> From<&'a Aid> for AidRef<'a> {
    fn from(aid: &'a Aid) -> Self {
        Self(AidSource::Owned(aid))
    }
}

/// As for [`Aid`]: all parts count.
impl PartialEq for AidRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        let user_defined = |aid: &Self| {
            aid.user_defined()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<Vec<_>>()
        };
        self.name() == other.name()
            && self.addresses().eq(other.addresses())
            && self.resolvers().eq(other.resolvers())
            && user_defined(self) == user_defined(other)
    }
}

impl Eq for AidRef<'_> {}

impl fmt::Debug for AidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_owned().fmt(f)
    }
}

impl fmt::Display for AidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The content of a message to be read where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRef<'a> {
    /// Text; owned only if escapes had to be undone.
    Text(Cow<'a, str>),
    /// Bytes. They are owned only if they had to be decoded from base64.
    Bytes(Cow<'a, [u8]>),
}

impl ContentRef<'_> {
    /// The content as an owned value.
    pub fn into_owned(self) -> Content {
        match self {
            Self::Text(text) => Content::Text(text.into_owned()),
            Self::Bytes(bytes) => Content::Bytes(bytes.into_owned()),
        }
    }
}

impl<'a> From<&'a Content> for ContentRef<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Text(text) => Self::Text(Cow::Borrowed(text)),
            Content::Bytes(bytes) => Self::Bytes(Cow::Borrowed(bytes)),
        }
    }
}

/// The agents of a list, in their order.
#[derive(Clone)]
pub struct Aids<'a>(AidsSource<'a>);

#[derive(Clone)]
enum AidsSource<'a> {
    Owned(core::slice::Iter<'a, Aid>),
    BitEfficient(bitefficient::AidsView<'a>),
    String(string::AidsView<'a>),
}

impl<'a> Iterator for Aids<'a> {
    type Item = AidRef<'a>;

    fn next(&mut self) -> Option<AidRef<'a>> {
        match &mut self.0 {
            AidsSource::Owned(aids) => aids.next().map(AidRef::from),
            AidsSource::BitEfficient(view) => view.next(),
            AidsSource::String(view) => view.next(),
        }
    }
}

/// The addresses of an agent, the preferred one first.
#[derive(Clone)]
pub struct Addresses<'a>(AddressesSource<'a>);

#[derive(Clone)]
enum AddressesSource<'a> {
    Owned(core::slice::Iter<'a, String>),
    BitEfficient(bitefficient::WordsView<'a>),
    String(string::AddressesView<'a>),
}

impl<'a> Iterator for Addresses<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        match &mut self.0 {
            AddressesSource::Owned(addresses) => addresses.next().map(String::as_str),
            AddressesSource::BitEfficient(view) => view.next(),
            AddressesSource::String(view) => view.next(),
        }
    }
}

/// User-defined parameters: name and value.
#[derive(Clone)]
pub struct UserDefined<'a>(UserDefinedSource<'a>);

#[derive(Clone)]
enum UserDefinedSource<'a> {
    Owned(core::slice::Iter<'a, (String, Expression)>),
    BitEfficient(bitefficient::UserDefinedView<'a>),
    String(string::UserDefinedView<'a>),
}

impl<'a> Iterator for UserDefined<'a> {
    type Item = (&'a str, ExpressionRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            UserDefinedSource::Owned(parameters) => parameters
                .next()
                .map(|(name, value)| (name.as_str(), ExpressionRef::from(value))),
            UserDefinedSource::BitEfficient(view) => view.next(),
            UserDefinedSource::String(view) => view.next(),
        }
    }
}
