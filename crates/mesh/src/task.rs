//! The task of a link: it gets connections, by dialling or because the peer dials, and moves bytes over them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_bus::RefusalReason;
use sealbus_seal::{Timestamp, VerifiedIdentity};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::frame::{Frame, GoodbyeReason, Hello, PREFACE, PROTOCOL_VERSION, RandomId};
use crate::greeting::{Greeted, GreetingError, Opened, now, say_goodbye};
use crate::inward::Inward;
use crate::link::Link;
use crate::own_process::OwnProcess;
use crate::session::Agreement;

/// The reason for the end of a session with a revoked process.
pub(crate) const REVOKED: &str = "the process was revoked: it has ended, or its agents have moved";

pub(crate) struct Task {
    pub(crate) own: Arc<OwnProcess>,
    pub(crate) link: Arc<Link>,
    pub(crate) inward: Inward,
    pub(crate) connections: mpsc::Receiver<Greeted>,
    /// The peer has given up its connections with this number or a lower one, except the last connection.
    pub(crate) peer_number: u64,
    pub(crate) peer_incarnation: Option<RandomId>,
    /// The identity that the peer proved on the last connection.
    pub(crate) proved: Option<VerifiedIdentity>,
    /// When the identity was last checked.
    pub(crate) checked: Timestamp,
}

/// How a connection ended.
pub(crate) enum End {
    /// The connection broke.
    Lost(String),
    /// The peer made another connection.
    Replaced(Box<Greeted>),
    /// A connection with this process's new certificate is ready.
    Renewed(Box<Opened>),
    /// The peer makes this process keep too much for it. The session ends, and all that is kept for it is dropped.
    Overdrawn(String),
    /// The peer has shut down, or is gone for good.
    PeerGone(&'static str),
    /// This process ends.
    ShutDown,
}

/// The next state of the task.
enum Next {
    Connection(Established),
    ShutDown,
}

pub(crate) struct Established {
    pub(crate) peer: Option<VerifiedIdentity>,
    pub(crate) inbox: Vec<u8>,
}

impl Task {
    pub(crate) fn new(
        own: Arc<OwnProcess>,
        link: Arc<Link>,
        inward: Inward,
        connections: mpsc::Receiver<Greeted>,
    ) -> Self {
        Self {
            own,
            link,
            inward,
            connections,
            peer_number: 0,
            peer_incarnation: None,
            proved: None,
            checked: Timestamp::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut next = self.connect().await;
        while let Next::Connection(established) = next {
            self.link.connections.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(peer = %self.link.peer, number = self.link.last_number(), "connected");
            let end = self.serve(established).await;
            self.disconnect(&end);
            next = match end {
                End::Lost(why) => {
                    tracing::debug!(peer = %self.link.peer, why, "connection lost");
                    self.connect().await
                }
                End::PeerGone(why) => {
                    self.lose(why, true);
                    self.connect().await
                }
                End::Overdrawn(why) => {
                    self.lose(&why, true);
                    self.connect().await
                }
                End::Replaced(greeted) => match self.accept(*greeted) {
                    Some(established) => Next::Connection(established),
                    None => self.connect().await,
                },
                End::Renewed(opened) => match self.greet(*opened).await {
                    Ok(established) => Next::Connection(established),
                    Err(error) => {
                        tracing::debug!(peer = %self.link.peer, %error, "the renewed connection failed");
                        self.connect().await
                    }
                },
                End::ShutDown => Next::ShutDown,
            };
        }
    }

    // ---- getting a connection ----

    /// Waits until there is a connection: the peer's, or the task's own if there is something to send.
    async fn connect(&mut self) -> Next {
        let (first_pause, longest_pause) = self.link.config.redial;
        let mut pause = first_pause;
        let mut needed_since: Option<Instant> = None;
        let mut last: Option<String> = None;
        loop {
            if self.link.requests.end.load(Ordering::Acquire) {
                return Next::ShutDown;
            }
            if self.link.requests.forget.swap(false, Ordering::AcqRel) {
                self.lose("the platform says that it is gone", true);
            }
            if self.link.requests.check.swap(false, Ordering::AcqRel) {
                if self.is_peer_revoked() {
                    self.lose(REVOKED, true);
                }
                self.inward.check(&self.link, now());
            }
            self.look_after_agents();
            self.link.outward.lock().heard();
            if !self.link.outward.lock().needs_connection() {
                needed_since = None;
                last = None;
                pause = first_pause;
                tokio::select! {
                    greeted = self.connections.recv() => match greeted {
                        Some(greeted) => if let Some(established) = self.accept(greeted) {
                            return Next::Connection(established);
                        },
                        None => return Next::ShutDown,
                    },
                    () = self.link.woken() => {}
                }
                continue;
            }
            let since = *needed_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.link.config.give_up {
                let last = last.as_deref().unwrap_or("it was not tried");
                tracing::warn!(peer = %self.link.peer, last, "given up: the process cannot be reached");
                self.lose(last, false);
                continue;
            }
            match self.dial_or_accept(since).await {
                Ok(next) => return next,
                Err(Some(error)) => {
                    tracing::debug!(peer = %self.link.peer, %error, "no connection yet");
                    if let GreetingError::Refused {
                        reason,
                        explanation,
                    } = &error
                    {
                        self.link.refuse(*reason, explanation.clone());
                        if *reason == RefusalReason::Revoked {
                            self.lose(REVOKED, true);
                        }
                    }
                    if let GreetingError::Disowned = &error {
                        self.lose(&error.to_string(), false);
                    }
                    // The last dial gets only the remaining time. Its failure does not replace the peer's answer.
                    let was_cut_off = matches!(error, GreetingError::TooSlow)
                        && since.elapsed() >= self.link.config.give_up;
                    if !was_cut_off || last.is_none() {
                        last = Some(error.to_string());
                    }
                }
                Err(None) => continue,
            }
            // Both sides may be dialling. Their pauses differ, so that one side goes first.
            let jitter = pause.mul_f64(f64::from(self.own.incarnation[0]) / 512.0);
            let end_of_pause = Instant::now() + pause + jitter;
            pause = (pause * 2).min(longest_pause);
            let arrived = tokio::select! {
                greeted = self.connections.recv() => greeted,
                () = sleep_until(end_of_pause) => None,
                () = wait_for_request(&self.link) => None,
            };
            if let Some(greeted) = arrived
                && let Some(established) = self.accept(greeted)
            {
                return Next::Connection(established);
            }
        }
    }

    /// Dials, unless the peer connects first. `Err(None)`: look at the requests again.
    async fn dial_or_accept(&mut self, since: Instant) -> Result<Next, Option<GreetingError>> {
        let config = self.link.config.clone();
        let patience = config
            .handshake_time
            .min((since + config.give_up).saturating_duration_since(Instant::now()));
        self.link.number_next();
        let hello = self.hello();
        let address = *self.link.address.lock();
        let own = self.own.clone();
        let peer = self.link.peer.clone();
        let mut dial = pin!(async move {
            let dialled = async {
                let opened = own.open(address, &peer).await?;
                opened.dial(&peer, &hello.as_hello(&own)).await
            };
            timeout(patience, dialled)
                .await
                .unwrap_or(Err(GreetingError::TooSlow))
        });
        let link = self.link.clone();
        loop {
            tokio::select! {
                dialled = &mut dial => {
                    let established = dialled.and_then(|greeted| self.answered(greeted));
                    return established.map(Next::Connection).map_err(Some);
                }
                greeted = self.connections.recv() => {
                    let Some(mut greeted) = greeted else { return Ok(Next::ShutDown) };
                    // Both sides dial at once: the connection of the side with the smaller name is used.
                    let is_same_process = self.peer_incarnation.is_none_or(|known| known == greeted.greeting.incarnation);
                    if is_same_process && self.own.config.process < self.link.peer
                        && greeted.greeting.connection <= self.link.last_number()
                    {
                        say_goodbye(&mut greeted.wire, GoodbyeReason::Replaced, "this process is dialling itself", true);
                    } else if let Some(established) = self.accept(greeted) {
                        return Ok(Next::Connection(established));
                    }
                }
                () = wait_for_request(&link) => return Err(None),
            }
        }
    }

    fn hello(&self) -> OwnHello {
        let mut fields = empty_hello();
        self.link.outward.lock().session.dial(&mut fields);
        OwnHello::new(&fields, self.link.last_number())
    }

    async fn greet(&mut self, opened: Opened) -> Result<Established, GreetingError> {
        self.link.number_next();
        let hello = self.hello();
        let hello = hello.as_hello(&self.own);
        let dialled = opened.dial(&self.link.peer, &hello);
        let greeted = timeout(self.link.config.handshake_time, dialled)
            .await
            .unwrap_or(Err(GreetingError::TooSlow))?;
        self.answered(greeted)
    }

    /// The peer has answered the hello of this process.
    fn answered(&mut self, greeted: Greeted) -> Result<Established, GreetingError> {
        let Greeted {
            mut wire,
            greeting,
            peer,
            proof,
            inbox,
        } = greeted;
        if greeting.level != self.link.config.security.level().code() {
            let text = "the two processes are at different security levels";
            say_goodbye(&mut wire, GoodbyeReason::LevelMismatch, text, false);
            return Err(GreetingError::Refused {
                reason: RefusalReason::LevelMismatch,
                explanation: text.to_owned(),
            });
        }
        let agreement = {
            let mut outward = self.link.outward.lock();
            outward.session.answered(&greeting.hello())
        };
        match agreement {
            Ok(Agreement::Resumed | Agreement::Started) => {}
            Ok(Agreement::Lost) | Err(_) => {
                self.lose("the process has started anew", true);
                let begun = self.link.outward.lock().session.answered(&greeting.hello());
                // After starting over, only a new session can begin. A peer that says otherwise is dialled again.
                if !matches!(begun, Ok(Agreement::Started)) {
                    let text = "the session is unknown";
                    say_goodbye(&mut wire, GoodbyeReason::Violation, text, false);
                    return Err(GreetingError::Refused {
                        reason: RefusalReason::Malformed,
                        explanation: text.to_owned(),
                    });
                }
            }
        }
        self.link.note_number(greeting.connection);
        // The peer gave up its own dialling for this connection.
        self.peer_number = greeting.connection;
        self.peer_incarnation = Some(greeting.incarnation);
        wire.number = self.own.next_connection();
        Ok(self.begin(wire, peer, proof, inbox, greeting.largest_message))
    }

    /// The peer has dialled. Returns `None` if its connection is not wanted.
    fn accept(&mut self, greeted: Greeted) -> Option<Established> {
        let Greeted {
            mut wire,
            greeting,
            peer,
            proof,
            inbox,
        } = greeted;
        let own_level = self.link.config.security.level();
        if greeting.level != own_level.code() {
            let text = format!("this process is at level {own_level}, the other one is not");
            say_goodbye(&mut wire, GoodbyeReason::LevelMismatch, &text, true);
            self.link.refuse(RefusalReason::LevelMismatch, text);
            return None;
        }
        let is_same = self.peer_incarnation == Some(greeting.incarnation);
        if is_same && greeting.connection <= self.peer_number {
            // The hello describes an earlier state of the session. To believe it would mean taking the process for a
            // new one.
            let text = "the process has dialled again, or answered, since";
            say_goodbye(&mut wire, GoodbyeReason::Replaced, text, true);
            return None;
        }
        self.link.note_number(greeting.connection);
        self.peer_number = greeting.connection;
        self.peer_incarnation = Some(greeting.incarnation);
        let fresh = crate::token()?;
        let hello = greeting.hello();
        let agreement = self.link.outward.lock().session.accept(&hello);
        let agreement = match agreement {
            Ok(agreement @ (Agreement::Resumed | Agreement::Started)) => agreement,
            Ok(Agreement::Lost) | Err(_) => {
                self.lose("the process has started anew", true);
                Agreement::Started
            }
        };
        let mut fields = empty_hello();
        self.link.outward.lock().session.accepted(
            agreement,
            greeting.incarnation,
            fresh,
            &mut fields,
        );
        let answer = OwnHello::new(&fields, self.link.last_number());
        let mut out = PREFACE.to_vec();
        Frame::Hello(answer.as_hello(&self.own)).encode(0, &mut out);
        wire.put(&out);
        wire.number = self.own.next_connection();
        Some(self.begin(wire, peer, proof, inbox, greeting.largest_message))
    }

    fn begin(
        &mut self,
        wire: crate::wire::Wire,
        peer: Option<VerifiedIdentity>,
        proof: Option<crate::outward::ConnectionProof>,
        inbox: Vec<u8>,
        largest_message: u32,
    ) -> Established {
        let mut slot = self.link.wire.lock();
        let mut outward = self.link.outward.lock();
        self.inward.connected(outward.session.due(), peer.clone());
        let largest = usize::try_from(largest_message).unwrap_or(usize::MAX);
        let too_large = outward.connected(wire.number, proof, largest);
        *slot = Some(wire);
        drop(outward);
        drop(slot);
        self.link.act(too_large);
        self.link.flush();
        Established { peer, inbox }
    }

    fn disconnect(&mut self, end: &End) {
        let wire = self.link.wire.lock().take();
        self.link.outward.lock().disconnected();
        if let Some(mut wire) = wire {
            let (reason, text) = match end {
                End::ShutDown => (GoodbyeReason::ShutDown, "this process ends".to_owned()),
                End::Replaced(_) | End::Renewed(_) => (
                    GoodbyeReason::Replaced,
                    "there is a newer connection".to_owned(),
                ),
                End::Lost(why) | End::Overdrawn(why) => (GoodbyeReason::Violation, why.clone()),
                End::PeerGone(_) => return,
            };
            say_goodbye(&mut wire, reason, &text, false);
        }
    }

    /// Gives up the session and tells the senders.
    fn lose(&mut self, why: &str, is_reachable: bool) {
        let given_up = self.own.given_up.get();
        let (why, is_reachable) = given_up.map_or((why, is_reachable), |why| (why, false));
        let actions = self.link.outward.lock().lose(why, is_reachable);
        self.inward.reset();
        self.link.act(actions);
    }

    /// Whether the peer can never come back: a process gets a new certificate, under another name, each time it starts.
    fn is_peer_revoked(&self) -> bool {
        match (&self.proved, self.own.trust()) {
            (Some(peer), Some(trust)) => matches!(
                trust
                    .check(peer, now())
                    .map_err(|error| RefusalReason::from(&error)),
                Err(RefusalReason::Revoked)
            ),
            _ => false,
        }
    }
}

/// Resolves when the task has a request that a connection in the making does not answer.
async fn wait_for_request(link: &Link) {
    loop {
        let requests = &link.requests;
        if requests.end.load(Ordering::Acquire)
            || requests.forget.load(Ordering::Acquire)
            || requests.check.load(Ordering::Acquire)
        {
            return;
        }
        link.woken().await;
    }
}

/// This process's statement about itself and the session.
#[derive(Clone)]
struct OwnHello {
    resumed: bool,
    session: RandomId,
    given_up: RandomId,
    received: u64,
    connection: u64,
}

impl OwnHello {
    fn new(fields: &Hello<'_>, connection: u64) -> Self {
        Self {
            resumed: fields.resumed,
            session: fields.session,
            given_up: fields.given_up,
            received: fields.received,
            connection,
        }
    }

    fn as_hello<'a>(&self, own: &'a OwnProcess) -> Hello<'a> {
        Hello {
            version: PROTOCOL_VERSION,
            level: own.config.security.level().code(),
            resumed: self.resumed,
            incarnation: own.incarnation,
            session: self.session,
            given_up: self.given_up,
            received: self.received,
            connection: self.connection,
            // Limited by the field of a message frame.
            largest_message: u32::try_from(own.config.largest_message).unwrap_or(u32::MAX),
            process: &own.process_uri,
            address: &own.address_text,
        }
    }
}

fn empty_hello() -> Hello<'static> {
    Hello {
        version: PROTOCOL_VERSION,
        level: 0,
        resumed: false,
        incarnation: [0; 16],
        session: [0; 16],
        given_up: [0; 16],
        received: 0,
        connection: 0,
        largest_message: 0,
        process: "",
        address: "",
    }
}
