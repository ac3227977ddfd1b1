//! The bus of a process: its agents, the ways to all others, and the one path of a message between them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use sealbus_fipa::{AclMessageRef, Aid, bitefficient};
use sealbus_proof::{BatchKey, Hash};
use sealbus_seal::permission::Permissions;
use sealbus_seal::{Identity, PlatformName, SecurityLevel, VerifiedIdentity};
use tokio::runtime::Handle;

use crate::agent::LocalAgent;
use crate::error::UndeliverableReason;
use crate::failure::failure_notice;
use crate::foreign::{self, StandIns};
use crate::inlet::{ArrivedFrame, FrameInlet, FrameOrigin, LostFrame, RefusedFrame};
use crate::letter::Post;
use crate::limits::OWN_ENCODING;
use crate::mailbox::MailboxLimits;
use crate::message::{Provenance, ReceivedMessage};
use crate::permission::MessageRules;
use crate::refusal::{ExplainedRefusal, LogShares, Refusal, RefusalLog, RefusalReason};
use crate::resolver::{ProcessEndpoint, Resolver};
use crate::route::Route;
use crate::sealed::Sealer;
use crate::tap::Tap;
use crate::transport::Transport;

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
    /// Messages that arrived at agents of this process, failure notices included.
    pub received: u64,
    /// Messages that could not be delivered.
    pub undeliverable: u64,
    /// Messages that came back because their receiver was moving, and were then sent after the receiver.
    pub returned: u64,
}

/// The bus of a process. A clone is another handle to the same bus.
#[derive(Clone)]
pub struct Bus {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: BusConfig,
    pub(crate) ams: Aid,
    /// The key with which this process signs for all its agents.
    pub(crate) batch_key: Arc<BatchKey>,
    pub(crate) agents: RwLock<HashMap<Arc<str>, Arc<LocalAgent>>>,
    pub(crate) routes: RwLock<HashMap<Arc<str>, Arc<Route>>>,
    pub(crate) transport: OnceLock<Arc<dyn Transport>>,
    /// Whether the transport is at level `signed` or above.
    signs: AtomicBool,
    /// Whether agents seal all their messages to each other.
    pub(crate) seals_all: AtomicBool,
    pub(crate) resolver: OnceLock<Arc<dyn Resolver>>,
    pub(crate) inlet: OnceLock<Arc<dyn FrameInlet>>,
    pub(crate) post: OnceLock<Arc<dyn Post>>,
    pub(crate) sealer: OnceLock<Arc<dyn Sealer>>,
    /// The other processes of the platform, by their identity.
    pub(crate) processes: Mutex<HashMap<Identity, ProcessEndpoint>>,
    pub(crate) stand_ins: RwLock<Option<Arc<StandIns>>>,
    pub(crate) rules: MessageRules,
    pub(crate) refusals: RefusalLog,
    pub(crate) tap: Arc<Tap>,
    pub(crate) held_bytes: Arc<AtomicUsize>,
    pub(crate) runtime: Handle,
    /// Why the platform has given up this process.
    pub(crate) given_up: OnceLock<String>,
    /// Messages accepted from agents that have left.
    pub(crate) accepted_before: AtomicU64,
    /// Messages that arrived at agents that have left.
    pub(crate) received_before: AtomicU64,
    pub(crate) undeliverable: AtomicU64,
    /// The shares of the log for lines that others cause.
    lines: Mutex<LogShares>,
    pub(crate) returned: AtomicU64,
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
        let batch_key = BatchKey::new(config.platform.clone(), SecurityLevel::Signed);
        Self {
            inner: Arc::new(Inner {
                config,
                ams,
                batch_key: Arc::new(batch_key),
                agents: RwLock::default(),
                routes: RwLock::default(),
                transport: OnceLock::new(),
                signs: AtomicBool::new(false),
                seals_all: AtomicBool::new(false),
                resolver: OnceLock::new(),
                inlet: OnceLock::new(),
                post: OnceLock::new(),
                sealer: OnceLock::new(),
                processes: Mutex::default(),
                stand_ins: RwLock::default(),
                rules: MessageRules::default(),
                refusals: RefusalLog::default(),
                tap: Arc::default(),
                held_bytes: Arc::default(),
                runtime,
                given_up: OnceLock::new(),
                accepted_before: AtomicU64::new(0),
                received_before: AtomicU64::new(0),
                undeliverable: AtomicU64::new(0),
                lines: Mutex::default(),
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
        let signs = transport.capabilities().level >= SecurityLevel::Signed;
        self.inner.signs.fetch_or(signs, Ordering::Relaxed);
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
        // The lock keeps the news for the inlet in order.
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

    /// For transports: the agent whose mailbox takes messages to `name` in this process. This is the agent itself, or
    /// the stand-in for an agent of another platform. `writer` is the process that wants to write (`None`: this
    /// process), in whose name an attempt beyond its share of the stand-ins is noted.
    pub fn receiver(&self, name: &str, writer: Option<&Arc<str>>) -> Option<Arc<LocalAgent>> {
        self.agent(name).or_else(|| {
            let is_foreign = foreign::is_foreign(name, &self.inner.config.platform);
            is_foreign.then(|| self.stand_in(name, writer)).flatten()
        })
    }

    /// For transports: the provenance of `message`, if `proved` may speak for its sender; see
    /// [`Outbox::relay`](crate::Outbox::relay).
    pub fn spoken_for(&self, proved: &str, message: &AclMessageRef<'_>) -> Option<Provenance> {
        foreign::spoken_for(proved, &self.inner.config.platform, message)
    }

    /// The agent of this process with that name.
    pub fn agent(&self, name: &str) -> Option<Arc<LocalAgent>> {
        self.inner.agents.read().get(name).cloned()
    }

    /// All agents of this process.
    pub fn agents(&self) -> Vec<Arc<LocalAgent>> {
        self.inner.agents.read().values().cloned().collect()
    }

    /// Sets the rules that say which agents may write to which, from now on.
    pub fn set_permissions(&self, permissions: Arc<Permissions>) {
        self.inner.rules.set(permissions);
    }

    /// The log of refused attempts.
    pub fn refusals(&self) -> &RefusalLog {
        &self.inner.refusals
    }

    /// The tap, for watchers of arriving messages.
    pub fn tap(&self) -> &Arc<Tap> {
        &self.inner.tap
    }

    /// The work done so far.
    pub fn counters(&self) -> Counters {
        let agents = self.agents();
        let received = |agent: &Arc<LocalAgent>| agent.mailbox().counts().received;
        Counters {
            accepted: self.inner.accepted_before.load(Ordering::Relaxed)
                + agents.iter().map(|agent| agent.sent()).sum::<u64>(),
            received: self.inner.received_before.load(Ordering::Relaxed)
                + agents.iter().map(received).sum::<u64>(),
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

    /// For transports: the hash of what the writer of a frame from another process must have signed at level `signed`.
    /// See [`FrameInlet::statement`].
    pub fn frame_statement(&self, frame: &[u8]) -> Option<Hash> {
        self.inner.inlet.get()?.statement(frame)
    }

    /// For transports: takes frames of other processes, oldest first, and leaves `frames` empty. Their origin is proved
    /// as far as the security level goes. Returns the refused frames, which are already noted and logged; the transport
    /// must tell the sending process.
    pub fn take_frames(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame> {
        let refused: Vec<RefusedFrame> = match self.inner.inlet.get() {
            Some(inlet) => inlet.take(frames),
            None => {
                let refuse = |(place, frame)| RefusedFrame {
                    place,
                    frame,
                    refused: ExplainedRefusal {
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
                Provenance::Vouched(identity) => identity.to_string(),
                other => other
                    .certified()
                    .map_or(&*frame.process, VerifiedIdentity::identity)
                    .to_string(),
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

    /// For transports: `process` did not take these frames, which were accepted for it. `frames` holds them, oldest first.
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
        match bitefficient::decode_ref(payload, &OWN_ENCODING) {
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
            return self.note_untold(sender, receiver, reason);
        };
        let Some(notice) = failure_notice(&self.inner.ams, lost, receiver, reason) else {
            return;
        };
        let notice = ReceivedMessage::shared(Arc::new(notice), Provenance::Platform);
        if !agent.mailbox().push_notice(notice) {
            self.note_untold(sender, receiver, reason);
        }
    }

    /// Whether to write a line about this source to the log now. If so, returns the number of lines left out since the last one.
    pub fn admit_line(&self, source: &str) -> Option<u64> {
        self.inner.lines.lock().admit(source.to_owned())
    }

    /// Logs an undelivered message whose sender is not here, unless that sender has used up its share of the log.
    fn note_untold(&self, sender: &str, receiver: &str, reason: &UndeliverableReason) {
        let Some(left_out) = self.admit_line(sender) else {
            return;
        };
        tracing::warn!(
            target: "sealbus::undeliverable",
            sender, receiver, %reason, left_out,
            "a message is lost, and its sender is not here to be told"
        );
    }

    /// The security level of all messages to other processes, if there is a transport.
    pub fn level(&self) -> Option<SecurityLevel> {
        let level = self.transport()?.capabilities().level;
        Some(match self.inner.seals_all.load(Ordering::Relaxed) {
            true => SecurityLevel::Sealed,
            false => level,
        })
    }

    /// Whether agents sign all their messages to other processes: the platform's level is `signed` or above.
    pub fn signs(&self) -> bool {
        self.inner.signs.load(Ordering::Relaxed)
    }

    /// The transport to other processes, if there is one.
    pub fn transport(&self) -> Option<&Arc<dyn Transport>> {
        self.inner.transport.get()
    }

    pub(crate) fn resolver(&self) -> Option<&Arc<dyn Resolver>> {
        self.inner.resolver.get()
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("platform", &self.inner.config.platform)
            .finish_non_exhaustive()
    }
}
