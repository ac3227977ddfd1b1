//! The way in: messages from agents of other platforms to agents of this platform.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use sealbus_bus::{RefusalReason, SendError, UndeliverableReason, failure_notice};
use sealbus_fipa::{AclMessage, Limits, Performative};

use super::config::milliseconds;
use super::counters::{Counts, Turned};
use super::inward::{self, TurnedAway};
use super::outside::Outside;
use super::policy::Origin;
use super::server::{RefusedRequest, Service};
use super::shared::Shared;
use super::transmission::{self, TransmissionError};
use super::waiting::{Joined, NoRoom, WaitingMessage};

/// How long a message holds up the messages behind it on its connection, before it waits in its receiver's own line.
const MOMENT: Duration = Duration::from_millis(100);

/// Why a message from outside was not handed over.
enum NotHanded {
    Failed(SendError),
    /// The mailbox is full, and so is its line.
    NoRoom,
}

impl Service for Shared {
    fn description(&self) -> String {
        Outside {
            platform: &self.platform,
            addresses: &self.own,
        }
        .description()
    }

    async fn receive(
        self: &Arc<Self>,
        content_type: &str,
        body: Bytes,
        origin: &Origin,
    ) -> Result<(), RefusedRequest> {
        let limits = Limits {
            message_length: self.config.limits.body,
            ..Limits::default()
        };
        let transmission = transmission::read(content_type, &body, &limits)
            .map_err(|error| self.unreadable(&error, origin))?;
        let encoding = transmission::Encoding {
            envelope: transmission.envelope_representation,
            message: transmission.representation,
        };
        let policy = self.policy.read().clone();
        let accepted = inward::judge(transmission, origin, &self.platform, &self.own, &policy)
            .map_err(|turned| self.turn_away(&turned, origin.address))?;
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
            let turned = TurnedAway {
                what: Turned::Busy,
                sender: sender.map(|it| it.name.clone()).unwrap_or_default(),
                receiver: None,
                explanation,
            };
            self.turn_away(&turned, origin.address)
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
            match self
                .hand_over(&accepted.message, receiver, body.len())
                .await
            {
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
                    let turned = TurnedAway {
                        what: Turned::Malformed,
                        sender: sender.map(|it| it.name.clone()).unwrap_or_default(),
                        receiver: Some(receiver.clone()),
                        explanation: error.to_string(),
                    };
                    return Err(self.turn_away(&turned, origin.address));
                }
                Err(NotHanded::NoRoom) => {
                    let explanation = format!("the mailbox of {receiver} is full: try again later");
                    return Err(busy(explanation));
                }
            }
        }
        Ok(())
    }

    fn turned(&self, what: Turned, from: IpAddr, explanation: &str) {
        let turned = TurnedAway::before_its_sender_is_known(what, explanation.to_owned());
        self.turn_away(&turned, from);
    }
}

impl Shared {
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
            Err(NoRoom) => Err(NotHanded::NoRoom),
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
        // Notices are not answered by notices, for ever.
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
            self.send(Arc::new(notice), &sender, true, None, now).await;
        }
    }

    fn turn_away(&self, turned: &TurnedAway, from: IpAddr) -> RefusedRequest {
        self.counts.turned(turned.what);
        let (status, reason) = match turned.what {
            Turned::Malformed => (StatusCode::BAD_REQUEST, RefusalReason::Malformed),
            Turned::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::TooLarge),
            Turned::TooSlow => (StatusCode::REQUEST_TIMEOUT, RefusalReason::OverLimit),
            Turned::TooMany | Turned::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, RefusalReason::OverLimit)
            }
            Turned::ForgedSender => (StatusCode::FORBIDDEN, RefusalReason::ForgedSender),
            Turned::NotPermitted | Turned::Relay => {
                (StatusCode::FORBIDDEN, RefusalReason::NotPermitted)
            }
            Turned::Loop => (StatusCode::LOOP_DETECTED, RefusalReason::NotPermitted),
        };
        // A full mailbox is not an offence of the sender.
        if turned.what != Turned::Busy {
            let tried_by = format!("{} at {from}", turned.sender);
            self.outbox.bus().refused(
                &tried_by,
                None,
                turned.receiver.as_deref(),
                reason,
                turned.explanation.clone(),
            );
        }
        RefusedRequest {
            status,
            explanation: turned.explanation.clone(),
        }
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

    fn unreadable(&self, error: &TransmissionError, origin: &Origin) -> RefusedRequest {
        let turned = TurnedAway::before_its_sender_is_known(Turned::Malformed, error.to_string());
        let mut refused = self.turn_away(&turned, origin.address);
        if error.is_unsupported() {
            refused.status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        }
        refused
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
