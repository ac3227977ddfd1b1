//! The agent's context: sending, receiving, asking, finding others, leaving.

mod arrival;
mod error;
mod voice;

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use sealbus_bus::ReceivedMessage;
use sealbus_channels::{PublishError, SubscribeError};
use sealbus_fipa::management::ServiceDescription;
use sealbus_fipa::{Content, Performative};
use sealbus_process::{AgentHandle, Wish};

use crate::channel::{ChannelEvent, ChannelSubscription, Subscribing};
use crate::crew::Crew;
use crate::filter::Filter;
use crate::handler::Handlers;
use crate::labour::Labour;
use crate::lingering::Lingering;
use crate::message::Message;
use crate::supervision::{AgentResult, HandlerError};
use crate::tool::{Tool, Tools};
use arrival::{Beside, MailOrEvent, arrival, takes};

pub use error::{ReceiveError, RequestError};
pub use voice::Voice;
pub(crate) use voice::tell;

/// The handle with which an agent acts. Each hook gets it. It has all methods of a [`Voice`], and more to receive
/// messages and to leave the platform.
#[derive(Debug)]
pub struct Context {
    pub(crate) handle: AgentHandle,
    pub(crate) crew: Crew,
    /// The agent has asked to leave. It leaves after this hook.
    leaving: bool,
    /// The subscriptions for `on_event` and `on_question`, each under a number of its own.
    listening: Vec<(u64, ChannelSubscription)>,
    next_listener: u64,
    /// The number of messages and events whose handler failed.
    failed: u64,
    voice: Voice,
    pub(crate) labour: Labour,
    pub(crate) tools: Tools,
    pub(crate) handlers: Handlers,
    _dismissal: Dismissal,
}

impl Deref for Context {
    type Target = Voice;

    fn deref(&self) -> &Voice {
        &self.voice
    }
}

/// Ends the tasks of an agent when its context ends.
#[derive(Debug)]
struct Dismissal(Labour);

impl Drop for Dismissal {
    fn drop(&mut self) {
        self.0.dismiss();
    }
}

/// The next event for an agent at rest.
pub(crate) enum Next {
    Message(Message),
    Event(ChannelEvent),
    Stop,
    Freeze,
    /// A task of the agent failed.
    Failed(HandlerError),
}

impl Context {
    pub(crate) fn new(handle: AgentHandle, crew: Crew) -> Context {
        let voice = Voice {
            sender: handle.sender(),
            conversations: handle.conversations(),
            wishes: handle.wishes(),
            clock: crew.clock.clone(),
            process: handle.process().clone(),
            lingering: Lingering::default(),
            heeds_stop: true,
        };
        if let Some(interceptor) = &crew.interceptor {
            voice.sender.intercept(interceptor.clone());
        }
        let labour = Labour::default();
        Context {
            _dismissal: Dismissal(labour.clone()),
            labour,
            tools: Tools::default(),
            handlers: Handlers::default(),
            handle,
            crew,
            leaving: false,
            listening: Vec::new(),
            next_listener: 0,
            failed: 0,
            voice,
        }
    }

    /// The agent's handle below this context, for programs that count nanoseconds. It returns messages undecoded.
    pub fn handle(&mut self) -> &mut AgentHandle {
        &mut self.handle
    }

    // ----- receiving

    /// Waits for the next message that `filter` takes. Other messages stay in the mailbox, in order.
    ///
    /// ```no_run
    /// # use sealbus::{Context, Filter, Performative, AgentResult};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let anything = context.receive(Filter::any()).await?;
    /// let proposal = context.receive(Performative::Propose).await?;
    /// # Ok(()) }
    /// ```
    pub async fn receive(&mut self, filter: impl Into<Filter>) -> Result<Message, ReceiveError> {
        let filter = filter.into();
        self.receive_matching(|received| takes(&filter, received))
            .await
    }

    /// Like [`receive`](Self::receive), but for at most `within`.
    pub async fn receive_within(
        &mut self,
        filter: impl Into<Filter>,
        within: Duration,
    ) -> Result<Message, ReceiveError> {
        let filter = filter.into();
        let clock = self.clock().clone();
        let received = self.receive_matching(|received| takes(&filter, received));
        match clock.timeout(within, received).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ReceiveError::Timeout {
                agent: self.aid().name.clone(),
                filter: filter.to_string(),
                within,
            }),
        }
    }

    /// The next message that `filter` takes, if it has already come.
    pub fn try_receive(&mut self, filter: impl Into<Filter>) -> Option<Message> {
        let filter = filter.into();
        let matches = |received: &ReceivedMessage| takes(&filter, received);
        let received = self.handle.mailbox().try_receive_matching(matches)?;
        Some(Message::new(received))
    }

    /// Waits until there is a message, then takes up to `most` of the messages that have come, but at least one, in order.
    pub async fn receive_many(&mut self, most: usize) -> Result<Vec<Message>, ReceiveError> {
        let first = self.receive(Filter::any()).await?;
        let mut others = Vec::new();
        self.handle
            .mailbox()
            .try_recv_many(&mut others, most.saturating_sub(1));
        let mut messages = Vec::with_capacity(1 + others.len());
        messages.push(first);
        messages.extend(others.into_iter().map(Message::new));
        Ok(messages)
    }

    async fn receive_matching(
        &mut self,
        mut matches: impl FnMut(&ReceivedMessage) -> bool,
    ) -> Result<Message, ReceiveError> {
        let received = if !self.voice.heeds_stop {
            self.handle.mailbox().receive_matching(&mut matches).await
        } else {
            let wishes = self.handle.wishes();
            tokio::select! {
                biased;
                () = wishes.stop_wished() => {
                    return Err(ReceiveError::Stopping { agent: self.aid().name.clone() });
                }
                received = self.handle.mailbox().receive_matching(&mut matches) => received,
            }
        };
        self.voice.clock.note();
        match received {
            Some(received) => Ok(Message::new(received)),
            None => Err(ReceiveError::Closed {
                agent: self.aid().name.clone(),
            }),
        }
    }

    // ----- channels

    /// Subscribes. From now on [`Agent::on_event`](crate::Agent::on_event) gets the events, and
    /// [`Agent::on_question`](crate::Agent::on_question) gets the requests.
    ///
    /// The subscription ends when the agent leaves or moves. An agent that moves listens again in
    /// [`Agent::restore`](crate::Agent::restore).
    ///
    /// # Errors
    /// As [`Subscribing::open`].
    pub fn listen(&mut self, subscribing: Subscribing) -> Result<(), SubscribeError> {
        let subscription = subscribing.open()?;
        self.next_listener += 1;
        self.listening.push((self.next_listener, subscription));
        Ok(())
    }

    /// Ends the subscriptions that [`listen`](Self::listen) began for exactly this pattern.
    pub fn ignore(&mut self, pattern: &str) {
        self.listening
            .retain(|(_, subscription)| subscription.pattern().as_str() != pattern);
    }

    /// Answers a request that [`Agent::on_question`](crate::Agent::on_question) received.
    ///
    /// # Errors
    /// [`PublishError::NotAsked`] if the request was answered before or the answer comes too late; otherwise the errors
    /// of publishing.
    pub async fn answer(
        &self,
        question: &ChannelEvent,
        performative: Performative,
        content: impl Into<Content>,
    ) -> Result<(), PublishError> {
        match self.listener(question) {
            Some(subscription) => subscription.answer(question, performative, content).await,
            None => Err(PublishError::NotAsked),
        }
    }

    /// Tells the requester that this agent does not answer, so that the requester need not wait.
    pub fn decline(&self, question: &ChannelEvent) {
        if let Some(subscription) = self.listener(question) {
            subscription.decline(question);
        }
    }

    fn listener(&self, event: &ChannelEvent) -> Option<&ChannelSubscription> {
        let number = event.listener?;
        let found = self.listening.iter().find(|(other, _)| *other == number);
        found.map(|(_, subscription)| subscription)
    }

    // ----- beside the hooks

    /// From now on a handler beside the hooks gets the messages that `takes` describes, and
    /// [`on_message`](crate::Agent::on_message) does not. Up to `concurrency` messages are handled at a time; further
    /// messages wait in the mailbox. If several handlers take a message, the first of them gets it.
    ///
    /// An error of a handler is answered like an error of `on_message`. When the agent leaves, moves or is restarted,
    /// it waits a moment for its handlers and cuts off those that take longer. Their senders get a `failure`. Handlers
    /// end then, so register them in `setup` and `restore`.
    ///
    /// ```no_run
    /// # use sealbus::{Agent, AgentResult, Context, Message, Performative, Voice};
    /// # struct Seller;
    /// impl Agent for Seller {
    ///     async fn setup(&mut self, context: &mut Context) -> AgentResult {
    ///         context.on(Performative::Cfp, 8, sell);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// async fn sell(voice: Voice, call: Message) -> AgentResult {
    ///     let mut sale = voice.participate(&call)?;
    ///     sale.answer(Performative::Propose, "12 euros").await?;
    ///     if let Some(decision) = sale.next().await?
    ///         && decision.performative == Performative::AcceptProposal
    ///     {
    ///         sale.answer(Performative::Inform, "ten boxes").await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn on<F, W>(&mut self, takes: impl Into<Filter>, concurrency: usize, handler: F)
    where
        F: Fn(Voice, Message) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult> + Send + 'static,
    {
        self.handlers.add(takes.into(), concurrency, handler);
    }

    /// Makes a tool a service of this agent: from now on requests for it go to the tool, and not to
    /// [`on_message`](crate::Agent::on_message). Tasks beside the hooks serve the requests, which are taken up between
    /// two hooks. If the agent has several tools, the ontology of a request names its tool.
    ///
    /// Tools end when the agent leaves, moves or is restarted: offer them in `setup` and `restore`.
    pub fn offer(&mut self, tool: Tool) {
        self.tools.offer(tool);
    }

    /// The entries of the tools in the DF: `context.df().register(context.services()).await?`.
    pub fn services(&self) -> Vec<ServiceDescription> {
        self.tools.services()
    }

    // ----- living and leaving

    /// Makes the agent leave after this hook. `teardown` comes next, then the agent is gone.
    pub fn stop(&mut self) {
        self.leaving = true;
    }

    /// Asks all agents of this process to leave, this one included.
    pub fn stop_all(&mut self) {
        self.leaving = true;
        self.handle
            .process()
            .stop("an agent of the program stopped it");
    }

    /// The number of messages and events whose handler returned an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    pub(crate) fn count_failed(&mut self) {
        self.failed += 1;
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    pub(crate) fn begin_teardown(&mut self) {
        // `receive` works again, so that the agent can still ask and get answers.
        self.voice.heeds_stop = false;
    }

    /// Settles the events that the hooks have handled.
    pub(crate) fn settle_events(&self) {
        for (_, subscription) in &self.listening {
            subscription.settle();
        }
    }

    /// Lets all subscriptions rest before the agent saves its state.
    pub(crate) fn come_to_rest(&mut self) {
        self.settle_events();
        self.handle.come_to_rest();
    }

    /// Waits for the next event for the agent at rest.
    pub(crate) async fn next(&mut self) -> Next {
        let wishes = self.handle.wishes();
        loop {
            let beside = Beside {
                tools: &self.tools,
                handlers: &self.handlers,
                labour: &self.labour,
            };
            let arrived = tokio::select! {
                biased;
                wish = wishes.wished() => match wish {
                    Wish::Stop => return Next::Stop,
                    Wish::Freeze => return Next::Freeze,
                },
                failed = self.labour.next_error() => return Next::Failed(failed),
                arrived = arrival(&mut self.handle, &mut self.listening, beside) => arrived,
            };
            self.voice.clock.note();
            match arrived {
                MailOrEvent::Mail(Some(received)) => {
                    let mailbox = self.handle.mailbox();
                    let left = self
                        .tools
                        .serve(received, mailbox, &self.voice, &self.labour);
                    let left =
                        left.and_then(|it| self.handlers.handle(it, &self.voice, &self.labour));
                    if let Some(received) = left {
                        return Next::Message(Message::new(received));
                    }
                }
                MailOrEvent::Mail(None) => return Next::Stop,
                MailOrEvent::Event(event) => return Next::Event(*event),
            }
        }
    }

    pub(crate) fn into_parts(self) -> (AgentHandle, Crew) {
        (self.handle, self.crew)
    }
}
