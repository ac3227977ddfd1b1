//! Reading requests and writing answers, common to AMS and DF (FIPA00026, FIPA00023).

use sealbus_fipa::management::{Exception, ONTOLOGY};
use sealbus_fipa::sl::{ActionExpression, Content, ContentExpression, Profile, Term, Wff};
use sealbus_fipa::{AclMessage, Aid, Expression, Limits, Performative};

use sealbus_store::StoreError;

/// The parameter in which AMS and DF name the limit that left entries out of the answer to a search.
pub const LIMIT_PARAMETER: &str = "X-Sealbus-Limit";

/// Reads the content of a request.
pub(super) fn read<'m>(message: &'m AclMessage) -> Result<Content<'m>, Exception> {
    let is = |parameter: &Option<Expression>, known: fn(&str) -> bool| match parameter {
        Some(value) => value.as_str().is_some_and(known),
        None => true,
    };
    if !is(&message.language, |it| it.parse::<Profile>().is_ok()) {
        return Err(Exception::UnsupportedValue("language".into()));
    }
    if !is(&message.ontology, |it| it.eq_ignore_ascii_case(ONTOLOGY)) {
        return Err(Exception::UnsupportedValue("ontology".into()));
    }
    let unrecognised = || Exception::UnrecognisedValue("content".into());
    let bytes = message.content_bytes().ok_or_else(unrecognised)?;
    Content::parse(bytes, &Limits::DEFAULT).map_err(|_| unrecognised())
}

/// The one action of a request, and the act that `own` is asked to perform. An action of another agent is refused.
pub(super) fn action<'t, 'a>(
    content: &'t Content<'a>,
    own: &Aid,
) -> Result<(&'t ActionExpression<'a>, &'t Term<'a>), Exception> {
    match content.expressions.as_slice() {
        [ContentExpression::Action(action @ ActionExpression::Action { agent, act })] => {
            check_actor(agent, own)?;
            Ok((action, act))
        }
        [ContentExpression::Action(ActionExpression::Choice(_))] => {
            Err(Exception::UnsupportedFunction("|".into()))
        }
        [ContentExpression::Action(ActionExpression::Sequence(_))] => {
            Err(Exception::UnsupportedFunction(";".into()))
        }
        _ => Err(Exception::UnrecognisedValue("content".into())),
    }
}

/// Checks that `own` is the agent asked to act.
pub(super) fn check_actor(actor: &Term<'_>, own: &Aid) -> Result<(), Exception> {
    let is_own = |actor: &Aid| {
        let same_platform = match (actor.platform(), own.platform()) {
            (Some(named), Some(own)) => named.eq_ignore_ascii_case(own),
            _ => false,
        };
        same_platform && actor.local_name() == own.local_name()
    };
    match Aid::from_term(actor) {
        Ok(actor) if is_own(&actor) => Ok(()),
        _ => Err(Exception::UnrecognisedParameterValue {
            object: "action".into(),
            slot: "actor".into(),
        }),
    }
}

/// The same action with another act.
pub(super) fn replace_act<'a>(
    action: &ActionExpression<'a>,
    act: Term<'a>,
) -> ActionExpression<'a> {
    match action {
        ActionExpression::Action { agent, .. } => ActionExpression::new(agent.clone(), act),
        other => other.clone(),
    }
}

/// An answer from `own` to `message`, for its sender alone. A `reply-to` may name agents that the sender must not write
/// to, so it is ignored.
pub(super) fn answer(
    own: &Aid,
    message: &AclMessage,
    performative: Performative,
    content: Content<'_>,
) -> AclMessage {
    let needed = content.profile();
    let mut answer = message
        .create_reply(performative)
        .with_sender(own.clone())
        .with_content(content);
    answer.receivers = message.sender.iter().cloned().collect();
    // The answer is in the request's language, unless this crate cannot write that language or it lacks a needed
    // expression.
    let asked = answer.language.as_ref().and_then(Expression::as_str);
    if !asked.is_some_and(|asked| asked.parse::<Profile>().is_ok_and(|asked| asked >= needed)) {
        answer.language = Some(needed.language().into());
    }
    answer.encoding = None;
    if answer.ontology.is_none() {
        answer.ontology = Some(ONTOLOGY.into());
    }
    answer
}

/// Names the limit that cut an answer's results short.
pub(super) fn name_limit(answer: &mut AclMessage, limit: Option<String>) {
    if let Some(limit) = limit {
        answer
            .user_defined
            .push((LIMIT_PARAMETER.to_owned(), Expression::String(limit)));
    }
}

/// An answer that turns a request down, with the requested action if it could be read.
pub(super) fn turn_down(
    own: &Aid,
    message: &AclMessage,
    action: Option<ActionExpression<'_>>,
    exception: &Exception,
) -> AclMessage {
    let content = not_done(action, exception);
    answer(own, message, exception.performative(), content)
}

/// An action, if it could be read, and why it is not done.
fn not_done<'a>(action: Option<ActionExpression<'a>>, exception: &'a Exception) -> Content<'a> {
    let reason = exception.to_wff();
    match action {
        Some(action) => Content::of(action).and(reason),
        None => Content::of(reason),
    }
}

/// The failure to send in place of an answer when the store has failed. Returns `None` for a message that is no answer: a
/// notification of a subscriber, or a question to another directory.
pub(super) fn failed(mut answer: AclMessage, error: &StoreError) -> Option<AclMessage> {
    if answer.performative == Performative::Request {
        return None;
    }
    // This crate wrote the content, within other limits.
    let limits = Limits {
        message_length: usize::MAX,
        depth: usize::MAX,
        values: usize::MAX,
        ..Limits::DEFAULT
    };
    let content: sealbus_fipa::Content = {
        let written = answer.content_bytes().unwrap_or_default();
        let written = Content::parse(written, &limits).ok();
        let first = written.and_then(|content| content.expressions.into_iter().next());
        let action = match first {
            Some(ContentExpression::Action(action)) => Some(action),
            Some(ContentExpression::Proposition(Wff::Equals(_))) => return None,
            Some(ContentExpression::Proposition(Wff::Done(done))) => Some(done.0),
            Some(ContentExpression::Proposition(Wff::Result(result))) => match result.0 {
                Term::Action(action) => Some(*action),
                _ => None,
            },
            _ => None,
        };
        not_done(action, &Exception::InternalError(error.to_string())).into()
    };
    answer.performative = Performative::Failure;
    answer.content = Some(content);
    answer.user_defined.clear();
    Some(answer)
}

/// Whether this act begins an exchange, so that an unsupported one deserves an answer. Other acts are answers
/// themselves or plain statements, and answering them could go on for ever.
pub(super) fn asks(performative: &Performative) -> bool {
    use Performative::*;
    match performative {
        Request | RequestWhen | RequestWhenever | QueryIf | QueryRef | Subscribe | Cfp
        | Propose | Proxy | Propagate | Cancel | Other(_) => true,
        AcceptProposal | Agree | Confirm | Disconfirm | Failure | Inform | InformIf | InformRef
        | NotUnderstood | Refuse | RejectProposal => false,
    }
}

/// The agent that a message did not reach, from a notice of the message transport.
pub(super) fn unreached(content: &Content<'_>) -> Option<Aid> {
    use sealbus_fipa::sl::Arguments;
    content
        .expressions
        .iter()
        .find_map(|expression| match expression {
            ContentExpression::Proposition(Wff::Predicate(predicate))
                if predicate.symbol.eq_ignore_ascii_case("mts-error") =>
            {
                match &predicate.arguments {
                    Arguments::Positional(terms) => Aid::from_term(terms.first()?).ok(),
                    Arguments::Named(_) => None,
                }
            }
            _ => None,
        })
}
