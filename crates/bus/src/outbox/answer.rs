//! Answers: an agent that asks must make room for the answers, and does not hold up the agents that answer.

use std::sync::Arc;

use sealbus_fipa::AclMessage;
use tokio::time::{Instant, timeout};

use super::{NotAccepted, Outbox};
use crate::error::{SendError, TrySendError, Unsent};
use crate::transport::Outgoing;

impl Outbox {
    /// As [`send`](Self::send), for an answer. An agent that asks must make room for the answers. All answers of this
    /// process together wait for one receiver for 10 seconds at most. A tenth of the time that passes is added again.
    ///
    /// # Errors
    /// [`SendError::AnswerNotTaken`] if the receiver makes no room in this time; otherwise as [`send`](Self::send).
    pub async fn answer(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), SendError> {
        match self.try_send(message) {
            Ok(()) => {
                self.turn.sent().await;
                Ok(())
            }
            Err(TrySendError::Failed(error)) => Err(error),
            Err(TrySendError::Full(mut unsent)) => self.finish_answer(&mut unsent).await,
        }
    }

    /// Continues an answer that found no room.
    ///
    /// Safe to cancel: `unsent` holds the receivers that are left.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub async fn finish_answer(&self, unsent: &mut Unsent) -> Result<(), SendError> {
        let Unsent { message, left } = unsent;
        let message = &*message;
        for receiver in message.receivers.iter().take(left.end).skip(left.start) {
            let sealed = match self.must_seal(message, &receiver.name) {
                true => Some(self.sealed(message, &receiver.name, None).await?),
                false => None,
            };
            let outgoing = match &sealed {
                Some(sealed) => Outgoing::sealed(sealed.bytes()),
                None => Outgoing::new(message),
            };
            let parcel = match &sealed {
                Some(sealed) => self.sealed_parcel(sealed, &outgoing),
                None => self.parcel(message, &outgoing),
            };
            match self.attempt(&parcel, &receiver.name, false) {
                Ok(()) => {
                    left.start += 1;
                    continue;
                }
                Err(NotAccepted::Failed(error)) => return Err(error),
                Err(NotAccepted::Full(..)) => {}
            }
            let (route, begun) = (self.bus.route(&receiver.name), Instant::now());
            let patience = route.patience.lock().left(begun.into_std());
            let mut delivered = None;
            if let Some(patience) = patience {
                let delivery = self.deliver(&parcel, &receiver.name);
                delivered = timeout(patience, delivery).await.ok();
                let (since, now) = (begun.into_std(), Instant::now().into_std());
                route.patience.lock().spend(since, now);
            }
            delivered.unwrap_or_else(|| {
                Err(SendError::AnswerNotTaken {
                    sender: self.agent.name().clone(),
                    receiver: receiver.name.clone(),
                })
            })?;
            left.start += 1;
        }
        Ok(())
    }
}
