use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::tree::{
    ActionExpression, Arguments, Connective, Content, ContentExpression, FunctionalTerm,
    IdentifyingExpression, Quantifier, Term, Wff,
};

/// The part of SL that a content may use. Each profile includes the profiles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Actions, `done`, `result` and simple predicates. Requests to AMS and DF use this profile.
    Sl0,
    /// Also `not`, `and`, `or`.
    Sl1,
    /// Also variables, identifying expressions, modal operators, and quantifiers as a prefix:
    /// every `forall` before every `exists`. Decidable.
    Sl2,
    /// Everything.
    Sl,
}

impl Profile {
    /// The value of `:language` for this profile.
    pub fn language(self) -> &'static str {
        match self {
            Self::Sl0 => "fipa-sl0",
            Self::Sl1 => "fipa-sl1",
            Self::Sl2 => "fipa-sl2",
            Self::Sl => "fipa-sl",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.language())
    }
}

/// A `:language` outside the SL family.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an SL language: use fipa-sl0, fipa-sl1, fipa-sl2 or fipa-sl")]
pub struct UnknownProfile(pub String);

impl FromStr for Profile {
    type Err = UnknownProfile;
    fn from_str(language: &str) -> Result<Self, Self::Err> {
        [Self::Sl0, Self::Sl1, Self::Sl2, Self::Sl]
            .into_iter()
            .find(|profile| profile.language().eq_ignore_ascii_case(language))
            .ok_or_else(|| UnknownProfile(language.to_owned()))
    }
}

/// A content uses more of SL than its language allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{construct} is not part of {allowed}: use {needed} or more")]
pub struct ProfileError {
    /// The construct that the profile does not have.
    pub construct: &'static str,
    /// The profile asked for.
    pub allowed: Profile,
    /// The least profile that has the construct.
    pub needed: Profile,
}

impl Content<'_> {
    /// Checks that the content keeps within `allowed`. If not, returns the first construct that does not.
    pub fn check(&self, allowed: Profile) -> Result<(), ProfileError> {
        let check = Check { allowed };
        self.expressions
            .iter()
            .try_for_each(|expression| match expression {
                ContentExpression::Identifying(it) => check.identifying(it),
                ContentExpression::Action(it) => check.action(it),
                ContentExpression::Proposition(it) => check.prenex(it),
            })
    }

    /// The least profile that has every construct in the content. Declare it as the language of the content.
    pub fn profile(&self) -> Profile {
        let mut profile = Profile::Sl0;
        // Each round finds a construct that needs a higher profile, so there are three rounds at most.
        while let Err(error) = self.check(profile) {
            profile = error.needed;
        }
        profile
    }
}

struct Check {
    allowed: Profile,
}

type Checked = Result<(), ProfileError>;

impl Check {
    fn needs(&self, needed: Profile, construct: &'static str) -> Checked {
        if self.allowed >= needed {
            Ok(())
        } else {
            Err(ProfileError {
                construct,
                allowed: self.allowed,
                needed,
            })
        }
    }

    /// Checks a formula at a place where SL2 admits a prefix of quantifiers.
    fn prenex(&self, wff: &Wff<'_>) -> Checked {
        let mut rest = wff;
        let mut exists = false;
        while let Wff::Quantified(quantifier, _, inner) = rest {
            self.needs(Profile::Sl2, "a quantifier")?;
            match quantifier {
                Quantifier::Exists => exists = true,
                Quantifier::ForAll if exists => {
                    self.needs(Profile::Sl, "a 'forall' inside an 'exists'")?;
                }
                Quantifier::ForAll => {}
            }
            rest = inner;
        }
        self.wff(rest)
    }

    fn wff(&self, wff: &Wff<'_>) -> Checked {
        match wff {
            Wff::True | Wff::False | Wff::Symbol(_) => Ok(()),
            Wff::Predicate(predicate) => self.function(predicate),
            Wff::Equals(it) => {
                self.needs(Profile::Sl2, "'='")?;
                self.term(&it.0)?;
                self.term(&it.1)
            }
            Wff::Result(it) => {
                self.term(&it.0)?;
                self.term(&it.1)
            }
            Wff::Not(inner) => {
                self.needs(Profile::Sl1, "'not'")?;
                self.wff(inner)
            }
            Wff::Connective(connective, it) => {
                match connective {
                    Connective::And | Connective::Or => {
                        self.needs(Profile::Sl1, "'and' or 'or'")?
                    }
                    Connective::Implies | Connective::Equiv => {
                        self.needs(Profile::Sl2, "'implies' or 'equiv'")?;
                    }
                }
                self.wff(&it.0)?;
                self.wff(&it.1)
            }
            Wff::Quantified(..) => {
                self.needs(
                    Profile::Sl,
                    "a quantifier that is not at the front of its formula",
                )?;
                self.prenex(wff)
            }
            Wff::Modal(_, it) => {
                self.needs(Profile::Sl2, "a modal operator")?;
                self.term(&it.0)?;
                self.prenex(&it.1)
            }
            Wff::Feasible(it) => {
                self.needs(Profile::Sl2, "'feasible'")?;
                self.action_with_condition(&it.0, it.1.as_ref())
            }
            Wff::Done(it) => self.action_with_condition(&it.0, it.1.as_ref()),
        }
    }

    fn action_with_condition(
        &self,
        action: &ActionExpression<'_>,
        wff: Option<&Wff<'_>>,
    ) -> Checked {
        self.action(action)?;
        match wff {
            None => Ok(()),
            Some(wff) => {
                self.needs(Profile::Sl2, "a condition of 'done'")?;
                self.prenex(wff)
            }
        }
    }

    fn action(&self, action: &ActionExpression<'_>) -> Checked {
        match action {
            ActionExpression::Action { agent, act } => {
                self.term(agent)?;
                self.term(act)
            }
            ActionExpression::Choice(it) | ActionExpression::Sequence(it) => {
                self.needs(Profile::Sl2, "'|' or ';' between actions")?;
                self.action(&it.0)?;
                self.action(&it.1)
            }
        }
    }

    fn identifying(&self, expression: &IdentifyingExpression<'_>) -> Checked {
        self.needs(Profile::Sl2, "an identifying expression")?;
        self.term(&expression.term)?;
        self.wff(&expression.condition)
    }

    fn function(&self, function: &FunctionalTerm<'_>) -> Checked {
        match &function.arguments {
            Arguments::Positional(terms) => self.terms(terms),
            Arguments::Named(parameters) => parameters
                .iter()
                .try_for_each(|parameter| self.term(&parameter.value)),
        }
    }

    fn terms(&self, terms: &[Term<'_>]) -> Checked {
        terms.iter().try_for_each(|term| self.term(term))
    }

    fn term(&self, term: &Term<'_>) -> Checked {
        match term {
            Term::Variable(_) => self.needs(Profile::Sl2, "a variable"),
            Term::Function(function) => self.function(function),
            Term::Sequence(terms) | Term::Set(terms) => self.terms(terms),
            Term::Action(action) => self.action(action),
            Term::Identifying(expression) => self.identifying(expression),
            Term::Text(_)
            | Term::Truth(_)
            | Term::Bytes(_)
            | Term::Integer(_)
            | Term::Float(_)
            | Term::DateTime(_) => Ok(()),
        }
    }
}
