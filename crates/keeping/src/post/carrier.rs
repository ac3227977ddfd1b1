//! Carrying letters: for each mailbox with letters one task, which ends when there are none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::mailbox::{HANDED, Mailbox};
use super::{Forwarded, Post, Ways, Whereabouts, waiting_message};
use sealbus_bus::UndeliverableReason;
use sealbus_control::clock::now;
use sealbus_control::post::{DeliveredLetter, PostedLetter};
use sealbus_control::{Blob, Fault, FaultCode};

/// The pause before what did not work is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest time without looking whether anything has changed.
const LOOK: Duration = Duration::from_secs(2);
/// After so long without an answer a node that letters were carried to is given up for the one the agent is on.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Carries the letters of all mailboxes, for ever.
pub async fn run(post: Arc<Post>, ways: Arc<dyn Ways>) {
    let to_carry = post.to_carry.lock().take();
    let Some(mut to_carry) = to_carry else {
        return;
    };
    let mut carriers = JoinSet::new();
    while let Some(mailbox) = to_carry.recv().await {
        while carriers.try_join_next().is_some() {}
        let carrier = Carrier {
            post: post.clone(),
            ways: ways.clone(),
            mailbox,
            connection: None,
            route: None,
            silent_since: None,
        };
        carriers.spawn(carrier.run());
    }
}

struct Carrier {
    post: Arc<Post>,
    ways: Arc<dyn Ways>,
    mailbox: Arc<Mailbox>,
    /// The connection that letters were handed over on.
    connection: Option<u64>,
    /// The node that letters were carried to last: the next follow them, so that they stay in order.
    route: Option<String>,
    /// Since when that node has not answered.
    silent_since: Option<Instant>,
}

impl Carrier {
    async fn run(mut self) {
        loop {
            let pause = match self.step().await {
                Ok(pause) => pause,
                Err(fault) => {
                    tracing::warn!(agent = self.mailbox.agent, %fault, "letters wait");
                    LOOK
                }
            };
            {
                let shelf = self.mailbox.shelf.lock();
                if shelf.is_empty() {
                    // Under the lock that a newcomer is put in under, so that it finds no carrier.
                    *self.mailbox.is_carried.lock() = false;
                    return;
                }
            }
            let _ = tokio::time::timeout(pause, self.mailbox.news.notified()).await;
        }
    }

    /// Does what can be done now; says how long there is nothing to do unless there is news.
    async fn step(&mut self) -> Result<Duration, Fault> {
        let mailbox = self.mailbox.clone();
        let expired = mailbox.shelf.lock().expired(now());
        for number in &expired {
            self.post.expired(&mailbox, *number).await?;
        }
        self.post.remove(&mailbox, &expired).await?;
        let whereabouts = self.ways.whereabouts(&mailbox.agent);
        tracing::trace!(
            agent = mailbox.agent,
            ?whereabouts,
            route = self.route,
            "carrying"
        );
        match whereabouts {
            Whereabouts::Here(process, connection) => {
                self.route = None;
                *mailbox.held_up.lock() = None;
                self.hand_over(&process, connection).await?;
            }
            Whereabouts::There(node) => {
                mailbox.shelf.lock().is_in(None);
                return self.carry(Some(node)).await;
            }
            Whereabouts::Away => {
                mailbox.shelf.lock().is_in(None);
                return self.carry(None).await;
            }
        }
        Ok(self.until_the_next_moment())
    }

    fn until_the_next_moment(&self) -> Duration {
        let now = now();
        let next = self.mailbox.shelf.lock().next_moment(now);
        next.map_or(LOOK, |next| Duration::from_millis(next - now).min(LOOK))
    }

    async fn hand_over(&mut self, process: &str, connection: u64) -> Result<(), Fault> {
        let mailbox = self.mailbox.clone();
        {
            let mut shelf = mailbox.shelf.lock();
            shelf.is_in(Some(process));
            if self.connection.replace(connection) != Some(connection) {
                shelf.resend();
            }
        }
        loop {
            let next = mailbox.shelf.lock().hand_over(now());
            if next.is_empty() {
                return Ok(());
            }
            // Only a mark for later processes; the numbers are what counts.
            let handed = mailbox.shelf.lock().handed_before();
            let _ = mailbox.stream.set_cursor(HANDED, handed);
            let numbers: Vec<u64> = next.iter().map(|(number, _)| *number).collect();
            tracing::trace!(agent = mailbox.agent, process, ?numbers, "handing over");
            let handed = self.letters(&next, &numbers).await;
            if handed.is_err() {
                let mut shelf = mailbox.shelf.lock();
                for number in numbers {
                    shelf.was_left(number);
                }
            }
            handed?;
        }
    }

    async fn letters(&self, next: &[(u64, bool)], numbers: &[u64]) -> Result<(), Fault> {
        let opened = self.mailbox.open(numbers).map_err(super::storage)?;
        let letters: Vec<DeliveredLetter> = {
            let shelf = self.mailbox.shelf.lock();
            let both = opened.iter().zip(next);
            both.filter_map(|((number, message), (_, again))| {
                let cover = &shelf.get(*number)?.cover;
                Some(DeliveredLetter {
                    number: *number,
                    again: *again,
                    posted: cover.posted,
                    expiry: cover.expiry,
                    waiting: waiting_message(message, cover),
                })
            })
            .collect()
        };
        self.ways.deliver(&self.mailbox.agent, letters).await
    }

    /// Carries letters to the node that had them before, or else to the one the agent is on.
    async fn carry(&mut self, located: Option<String>) -> Result<Duration, Fault> {
        self.connection = None;
        let Some(node) = self.route.clone().or_else(|| located.clone()) else {
            return Ok(self.until_the_next_moment());
        };
        let mailbox = self.mailbox.clone();
        let numbers = mailbox.shelf.lock().to_forward(self.post.longest as u64);
        if numbers.is_empty() {
            return Ok(self.until_the_next_moment());
        }
        let opened = mailbox.open(&numbers).map_err(super::storage)?;
        let letters = {
            let shelf = mailbox.shelf.lock();
            let letters = opened.into_iter().filter_map(|(number, message)| {
                Some(PostedLetter {
                    cover: shelf.get(number)?.cover.clone(),
                    message: Blob(message.to_vec()),
                })
            });
            letters.collect()
        };
        tracing::trace!(
            agent = mailbox.agent,
            node,
            ?numbers,
            "carrying to another node"
        );
        match self.ways.forward(&node, letters).await {
            Ok(Forwarded::Kept(refused)) => {
                self.route = Some(node);
                self.silent_since = None;
                self.forwarded(&numbers, refused).await
            }
            Ok(Forwarded::Elsewhere) => {
                *mailbox.held_up.lock() = None;
                self.route = None;
                self.silent_since = None;
                Ok(PAUSE)
            }
            Err(fault) => {
                tracing::debug!(agent = mailbox.agent, node, %fault, "letters could not be carried");
                *mailbox.held_up.lock() =
                    Some(format!("{node} does not take them: {}", fault.message));
                let since = *self.silent_since.get_or_insert_with(Instant::now);
                if located.is_some()
                    && located.as_ref() != Some(&node)
                    && since.elapsed() > GIVEN_UP
                {
                    tracing::warn!(
                        agent = mailbox.agent,
                        node,
                        "letters that this node keeps for the agent may come after newer ones: it does not answer"
                    );
                    self.route = None;
                    self.silent_since = None;
                }
                Ok(PAUSE)
            }
        }
    }

    /// The other node has them, but for those it refuses.
    async fn forwarded(
        &self,
        numbers: &[u64],
        refused: Vec<Option<Fault>>,
    ) -> Result<Duration, Fault> {
        let mut gone = Vec::new();
        let mut pause = Duration::ZERO;
        let mut held_up = None;
        for (number, refused) in numbers.iter().zip(refused) {
            match refused {
                None => gone.push(*number),
                // In order: what comes after it waits as well.
                Some(fault) if matches!(fault.code, FaultCode::Full | FaultCode::Storage) => {
                    tracing::debug!(agent = self.mailbox.agent, %fault, "letters wait");
                    held_up = Some(fault.message);
                    pause = PAUSE;
                    break;
                }
                Some(fault) => {
                    let reason = UndeliverableReason::NotKept(fault.to_string());
                    self.post.bounce(&self.mailbox, *number, &reason).await?;
                    gone.push(*number);
                }
            }
        }
        *self.mailbox.held_up.lock() = held_up;
        self.post.remove(&self.mailbox, &gone).await?;
        if pause.is_zero() {
            // There may be more.
            self.mailbox.news.notify_one();
            pause = PAUSE;
        }
        Ok(pause)
    }
}
