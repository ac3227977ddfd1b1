//! Finding others through the directory facilitator (services that agents offer) and the agent management system (all
//! agents). Both are asked in the language of FIPA00023, so agents of other platforms can ask and be asked too.
//!
//! Requests and the reading of answers are free of I/O ([`df_request`], [`done`], …); [`Df`] and [`Ams`] send and wait.

use std::time::{Duration, SystemTime};

use sealbus_fipa::management::{self, AmsFunction, DfFunction, Exception, subscription};
use sealbus_fipa::sl::{Content, Term};
use sealbus_fipa::{AclMessage, Aid, DateTime, Expression, Performative};
use sealbus_management::client::{self, Answer, AnswerError};

use crate::context::{Context, ReceiveError, RequestError};
use crate::conversation::new_conversation_id;
use crate::filter::Filter;
use crate::message::Message;

pub use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, ApDescription, DfAgentDescription, Property,
    SearchConstraints, ServiceDescription,
};

/// How long [`Df`] and [`Ams`] wait for an answer by default.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The reason why a directory did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// No answer came.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No news came because the agent is ending.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The directory turned the request down.
    #[error("{directory} answered {agent}: {exception}")]
    Refused {
        /// The agent that asked.
        agent: String,
        /// The directory.
        directory: String,
        /// The reason.
        exception: Exception,
    },
    /// The directory's answer cannot be read.
    #[error("{directory} gave {agent} an answer that cannot be read: {problem}")]
    Unreadable {
        /// The agent that asked.
        agent: String,
        /// The directory.
        directory: String,
        /// The fault in the answer.
        problem: String,
    },
}

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

// ----- messages

/// A request to a DF. A DF with addresses belongs to another platform; its leases are sent as dates and not as amounts
/// of time, because JADE reads dates alone.
pub fn df_request(df: &Aid, function: &DfFunction) -> AclMessage {
    let mut function = function.clone();
    if let DfFunction::Register(entry) | DfFunction::Modify(entry) = &mut function
        && !df.addresses.is_empty()
        && let Some(lease) = entry.lease_time.filter(DateTime::is_relative)
        && let Ok(end) = lease.system_time(SystemTime::now())
    {
        // A date that cannot be written is left for the DF to refuse.
        entry.lease_time = DateTime::from_system_time(end).ok().or(Some(lease));
    }
    client::ask_df(df, &function).with_conversation_id(new_conversation_id())
}

/// A request to an AMS. A search names an agent without its addresses, because JADE compares them too.
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

/// Reads an answer that only confirms that something was done.
pub fn done(answer: &Message) -> Result<(), DirectoryError> {
    content(answer).map(|_| ())
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
    management::results(&content(answer)?, read)
        .map_err(|error| unreadable(answer, error.to_string()))
}

/// Reads a notification of a subscription: entries that came or changed, and, with a name alone, entries that went.
pub fn told(news: &Message) -> Result<Vec<DfAgentDescription>, DirectoryError> {
    subscription::entries(&content(news)?).map_err(|error| unreadable(news, error.to_string()))
}

fn content(answer: &Message) -> Result<Content<'_>, DirectoryError> {
    match Answer::read(answer) {
        Ok(Answer::Informed(content)) => Ok(content),
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

// ----- the directory facilitator

/// The directory facilitator of the platform, its yellow pages. Made by [`Context::df`].
#[derive(Debug)]
pub struct Df<'a> {
    context: &'a mut Context,
    df: Aid,
    within: Duration,
}

impl<'a> Df<'a> {
    pub(crate) fn new(context: &'a mut Context) -> Df<'a> {
        let df = context.system_agent("df");
        Df {
            context,
            df,
            within: ANSWER_TIME,
        }
    }

    /// Speaks to another DF, such as one of another platform.
    #[must_use]
    pub fn at(mut self, df: Aid) -> Df<'a> {
        self.df = df;
        self
    }

    /// Waits this long for an answer.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Df<'a> {
        self.within = time;
        self
    }

    /// Registers the services that this agent offers, in place of those registered before.
    pub async fn register(
        self,
        services: impl IntoIterator<Item = ServiceDescription>,
    ) -> Result<(), DirectoryError> {
        let mut description = DfAgentDescription::default();
        description.services.extend(services);
        self.register_description(description).await
    }

    /// Like [`register`](Self::register), with everything that an entry can have, such as a lease time. Its name is
    /// filled in.
    pub async fn register_description(
        mut self,
        mut description: DfAgentDescription,
    ) -> Result<(), DirectoryError> {
        description.name = Some(self.context.aid().clone());
        match self.ask(&DfFunction::Register(description.clone())).await {
            // An entry from an earlier life, or from before the agent moved, belongs to the agent and gives way.
            Err(DirectoryError::Refused {
                exception: Exception::AlreadyRegistered,
                ..
            }) => self.ask(&DfFunction::Modify(description)).await,
            outcome => outcome,
        }
    }

    /// Changes this agent's entry, which must exist.
    pub async fn modify(
        mut self,
        mut description: DfAgentDescription,
    ) -> Result<(), DirectoryError> {
        description.name = Some(self.context.aid().clone());
        self.ask(&DfFunction::Modify(description)).await
    }

    /// Removes this agent's entry. A missing entry is no error.
    pub async fn deregister(mut self) -> Result<(), DirectoryError> {
        let description = DfAgentDescription::of(self.context.aid().clone());
        match self.ask(&DfFunction::Deregister(description)).await {
            Err(DirectoryError::Refused {
                exception: Exception::NotRegistered,
                ..
            }) => Ok(()),
            outcome => outcome,
        }
    }

    /// All entries that match.
    ///
    /// ```no_run
    /// # use sealbus::{AgentResult, Context};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// for entry in context.df().search("bookshop").await? {
    ///     println!("{:?} sells books", entry.name);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn search(
        self,
        template: impl Into<Template>,
    ) -> Result<Vec<DfAgentDescription>, DirectoryError> {
        self.search_with(template, SearchConstraints::all()).await
    }

    /// Entries that match, as many and from as far away as the constraints say.
    pub async fn search_with(
        self,
        template: impl Into<Template>,
        constraints: SearchConstraints,
    ) -> Result<Vec<DfAgentDescription>, DirectoryError> {
        let function = DfFunction::Search(template.into().0, constraints);
        let answer = self
            .context
            .request(df_request(&self.df, &function), self.within)
            .await?;
        found(&answer, DfAgentDescription::from_term)
    }

    /// Subscribes to entries that match: to the present ones, and from then on to each that comes, changes or goes.
    pub async fn subscribe(
        self,
        template: impl Into<Template>,
    ) -> Result<Subscription, DirectoryError> {
        let request = df_subscription(&self.df, &template.into());
        self.context
            .send(request.clone())
            .await
            .map_err(|source| RequestError::Send {
                agent: self.context.aid().name.clone(),
                receiver: self.df.name.clone(),
                source: Box::new(source),
            })?;
        Ok(Subscription { request })
    }

    async fn ask(&mut self, function: &DfFunction) -> Result<(), DirectoryError> {
        let answer = self
            .context
            .request(df_request(&self.df, function), self.within)
            .await?;
        done(&answer)
    }
}

/// A standing question to a DF; see [`Df::subscribe`]. Its notifications wait in the agent's mailbox.
#[derive(Clone, Debug)]
pub struct Subscription {
    request: AclMessage,
}

impl Subscription {
    /// A filter for this subscription's notifications, for agents that read them in `on_message`.
    pub fn filter(&self) -> Filter {
        let conversation = self
            .request
            .conversation_id
            .as_ref()
            .and_then(|id| id.as_str());
        Filter::conversation(conversation.unwrap_or_default())
    }

    /// Waits for the next notification: entries that came or changed, and, with a name alone, entries that went.
    pub async fn next(
        &self,
        context: &mut Context,
    ) -> Result<Vec<DfAgentDescription>, DirectoryError> {
        loop {
            let news = context.receive(self.filter()).await?;
            if news.performative != Performative::Agree {
                return told(&news);
            }
        }
    }

    /// Ends the subscription. Notifications in transit are dropped, and none come after this.
    pub async fn cancel(self, context: &mut Context) -> Result<(), DirectoryError> {
        let answer = context
            .request(client::cancel(&self.request), ANSWER_TIME)
            .await;
        while context.try_receive(self.filter()).is_some() {}
        match answer {
            Ok(answer) => done(&answer),
            // Some DFs stop without an answer.
            Err(RequestError::Timeout { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

// ----- the agent management system

/// The agent management system of the platform, its white pages. Made by [`Context::ams`].
#[derive(Debug)]
pub struct Ams<'a> {
    context: &'a mut Context,
    ams: Aid,
    within: Duration,
}

impl<'a> Ams<'a> {
    pub(crate) fn new(context: &'a mut Context) -> Ams<'a> {
        let ams = context.system_agent("ams");
        Ams {
            context,
            ams,
            within: ANSWER_TIME,
        }
    }

    /// Speaks to another AMS, such as one of another platform.
    #[must_use]
    pub fn at(mut self, ams: Aid) -> Ams<'a> {
        self.ams = ams;
        self
    }

    /// Waits this long for an answer.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Ams<'a> {
        self.within = time;
        self
    }

    /// All agents that match; every agent for an empty template.
    pub async fn search(
        self,
        template: AmsAgentDescription,
    ) -> Result<Vec<AmsAgentDescription>, DirectoryError> {
        let function = AmsFunction::Search(template, SearchConstraints::all());
        let answer = self
            .context
            .request(ams_request(&self.ams, &function), self.within)
            .await?;
        found(&answer, AmsAgentDescription::from_term)
    }

    /// The entry of one agent, if there is one.
    pub async fn find(self, agent: &Aid) -> Result<Option<AmsAgentDescription>, DirectoryError> {
        let found = self.search(AmsAgentDescription::of(agent.clone())).await?;
        Ok(found.into_iter().next())
    }

    /// The platform's description of itself.
    pub async fn description(self) -> Result<Vec<ApDescription>, DirectoryError> {
        let answer = self
            .context
            .request(
                ams_request(&self.ams, &AmsFunction::GetDescription),
                self.within,
            )
            .await?;
        found(&answer, ApDescription::from_term)
    }
}

#[cfg(test)]
mod tests {
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
