//! The requests that agents send to AMS and DF, and the reading of the answers.
//!
//! ```
//! use sealbus_fipa::management::{DfAgentDescription, DfFunction, SearchConstraints};
//! use sealbus_fipa::{AclMessage, Aid, Performative};
//! use sealbus_management::client::{self, Answer};
//!
//! let df = Aid::new("df@factory")?;
//! let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::all());
//! let request = client::ask_df(&df, &search).with_conversation_id("search-1");
//!
//! // … what comes back in this conversation …
//! let found = AclMessage::new(Performative::Inform).with_sender(df)
//!     .with_content("((result (action df (search)) (sequence)))");
//! assert!(Answer::read(&found)?.found(DfAgentDescription::from_term)?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use sealbus_fipa::management::{
    AmsAgentDescription, AmsFunction, DfAgentDescription, DfFunction, Exception, ONTOLOGY,
    SearchConstraints, results, subscription,
};
use sealbus_fipa::sl::{
    ActionExpression, Arguments, Content, ContentExpression, Profile, Term, Wff,
};
use sealbus_fipa::{AclMessage, Aid, Limits, Performative};

pub use super::dialogue::LIMIT_PARAMETER;
use super::dialogue::unreached;

/// A request to a DF. The sender, the conversation-id and the deadline are left open.
pub fn ask_df(df: &Aid, function: &DfFunction) -> AclMessage {
    message(
        Performative::Request,
        df,
        "fipa-request",
        Content::of(function.action(df)),
    )
}

/// A request to an AMS. The sender, the conversation-id and the deadline are left open.
pub fn ask_ams(ams: &Aid, function: &AmsFunction) -> AclMessage {
    message(
        Performative::Request,
        ams,
        "fipa-request",
        Content::of(function.action(ams)),
    )
}

/// Asks a DF to report all entries that match a template: now (as many as the constraints say), and whenever one comes,
/// changes or goes. The caller adds a conversation-id. The DF answers `agree`, and then sends an `inform` each time,
/// which [`Answer::news`] reads.
pub fn subscribe(
    df: &Aid,
    template: DfAgentDescription,
    constraints: SearchConstraints,
) -> AclMessage {
    let search = DfFunction::Search(template, constraints);
    let content = Content::of(subscription::expression(search.action(df)));
    message(Performative::Subscribe, df, "fipa-subscribe", content)
}

/// Asks an AMS to report all agents that match a template: now, and whenever one comes, changes its state or goes. The
/// caller adds a conversation-id. The AMS answers as a DF does; [`Answer::news`] reads its `inform`.
pub fn subscribe_agents(
    ams: &Aid,
    template: AmsAgentDescription,
    constraints: SearchConstraints,
) -> AclMessage {
    let search = AmsFunction::Search(template, constraints);
    let content = Content::of(subscription::expression(search.action(ams)));
    message(Performative::Subscribe, ams, "fipa-subscribe", content)
}

/// Ends a subscription, given the request that began it. The DF answers `inform` (done).
pub fn cancel(subscribe: &AclMessage) -> AclMessage {
    let mut cancel = subscribe.clone();
    cancel.performative = Performative::Cancel;
    cancel.reply_with = None;
    // The content of `cancel` is the action to be ended.
    let content = subscribe
        .content_bytes()
        .map(|bytes| Content::parse(bytes, &Limits::DEFAULT));
    if let Some(Ok(content)) = content
        && let [ContentExpression::Identifying(expression)] = content.expressions.as_slice()
        && let Ok(action) = subscription::action(expression)
    {
        cancel.content = Some(Content::of(action.clone()).into());
    }
    cancel
}

fn message(
    performative: Performative,
    receiver: &Aid,
    protocol: &str,
    content: Content<'_>,
) -> AclMessage {
    let language = content.profile().max(Profile::Sl0).language();
    // JADE's DF takes subscriptions in full SL only.
    let language = if performative == Performative::Subscribe {
        Profile::Sl.language()
    } else {
        language
    };
    AclMessage::new(performative)
        .with_receiver(receiver.clone())
        .with_language(language)
        .with_ontology(ONTOLOGY)
        .with_protocol(protocol)
        .with_content(content)
}

/// A positive answer of AMS or DF.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'m> {
    /// `agree`: the DF or AMS will do it; another message follows.
    Agreed,
    /// `inform`: it is done, or this is the result.
    Informed(Content<'m>),
}

/// An answer that is negative or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The request was turned down.
    #[error("{by} answered {performative}: {exception}")]
    TurnedDown {
        /// The directory that answered.
        by: String,
        /// `refuse`, `failure` or `not-understood`.
        performative: String,
        /// The reason.
        exception: Exception,
    },
    /// The request did not reach its receiver.
    #[error("the request did not reach {receiver}: {reason}")]
    Undelivered {
        /// The intended receiver.
        receiver: String,
        /// Why the request was not delivered.
        reason: String,
    },
    /// The answer does not fit the request.
    #[error("{by} gave an answer that cannot be understood: {what}")]
    Unreadable {
        /// The directory that answered.
        by: String,
        /// The mistake in the answer.
        what: String,
    },
}

impl<'m> Answer<'m> {
    /// Reads an answer.
    ///
    /// # Errors
    /// The answer is negative, or cannot be read.
    pub fn read(answer: &'m AclMessage) -> Result<Self, AnswerError> {
        let by = answer
            .sender
            .as_ref()
            .map_or("somebody", |sender| &sender.name);
        let unreadable = |what: String| AnswerError::Unreadable {
            by: by.to_owned(),
            what,
        };
        if answer.performative == Performative::Agree {
            return Ok(Self::Agreed);
        }
        let content = answer.content_bytes().unwrap_or_default();
        let content = Content::parse(content, &Limits::DEFAULT)
            .map_err(|error| unreadable(format!("its content is no SL: {error}")));
        match &answer.performative {
            Performative::Inform => content.map(Self::Informed),
            Performative::Refuse | Performative::Failure | Performative::NotUnderstood => {
                let content = content?;
                if let Some((receiver, reason)) = undelivered(&content) {
                    return Err(AnswerError::Undelivered {
                        receiver: receiver.name,
                        reason,
                    });
                }
                Err(AnswerError::TurnedDown {
                    by: by.to_owned(),
                    performative: answer.performative.as_str().to_owned(),
                    exception: exception(&content),
                })
            }
            other => Err(unreadable(format!("its act is '{}'", other.as_str()))),
        }
    }

    /// Whether this is a `done`, the answer to register, deregister, modify and cancel.
    pub fn is_done(&self) -> bool {
        self.done().is_some()
    }

    fn done(&self) -> Option<&ActionExpression<'m>> {
        match self {
            Self::Informed(content) => match content.expressions.as_slice() {
                [ContentExpression::Proposition(Wff::Done(done))] => Some(&done.0),
                _ => None,
            },
            Self::Agreed => None,
        }
    }

    /// The entry in the DF's file, from the answer to register or modify. Its lease may be shorter than the requested
    /// one.
    pub fn granted(&self) -> Option<DfAgentDescription> {
        match self.done()? {
            ActionExpression::Action { act, .. } => match DfFunction::from_term(act).ok()? {
                DfFunction::Register(granted) | DfFunction::Modify(granted) => Some(granted),
                _ => None,
            },
            _ => None,
        }
    }

    /// The entries that a search found, or the directory's description of its platform, read by `read`.
    ///
    /// # Errors
    /// This answer has no such result.
    pub fn found<T>(
        &self,
        read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
    ) -> Result<Vec<T>, Exception> {
        results(self.content()?, read)
    }

    /// The entries in a notification to a subscriber, read by `read`. Entries with services, a state or other slots have come or
    /// changed; entries with a name alone have gone.
    ///
    /// # Errors
    /// This is not a notification.
    pub fn news<T>(
        &self,
        read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
    ) -> Result<Vec<T>, Exception> {
        subscription::entries(self.content()?, read)
    }

    fn content(&self) -> Result<&Content<'m>, Exception> {
        match self {
            Self::Informed(content) => Ok(content),
            Self::Agreed => Err(Exception::UnexpectedAct("agree".into())),
        }
    }
}

/// The reason in a refusal: the last proposition that states an exception. An exception outside the ontology is kept in
/// its own words.
fn exception(content: &Content<'_>) -> Exception {
    let propositions = content
        .expressions
        .iter()
        .rev()
        .filter_map(|expression| match expression {
            ContentExpression::Proposition(wff) => Some(wff),
            _ => None,
        });
    // JADE leaves out the parentheses around `(unrecognised-value content)`.
    if let [
        ContentExpression::Proposition(Wff::Symbol(symbol)),
        ContentExpression::Proposition(Wff::Symbol(argument)),
    ] = content.expressions.as_slice()
        && let Some(exception) = Exception::from_wff(&Wff::predicate(
            symbol.as_ref(),
            vec![Term::text(argument.as_ref())],
        ))
    {
        return exception;
    }
    propositions
        .clone()
        .find_map(Exception::from_wff)
        .or_else(|| {
            propositions
                .clone()
                .next()
                .map(|wff| Exception::InternalError(wff.to_string()))
        })
        .unwrap_or_else(|| Exception::InternalError(content.to_string()))
}

/// The receiver and the reason named in a notice of the message transport. Returns `None` if the content is no such
/// notice. The bus knows whether the platform wrote the notice.
pub fn undelivered(content: &Content<'_>) -> Option<(Aid, String)> {
    Some((unreached(content)?, undelivered_because(content)))
}

/// The reason in a notice of the message transport.
fn undelivered_because(content: &Content<'_>) -> String {
    let reason = content
        .expressions
        .iter()
        .find_map(|expression| match expression {
            ContentExpression::Proposition(Wff::Predicate(error)) => match &error.arguments {
                Arguments::Positional(terms) => match terms.get(1)? {
                    Term::Function(function) => match &function.arguments {
                        Arguments::Positional(terms) => terms.first()?.as_text().map(str::to_owned),
                        Arguments::Named(_) => None,
                    },
                    other => Some(other.to_string()),
                },
                Arguments::Named(_) => None,
            },
            _ => None,
        });
    reason.unwrap_or_else(|| "the message transport gave no reason".into())
}
