//! Filters: a subscription selects its events by an expression over a message's parameters and properties.

mod evaluate;
mod key;
mod parser;
mod part;
mod text_pattern;
mod token;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sealbus_fipa::AclMessageRef;
use thiserror::Error;

use super::event::ChannelHeader;
pub use key::EventKey;
use text_pattern::TextPattern;
pub use value::EvaluationError;

/// The longest filter, in bytes.
pub const LONGEST_FILTER: usize = 2048;
/// The most levels of nesting in a filter.
pub const DEEPEST_FILTER: usize = 32;
/// The largest cost of one evaluation: about one unit for each operation and for each 64 bytes of text read or made.
/// `matches` reads its text once for each state of its pattern, and at least 16 times.
pub const HIGHEST_COST: u32 = 50_000;
/// The longest value of an [`EventKey`], in bytes.
pub const LONGEST_KEY: usize = 1024;
/// The most bytes that all regular expressions of a filter together may take when compiled.
pub const LARGEST_PATTERN: usize = 256 << 10;

/// An expression in the Common Expression Language (CEL) that a message may or may not fulfil.
///
/// ```
/// # use sealbus_channels::ChannelFilter;
/// let filter: ChannelFilter = "performative == 'inform' && properties.price < 10".parse()?;
/// # Ok::<(), sealbus_channels::FilterError>(())
/// ```
///
/// **Variables** are the parameters of the ACL message: `performative`, `sender`, `receivers`, `reply_to`, `content`,
/// `language`, `encoding`, `ontology`, `protocol`, `conversation_id`, `reply_with` and `in_reply_to`. A parameter that
/// the message does not have reads as the empty text (or list). User-defined parameters are `properties.NAME` or
/// `properties["NAME"]`, where the `X-` of `X-NAME` may be left out. Variables of the channel's header are `channel`,
/// `mechanism`, `priority`, `persistent`, `number` and `published` (milliseconds since 1970). A property is a number, a
/// truth value (the words `true` and `false`), a list, or a text.
///
/// **Operators** are CEL's: `&&`, `||`, `!`, `?:`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `+`, `-`, `*`, `/`, `%`, `[]`
/// and lists. **Functions** are `has(properties.NAME)`, `size`, `startsWith`, `endsWith`, `contains`, `matches` (with a
/// literal as its regular expression), `int`, `uint`, `double`, `string`, `LIST.all(x, …)` and `LIST.exists(x, …)`. The
/// language's maps, structures, bytes, times and list-making macros are left out: a filter decides and does not
/// transform.
///
/// A message does not fulfil an expression that cannot be evaluated for it because a property is missing or has another
/// type. As in CEL, the other side of `&&` or `||` decides if it suffices.
///
/// Filters come from other processes. So length, depth, the size of regular expressions and the cost of an evaluation
/// are limited. An evaluation neither recurses deeper than [`DEEPEST_FILTER`] nor looks at an unneeded variable.
#[derive(Clone)]
pub struct ChannelFilter {
    text: Arc<str>,
    root: Arc<Node>,
    pattern_bytes: usize,
}

impl ChannelFilter {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`FilterError`] with the place, and what was expected there.
    pub fn new(text: &str) -> Result<Self, FilterError> {
        match parser::parse(text) {
            Ok((root, pattern_bytes)) => Ok(Self {
                text: text.into(),
                root: Arc::new(root),
                pattern_bytes,
            }),
            Err((offset, problem)) => Err(FilterError::new(text, offset, problem)),
        }
    }

    /// The expression, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the message fulfils the filter.
    ///
    /// # Errors
    /// [`EvaluationError`], which counts as not fulfilled.
    pub fn matches(
        &self,
        header: &ChannelHeader,
        message: &AclMessageRef<'_>,
    ) -> Result<bool, EvaluationError> {
        self.evaluate(header, message).0
    }

    /// As [`matches`](Self::matches), with the cost: [`HIGHEST_COST`] at most.
    pub fn evaluate(
        &self,
        header: &ChannelHeader,
        message: &AclMessageRef<'_>,
    ) -> (Result<bool, EvaluationError>, u32) {
        evaluate::evaluate(&self.root, header, message)
    }

    /// The bytes that its regular expressions take: [`LARGEST_PATTERN`] at most.
    pub(crate) fn pattern_bytes(&self) -> usize {
        self.pattern_bytes
    }

    /// Whether there is another copy of this filter.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.root) > 1
    }
}

impl FromStr for ChannelFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::new(text)
    }
}

impl PartialEq for ChannelFilter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ChannelFilter {}

impl fmt::Display for ChannelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ChannelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChannelFilter").field(&self.text).finish()
    }
}

/// The reason why a text is not a filter, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column} of the filter: {problem}")]
pub struct FilterError {
    /// The place of the fault, in bytes from the start of the text.
    pub offset: usize,
    /// The line, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
    /// The fault at that place.
    pub problem: FilterProblem,
}

impl FilterError {
    fn new(text: &str, offset: usize, problem: FilterProblem) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.split('\n').count();
        let last = before.rsplit('\n').next().unwrap_or_default();
        Self {
            offset,
            line,
            column: last.chars().count() + 1,
            problem,
        }
    }
}

/// The fault in the text of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterProblem {
    /// Longer than [`LONGEST_FILTER`].
    #[error("longer than {LONGEST_FILTER} bytes")]
    TooLong,
    /// Deeper than [`DEEPEST_FILTER`].
    #[error("nested more than {DEEPEST_FILTER} deep")]
    TooDeep,
    /// A character that has no meaning here.
    #[error("the character {0:?} has no meaning here")]
    Character(char),
    /// A malformed number, or one that does not fit.
    #[error("not a number of 64 bits")]
    Number,
    /// A text without its closing quote.
    #[error("the text has no closing quote")]
    OpenText,
    /// A backslash before a character that cannot be escaped.
    #[error("not an escape: write \\\\ for a backslash")]
    Escape,
    /// Another token stands there.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// The expected token.
        expected: &'static str,
        /// The token that was found.
        found: String,
    },
    /// No such variable.
    #[error(
        "there is no variable {0:?}; there are performative, sender, receivers, reply_to, content, language, encoding, ontology, \
         protocol, conversation_id, reply_with, in_reply_to, properties.NAME, channel, mechanism, priority, persistent, number and \
         published"
    )]
    Variable(String),
    /// No such function.
    #[error(
        "there is no function {0:?}; there are has, size, startsWith, endsWith, contains, matches, all, exists, int, uint, double \
         and string"
    )]
    Function(String),
    /// A function with the wrong number of arguments.
    #[error("{function} takes {expected}")]
    Arguments {
        /// The function.
        function: &'static str,
        /// The arguments that it takes.
        expected: &'static str,
    },
    /// A part of CEL that filters leave out.
    #[error("{0} cannot be used in a filter")]
    Unsupported(&'static str),
    /// A truth value is needed.
    #[error("expected a condition, which is true or false; this is {0}")]
    NoCondition(&'static str),
    /// An expression where a name is needed.
    #[error("a key is the name of one variable, such as properties.sensor, sender or channel")]
    NoKey,
    /// The regular expression is not valid.
    #[error("{0}")]
    Pattern(String),
    /// The regular expressions take more than [`LARGEST_PATTERN`] when they are compiled.
    #[error(
        "the patterns of a filter may take {LARGEST_PATTERN} bytes together when they are compiled: repeat less often, or write [a-z] \
         for \\w"
    )]
    LargePatterns,
}

/// A value written in the expression.
#[derive(Clone, Debug, PartialEq)]
enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    /// 2^63, which is an `int` only behind a minus sign.
    MinimumWithoutSign,
    Uint(u64),
    Double(f64),
    Text(String),
}

/// A checked expression.
#[derive(Debug)]
enum Node {
    Literal(Literal),
    List(Vec<Node>),
    Variable(Variable),
    /// A user-defined parameter of the message.
    Property(Box<str>),
    /// Whether the message has that parameter.
    Has(Box<str>),
    /// The current item of `all` or `exists`; numbered from the outermost.
    Local(usize),
    Not(Box<Node>),
    Negate(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    Compare(Comparison, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
    Arithmetic(Arithmetic, Box<[Node; 2]>),
    Index(Box<[Node; 2]>),
    Text(TextTest, Box<[Node; 2]>),
    Matches(Box<Node>, Box<TextPattern>),
    Convert(Conversion, Box<Node>),
    /// Tests whether all items of a list, or at least one, fulfil a condition.
    Quantified {
        is_all: bool,
        list: Box<Node>,
        condition: Box<Node>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Performative,
    Sender,
    Receivers,
    ReplyTo,
    Content,
    Language,
    Encoding,
    Ontology,
    Protocol,
    ConversationId,
    ReplyWith,
    InReplyTo,
    Properties,
    Channel,
    Mechanism,
    Priority,
    Persistent,
    Number,
    Published,
}

impl Variable {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "performative" => Self::Performative,
            "sender" => Self::Sender,
            "receivers" => Self::Receivers,
            "reply_to" => Self::ReplyTo,
            "content" => Self::Content,
            "language" => Self::Language,
            "encoding" => Self::Encoding,
            "ontology" => Self::Ontology,
            "protocol" => Self::Protocol,
            "conversation_id" => Self::ConversationId,
            "reply_with" => Self::ReplyWith,
            "in_reply_to" => Self::InReplyTo,
            "properties" => Self::Properties,
            "channel" => Self::Channel,
            "mechanism" => Self::Mechanism,
            "priority" => Self::Priority,
            "persistent" => Self::Persistent,
            "number" => Self::Number,
            "published" => Self::Published,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversion {
    Int,
    Uint,
    Double,
    String,
    Size,
}

/// A short form of the text that was found, for errors.
fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(40) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}
