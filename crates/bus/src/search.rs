//! The search for the receiver of held messages. Once the receiver is found, the messages are sent to it in order.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sealbus_fipa::AclMessage;

use crate::bus::{Bus, WeakBus};
use crate::error::{Rejected, UndeliverableReason};
use crate::foreign::is_foreign;
use crate::mailbox::PushError;
use crate::permission::Permit;
use crate::resolver::{Location, ProcessEndpoint};
use crate::route::{
    Bottleneck, HeldBody, HeldMessage, HeldMessages, Parcel, ParcelMessage, Route, State,
};
use crate::transport::Outgoing;

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often the process that the resolver names must deny that it has the agent before the bus believes it.
const DENIALS_BELIEVED: u32 = 6;

/// Starts the search for the receiver at the end of `route`, whose state is [`State::Held`]. Each change to that state
/// starts one search.
pub(crate) fn start(bus: &Bus, route: &Arc<Route>, held: &HeldMessages) {
    let search = Search {
        bus: bus.downgrade(),
        route: Arc::downgrade(route),
        number: held.search,
    };
    bus.inner.runtime.spawn(search.run());
}

struct Search {
    bus: WeakBus,
    route: Weak<Route>,
    number: u64,
}

/// The present destination of the messages.
enum Found {
    Way(State),
    NotYet(String),
    /// There is no destination, for good.
    Nowhere(UndeliverableReason),
}

/// Whether the held messages were sent on, and if not, why.
enum HeldOutcome {
    Sent,
    Full(Bottleneck),
    /// The way has ended in the meantime.
    WayEnded,
    AwaitingReturn,
}

impl Search {
    async fn run(self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let (Some(bus), Some(route)) = (self.bus.upgrade(), self.route.upgrade()) else {
                return;
            };
            // A process that has denied the agent is not asked again at once.
            let denials = route.denials.lock().count;
            if denials > 0 {
                tokio::time::sleep((SHORTEST_PAUSE * (1 << denials.min(6))).min(LONGEST_PAUSE))
                    .await;
            }
            let last = match self.step(&bus, &route).await {
                Ok(()) => return,
                Err(last) => last,
            };
            let age = match &*route.state.lock() {
                State::Held(held) if held.search == self.number => held.since.elapsed(),
                // Another search has taken over, or nothing is held any more.
                _ => return,
            };
            let limit = bus.config().hold_time;
            if age >= limit {
                let reason = UndeliverableReason::NotFoundInTime {
                    seconds: limit.as_secs(),
                    last,
                };
                self.give_up(&bus, &route, &reason);
                return;
            }
            drop(bus);
            let news = tokio::time::timeout(pause.min(limit - age), route.news.notified()).await;
            pause = if news.is_ok() {
                SHORTEST_PAUSE
            } else {
                (pause * 2).min(LONGEST_PAUSE)
            };
        }
    }

    /// Looks once, and sends the messages if the receiver is found. `Err` has the reason to look again later.
    async fn step(&self, bus: &Bus, route: &Arc<Route>) -> Result<(), String> {
        if let State::Held(held) = &*route.state.lock()
            && held.awaiting_return
        {
            return Err("messages to its former process are still coming back".to_owned());
        }
        if bus.agent(&route.name).is_none() && route.denials.lock().count >= DENIALS_BELIEVED {
            self.give_up(bus, route, &UndeliverableReason::ReceiverGone);
            return Ok(());
        }
        let way = match find(bus, &route.name).await {
            Found::Way(way) => way,
            Found::NotYet(last) => return Err(last),
            Found::Nowhere(reason) => {
                self.give_up(bus, route, &reason);
                return Ok(());
            }
        };
        let mut stopped = self.send_held(bus, route, &way);
        loop {
            stopped = match stopped {
                HeldOutcome::Sent => return Ok(()),
                HeldOutcome::AwaitingReturn => {
                    return Err("it is moving to another process".to_owned());
                }
                HeldOutcome::WayEnded => {
                    route.denials.lock().note(Instant::now());
                    return Err("the process it was in does not have it".to_owned());
                }
                // The search tries again at the gate, because a gate does not report room that was made before anyone
                // waited.
                HeldOutcome::Full(waiting) => {
                    let attempt = || {
                        self.begin_anew(route);
                        match self.send_held(bus, route, &way) {
                            HeldOutcome::Full(other) if other.is_same(&waiting) => None,
                            stopped => Some(stopped),
                        }
                    };
                    waiting.gate().pass(attempt).await
                }
            };
        }
    }

    /// Starts the hold time anew: the receiver was found, and only had no room. If it moves, the search gets the full time.
    fn begin_anew(&self, route: &Route) {
        if let State::Held(held) = &mut *route.state.lock()
            && held.search == self.number
        {
            held.since = Instant::now();
        }
    }

    /// Sends the held messages along `way` in order. Once all are sent, `way` becomes the route's own.
    fn send_held(&self, bus: &Bus, route: &Arc<Route>, way: &State) -> HeldOutcome {
        let mut state = route.state.lock();
        let held = match &mut *state {
            State::Held(held) if held.search == self.number => held,
            // Another search has taken over.
            _ => return HeldOutcome::Sent,
        };
        if held.awaiting_return {
            return HeldOutcome::AwaitingReturn;
        }
        while let Some(message) = held.pop_front() {
            match send_one(bus, &message, way) {
                Ok(()) => {}
                Err(NotSent::Full(waiting)) => {
                    held.push_front_all(vec![message]);
                    return HeldOutcome::Full(waiting);
                }
                Err(NotSent::Moving) => {
                    held.push_front_all(vec![message]);
                    held.awaiting_return = true;
                    return HeldOutcome::AwaitingReturn;
                }
                Err(NotSent::Ended) => {
                    held.push_front_all(vec![message]);
                    return HeldOutcome::WayEnded;
                }
                Err(NotSent::Impossible(reason)) => fail(bus, &message, &route.name, &reason),
            }
        }
        let found = match way {
            // The agent has left since it was found.
            State::Local(agent) if agent.mailbox().closed().is_some() => {
                return HeldOutcome::WayEnded;
            }
            State::Local(agent) => State::Local(agent.clone()),
            State::Remote(destination) => State::Remote(destination.clone()),
            State::Held(_) | State::Ended => return HeldOutcome::WayEnded,
        };
        route.change(&mut state, found);
        drop(state);
        route.gate.open_all();
        HeldOutcome::Sent
    }

    fn give_up(&self, bus: &Bus, route: &Arc<Route>, reason: &UndeliverableReason) {
        abandon(bus, route, Some(self.number), reason);
    }
}

/// Tells the senders of all messages held on a route, and forgets the route: the next message looks again. If `search`
/// is given, acts only if it is the present search.
pub(crate) fn abandon(
    bus: &Bus,
    route: &Arc<Route>,
    search: Option<u64>,
    reason: &UndeliverableReason,
) {
    // No message may enter the route after it is emptied and before it is removed.
    let mut routes = bus.inner.routes.write();
    let mut state = route.state.lock();
    let held = match &mut *state {
        State::Held(held) if search.is_none_or(|search| held.search == search) => held,
        _ => return,
    };
    let lost = held.drain();
    route.change(&mut state, State::Ended);
    routes.remove(&route.name);
    drop(state);
    drop(routes);
    route.gate.open_all();
    for message in lost {
        fail(bus, &message, &route.name, reason);
    }
}

async fn find(bus: &Bus, name: &str) -> Found {
    if let Some(agent) = bus.receiver(name, None) {
        return Found::Way(State::Local(agent));
    }
    let Some(resolver) = bus.resolver().cloned() else {
        return Found::Nowhere(if is_foreign(name, &bus.config().platform) {
            UndeliverableReason::NoGateway
        } else {
            UndeliverableReason::UnknownReceiver
        });
    };
    match resolver.resolve(name).await {
        Ok(Location::Process(process)) => reach(bus, name, &process),
        Ok(Location::InTransit) => Found::NotYet("it is in transit".to_owned()),
        Ok(Location::NoGateway) => Found::Nowhere(UndeliverableReason::NoGateway),
        // The agent may have been attached while the resolver was asked.
        Ok(Location::Unknown) => match bus.agent(name) {
            Some(agent) => Found::Way(State::Local(agent)),
            None => Found::Nowhere(UndeliverableReason::UnknownReceiver),
        },
        Err(error) => Found::NotYet(error.to_string()),
    }
}

fn reach(bus: &Bus, name: &str, process: &ProcessEndpoint) -> Found {
    let Some(transport) = bus.transport() else {
        return Found::Nowhere(UndeliverableReason::NoTransport);
    };
    match transport.destination(process, name) {
        Ok(destination) => Found::Way(State::Remote(destination)),
        Err(error) => Found::NotYet(error.to_string()),
    }
}

/// Why one message was not sent.
enum NotSent {
    Full(Bottleneck),
    Moving,
    Ended,
    Impossible(UndeliverableReason),
}

fn send_one(bus: &Bus, message: &HeldMessage, way: &State) -> Result<(), NotSent> {
    let outgoing = match &message.body {
        HeldBody::Message(message) => Outgoing::new(message),
        HeldBody::Encoded(payload) => Outgoing::encoded(payload),
    };
    match way {
        State::Local(agent) => {
            let parcel = Parcel {
                sender: &message.sender,
                message: match &message.body {
                    HeldBody::Message(message) => ParcelMessage::Message(message),
                    HeldBody::Encoded(payload) => ParcelMessage::Encoded(payload),
                },
                outgoing: &outgoing,
                is_own: false,
                is_notice: false,
                chain: None,
            };
            let mut received = parcel
                .received(&bus.config().platform)
                .map_err(NotSent::Impossible)?;
            bus.open_in_place(&mut received, agent.name())
                .map_err(NotSent::Impossible)?;
            // The rules may have changed while the message was held.
            if !received.is_notice() {
                let (sender, receiver) = (message.sender.name(), agent.name());
                bus.permits_own(
                    &mut Permit::default(),
                    sender,
                    receiver,
                    &received.message(),
                )
                .map_err(|refused| NotSent::Impossible(refused.into()))?;
            }
            agent
                .mailbox()
                .try_push(received)
                .map_err(|error| match error {
                    PushError::Full(_) => NotSent::Full(Bottleneck::Mailbox(agent.clone())),
                    PushError::Closed(..) => NotSent::Ended,
                })
        }
        State::Remote(destination) => {
            destination
                .try_send(&message.sender, &outgoing)
                .map_err(|rejected| match rejected {
                    Rejected::Full => NotSent::Full(Bottleneck::Destination(destination.clone())),
                    Rejected::Congested => {
                        NotSent::Full(Bottleneck::Sender(message.sender.clone()))
                    }
                    Rejected::Moving => NotSent::Moving,
                    Rejected::Closed => NotSent::Ended,
                    Rejected::Impossible(reason) => NotSent::Impossible(reason),
                })
        }
        State::Held(_) | State::Ended => Err(NotSent::Ended),
    }
}

fn fail(bus: &Bus, message: &HeldMessage, receiver: &str, reason: &UndeliverableReason) {
    let sender = message.sender.name();
    match &message.body {
        HeldBody::Message(message) => {
            bus.notify_sender(sender, &AclMessage::view(message), receiver, reason);
        }
        HeldBody::Encoded(payload) => bus.undeliverable(sender, receiver, payload, reason),
    }
}
