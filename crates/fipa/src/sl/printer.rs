use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::lexer::is_plain_word;
use super::parser::Keyword;
use super::tree::{
    ActionExpression, Arguments, Content, ContentExpression, FunctionalTerm, IdentifyingExpression,
    Term, Wff,
};
use crate::literal;

/// Writes a string at a place where a keyword would not be taken for one.
fn string(text: &str, out: &mut Vec<u8>) {
    if is_plain_word(text) {
        out.extend_from_slice(text.as_bytes());
    } else {
        literal::write_string(text, out);
    }
}

/// Writes the symbol at the head of a list, where keywords must be quoted.
fn symbol(text: &str, out: &mut Vec<u8>) {
    if Keyword::of(text).is_some() {
        literal::write_string(text, out)
    } else {
        string(text, out)
    }
}

/// Writes a string at a place where, unquoted, these two words would be the truth values.
fn constant(text: &str, out: &mut Vec<u8>) {
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        literal::write_string(text, out);
    } else {
        string(text, out);
    }
}

/// The items of a list.
trait Member {
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! member {
    ($($name:ident)*) => {$(
        impl Member for $name<'_> {
            fn write(&self, out: &mut Vec<u8>) {
                self.encode(out);
            }
        }
    )*};
}

member!(Wff ActionExpression Term);

struct Variable<'n>(&'n str);

impl Member for Variable<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'?');
        string(self.0, out);
    }
}

/// `(keyword member member)`.
fn list(keyword: Keyword, out: &mut Vec<u8>, members: &[&dyn Member]) {
    out.push(b'(');
    out.extend_from_slice(keyword.name().as_bytes());
    for member in members {
        out.push(b' ');
        member.write(out);
    }
    out.push(b')');
}

fn terms(terms: &[Term<'_>], out: &mut Vec<u8>) {
    for term in terms {
        out.push(b' ');
        term.encode(out);
    }
}

impl Content<'_> {
    /// Appends the content as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'(');
        for (index, expression) in self.expressions.iter().enumerate() {
            if index > 0 {
                out.push(b' ');
            }
            expression.encode(out);
        }
        out.push(b')');
    }

    /// The content as SL. The result is text, unless it contains a [`Term::Bytes`] with other bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// Text, unless it contains bytes that are no text.
impl From<Content<'_>> for crate::Content {
    fn from(content: Content<'_>) -> Self {
        match String::from_utf8(content.to_bytes()) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }
}

impl ContentExpression<'_> {
    /// Appends the expression as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Identifying(expression) => expression.encode(out),
            Self::Action(action) => action.encode(out),
            Self::Proposition(wff) => wff.encode(out),
        }
    }
}

impl Wff<'_> {
    /// Appends the formula as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let with_condition =
            |keyword, it: &(ActionExpression<'_>, Option<Wff<'_>>), out: &mut _| match &it.1 {
                None => list(keyword, out, &[&it.0]),
                Some(wff) => list(keyword, out, &[&it.0, wff]),
            };
        match self {
            Self::True => out.extend_from_slice(b"true"),
            Self::False => out.extend_from_slice(b"false"),
            Self::Symbol(name) => constant(name, out),
            Self::Predicate(predicate) => predicate.encode(out),
            Self::Equals(it) => {
                list(Keyword::Equals, out, &[&it.0, &it.1]);
            }
            Self::Result(it) => {
                list(Keyword::Result, out, &[&it.0, &it.1]);
            }
            Self::Not(wff) => list(Keyword::Not, out, &[&**wff]),
            Self::Connective(connective, it) => {
                list(Keyword::Connective(*connective), out, &[&it.0, &it.1])
            }
            Self::Quantified(quantifier, name, wff) => list(
                Keyword::Quantifier(*quantifier),
                out,
                &[&Variable(name), &**wff],
            ),
            Self::Modal(operator, it) => list(Keyword::Modal(*operator), out, &[&it.0, &it.1]),
            Self::Feasible(it) => with_condition(Keyword::Feasible, it, out),
            Self::Done(it) => with_condition(Keyword::Done, it, out),
        }
    }
}

impl IdentifyingExpression<'_> {
    /// Appends the expression as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        list(
            Keyword::Referential(self.operator),
            out,
            &[&self.term, &self.condition],
        );
    }
}

impl ActionExpression<'_> {
    /// Appends the action as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Action { agent, act } => {
                list(Keyword::Action, out, &[agent, act]);
            }
            Self::Choice(it) => {
                list(Keyword::Choice, out, &[&it.0, &it.1]);
            }
            Self::Sequence(it) => {
                list(Keyword::Then, out, &[&it.0, &it.1]);
            }
        }
    }
}

impl FunctionalTerm<'_> {
    /// Appends the symbol and its arguments as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'(');
        symbol(&self.symbol, out);
        match &self.arguments {
            Arguments::Positional(arguments) => terms(arguments, out),
            Arguments::Named(parameters) => {
                for parameter in parameters {
                    out.extend_from_slice(b" :");
                    string(&parameter.name, out);
                    out.push(b' ');
                    parameter.value.encode(out);
                }
            }
        }
        out.push(b')');
    }
}

impl Term<'_> {
    /// Appends the term as SL to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let members = |keyword: Keyword, members: &[Term<'_>], out: &mut Vec<u8>| {
            out.push(b'(');
            out.extend_from_slice(keyword.name().as_bytes());
            terms(members, out);
            out.push(b')');
        };
        match self {
            Self::Variable(name) => Variable(name).write(out),
            Self::Text(text) => constant(text, out),
            Self::Truth(true) => out.extend_from_slice(b"true"),
            Self::Truth(false) => out.extend_from_slice(b"false"),
            Self::Bytes(it) => literal::write_counted(it, out),
            Self::Integer(it) => out.extend_from_slice(it.to_string().as_bytes()),
            Self::Float(it) => out.extend_from_slice(it.to_string().as_bytes()),
            Self::DateTime(it) => it.write_to(out),
            Self::Function(function) => function.encode(out),
            Self::Sequence(it) => members(Keyword::Sequence, it, out),
            Self::Set(it) => members(Keyword::Set, it, out),
            Self::Action(action) => action.encode(out),
            Self::Identifying(expression) => expression.encode(out),
        }
    }

    /// The term as SL. The result is text, unless it contains a [`Term::Bytes`] with other bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// For people. Bytes that are not text are shown as U+FFFD. To send a value, use `encode`.
macro_rules! display {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut out = Vec::new();
                self.encode(&mut out);
                f.write_str(&String::from_utf8_lossy(&out))
            }
        }
    )*};
}

display!(Content ContentExpression Wff IdentifyingExpression ActionExpression FunctionalTerm Term);
