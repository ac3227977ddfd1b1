//! A caller from outside, as an agent of the platform: its name, its certificate, its mailbox, its rights.

use std::sync::Arc;

use sealbus::{Agent, AgentResult, Context, Filter, Message, Voice};
use tokio::sync::{mpsc, oneshot};

use crate::feed::Feeds;

/// Messages that a caller may ask for before the first request is answered.
const REQUESTS: usize = 16;

/// What the desk knows of a caller.
pub(crate) struct Caller {
    pub(crate) voice: Voice,
    pub(crate) feeds: Feeds,
    mail: mpsc::Sender<MailRequest>,
}

struct MailRequest {
    most: usize,
    answer: oneshot::Sender<Vec<Message>>,
}

impl Caller {
    /// Takes up to `most` messages out of the mailbox, in the order of their arrival. None once the agent has left.
    pub(crate) async fn take_mail(&self, most: usize) -> Option<Vec<Message>> {
        let (answer, taken) = oneshot::channel();
        self.mail.send(MailRequest { most, answer }).await.ok()?;
        taken.await.ok()
    }
}

/// The agent. Its messages stay in its mailbox, with the bus's limits, until they are asked for.
pub(crate) struct CallerAgent {
    known: Option<oneshot::Sender<Arc<Caller>>>,
}

impl CallerAgent {
    /// The agent, and its caller once it is on the bus.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Arc<Caller>>) {
        let (known, caller) = oneshot::channel();
        let known = Some(known);
        (Self { known }, caller)
    }
}

impl Agent for CallerAgent {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let (mail, mut requests) = mpsc::channel(REQUESTS);
        let caller = Caller {
            voice: context.voice(),
            feeds: Feeds::default(),
            mail,
        };
        if let Some(known) = self.known.take() {
            // Without a desk there is nobody to serve.
            let _ = known.send(Arc::new(caller));
        }
        let wishes = context.handle().wishes();
        loop {
            let MailRequest { most, answer } = tokio::select! {
                () = wishes.stop_wished() => return Ok(()),
                request = requests.recv() => match request {
                    Some(request) => request,
                    None => return Ok(()),
                },
            };
            let mut taken = Vec::new();
            while taken.len() < most
                && let Some(message) = context.try_receive(Filter::any())
            {
                taken.push(message);
            }
            // Messages for a caller that went away in the meantime are lost with its answer.
            let _ = answer.send(taken);
        }
    }
}
