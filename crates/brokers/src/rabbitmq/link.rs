//! One agent's link to the broker: what its senders touch, shared with the two tasks that send and receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{LocalAgent, WeakBus};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::config::RabbitConfig;
use super::connect::{self, ConnectError, Opened, Purpose};
use super::endpoint::Shared;
use super::outgoing::{Outcome, Outgoing, Room};

/// One agent's link to the broker.
pub(crate) struct Link {
    pub(crate) agent: Arc<LocalAgent>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) outgoing: Mutex<Outgoing>,
    /// Something is to be published, or the end was announced.
    pub(crate) news: Notify,
    /// Messages were taken out of the mailbox, by receipt.
    pub(crate) taken: Mutex<Vec<u64>>,
    pub(crate) taken_news: Notify,
    /// Whether the task that sends was started.
    pub(crate) sends: AtomicBool,
    /// Why the broker takes no messages now.
    pub(crate) blocked: Mutex<Option<String>>,
    pub(crate) is_receiving: watch::Sender<bool>,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    /// The agent has left: receive no more, and end when all is confirmed.
    pub(crate) leaving: watch::Sender<bool>,
    /// End now.
    pub(crate) ending: watch::Sender<bool>,
}

impl Link {
    pub(crate) fn new(agent: Arc<LocalAgent>, shared: Arc<Shared>, epoch: u64) -> Arc<Self> {
        let room = Room {
            messages: shared.config.unconfirmed_messages,
            bytes: shared.config.unconfirmed_bytes,
        };
        Arc::new(Self {
            outgoing: Mutex::new(Outgoing::new(agent.name().clone(), epoch, room)),
            agent,
            shared,
            news: Notify::new(),
            taken: Mutex::default(),
            taken_news: Notify::new(),
            sends: AtomicBool::new(false),
            blocked: Mutex::new(None),
            is_receiving: watch::Sender::new(false),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            leaving: watch::Sender::new(false),
            ending: watch::Sender::new(false),
        })
    }

    pub(crate) fn config(&self) -> &RabbitConfig {
        &self.shared.config
    }

    pub(crate) fn bus(&self) -> &WeakBus {
        &self.shared.bus
    }

    /// Whether nothing more is to be done for the agent's own messages.
    pub(crate) fn is_settled(&self) -> bool {
        self.outgoing.lock().is_settled()
    }

    pub(crate) fn has_left(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Tells the bus what became of messages.
    pub(crate) fn tell(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        let mut outcomes = outcomes.into_iter().peekable();
        if outcomes.peek().is_none() {
            return;
        }
        let Some(bus) = self.bus().upgrade() else {
            return;
        };
        for outcome in outcomes {
            match outcome {
                Outcome::Returned { receiver, messages } => {
                    // The directory may know of its place while its queue is not there, or no longer.
                    bus.returned(&receiver, messages, true, || {
                        self.outgoing.lock().settled(&receiver);
                    });
                }
                Outcome::Undeliverable {
                    receiver,
                    payload,
                    reason,
                } => bus.undeliverable(self.agent.name(), &receiver, &payload, &reason),
            }
        }
    }

    /// Lets the agent's own sends go on, if there is room.
    pub(crate) fn open_gate(&self) {
        if self.outgoing.lock().has_room() {
            self.agent.gate().open();
        }
    }

    /// Connects to any of the brokers; again and again until it succeeds or the link ends (`None`). `failed` is told of
    /// every failure.
    pub(crate) async fn connect(
        &self,
        purpose: Purpose,
        mut failed: impl FnMut(&ConnectError),
    ) -> Option<Opened> {
        let config = self.config();
        let (mut pause, longest) = config.redial;
        let mut ending = self.ending.subscribe();
        let mut attempt = self.shared.next_broker.fetch_add(1, Ordering::Relaxed);
        let mut told = Instant::now();
        let mut failures = 0u32;
        loop {
            let address = config
                .addresses
                .get(attempt % config.addresses.len().max(1))?;
            let opened = tokio::select! {
                opened = connect::open(config, address, &self.agent, purpose) => opened,
                _ = ending.wait_for(|ending| *ending) => return None,
            };
            let error = match opened {
                Ok(opened) => {
                    if failures > 0 {
                        tracing::info!(agent = %self.agent.name(), address, "the broker is there again");
                    }
                    return Some(opened);
                }
                Err(error) => error,
            };
            failures += 1;
            // The first, and then one a minute.
            if failures == 1 || told.elapsed() > Duration::from_secs(60) {
                tracing::warn!(agent = %self.agent.name(), %error, "no connection to the broker; trying again");
                told = Instant::now();
            }
            failed(&error);
            attempt = attempt.wrapping_add(1);
            // Each of the cluster is tried before there is a pause.
            if (failures as usize).is_multiple_of(config.addresses.len()) {
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = ending.wait_for(|ending| *ending) => return None,
                }
                pause = (pause * 2).min(longest);
            }
        }
    }
}
