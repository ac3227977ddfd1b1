use super::Exception;
use super::frame::{is_user_defined, members, name_of, string};
use crate::sl::{Arguments, Float, FunctionalTerm, Parameter, Term};
use crate::{Aid, Expression, Number, is_word};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

const OBJECT: &str = "agent-identifier";
const SLOTS: [&str; 3] = ["name", "addresses", "resolvers"];

impl Aid {
    /// The AID as a term, `(agent-identifier :name …)`.
    ///
    /// A user-defined value that is a list becomes a function of its first word. A list that does not begin with a word
    /// becomes a sequence, as SL has no plain lists.
    pub fn to_term(&self) -> Term<'_> {
        let mut slots = vec![Parameter::new(SLOTS[0], Term::text(&self.name))];
        if !self.addresses.is_empty() {
            let addresses = self.addresses.iter().map(Term::text).collect();
            slots.push(Parameter::new(SLOTS[1], Term::Sequence(addresses)));
        }
        if !self.resolvers.is_empty() {
            let resolvers = self.resolvers.iter().map(Aid::to_term).collect();
            slots.push(Parameter::new(SLOTS[2], Term::Sequence(resolvers)));
        }
        for (name, value) in &self.user_defined {
            slots.push(Parameter::new(name, expression_to_term(value)));
        }
        Term::frame(OBJECT, slots)
    }

    /// Reads an `agent-identifier`.
    ///
    /// # Errors
    /// The exception to answer with: the term is not an `agent-identifier`, has no name, or has an unknown slot that
    /// does not begin with `X-`.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let frame = match term {
            Term::Function(frame) if frame.symbol.eq_ignore_ascii_case(OBJECT) => frame,
            other => return Err(Exception::UnexpectedArgument(name_of(other))),
        };
        let mut aid = Aid {
            name: String::new(),
            addresses: Vec::new(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        };
        match &frame.arguments {
            Arguments::Positional(terms) if terms.len() > SLOTS.len() => {
                return Err(Exception::UnexpectedArgumentCount);
            }
            Arguments::Positional(terms) => {
                for (slot, value) in SLOTS.into_iter().zip(terms) {
                    aid.read_slot(slot, value)?;
                }
            }
            Arguments::Named(parameters) => {
                for Parameter { name, value } in parameters {
                    aid.read_slot(name, value)?;
                }
            }
        }
        if aid.name.is_empty() {
            return Err(Exception::missing(OBJECT, SLOTS[0]));
        }
        Ok(aid)
    }

    fn read_slot(&mut self, slot: &str, value: &Term<'_>) -> Result<(), Exception> {
        let unrecognised = |exception| match exception {
            Exception::UnexpectedArgument(_) => Exception::unrecognised(OBJECT, slot),
            other => other,
        };
        if slot.eq_ignore_ascii_case(SLOTS[0]) && self.name.is_empty() {
            self.name = string(value).map_err(unrecognised)?;
        } else if slot.eq_ignore_ascii_case(SLOTS[1]) && self.addresses.is_empty() {
            self.addresses = members(value, string).map_err(unrecognised)?;
        } else if slot.eq_ignore_ascii_case(SLOTS[2]) && self.resolvers.is_empty() {
            self.resolvers = members(value, Aid::from_term).map_err(unrecognised)?;
        } else if is_user_defined(slot) {
            self.user_defined
                .push((slot.to_owned(), term_to_expression(value)));
        } else {
            return Err(Exception::UnexpectedParameter {
                object: OBJECT.into(),
                slot: slot.into(),
            });
        }
        Ok(())
    }
}

fn expression_to_term(expression: &Expression) -> Term<'_> {
    match expression {
        Expression::Word(text) | Expression::String(text) => Term::text(text),
        Expression::Number(number) => match number.as_i64() {
            Some(integer) => Term::Integer(integer),
            None => {
                Float::new(number.as_f64()).map_or_else(|| Term::text(number.as_str()), Term::Float)
            }
        },
        Expression::DateTime(date_time) => Term::DateTime(*date_time),
        Expression::Bytes(bytes) => Term::Bytes(bytes.into()),
        Expression::List(items) => {
            let head = match items.first() {
                Some(Expression::Word(word)) => word.as_str(),
                _ => return Term::Sequence(items.iter().map(expression_to_term).collect()),
            };
            let members = || items[1..].iter().map(expression_to_term).collect();
            match head {
                "sequence" => Term::Sequence(members()),
                "set" => Term::Set(members()),
                symbol => named_arguments(&items[1..]).map_or_else(
                    || Term::function(symbol, members()),
                    |parameters| Term::frame(symbol, parameters),
                ),
            }
        }
    }
}

/// Reads `:name value :name value` as parameters; `None` if the items have another form.
fn named_arguments(items: &[Expression]) -> Option<Vec<Parameter<'_>>> {
    let (pairs, []) = items.as_chunks::<2>() else {
        return None;
    };
    pairs
        .iter()
        .map(|[name, value]| match name {
            Expression::Word(word) => word
                .strip_prefix(':')
                .filter(|name| !name.is_empty())
                .map(|name| Parameter::new(name, expression_to_term(value))),
            _ => None,
        })
        .collect()
}

fn term_to_expression(term: &Term<'_>) -> Expression {
    let list = |head: &str, members: &[Term<'_>]| {
        let head = core::iter::once(Expression::Word(head.into()));
        Expression::List(head.chain(members.iter().map(term_to_expression)).collect())
    };
    // ACL has no form for some terms. They are kept as the text of their SL.
    let as_text = || Expression::from(term.to_string());
    match term {
        Term::Text(text) => Expression::from(text.as_ref()),
        Term::Truth(truth) => Expression::from(truth.to_string()),
        Term::Bytes(bytes) => Expression::Bytes(bytes.to_vec()),
        Term::Integer(integer) => Expression::from(*integer),
        Term::Float(float) => {
            let text = float.to_string();
            Number::parse(&text).map_or(Expression::String(text), Expression::Number)
        }
        Term::DateTime(date_time) => Expression::DateTime(*date_time),
        Term::Sequence(members) => list("sequence", members),
        Term::Set(members) => list("set", members),
        Term::Function(function) => function_to_expression(function).unwrap_or_else(as_text),
        Term::Variable(_) | Term::Action(_) | Term::Identifying(_) => as_text(),
    }
}

/// A function as a list; `None` if its symbol, or a name, cannot stand there as a word. (A quoted `"set"` is no set.)
fn function_to_expression(function: &FunctionalTerm<'_>) -> Option<Expression> {
    let word = |text: String| is_word(text.as_bytes()).then_some(Expression::Word(text));
    let symbol = function.symbol.as_ref();
    let head = word(symbol.to_owned()).filter(|_| !matches!(symbol, "sequence" | "set"))?;
    let mut items = vec![head];
    match &function.arguments {
        Arguments::Positional(terms) => items.extend(terms.iter().map(|term| match term {
            // As a word, the text would be the name of an argument.
            Term::Text(text) if text.starts_with(':') => {
                Expression::String(text.clone().into_owned())
            }
            term => term_to_expression(term),
        })),
        Arguments::Named(parameters) => {
            for parameter in parameters {
                items.push(word(format!(":{}", parameter.name))?);
                items.push(term_to_expression(&parameter.value));
            }
        }
    }
    Some(Expression::List(items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AclMessage, Limits, Performative, string};

    /// Without its quotes such a text is the name of an argument.
    #[test]
    fn a_text_that_begins_with_a_colon_stays_a_text() {
        let text = "(agent-identifier :name a@p :X-x (f \":low\" 1))";
        let term = Term::parse(text, &Limits::DEFAULT).unwrap();
        let aid = Aid::from_term(&term).unwrap();
        assert_eq!(aid.to_term().to_string(), text);
        let message = AclMessage::new(Performative::Inform).with_receiver(aid);
        let mut bytes = Vec::new();
        string::encode(&message, &mut bytes).unwrap();
        let read = string::decode(&bytes, &Limits::DEFAULT).unwrap();
        assert_eq!(read.receivers[0].to_term().to_string(), text);
    }
}
