//! The ways of messages: one route to each receiver, and the messages that wait while the receiver is looked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::agent::LocalAgent;
use crate::bus::Bus;
use crate::error::{Rejected, UndeliverableReason};
use crate::foreign::is_foreign;
use crate::mailbox::PushError;
use crate::route::{
    Bottleneck, HeldBody, HeldMessage, HeldMessages, Parcel, Route, Sent, State, Way,
};
use crate::search;
use crate::transport::Destination;

/// The time between two looks at whether messages still wait.
const LOOK: Duration = Duration::from_millis(5);

/// A message that came back to the bus; see [`Bus::returned`].
#[derive(Clone, Debug)]
pub struct Returned {
    /// The sending agent, of this process. It may have left since.
    pub sender: Arc<LocalAgent>,
    /// The message's bit-efficient encoding.
    pub payload: Bytes,
}

impl Bus {
    /// The platform has news of where `agent` is. The bus tries messages held for the agent again at once. Messages on
    /// the way to its former process come back and go to the new process, in order.
    pub fn location_changed(&self, agent: &str) {
        if self.agent(agent).is_none() {
            self.arrived(agent);
        }
    }

    /// An agent has come to this process, or has moved elsewhere. Messages that took another way to it follow it, in
    /// order.
    pub(crate) fn arrived(&self, name: &str) {
        let Some(route) = self.inner.routes.read().get(name).cloned() else {
            return;
        };
        let recalled = {
            let mut state = route.state.lock();
            match &*state {
                State::Held(_) | State::Ended => None,
                State::Local(_) => {
                    let held = HeldMessages::new(&self.inner.held_bytes, false);
                    search::start(self, &route, &held);
                    route.change(&mut state, State::Held(held));
                    None
                }
                State::Remote(destination) => {
                    let destination = Arc::clone(destination);
                    let held = HeldMessages::new(&self.inner.held_bytes, true);
                    search::start(self, &route, &held);
                    route.change(&mut state, State::Held(held));
                    Some(destination)
                }
            }
        };
        if let Some(destination) = recalled {
            destination.recall();
        }
        route.news.notify_one();
    }

    /// The route to `name`. A new route begins by looking for the agent.
    pub(crate) fn route(&self, name: &str) -> Arc<Route> {
        if let Some(route) = self.inner.routes.read().get(name) {
            return route.clone();
        }
        // Others may give way to a stand-in, and all links are told of it: not under the lock.
        let stand_in = is_foreign(name, &self.config().platform)
            .then(|| self.receiver(name, None))
            .flatten();
        let mut routes = self.inner.routes.write();
        if let Some(route) = routes.get(name) {
            return route.clone();
        }
        let name: Arc<str> = name.into();
        let local = self.agent(&name).or(stand_in);
        let state = local.map_or_else(
            || State::Held(HeldMessages::new(&self.inner.held_bytes, false)),
            State::Local,
        );
        let route = Arc::new(Route::new(name.clone(), state));
        routes.insert(name, route.clone());
        if let State::Held(held) = &*route.state.lock() {
            search::start(self, &route, held);
        }
        route
    }

    /// Makes the route to an agent that has left drop the agent and the contents of its mailbox.
    pub(crate) fn forget_way_to(&self, agent: &Arc<LocalAgent>) {
        let mut routes = self.inner.routes.write();
        let Some(route) = routes.get(agent.name()).cloned() else {
            return;
        };
        let mut state = route.state.lock();
        if let State::Local(known) = &*state
            && Arc::ptr_eq(known, agent)
        {
            route.change(&mut state, State::Ended);
            routes.remove(agent.name());
            drop(state);
            route.gate.open_all();
        }
    }

    /// For transports: `messages` holds all messages to `receiver` that a destination had accepted and not delivered,
    /// in order. The bus sends them to the receiver's present place, before any newer message, even if their senders
    /// have left since.
    ///
    /// `denied`: the process does not know the agent. If false, the process has sent the agent on its way.
    ///
    /// `settled` is called once no newer message can go before these. Until then the destination must answer
    /// [`Rejected::Moving`](crate::Rejected::Moving), and afterwards [`Rejected::Closed`](crate::Rejected::Closed).
    pub fn returned(
        &self,
        receiver: &str,
        messages: Vec<Returned>,
        denied: bool,
        settled: impl FnOnce(),
    ) {
        self.inner
            .returned
            .fetch_add(messages.len() as u64, Ordering::Relaxed);
        let mut held = Vec::with_capacity(messages.len());
        for Returned { sender, payload } in messages {
            // An agent that has left and come again has a newer certificate. One that has left for good keeps its last one.
            let sender = self.agent(sender.name()).unwrap_or(sender);
            let whole = match self.sealer() {
                Some(sealer) => sealer.came_back(payload.clone()),
                None => Ok(payload.clone()),
            };
            match whole {
                Ok(payload) => held.push(HeldMessage {
                    sender,
                    body: HeldBody::Encoded(payload),
                }),
                Err(lost) => {
                    self.undeliverable(sender.name(), receiver, &payload, &lost.into());
                }
            }
        }
        loop {
            if held.is_empty() && !self.has_messages_for(receiver) {
                settled();
                return;
            }
            let route = self.route(receiver);
            if denied {
                route.denials.lock().note(Instant::now());
            }
            let mut state = route.state.lock();
            match &mut *state {
                State::Held(waiting) => {
                    waiting.push_front_all(held);
                    waiting.awaiting_return = false;
                }
                State::Local(_) | State::Remote(_) => {
                    let mut waiting = HeldMessages::new(&self.inner.held_bytes, false);
                    waiting.push_front_all(held);
                    search::start(self, &route, &waiting);
                    route.change(&mut state, State::Held(waiting));
                }
                State::Ended => continue,
            }
            settled();
            drop(state);
            route.news.notify_one();
            return;
        }
    }

    /// For a process that ends: waits, for `grace` at most, until the bus has handed over the messages that wait for
    /// their receivers. The senders of the remaining messages are told, if they are here, and these messages count as
    /// undeliverable.
    pub async fn settle(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while self.routes().iter().any(|it| it.is_awaited()) && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        let reason = UndeliverableReason::NotFoundInTime {
            seconds: grace.as_secs(),
            last: "the sender's process ends".to_owned(),
        };
        for route in self.routes() {
            search::abandon(self, &route, None, &reason);
        }
    }

    pub(crate) fn routes(&self) -> Vec<Arc<Route>> {
        self.inner.routes.read().values().cloned().collect()
    }

    /// Whether messages to `receiver` are held. If not, its route is forgotten, and the next message looks for the
    /// receiver again.
    fn has_messages_for(&self, receiver: &str) -> bool {
        let mut routes = self.inner.routes.write();
        let Some(route) = routes.get(receiver).cloned() else {
            return false;
        };
        let mut state = route.state.lock();
        match &*state {
            State::Held(held) if !held.queue.is_empty() => true,
            State::Local(_) => false,
            State::Held(_) | State::Remote(_) | State::Ended => {
                route.change(&mut state, State::Ended);
                routes.remove(receiver);
                drop(state);
                route.gate.open_all();
                false
            }
        }
    }

    /// Holds a message until there is room on its route.
    pub(crate) fn hold_along(&self, route: &Arc<Route>, parcel: &Parcel<'_>) -> Sent {
        let message = match parcel.hold() {
            Ok(message) => message,
            Err(reason) => return Sent::Impossible(reason),
        };
        let mut state = route.state.lock();
        match &mut *state {
            State::Held(held) => held.push_back(message),
            State::Local(_) | State::Remote(_) => {
                let mut held = HeldMessages::new(&self.inner.held_bytes, false);
                held.push_back(message);
                search::start(self, route, &held);
                route.change(&mut state, State::Held(held));
            }
            State::Ended => return Sent::Stale,
        }
        Sent::Accepted
    }

    /// Tries to send along a route. `my_turn`: the caller has waited at the gate and goes before newcomers.
    pub(crate) fn send_along(
        &self,
        route: &Arc<Route>,
        parcel: &Parcel<'_>,
        my_turn: bool,
    ) -> Sent {
        let mut state = route.state.lock();
        self.send_in(route, &mut state, parcel, my_turn)
    }

    /// As [`send_along`](Self::send_along), for a sender that remembers the way of its last message.
    #[inline]
    pub(crate) fn send_again(
        &self,
        route: &Arc<Route>,
        known: &mut Option<Way>,
        parcel: &Parcel<'_>,
        my_turn: bool,
    ) -> Sent {
        if let Some(way) = known
            && route.leads(way)
            && let Ok(sent) = give(&way.destination, parcel, my_turn)
        {
            return sent;
        }
        let mut state = route.state.lock();
        let sent = self.send_in(route, &mut state, parcel, my_turn);
        *known = route.way(&state);
        sent
    }

    /// Tries to send along a route in this state, whose lock the caller holds.
    fn send_in(
        &self,
        route: &Arc<Route>,
        state: &mut State,
        parcel: &Parcel<'_>,
        my_turn: bool,
    ) -> Sent {
        let number = parcel.sender.number();
        let mut held = match &mut *state {
            State::Local(agent) => {
                let full = |agent: &Arc<LocalAgent>| Sent::Full(Bottleneck::Mailbox(agent.clone()));
                if !my_turn && agent.mailbox().gate().is_crowded_for(number) {
                    return full(agent);
                }
                let mut received = match parcel.received(&self.inner.config.platform) {
                    Ok(received) => received,
                    Err(reason) => return Sent::Impossible(reason),
                };
                if let Err(reason) = self.open_in_place(&mut received, agent.name()) {
                    return Sent::Impossible(reason);
                }
                match agent.mailbox().try_push(received) {
                    Ok(()) => return Sent::Accepted,
                    Err(PushError::Full(_)) => return full(agent),
                    Err(PushError::Closed(..)) => HeldMessages::new(&self.inner.held_bytes, false),
                }
            }
            State::Remote(destination) => match give(destination, parcel, my_turn) {
                Ok(sent) => return sent,
                Err(DestinationEnded { is_awaited }) => {
                    HeldMessages::new(&self.inner.held_bytes, is_awaited)
                }
            },
            State::Held(held) => {
                let config = self.config();
                let in_all = self.inner.held_bytes.load(Ordering::Relaxed);
                if (!my_turn && route.gate.is_crowded_for(number))
                    || held.bytes >= config.hold_bytes
                    || in_all >= config.hold_bytes_in_all
                {
                    return Sent::Full(Bottleneck::Route(route.clone()));
                }
                return match parcel.hold() {
                    Ok(message) => {
                        held.push_back(message);
                        Sent::Accepted
                    }
                    Err(reason) => Sent::Impossible(reason),
                };
            }
            State::Ended => return Sent::Stale,
        };
        match parcel.hold() {
            Ok(message) => held.push_back(message),
            Err(reason) => return Sent::Impossible(reason),
        }
        search::start(self, route, &held);
        route.change(state, State::Held(held));
        Sent::Accepted
    }
}

/// A destination takes no more messages.
struct DestinationEnded {
    /// Whether the messages that it took come back.
    is_awaited: bool,
}

/// Gives a message to a destination.
#[inline]
fn give(
    destination: &Arc<dyn Destination>,
    parcel: &Parcel<'_>,
    my_turn: bool,
) -> Result<Sent, DestinationEnded> {
    let number = parcel.sender.number();
    let full = || Ok(Sent::Full(Bottleneck::Destination(destination.clone())));
    let congested = || Ok(Sent::Full(Bottleneck::Sender(parcel.sender.clone())));
    if !my_turn && destination.gate().is_crowded_for(number) {
        return full();
    }
    if !my_turn && parcel.sender.gate().is_crowded_for(number) {
        return congested();
    }
    match parcel.send(&**destination) {
        Ok(()) => Ok(Sent::Accepted),
        Err(Rejected::Full) => full(),
        Err(Rejected::Congested) => congested(),
        Err(Rejected::Impossible(reason)) => Ok(Sent::Impossible(reason)),
        Err(Rejected::Moving) => Err(DestinationEnded { is_awaited: true }),
        Err(Rejected::Closed) => Err(DestinationEnded { is_awaited: false }),
    }
}
