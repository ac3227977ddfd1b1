//! Requests to a directory, and the reading of its answers. Free of I/O.

use std::time::SystemTime;

use sealbus_fipa::management::{
    AmsAgentDescription, AmsFunction, DfAgentDescription, DfFunction, Exception, SearchConstraints,
    ServiceDescription,
};
use sealbus_fipa::sl::Term;
use sealbus_fipa::{AclMessage, Aid, DateTime, Expression};
use sealbus_management::client::{self, Answer, AnswerError};

use super::DirectoryError;
use crate::context::RequestError;
use crate::conversation::new_conversation_id;
use crate::message::Message;

/// The template of a search. An entry matches if it has at least the template's values.
///
/// ```
/// use sealbus::directory::{ServiceDescription, Template};
///
/// let by_type = Template::from("bookshop");
/// let by_name = Template::from(ServiceDescription::new("books by mail", "bookshop"));
/// assert_eq!(by_type, Template::from(ServiceDescription::of_type("bookshop")));
/// assert_ne!(by_type, by_name);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Template(pub DfAgentDescription);

/// Matches entries that offer a service of this type.
impl From<&str> for Template {
    fn from(service_type: &str) -> Template {
        ServiceDescription::of_type(service_type).into()
    }
}

/// Matches entries that offer a service like this.
impl From<ServiceDescription> for Template {
    fn from(service: ServiceDescription) -> Template {
        Template(DfAgentDescription::default().with_service(service))
    }
}

/// Matches entries like this one.
impl From<DfAgentDescription> for Template {
    fn from(description: DfAgentDescription) -> Template {
        Template(description)
    }
}

/// A request to a DF. A DF with addresses belongs to another platform. Its leases are sent as dates and not as
/// durations, because JADE reads only dates.
pub fn df_request(df: &Aid, function: &DfFunction) -> AclMessage {
    let mut function = function.clone();
    if let DfFunction::Register(entry) | DfFunction::Modify(entry) = &mut function
        && !df.addresses.is_empty()
        && let Some(lease) = entry.lease_time.filter(DateTime::is_relative)
        && let Ok(end) = lease.system_time(SystemTime::now())
    {
        // If the date cannot be written, the duration stays, for the DF to refuse.
        entry.lease_time = DateTime::from_system_time(end).ok().or(Some(lease));
    }
    client::ask_df(df, &function).with_conversation_id(new_conversation_id())
}

/// A request to an AMS. A search names an agent without its addresses, because JADE would compare these too.
pub fn ams_request(ams: &Aid, function: &AmsFunction) -> AclMessage {
    let mut function = function.clone();
    if let AmsFunction::Search(template, _) = &mut function
        && let Some(name) = &mut template.name
    {
        name.addresses.clear();
        name.resolvers.clear();
    }
    client::ask_ams(ams, &function).with_conversation_id(new_conversation_id())
}

/// A subscription at a DF to all entries that match a template, now and later.
pub fn df_subscription(df: &Aid, template: &Template) -> AclMessage {
    client::subscribe(df, template.0.clone(), SearchConstraints::all())
        .with_conversation_id(new_conversation_id())
        .with_reply_with(new_conversation_id())
}

/// A subscription at an AMS to all agents that match a template, now and later.
pub fn ams_subscription(ams: &Aid, template: &AmsAgentDescription) -> AclMessage {
    client::subscribe_agents(ams, template.clone(), SearchConstraints::all())
        .with_conversation_id(new_conversation_id())
        .with_reply_with(new_conversation_id())
}

/// Reads an answer that only confirms that something was done.
pub fn done(answer: &Message) -> Result<(), DirectoryError> {
    read(answer).map(|_| ())
}

/// Reads the result of a search, or a directory's description of its platform. An incomplete answer is logged.
pub fn found<T>(
    answer: &Message,
    read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
) -> Result<Vec<T>, DirectoryError> {
    let limit = answer.user_defined_value(client::LIMIT_PARAMETER);
    if let Some(limit) = limit.and_then(Expression::as_str) {
        let directory = answer.sender_name();
        tracing::warn!(
            agent = asker(answer),
            directory,
            limit,
            "a search was not answered in full"
        );
    }
    self::read(answer)?
        .found(read)
        .map_err(|error| unreadable(answer, error.to_string()))
}

/// Reads a notification of a subscription at a DF. It has entries that came or changed, and, with only a name, entries
/// that went.
pub fn told(news: &Message) -> Result<Vec<DfAgentDescription>, DirectoryError> {
    changes(news, DfAgentDescription::from_term)
}

/// Reads a notification of a subscription at an AMS. It has agents that came or changed their state, and, with only a
/// name, agents that went.
pub fn agents_told(news: &Message) -> Result<Vec<AmsAgentDescription>, DirectoryError> {
    changes(news, AmsAgentDescription::from_term)
}

fn changes<T>(
    news: &Message,
    read: impl FnMut(&Term<'_>) -> Result<T, Exception>,
) -> Result<Vec<T>, DirectoryError> {
    self::read(news)?
        .news(read)
        .map_err(|error| unreadable(news, error.to_string()))
}

fn read(answer: &Message) -> Result<Answer<'_>, DirectoryError> {
    match Answer::read(answer) {
        Ok(informed @ Answer::Informed(_)) => Ok(informed),
        Ok(Answer::Agreed) => Err(unreadable(answer, "it only agreed".to_owned())),
        Err(AnswerError::TurnedDown { by, exception, .. }) => Err(DirectoryError::Refused {
            agent: asker(answer),
            directory: by,
            exception,
        }),
        Err(AnswerError::Undelivered { receiver, reason }) => {
            let agent = asker(answer);
            Err(RequestError::Undeliverable {
                agent,
                receiver,
                reason,
            }
            .into())
        }
        Err(AnswerError::Unreadable { what, .. }) => Err(unreadable(answer, what)),
    }
}

fn unreadable(answer: &Message, problem: String) -> DirectoryError {
    DirectoryError::Unreadable {
        agent: asker(answer),
        directory: answer.sender_name().to_owned(),
        problem,
    }
}

fn asker(answer: &Message) -> String {
    answer
        .receivers
        .first()
        .map_or_else(|| "an agent".to_owned(), |agent| agent.name.clone())
}

#[cfg(test)]
mod tests {
    use sealbus_fipa::management::AmsAgentDescription;

    use super::*;

    fn content(message: &AclMessage) -> &str {
        message.content_text().unwrap()
    }

    #[test]
    fn another_platforms_df_is_told_the_date_at_which_a_lease_ends() {
        let mut entry = DfAgentDescription::of(Aid::new("a@factory").unwrap());
        entry.lease_time = Some("+00000000T010000000".parse().unwrap());
        let own = Aid::new("df@factory").unwrap();
        let foreign = Aid::new("df@plat1")
            .unwrap()
            .with_address("http://h:7778/acc");
        for function in [
            DfFunction::Register(entry.clone()),
            DfFunction::Modify(entry),
        ] {
            assert!(
                content(&df_request(&own, &function)).contains(":lease-time +00000000T010000000")
            );
            let asked = df_request(&foreign, &function);
            assert!(
                !content(&asked).contains("+00000000T"),
                "{}",
                content(&asked)
            );
            assert!(
                content(&asked).contains(":lease-time 2"),
                "{}",
                content(&asked)
            );
        }
    }

    #[test]
    fn an_agent_is_searched_for_by_its_name_alone() {
        let agent = Aid::new("a@plat1")
            .unwrap()
            .with_address("http://h:7778/acc");
        let ams = Aid::new("ams@plat1").unwrap();
        let search = AmsFunction::Search(AmsAgentDescription::of(agent), SearchConstraints::all());
        let asked = ams_request(&ams, &search);
        assert!(
            content(&asked).contains(":name a@plat1"),
            "{}",
            content(&asked)
        );
        assert!(
            !content(&asked).contains("addresses"),
            "{}",
            content(&asked)
        );
    }
}
