use crate::Performative;
use crate::sl::{Arguments, Term, Wff};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Why a request to AMS or DF was turned down (FIPA00023, the exceptions of the ontology).
///
/// Written in the standard's British spelling, read in either and in any letter case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exception {
    /// The receiver does not support this communicative act.
    #[error("the communicative act '{0}' is not supported")]
    UnsupportedAct(String),
    /// The receiver supports the act, but not at this point of a conversation.
    #[error("the communicative act '{0}' is out of place here")]
    UnexpectedAct(String),
    /// A message parameter has a value that the receiver does not support.
    #[error("the value of the message parameter '{0}' is not supported")]
    UnsupportedValue(String),
    /// A message parameter has a value that the receiver cannot read.
    #[error("the value of the message parameter '{0}' cannot be understood")]
    UnrecognisedValue(String),
    /// The sender may not have this done.
    #[error("not authorised")]
    Unauthorised,
    /// The receiver has no such function.
    #[error("there is no function '{0}' here")]
    UnsupportedFunction(String),
    /// A mandatory argument of the function is missing.
    #[error("the argument '{0}' is missing")]
    MissingArgument(String),
    /// The function takes no such argument.
    #[error("the argument '{0}' is not expected")]
    UnexpectedArgument(String),
    /// The function takes another number of arguments.
    #[error("this is not the number of arguments the function takes")]
    UnexpectedArgumentCount,
    /// A mandatory slot of an object is missing.
    #[error("the slot '{slot}' of the {object} is missing")]
    MissingParameter {
        /// The object's frame name.
        object: String,
        /// The slot.
        slot: String,
    },
    /// The object has no such slot, or has it twice.
    #[error("the slot '{slot}' of the {object} is not expected")]
    UnexpectedParameter {
        /// The object's frame name.
        object: String,
        /// The slot.
        slot: String,
    },
    /// A slot has a value that the receiver cannot read.
    #[error("the value of the slot '{slot}' of the {object} cannot be understood")]
    UnrecognisedParameterValue {
        /// The object's frame name.
        object: String,
        /// The slot.
        slot: String,
    },
    /// The request exceeds the receiver's limits, in words. It is not in the standard.
    #[error("{0}")]
    LimitExceeded(String),
    /// There is an entry of that name already.
    #[error("already registered")]
    AlreadyRegistered,
    /// There is no entry of that name.
    #[error("not registered")]
    NotRegistered,
    /// Any other fault that made the function fail, in words.
    #[error("{0}")]
    InternalError(String),
}

impl Exception {
    /// The communicative act that carries this exception: not-understood if the request could not be read, refuse if it
    /// will not be tried, failure if the attempt failed.
    pub fn performative(&self) -> Performative {
        match self {
            Self::UnsupportedAct(_)
            | Self::UnexpectedAct(_)
            | Self::UnsupportedValue(_)
            | Self::UnrecognisedValue(_) => Performative::NotUnderstood,
            Self::AlreadyRegistered | Self::NotRegistered | Self::InternalError(_) => {
                Performative::Failure
            }
            _ => Performative::Refuse,
        }
    }

    pub(super) fn missing(object: &str, slot: &str) -> Self {
        Self::MissingParameter {
            object: object.into(),
            slot: slot.into(),
        }
    }

    pub(super) fn unrecognised(object: &str, slot: &str) -> Self {
        Self::UnrecognisedParameterValue {
            object: object.into(),
            slot: slot.into(),
        }
    }

    fn parts(&self) -> (&'static str, [Option<&str>; 2]) {
        match self {
            Self::UnsupportedAct(it) => ("unsupported-act", [Some(it), None]),
            Self::UnexpectedAct(it) => ("unexpected-act", [Some(it), None]),
            Self::UnsupportedValue(it) => ("unsupported-value", [Some(it), None]),
            Self::UnrecognisedValue(it) => ("unrecognised-value", [Some(it), None]),
            Self::Unauthorised => ("unauthorised", [None, None]),
            Self::UnsupportedFunction(it) => ("unsupported-function", [Some(it), None]),
            Self::MissingArgument(it) => ("missing-argument", [Some(it), None]),
            Self::UnexpectedArgument(it) => ("unexpected-argument", [Some(it), None]),
            Self::UnexpectedArgumentCount => ("unexpected-argument-count", [None, None]),
            Self::MissingParameter { object, slot } => {
                ("missing-parameter", [Some(object), Some(slot)])
            }
            Self::UnexpectedParameter { object, slot } => {
                ("unexpected-parameter", [Some(object), Some(slot)])
            }
            Self::UnrecognisedParameterValue { object, slot } => {
                ("unrecognised-parameter-value", [Some(object), Some(slot)])
            }
            Self::LimitExceeded(it) => ("limit-exceeded", [Some(it), None]),
            Self::AlreadyRegistered => ("already-registered", [None, None]),
            Self::NotRegistered => ("not-registered", [None, None]),
            Self::InternalError(it) => ("internal-error", [Some(it), None]),
        }
    }

    /// The proposition that states the exception, such as `(missing-parameter property name)`.
    pub fn to_wff(&self) -> Wff<'_> {
        let (symbol, arguments) = self.parts();
        Wff::predicate(
            symbol,
            arguments.into_iter().flatten().map(Term::text).collect(),
        )
    }

    /// Reads a proposition; `None` if it states no exception of the ontology.
    pub fn from_wff(wff: &Wff<'_>) -> Option<Self> {
        let (symbol, terms): (&str, Vec<&Term<'_>>) = match wff {
            Wff::Symbol(symbol) => (symbol, Vec::new()),
            Wff::Predicate(predicate) => {
                let terms = match &predicate.arguments {
                    Arguments::Positional(terms) => terms.iter().collect(),
                    Arguments::Named(parameters) => parameters.iter().map(|it| &it.value).collect(),
                };
                (&predicate.symbol, terms)
            }
            _ => return None,
        };
        // Arguments that are not strings (JADE sometimes sends whole objects) are kept as SL.
        let text = |index: usize| {
            terms
                .get(index)
                .map_or_else(String::new, |term| match term.as_text() {
                    Some(text) => text.to_owned(),
                    None => term.to_string(),
                })
        };
        Some(match symbol.to_ascii_lowercase().as_str() {
            "unsupported-act" => Self::UnsupportedAct(text(0)),
            "unexpected-act" => Self::UnexpectedAct(text(0)),
            "unsupported-value" => Self::UnsupportedValue(text(0)),
            "unrecognised-value" | "unrecognized-value" => Self::UnrecognisedValue(text(0)),
            "unauthorised" | "unauthorized" => Self::Unauthorised,
            "unsupported-function" => Self::UnsupportedFunction(text(0)),
            "missing-argument" => Self::MissingArgument(text(0)),
            "unexpected-argument" => Self::UnexpectedArgument(text(0)),
            "unexpected-argument-count" => Self::UnexpectedArgumentCount,
            "missing-parameter" => Self::MissingParameter {
                object: text(0),
                slot: text(1),
            },
            "unexpected-parameter" => Self::UnexpectedParameter {
                object: text(0),
                slot: text(1),
            },
            "unrecognised-parameter-value" | "unrecognized-parameter-value" => {
                Self::UnrecognisedParameterValue {
                    object: text(0),
                    slot: text(1),
                }
            }
            "limit-exceeded" => Self::LimitExceeded(text(0)),
            "already-registered" => Self::AlreadyRegistered,
            "not-registered" => Self::NotRegistered,
            "internal-error" => Self::InternalError(text(0)),
            _ => return None,
        })
    }
}
