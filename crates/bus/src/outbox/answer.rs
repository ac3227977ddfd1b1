//! Answers: an agent that asks must make room for the answers, and does not hold up the agents that answer.

use std::sync::Arc;
use std::time::Duration;

use sealbus_fipa::AclMessage;
use tokio::time::{Instant, timeout};

use super::{NotAccepted, Outbox};
use crate::error::{SendError, TrySendError, Unsent};
use crate::transport::Outgoing;

/// How long the agents of a process wait for one receiver of answers.
const MOST: Duration = Duration::from_secs(10);
/// The waiting time regains a tenth of the time that passes.
const REGAINED: u32 = 10;
/// The shortest wait. Many short ones would be one long wait.
const LEAST: Duration = Duration::from_secs(1);

/// The time left for answers to wait for one receiver.
#[derive(Debug)]
pub(crate) struct Patience {
    spent: Duration,
    at: Instant,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            spent: Duration::ZERO,
            at: Instant::now(),
        }
    }
}

impl Patience {
    /// How long an answer may wait now, if it may wait at all.
    fn left(&mut self, now: Instant) -> Option<Duration> {
        let regained = now.saturating_duration_since(self.at) / REGAINED;
        self.spent = self.spent.saturating_sub(regained);
        self.at = now;
        let left = MOST.saturating_sub(self.spent);
        (left >= LEAST).then_some(left)
    }

    fn spend(&mut self, waited: Duration) {
        self.spent = self.spent.saturating_add(waited).min(MOST);
    }
}

impl Outbox {
    /// As [`send`](Self::send), for an answer. An agent that asks must make room for the answers. Answers of this
    /// process wait for one receiver for 10 seconds in all. The time to wait grows again by a tenth of the time that
    /// passes.
    ///
    /// # Errors
    /// [`SendError::AnswerNotTaken`] if the receiver makes no room meanwhile; otherwise as [`send`](Self::send).
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
            let patience = route.patience.lock().left(begun);
            let mut delivered = None;
            if let Some(patience) = patience {
                let delivery = self.deliver(&parcel, &receiver.name);
                delivered = timeout(patience, delivery).await.ok();
                route.patience.lock().spend(begun.elapsed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_without_room_costs_ten_seconds_and_a_tenth_of_the_time() {
        let begun = Instant::now();
        let (mut patience, mut now) = (Patience::default(), begun);
        let (mut waited, mut refused) = (Duration::ZERO, 0);
        while now < begun + Duration::from_secs(1000) {
            match patience.left(now) {
                Some(left) => {
                    now += left;
                    waited += left;
                    patience.spend(left);
                }
                None => {
                    now += Duration::from_millis(1);
                    refused += 1;
                }
            }
        }
        let seconds = waited.as_secs();
        assert!((100..=111).contains(&seconds), "{seconds} s");
        assert!(refused > 800_000);
    }
}
