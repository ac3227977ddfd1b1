//! The route to one agent: to a mailbox of this process, to another process, or not known yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_fipa::bitefficient::EncodedMessage;
use sealbus_fipa::{AclMessage, AclMessageRef};
use sealbus_seal::PlatformName;
use tokio::sync::Notify;

use crate::agent::LocalAgent;
use crate::delegation::Delegation;
use crate::error::{Rejected, UndeliverableReason};
use crate::foreign::spoken_for;
use crate::gate::Gate;
use crate::limits::OWN_ENCODING;
use crate::mailbox::MESSAGE_OVERHEAD;
use crate::message::{Provenance, ReceivedMessage};
use crate::patience::Patience;
use crate::refusal::RefusalReason;
use crate::sealed::SealedMessage;
use crate::transport::{Destination, Outgoing};

/// A message that waits for its receiver to be found.
pub(crate) struct HeldMessage {
    pub(crate) sender: Arc<LocalAgent>,
    pub(crate) body: HeldBody,
}

pub(crate) enum HeldBody {
    Message(Arc<AclMessage>),
    /// A message that came back from a process that the receiver has left.
    Encoded(Bytes),
}

impl HeldMessage {
    fn cost(&self) -> usize {
        MESSAGE_OVERHEAD
            + match &self.body {
                HeldBody::Message(message) => message.content_bytes().map_or(0, <[u8]>::len),
                HeldBody::Encoded(payload) => payload.len(),
            }
    }
}

pub(crate) struct HeldMessages {
    pub(crate) queue: VecDeque<HeldMessage>,
    pub(crate) bytes: usize,
    /// The number of bytes that are held for all receivers together.
    in_all: Arc<AtomicUsize>,
    /// The moment from which the receiver has been looked for.
    pub(crate) since: Instant,
    /// The current search for the receiver. Earlier searches for this route are void.
    pub(crate) search: u64,
    /// Whether the former destination has still to give back messages that it took. They go before the messages held here.
    pub(crate) awaiting_return: bool,
}

impl HeldMessages {
    /// Nothing is held yet. `in_all` counts the bytes that are held for all receivers together.
    pub(crate) fn new(in_all: &Arc<AtomicUsize>, awaiting_return: bool) -> Self {
        static NEXT_SEARCH: AtomicU64 = AtomicU64::new(1);
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            in_all: in_all.clone(),
            since: Instant::now(),
            search: NEXT_SEARCH.fetch_add(1, Ordering::Relaxed),
            awaiting_return,
        }
    }

    fn count(&mut self, message: &HeldMessage) {
        self.bytes += message.cost();
        self.in_all.fetch_add(message.cost(), Ordering::Relaxed);
    }

    pub(crate) fn push_back(&mut self, message: HeldMessage) {
        self.count(&message);
        self.queue.push_back(message);
    }

    pub(crate) fn push_front_all(&mut self, messages: Vec<HeldMessage>) {
        for message in messages.into_iter().rev() {
            self.count(&message);
            self.queue.push_front(message);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<HeldMessage> {
        let message = self.queue.pop_front()?;
        self.bytes -= message.cost();
        self.in_all.fetch_sub(message.cost(), Ordering::Relaxed);
        Some(message)
    }

    pub(crate) fn drain(&mut self) -> Vec<HeldMessage> {
        let bytes = std::mem::take(&mut self.bytes);
        self.in_all.fetch_sub(bytes, Ordering::Relaxed);
        self.queue.drain(..).collect()
    }
}

impl Drop for HeldMessages {
    fn drop(&mut self) {
        self.in_all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

pub(crate) enum State {
    Local(Arc<LocalAgent>),
    Remote(Arc<dyn Destination>),
    Held(HeldMessages),
    /// The route was given up and forgotten: look for the route again.
    Ended,
}

/// The route to one agent. All messages to the agent from this process go through it, in order.
pub(crate) struct Route {
    pub(crate) name: Arc<str>,
    /// Changed only by [`change`](Self::change).
    pub(crate) state: Mutex<State>,
    /// The number of changes of the state. It is changed under the state's lock.
    changes: AtomicU64,
    /// The gate at which senders wait while messages are held.
    pub(crate) gate: Gate,
    /// Wakes the task that looks for the receiver.
    pub(crate) news: Notify,
    /// How often, and when last, a process denied having the agent.
    pub(crate) denials: Mutex<Denials>,
    /// How long answers may wait for the agent.
    pub(crate) patience: Mutex<Patience>,
}

/// The way of a sender's last message. The sender's next message takes it without the lock of the route's state, as
/// long as the route still [leads](Route::leads) there.
///
/// A message may thus reach the destination just after the state has changed, as if it had come before the change:
/// - The sender's earlier messages took the same way. If one had been held, this message would have seen a higher count.
/// - The destination gives the message back with those that it took before, or not at all. The new state asks for them, and a
///   [destination of a session](Destination::session) takes nothing once it gives back. A way leads only to such ones.
pub(crate) struct Way {
    pub(crate) destination: Arc<dyn Destination>,
    changes: u64,
}

#[derive(Default)]
pub(crate) struct Denials {
    pub(crate) count: u32,
    last: Option<Instant>,
}

/// Denials further apart than this are unrelated.
const DENIALS_FORGOTTEN: Duration = Duration::from_secs(10);

impl Denials {
    pub(crate) fn note(&mut self, now: Instant) {
        if self
            .last
            .is_none_or(|last| now.duration_since(last) > DENIALS_FORGOTTEN)
        {
            self.count = 0;
        }
        self.count += 1;
        self.last = Some(now);
    }
}

/// The outcome of an attempt to send.
pub(crate) enum Sent {
    Accepted,
    Full(Bottleneck),
    Impossible(UndeliverableReason),
    /// The route was given up: get a new route.
    Stale,
}

/// The receiver, connection or route at whose gate the sender must wait.
#[derive(Clone)]
pub(crate) enum Bottleneck {
    Mailbox(Arc<LocalAgent>),
    Destination(Arc<dyn Destination>),
    Sender(Arc<LocalAgent>),
    Route(Arc<Route>),
}

impl Bottleneck {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.gate(), other.gate())
    }

    pub(crate) fn gate(&self) -> &Gate {
        match self {
            Self::Mailbox(agent) => agent.mailbox().gate(),
            Self::Destination(destination) => destination.gate(),
            Self::Sender(agent) => agent.gate(),
            Self::Route(route) => &route.gate,
        }
    }
}

/// The message, with the facts needed to keep it.
pub(crate) struct Parcel<'a> {
    pub(crate) sender: &'a Arc<LocalAgent>,
    pub(crate) message: ParcelMessage<'a>,
    pub(crate) outgoing: &'a Outgoing<'a>,
    /// Whether the outbox has checked that the message bears the sender's own name.
    pub(crate) is_own: bool,
    /// Whether the message is the platform's own notice, which needs no permission.
    pub(crate) is_notice: bool,
    /// The agents on whose behalf the message asks, if it names any.
    pub(crate) chain: Option<Delegation>,
}

pub(crate) enum ParcelMessage<'a> {
    Message(&'a Arc<AclMessage>),
    Encoded(&'a Bytes),
    Sealed(&'a SealedMessage),
}

impl Parcel<'_> {
    pub(crate) fn hold(&self) -> Result<HeldMessage, UndeliverableReason> {
        Ok(HeldMessage {
            sender: self.sender.clone(),
            body: match self.message {
                ParcelMessage::Message(message) => HeldBody::Message(message.clone()),
                ParcelMessage::Encoded(payload) => HeldBody::Encoded(payload.clone()),
                // The way is not known yet, so the message needs the secret.
                ParcelMessage::Sealed(sealed) => HeldBody::Encoded(sealed.whole()?),
            },
        })
    }

    /// Gives the message to a carrier.
    #[inline]
    pub(crate) fn send(&self, destination: &dyn Destination) -> Result<(), Rejected> {
        match self.message {
            ParcelMessage::Sealed(sealed) => self.send_sealed(sealed, destination),
            _ => destination.try_send(self.sender, self.outgoing),
        }
    }

    /// Gives a sealed message to a carrier, with its row's secret unless that went the same way before.
    fn send_sealed(
        &self,
        sealed: &SealedMessage,
        destination: &dyn Destination,
    ) -> Result<(), Rejected> {
        let session = destination.session();
        if sealed.is_short_for(session) {
            return destination.try_send(self.sender, self.outgoing);
        }
        let whole = sealed.whole()?;
        let outgoing = Outgoing::sealed(&whole);
        destination.try_send(self.sender, &outgoing)?;
        sealed.went_over(session);
        Ok(())
    }

    #[inline]
    pub(crate) fn received(
        &self,
        platform: &PlatformName,
    ) -> Result<ReceivedMessage, UndeliverableReason> {
        match self.message {
            ParcelMessage::Message(message) if self.is_own => Ok(ReceivedMessage::shared(
                message.clone(),
                Provenance::SameProcess,
            )),
            _ => self.received_otherwise(platform),
        }
    }

    // Not inlined: otherwise `received` would be too long to be inlined itself.
    #[inline(never)]
    fn received_otherwise(
        &self,
        platform: &PlatformName,
    ) -> Result<ReceivedMessage, UndeliverableReason> {
        match self.message {
            ParcelMessage::Message(message) => {
                let provenance = self.provenance(platform, &AclMessage::view(message));
                Ok(ReceivedMessage::shared(message.clone(), provenance))
            }
            ParcelMessage::Encoded(payload) => self.received_encoded(payload.clone(), platform),
            ParcelMessage::Sealed(sealed) => self.received_encoded(sealed.whole()?, platform),
        }
    }

    fn received_encoded(
        &self,
        payload: Bytes,
        platform: &PlatformName,
    ) -> Result<ReceivedMessage, UndeliverableReason> {
        // A returned message was encoded here, and is not checked yet on this side.
        let message = EncodedMessage::new(payload, &OWN_ENCODING);
        let message = message.map_err(|error| UndeliverableReason::Refused {
            reason: RefusalReason::Malformed,
            explanation: error.to_string(),
        })?;
        let provenance = self.provenance(platform, &message.message());
        Ok(ReceivedMessage::encoded(message, provenance))
    }

    /// The provenance of the message. An outbox lets through only its own agent's messages and, for the gateway, the
    /// messages that it may relay.
    fn provenance(&self, platform: &PlatformName, message: &AclMessageRef<'_>) -> Provenance {
        let is_own = message
            .sender()
            .is_some_and(|sender| *sender.name() == **self.sender.name());
        let spoken_for = (!is_own)
            .then(|| spoken_for(self.sender.name(), platform, message))
            .flatten();
        spoken_for.unwrap_or(Provenance::SameProcess)
    }
}

impl Route {
    pub(crate) fn new(name: Arc<str>, state: State) -> Self {
        Self {
            name,
            state: Mutex::new(state),
            changes: AtomicU64::new(0),
            gate: Gate::default(),
            news: Notify::new(),
            denials: Mutex::default(),
            patience: Mutex::default(),
        }
    }

    /// Whether messages wait here for the receiver, or are on their way back.
    pub(crate) fn is_awaited(&self) -> bool {
        match &*self.state.lock() {
            State::Held(held) => held.awaiting_return || !held.queue.is_empty(),
            State::Local(_) | State::Remote(_) | State::Ended => false,
        }
    }

    /// Changes the state, whose lock the caller holds.
    pub(crate) fn change(&self, state: &mut State, new: State) {
        *state = new;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The way that messages take in this state, whose lock the caller holds.
    pub(crate) fn way(&self, state: &State) -> Option<Way> {
        match state {
            State::Remote(destination) if destination.session().is_some() => Some(Way {
                destination: destination.clone(),
                changes: self.changes.load(Ordering::Relaxed),
            }),
            _ => None,
        }
    }

    /// Whether the state is still the one that gave this way.
    #[inline]
    pub(crate) fn leads(&self, way: &Way) -> bool {
        self.changes.load(Ordering::Acquire) == way.changes
    }
}
