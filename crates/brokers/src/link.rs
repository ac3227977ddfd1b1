//! A link to the broker: the part that senders use, shared with the two tasks that send and receive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{BoxFuture, LocalAgent, RefusalReason, Returned, UndeliverableReason, WeakBus};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::client::{BrokerFailure, Client, Owner};
use crate::config::BrokerConfig;
use crate::endpoint::Shared;
use crate::envelope::{Envelope, Kind, Receiver};
use crate::outgoing::{Outcome, Outgoing, Publication, Room};
use crate::publisher::Open;

/// The time between two log lines about a broker that cannot be reached.
const TOLD: Duration = Duration::from_secs(60);

/// The common part of the links of agents and of processes. `T` is the note on each message sent.
pub(crate) struct Wire<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outgoing: Mutex<Outgoing<T>>,
    /// Woken when a message waits to be published, or the end was announced.
    pub(crate) news: Notify,
    /// The connection that is published on, if there is one.
    pub(crate) open: Mutex<Option<Open>>,
    /// Whether the sending task runs. The flag changes under the lock of `outgoing`.
    pub(crate) sends: AtomicBool,
    /// Why the broker takes no messages now.
    pub(crate) blocked: Mutex<Option<String>>,
    pub(crate) is_receiving: watch::Sender<bool>,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    /// Whether the owner has left: receive no more, and end when all is confirmed.
    pub(crate) leaving: watch::Sender<bool>,
    /// End now.
    pub(crate) ending: watch::Sender<bool>,
}

/// A link as the task that sends needs it.
pub(crate) trait Sends: Send + Sync + 'static {
    /// The note on each message.
    type Note: Clone + Send + 'static;

    fn wire(&self) -> &Wire<Self::Note>;

    /// The agent or the process in whose name connections are made, with the present certificate.
    fn owner(&self) -> Owner;

    /// The envelope in which a message is published.
    fn envelope(&self, publication: Publication<Self::Note>) -> Envelope;

    /// The broker has the message of that order.
    fn confirmed(&self, order: u64);

    /// Tells the bus about undelivered messages.
    fn tell(&self, outcomes: Vec<Outcome<Self::Note>>);

    /// Lets those who wait go on, if there is room.
    fn open_gate(&self);
}

/// One agent's link to the broker.
pub(crate) struct Link {
    pub(crate) agent: Arc<LocalAgent>,
    pub(crate) wire: Wire<()>,
    /// Messages were taken out of the mailbox, by receipt.
    pub(crate) taken: Mutex<Vec<u64>>,
    pub(crate) taken_news: Notify,
    /// Why it sends nothing more, if it was revoked.
    pub(crate) revocation: OnceLock<UndeliverableReason>,
}

impl Link {
    pub(crate) fn new(agent: Arc<LocalAgent>, shared: Arc<Shared>, epoch: u64) -> Arc<Self> {
        Arc::new(Self {
            agent,
            wire: Wire::new(shared, epoch),
            taken: Mutex::default(),
            taken_news: Notify::new(),
            revocation: OnceLock::new(),
        })
    }

    /// The agent was revoked. Its messages that the broker does not have come back, and its connections end.
    pub(crate) fn revoked(&self, explanation: &str) {
        let reason = UndeliverableReason::Refused {
            reason: RefusalReason::Revoked,
            explanation: explanation.to_owned(),
        };
        if self.revocation.set(reason.clone()).is_err() {
            return;
        }
        let name = self.agent.name();
        if let Some(bus) = self.wire.bus().upgrade() {
            let text = explanation.to_owned();
            bus.refused(name, None, None, RefusalReason::Revoked, text);
        }
        let lost = self
            .wire
            .outgoing
            .lock()
            .give_up(Duration::ZERO, Instant::now(), &reason);
        self.tell(lost);
        self.wire.ending.send_replace(true);
        self.agent.gate().open_all();
    }
}

impl Sends for Link {
    type Note = ();

    fn wire(&self) -> &Wire<()> {
        &self.wire
    }

    fn owner(&self) -> Owner {
        Owner {
            name: self.agent.name().clone(),
            queue: Receiver::Agent(self.agent.name().clone()),
            credential: self.agent.credential(),
        }
    }

    fn envelope(&self, publication: Publication<()>) -> Envelope {
        Envelope {
            to: Receiver::Agent(publication.receiver),
            stamp: publication.stamp,
            kind: Kind::Message,
            process: None,
            author: None,
            proof: None,
            life: self.wire.config().message_life,
            payload: publication.payload,
        }
    }

    fn confirmed(&self, _: u64) {}

    fn tell(&self, outcomes: Vec<Outcome<()>>) {
        let Some(bus) = self.wire.bus().upgrade() else {
            return;
        };
        let sender = self.agent.name();
        for outcome in outcomes {
            match outcome {
                Outcome::Returned { receiver, messages } => {
                    let returned = |((), payload)| Returned {
                        sender: sender.clone(),
                        payload,
                    };
                    let messages = messages.into_iter().map(returned).collect();
                    // The directory may know the agent's place while its queue is not there, or no longer.
                    bus.returned(&receiver, messages, true, || {
                        self.wire.outgoing.lock().settled(&receiver);
                    });
                }
                Outcome::Undeliverable {
                    receiver,
                    payload,
                    reason,
                    ..
                } => bus.undeliverable(sender, &receiver, &payload, &reason),
            }
        }
    }

    fn open_gate(&self) {
        if self.wire.outgoing.lock().has_room() {
            self.agent.gate().open();
        }
    }
}

impl<T: Clone> Wire<T> {
    pub(crate) fn new(shared: Arc<Shared>, epoch: u64) -> Self {
        let room = Room {
            messages: shared.config.unconfirmed_messages,
            bytes: shared.config.unconfirmed_bytes,
        };
        Self {
            outgoing: Mutex::new(Outgoing::new(epoch, room)),
            shared,
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
        &self.shared.config
    }

    pub(crate) fn bus(&self) -> &WeakBus {
        &self.shared.bus
    }

    /// Whether all messages of the owner are settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.outgoing.lock().is_settled()
    }

    /// Whether the sending task ends now. A message accepted afterwards starts another task.
    pub(crate) fn ends_sending(&self) -> bool {
        if *self.ending.borrow() {
            return true;
        }
        let outgoing = self.outgoing.lock();
        let ends = self.has_left() && outgoing.is_settled();
        if ends {
            self.sends.store(false, Ordering::Release);
        }
        ends
    }

    pub(crate) fn has_left(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Connects to any of the brokers. Tries again and again until it succeeds or the link ends (`None`). `failed` is
    /// told of every failure.
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
        let mut attempt = self.shared.next_broker.fetch_add(1, Ordering::Relaxed);
        let mut told = Instant::now();
        let mut failures = 0u32;
        loop {
            let address = config
                .addresses
                .get(attempt % config.addresses.len().max(1))?;
            let owner = owner();
            let opening = open(&*self.shared.client, address, &owner);
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
