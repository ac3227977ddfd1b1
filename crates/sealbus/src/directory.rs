//! Finding others through the directory facilitator (services that agents offer) and the agent management system (all
//! agents). Both speak the language of FIPA00023. So agents of other platforms can ask them, and the agents of this
//! platform can ask the directories of others.
//!
//! Requests and the reading of answers are free of I/O ([`df_request`], [`done`], …); [`Df`] and [`Ams`] send and wait.

mod messages;

use std::time::Duration;

use sealbus_fipa::management::{AmsFunction, DfFunction, Exception};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_management::client;

use crate::context::{ReceiveError, RequestError, Voice};
use crate::conversation::{Conversation, ConverseError, new_conversation_id};
use crate::message::Message;

pub use messages::{Template, ams_request, df_request, df_subscription, done, found, told};
pub use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, ApDescription, DfAgentDescription, Property,
    SearchConstraints, ServiceDescription,
};
// Requests and answers about agents that come and go.
pub use messages::{agents_told, ams_subscription};

/// How long [`Df`] and [`Ams`] wait for an answer by default.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The reason why a directory did not carry out a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// No answer came.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The subscription could not begin.
    #[error(transparent)]
    Converse(#[from] ConverseError),
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

impl Voice {
    /// The directory facilitator, which knows the services that agents offer.
    pub fn df(&self) -> Df<'_> {
        Df::new(self)
    }

    /// The agent management system, which knows all agents.
    pub fn ams(&self) -> Ams<'_> {
        Ams::new(self)
    }
}

// ----- the directory facilitator

/// The directory facilitator of the platform, its yellow pages. Made by [`Voice::df`].
#[derive(Debug)]
pub struct Df<'a> {
    voice: &'a Voice,
    df: Aid,
    within: Duration,
}

impl<'a> Df<'a> {
    fn new(voice: &'a Voice) -> Df<'a> {
        let df = voice.system_agent("df");
        Df {
            voice,
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

    /// Sets the time to wait for an answer.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Df<'a> {
        self.within = time;
        self
    }

    /// Registers the services that this agent offers. They replace those registered before.
    pub async fn register(
        self,
        services: impl IntoIterator<Item = ServiceDescription>,
    ) -> Result<(), DirectoryError> {
        let mut description = DfAgentDescription::default();
        description.services.extend(services);
        self.register_description(description).await
    }

    /// Like [`register`](Self::register), with everything that an entry can have, such as a lease time. The agent's
    /// name is filled in.
    pub async fn register_description(
        mut self,
        mut description: DfAgentDescription,
    ) -> Result<(), DirectoryError> {
        description.name = Some(self.voice.aid().clone());
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
        description.name = Some(self.voice.aid().clone());
        self.ask(&DfFunction::Modify(description)).await
    }

    /// Removes this agent's entry. A missing entry is no error.
    pub async fn deregister(mut self) -> Result<(), DirectoryError> {
        let description = DfAgentDescription::of(self.voice.aid().clone());
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

    /// Entries that match, within the constraints on their number and distance.
    pub async fn search_with(
        self,
        template: impl Into<Template>,
        constraints: SearchConstraints,
    ) -> Result<Vec<DfAgentDescription>, DirectoryError> {
        let function = DfFunction::Search(template.into().0, constraints);
        let answer = consult(self.voice, df_request(&self.df, &function), self.within).await?;
        found(&answer, DfAgentDescription::from_term)
    }

    /// Subscribes to entries that match: to the present ones, and from then on to each entry that comes, changes or
    /// goes.
    pub async fn subscribe(
        self,
        template: impl Into<Template>,
    ) -> Result<Subscription<DfAgentDescription>, DirectoryError> {
        let request = df_subscription(&self.df, &template.into());
        Subscription::begin(self.voice, request, told).await
    }

    async fn ask(&mut self, function: &DfFunction) -> Result<(), DirectoryError> {
        let answer = consult(self.voice, df_request(&self.df, function), self.within).await?;
        done(&answer)
    }
}

/// Asks a directory. The wait for the answer takes no time of a test's clock.
async fn consult(
    voice: &Voice,
    request: AclMessage,
    within: Duration,
) -> Result<Message, RequestError> {
    let _hold = voice.clock.hold();
    voice.request(request, within).await
}

/// A subscription to a directory; see [`Df::subscribe`] and [`Ams::subscribe`]. Only this value gets its news.
///
/// Dropping the value ends the subscription.
#[derive(Debug)]
pub struct Subscription<T> {
    conversation: Conversation,
    cancel: Option<AclMessage>,
    read: fn(&Message) -> Result<Vec<T>, DirectoryError>,
}

impl<T> Subscription<T> {
    async fn begin(
        voice: &Voice,
        request: AclMessage,
        read: fn(&Message) -> Result<Vec<T>, DirectoryError>,
    ) -> Result<Subscription<T>, DirectoryError> {
        let conversation = voice.converse(request.clone()).await?;
        Ok(Subscription {
            conversation,
            cancel: Some(client::cancel(&request)),
            read,
        })
    }

    /// Waits for the next news: entries that came or changed, and, with only a name, entries that went. Safe to cancel.
    pub async fn next(&self) -> Result<Vec<T>, DirectoryError> {
        loop {
            if let Some(entries) = self.take(&self.conversation.receive().await?) {
                return entries;
            }
        }
    }

    /// The next news, if they have already come.
    pub fn try_next(&self) -> Option<Result<Vec<T>, DirectoryError>> {
        loop {
            if let Some(entries) = self.take(&self.conversation.try_receive()?) {
                return Some(entries);
            }
        }
    }

    /// Reads a message of the directory, unless it only agrees.
    fn take(&self, news: &Message) -> Option<Result<Vec<T>, DirectoryError>> {
        (news.performative != Performative::Agree).then(|| (self.read)(news))
    }

    /// Ends the subscription, and waits until the directory has confirmed it.
    pub async fn cancel(mut self) -> Result<(), DirectoryError> {
        let Some(cancel) = self.cancel.take() else {
            return Ok(());
        };
        let tag = new_conversation_id();
        let sent = self.conversation.send(cancel.with_reply_with(tag.clone()));
        sent.await.map_err(|source| {
            DirectoryError::Converse(ConverseError::Send {
                agent: self.conversation.agent(),
                source: Box::new(source),
            })
        })?;
        // Some directories stop without an answer.
        let clock = self.conversation.clock().clone();
        let _hold = clock.hold();
        let deadline = clock.now() + ANSWER_TIME;
        while let Ok(news) = clock
            .timeout_at(deadline, self.conversation.receive())
            .await
        {
            let news = news?;
            if news.in_reply_to.as_ref().and_then(|it| it.as_str()) == Some(&tag) {
                return done(&news);
            }
        }
        Ok(())
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            self.conversation.tell(cancel);
        }
    }
}

// ----- the agent management system

/// The agent management system of the platform, its white pages. Made by [`Voice::ams`].
#[derive(Debug)]
pub struct Ams<'a> {
    voice: &'a Voice,
    ams: Aid,
    within: Duration,
}

impl<'a> Ams<'a> {
    fn new(voice: &'a Voice) -> Ams<'a> {
        let ams = voice.system_agent("ams");
        Ams {
            voice,
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

    /// Sets the time to wait for an answer.
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
        let answer = consult(self.voice, ams_request(&self.ams, &function), self.within).await?;
        found(&answer, AmsAgentDescription::from_term)
    }

    /// Subscribes to the agents that match: to the present ones, and from then on to each agent that comes, changes its
    /// state or goes. The entry of an agent that went has only the name, without a state. An empty template matches
    /// every agent.
    ///
    /// ```no_run
    /// # use sealbus::{AgentResult, Context, directory::AmsAgentDescription};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let news = context.ams().subscribe(AmsAgentDescription::default()).await?;
    /// for agent in news.next().await? {
    ///     match &agent.state {
    ///         Some(state) => println!("{:?} is {state}", agent.name),
    ///         None => println!("{:?} has gone", agent.name),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn subscribe(
        self,
        template: AmsAgentDescription,
    ) -> Result<Subscription<AmsAgentDescription>, DirectoryError> {
        let request = ams_subscription(&self.ams, &template);
        Subscription::begin(self.voice, request, agents_told).await
    }

    /// The entry of one agent, if there is one.
    pub async fn find(self, agent: &Aid) -> Result<Option<AmsAgentDescription>, DirectoryError> {
        let found = self.search(AmsAgentDescription::of(agent.clone())).await?;
        Ok(found.into_iter().next())
    }

    /// The platform's description of itself.
    pub async fn description(self) -> Result<Vec<ApDescription>, DirectoryError> {
        let answer = consult(
            self.voice,
            ams_request(&self.ams, &AmsFunction::GetDescription),
            self.within,
        )
        .await?;
        found(&answer, ApDescription::from_term)
    }
}
