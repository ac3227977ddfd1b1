use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::DateTime;

/// A string of SL: borrowed from the bytes it was read from unless escapes had to be undone.
pub type Text<'a> = Cow<'a, str>;

/// The content of a message: a non-empty tuple of expressions.
#[derive(Debug, Clone, PartialEq)]
pub struct Content<'a> {
    /// The expressions in their order.
    pub expressions: Vec<ContentExpression<'a>>,
}

/// One member of a [`Content`].
#[derive(Debug, Clone, PartialEq)]
pub enum ContentExpression<'a> {
    /// `(iota …)`, `(any …)`, `(all …)`: refers to objects. It is content of `query-ref` and `subscribe`.
    Identifying(IdentifyingExpression<'a>),
    /// Something to do; content of `request`.
    Action(ActionExpression<'a>),
    /// Something true or false; content of `inform`.
    Proposition(Wff<'a>),
}

/// A well-formed formula, which can be true or false.
#[derive(Debug, Clone, PartialEq)]
pub enum Wff<'a> {
    /// `true`.
    True,
    /// `false`.
    False,
    /// A proposition symbol such as `already-registered`.
    Symbol(Text<'a>),
    /// A predicate with at least one argument. Named arguments are not in the standard's grammar,
    /// but appear where an ACL message is embedded as an event.
    Predicate(Box<FunctionalTerm<'a>>),
    /// `(= a b)`.
    Equals(Box<(Term<'a>, Term<'a>)>),
    /// `(result action value)`.
    Result(Box<(Term<'a>, Term<'a>)>),
    /// `(not p)`.
    Not(Box<Wff<'a>>),
    /// `(and p q)` and its kin, always of two operands.
    Connective(Connective, Box<(Wff<'a>, Wff<'a>)>),
    /// `(forall ?x p)` and `(exists ?x p)`, with the name of the variable.
    Quantified(Quantifier, Text<'a>, Box<Wff<'a>>),
    /// `(B agent p)` and its kin.
    Modal(ModalOperator, Box<(Term<'a>, Wff<'a>)>),
    /// `(feasible action p?)`: the action can take place, and `p` holds just after it.
    Feasible(Box<(ActionExpression<'a>, Option<Wff<'a>>)>),
    /// `(done action p?)`: the action has just taken place, and `p` held just before it.
    Done(Box<(ActionExpression<'a>, Option<Wff<'a>>)>),
}

/// Joins two formulas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connective {
    /// Both hold.
    And,
    /// At least one holds.
    Or,
    /// If the first holds, so does the second.
    Implies,
    /// Both or neither.
    Equiv,
}

/// Says for how many values of its variable a formula holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantifier {
    /// For all.
    ForAll,
    /// For at least one.
    Exists,
}

/// The attitude of an agent towards a formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModalOperator {
    /// `B`: believes it.
    Believes,
    /// `U`: the agent is uncertain, but thinks the formula likelier than not.
    Uncertain,
    /// `PG`: has it as a persistent goal.
    PersistentGoal,
    /// `I`: intends it.
    Intends,
}

/// How many objects an identifying expression refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReferentialOperator {
    /// The one object for which the formula holds.
    Iota,
    /// Some object for which it holds.
    Any,
    /// The set of all objects for which it holds.
    All,
}

/// `(iota ?x p)`: the object, or objects, for which a formula holds.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentifyingExpression<'a> {
    /// The choice among the objects.
    pub operator: ReferentialOperator,
    /// The object's pattern: a variable, or a term with variables.
    pub term: Term<'a>,
    /// The formula.
    pub condition: Wff<'a>,
}

/// Something that agents do.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionExpression<'a> {
    /// `(action agent act)`.
    Action {
        /// The actor: an `agent-identifier`, or an expression that refers to one.
        agent: Term<'a>,
        /// The act that the actor performs.
        act: Term<'a>,
    },
    /// `(| a b)`: one of the two.
    Choice(Box<(ActionExpression<'a>, ActionExpression<'a>)>),
    /// `(; a b)`: the first, then the second.
    Sequence(Box<(ActionExpression<'a>, ActionExpression<'a>)>),
}

/// A symbol applied to arguments, as a term (function) or as a formula (predicate).
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionalTerm<'a> {
    /// The symbol.
    pub symbol: Text<'a>,
    /// The arguments of the symbol.
    pub arguments: Arguments<'a>,
}

/// The arguments of a symbol: all by position or all by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments<'a> {
    /// `a b c`; also stands for none at all.
    Positional(Vec<Term<'a>>),
    /// `:name a :address b`.
    Named(Vec<Parameter<'a>>),
}

/// A named argument, `:name value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter<'a> {
    /// The name without its colon.
    pub name: Text<'a>,
    /// The value.
    pub value: Term<'a>,
}

/// The names that an expression uses.
#[derive(Debug, Clone, PartialEq)]
pub enum Term<'a> {
    /// `?x`, with the name of the variable.
    Variable(Text<'a>),
    /// A string constant, whether it was written as a word or in quotes.
    Text(Text<'a>),
    /// The word `true` or `false`, with which JADE writes truth values. The string of these letters is quoted.
    Truth(bool),
    /// A byte-length encoded string, `#3"abc`: any bytes. A string that is UTF-8 and ends in a backslash is read as
    /// [`Term::Text`], because such text has no other written form.
    Bytes(Cow<'a, [u8]>),
    /// An integer. It is written in decimal even if it was read in hexadecimal.
    Integer(i64),
    /// A number with a point or an exponent.
    Float(Float),
    /// A point in time or an amount of time.
    DateTime(DateTime),
    /// A function of arguments; also how objects are written.
    Function(Box<FunctionalTerm<'a>>),
    /// `(sequence …)`: ordered.
    Sequence(Vec<Term<'a>>),
    /// `(set …)`: without order. The order of the text is kept, and `==` compares it.
    Set(Vec<Term<'a>>),
    /// An action spoken about.
    Action(Box<ActionExpression<'a>>),
    /// The object that an expression refers to.
    Identifying(Box<IdentifyingExpression<'a>>),
}

/// A finite floating-point number: SL can write neither infinities nor NaN.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Float(f64);

impl Eq for Float {}

impl Float {
    /// `None` if the number is infinite or not a number.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug, unlike Display, always writes a point or an exponent, which marks a float in SL.
        write!(f, "{:?}", self.0)
    }
}

impl<'a> Content<'a> {
    /// A content of one expression.
    pub fn of(expression: impl Into<ContentExpression<'a>>) -> Self {
        Self {
            expressions: vec![expression.into()],
        }
    }

    /// The same content with one more expression at its end.
    pub fn and(mut self, expression: impl Into<ContentExpression<'a>>) -> Self {
        self.expressions.push(expression.into());
        self
    }
}

impl<'a> From<ActionExpression<'a>> for ContentExpression<'a> {
    fn from(action: ActionExpression<'a>) -> Self {
        Self::Action(action)
    }
}

impl<'a> From<Wff<'a>> for ContentExpression<'a> {
    fn from(proposition: Wff<'a>) -> Self {
        Self::Proposition(proposition)
    }
}

impl<'a> From<IdentifyingExpression<'a>> for ContentExpression<'a> {
    fn from(expression: IdentifyingExpression<'a>) -> Self {
        Self::Identifying(expression)
    }
}

impl<'a> Wff<'a> {
    /// A predicate, or the bare symbol if there are no arguments.
    pub fn predicate(symbol: impl Into<Text<'a>>, arguments: Vec<Term<'a>>) -> Self {
        let symbol = symbol.into();
        if arguments.is_empty() {
            return Self::Symbol(symbol);
        }
        let arguments = Arguments::Positional(arguments);
        Self::Predicate(Box::new(FunctionalTerm { symbol, arguments }))
    }

    /// `(done action)`.
    pub fn done(action: ActionExpression<'a>) -> Self {
        Self::Done(Box::new((action, None)))
    }

    /// `(result action value)`.
    pub fn result(action: ActionExpression<'a>, value: Term<'a>) -> Self {
        Self::Result(Box::new((Term::Action(Box::new(action)), value)))
    }

    /// `(= left right)`.
    pub fn equals(left: Term<'a>, right: Term<'a>) -> Self {
        Self::Equals(Box::new((left, right)))
    }
}

impl<'a> ActionExpression<'a> {
    /// `(action agent act)`.
    pub fn new(agent: Term<'a>, act: Term<'a>) -> Self {
        Self::Action { agent, act }
    }
}

impl<'a> Term<'a> {
    /// A string constant.
    pub fn text(text: impl Into<Text<'a>>) -> Self {
        Self::Text(text.into())
    }

    /// A function with positional arguments.
    pub fn function(symbol: impl Into<Text<'a>>, arguments: Vec<Term<'a>>) -> Self {
        let arguments = Arguments::Positional(arguments);
        Self::Function(Box::new(FunctionalTerm {
            symbol: symbol.into(),
            arguments,
        }))
    }

    /// A function with named arguments: an object of an ontology.
    pub fn frame(symbol: impl Into<Text<'a>>, parameters: Vec<Parameter<'a>>) -> Self {
        let arguments = if parameters.is_empty() {
            Arguments::Positional(Vec::new())
        } else {
            Arguments::Named(parameters)
        };
        Self::Function(Box::new(FunctionalTerm {
            symbol: symbol.into(),
            arguments,
        }))
    }

    /// The text of a string constant, for every form in which it can be written.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Truth(true) => Some("true"),
            Self::Truth(false) => Some("false"),
            Self::Bytes(bytes) => core::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The members of a set or sequence.
    pub fn as_members(&self) -> Option<&[Term<'a>]> {
        match self {
            Self::Sequence(members) | Self::Set(members) => Some(members),
            _ => None,
        }
    }
}

impl FunctionalTerm<'_> {
    /// Whether there are any arguments.
    pub fn has_arguments(&self) -> bool {
        match &self.arguments {
            Arguments::Positional(terms) => !terms.is_empty(),
            Arguments::Named(parameters) => !parameters.is_empty(),
        }
    }
}

impl<'a> Parameter<'a> {
    /// `:name value`.
    pub fn new(name: impl Into<Text<'a>>, value: Term<'a>) -> Self {
        Self {
            name: name.into(),
            value,
        }
    }
}

/// Gives every type of the tree an `into_owned` that releases it from the bytes it was read from.
mod owned {
    use super::*;

    fn text(text: Text<'_>) -> Text<'static> {
        Cow::Owned(text.into_owned())
    }

    fn pair<A, B, C, D>(pair: (A, B), a: impl Fn(A) -> C, b: impl Fn(B) -> D) -> Box<(C, D)> {
        Box::new((a(pair.0), b(pair.1)))
    }

    fn terms(terms: Vec<Term<'_>>) -> Vec<Term<'static>> {
        terms.into_iter().map(Term::into_owned).collect()
    }

    impl Content<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> Content<'static> {
            let owned = self
                .expressions
                .into_iter()
                .map(ContentExpression::into_owned);
            Content {
                expressions: owned.collect(),
            }
        }
    }

    impl ContentExpression<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> ContentExpression<'static> {
            match self {
                Self::Identifying(it) => ContentExpression::Identifying(it.into_owned()),
                Self::Action(it) => ContentExpression::Action(it.into_owned()),
                Self::Proposition(it) => ContentExpression::Proposition(it.into_owned()),
            }
        }
    }

    impl Wff<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> Wff<'static> {
            let with_condition = |action: ActionExpression<'_>, wff: Option<Wff<'_>>| {
                Box::new((action.into_owned(), wff.map(Wff::into_owned)))
            };
            match self {
                Self::True => Wff::True,
                Self::False => Wff::False,
                Self::Symbol(symbol) => Wff::Symbol(text(symbol)),
                Self::Predicate(it) => Wff::Predicate(Box::new(it.into_owned())),
                Self::Equals(it) => Wff::Equals(pair(*it, Term::into_owned, Term::into_owned)),
                Self::Result(it) => Wff::Result(pair(*it, Term::into_owned, Term::into_owned)),
                Self::Not(it) => Wff::Not(Box::new(it.into_owned())),
                Self::Connective(connective, it) => {
                    Wff::Connective(connective, pair(*it, Wff::into_owned, Wff::into_owned))
                }
                Self::Quantified(quantifier, variable, it) => {
                    Wff::Quantified(quantifier, text(variable), Box::new(it.into_owned()))
                }
                Self::Modal(operator, it) => {
                    Wff::Modal(operator, pair(*it, Term::into_owned, Wff::into_owned))
                }
                Self::Feasible(it) => Wff::Feasible(with_condition(it.0, it.1)),
                Self::Done(it) => Wff::Done(with_condition(it.0, it.1)),
            }
        }
    }

    impl IdentifyingExpression<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> IdentifyingExpression<'static> {
            IdentifyingExpression {
                operator: self.operator,
                term: self.term.into_owned(),
                condition: self.condition.into_owned(),
            }
        }
    }

    impl ActionExpression<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> ActionExpression<'static> {
            match self {
                Self::Action { agent, act } => {
                    ActionExpression::new(agent.into_owned(), act.into_owned())
                }
                Self::Choice(it) => {
                    ActionExpression::Choice(pair(*it, Self::into_owned, Self::into_owned))
                }
                Self::Sequence(it) => {
                    ActionExpression::Sequence(pair(*it, Self::into_owned, Self::into_owned))
                }
            }
        }
    }

    impl FunctionalTerm<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> FunctionalTerm<'static> {
            let arguments = match self.arguments {
                Arguments::Positional(it) => Arguments::Positional(terms(it)),
                Arguments::Named(it) => {
                    Arguments::Named(it.into_iter().map(Parameter::into_owned).collect())
                }
            };
            FunctionalTerm {
                symbol: text(self.symbol),
                arguments,
            }
        }
    }

    impl Parameter<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> Parameter<'static> {
            Parameter {
                name: text(self.name),
                value: self.value.into_owned(),
            }
        }
    }

    impl Term<'_> {
        /// Cuts the tie to the bytes this was read from.
        pub fn into_owned(self) -> Term<'static> {
            match self {
                Self::Variable(name) => Term::Variable(text(name)),
                Self::Text(it) => Term::Text(text(it)),
                Self::Truth(it) => Term::Truth(it),
                Self::Bytes(bytes) => Term::Bytes(Cow::Owned(bytes.into_owned())),
                Self::Integer(it) => Term::Integer(it),
                Self::Float(it) => Term::Float(it),
                Self::DateTime(it) => Term::DateTime(it),
                Self::Function(it) => Term::Function(Box::new(it.into_owned())),
                Self::Sequence(it) => Term::Sequence(terms(it)),
                Self::Set(it) => Term::Set(terms(it)),
                Self::Action(it) => Term::Action(Box::new(it.into_owned())),
                Self::Identifying(it) => Term::Identifying(Box::new(it.into_owned())),
            }
        }
    }
}
