//! Keys: a subscription asks for the last value of each key.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sealbus_fipa::AclMessageRef;

use super::value::Value;
use super::{
    EvaluationError, FilterError, FilterProblem, LONGEST_KEY, Node, Variable, evaluate, parser,
};
use crate::event::ChannelHeader;

/// The name that groups the events of a channel, such as the sensor that a reading comes from. A subscription can ask
/// for the last event of each value of the key: see [`Replay::LastPerKey`](crate::Replay::LastPerKey).
///
/// A key is the name of a variable of [filters](super::ChannelFilter): a user-defined parameter, such as
/// `properties.sensor`; or a parameter of the message or its header, such as `sender`. Events of different channels are
/// never grouped. The key `channel` therefore stands for the last event of each channel.
///
/// ```
/// # use sealbus_channels::EventKey;
/// let key: EventKey = "properties.sensor".parse()?;
/// # Ok::<(), sealbus_channels::FilterError>(())
/// ```
#[derive(Clone)]
pub struct EventKey {
    text: Arc<str>,
    name: Arc<Node>,
}

impl EventKey {
    /// Reads the name of a key.
    ///
    /// # Errors
    /// [`FilterError`] with the place, and what was expected there.
    pub fn new(text: &str) -> Result<Self, FilterError> {
        let name = match parser::parse_value(text) {
            Ok(Node::Variable(Variable::Properties)) => Err((0, FilterProblem::NoKey)),
            Ok(name @ (Node::Variable(_) | Node::Property(_))) => Ok(name),
            Ok(_) => Err((0, FilterProblem::NoKey)),
            Err(fault) => Err(fault),
        };
        match name {
            Ok(name) => Ok(Self {
                text: text.into(),
                name: Arc::new(name),
            }),
            Err((offset, problem)) => Err(FilterError::new(text, offset, problem)),
        }
    }

    /// The key `channel`: the last event of each channel.
    pub fn channel() -> Self {
        Self {
            text: "channel".into(),
            name: Arc::new(Node::Variable(Variable::Channel)),
        }
    }

    /// The name, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value of the key for a message, as a text. Equal values have equal texts.
    ///
    /// # Errors
    /// [`EvaluationError`]: the message has no such property, or the value cannot be a key.
    pub fn of(
        &self,
        header: &ChannelHeader,
        message: &AclMessageRef<'_>,
    ) -> Result<String, EvaluationError> {
        evaluate::value(&self.name, header, message, |value| {
            let mut text = String::new();
            write(&value, &mut text)?;
            Ok(text)
        })
    }
}

/// Writes a value. The first character tells texts from numbers; lengths separate the items of a list.
fn write(value: &Value<'_>, out: &mut String) -> Result<(), EvaluationError> {
    match value {
        Value::Null => out.push('-'),
        Value::Bool(value) => out.push_str(if *value { "t" } else { "f" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Uint(value) => out.push_str(&value.to_string()),
        // A whole number has one form, whatever its type.
        Value::Double(value) => out.push_str(&value.to_string()),
        Value::Text(text) if text.len() <= LONGEST_KEY => {
            out.push_str(&format!("'{}:", text.len()));
            out.push_str(text);
        }
        Value::List(items) => {
            out.push('[');
            for item in items {
                write(item, out)?;
                out.push(',');
            }
        }
        Value::Text(_) => return Err(EvaluationError::LongKey),
        Value::Properties => return Err(EvaluationError::Type),
    }
    if out.len() > 2 * LONGEST_KEY {
        return Err(EvaluationError::LongKey);
    }
    Ok(())
}

impl FromStr for EventKey {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::new(text)
    }
}

impl PartialEq for EventKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for EventKey {}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventKey").field(&self.text).finish()
    }
}
