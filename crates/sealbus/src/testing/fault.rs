//! Faults between the agents of a test bed.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::Outbox;
use sealbus_fipa::{AclMessage, Performative};
use sealbus_process::Interceptor;

use crate::clock::Clock;

/// A fault between the agents of a test bed; see [`TestBed::faults`](super::TestBed::faults).
///
/// ```
/// # async fn test(bed: &sealbus::testing::TestBed) {
/// use sealbus::testing::Fault;
///
/// let lost = bed.faults().add(Fault::drop().from("waiter").times(1));
/// // …
/// assert_eq!(lost.count(), 1);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Faults(Arc<Tamperer>);

#[derive(Debug)]
struct Tamperer {
    clock: Clock,
    rules: Mutex<Vec<Fault>>,
    silenced: Mutex<HashSet<String>>,
    chance: Mutex<Chance>,
}

/// A fault, and the messages that it affects. It knows agents by their local names.
#[derive(Clone)]
pub struct Fault {
    /// The delay of the message; `None` if it is lost.
    delay: Option<Duration>,
    from: Option<String>,
    to: Option<String>,
    performative: Option<Performative>,
    probability: f64,
    times: u64,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    count: AtomicU64,
    has_stopped: AtomicBool,
}

impl Fault {
    /// Loses messages.
    pub fn drop() -> Fault {
        Fault {
            delay: None,
            from: None,
            to: None,
            performative: None,
            probability: 1.0,
            times: u64::MAX,
            state: Arc::default(),
        }
    }

    /// Delivers messages later, so that others overtake them.
    pub fn delay(time: Duration) -> Fault {
        Fault {
            delay: Some(time),
            ..Fault::drop()
        }
    }

    /// Affects only messages from this agent.
    #[must_use]
    pub fn from(mut self, agent: impl Into<String>) -> Fault {
        self.from = Some(agent.into());
        self
    }

    /// Affects only messages to this agent.
    #[must_use]
    pub fn to(mut self, agent: impl Into<String>) -> Fault {
        self.to = Some(agent.into());
        self
    }

    /// Affects only messages with this act.
    #[must_use]
    pub fn performing(mut self, performative: Performative) -> Fault {
        self.performative = Some(performative);
        self
    }

    /// Affects a message with this probability, from 0 to 1.
    #[must_use]
    pub fn with_probability(mut self, probability: f64) -> Fault {
        self.probability = probability;
        self
    }

    /// Affects at most this many messages.
    #[must_use]
    pub fn times(mut self, most: u64) -> Fault {
        self.times = most;
        self
    }

    /// The number of messages that the fault has affected.
    pub fn count(&self) -> u64 {
        self.state.count.load(Ordering::Relaxed)
    }

    /// Ends the fault.
    pub fn stop(&self) {
        self.state.has_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the fault affects a message. If so, counts the message.
    fn befalls(&self, from: &str, to: &str, act: &Performative, chance: &mut Chance) -> bool {
        let is =
            |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|it| it == name);
        let befalls = !self.state.has_stopped.load(Ordering::Relaxed)
            && self.count() < self.times
            && is(&self.from, from)
            && is(&self.to, to)
            && self.performative.as_ref().is_none_or(|it| it == act)
            && (self.probability >= 1.0 || chance.next() < self.probability);
        if befalls {
            self.state.count.fetch_add(1, Ordering::Relaxed);
        }
        befalls
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("delay", &self.delay)
            .field("from", &self.from)
            .field("to", &self.to)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl Faults {
    pub(super) fn new(clock: Clock, seed: u64) -> Faults {
        Faults(Arc::new(Tamperer {
            clock,
            rules: Mutex::default(),
            silenced: Mutex::default(),
            chance: Mutex::new(Chance(seed)),
        }))
    }

    pub(super) fn interceptor(&self) -> Arc<dyn Interceptor> {
        self.0.clone()
    }

    /// Lets a fault happen from now on. The returned value counts and stops the fault.
    pub fn add(&self, fault: Fault) -> Fault {
        self.0.rules.lock().push(fault.clone());
        fault
    }

    /// From now on no message of this agent is sent.
    pub(super) fn silence(&self, agent: &str) {
        self.0.silenced.lock().insert(agent.to_owned());
    }

    /// Ends the silence of an agent, because an agent of this name begins its life.
    pub(super) fn revive(&self, agent: &str) {
        self.0.silenced.lock().remove(agent);
    }
}

impl Interceptor for Tamperer {
    fn intercept(
        self: Arc<Self>,
        outbox: &Arc<Outbox>,
        message: Arc<AclMessage>,
    ) -> Option<Arc<AclMessage>> {
        let from = outbox.aid();
        let from = from.local_name();
        if self.silenced.lock().contains(from) {
            return None;
        }
        let rules = self.rules.lock();
        if rules.is_empty() {
            return Some(message);
        }
        let mut kept = message.receivers.clone();
        kept.retain(|to| {
            let chance = &mut self.chance.lock();
            let act = &message.performative;
            let fault = (rules.iter()).find(|it| it.befalls(from, to.local_name(), act, chance));
            if let Some(Fault {
                delay: Some(delay), ..
            }) = fault
            {
                let mut later = AclMessage::clone(&message);
                later.receivers = vec![to.clone()];
                let (tamperer, outbox, delay) = (self.clone(), outbox.clone(), *delay);
                tokio::spawn(async move {
                    tamperer.clock.sleep(delay).await;
                    if !tamperer.silenced.lock().contains(outbox.aid().local_name()) {
                        // The sender goes on, while the message waits for room.
                        let _ = outbox.send(later).await;
                        tamperer.clock.note();
                    }
                });
            }
            fault.is_none()
        });
        match kept.len() {
            0 => None,
            all if all == message.receivers.len() => Some(message),
            _ => {
                let mut message = AclMessage::clone(&message);
                message.receivers = kept;
                Some(Arc::new(message))
            }
        }
    }
}

/// Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    /// A number from 0 up to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        f64::from((mixed >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }
}
