//! The bus of a process: its agents, the ways to all others, and the one path of a message between them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sealbus_fipa::{AclMessageRef, Aid, Limits, bitefficient};
use sealbus_seal::{Credential, Identity, PlatformName};
use thiserror::Error;
use tokio::runtime::Handle;

use crate::agent::LocalAgent;
use crate::error::UndeliverableReason;
use crate::foreign::{self, StandInReader, StandIns};
use crate::inlet::{ArrivedFrame, FrameInlet, FrameOrigin, LostFrame, Refused, RefusedFrame};
use crate::letter::Post;
use crate::mailbox::{Closed, Mailbox, MailboxLimits, mailbox};
use crate::message::{Provenance, ReceivedMessage};
use crate::outbox::Outbox;
use crate::permission::MessageRules;
use crate::refusal::{Refusal, RefusalLog, RefusalReason};
use crate::resolver::{ProcessEndpoint, Resolver};
use crate::route::{Held, HeldBody, HeldMessage, Route, State};
use crate::search;
use crate::transport::{Transport, TransportError};

/// How a bus behaves.
#[derive(Clone, Debug)]
pub struct BusConfig {
    /// The platform the agents belong to.
    pub platform: PlatformName,
    /// The limits of mailboxes that are attached without limits of their own.
    pub mailbox: MailboxLimits,
    /// How long messages are kept for an agent that is in transit or cannot be looked up.
    pub hold_time: Duration,
    /// How many bytes are kept for one such agent before its senders must wait.
    pub hold_bytes: usize,
    /// How many bytes are kept for all such agents together before their senders must wait.
    pub hold_bytes_in_all: usize,
}

impl BusConfig {
    /// The usual configuration for a platform. Messages are held for 30 s, up to 8 MiB for each agent and 64 MiB for
    /// all.
    pub fn new(platform: PlatformName) -> Self {
        Self {
            platform,
            mailbox: MailboxLimits::default(),
            hold_time: Duration::from_secs(30),
            hold_bytes: 8 << 20,
            hold_bytes_in_all: 64 << 20,
        }
    }
}

/// The counters of a bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages accepted from agents of this process, counted once for each receiver.
    pub accepted: u64,
    /// Messages that could not be delivered.
    pub undeliverable: u64,
    /// Messages that came back because their receiver was moving, and were then sent after the receiver.
    pub returned: u64,
}

/// Why an agent was not attached.
#[derive(Clone, Debug, Error)]
pub enum AttachError {
    /// An agent of that name is already here.
    #[error(
        "an agent named {0} is attached to this process already: choose another name or detach it first"
    )]
    NameTaken(String),
    /// The name is not legal.
    #[error("{name} cannot be an agent of platform {platform}: {reason}")]
    IllegalName {
        /// The name.
        name: String,
        /// The platform of this bus.
        platform: String,
        /// The fault in it.
        reason: String,
    },
    /// The credential is for another agent, or unreadable.
    #[error("the credential given for agent {name} is for {certified}")]
    WrongCredential {
        /// The agent.
        name: String,
        /// The identity in the certificate.
        certified: String,
    },
    /// A transport refused the agent.
    #[error("agent {name} was not attached to the transport {transport}: {source}")]
    Transport {
        /// The agent.
        name: String,
        /// The transport.
        transport: &'static str,
        /// The reason.
        source: TransportError,
    },
}

/// The bus of a process. A clone is another handle to the same bus.
#[derive(Clone)]
pub struct Bus {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: BusConfig,
    pub(crate) ams: Aid,
    pub(crate) agents: RwLock<HashMap<Arc<str>, Arc<LocalAgent>>>,
    pub(crate) routes: RwLock<HashMap<Arc<str>, Arc<Route>>>,
    transport: OnceLock<Arc<dyn Transport>>,
    resolver: OnceLock<Arc<dyn Resolver>>,
    inlet: OnceLock<Arc<dyn FrameInlet>>,
    pub(crate) post: OnceLock<Arc<dyn Post>>,
    /// The other processes of the platform, by their identity.
    processes: Mutex<HashMap<Identity, ProcessEndpoint>>,
    stand_ins: RwLock<Option<Arc<StandIns>>>,
    pub(crate) rules: MessageRules,
    refusals: RefusalLog,
    pub(crate) held_bytes: Arc<AtomicUsize>,
    pub(crate) runtime: Handle,
    /// Why the platform has given up this process.
    pub(crate) given_up: OnceLock<String>,
    /// Messages accepted from agents that have left.
    accepted_before: AtomicU64,
    undeliverable: AtomicU64,
    returned: AtomicU64,
}

/// A handle that does not keep the bus alive.
#[derive(Clone)]
pub struct WeakBus(Weak<Inner>);

impl WeakBus {
    /// The bus, if it is still there.
    pub fn upgrade(&self) -> Option<Bus> {
        self.0.upgrade().map(|inner| Bus { inner })
    }
}

impl Bus {
    /// A bus whose own tasks run on `runtime`. The bus knows only the agents of its process until it is given a
    /// resolver and a transport.
    pub fn new(config: BusConfig, runtime: Handle) -> Self {
        let ams = crate::aid_of(&format!("ams@{}", config.platform));
        Self {
            inner: Arc::new(Inner {
                config,
                ams,
                agents: RwLock::default(),
                routes: RwLock::default(),
                transport: OnceLock::new(),
                resolver: OnceLock::new(),
                inlet: OnceLock::new(),
                post: OnceLock::new(),
                processes: Mutex::default(),
                stand_ins: RwLock::default(),
                rules: MessageRules::default(),
                refusals: RefusalLog::default(),
                held_bytes: Arc::default(),
                runtime,
                given_up: OnceLock::new(),
                accepted_before: AtomicU64::new(0),
                undeliverable: AtomicU64::new(0),
                returned: AtomicU64::new(0),
            }),
        }
    }

    /// A handle that does not keep the bus alive, for transports.
    pub fn downgrade(&self) -> WeakBus {
        WeakBus(Arc::downgrade(&self.inner))
    }

    /// The configuration.
    pub fn config(&self) -> &BusConfig {
        &self.inner.config
    }

    /// Sets the service that keeps messages for absent receivers. Returns false if a service was set before.
    pub fn set_post(&self, post: Arc<dyn Post>) -> bool {
        self.inner.post.set(post).is_ok()
    }

    /// Sets the service that knows where agents are. Returns false if a service was set before.
    pub fn set_resolver(&self, resolver: Arc<dyn Resolver>) -> bool {
        self.inner.resolver.set(resolver).is_ok()
    }

    /// Sets the transport that carries messages to other processes. Returns false if a transport was set before.
    pub fn set_transport(&self, transport: Arc<dyn Transport>) -> bool {
        self.inner.transport.set(transport).is_ok()
    }

    /// Sets the inlet that takes the frames of other processes. The inlet hears at once of the processes already known.
    /// Returns false if an inlet was set before.
    pub fn set_frame_inlet(&self, inlet: Arc<dyn FrameInlet>) -> bool {
        let processes = self.inner.processes.lock();
        if self.inner.inlet.set(inlet.clone()).is_err() {
            return false;
        }
        for process in processes.values() {
            inlet.process_joined(process);
        }
        true
    }

    /// The inlet for the frames of other processes, if there is one.
    pub fn frame_inlet(&self) -> Option<Arc<dyn FrameInlet>> {
        self.inner.inlet.get().cloned()
    }

    /// The runtime on which this process's tasks run.
    pub fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// The platform has learnt of another process, or of a new address of a known process.
    pub fn process_joined(&self, process: ProcessEndpoint) {
        // The lock keeps the inlet's news in order.
        let mut processes = self.inner.processes.lock();
        if let Some(inlet) = self.inner.inlet.get()
            && processes.get(&process.identity) != Some(&process)
        {
            inlet.process_joined(&process);
        }
        processes.insert(process.identity.clone(), process);
    }

    /// A process has left the platform.
    pub fn process_left(&self, process: &Identity) {
        let mut processes = self.inner.processes.lock();
        if processes.remove(process).is_some()
            && let Some(inlet) = self.inner.inlet.get()
        {
            inlet.process_left(process);
        }
    }

    /// The other processes of the platform that this process has heard of.
    pub fn processes(&self) -> Vec<ProcessEndpoint> {
        self.inner.processes.lock().values().cloned().collect()
    }

    /// Attaches an agent: from now on the agent can send, and messages to `name` come to the mailbox.
    ///
    /// `credential` proves the agent's name to other processes.
    ///
    /// # Errors
    /// [`AttachError`]; then nothing has changed.
    pub fn attach(
        &self,
        name: &str,
        credential: Option<Arc<Credential>>,
        limits: Option<MailboxLimits>,
    ) -> Result<(Outbox, Mailbox), AttachError> {
        self.attach_moved(name, credential, limits, Vec::new())
    }

    /// Attaches an agent that has moved here from another process. The messages it had not read there come first in its
    /// mailbox.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_moved(
        &self,
        name: &str,
        credential: Option<Arc<Credential>>,
        limits: Option<MailboxLimits>,
        unread: Vec<ReceivedMessage>,
    ) -> Result<(Outbox, Mailbox), AttachError> {
        self.check_name(name)?;
        if let Some(credential) = &credential {
            check_credential(name, credential)?;
        }
        let (sender, reader) = mailbox(limits.unwrap_or(self.inner.config.mailbox));
        for message in unread {
            // No other task knows the mailbox yet, so it is open.
            let _ = sender.push_accepted(message);
        }
        let (bus, receiver) = (self.downgrade(), Arc::<str>::from(name));
        sender.on_unread(Box::new(move |messages| {
            if let Some(bus) = bus.upgrade() {
                bus.never_read(&receiver, &messages);
            }
        }));
        let agent = Arc::new(LocalAgent::new(name, sender, credential));
        {
            let mut agents = self.inner.agents.write();
            if agents.contains_key(name) {
                return Err(AttachError::NameTaken(name.to_owned()));
            }
            agents.insert(agent.name().clone(), agent.clone());
        }
        if let Some(transport) = self.inner.transport.get()
            && let Err(source) = transport.attach(&agent)
        {
            self.inner.agents.write().remove(name);
            return Err(AttachError::Transport {
                name: name.to_owned(),
                transport: transport.name(),
                source,
            });
        }
        self.arrived(name);
        Ok((Outbox::new(self.clone(), agent), reader))
    }

    fn check_name(&self, name: &str) -> Result<(), AttachError> {
        let platform = &self.inner.config.platform;
        let illegal = |reason: String| AttachError::IllegalName {
            name: name.chars().take(100).collect(),
            platform: platform.to_string(),
            reason,
        };
        match Identity::from_agent_name(name) {
            Ok(identity) if identity.platform() == platform => Ok(()),
            Ok(identity) => Err(illegal(format!(
                "it belongs to platform {}",
                identity.platform()
            ))),
            Err(error) => Err(illegal(error.to_string())),
        }
    }

    /// Gives an agent a new credential, for example after its certificate was renewed. Open connections show the new
    /// credential at once.
    ///
    /// # Errors
    /// If the credential is for another agent.
    pub fn set_credential(
        &self,
        name: &str,
        credential: Arc<Credential>,
    ) -> Result<(), AttachError> {
        check_credential(name, &credential)?;
        if let Some(agent) = self.agent(name) {
            agent.set_credential(credential);
            if let Some(transport) = self.inner.transport.get() {
                transport.credential_changed(&agent);
            }
        }
        Ok(())
    }

    /// Lets `gateway`, an attached agent, speak for the agents of other platforms from now on. Each foreign agent that
    /// is written to gets a mailbox with these limits, and `reader` is given that mailbox. There are at most `most`
    /// such mailboxes at a time.
    ///
    /// Returns false if no agent of that name is attached here.
    pub fn open_gateway(
        &self,
        gateway: &str,
        limits: MailboxLimits,
        most: usize,
        reader: StandInReader,
    ) -> bool {
        let Some(agent) = self.agent(gateway) else {
            return false;
        };
        let stand_ins = StandIns::new(agent, limits, most, reader);
        *self.inner.stand_ins.write() = Some(Arc::new(stand_ins));
        self.gateway_changed();
        true
    }

    /// Ends the stand-in for an agent of another platform. Its reader keeps the messages still in the mailbox. The next
    /// message to that agent makes a new stand-in.
    pub fn retire_stand_in(&self, name: &str) {
        let stand_ins = self.inner.stand_ins.read().clone();
        let Some(agent) = stand_ins.and_then(|stand_ins| stand_ins.retire(name)) else {
            return;
        };
        if let Some(transport) = self.inner.transport.get() {
            transport.detach(&agent);
        }
    }

    /// The gateway has moved: messages to other platforms look for it anew.
    pub fn gateway_changed(&self) {
        let platform = &self.inner.config.platform;
        let routes = self.inner.routes.read();
        let names: Vec<Arc<str>> = routes
            .keys()
            .filter(|name| foreign::is_foreign(name, platform))
            .cloned()
            .collect();
        drop(routes);
        for name in names {
            self.arrived(&name);
        }
    }

    /// For transports: the agent whose mailbox takes messages to `name` in this process. This is the agent itself, or
    /// the stand-in for an agent of another platform.
    pub fn receiver(&self, name: &str) -> Option<Arc<LocalAgent>> {
        self.agent(name).or_else(|| {
            if !foreign::is_foreign(name, &self.inner.config.platform) {
                return None;
            }
            let stand_ins = self.inner.stand_ins.read().clone();
            stand_ins?.get(name)
        })
    }

    /// For transports: the provenance of `message` if `proved` may speak for its sender; see [`Outbox::relay`].
    pub fn spoken_for(&self, proved: &str, message: &AclMessageRef<'_>) -> Option<Provenance> {
        foreign::spoken_for(proved, &self.inner.config.platform, message)
    }

    fn stand_ins_of(&self, gateway: &str) -> Vec<Arc<LocalAgent>> {
        let stand_ins = self.inner.stand_ins.read();
        let stand_ins = stand_ins.as_ref().filter(|it| it.is_of(gateway));
        stand_ins.map(|it| it.all()).unwrap_or_default()
    }

    /// Takes an agent out of this process. Its reader keeps the messages still in its mailbox. Later messages go back
    /// to their senders, or follow the agent if its mailbox was [drained](Mailbox::drain) first.
    pub fn detach(&self, name: &str) {
        self.take_off(name, true);
    }

    /// Gives an agent a new mailbox with these messages, after its former one was emptied and closed for a move that did
    /// not come about. Its subscriptions go on.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_again(
        &self,
        name: &str,
        unread: Vec<ReceivedMessage>,
    ) -> Result<(Outbox, Mailbox), AttachError> {
        let credential = self.agent(name).and_then(|agent| agent.credential());
        self.take_off(name, false);
        self.attach_moved(name, credential, None, unread)
    }

    /// Takes an agent out of this process, which leaves or is attached again.
    fn take_off(&self, name: &str, leaves: bool) {
        let Some(agent) = self.inner.agents.write().remove(name) else {
            return;
        };
        agent.mailbox().close(Closed::Gone);
        for stand_in in self.stand_ins_of(name) {
            self.retire_stand_in(stand_in.name());
        }
        self.inner
            .stand_ins
            .write()
            .take_if(|stand_ins| stand_ins.is_of(name));
        self.forget_way_to(&agent);
        if leaves && let Some(inlet) = self.inner.inlet.get() {
            inlet.agent_left(name);
        }
        self.inner
            .accepted_before
            .fetch_add(agent.sent(), Ordering::Relaxed);
        if let Some(transport) = self.inner.transport.get() {
            transport.detach(&agent);
        }
    }

    /// Makes the route to an agent that has left keep neither the agent nor the contents of its mailbox.
    fn forget_way_to(&self, agent: &Arc<LocalAgent>) {
        let mut routes = self.inner.routes.write();
        let Some(route) = routes.get(agent.name()).cloned() else {
            return;
        };
        let mut state = route.state.lock();
        if let State::Local(known) = &*state
            && Arc::ptr_eq(known, agent)
        {
            *state = State::Ended;
            routes.remove(agent.name());
            drop(state);
            route.gate.open_all();
        }
    }

    /// The agent of this process with that name.
    pub fn agent(&self, name: &str) -> Option<Arc<LocalAgent>> {
        self.inner.agents.read().get(name).cloned()
    }

    /// All agents of this process.
    pub fn agents(&self) -> Vec<Arc<LocalAgent>> {
        self.inner.agents.read().values().cloned().collect()
    }

    /// The platform has news of where `agent` is. The bus tries messages held for the agent again at once. Messages on
    /// the way to its former process come back and go to the new process, in order.
    pub fn location_changed(&self, agent: &str) {
        if self.agent(agent).is_none() {
            self.arrived(agent);
        }
    }

    /// An agent has come to this process, or has moved elsewhere. Messages to it that took another way follow it, in
    /// order.
    fn arrived(&self, name: &str) {
        let Some(route) = self.inner.routes.read().get(name).cloned() else {
            return;
        };
        let recalled = {
            let mut state = route.state.lock();
            match &*state {
                State::Held(_) | State::Ended => None,
                State::Local(_) => {
                    let held = Held::new(self, false);
                    search::start(self, &route, &held);
                    *state = State::Held(held);
                    None
                }
                State::Remote(destination) => {
                    let destination = Arc::clone(destination);
                    let held = Held::new(self, true);
                    search::start(self, &route, &held);
                    *state = State::Held(held);
                    Some(destination)
                }
            }
        };
        if let Some(destination) = recalled {
            destination.recall();
        }
        route.news.notify_one();
    }

    /// The log of refused attempts.
    pub fn refusals(&self) -> &RefusalLog {
        &self.inner.refusals
    }

    /// The work done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            accepted: self.inner.accepted_before.load(Ordering::Relaxed)
                + self.agents().iter().map(|agent| agent.sent()).sum::<u64>(),
            undeliverable: self.inner.undeliverable.load(Ordering::Relaxed),
            returned: self.inner.returned.load(Ordering::Relaxed),
        }
    }

    /// For transports: notes and logs a refusal.
    pub fn refused(
        &self,
        tried_by: &str,
        proved: Option<String>,
        receiver: Option<&str>,
        reason: RefusalReason,
        explanation: String,
    ) {
        self.inner.refusals.note(Refusal {
            time: SystemTime::now(),
            tried_by: tried_by.to_owned(),
            proved,
            receiver: receiver.map(str::to_owned),
            reason,
            explanation,
        });
    }

    /// For transports: whether frames of other processes are taken here.
    pub fn takes_frames(&self) -> bool {
        self.inner.inlet.get().is_some()
    }

    /// For transports: frames have come from other processes, oldest first. Their origin is proved as far as the
    /// security level goes. `frames` is empty afterwards. Returns the refused frames, which are already noted and
    /// logged; the transport must tell the sending process.
    pub fn take_frames(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        let refused: Vec<RefusedFrame> = match self.inner.inlet.get() {
            Some(inlet) => inlet.take(frames),
            None => {
                let refuse = |(place, frame)| RefusedFrame {
                    place,
                    frame,
                    refused: Refused {
                        reason: RefusalReason::NotPermitted,
                        explanation: "this process takes no frames of other processes".to_owned(),
                    },
                };
                frames.drain(..).enumerate().map(refuse).collect()
            }
        };
        for RefusedFrame { frame, refused, .. } in &refused {
            let tried_by = match &frame.origin {
                FrameOrigin::Agent(name) => name.to_string(),
                FrameOrigin::Process => frame.process.to_string(),
            };
            let proved = match &frame.provenance {
                Provenance::Proved(verified) => verified.identity().to_string(),
                Provenance::Vouched(identity) => identity.to_string(),
                _ => frame.process.to_string(),
            };
            self.refused(
                &tried_by,
                Some(proved),
                None,
                refused.reason,
                refused.explanation.clone(),
            );
        }
        refused
    }

    /// For transports: frames that were accepted for `process` were not taken there. `frames` holds them, oldest first.
    pub fn frames_lost(
        &self,
        process: &Identity,
        frames: Vec<LostFrame>,
        reason: &UndeliverableReason,
    ) {
        if let Some(inlet) = self.inner.inlet.get() {
            inlet.lost(process, frames, reason);
        }
    }

    /// For transports: a message that was accepted from `sender` did not reach `receiver`. The bus tells the sender.
    pub fn undeliverable(
        &self,
        sender: &str,
        receiver: &str,
        payload: &[u8],
        reason: &UndeliverableReason,
    ) {
        match bitefficient::decode_ref(payload, &Limits::default()) {
            Ok(lost) => self.notify_sender(sender, &lost, receiver, reason),
            // Only messages that this process encoded come here.
            Err(error) => {
                tracing::error!(sender, receiver, %error, "an undeliverable message does not decode")
            }
        }
    }

    pub(crate) fn notify_sender(
        &self,
        sender: &str,
        lost: &AclMessageRef<'_>,
        receiver: &str,
        reason: &UndeliverableReason,
    ) {
        self.inner.undeliverable.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(target: "sealbus::undeliverable", sender, receiver, %reason, "message not delivered");
        let Some(agent) = self.agent(sender) else {
            return;
        };
        if let Some(notice) =
            crate::failure::failure_notice(&self.inner.ams, lost, receiver, reason)
        {
            agent.mailbox().push_notice(ReceivedMessage::shared(
                Arc::new(notice),
                Provenance::Platform,
            ));
        }
    }

    /// Tells senders of this process that `receiver` has ended without reading their messages.
    fn never_read(&self, receiver: &str, messages: &[ReceivedMessage]) {
        let gateway = format!("{}@{}", foreign::GATEWAY, self.inner.config.platform);
        for message in messages {
            let view = message.message();
            let sender = match message.provenance() {
                Provenance::Foreign(_) => Some(&*gateway),
                _ => view.sender().map(|sender| sender.name()),
            };
            if let Some(sender) = sender {
                self.notify_sender(sender, &view, receiver, &UndeliverableReason::ReceiverGone);
            }
        }
    }

    /// For transports: `messages` holds all messages to `receiver` that a destination had accepted and not delivered,
    /// in order. The bus sends them to the receiver's present place, before anything newer.
    ///
    /// `denied`: the process does not know the agent. Otherwise the process has sent the agent on its way.
    ///
    /// `settled` is called once nothing newer can go before these messages. Until then the destination must answer
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
        for message in messages {
            // A sender that has left in the meantime needs no answer.
            if let Some(sender) = self.agent(&message.sender) {
                held.push(HeldMessage {
                    sender,
                    body: HeldBody::Encoded(message.payload),
                });
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
                    let mut waiting = Held::new(self, false);
                    waiting.push_front_all(held);
                    search::start(self, &route, &waiting);
                    *state = State::Held(waiting);
                }
                State::Ended => continue,
            }
            settled();
            drop(state);
            route.news.notify_one();
            return;
        }
    }

    /// Whether messages to `receiver` are held. If not, its route is forgotten, and the next message looks for it anew.
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
                *state = State::Ended;
                routes.remove(receiver);
                drop(state);
                route.gate.open_all();
                false
            }
        }
    }

    /// The transport to other processes, if there is one.
    pub fn transport(&self) -> Option<&Arc<dyn Transport>> {
        self.inner.transport.get()
    }

    pub(crate) fn resolver(&self) -> Option<&Arc<dyn Resolver>> {
        self.inner.resolver.get()
    }

    /// The route to `name`. A new route begins by looking for the agent.
    pub(crate) fn route(&self, name: &str) -> Arc<Route> {
        if let Some(route) = self.inner.routes.read().get(name) {
            return route.clone();
        }
        let mut routes = self.inner.routes.write();
        if let Some(route) = routes.get(name) {
            return route.clone();
        }
        let name: Arc<str> = name.into();
        let local = self.receiver(&name);
        let state = local.map_or_else(|| State::Held(Held::new(self, false)), State::Local);
        let route = Arc::new(Route::new(name.clone(), state));
        routes.insert(name, route.clone());
        if let State::Held(held) = &*route.state.lock() {
            search::start(self, &route, held);
        }
        route
    }
}

/// A message that came back to the bus; see [`Bus::returned`].
#[derive(Clone, Debug)]
pub struct Returned {
    /// The sending agent, of this process.
    pub sender: Arc<str>,
    /// The message's bit-efficient encoding.
    pub payload: Bytes,
}

fn check_credential(name: &str, credential: &Credential) -> Result<(), AttachError> {
    let wrong = |certified: String| AttachError::WrongCredential {
        name: name.to_owned(),
        certified,
    };
    let certificate = credential
        .certificate()
        .map_err(|error| wrong(error.to_string()))?;
    if certificate.identity().is_agent_named(name) {
        Ok(())
    } else {
        Err(wrong(certificate.identity().to_string()))
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("platform", &self.inner.config.platform)
            .finish_non_exhaustive()
    }
}
