//! The measure of the instrument itself: a TCP link that holds each message for a while, drops some and repeats some.
//! It reports what it did, and the report is compared with the instrument's figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealbus_bench_driver::{Answer, Payload, Prepare, monotonic_ns};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::drivers::raw::{self, Writer};
use crate::drivers::stage::{DriverError, Prepared, Received, System, failed};

#[derive(Deserialize)]
struct Settings {
    /// How long each message is held. Each round uses the next value.
    delays_us: Vec<u64>,
    /// One in this many messages of a sender is dropped, beginning with the first; 0 means none.
    drop_every: u32,
    /// One in this many messages that are not dropped comes twice.
    repeat_every: u32,
    /// The only round in which messages are dropped or repeated. Without this value it happens in all rounds.
    only_in: Option<u32>,
}

/// The work that was done on the messages.
#[derive(Default)]
struct Done {
    dropped: AtomicU64,
    repeated: AtomicU64,
    /// Time from sending to the arrival at the link's end.
    transit_ns: AtomicU64,
    /// Time from that arrival to delivery.
    held_ns: AtomicU64,
    handed_over: AtomicU64,
}

/// One side of the link.
pub(crate) struct Link(Arc<Done>);

impl System for Link {
    type Sender = Writer;

    async fn prepare(
        order: &Prepare,
        received: Arc<Received>,
    ) -> Result<Prepared<Self>, DriverError> {
        let settings: Settings = serde_json::from_value(order.system.clone()).map_err(failed)?;
        let settings = Arc::new(settings);
        let done = Arc::new(Done::default());
        let (size, keeping) = (order.scenario.size, done.clone());
        let (senders, here) = raw::open(order, received, move |received, receiver, content| {
            let task = Held {
                settings: settings.clone(),
                received: received.clone(),
                done: keeping.clone(),
                receiver,
                content: content.to_vec(),
                size,
            };
            task.begin();
        })
        .await?;
        Ok(Prepared {
            system: Self(done),
            senders,
            here,
            client: "a link of known faults".to_owned(),
        })
    }

    fn meet(&mut self, _there: &Value) -> Result<(), DriverError> {
        Ok(())
    }

    fn remark(&self, report: &mut Answer) {
        let Answer::Report { remarks, .. } = report else {
            return;
        };
        let get = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        *remarks = json!({
            "dropped": get(&self.0.dropped),
            "repeated": get(&self.0.repeated),
            "transit_ns": get(&self.0.transit_ns),
            "held_ns": get(&self.0.held_ns),
            "handed_over": get(&self.0.handed_over),
        });
    }

    async fn leave(self) {}
}

/// A message that has arrived.
struct Held {
    settings: Arc<Settings>,
    received: Arc<Received>,
    done: Arc<Done>,
    receiver: u32,
    content: Vec<u8>,
    size: usize,
}

impl Held {
    fn begin(self) {
        let arrived_ns = monotonic_ns();
        let Some(payload) = Payload::read(&self.content) else {
            return;
        };
        let is_faulty = self.settings.only_in.is_none_or(|it| it == payload.round);
        let is_one_in = |every: u32| is_faulty && every > 0 && payload.number.is_multiple_of(every);
        let delays = &self.settings.delays_us;
        let turn = payload.round as usize % delays.len().max(1);
        let delay_us = delays.get(turn).copied().unwrap_or(0);
        if is_one_in(self.settings.drop_every) {
            self.done.dropped.fetch_add(1, Ordering::Relaxed);
            self.received.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copies = 1 + u64::from(is_one_in(self.settings.repeat_every));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(delay_us)).await;
            let now_ns = monotonic_ns();
            let add = |sum: &AtomicU64, value| sum.fetch_add(value, Ordering::Relaxed);
            add(&self.done.transit_ns, arrived_ns - payload.time_ns);
            add(&self.done.held_ns, now_ns - arrived_ns);
            add(&self.done.handed_over, 1);
            add(&self.done.repeated, copies - 1);
            let mut tally = self.received.tally.lock();
            for _ in 0..copies {
                tally.count(self.receiver, &self.content, self.size, now_ns);
            }
        });
    }
}
