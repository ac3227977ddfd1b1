//! Publishes the messages of one agent or one process. The sender's own thread publishes a message if it can. A task
//! connects, takes the broker's answers, and publishes the rest.

use std::future::poll_fn;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sealbus_bus::{UndeliverableReason, sleep_until};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::authorship;
use crate::client::{Answer, BrokerFailure, Condition, Sending};
use crate::wire::{Open, Sends};

/// The pause before a message that the broker refused is published again.
const AGAIN: Duration = Duration::from_millis(50);
/// The pause between checks for messages that have waited too long.
const LOOK: Duration = Duration::from_secs(1);
/// Messages published before answers are looked at.
const AT_ONCE: usize = 64;
/// The pause between checks for answers that no sender waits for. A wake-up for each answer costs as much as sending a
/// message.
const COLLECT: Duration = Duration::from_millis(5);
/// How long the broker may leave a message without an answer before another connection is tried. In a cluster, a
/// connection may go on asking a broker that has died, although another broker has taken its place.
const UNANSWERED: Duration = Duration::from_secs(5);
/// How long the end of such a connection may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Sends until the agent has left and all messages are confirmed.
pub(crate) async fn run<L: Sends>(link: Arc<L>) {
    let wire = link.wire();
    let mut ending = link.wire().ending.subscribe();
    loop {
        // Without messages, no connection is needed, unless the broker may have lost some.
        loop {
            if link.wire().ends_sending() {
                return;
            }
            if link.wire().unconfirmed.lock().needs_connection() {
                break;
            }
            tokio::select! {
                () = link.wire().news.notified() => {}
                _ = ending.changed() => {}
            }
        }
        let connecting = wire.connect(
            || link.owner(),
            |client, address, owner| client.open_sending(address, owner),
            |error| give_up(&*link, &error.to_string()),
        );
        let Some(sending) = connecting.await else {
            return;
        };
        if sending.may_have_lost() {
            wire.unconfirmed.lock().may_have_lost(Instant::now());
        }
        let result = serve(&*link, sending).await;
        *link.wire().open.lock() = None;
        let why = match result {
            // Something may have been accepted meanwhile.
            Ok(()) => continue,
            Err(error) => error.to_string(),
        };
        tracing::debug!(who = %link.owner().name, why, "the connection to the broker for sending broke");
        *link.wire().blocked.lock() = None;
        {
            let mut unconfirmed = link.wire().unconfirmed.lock();
            unconfirmed.expire(Instant::now());
            unconfirmed.disconnected();
        }
        give_up(&*link, &why);
        // There may be room since the last answers.
        link.open_gate();
        sleep(link.wire().config().redial.0).await;
    }
}

fn give_up<L: Sends>(link: &L, why: &str) {
    give_up_after(link, link.wire().config().give_up, why);
}

/// Gives up everything that the broker has not confirmed.
pub(crate) fn give_up_at_once<L: Sends>(link: &L, why: &str) {
    link.wire().unconfirmed.lock().disconnected();
    give_up_after(link, Duration::ZERO, why);
}

fn give_up_after<L: Sends>(link: &L, patience: Duration, why: &str) {
    let reason = UndeliverableReason::ProcessUnreachable(format!("by the broker: {why}"));
    let outcomes = link
        .wire()
        .unconfirmed
        .lock()
        .give_up(patience, Instant::now(), &reason);
    if !outcomes.is_empty() {
        link.tell(outcomes);
        link.open_gate();
    }
}

/// Publishes waiting messages, as far as that is possible without the task. Otherwise tells the task.
pub(crate) fn publish<L: Sends>(link: &L) {
    let wire = link.wire();
    let mut open = wire.open.lock();
    let is_free = |open: &&mut Open| open.again_at.is_none() && wire.blocked.lock().is_none();
    let Some(open) = open.as_mut().filter(is_free) else {
        return wire.news.notify_one();
    };
    publish_some(open, link);
    let unconfirmed = wire.unconfirmed.lock();
    if !open.is_watched || unconfirmed.needs_answers() || unconfirmed.is_waiting() {
        open.is_watched = true;
        wire.news.notify_one();
    }
}

/// Publishes some of the waiting messages, signed together where they are signed.
fn publish_some<L: Sends>(open: &mut Open, link: &L) {
    let publications: Vec<_> = {
        let mut unconfirmed = link.wire().unconfirmed.lock();
        iter::from_fn(|| unconfirmed.publish())
            .take(AT_ONCE)
            .collect()
    };
    let written = publications.iter().map(|it| &it.note);
    authorship::sign(written.filter_map(L::written));
    for publication in publications {
        let order = publication.order;
        open.sending.publish(order, link.envelope(publication));
    }
}

struct Publisher<'a, L> {
    link: &'a L,
    /// The time until which the task takes answers only between other work. Without a time, the task waits for the next
    /// answer.
    collect_at: Option<Instant>,
    /// Whether answers have come that the senders that wait for room do not know yet.
    is_freed: bool,
    /// The message that has waited longest for an answer, and the time since which it has been the oldest.
    unanswered: Option<(u64, Instant)>,
    /// Whether the broker keeps refusing on this connection, or leaves a message without an answer.
    is_stuck: bool,
}

/// Sends on one connection until the connection breaks. `Ok`: the link has ended.
async fn serve<L: Sends>(link: &L, sending: Box<dyn Sending>) -> Result<(), BrokerFailure> {
    *link.wire().open.lock() = Some(Open {
        sending,
        again_at: None,
        is_watched: true,
    });
    let mut publisher = Publisher {
        link,
        collect_at: None,
        is_freed: false,
        unanswered: None,
        is_stuck: false,
    };
    let mut ending = link.wire().ending.subscribe();
    let mut leaving = link.wire().leaving.subscribe();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if *ending.borrow() || (link.wire().has_left() && link.wire().is_settled()) {
            close(link, "the agent has left").await;
            return Ok(());
        }
        if publisher.is_stuck {
            tracing::info!(who = %link.owner().name, "the broker refuses messages or does not answer; trying a new connection");
            close(link, "to try another one").await;
            return Err(BrokerFailure::new(
                "it refuses messages or leaves them without an answer",
            ));
        }
        while let Some(condition) = next_condition(link).now_or_never() {
            note(link, condition?);
        }
        let may_publish = link.wire().blocked.lock().is_none();
        let again_at = publisher.publish_some(may_publish);
        publisher.take_ready()?;
        if may_publish && again_at.is_none() && link.wire().unconfirmed.lock().is_waiting() {
            tokio::task::yield_now().await;
            continue;
        }
        let is_urgent = link.wire().has_left() || link.wire().unconfirmed.lock().needs_answers();
        let collect_at = publisher.collect_at.filter(|_| !is_urgent);
        tokio::select! {
            answer = publisher.next_answer(), if collect_at.is_none() => publisher.answered(answer?),
            () = sleep_until(collect_at) => publisher.collect_at = None,
            () = link.wire().news.notified() => publisher.expect_answers(),
            condition = next_condition(link) => note(link, condition?),
            () = sleep_until(again_at) => publisher.try_again(),
            _ = look.tick() => {
                link.wire().unconfirmed.lock().expire(Instant::now());
                if !link.wire().is_settled() {
                    give_up_late(link);
                    publisher.look_for_answers();
                }
            }
            _ = ending.changed() => {}
            _ = leaving.changed() => {}
        }
    }
}

/// Ends the connection. A broker that does not answer may not answer this either.
async fn close<L: Sends>(link: &L, why: &'static str) {
    let open = link.wire().open.lock().take();
    if let Some(mut open) = open {
        let _ = timeout(CLOSING, open.sending.close(why)).await;
    }
}

/// The next change of the broker's condition.
async fn next_condition<L: Sends>(link: &L) -> Result<Condition, BrokerFailure> {
    poll_fn(|context| match link.wire().open.lock().as_mut() {
        Some(open) => open.sending.poll_condition(context),
        None => Poll::Pending,
    })
    .await
}

fn note<L: Sends>(link: &L, condition: Condition) {
    let blocked = match condition {
        Condition::Blocked(reason) => {
            tracing::warn!(who = %link.owner().name, reason,
                "the broker takes no messages now; senders wait. Free memory or disk on the broker");
            Some(reason)
        }
        Condition::Unblocked => {
            tracing::info!(who = %link.owner().name, "the broker takes messages again");
            None
        }
    };
    *link.wire().blocked.lock() = blocked;
}

/// Gives up messages that have waited for the broker for too long.
fn give_up_late<L: Sends>(link: &L) {
    let reason = link.wire().blocked.lock().clone();
    give_up(
        link,
        reason.as_deref().unwrap_or("it did not take the message"),
    );
}

impl<L: Sends> Publisher<'_, L> {
    /// Publishes some of the waiting messages. Returns when to try again, if the broker refused one.
    fn publish_some(&mut self, may_publish: bool) -> Option<Instant> {
        let mut open = self.link.wire().open.lock();
        let open = open.as_mut()?;
        if may_publish && open.again_at.is_none() {
            publish_some(open, self.link);
        }
        open.again_at
    }

    fn try_again(&mut self) {
        if let Some(open) = self.link.wire().open.lock().as_mut() {
            open.again_at = None;
        }
    }

    /// Notes that something was published. Its answer is taken with others, a little later.
    fn expect_answers(&mut self) {
        let at = || Instant::now() + COLLECT;
        self.collect_at.get_or_insert_with(at);
    }

    /// The next answer. Waits for ever if none is expected.
    async fn next_answer(&self) -> Result<(u64, Answer), BrokerFailure> {
        poll_fn(|context| match self.link.wire().open.lock().as_mut() {
            Some(open) => open.sending.poll_answer(context),
            None => Poll::Pending,
        })
        .await
    }

    /// Checks whether a message waits too long for its answer. A broker that is short of a resource answers no message.
    fn look_for_answers(&mut self) {
        let now = Instant::now();
        let is_blocked = self.link.wire().blocked.lock().is_some();
        let first = self.link.wire().unconfirmed.lock().first_published();
        self.unanswered = match (first, self.unanswered) {
            (Some(first), Some((known, since))) if first == known && !is_blocked => {
                self.is_stuck |= now.duration_since(since) >= UNANSWERED;
                Some((known, since))
            }
            (first, _) => first.map(|first| (first, now)),
        };
    }

    /// Takes the answers that are there. Others may soon come, and are taken together.
    fn take_ready(&mut self) -> Result<(), BrokerFailure> {
        while let Some(answer) = self.next_answer().now_or_never() {
            self.answered(answer?);
        }
        if let Some(open) = self.link.wire().open.lock().as_mut() {
            open.is_watched = self
                .link
                .wire()
                .unconfirmed
                .lock()
                .first_published()
                .is_some();
            if !open.is_watched {
                self.collect_at = None;
            } else if self.is_freed {
                self.collect_at = Some(Instant::now() + COLLECT);
            }
        }
        if mem::take(&mut self.is_freed) {
            self.link.open_gate();
        }
        Ok(())
    }

    fn answered(&mut self, (order, answer): (u64, Answer)) {
        let mut unconfirmed = self.link.wire().unconfirmed.lock();
        if !unconfirmed.is_published(order) {
            return;
        }
        let outcome = match answer {
            Answer::Taken => {
                self.link.wire().sent.fetch_add(1, Ordering::Relaxed);
                self.link.confirmed(order);
                unconfirmed.confirmed(order, Instant::now())
            }
            Answer::NoQueue => unconfirmed.unroutable(order),
            Answer::NotTaken => {
                self.is_stuck |= unconfirmed.refused(order);
                None
            }
        };
        drop(unconfirmed);
        if answer == Answer::NotTaken
            && let Some(open) = self.link.wire().open.lock().as_mut()
        {
            open.again_at = Some(Instant::now() + AGAIN);
        }
        if let Some(outcome) = outcome {
            self.link.tell(vec![outcome]);
        }
        self.is_freed = true;
    }
}
