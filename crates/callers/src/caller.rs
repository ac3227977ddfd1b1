//! A caller from outside, as an agent of the platform: its name, its certificate, its mailbox, its rights.

use sealbus::{Agent, AgentResult, Context, Filter, Message, Voice};
use tokio::sync::{mpsc, oneshot};

/// Messages that a caller may ask for before the first request is answered.
const REQUESTS: usize = 16;

/// A caller from outside, for its gateway.
#[derive(Debug)]
pub struct Caller {
    /// The caller's agent.
    pub voice: Voice,
    mail: mpsc::Sender<MailRequest>,
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
        let caller = Caller {
            voice: context.voice(),
            mail,
        };
        if let Some(known) = self.known.take() {
            // Without a gateway there is nobody to serve.
            let _ = known.send(caller);
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
