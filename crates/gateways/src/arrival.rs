//! The way in: messages from agents of other platforms to agents of this platform.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_bus::{RefusalReason, SendError, UndeliverableReason, failure_notice};
use sealbus_fipa::{AclMessage, Performative, bitefficient};

use crate::config::milliseconds;
use crate::counters::{Counts, Turned};
use crate::inward::{self, TurnedAway};
use crate::policy::MessageOrigin;
use crate::shared::Shared;
use crate::transmission::{Encoding, Transmission};
use crate::waiting::{Joined, LineFull, WaitingMessage};

/// How long a message holds up the messages behind it on its connection, before it waits in its receiver's own line.
const MOMENT: Duration = Duration::from_millis(100);

/// Why a message from outside was not handed over.
#[derive(Debug)]
enum NotHanded {
    Failed(SendError),
    /// The mailbox is full, and so is its line.
    NoRoom,
}

impl Shared {
    /// Judges a message from outside and delivers it. If the transport gives no answer (`is_answered`) and there is no
    /// room for the message, a failure notice tells its sender.
    ///
    /// # Errors
    /// Why it was turned away, for [`turn_away`](Self::turn_away).
    pub(crate) async fn receive(
        self: &Arc<Self>,
        transmission: Transmission,
        size: usize,
        origin: &MessageOrigin,
        is_answered: bool,
    ) -> Result<(), Box<TurnedAway>> {
        let encoding = Encoding {
            envelope: transmission.envelope_representation,
            message: transmission.representation,
        };
        let policy = self.policy.read().clone();
        let accepted = inward::judge(transmission, origin, &self.platform, &self.own.all, &policy)?;
        let sender = accepted.message.sender.as_ref();
        if let Some(sender) = sender {
            let mut book = self.book.lock();
            book.note(
                &sender.name,
                &sender.addresses,
                encoding,
                origin,
                accepted.is_located,
            );
        }
        let busy = |explanation: String| {
            Box::new(TurnedAway {
                what: Turned::Busy,
                sender: sender.map(|it| it.name.clone()).unwrap_or_default(),
                receiver: None,
                explanation,
            })
        };
        for receiver in &accepted.receivers {
            let id = accepted.id.as_ref().map(|id| format!("{id} {receiver}"));
            match self.come(id.as_deref()) {
                None => {}
                Some(true) => {
                    Counts::add(&self.counts.repeated, 1);
                    continue;
                }
                Some(false) => {
                    let explanation = "the same message is being delivered already: ask again";
                    return Err(busy(explanation.to_owned()));
                }
            }
            let delivery = DeliveryUnderWay {
                inner: self,
                id,
                is_delivered: false,
            };
            match self.hand_over(&accepted.message, receiver, size).await {
                Ok(()) => {
                    delivery.delivered();
                    Counts::add(&self.counts.received, 1);
                }
                // The platform's own fault, for example because it is ending.
                Err(NotHanded::Failed(
                    error @ (SendError::Detached(_) | SendError::UnreadFailures(_)),
                )) => {
                    return Err(busy(error.to_string()));
                }
                Err(NotHanded::Failed(error)) => {
                    return Err(Box::new(TurnedAway {
                        what: Turned::Malformed,
                        sender: sender.map(|it| it.name.clone()).unwrap_or_default(),
                        receiver: Some(receiver.clone()),
                        explanation: error.to_string(),
                    }));
                }
                Err(NotHanded::NoRoom) => {
                    let explanation = format!("the mailbox of {receiver} is full: try again later");
                    if is_answered {
                        return Err(busy(explanation));
                    }
                    self.counts.turned(Turned::Busy);
                    let message = accepted.message.clone();
                    self.tell_outside(message, receiver, explanation).await;
                }
            }
        }
        Ok(())
    }

    /// Puts a message into its receiver's mailbox, or, if the mailbox is full, into the line before it.
    async fn hand_over(
        self: &Arc<Self>,
        message: &Arc<AclMessage>,
        receiver: &str,
        size: usize,
    ) -> Result<(), NotHanded> {
        let until = Instant::now() + milliseconds(self.config.limits.receiver_time);
        if !self.lines.lock().is_open(receiver) {
            let relay = self.outbox.relay(message, receiver);
            if let Ok(handed) = tokio::time::timeout(MOMENT, relay).await {
                return handed.map_err(NotHanded::Failed);
            }
        }
        let message = message.clone();
        let joined = self
            .lines
            .lock()
            .join(receiver, size, WaitingMessage { message, until });
        match joined {
            Ok(Joined::Behind) => Ok(()),
            Ok(Joined::First) => {
                self.spawn(self.clone().hand_out(receiver.to_owned()));
                Ok(())
            }
            Err(LineFull) => Err(NotHanded::NoRoom),
        }
    }

    /// Puts a failure notice into the mailbox of an agent of this platform. An agent that does not read its mailbox loses
    /// the notices for which there is no room.
    pub(crate) async fn give_notice(self: &Arc<Self>, notice: AclMessage, receiver: &str) {
        let mut encoded = Vec::new();
        if let Err(error) = bitefficient::encode(&notice, &mut encoded) {
            tracing::warn!(receiver, %error, "a failure notice could not be written");
            return;
        }
        let notice = Arc::new(notice);
        let handed = self.hand_over(&notice, receiver, encoded.len()).await;
        if let Err(not_handed) = handed {
            tracing::debug!(receiver, ?not_handed, "a failure notice is dropped");
        }
    }

    /// Puts the messages of a line into its mailbox, in order. The sender of a message that is not taken in time is
    /// told.
    async fn hand_out(self: Arc<Self>, receiver: String) {
        loop {
            let next = self.lines.lock().next(&receiver);
            let Some(WaitingMessage { message, until }) = next else {
                return;
            };
            let relay = self.outbox.relay(&message, &receiver);
            let explanation = match tokio::time::timeout_at(until.into(), relay).await {
                Ok(Ok(())) => {
                    // A mailbox that takes everything must not keep the thread from other tasks.
                    tokio::task::consume_budget().await;
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("the mailbox of {receiver} was full for too long"),
            };
            self.counts.turned(Turned::Busy);
            self.tell_outside(message, &receiver, explanation).await;
        }
    }

    /// Tells the sender of a message, an agent of another platform, that it was not delivered after all.
    async fn tell_outside(
        self: &Arc<Self>,
        message: Arc<AclMessage>,
        receiver: &str,
        explanation: String,
    ) {
        tracing::debug!(target: "sealbus::undeliverable", receiver, explanation, "message from outside not delivered");
        let sender = message.sender.as_ref();
        // A notice is not answered by a notice, because that could go on for ever.
        let is_notice = message.performative == Performative::Failure
            && sender.is_some_and(|it| it.local_name() == "ams");
        if is_notice {
            return;
        }
        let reason = UndeliverableReason::Refused {
            reason: RefusalReason::OverLimit,
            explanation,
        };
        let ams = self.aid("ams");
        let Some(notice) = failure_notice(&ams, &AclMessage::view(&message), receiver, &reason)
        else {
            return;
        };
        if let Some(sender) = sender {
            let sender = sender.name.as_str().into();
            let now = Instant::now();
            self.send(Arc::new(notice), &sender, true, None, None, now)
                .await;
        }
    }

    /// Counts a message that was turned away, and reports an offence to the operators.
    pub(crate) fn turn_away(&self, turned: &TurnedAway, from: IpAddr) {
        self.counts.turned(turned.what);
        let reason = match turned.what {
            Turned::Malformed => RefusalReason::Malformed,
            Turned::TooLarge => RefusalReason::TooLarge,
            Turned::TooSlow | Turned::TooMany => RefusalReason::OverLimit,
            Turned::ForgedSender => RefusalReason::ForgedSender,
            Turned::NotPermitted | Turned::Relay | Turned::Loop => RefusalReason::NotPermitted,
            // A full mailbox is not an offence of the sender.
            Turned::Busy => return,
        };
        // The log shortens it and counts it against the address, which must stay at its end.
        let sender: String = turned.sender.chars().take(500).collect();
        let tried_by = format!("{sender} at {from}");
        self.outbox.bus().refused(
            &tried_by,
            None,
            turned.receiver.as_deref(),
            reason,
            turned.explanation.clone(),
        );
    }

    /// Notes that a message is being delivered; `Some(delivered)` if the message has come before.
    fn come(&self, id: Option<&str>) -> Option<bool> {
        let id = id?;
        let mut seen = self.seen.lock();
        let before = seen.get(id).copied();
        if before.is_none() {
            seen.insert(id, false);
        }
        before
    }
}

/// A message that is being delivered. If the delivery fails, the message may come again.
struct DeliveryUnderWay<'a> {
    inner: &'a Shared,
    id: Option<String>,
    is_delivered: bool,
}

impl DeliveryUnderWay<'_> {
    fn delivered(mut self) {
        self.is_delivered = true;
    }
}

impl Drop for DeliveryUnderWay<'_> {
    fn drop(&mut self) {
        let Some(id) = &self.id else { return };
        let mut seen = self.inner.seen.lock();
        if self.is_delivered {
            seen.insert(id, true);
        } else {
            seen.remove(id);
        }
    }
}
