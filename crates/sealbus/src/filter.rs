//! Conditions on the messages that a `receive` waits for.

use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

use sealbus_fipa::{AclMessageRef, Aid, ExpressionRef, Performative};

/// A condition on a message: its act, its conversation, its sender and more.
///
/// Filters are joined with `&`, `|` and `!`. Messages that a filter does not take stay in the mailbox, in order.
///
/// ```
/// use sealbus::{AclMessage, Filter, Performative};
///
/// let offers = (Filter::performative(Performative::Propose) | Filter::performative(Performative::Refuse))
///     & Filter::conversation("sale-7");
///
/// let offer = AclMessage::new(Performative::Propose).with_conversation_id("sale-7");
/// let chat = AclMessage::new(Performative::Inform).with_conversation_id("sale-7");
/// assert!(offers.takes(&offer.view()));
/// assert!(!offers.takes(&chat.view()));
/// assert!((!offers).takes(&chat.view()));
/// ```
#[derive(Clone)]
pub struct Filter(Test);

#[derive(Clone)]
enum Test {
    Any,
    Performative(Performative),
    Conversation(Box<str>),
    InReplyTo(Box<str>),
    Sender(Box<str>),
    Protocol(Box<str>),
    Ontology(Box<str>),
    Language(Box<str>),
    Matching(Arc<dyn Fn(&AclMessageRef<'_>) -> bool + Send + Sync>),
    All(Vec<Test>),
    Either(Vec<Test>),
    Not(Box<Test>),
}

impl Filter {
    /// Takes every message.
    pub fn any() -> Filter {
        Filter(Test::Any)
    }

    /// Takes messages with this performative.
    pub fn performative(performative: Performative) -> Filter {
        Filter(Test::Performative(performative))
    }

    /// Takes messages of the conversation with this `conversation-id`.
    pub fn conversation(id: impl Into<Box<str>>) -> Filter {
        Filter(Test::Conversation(id.into()))
    }

    /// Takes messages whose `in-reply-to` is this tag.
    pub fn in_reply_to(tag: impl Into<Box<str>>) -> Filter {
        Filter(Test::InReplyTo(tag.into()))
    }

    /// Takes messages from this agent.
    ///
    /// At security levels that prove senders, the sender's name is the one proved by its certificate.
    pub fn sender(sender: &Aid) -> Filter {
        Filter(Test::Sender(sender.name.as_str().into()))
    }

    /// Takes messages of this interaction protocol, such as `fipa-request`.
    pub fn protocol(name: impl Into<Box<str>>) -> Filter {
        Filter(Test::Protocol(name.into()))
    }

    /// Takes messages in this ontology.
    pub fn ontology(name: impl Into<Box<str>>) -> Filter {
        Filter(Test::Ontology(name.into()))
    }

    /// Takes messages with content in this language, such as `fipa-sl`.
    pub fn language(name: impl Into<Box<str>>) -> Filter {
        Filter(Test::Language(name.into()))
    }

    /// Takes messages for which `test` holds. The test runs while the mailbox is locked, so it must be quick.
    pub fn matching(test: impl Fn(&AclMessageRef<'_>) -> bool + Send + Sync + 'static) -> Filter {
        Filter(Test::Matching(Arc::new(test)))
    }

    /// Takes the messages that both filters take. The same as `self & other`.
    #[must_use]
    pub fn and(self, other: impl Into<Filter>) -> Filter {
        match (self.0, other.into().0) {
            (Test::Any, only) | (only, Test::Any) => Filter(only),
            (Test::All(mut all), other) => {
                all.push(other);
                Filter(Test::All(all))
            }
            (one, other) => Filter(Test::All(vec![one, other])),
        }
    }

    /// Takes the messages that either filter takes. The same as `self | other`.
    #[must_use]
    pub fn or(self, other: impl Into<Filter>) -> Filter {
        match (self.0, other.into().0) {
            (Test::Any, _) | (_, Test::Any) => Filter(Test::Any),
            (Test::Either(mut either), other) => {
                either.push(other);
                Filter(Test::Either(either))
            }
            (one, other) => Filter(Test::Either(vec![one, other])),
        }
    }

    /// Whether this filter takes the message.
    pub fn takes(&self, message: &AclMessageRef<'_>) -> bool {
        self.0.holds(message)
    }

    /// Whether this filter takes every message.
    pub fn is_any(&self) -> bool {
        matches!(self.0, Test::Any)
    }
}

impl Test {
    fn holds(&self, message: &AclMessageRef<'_>) -> bool {
        match self {
            Test::Any => true,
            Test::Performative(performative) => message.performative() == *performative,
            Test::Conversation(id) => reads(message.conversation_id(), id),
            Test::InReplyTo(tag) => reads(message.in_reply_to(), tag),
            Test::Sender(name) => message
                .sender()
                .is_some_and(|sender| sender.name() == &**name),
            Test::Protocol(name) => message.protocol().is_some_and(|it| it == **name),
            Test::Ontology(name) => reads(message.ontology(), name),
            Test::Language(name) => reads(message.language(), name),
            Test::Matching(test) => test(message),
            Test::All(all) => all.iter().all(|test| test.holds(message)),
            Test::Either(either) => either.iter().any(|test| test.holds(message)),
            Test::Not(test) => !test.holds(message),
        }
    }
}

/// Whether a parameter is present with this text, as a word, a string or a number. Encodings choose between these.
pub(crate) fn reads(parameter: Option<ExpressionRef<'_>>, text: &str) -> bool {
    parameter
        .and_then(|it| it.text())
        .is_some_and(|it| it == text)
}

impl From<Performative> for Filter {
    fn from(performative: Performative) -> Filter {
        Filter::performative(performative)
    }
}

impl From<&Aid> for Filter {
    fn from(sender: &Aid) -> Filter {
        Filter::sender(sender)
    }
}

impl<F: Into<Filter>> BitAnd<F> for Filter {
    type Output = Filter;
    fn bitand(self, other: F) -> Filter {
        self.and(other)
    }
}

impl<F: Into<Filter>> BitOr<F> for Filter {
    type Output = Filter;
    fn bitor(self, other: F) -> Filter {
        self.or(other)
    }
}

impl Not for Filter {
    type Output = Filter;
    fn not(self) -> Filter {
        match self.0 {
            Test::Not(test) => Filter(*test),
            test => Filter(Test::Not(Box::new(test))),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The form shown in errors: `performative propose and conversation sale-7`.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |tests: &[Test], word: &str, f: &mut fmt::Formatter<'_>| {
            f.write_str("(")?;
            for (index, test) in tests.iter().enumerate() {
                if index > 0 {
                    write!(f, " {word} ")?;
                }
                fmt::Display::fmt(test, f)?;
            }
            f.write_str(")")
        };
        match self {
            Test::Any => f.write_str("any message"),
            Test::Performative(performative) => write!(f, "performative {performative}"),
            Test::Conversation(id) => write!(f, "conversation {id}"),
            Test::InReplyTo(tag) => write!(f, "in reply to {tag}"),
            Test::Sender(name) => write!(f, "sender {name}"),
            Test::Protocol(name) => write!(f, "protocol {name}"),
            Test::Ontology(name) => write!(f, "ontology {name}"),
            Test::Language(name) => write!(f, "language {name}"),
            Test::Matching(_) => f.write_str("a test of its own"),
            Test::All(all) => joined(all, "and", f),
            Test::Either(either) => joined(either, "or", f),
            Test::Not(test) => write!(f, "not {test}"),
        }
    }
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
