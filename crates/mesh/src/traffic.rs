//! The work of a link's task while there is a connection: it reads and takes frames, writes, acknowledges, checks that
//! the peer is still there, and handles requests.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use sealbus_bus::RefusalReason;
use sealbus_seal::Timestamp;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::frame::{Frame, GoodbyeReason};
use crate::greeting::{Greeted, GreetingError, Opened, now, say_goodbye};
use crate::inward::Broken;
use crate::outward::{Filled, LONGEST_HOLD};
use crate::task::{End, Established, REVOKED, Task};
use crate::wire::{Progress, Wire};

/// How long an acknowledgement may wait to travel with a frame.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(20);
/// The number of received bytes at which an acknowledgement is sent in any case. The peer keeps the bytes until then.
/// Four times as many was no faster.
const ACKNOWLEDGE_BYTES: usize = 64 << 10;
/// The number of signatures at which an acknowledgement is sent in any case. The peer holds messages back until then.
const ACKNOWLEDGE_SIGNATURES: usize = 2;
/// The bytes that a link reads before agents and other links get their turn. Each read counts as at least `SHORTEST` bytes.
const TURN: usize = 128 << 10;
const SHORTEST: usize = 16 << 10;

type Renewal = Pin<Box<dyn Future<Output = Result<Box<Opened>, GreetingError>> + Send>>;

/// The events that the task waits for while there is a connection.
struct Waits {
    tick: Pin<Box<Sleep>>,
    acknowledge: Timer,
    /// When messages that are held back are sent in any case.
    held: Timer,
    /// Whether the last event was a read.
    has_read: bool,
    /// The bytes read since others had their turn.
    read: usize,
    /// A connection with this process's new certificate, in the making.
    renewal: Option<Renewal>,
}

enum Event {
    Readable,
    Writable,
    /// A sender has bytes, or a request, for the task.
    Woken,
    /// An acknowledgement is due, or messages that were held back.
    Due,
    Tick,
    Greeted(Box<Greeted>),
    Renewed(Result<Box<Opened>, GreetingError>),
    ShutDown,
    Broken(String),
}

impl Waits {
    fn new(first_look: Duration) -> Self {
        Self {
            tick: Box::pin(sleep(first_look)),
            acknowledge: Timer::new(),
            held: Timer::new(),
            has_read: false,
            read: 0,
            renewal: None,
        }
    }
}

/// A timer that runs now and then.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    is_set: bool,
}

impl Timer {
    fn new() -> Self {
        Self {
            sleep: Box::pin(sleep(Duration::ZERO)),
            is_set: false,
        }
    }

    /// Sets the timer, unless it is running.
    fn set(&mut self, after: Duration) {
        if !self.is_set {
            self.is_set = true;
            self.sleep.as_mut().reset(Instant::now() + after);
        }
    }

    /// Whether the timer has run out.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let is_due = self.is_set && self.sleep.as_mut().poll(context).is_ready();
        self.is_set &= !is_due;
        is_due
    }
}

impl Task {
    /// Serves a connection until it ends.
    pub(crate) async fn serve(&mut self, established: Established) -> End {
        let Established { peer, mut inbox } = established;
        self.proved = peer;
        // The connection may have waited since its certificate was checked.
        if let Err(end) = self.check(now()) {
            return end;
        }
        let Some(tcp) = self.link.wire.lock().as_ref().map(|wire| wire.tcp.clone()) else {
            return End::Lost("there is no connection".to_owned());
        };
        let mut last_heard = Instant::now();
        let mut has_asked = false;
        let mut waits = Waits::new(self.link.config.keep_alive);
        if !inbox.is_empty()
            && let Err(end) = self.take(&mut inbox)
        {
            return end;
        }
        loop {
            let wants_write = self
                .link
                .wire
                .lock()
                .as_ref()
                .is_some_and(Wire::wants_write);
            // `select!` would be the most expensive part of a message's way, so it is not used.
            let event = poll_fn(|context| self.poll(context, &tcp, wants_write, &mut waits)).await;
            let outcome = match event {
                Event::Readable => {
                    last_heard = Instant::now();
                    has_asked = false;
                    let outcome = self.read(&mut inbox, &mut waits);
                    if waits.read >= TURN {
                        waits.read = 0;
                        tokio::task::yield_now().await;
                    }
                    outcome
                }
                Event::Writable | Event::Due => self.write(&mut waits),
                Event::Woken => {
                    let answered = self.answer(&mut waits);
                    answered.and_then(|()| self.write(&mut waits))
                }
                Event::Tick => {
                    let silent = last_heard.elapsed();
                    if silent >= self.link.config.silence {
                        return End::Lost(format!("silent for {} ms", silent.as_millis()));
                    }
                    if silent >= self.link.config.keep_alive && !has_asked {
                        has_asked = true;
                        self.link.outward.lock().control(&Frame::Ping);
                    }
                    // Nothing has to be done before that time, unless a request comes.
                    let patience = match has_asked {
                        true => self.link.config.silence,
                        false => self.link.config.keep_alive,
                    };
                    waits.tick.as_mut().reset(last_heard + patience);
                    let checked = self.check(now());
                    checked.and_then(|()| self.write(&mut waits))
                }
                Event::Greeted(mut greeted) => {
                    let is_newer = self.peer_incarnation != Some(greeted.greeting.incarnation)
                        || greeted.greeting.connection > self.peer_number;
                    if is_newer {
                        return End::Replaced(greeted);
                    }
                    let text = "there is a newer connection";
                    say_goodbye(&mut greeted.wire, GoodbyeReason::Replaced, text, true);
                    Ok(())
                }
                Event::Renewed(Ok(opened)) => return End::Renewed(opened),
                Event::Renewed(Err(error)) => {
                    tracing::warn!(peer = %self.link.peer, %error, "no connection with the new certificate; the open one stays");
                    Ok(())
                }
                Event::ShutDown => return End::ShutDown,
                Event::Broken(why) => return End::Lost(why),
            };
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    /// Polls the kinds of work, the most frequent first.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        tcp: &TcpStream,
        wants_write: bool,
        waits: &mut Waits,
    ) -> Poll<Event> {
        // After a read the senders have their turn, so that neither side keeps the other waiting.
        if waits.has_read && self.link.poll_woken(context).is_ready() {
            waits.has_read = false;
            return Poll::Ready(Event::Woken);
        }
        match tcp.poll_read_ready(context) {
            Poll::Ready(Ok(())) => {
                waits.has_read = true;
                return Poll::Ready(Event::Readable);
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Event::Broken(error.to_string())),
            Poll::Pending => {}
        }
        if !waits.has_read && self.link.poll_woken(context).is_ready() {
            return Poll::Ready(Event::Woken);
        }
        if wants_write {
            match tcp.poll_write_ready(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Event::Writable),
                Poll::Ready(Err(error)) => return Poll::Ready(Event::Broken(error.to_string())),
                Poll::Pending => {}
            }
        }
        if waits.acknowledge.poll(context) || waits.held.poll(context) {
            return Poll::Ready(Event::Due);
        }
        if waits.tick.as_mut().poll(context).is_ready() {
            return Poll::Ready(Event::Tick);
        }
        match self.connections.poll_recv(context) {
            Poll::Ready(Some(greeted)) => return Poll::Ready(Event::Greeted(Box::new(greeted))),
            Poll::Ready(None) => return Poll::Ready(Event::ShutDown),
            Poll::Pending => {}
        }
        if let Some(renewal) = &mut waits.renewal
            && let Poll::Ready(opened) = renewal.as_mut().poll(context)
        {
            waits.renewal = None;
            return Poll::Ready(Event::Renewed(opened));
        }
        waits.read = 0;
        Poll::Pending
    }

    /// Handles the requests of others.
    fn answer(&mut self, waits: &mut Waits) -> Result<(), End> {
        let requests = &self.link.requests;
        if !requests.are_any() {
            return Ok(());
        }
        if requests.end.load(Ordering::Acquire) {
            return Err(End::ShutDown);
        }
        if requests.forget.swap(false, Ordering::AcqRel) {
            return Err(End::PeerGone("the platform says that it is gone"));
        }
        if requests.refresh.swap(false, Ordering::AcqRel) {
            waits.renewal = Some(self.renew());
        }
        self.look_after_agents();
        self.check(now())
    }

    /// Opens a connection with this process's new certificate, while the old connection continues.
    fn renew(&self) -> Renewal {
        let (own, link) = (self.own.clone(), self.link.clone());
        Box::pin(async move {
            let mut pause = link.config.redial.0;
            let deadline = Instant::now() + link.config.give_up;
            loop {
                let address = *link.address.lock();
                let opening = own.open(address, &link.peer);
                let opened = timeout(link.config.handshake_time, opening)
                    .await
                    .unwrap_or(Err(GreetingError::TooSlow));
                if opened.is_ok() || Instant::now() >= deadline {
                    return opened.map(Box::new);
                }
                sleep(pause).await;
                pause = (pause * 2).min(link.config.redial.1);
            }
        })
    }

    /// Reads and takes pending bytes, up to a limit. If some are left, the socket stays readable.
    fn read(&mut self, inbox: &mut Vec<u8>, waits: &mut Waits) -> Result<(), End> {
        loop {
            let before = inbox.len();
            let progress = {
                let mut wire = self.link.wire.lock();
                let Some(wire) = wire.as_mut() else {
                    return Err(End::Lost("there is no connection".to_owned()));
                };
                wire.read(inbox)
            };
            let progress = progress.map_err(|error| End::Lost(error.to_string()))?;
            waits.read += SHORTEST.max(inbox.len() - before);
            self.take(inbox)?;
            match progress {
                Progress::More if waits.read < TURN => {}
                Progress::More | Progress::Drained => break,
                Progress::Ended => {
                    return Err(End::Lost("the peer ended the connection".to_owned()));
                }
            }
        }
        let (untold, is_overdrawn) = {
            let mut outward = self.link.outward.lock();
            outward.has_read();
            (outward.session.untold(), outward.is_overdrawn())
        };
        if is_overdrawn {
            return Err(self.overdrawn());
        }
        if untold.bytes >= ACKNOWLEDGE_BYTES || untold.signatures >= ACKNOWLEDGE_SIGNATURES {
            return self.write(waits);
        }
        if untold.frames > 0 {
            waits.acknowledge.set(ACKNOWLEDGE_WITHIN);
        }
        Ok(())
    }

    /// Takes the complete frames.
    fn take(&mut self, inbox: &mut Vec<u8>) -> Result<(), End> {
        let now = now();
        // A peer that never pauses is also checked each second.
        if now != self.checked || self.link.requests.check.load(Ordering::Acquire) {
            self.check(now)?;
        }
        let before = self.inward.received;
        let taken = self.inward.receive(&self.link, inbox, now);
        let count = self.inward.received - before;
        self.link.received.fetch_add(count, Ordering::Relaxed);
        match taken {
            Ok(length) if length == inbox.len() => inbox.clear(),
            Ok(length) => drop(inbox.drain(..length)),
            Err(Broken::Goodbye {
                reason: GoodbyeReason::ShutDown,
                ..
            }) => {
                return Err(End::PeerGone("the process has shut down"));
            }
            Err(broken @ Broken::Goodbye { .. }) => return Err(End::Lost(broken.to_string())),
            Err(Broken::Overdrawn) => return Err(self.overdrawn()),
            Err(broken) => {
                self.link
                    .refuse(RefusalReason::Malformed, broken.to_string());
                return Err(End::Lost(broken.to_string()));
            }
        }
        Ok(())
    }

    /// The end of a connection whose peer makes this process keep too much for it.
    fn overdrawn(&self) -> End {
        let why = Broken::Overdrawn.to_string();
        self.link.refuse(RefusalReason::OverLimit, why.clone());
        End::Overdrawn(why)
    }

    /// Writes pending bytes as far as the socket takes them.
    fn write(&mut self, waits: &mut Waits) -> Result<(), End> {
        let mut slot = self.link.wire.lock();
        let Some(wire) = slot.as_mut() else {
            return Err(End::Lost("there is no connection".to_owned()));
        };
        loop {
            wire.flush().map_err(|error| End::Lost(error.to_string()))?;
            if wire.wants_write() {
                return Ok(());
            }
            match self.link.outward.lock().fill_in_turn(wire) {
                Filled::Nothing => return Ok(()),
                Filled::Held => {
                    waits.held.set(LONGEST_HOLD);
                    return wire.flush().map_err(|error| End::Lost(error.to_string()));
                }
                Filled::All | Filled::Limit => {}
            }
        }
    }

    /// Checks that the certificates still hold: the peer's, and those of the bound agents.
    fn check(&mut self, now: Timestamp) -> Result<(), End> {
        let is_asked = self.link.requests.check.swap(false, Ordering::AcqRel);
        self.checked = now;
        if let (Some(peer), Some(trust)) = (&self.proved, self.own.trust())
            && let Err(error) = trust.check(peer, now)
        {
            let reason = RefusalReason::from(&error);
            self.link.refuse(reason, error.to_string());
            return Err(match reason {
                RefusalReason::Revoked => End::PeerGone(REVOKED),
                _ => End::Lost(error.to_string()),
            });
        }
        if is_asked {
            self.inward.check(&self.link, now);
        }
        Ok(())
    }

    /// Tells the peer's senders that agents of this process have left.
    pub(crate) fn look_after_agents(&mut self) {
        if self.link.requests.agents_left.swap(false, Ordering::AcqRel) {
            self.inward.agents_left(&self.link);
        }
    }
}
