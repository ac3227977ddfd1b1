//! Carriers of letters. Each mailbox with letters has one task, which ends when the mailbox is empty.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::UndeliverableReason;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::mailbox::{HANDED, KeptMailbox};
use super::{KeptLetters, Ways, Whereabouts, storage, waiting_message};
use sealbus_control::clock::now;
use sealbus_control::post::{DeliveredLetter, LetterMark, PostedLetter};
use sealbus_control::text::{LONGEST_EXPLANATION, excerpt};
use sealbus_control::{Blob, Fault, FaultCode};

/// The amount added to a letter's carry count when it is reclaimed: it was sent to a node that does not answer, and now
/// goes to another one. The count makes every earlier copy the older one.
const RECLAIMED: u32 = 1 << 16;

/// Carries the letters of all mailboxes. This runs for ever.
pub async fn run(post: Arc<KeptLetters>, ways: Arc<dyn Ways>) {
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
        };
        carriers.spawn(carrier.run());
    }
}

pub(super) struct Carrier {
    pub(super) post: Arc<KeptLetters>,
    pub(super) ways: Arc<dyn Ways>,
    pub(super) mailbox: Arc<KeptMailbox>,
    /// The connection on which letters were handed over.
    connection: Option<u64>,
}

impl Carrier {
    async fn run(mut self) {
        loop {
            let pause = match self.step().await {
                Ok(pause) => pause,
                Err(fault) => {
                    if let Some(left_out) = self.post.admit_line(&self.mailbox.agent) {
                        let agent = &self.mailbox.agent;
                        tracing::warn!(agent, %fault, left_out, "persistent messages wait");
                    }
                    self.post.pace.look
                }
            };
            {
                let shelf = self.mailbox.shelf.lock();
                if shelf.is_empty() {
                    // A new letter is put in under the same lock, so its task finds that there is no carrier.
                    *self.mailbox.is_carried.lock() = false;
                    break;
                }
            }
            let _ = tokio::time::timeout(pause, self.mailbox.news.notified()).await;
        }
        let Self { post, mailbox, .. } = self;
        let runtime = Handle::current();
        let forgetting = tokio::task::spawn_blocking(move || {
            if let Err(error) = post.forget_unused(&mailbox, &runtime) {
                tracing::warn!(agent = mailbox.agent, %error, "an empty mailbox stays");
            }
        });
        // This fails only when the node ends.
        let _ = forgetting.await;
    }

    /// Does the work that is possible now. Returns how long there is nothing to do, unless there is news.
    async fn step(&mut self) -> Result<Duration, Fault> {
        let mailbox = self.mailbox.clone();
        // Expired letters whose senders cannot be told yet do not hold up others.
        let are_told = self.expire().await;
        let whereabouts = self.ways.whereabouts(&mailbox.agent);
        tracing::trace!(agent = mailbox.agent, ?whereabouts, "carrying");
        let process = match &whereabouts {
            Whereabouts::Here(process, _) => Some(process.as_str()),
            _ => None,
        };
        mailbox.shelf.lock().is_in(process);
        let pause = match whereabouts {
            Whereabouts::Here(process, connection) => self.hand_over(&process, connection).await?,
            Whereabouts::There(node) => self.carry(node).await?,
            Whereabouts::Away => {
                self.connection = None;
                self.until_the_next_moment()
            }
        };
        are_told.map(|()| pause)
    }

    /// Removes expired letters once their senders are told.
    async fn expire(&self) -> Result<(), Fault> {
        let mut told = Vec::new();
        let mut are_told = Ok(());
        let expired = self.mailbox.shelf.lock().expired(now());
        for number in expired {
            match self.post.expired(&self.mailbox, number).await {
                Ok(()) => told.push(number),
                Err(fault) => are_told = Err(fault),
            }
        }
        self.post.settled(&self.mailbox, &told).await?;
        are_told
    }

    fn until_the_next_moment(&self) -> Duration {
        let now = now();
        let next = self.mailbox.shelf.lock().next_moment(now);
        let look = self.post.pace.look;
        next.map_or(look, |next| Duration::from_millis(next - now).min(look))
    }

    async fn hand_over(&mut self, process: &str, connection: u64) -> Result<Duration, Fault> {
        let mailbox = self.mailbox.clone();
        if self.connection.replace(connection) != Some(connection) {
            mailbox.shelf.lock().resend();
        }
        loop {
            let next = mailbox.shelf.lock().to_hand_over(now());
            if next.is_empty() {
                *mailbox.held_up.lock() = None;
                return Ok(self.until_the_next_moment());
            }
            if self.note_handing(&next).await? {
                // The agent may have moved in the meantime.
                return Ok(Duration::ZERO);
            }
            let may_go = self.in_turn(&next, None).await?;
            let (hand_over, next) = {
                let mut shelf = mailbox.shelf.lock();
                let line = shelf.to_hand_over(now());
                let next = shelf.still_in_order(&line, &may_go);
                shelf.hand_over(&next)
            };
            if next.is_empty() {
                return Ok(self.post.pace.pause);
            }
            tracing::trace!(agent = mailbox.agent, process, ?next, "handing over");
            let handed = self.letters(hand_over, &next).await;
            if handed.is_err() {
                let mut shelf = mailbox.shelf.lock();
                for (number, _) in next {
                    shelf.was_not_handed(number);
                }
            }
            handed?;
        }
    }

    /// Notes on disk that these letters may be taken, before they are. If the node and the receiver's process end at the same
    /// time, the next process gets them marked as possibly taken. Returns whether there was something to write.
    async fn note_handing(&self, numbers: &[u64]) -> Result<bool, Fault> {
        let mailbox = &self.mailbox;
        let last = numbers.iter().max().copied();
        if mailbox.stream.cursor(HANDED) >= last {
            return Ok(false);
        }
        let written = {
            let mut shelf = mailbox.shelf.lock();
            let last_handed = shelf.note_handing(last.unwrap_or(0));
            mailbox.stream.set_cursor(HANDED, last_handed)
        };
        written.map_err(storage)?.await.map_err(storage)?;
        Ok(true)
    }

    async fn letters(&self, hand_over: u64, next: &[(u64, bool)]) -> Result<(), Fault> {
        let numbers: Vec<u64> = next.iter().map(|(number, _)| *number).collect();
        let opened = self.mailbox.open(&numbers).map_err(storage)?;
        let letters: Vec<DeliveredLetter> = {
            let shelf = self.mailbox.shelf.lock();
            let both = opened.iter().zip(next);
            both.filter_map(|((number, message), (_, again))| {
                let cover = &shelf.get(*number)?.cover;
                Some(DeliveredLetter {
                    number: *number,
                    hand_over,
                    again: *again,
                    posted: cover.posted,
                    expiry: cover.expiry,
                    receipt: cover.receipt,
                    waiting: waiting_message(message, cover),
                })
            })
            .collect()
        };
        self.ways.deliver(&self.mailbox.agent, letters).await
    }

    /// Carries letters to the agent's node.
    async fn carry(&mut self, node: String) -> Result<Duration, Fault> {
        self.connection = None;
        let mailbox = self.mailbox.clone();
        let most_bytes = self.post.longest as u64;
        let next = mailbox.shelf.lock().to_forward(most_bytes);
        if next.is_empty() {
            return Ok(self.until_the_next_moment());
        }
        let noted = mailbox.lead_to(&node, now()).await;
        noted.map_err(storage)?;
        let may_go = self.in_turn(&next, Some(&node)).await?;
        let next = {
            let shelf = mailbox.shelf.lock();
            let line = shelf.to_forward(most_bytes);
            shelf.still_in_order(&line, &may_go)
        };
        if next.is_empty() {
            return Ok(self.post.pace.pause);
        }
        let opened = mailbox.open(&next).map_err(storage)?;
        let mut sent: Vec<(u64, LetterMark)> = Vec::with_capacity(opened.len());
        let mut letters = Vec::with_capacity(opened.len());
        {
            let shelf = mailbox.shelf.lock();
            for (number, message) in opened {
                let Some(kept) = shelf.get(number) else {
                    continue;
                };
                sent.push((number, kept.cover.mark()));
                let mut cover = kept.cover.clone();
                // Another node that does not answer may have this letter. Its copy must count as the older one.
                let is_reclaimed = self.is_in_doubt(number, &node);
                cover.again = shelf.may_be_taken(number);
                let hops = if is_reclaimed { RECLAIMED } else { 1 };
                cover.hops = cover.hops.saturating_add(hops);
                letters.push(PostedLetter {
                    cover,
                    message: Blob(message.to_vec()),
                });
            }
        }
        tracing::trace!(
            agent = mailbox.agent,
            node,
            ?sent,
            "carrying to another node"
        );
        {
            let mut trail = mailbox.trail.lock();
            let in_doubt = trail.in_doubt.entry(node.clone()).or_default();
            in_doubt.extend(sent.iter().map(|(number, _)| *number));
        }
        match self.ways.forward(&node, letters).await {
            Ok(refused) if refused.len() == sent.len() => {
                if let Some(in_doubt) = mailbox.trail.lock().in_doubt.get_mut(&node) {
                    for (number, _) in &sent {
                        in_doubt.remove(number);
                    }
                }
                self.forwarded(&sent, refused).await
            }
            Ok(_) => {
                let problem =
                    format!("{node} answered for other persistent messages than it was sent");
                Err(Fault::new(FaultCode::Internal, problem))
            }
            Err(fault) => {
                tracing::debug!(agent = mailbox.agent, node, %fault, "persistent messages could not be carried");
                *mailbox.held_up.lock() =
                    Some(format!("{node} does not take them: {}", fault.message));
                Ok(self.post.pace.pause)
            }
        }
    }

    /// Handles the answer of the other node, which has all letters except those it refused.
    async fn forwarded(
        &self,
        sent: &[(u64, LetterMark)],
        refused: Vec<Option<Fault>>,
    ) -> Result<Duration, Fault> {
        let mut gone = Vec::new();
        let mut bounced = Vec::new();
        let mut are_told = Ok(());
        let mut held_up = None;
        for ((number, mark), refused) in sent.iter().zip(refused) {
            match refused {
                None => gone.push((*number, *mark)),
                // The agent has moved on. This node will learn its new place soon.
                Some(fault) if fault.code == FaultCode::NotPlaced => {
                    held_up = Some(fault.message);
                    break;
                }
                // The order matters, so all later letters wait, too.
                Some(fault) if matches!(fault.code, FaultCode::Full | FaultCode::Storage) => {
                    tracing::debug!(agent = self.mailbox.agent, %fault, "persistent messages wait");
                    held_up = Some(fault.message);
                    break;
                }
                Some(fault) => {
                    let why = excerpt(&fault.to_string(), LONGEST_EXPLANATION);
                    let reason = UndeliverableReason::NotKept(why);
                    match self.post.bounce(&self.mailbox, *number, &reason).await {
                        Ok(()) => bounced.push(*number),
                        Err(fault) => are_told = Err(fault),
                    }
                }
            }
        }
        let waits = held_up.is_some();
        *self.mailbox.held_up.lock() = held_up;
        self.post.settled(&self.mailbox, &bounced).await?;
        self.post.carried(&self.mailbox, &gone).await?;
        are_told?;
        if !waits {
            // There may be more letters.
            self.mailbox.news.notify_one();
        }
        Ok(self.post.pace.pause)
    }

    /// Selects, from the letters that may go next, those without a predecessor elsewhere. `to` is the node that would
    /// receive them. Predecessors that are on that node, or went on from there, are ahead of them anyway.
    async fn in_turn(&self, numbers: &[u64], to: Option<&str>) -> Result<HashSet<u64>, Fault> {
        let all = || numbers.iter().copied().collect();
        let is_elsewhere = |node: &String| Some(node.as_str()) != to;
        if !self.mailbox.trail.lock().nodes.keys().any(is_elsewhere) {
            return Ok(all());
        }
        self.follow(numbers, to).await
    }
}
