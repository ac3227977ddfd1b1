//! Publishing: agents put events, messages and requests on channels, and publishers wait for room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealbus_bus::{LocalAgent, Moment, Outbox};
use sealbus_fipa::AclMessage;
use tokio::runtime::Handle;

use super::{Channels, LONGEST_WAIT, Replies, RequestOptions, Shared};
use crate::exchange::{
    Attempt, Exchange, Now, Publication, PublishError, Reach, Receipt, SentRequest, Turn,
};
use crate::path::ChannelPath;
use crate::qos::{Qos, Reliability};

/// How long the first best-effort publisher of a process waits for the announcements of other processes.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// So many deliveries in this process count as one operation of a task in its turn.
const TOGETHER: usize = 8;

/// An event or a request that an agent has put on a channel.
pub(super) trait PutOnChannel {
    /// The receivers that got it.
    fn reach(&self) -> Reach;
}

impl PutOnChannel for Reach {
    fn reach(&self) -> Reach {
        self.clone()
    }
}

/// The answers show which agents got a request.
impl PutOnChannel for SentRequest {
    fn reach(&self) -> Reach {
        Reach::default()
    }
}

impl Channels {
    /// Delays the first best-effort event of a process a little, so that other processes can announce their
    /// subscriptions.
    async fn introduce(&self, qos: &Qos) {
        if qos.reliability == Reliability::BestEffort
            && !self.shared.was_introduced.load(Ordering::Acquire)
        {
            self.ready(INTRODUCTION).await;
        }
    }

    /// Publishes an event to every subscription that matches. Waits until every process of the platform has announced
    /// its subscriptions, while a process or a subscription that pushes back has no room, and for acknowledgements, if
    /// the QoS asks for them.
    ///
    /// An accepted event reaches every process that is known to subscribe. If it does not, its publisher finds a
    /// `failure` message that names the channel in its mailbox, unless the QoS is best-effort.
    ///
    /// A persistent event is on the disk of this process's node before any agent gets it.
    ///
    /// # Errors
    /// [`PublishError`]; then no subscription has the event, except after [`PublishError::Unacknowledged`].
    pub async fn publish(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        let message = self.prepare(outbox, qos, message.into())?;
        self.introduce(qos).await;
        if qos.persistence.is_persistent() {
            return self.publish_kept(outbox, channel, qos, &message).await;
        }
        self.put(
            outbox,
            channel,
            qos,
            &message,
            None,
            |exchange, publication, now| exchange.publish(publication, now),
        )
        .await
    }

    /// Publishes an event if there is room for it everywhere and every process has announced its subscriptions.
    /// Otherwise, and always for a persistent event, returns `None`. Never waits, not even for acknowledgements.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn try_publish(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Option<Reach>, PublishError> {
        let message = self.prepare(outbox, qos, message.into())?;
        if qos.persistence.is_persistent() {
            return Ok(None);
        }
        let publication = Publication {
            publisher: outbox.name(),
            channel,
            qos,
            message: &message,
            kept: None,
            receipt: None,
            turn: Turn::of(outbox.agent().number()),
        };
        let attempt = self
            .shared
            .work(|exchange, now| exchange.publish(&publication, now));
        Ok(match attempt? {
            Attempt::Done(reach) => Some(reach),
            Attempt::Full(_) => None,
            Attempt::Unknown(readers) => {
                if let Some(sealer) = self.shared.sealer.get().cloned()
                    && let Ok(runtime) = Handle::try_current()
                {
                    // A later attempt finds the keys.
                    runtime.spawn(async move { sealer.look_up(&readers).await });
                }
                None
            }
        })
    }

    /// Sends to the one agent `receiver` on the channel. Waits like [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`PublishError::NotOnChannel`] if the agent has no subscription that matches; otherwise as `publish`. If the
    /// agent leaves before it has the message, the message comes back as a `failure`.
    pub async fn send(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        receiver: &str,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<Reach, PublishError> {
        let mut message = self.prepare(outbox, qos, message.into())?;
        if message.receivers.is_empty() {
            Arc::make_mut(&mut message).receivers = vec![sealbus_bus::aid_of(receiver)];
        }
        self.introduce(qos).await;
        let receiver: Arc<str> = receiver.into();
        self.put(
            outbox,
            channel,
            qos,
            &message,
            None,
            |exchange, publication, now| exchange.send(publication, &receiver, now),
        )
        .await
    }

    /// Asks every agent on the channel that answers requests. The answers come as they are given.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). A request without an answer is not an error.
    pub async fn request(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: impl Into<Arc<AclMessage>>,
        options: RequestOptions,
    ) -> Result<Replies, PublishError> {
        let message = self.prepare(outbox, qos, message.into())?;
        self.introduce(qos).await;
        let qos = Qos {
            // The answers show which agents got the request.
            acknowledgement: None,
            ..*qos
        };
        let within = options.within.min(LONGEST_WAIT);
        let SentRequest { id, collector } = self
            .put(
                outbox,
                channel,
                &qos,
                &message,
                None,
                |exchange, publication, now| {
                    exchange.request(publication, within, options.first, now)
                },
            )
            .await?;
        Ok(Replies {
            channels: self.clone(),
            id,
            collector,
        })
    }

    /// Checks the request, and fills in the sender.
    fn prepare(
        &self,
        outbox: &Outbox,
        qos: &Qos,
        message: Arc<AclMessage>,
    ) -> Result<Arc<AclMessage>, PublishError> {
        if outbox.agent().mailbox().is_barred() {
            return Err(PublishError::Barred(outbox.name().clone()));
        }
        if let Some(why) = outbox.bus().given_up() {
            return Err(PublishError::GivenUp {
                agent: outbox.name().clone(),
                why: why.to_owned(),
            });
        }
        self.shared.use_channels();
        let (capabilities, transport) = self.shared.capabilities();
        qos.check_against(capabilities, transport)?;
        sign(outbox.agent(), message)
    }

    pub(super) async fn put<T: PutOnChannel>(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: &Arc<AclMessage>,
        kept: Option<(u64, Moment)>,
        mut put: impl FnMut(&mut Exchange, &Publication<'_>, Now) -> Result<Attempt<T>, PublishError>,
    ) -> Result<T, PublishError> {
        let receipt = qos.acknowledgement.is_some().then(Arc::<Receipt>::default);
        let done = self
            .shared
            .pass(outbox.agent().number(), |turn| {
                let publication = Publication {
                    publisher: outbox.name(),
                    channel,
                    qos,
                    message,
                    kept,
                    receipt: receipt.as_ref(),
                    turn,
                };
                self.shared
                    .work(|exchange, now| put(exchange, &publication, now))
            })
            .await?;
        if let Some(receipt) = receipt {
            let waited = receipt.wait().await;
            waited.map_err(|reason| PublishError::Unacknowledged {
                reason,
                reach: done.reach(),
            })?;
        }
        // A publisher that never has to wait must still let other tasks run: the more subscribers it has, the sooner.
        for _ in 0..=done.reach().here / TOGETHER {
            tokio::task::consume_budget().await;
        }
        Ok(done)
    }
}

impl Shared {
    /// Repeats an attempt of the agent with this number, and waits at the gates that the attempt returns.
    pub(super) async fn pass<T>(
        &self,
        agent: u64,
        mut attempt: impl FnMut(Turn<'_>) -> Result<Attempt<T>, PublishError>,
    ) -> Result<T, PublishError> {
        let mut answer = attempt(Turn::of(agent))?;
        loop {
            answer = match answer {
                Attempt::Done(done) => return Ok(done),
                Attempt::Full(gate) => {
                    let passed = gate.pass_as(agent, || match attempt(Turn::at(agent, &gate)) {
                        Ok(Attempt::Full(other)) if Arc::ptr_eq(&other, &gate) => None,
                        answer => Some(answer),
                    });
                    passed.await?
                }
                Attempt::Unknown(readers) => {
                    if let Some(sealer) = self.sealer.get() {
                        sealer.look_up(&readers).await;
                    }
                    attempt(Turn::of(agent))?
                }
            };
        }
    }
}

/// Puts the message under the agent's own name.
pub(super) fn sign(
    agent: &LocalAgent,
    mut message: Arc<AclMessage>,
) -> Result<Arc<AclMessage>, PublishError> {
    match &message.sender {
        Some(sender) if sender.name == **agent.name() => {}
        Some(sender) => {
            return Err(PublishError::ForgedSender {
                agent: agent.name().clone(),
                claimed: sender.name.clone(),
            });
        }
        None => Arc::make_mut(&mut message).sender = Some(agent.aid()),
    }
    Ok(message)
}
