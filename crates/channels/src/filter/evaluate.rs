//! Evaluates an expression for one message.

use std::borrow::Cow;
use std::cmp::Ordering;

use sealbus_fipa::{AclMessageRef, AidRef, ContentRef, ExpressionRef};

use super::value::{EvaluationError, Value};
use super::{Arithmetic, Comparison, Conversion, HIGHEST_COST, Node, TextTest, Variable};
use crate::event::ChannelHeader;

type Evaluated<'a> = Result<Value<'a>, EvaluationError>;

pub(super) fn evaluate(
    root: &Node,
    header: &ChannelHeader,
    message: &AclMessageRef<'_>,
) -> (Result<bool, EvaluationError>, u32) {
    let mut evaluation = Evaluation::new(header, message);
    let value = evaluation.value(root).and_then(|value| value.as_bool());
    (value, evaluation.cost)
}

/// Calls `take` with the value of an expression for one message.
pub(super) fn value<T>(
    root: &Node,
    header: &ChannelHeader,
    message: &AclMessageRef<'_>,
    take: impl FnOnce(Value<'_>) -> Result<T, EvaluationError>,
) -> Result<T, EvaluationError> {
    Evaluation::new(header, message).value(root).and_then(take)
}

struct Evaluation<'a> {
    header: &'a ChannelHeader,
    message: &'a AclMessageRef<'a>,
    cost: u32,
    locals: Vec<Value<'a>>,
}

impl<'a> Evaluation<'a> {
    fn new(header: &'a ChannelHeader, message: &'a AclMessageRef<'a>) -> Self {
        Self {
            header,
            message,
            cost: 0,
            locals: Vec::new(),
        }
    }

    fn spend(&mut self, cost: usize) -> Result<(), EvaluationError> {
        match u32::try_from(cost) {
            Ok(cost) if cost <= HIGHEST_COST - self.cost => {
                self.cost += cost;
                Ok(())
            }
            _ => {
                self.cost = HIGHEST_COST;
                Err(EvaluationError::Cost)
            }
        }
    }

    /// Pays for a search of the message. In an encoded message, each look at its parameters is one. A search steps over
    /// text without reading it.
    fn search(&mut self) -> Result<(), EvaluationError> {
        self.spend(self.message.encoded_length().unwrap_or(0) / 1024)
    }

    /// Pays for looking at a value as a whole.
    fn look_at(&mut self, value: &Value<'a>) -> Result<(), EvaluationError> {
        match value {
            Value::Text(text) => self.spend(text.len() / 64),
            Value::List(items) => {
                self.spend(items.len())?;
                items.iter().try_for_each(|item| self.look_at(item))
            }
            _ => Ok(()),
        }
    }

    // The recursion is as deep as the expression, which the parser limits.
    fn value(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.spend(1)?;
        match node {
            Node::Literal(literal) => Ok(Value::of_literal(literal)),
            Node::List(items) => items
                .iter()
                .map(|item| self.value(item))
                .collect::<Result<_, _>>()
                .map(Value::List),
            Node::Variable(variable) => {
                let value = self.variable(*variable)?;
                self.look_at(&value)?;
                Ok(value)
            }
            Node::Property(name) => self.property(name),
            Node::Has(name) => Ok(Value::Bool(self.find(name)?.is_some())),
            Node::Local(index) => {
                let value = self.locals.get(*index).cloned();
                let value = value.ok_or(EvaluationError::Type)?;
                self.look_at(&value)?;
                Ok(value)
            }
            Node::Not(operand) => Ok(Value::Bool(!self.value(operand)?.as_bool()?)),
            Node::Negate(operand) => match self.value(operand)? {
                Value::Int(value) => value
                    .checked_neg()
                    .map(Value::Int)
                    .ok_or(EvaluationError::Arithmetic),
                Value::Double(value) => Ok(Value::Double(-value)),
                _ => Err(EvaluationError::Type),
            },
            Node::All(operands) => self.decide(operands, false),
            Node::Any(operands) => self.decide(operands, true),
            Node::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                if self.value(condition)?.as_bool()? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            Node::Compare(comparison, operands) => self.compare(*comparison, operands),
            Node::In(operands) => self.contains(operands),
            Node::Arithmetic(operation, operands) => self.calculate(*operation, operands),
            Node::Index(operands) => self.index(operands),
            Node::Text(test, operands) => {
                let (text, part) = (self.value(&operands[0])?, self.value(&operands[1])?);
                let (text, part) = (text.as_text()?, part.as_text()?);
                let looked_at = match test {
                    TextTest::Contains => text.len().saturating_add(part.len()),
                    _ => part.len(),
                };
                self.spend(looked_at / 64)?;
                Ok(Value::Bool(match test {
                    TextTest::StartsWith => text.starts_with(part),
                    TextTest::EndsWith => text.ends_with(part),
                    TextTest::Contains => text.contains(part),
                }))
            }
            Node::Matches(text, pattern) => {
                let text = self.value(text)?;
                let text = text.as_text()?;
                self.spend(pattern.cost(text))?;
                Ok(Value::Bool(pattern.is_match(text)))
            }
            Node::Convert(conversion, operand) => {
                let value = self.value(operand)?;
                self.look_at(&value)?;
                convert(*conversion, value)
            }
            Node::Quantified {
                is_all,
                list,
                condition,
            } => self.quantified(*is_all, list, condition),
        }
    }

    /// Whether one operand is `decisive`. If so, errors of the other operands do not matter.
    fn decide(&mut self, operands: &'a [Node], decisive: bool) -> Evaluated<'a> {
        let mut failed = None;
        for operand in operands {
            match self.value(operand).and_then(|value| value.as_bool()) {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(EvaluationError::Cost) => return Err(EvaluationError::Cost),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn quantified(&mut self, is_all: bool, list: &'a Node, condition: &'a Node) -> Evaluated<'a> {
        let items = match self.value(list)? {
            Value::List(items) => items,
            _ => return Err(EvaluationError::Type),
        };
        let decisive = !is_all;
        let mut failed = None;
        for item in items {
            self.locals.push(item);
            let result = self.value(condition).and_then(|value| value.as_bool());
            self.locals.pop();
            match result {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(EvaluationError::Cost) => return Err(EvaluationError::Cost),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(is_all)), Err)
    }

    fn compare(&mut self, comparison: Comparison, operands: &'a [Node; 2]) -> Evaluated<'a> {
        let (one, two) = (self.value(&operands[0])?, self.value(&operands[1])?);
        self.look_at(&one)?;
        let result = match comparison {
            Comparison::Equal => one.equals(&two),
            Comparison::NotEqual => !one.equals(&two),
            Comparison::Less => one.compare(&two)? == Some(Ordering::Less),
            Comparison::LessOrEqual => one.compare(&two)?.is_some_and(Ordering::is_le),
            Comparison::Greater => one.compare(&two)? == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => one.compare(&two)?.is_some_and(Ordering::is_ge),
        };
        Ok(Value::Bool(result))
    }

    fn contains(&mut self, operands: &'a [Node; 2]) -> Evaluated<'a> {
        let item = self.value(&operands[0])?;
        match self.value(&operands[1])? {
            Value::List(items) => {
                let mut is_in = false;
                for one in &items {
                    self.look_at(one)?;
                    self.spend(1)?;
                    is_in |= one.equals(&item);
                }
                Ok(Value::Bool(is_in))
            }
            Value::Properties => Ok(Value::Bool(self.find(item.as_text()?)?.is_some())),
            _ => Err(EvaluationError::Type),
        }
    }

    fn index(&mut self, operands: &'a [Node; 2]) -> Evaluated<'a> {
        let of = self.value(&operands[0])?;
        let index = self.value(&operands[1])?;
        match of {
            Value::Properties => self.property(index.as_text()?),
            Value::List(mut items) => {
                let index = match index {
                    Value::Int(index) => usize::try_from(index).ok(),
                    Value::Uint(index) => usize::try_from(index).ok(),
                    _ => return Err(EvaluationError::Type),
                };
                let index = index.filter(|index| *index < items.len());
                Ok(items.swap_remove(index.ok_or(EvaluationError::Index)?))
            }
            _ => Err(EvaluationError::Type),
        }
    }

    fn calculate(&mut self, operation: Arithmetic, operands: &'a [Node; 2]) -> Evaluated<'a> {
        let (one, two) = (self.value(&operands[0])?, self.value(&operands[1])?);
        let result = match (one, two) {
            (Value::Int(one), Value::Int(two)) => match operation {
                Arithmetic::Add => one.checked_add(two),
                Arithmetic::Subtract => one.checked_sub(two),
                Arithmetic::Multiply => one.checked_mul(two),
                Arithmetic::Divide => one.checked_div(two),
                Arithmetic::Remainder => one.checked_rem(two),
            }
            .map(Value::Int),
            (Value::Uint(one), Value::Uint(two)) => match operation {
                Arithmetic::Add => one.checked_add(two),
                Arithmetic::Subtract => one.checked_sub(two),
                Arithmetic::Multiply => one.checked_mul(two),
                Arithmetic::Divide => one.checked_div(two),
                Arithmetic::Remainder => one.checked_rem(two),
            }
            .map(Value::Uint),
            (Value::Double(one), Value::Double(two)) => match operation {
                Arithmetic::Add => Some(one + two),
                Arithmetic::Subtract => Some(one - two),
                Arithmetic::Multiply => Some(one * two),
                Arithmetic::Divide => Some(one / two),
                Arithmetic::Remainder => return Err(EvaluationError::Type),
            }
            .map(Value::Double),
            (Value::Text(one), Value::Text(two)) if operation == Arithmetic::Add => {
                self.spend((one.len() + two.len()) / 64)?;
                Some(Value::Text(one + two))
            }
            (Value::List(mut one), Value::List(two)) if operation == Arithmetic::Add => {
                self.spend(one.len() + two.len())?;
                one.extend(two);
                Some(Value::List(one))
            }
            _ => return Err(EvaluationError::Type),
        };
        result.ok_or(EvaluationError::Arithmetic)
    }

    fn variable(&mut self, variable: Variable) -> Evaluated<'a> {
        let message = self.message;
        let text = |text: Cow<'a, str>| Ok(Value::Text(text));
        match variable {
            Variable::Performative => text(Cow::Owned(message.performative().to_string())),
            Variable::Sender => {
                self.search()?;
                text(Cow::Borrowed(message.sender().map_or("", |aid| aid.name())))
            }
            Variable::Receivers => self.names(message.receivers()),
            Variable::ReplyTo => self.names(message.reply_to()),
            Variable::Content => match message.content() {
                None => text(Cow::Borrowed("")),
                Some(ContentRef::Text(content)) => text(content),
                Some(ContentRef::Bytes(bytes)) => {
                    self.spend(bytes.len() / 64)?;
                    Err(EvaluationError::ContentNotText)
                }
            },
            Variable::Language => self.expression(message.language()),
            Variable::Encoding => self.expression(message.encoding()),
            Variable::Ontology => self.expression(message.ontology()),
            Variable::Protocol => match message.protocol() {
                Some(protocol) => text(protocol),
                None => {
                    // The parameter may be a list.
                    self.search()?;
                    text(Cow::Borrowed(""))
                }
            },
            Variable::ConversationId => self.expression(message.conversation_id()),
            Variable::ReplyWith => self.expression(message.reply_with()),
            Variable::InReplyTo => self.expression(message.in_reply_to()),
            Variable::Properties => Ok(Value::Properties),
            Variable::Channel => text(Cow::Borrowed(self.header.channel.as_str())),
            Variable::Mechanism => text(Cow::Borrowed(self.header.mechanism.as_str())),
            Variable::Priority => Ok(Value::Int(self.header.qos.priority.get().into())),
            Variable::Persistent => Ok(Value::Bool(self.header.qos.persistence.is_persistent())),
            Variable::Number => number(self.header.number),
            Variable::Published => number(self.header.published.unix_ms()),
        }
    }

    fn names(&mut self, agents: impl Iterator<Item = AidRef<'a>>) -> Evaluated<'a> {
        self.search()?;
        let names = agents.map(|agent| Value::Text(Cow::Borrowed(agent.name())));
        Ok(Value::List(names.collect()))
    }

    /// The text of a standard parameter.
    fn expression(&mut self, value: Option<ExpressionRef<'a>>) -> Evaluated<'a> {
        let Some(value) = value else {
            return Ok(Value::Text(Cow::Borrowed("")));
        };
        if let Some(text) = value.text() {
            return Ok(Value::Text(text));
        }
        self.search()?;
        Err(EvaluationError::Type)
    }

    fn property(&mut self, name: &str) -> Evaluated<'a> {
        let value = self.find(name)?.ok_or(EvaluationError::NoProperty)?;
        let value = Value::of_property(value, &mut |cost| self.spend(cost))?;
        self.look_at(&value)?;
        Ok(value)
    }

    /// The parameter of that name. The name may stand behind `X-`, which FIPA puts before user-defined names
    /// (FIPA00061, section 2.1).
    fn find(&mut self, name: &str) -> Result<Option<ExpressionRef<'a>>, EvaluationError> {
        self.search()?;
        let mut prefixed = None;
        for (parameter, value) in self.message.user_defined() {
            let size = match &value {
                ExpressionRef::Word(text) => text.len(),
                ExpressionRef::String(text) => text.len(),
                ExpressionRef::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            self.spend(1 + (parameter.len() + size) / 64)?;
            if parameter == name {
                return Ok(Some(value));
            }
            let rest = parameter
                .strip_prefix("X-")
                .or(parameter.strip_prefix("x-"));
            if prefixed.is_none() && rest == Some(name) {
                prefixed = Some(value);
            }
        }
        Ok(prefixed)
    }
}

fn number<'a>(value: u64) -> Evaluated<'a> {
    i64::try_from(value)
        .map(Value::Int)
        .map_err(|_| EvaluationError::Arithmetic)
}

fn convert(conversion: Conversion, value: Value<'_>) -> Evaluated<'_> {
    let begins = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            .then_some(())
    };
    match (conversion, value) {
        (Conversion::Int, Value::Int(value)) => Ok(Value::Int(value)),
        (Conversion::Int, Value::Uint(value)) => self::number(value),
        // Both limits are excluded, because the doubles nearest to them lie outside.
        (Conversion::Int, Value::Double(value))
            if value > i64::MIN as f64 && value < i64::MAX as f64 =>
        {
            Ok(Value::Int(value as i64))
        }
        (Conversion::Int, Value::Text(text)) => begins(&text)
            .and_then(|()| text.parse().ok())
            .map(Value::Int)
            .ok_or(EvaluationError::Conversion),
        (Conversion::Uint, Value::Uint(value)) => Ok(Value::Uint(value)),
        (Conversion::Uint, Value::Int(value)) => u64::try_from(value)
            .map(Value::Uint)
            .map_err(|_| EvaluationError::Arithmetic),
        (Conversion::Uint, Value::Double(value)) if value >= 0.0 && value < u64::MAX as f64 => {
            Ok(Value::Uint(value as u64))
        }
        (Conversion::Uint, Value::Text(text)) => begins(&text)
            .and_then(|()| text.parse().ok())
            .map(Value::Uint)
            .ok_or(EvaluationError::Conversion),
        (Conversion::Int | Conversion::Uint, Value::Double(_)) => Err(EvaluationError::Arithmetic),
        (Conversion::Double, Value::Double(value)) => Ok(Value::Double(value)),
        (Conversion::Double, Value::Int(value)) => Ok(Value::Double(value as f64)),
        (Conversion::Double, Value::Uint(value)) => Ok(Value::Double(value as f64)),
        (Conversion::Double, Value::Text(text)) => text
            .parse()
            .map(Value::Double)
            .map_err(|_| EvaluationError::Conversion),
        (Conversion::String, Value::Text(text)) => Ok(Value::Text(text)),
        (Conversion::String, Value::Int(value)) => Ok(Value::Text(value.to_string().into())),
        (Conversion::String, Value::Uint(value)) => Ok(Value::Text(value.to_string().into())),
        (Conversion::String, Value::Double(value)) => Ok(Value::Text(value.to_string().into())),
        (Conversion::String, Value::Bool(value)) => Ok(Value::Text(value.to_string().into())),
        // CEL counts code points.
        (Conversion::Size, Value::Text(text)) => self::number(text.chars().count() as u64),
        (Conversion::Size, Value::List(items)) => self::number(items.len() as u64),
        _ => Err(EvaluationError::Type),
    }
}
