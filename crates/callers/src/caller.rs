//! A caller from outside, as an agent of the platform: its name, its certificate, its mailbox, its rights.

use std::fmt;
use std::future::pending;

use sealbus::process::{Process, Wishes};
use sealbus::{Agent, AgentResult, Context, Filter, Message, Voice};
use tokio::sync::{mpsc, oneshot};

/// Messages that a caller may ask for before the first request is answered.
const REQUESTS: usize = 16;

/// A caller from outside, for its gateway.
pub struct Caller {
    /// The caller's agent.
    pub voice: Voice,
    mail: mpsc::Sender<MailRequest>,
    wishes: Wishes,
    process: Process,
}

#[derive(Debug)]
struct MailRequest {
    most: usize,
    answer: oneshot::Sender<Vec<Message>>,
}

impl Caller {
    /// Takes up to `most` messages out of the mailbox, in the order of their arrival. None once the agent has left.
    pub async fn take_mail(&self, most: usize) -> Option<Vec<Message>> {
        let (answer, taken) = oneshot::channel();
        self.mail.send(MailRequest { most, answer }).await.ok()?;
        taken.await.ok()
    }

    /// Waits until the agent has to leave although its gateway goes on: it was revoked. Waits for ever if the gateway ends.
    pub async fn revoked(&self) {
        self.wishes.stop_wished().await;
        if self.process.is_stopping() {
            pending().await
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("voice", &self.voice)
            .finish_non_exhaustive()
    }
}

/// The agent of a caller. Messages stay in its mailbox, within the bus's limits, until the caller asks for them.
#[derive(Debug)]
pub struct CallerAgent {
    known: Option<oneshot::Sender<Caller>>,
}

impl CallerAgent {
    /// The agent, and its caller once it is on the bus.
    pub fn new() -> (Self, oneshot::Receiver<Caller>) {
        let (known, caller) = oneshot::channel();
        let known = Some(known);
        (Self { known }, caller)
    }
}

impl Agent for CallerAgent {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let (mail, mut requests) = mpsc::channel(REQUESTS);
        let wishes = context.handle().wishes();
        let caller = Caller {
            voice: context.voice(),
            mail,
            wishes: wishes.clone(),
            process: context.handle().process().clone(),
        };
        if let Some(known) = self.known.take() {
            // Without a gateway there is nobody to serve.
            let _ = known.send(caller);
        }
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
