//! Receiving on one connection to the broker after another, until the owner of the queue leaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_bus::{Bus, ExplainedRefusal, sleep_until};
use tokio::time::{sleep, timeout};

use crate::client::Receiving;
use crate::config::BrokerConfig;
use crate::deliveries::{ArrivingDelivery, Broken, Delivered, Deliveries};
use crate::envelope::BrokerDelivery;
use crate::incoming::Sorted;
use crate::stamp::OrderStamp;
use crate::wire::Sends;

/// How long it may take to end a connection, and before that, to acknowledge what comes again.
const CLOSING: Duration = Duration::from_secs(1);

/// A delivery that is not taken.
pub(crate) struct RefusedDelivery {
    pub(crate) tried_by: String,
    pub(crate) proved: Option<String>,
    pub(crate) refused: ExplainedRefusal,
}

/// Takes the deliveries of one owner. It outlives connections.
pub(crate) trait Inbox: Send {
    /// The owner's link.
    type Link: Sends;
    /// The content of a delivery that was checked.
    type Content: Send;

    /// The owner's link.
    fn link(&self) -> &Arc<Self::Link>;

    /// The owner's name in the log of refusals.
    fn receiver(&self) -> String;

    /// The deliveries to the owner.
    fn deliveries(&mut self) -> &mut Deliveries<Self::Content>;

    /// Finds the sender of a delivery, and its place in that sender's order.
    ///
    /// # Errors
    /// If the delivery must not be taken.
    fn check(
        &mut self,
        bus: &Bus,
        delivery: BrokerDelivery,
    ) -> Result<(Arc<str>, OrderStamp, Self::Content), RefusedDelivery>;

    /// Whether the owner has an earlier copy that it has not taken.
    fn is_here(&self, content: &Self::Content) -> bool {
        let _ = content;
        false
    }

    /// Hands over the next delivery.
    ///
    /// # Errors
    /// If the delivery must not be taken after those before it.
    fn hand_over(&mut self, delivered: Delivered<Self::Content>) -> Result<(), RefusedDelivery>;

    /// Notes a copy that is not needed, because another one was delivered or is kept.
    fn not_needed(&mut self, spare: &Delivered<Self::Content>) {
        self.deliveries().may_acknowledge(spare.tag);
    }

    /// How many deliveries, not yet noted by [`note_taken`](Self::note_taken), may be acknowledged.
    fn taken(&self) -> usize {
        0
    }

    /// Notes which deliveries may be acknowledged.
    fn note_taken(&mut self) {}

    /// Whether the owner has taken deliveries of former connections that come again and have not been acknowledged.
    fn expects_copies(&self) -> bool {
        false
    }

    /// Waits until [`taken`](Self::taken) or [`is_closed`](Self::is_closed) has changed.
    fn changed(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Whether later deliveries are not for this process.
    fn is_closed(&self) -> bool {
        false
    }

    /// Waits for the last deliveries that may be acknowledged.
    fn last_taken(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Receives on one connection, with at most `prefetch` deliveries unacknowledged, until the connection breaks. `Ok`: the link
/// has ended.
async fn serve(
    inbox: &mut impl Inbox,
    mut receiving: Box<dyn Receiving>,
    prefetch: u16,
) -> Result<(), Broken> {
    let link = inbox.link().clone();
    let wire = link.wire();
    wire.is_receiving.send_replace(true);
    inbox.deliveries().connected(prefetch, Instant::now());
    let mut ending = wire.ending.subscribe();
    let mut leaving = wire.leaving.subscribe();
    loop {
        // This check precedes the check of the mailbox: a leaving agent has closed its mailbox before, and all
        // messages it took must be acknowledged.
        let has_left = *ending.borrow() || *leaving.borrow();
        // A moving agent has closed its mailbox. Later messages are for its next process.
        let is_closed = inbox.is_closed();
        if is_closed {
            inbox.last_taken().await;
        }
        let is_over = has_left || is_closed;
        let now = Instant::now();
        let taken = inbox.taken();
        if is_over || inbox.deliveries().acks.is_due(taken, now) {
            inbox.note_taken();
            inbox.deliveries().acks.send(&mut *receiving, now)?;
        }
        if is_over {
            acknowledge_copies(inbox, &mut *receiving).await?;
            receiving.close("the owner of the queue has left").await;
            return Ok(());
        }
        if let Some(relieved) = inbox.deliveries().relieved() {
            let closing = receiving.close("another connection receives more at a time");
            let _ = timeout(CLOSING, closing).await;
            return Err(relieved);
        }
        inbox.deliveries().look(now);
        let is_waiting = inbox.deliveries().acks.is_waiting() || inbox.taken() > 0;
        let acknowledge_at = inbox.deliveries().acks.due().filter(|_| is_waiting);
        let deadline = inbox.deliveries().deadline();
        tokio::select! {
            together = receiving.next() => for delivery in together? {
                delivered(inbox, delivery, &mut *receiving)?;
            },
            // The agent's own work on the messages goes first.
            () = inbox.changed() => tokio::task::yield_now().await,
            () = sleep_until(acknowledge_at) => {}
            () = sleep_until(deadline) => {
                let overdue = inbox.deliveries().overdue(Instant::now());
                hand_over(inbox, overdue, &mut *receiving)?;
            }
            _ = ending.changed() => {}
            _ = leaving.changed() => {}
        }
    }
}

/// Acknowledges the deliveries that come again and that the owner, which leaves, has taken. Otherwise they would be for
/// its next process.
async fn acknowledge_copies(
    inbox: &mut impl Inbox,
    receiving: &mut dyn Receiving,
) -> Result<(), Broken> {
    let deadline = Instant::now() + CLOSING;
    while inbox.expects_copies() {
        tokio::select! {
            together = receiving.next() => for delivery in together? {
                delivered(inbox, delivery, receiving)?;
            },
            () = sleep_until(Some(deadline)) => return Ok(()),
        }
        inbox.deliveries().acks.send(receiving, Instant::now())?;
    }
    Ok(())
}

fn delivered(
    inbox: &mut impl Inbox,
    delivery: BrokerDelivery,
    receiving: &mut dyn Receiving,
) -> Result<(), Broken> {
    let (number, bytes) = (delivery.tag, delivery.bytes());
    // Without a bus the process ends, and the broker keeps the delivery.
    let Some(bus) = inbox.link().wire().bus().upgrade() else {
        return Ok(());
    };
    let (sender, stamp, content) = match inbox.check(&bus, delivery) {
        Ok(checked) => checked,
        Err(refused) => {
            note(&bus, inbox.receiver(), refused);
            return Ok(receiving.reject(number)?);
        }
    };
    if inbox.deliveries().is_full() {
        inbox.note_taken();
    }
    let arrival = ArrivingDelivery {
        number,
        bytes,
        is_here: inbox.is_here(&content),
        content,
    };
    let deliveries = inbox.deliveries();
    let Sorted { next, spare } = deliveries.arrived(&sender, stamp, arrival, Instant::now())?;
    if let Some(spare) = spare {
        inbox.not_needed(&spare);
    }
    hand_over(inbox, next, receiving)
}

/// Hands over deliveries, and rejects those that are not taken. All are handed over, although the connection may break:
/// they count as delivered.
fn hand_over<I: Inbox>(
    inbox: &mut I,
    next: Vec<Delivered<I::Content>>,
    receiving: &mut dyn Receiving,
) -> Result<(), Broken> {
    let mut result = Ok(());
    for delivered in next {
        let tag = delivered.tag;
        if let Err(refused) = inbox.hand_over(delivered) {
            if let Some(bus) = inbox.link().wire().bus().upgrade() {
                note(&bus, inbox.receiver(), refused);
            }
            if let Some(number) = inbox.deliveries().rejected(tag)
                && result.is_ok()
            {
                result = receiving.reject(number);
            }
        }
    }
    Ok(result?)
}

/// Notes a delivery that is not taken.
fn note(bus: &Bus, receiver: String, refused: RefusedDelivery) {
    let RefusedDelivery {
        tried_by,
        proved,
        refused: ExplainedRefusal {
            reason,
            explanation,
        },
    } = refused;
    bus.refused(&tried_by, proved, Some(&receiver), reason, explanation);
}

/// The pause before the next connection. `is_same`: the next one is likely to end as the last one did, until the broker
/// notices that an earlier connection is dead, or the owner takes something.
fn pause(config: &BrokerConfig, is_same: bool) -> Duration {
    match is_same {
        false => config.redial.0,
        true => config.redial.1.min(config.reorder_time / 8),
    }
}

/// Receives until the owner leaves.
pub(crate) async fn receive(mut inbox: impl Inbox) {
    let link = inbox.link().clone();
    let wire = link.wire();
    let mut leaving = wire.leaving.subscribe();
    let usual = wire.config().prefetch;
    let mut prefetch = usual;
    while !wire.has_left() {
        let connecting = wire.connect(
            || link.owner(),
            |client, address, owner| client.open_receiving(address, owner, prefetch),
            |_| {},
        );
        let receiving = tokio::select! {
            receiving = connecting => receiving,
            _ = leaving.wait_for(|leaving| *leaving) => return,
        };
        let Some(receiving) = receiving else {
            return;
        };
        let result = serve(&mut inbox, receiving, prefetch).await;
        wire.is_receiving.send_replace(false);
        let is_by_choice = result.as_ref().err().is_some_and(Broken::is_by_choice);
        inbox
            .deliveries()
            .disconnected(is_by_choice, Instant::now());
        // Deliveries that the owner has taken meanwhile are acknowledged when they come again.
        inbox.note_taken();
        match result {
            Ok(()) => return,
            Err(error) => {
                let last = prefetch;
                prefetch = error.next_prefetch(last, usual);
                tracing::debug!(who = %link.owner().name, %error, prefetch, "the connection to the broker for receiving ended");
                let is_same = is_by_choice && prefetch == last;
                tokio::select! {
                    () = sleep(pause(wire.config(), is_same)) => {}
                    _ = leaving.wait_for(|leaving| *leaving) => {}
                }
            }
        }
    }
}
