//! One question to many agents: Request, Request When, Query and Propose.

use std::time::Duration;

use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_protocols::{Outcome, Protocol};

use super::error::ProtocolError;
use super::exchange::Exchange;
use super::participants::Participants;
use super::timeline::Timeline;
use crate::context::Voice;
use crate::message::Message;

/// The answers of the asked agents; see [`Voice::ask_all`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Answers {
    /// The results: `inform`, or `accept-proposal` to a `propose`.
    pub done: Vec<Message>,
    /// The messages of agents that refused, rejected or did not understand.
    pub refused: Vec<Message>,
    /// The messages of agents that failed.
    pub failed: Vec<Message>,
    /// The agents that did not answer in time.
    pub silent: Vec<Aid>,
    /// The agents that the platform could not deliver the question to.
    pub undelivered: Vec<Aid>,
}

impl Voice {
    /// Asks many agents at once, and waits for at most `within` until each has given its result. The message is a `request`,
    /// `query-if`, `query-ref`, `request-when` or `propose`. Agents that have agreed and are not done by then get a
    /// `cancel`.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sealbus::{AclMessage, AgentResult, Context, Performative, directory::Template};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let question = AclMessage::new(Performative::QueryRef).with_content("your load?");
    /// let workers = Template::from("worker");
    /// let answers = context.ask_all(workers, question, Duration::from_secs(2)).await?;
    /// println!("{} answered, {} did not", answers.done.len(), answers.silent.len());
    /// # Ok(()) }
    /// ```
    pub async fn ask_all(
        &self,
        participants: impl Into<Participants>,
        question: AclMessage,
        within: Duration,
    ) -> Result<Answers, ProtocolError> {
        let protocol = Protocol::opened_by(&question).ok_or_else(|| ProtocolError::NotOpening {
            message: question.performative.to_string(),
            reason: "no protocol begins like this".to_owned(),
        })?;
        let time = Timeline::new(&self.clock);
        let question = time.with_deadline(question, within);
        let agents = participants.into().find(self).await?;
        let mut exchange = Exchange::open(self.clone(), protocol, agents, question, time)?;
        exchange.end_within(within);
        let mut answers = Answers::default();
        let each = |message: Message, _| match message.performative {
            Performative::Inform | Performative::AcceptProposal => answers.done.push(message),
            Performative::Failure => answers.failed.push(message),
            Performative::Agree => {}
            _ => answers.refused.push(message),
        };
        exchange.until(|_| false, each).await?;
        for branch in exchange.state().branches() {
            match branch.outcome() {
                Some(Outcome::TimedOut) => answers.silent.push(branch.agent().clone()),
                Some(Outcome::Undeliverable) => answers.undelivered.push(branch.agent().clone()),
                _ => {}
            }
        }
        Ok(answers)
    }
}
