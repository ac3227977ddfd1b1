//! Bodies in FIPA-SL: expressions, and the actions and predicates of ontologies.

use sealbus_fipa::sl::{
    ActionExpression, Content, ContentExpression, Term, Wff, to_predicate, to_term,
};
use sealbus_fipa::{AclMessageRef, Aid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Body, BodyError, LIMITS, SL, WrittenBody, check_ontology, content_in, shortened};

/// A struct that is an action or a predicate of an ontology. The struct's name is the symbol, its fields are the slots
/// in their order, and structs in it are concepts. [`to_term`](crate::acl::sl::to_term) describes the form of values.
/// An agent of JADE reads the struct with an `Ontology` of the same name and schemas.
///
/// ```
/// use sealbus::body::{Action, Element, WithBody};
/// use sealbus::{AclMessage, Aid, Performative};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Book {
///     title: String,
///     price: f64,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Sell {
///     item: Book,
/// }
///
/// impl Element for Sell {
///     const ONTOLOGY: &str = "book-trading";
/// }
///
/// let seller = Aid::new("seller@shop")?;
/// let book = Book { title: "Agents talk".into(), price: 12.5 };
/// let request = AclMessage::new(Performative::Request)
///     .with_body(&Action { agent: seller, act: Sell { item: book } })?;
/// let content = request.content.as_ref().and_then(|content| content.as_text());
/// let expected = concat!(
///     "((action (agent-identifier :name seller@shop) ",
///     r#"(Sell :item (Book :title "Agents talk" :price 12.5))))"#
/// );
/// assert_eq!(content, Some(expected));
/// assert_eq!(request.body::<Action<Sell>>()?.act.item.price, 12.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Element: Serialize + DeserializeOwned {
    /// The name of the ontology.
    const ONTOLOGY: &'static str;
}

/// `((action agent act))`: an agent does something. The expressions that follow it, such as the reason in a refusal,
/// are not read.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<T> {
    /// The agent that acts.
    pub agent: Aid,
    /// The act.
    pub act: T,
}

/// `((predicate …))`: something that is true. Its slots are written by position, as JADE reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Predicate<T>(pub T);

/// `((done (action agent act)))`: an action that has taken place.
#[derive(Debug, Clone, PartialEq)]
pub struct Done<T>(pub Action<T>);

/// `((result (action agent act) value))`: the result of an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome<T, V> {
    /// The action.
    pub action: Action<T>,
    /// The result of the action.
    pub value: V,
}

impl Body for Content<'static> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(WrittenBody {
            content: self.clone().into(),
            language: Some(SL.to_owned()),
            ontology: None,
        })
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        let content = content_in(message, SL)?;
        let content = Content::parse(&*content, &LIMITS).map_err(BodyError::whole)?;
        Ok(content.into_owned())
    }
}

fn written<T: Element>(expression: impl Into<ContentExpression<'static>>) -> WrittenBody {
    WrittenBody {
        content: Content::of(expression).into(),
        language: Some(SL.to_owned()),
        ontology: Some(T::ONTOLOGY.to_owned()),
    }
}

/// The first expression of a message of the ontology of `T`.
fn first<T: Element>(message: &AclMessageRef<'_>) -> Result<ContentExpression<'static>, BodyError> {
    let content = Content::read(message)?;
    check_ontology(message, T::ONTOLOGY)?;
    let mut expressions = content.expressions.into_iter();
    expressions.next().ok_or(BodyError::Missing)
}

fn expected<T>(what: &str, found: &impl ToString) -> Result<T, BodyError> {
    let found = shortened(&found.to_string());
    Err(BodyError::whole(format!("expected {what}, got {found}")))
}

fn value<T: DeserializeOwned>(term: &Term<'_>) -> Result<T, BodyError> {
    serde_path_to_error::deserialize(term).map_err(|error| BodyError::Misfit {
        place: super::place(&error.path().to_string()),
        problem: shortened(&error.into_inner().to_string()),
    })
}

impl<T: Element> Action<T> {
    fn expression(&self) -> Result<ActionExpression<'static>, BodyError> {
        let act = to_term(&self.act).map_err(BodyError::whole)?;
        Ok(ActionExpression::new(
            self.agent.to_term().into_owned(),
            act,
        ))
    }

    fn of(expression: &ActionExpression<'_>) -> Result<Self, BodyError> {
        match expression {
            ActionExpression::Action { agent, act } => Ok(Self {
                agent: value(agent)?,
                act: value(act)?,
            }),
            other => expected("one action", other),
        }
    }
}

impl<T: Element> Body for Action<T> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(written::<T>(self.expression()?))
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        match first::<T>(message)? {
            ContentExpression::Action(action) => Self::of(&action),
            other => expected("an action", &other),
        }
    }
}

impl<T: Element> Body for Predicate<T> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        let predicate = to_predicate(&self.0).map_err(BodyError::whole)?;
        Ok(written::<T>(predicate))
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        let term = match first::<T>(message)? {
            ContentExpression::Proposition(Wff::Predicate(predicate)) => Term::Function(predicate),
            ContentExpression::Proposition(Wff::Symbol(symbol)) => Term::Text(symbol),
            other => return expected("a predicate", &other),
        };
        value(&term).map(Self)
    }
}

impl<T: Element> Body for Done<T> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        Ok(written::<T>(Wff::done(self.0.expression()?)))
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        match first::<T>(message)? {
            ContentExpression::Proposition(Wff::Done(done)) => Action::of(&done.0).map(Self),
            other => expected("(done …)", &other),
        }
    }
}

impl<T: Element, V: Serialize + DeserializeOwned> Body for Outcome<T, V> {
    fn write(&self) -> Result<WrittenBody, BodyError> {
        let value = to_term(&self.value).map_err(BodyError::whole)?;
        Ok(written::<T>(Wff::result(self.action.expression()?, value)))
    }

    fn read(message: &AclMessageRef<'_>) -> Result<Self, BodyError> {
        match first::<T>(message)? {
            ContentExpression::Proposition(Wff::Result(result)) => match &result.0 {
                Term::Action(action) => Ok(Self {
                    action: Action::of(action)?,
                    value: value(&result.1)?,
                }),
                other => expected("an action", other),
            },
            other => expected("(result …)", &other),
        }
    }
}
