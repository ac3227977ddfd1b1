//! A caller from outside, as an agent of the platform: its name, its certificate, its mailbox, its rights.

use std::collections::VecDeque;
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
    pub(crate) standing: Standing,
}

/// Whether a caller's agent may stay as long as its gateway does.
#[derive(Clone)]
pub(crate) struct Standing {
    wishes: Wishes,
    process: Process,
}

impl Standing {
    /// Whether the agent was revoked. If the whole gateway ends, it was not.
    pub(crate) fn is_revoked(&self) -> bool {
        self.wishes.is_stop_wished() && !self.process.is_stopping()
    }

    /// As [`Caller::revoked`].
    pub(crate) async fn revoked(&self) {
        self.wishes.stop_wished().await;
        if self.process.is_stopping() {
            pending().await
        }
    }
}

#[derive(Debug)]
struct MailRequest {
    most: usize,
    answer: oneshot::Sender<Vec<Message>>,
}

impl Caller {
    /// Takes up to `most` messages out of the mailbox, in the order of their arrival. None once the agent has left. If the call
    /// is cancelled before the agent answers, the messages stay for the next one.
    pub async fn take_mail(&self, most: usize) -> Option<Vec<Message>> {
        let (answer, taken) = oneshot::channel();
        self.mail.send(MailRequest { most, answer }).await.ok()?;
        taken.await.ok()
    }

    /// Waits until the agent has to leave although its gateway goes on: it was revoked. Waits for ever if the gateway ends.
    pub async fn revoked(&self) {
        self.standing.revoked().await;
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
            standing: Standing {
                wishes: wishes.clone(),
                process: context.handle().process().clone(),
            },
        };
        if let Some(known) = self.known.take() {
            // Without a gateway there is nobody to serve.
            let _ = known.send(caller);
        }
        // Messages whose host went away before they were on their way to it.
        let mut untaken = VecDeque::new();
        loop {
            let MailRequest { most, answer } = tokio::select! {
                () = wishes.stop_wished() => return Ok(()),
                request = requests.recv() => match request {
                    Some(request) => request,
                    None => return Ok(()),
                },
            };
            // The host that asked has gone.
            if answer.is_closed() {
                continue;
            }
            let mut taken = Vec::new();
            while taken.len() < most
                && let Some(message) = untaken
                    .pop_front()
                    .or_else(|| context.try_receive(Filter::any()))
            {
                taken.push(message);
            }
            if let Err(taken) = answer.send(taken) {
                for message in taken.into_iter().rev() {
                    untaken.push_front(message);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context as Waiting, Waker};

    use sealbus::{AclMessage, Performative, Platform};

    use super::*;

    #[tokio::test]
    async fn mail_for_a_host_that_has_gone_stays_for_the_next_one() {
        let platform = Platform::embedded().await.unwrap();
        let (agent, caller) = CallerAgent::new();
        let running = platform.start("host", agent).await.unwrap();
        let caller = caller.await.unwrap();
        let message = |text: &str| {
            AclMessage::new(Performative::Inform)
                .with_receiver(running.aid().clone())
                .with_content(text.to_owned())
        };
        caller.voice.send(message("one")).await.unwrap();
        caller.voice.send(message("two")).await.unwrap();
        {
            let gone = pin!(caller.take_mail(20));
            let mut waiting = Waiting::from_waker(Waker::noop());
            assert!(gone.poll(&mut waiting).is_pending());
        }
        let taken = caller.take_mail(20).await.unwrap();
        let texts: Vec<&str> = taken.iter().map(|it| it.text().unwrap()).collect();
        assert_eq!(texts, ["one", "two"]);
        platform.process().stop("the test is over");
        running.wait().await;
        assert!(caller.take_mail(20).await.is_none());
    }
}
