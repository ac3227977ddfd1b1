//! What agents put on channels: events, messages and requests, and how their publishers wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sealbus_bus::{LocalAgent, Moment, Outbox};
use sealbus_fipa::AclMessage;

use super::{Channels, Replies, RequestOptions, Shared};
use crate::exchange::{
    Asked, Attempt, Exchange, Now, Publication, PublishError, Reach, Receipt, Turn,
};
use crate::path::ChannelPath;
use crate::qos::{Qos, Reliability};

/// How long the first best-effort publisher of a process waits to hear who subscribes in other processes.
const INTRODUCTION: Duration = Duration::from_secs(1);

impl Channels {
    /// The first best-effort event of a process gives others a little time to say that they want it.
    async fn introduce(&self, qos: &Qos) {
        if qos.reliability == Reliability::BestEffort
            && !self.shared.was_introduced.load(Ordering::Acquire)
        {
            self.ready(INTRODUCTION).await;
        }
    }

    /// Publishes an event: everyone gets it whose subscription matches. Waits until every process of the platform has announced
    /// what it subscribes to; while a subscription that pushes back, or a process, has no room; and for acknowledgements, if
    /// the QoS asks for them.
    ///
    /// What was accepted reaches every process that is known to subscribe, or its publisher finds a `failure` message
    /// in its mailbox that names the channel; unless the QoS is best-effort.
    ///
    /// A persistent event is on the disk of this process's node before anybody gets it.
    ///
    /// # Errors
    /// [`PublishError`]; nobody has it then, but for [`PublishError::Unacknowledged`].
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

    /// Publishes an event if there is room for it everywhere, and every process has announced what it subscribes to; `None`
    /// if not, and always for what is persistent. Waits for nothing, nor for acknowledgements.
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
        })
    }

    /// Sends to the one agent `receiver` on the channel. Waits as [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`PublishError::NotOnChannel`] if the agent has no subscription that matches, else as `publish`. If it goes away
    /// before it has the message, that comes back as a `failure`.
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

    /// Asks everyone on the channel who answers requests. The answers come as they are given.
    ///
    /// # Errors
    /// As [`publish`](Self::publish). That nobody answers is none.
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
            // The answers say who has it.
            acknowledgement: None,
            ..*qos
        };
        let Asked { id, collector } = self
            .put(
                outbox,
                channel,
                &qos,
                &message,
                None,
                |exchange, publication, now| {
                    exchange.request(publication, options.within, options.first, now)
                },
            )
            .await?;
        Ok(Replies {
            channels: self.clone(),
            id,
            collector,
        })
    }

    /// Checks what is asked, and fills in the sender.
    fn prepare(
        &self,
        outbox: &Outbox,
        qos: &Qos,
        message: Arc<AclMessage>,
    ) -> Result<Arc<AclMessage>, PublishError> {
        if outbox.agent().mailbox().is_barred() {
            return Err(PublishError::Barred(outbox.name().clone()));
        }
        let (capabilities, transport) = self.shared.capabilities();
        qos.check_against(capabilities, transport)?;
        sign(outbox.agent(), message)
    }

    pub(super) async fn put<T>(
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
            receipt.wait().await.map_err(PublishError::Unacknowledged)?;
        }
        // A publisher that never has to wait must not keep the thread from everybody else.
        tokio::task::consume_budget().await;
        Ok(done)
    }
}

impl Shared {
    /// Repeats an attempt of the agent of this number, waiting at the gates it is sent to.
    pub(super) async fn pass<T>(
        &self,
        agent: u64,
        mut attempt: impl FnMut(Turn<'_>) -> Result<Attempt<T>, PublishError>,
    ) -> Result<T, PublishError> {
        let mut gate = match attempt(Turn::of(agent))? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Full(gate) => gate,
        };
        loop {
            let answer = gate
                .pass_as(agent, || match attempt(Turn::at(agent, &gate)) {
                    Ok(Attempt::Full(other)) if Arc::ptr_eq(&other, &gate) => None,
                    answer => Some(answer),
                })
                .await;
            match answer? {
                Attempt::Done(done) => return Ok(done),
                Attempt::Full(other) => gate = other,
            }
        }
    }
}

/// The message under the agent's own name.
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
