use super::frame::name_of;
use super::{AmsAgentDescription, DfAgentDescription, Exception, SearchConstraints};
use crate::Aid;
use crate::sl::{ActionExpression, Arguments, FunctionalTerm, Term};
use alloc::string::String;
use alloc::vec::Vec;

/// The functions of a DF.
#[derive(Debug, Clone, PartialEq)]
pub enum DfFunction {
    /// Add an entry.
    Register(DfAgentDescription),
    /// Remove an entry; only its name matters.
    Deregister(DfAgentDescription),
    /// Replace an entry.
    Modify(DfAgentDescription),
    /// Find entries that match a template.
    Search(DfAgentDescription, SearchConstraints),
}

/// The functions of an AMS.
#[derive(Debug, Clone, PartialEq)]
pub enum AmsFunction {
    /// Add an entry.
    Register(AmsAgentDescription),
    /// Remove an entry; only its name matters.
    Deregister(AmsAgentDescription),
    /// Replace an entry.
    Modify(AmsAgentDescription),
    /// Find entries that match a template.
    Search(AmsAgentDescription, SearchConstraints),
    /// Describe the platform.
    GetDescription,
}

impl DfFunction {
    /// The function as a term, with its arguments by position.
    pub fn to_term(&self) -> Term<'_> {
        match self {
            Self::Register(description) => call("register", [description.to_term()]),
            Self::Deregister(description) => call("deregister", [description.to_term()]),
            Self::Modify(description) => call("modify", [description.to_term()]),
            Self::Search(template, constraints) => {
                call("search", [template.to_term(), constraints.to_term()])
            }
        }
    }

    /// Reads a function.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let call = Call::read(term)?;
        const OBJECT: &str = DfAgentDescription::OBJECT;
        let read = DfAgentDescription::from_term;
        Ok(match call.name.as_str() {
            "register" => Self::Register(call.only(OBJECT, read)?),
            "deregister" => Self::Deregister(call.only(OBJECT, read)?),
            "modify" => Self::Modify(call.only(OBJECT, read)?),
            "search" => call.search(OBJECT, read).map(|(a, b)| Self::Search(a, b))?,
            _ => return Err(Exception::UnsupportedFunction(call.name)),
        })
    }

    /// `(action df …)`: the content of a request.
    pub fn action<'a>(&'a self, df: &'a Aid) -> ActionExpression<'a> {
        ActionExpression::new(df.to_term(), self.to_term())
    }
}

impl AmsFunction {
    /// The function as a term, with its arguments by position.
    pub fn to_term(&self) -> Term<'_> {
        match self {
            Self::Register(description) => call("register", [description.to_term()]),
            Self::Deregister(description) => call("deregister", [description.to_term()]),
            Self::Modify(description) => call("modify", [description.to_term()]),
            Self::Search(template, constraints) => {
                call("search", [template.to_term(), constraints.to_term()])
            }
            Self::GetDescription => call("get-description", []),
        }
    }

    /// Reads a function.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let call = Call::read(term)?;
        const OBJECT: &str = AmsAgentDescription::OBJECT;
        let read = AmsAgentDescription::from_term;
        Ok(match call.name.as_str() {
            "register" => Self::Register(call.only(OBJECT, read)?),
            "deregister" => Self::Deregister(call.only(OBJECT, read)?),
            "modify" => Self::Modify(call.only(OBJECT, read)?),
            "search" => call.search(OBJECT, read).map(|(a, b)| Self::Search(a, b))?,
            "get-description" if call.arguments.is_empty() => Self::GetDescription,
            "get-description" => return Err(Exception::UnexpectedArgumentCount),
            _ => return Err(Exception::UnsupportedFunction(call.name)),
        })
    }

    /// `(action ams …)`: the content of a request.
    pub fn action<'a>(&'a self, ams: &'a Aid) -> ActionExpression<'a> {
        ActionExpression::new(ams.to_term(), self.to_term())
    }
}

fn call<'a, const N: usize>(name: &'static str, arguments: [Term<'a>; N]) -> Term<'a> {
    Term::function(name, arguments.into())
}

/// A function's name in lower case and its arguments in their order, named or not.
struct Call<'t, 'a> {
    name: String,
    arguments: Vec<&'t Term<'a>>,
}

impl<'t, 'a> Call<'t, 'a> {
    fn read(term: &'t Term<'a>) -> Result<Self, Exception> {
        match term {
            Term::Function(function) => {
                let FunctionalTerm { symbol, arguments } = function.as_ref();
                let arguments = match arguments {
                    Arguments::Positional(terms) => terms.iter().collect(),
                    Arguments::Named(parameters) => parameters.iter().map(|it| &it.value).collect(),
                };
                Ok(Self {
                    name: symbol.to_ascii_lowercase(),
                    arguments,
                })
            }
            // `get-description` may come without its parentheses.
            Term::Text(name) => Ok(Self {
                name: name.to_ascii_lowercase(),
                arguments: Vec::new(),
            }),
            other => Err(Exception::UnsupportedFunction(name_of(other))),
        }
    }

    fn only<T>(
        &self,
        object: &str,
        read: impl FnOnce(&Term<'_>) -> Result<T, Exception>,
    ) -> Result<T, Exception> {
        match self.arguments.as_slice() {
            [argument] => read(argument),
            [] => Err(Exception::MissingArgument(object.into())),
            _ => Err(Exception::UnexpectedArgumentCount),
        }
    }

    /// Reads a template and constraints. Constraints may be left out. Then there are none.
    fn search<T>(
        &self,
        object: &str,
        read: impl FnOnce(&Term<'_>) -> Result<T, Exception>,
    ) -> Result<(T, SearchConstraints), Exception> {
        match self.arguments.as_slice() {
            [template] => Ok((read(template)?, SearchConstraints::default())),
            [template, constraints] => {
                Ok((read(template)?, SearchConstraints::from_term(constraints)?))
            }
            [] => Err(Exception::MissingArgument(object.into())),
            _ => Err(Exception::UnexpectedArgumentCount),
        }
    }
}
