//! The common part of the links of agents and of processes: their connections to the broker, and the messages that wait
//! for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{BoxFuture, WeakBus};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::authorship::Written;
use crate::broker::Broker;
use crate::client::{BrokerFailure, Client, Owner, Sending};
use crate::config::{BrokerConfig, BrokerPromise};
use crate::envelope::BrokerEnvelope;
use crate::unconfirmed::{Outcome, Publication, Room, Unconfirmed};

/// The time between two log lines about a broker that cannot be reached.
const TOLD: Duration = Duration::from_secs(60);

/// The common part of the links of agents and of processes. `T` is the note on each message sent.
pub(crate) struct Wire<T> {
    pub(crate) broker: Arc<Broker>,
    pub(crate) unconfirmed: Mutex<Unconfirmed<T>>,
    /// Woken when a message waits to be published, or the end was announced.
    pub(crate) news: Notify,
    /// The connection that is published on, if there is one.
    pub(crate) open: Mutex<Option<Open>>,
    /// Whether the sending task runs. The flag changes under the lock of `unconfirmed`.
    pub(crate) sends: AtomicBool,
    /// The reason why the broker takes no messages now.
    pub(crate) blocked: Mutex<Option<String>>,
    pub(crate) is_receiving: watch::Sender<bool>,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    /// Whether the owner has left: receive no more, and end when all is confirmed.
    pub(crate) leaving: watch::Sender<bool>,
    /// Whether to end now.
    pub(crate) ending: watch::Sender<bool>,
}

/// A link, for the task that sends.
pub(crate) trait Sends: Send + Sync + 'static {
    /// The note on each message.
    type Note: Clone + Send + 'static;

    fn wire(&self) -> &Wire<Self::Note>;

    /// The agent or the process in whose name connections are made, with the present certificate.
    fn owner(&self) -> Owner;

    /// The message's author, if it is signed.
    fn written(note: &Self::Note) -> Option<&Written>;

    /// The envelope in which a message is published.
    fn envelope(&self, publication: Publication<Self::Note>) -> BrokerEnvelope;

    /// Notes that the broker has the message of that order.
    fn confirmed(&self, order: u64);

    /// Tells the bus about undelivered messages.
    fn tell(&self, outcomes: Vec<Outcome<Self::Note>>);

    /// Lets waiting writers go on, if there is room.
    fn open_gate(&self);
}

/// A connection that messages can be published on.
pub(crate) struct Open {
    pub(crate) sending: Box<dyn Sending>,
    /// The time to ask the broker again after it refused a message.
    pub(crate) again_at: Option<Instant>,
    /// Whether the task will look for answers.
    pub(crate) is_watched: bool,
}

impl<T: Clone> Wire<T> {
    pub(crate) fn new(broker: Arc<Broker>, epoch: u64) -> Self {
        let room = Room {
            messages: broker.config.unconfirmed_messages,
            bytes: broker.config.unconfirmed_bytes,
        };
        let unconfirmed = Unconfirmed::new(epoch, room);
        let unconfirmed = match broker.config.promise {
            BrokerPromise::Durable => unconfirmed,
            BrokerPromise::Transient => unconfirmed.at_risk(),
        };
        Self {
            unconfirmed: Mutex::new(unconfirmed),
            broker,
            news: Notify::new(),
            open: Mutex::new(None),
            sends: AtomicBool::new(false),
            blocked: Mutex::new(None),
            is_receiving: watch::Sender::new(false),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            leaving: watch::Sender::new(false),
            ending: watch::Sender::new(false),
        }
    }

    pub(crate) fn config(&self) -> &BrokerConfig {
        &self.broker.config
    }

    pub(crate) fn bus(&self) -> &WeakBus {
        &self.broker.bus
    }

    /// Whether all messages of the owner are settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.unconfirmed.lock().is_settled()
    }

    /// Whether the sending task ends now. A message accepted afterwards starts another task.
    pub(crate) fn ends_sending(&self) -> bool {
        if *self.ending.borrow() {
            return true;
        }
        let unconfirmed = self.unconfirmed.lock();
        let ends = self.has_left() && unconfirmed.is_settled();
        if ends {
            self.sends.store(false, Ordering::Release);
        }
        ends
    }

    pub(crate) fn has_left(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Connects to any of the brokers. Tries until it succeeds or the link ends (`None`). `failed` hears of every
    /// failure.
    pub(crate) async fn connect<C>(
        &self,
        owner: impl Fn() -> Owner,
        open: impl for<'a> Fn(
            &'a dyn Client,
            &'a str,
            &'a Owner,
        ) -> BoxFuture<'a, Result<C, BrokerFailure>>,
        mut failed: impl FnMut(&BrokerFailure),
    ) -> Option<C> {
        let config = self.config();
        let (mut pause, longest) = config.redial;
        let mut ending = self.ending.subscribe();
        let mut attempt = self.broker.next_address.fetch_add(1, Ordering::Relaxed);
        let mut told = Instant::now();
        let mut failures = 0u32;
        loop {
            let address = config
                .addresses
                .get(attempt % config.addresses.len().max(1))?;
            let owner = owner();
            let opening = open(&*self.broker.client, address, &owner);
            let opened = tokio::select! {
                opened = timeout(config.connect_time, opening) => opened,
                _ = ending.wait_for(|ending| *ending) => return None,
            };
            let error = match opened {
                Ok(Ok(opened)) => {
                    if failures > 0 {
                        tracing::info!(who = %owner.name, address, "the broker is there again");
                    }
                    return Some(opened);
                }
                Ok(Err(error)) => error,
                Err(_) => BrokerFailure::new(format!(
                    "the broker {address} does not answer within {} s: is it running, and reachable from here?",
                    config.connect_time.as_secs()
                )),
            };
            failures += 1;
            if failures == 1 || told.elapsed() > TOLD {
                tracing::warn!(who = %owner.name, %error, "no connection to the broker; trying again");
                told = Instant::now();
            }
            failed(&error);
            attempt = attempt.wrapping_add(1);
            // Each broker of the cluster is tried before there is a pause.
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
