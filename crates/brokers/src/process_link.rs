//! The link of a process to the broker. It carries the frames between the buses of processes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::text::LONGEST_EXPLANATION;
use sealbus_bus::{
    FrameSender, Gate, LocalAgent, LostFrame, OutgoingFrame, ProcessDestination, RefusalReason,
    Rejected, UndeliverableReason,
};
use sealbus_seal::{Credential, Identity, Timestamp, Trust, VerifiedIdentity};
use tokio::time::sleep;

use crate::authorship::Written;
use crate::broker::Broker;
use crate::client::Owner;
use crate::envelope::{BrokerEnvelope, Kind, Receiver};
use crate::proofs::Proofs;
use crate::publisher;
use crate::unconfirmed::{Outcome, Publication};
use crate::wire::{Sends, Wire};

/// Bytes that a frame may have besides its message.
pub(crate) const FRAME_HEAD: usize = 64 << 10;
/// How long a process without a queue is left alone.
const NO_QUEUE: Duration = Duration::from_millis(500);
/// How many other processes are remembered, with their agents and the ways to them.
const PROCESSES: usize = 65_536;
/// How many proved agents of one process are remembered before those with an ended certificate are forgotten.
const AGENTS: usize = 1024;

/// The note on a frame on its way.
#[derive(Clone)]
pub(crate) enum Note {
    /// A frame, the agent that wrote it, and its statement if the agent signs it.
    Frame(Option<Arc<LocalAgent>>, Option<Written>),
    /// A frame of the receiver that was not taken here.
    Refused {
        author: Option<Arc<str>>,
        reason: RefusalReason,
        text: Arc<str>,
    },
}

/// Agents of one process that have proved to speak through it. The process may run for years, and have any number of agents
/// one after another.
#[derive(Default)]
struct Authors {
    by_name: HashMap<Arc<str>, VerifiedIdentity>,
    /// The number of agents at which those that can prove nothing any more are forgotten.
    limit: usize,
}

impl Authors {
    /// Notes an agent. Each time that the number of agents has doubled, those that are refused at `now` are forgotten.
    fn note(
        &mut self,
        author: Arc<str>,
        verified: VerifiedIdentity,
        trust: &Trust,
        now: Timestamp,
    ) {
        if self.by_name.len() >= self.limit {
            self.by_name.retain(|_, it| trust.check(it, now).is_ok());
            self.limit = AGENTS.max(2 * self.by_name.len());
        }
        self.by_name.insert(author, verified);
    }
}

/// The link of a process to the broker.
pub(crate) struct ProcessLink {
    pub(crate) identity: Identity,
    /// The identity as a path, `node/…/process/…`.
    path: Arc<str>,
    /// The number of the process.
    number: Arc<str>,
    pub(crate) wire: Wire<Note>,
    credential: Mutex<Option<Arc<Credential>>>,
    proofs: Mutex<Proofs>,
    /// Agents that have proved to speak through another process, by that process.
    authors: Mutex<HashMap<Arc<Identity>, Authors>>,
    ways: Mutex<HashMap<Arc<str>, Weak<Way>>>,
    /// The identities of the processes that were written to, by their numbers.
    receivers: Mutex<HashMap<Arc<str>, Identity>>,
    own: Weak<Self>,
}

impl ProcessLink {
    /// The link of the process `identity`; `None` if that is not a process.
    pub(crate) fn new(
        identity: Identity,
        credential: Option<Arc<Credential>>,
        broker: Arc<Broker>,
        epoch: u64,
    ) -> Option<Arc<Self>> {
        let Identity::Process { node, process, .. } = &identity else {
            return None;
        };
        let level = broker.config.security.level();
        let path = format!("node/{node}/process/{process}").into();
        let number = process.to_string().into();
        Some(Arc::new_cyclic(|own| Self {
            path,
            number,
            wire: Wire::new(broker, epoch),
            credential: Mutex::new(credential),
            proofs: Mutex::new(Proofs::new(&identity, level)),
            authors: Mutex::default(),
            ways: Mutex::default(),
            receivers: Mutex::default(),
            identity,
            own: own.clone(),
        }))
    }

    /// Uses this certificate for connections from now on.
    pub(crate) fn set_credential(&self, credential: Arc<Credential>) {
        *self.credential.lock() = Some(credential);
    }

    /// The way to another process.
    pub(crate) fn way(&self, process: &Identity) -> Option<Arc<Way>> {
        let Identity::Process { process: id, .. } = process else {
            return None;
        };
        let receiver: Arc<str> = id.to_string().into();
        let mut ways = self.ways.lock();
        if let Some(way) = ways.get(&receiver).and_then(Weak::upgrade) {
            return Some(way);
        }
        let way = Arc::new(Way {
            link: self.own.upgrade()?,
            receiver: receiver.clone(),
            gate: Gate::default(),
        });
        let mut receivers = self.receivers.lock();
        if ways.len() >= PROCESSES {
            // At the levels that prove no process, a sender of refused frames can claim to be any number of processes.
            ways.retain(|_, way| way.strong_count() > 0);
            receivers.retain(|receiver, _| ways.contains_key(receiver));
        }
        ways.insert(receiver.clone(), Arc::downgrade(&way));
        receivers.insert(receiver, process.clone());
        Some(way)
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget_process(&self, process: &Identity) {
        let Identity::Process { process: id, .. } = process else {
            return;
        };
        let receiver = id.to_string();
        let way = self.ways.lock().remove(receiver.as_str());
        self.receivers.lock().remove(receiver.as_str());
        self.proofs.lock().forget_receiver(&receiver);
        self.authors.lock().remove(process);
        if let Some(way) = way.and_then(|way| way.upgrade()) {
            way.gate.open_all();
        }
    }

    /// Notes that an agent of another process has proved at `now` to speak through it.
    pub(crate) fn proved(
        &self,
        process: &Arc<Identity>,
        author: &Arc<str>,
        verified: VerifiedIdentity,
        trust: &Trust,
        now: Timestamp,
    ) {
        let mut authors = self.authors.lock();
        if authors.len() >= PROCESSES && !authors.contains_key(process) {
            // A forgotten agent is refused. Its process hears of it and proves the agent again.
            authors.clear();
        }
        let of_process = authors.entry(process.clone()).or_default();
        of_process.note(author.clone(), verified, trust, now);
    }

    /// The identity that an agent of another process has proved.
    pub(crate) fn proof_of(&self, process: &Identity, author: &str) -> Option<VerifiedIdentity> {
        let authors = self.authors.lock();
        authors.get(process)?.by_name.get(author).cloned()
    }

    /// Notes that a process has forgotten the proofs of this process's agents.
    pub(crate) fn prove_again(&self, process: &Identity) {
        if let Identity::Process { process, .. } = process {
            self.proofs.lock().forget_receiver(&process.to_string());
        }
    }

    /// Forgets an agent of this process that has left.
    pub(crate) fn agent_left(&self, number: u64) {
        self.proofs.lock().forget_agent(number);
    }

    /// Sends back a frame of `receiver` that was not taken here.
    pub(crate) fn send_back(
        &self,
        receiver: &Identity,
        payload: Bytes,
        author: Option<Arc<str>>,
        reason: RefusalReason,
        text: &str,
    ) {
        let Some(way) = self.way(receiver) else {
            return;
        };
        let note = Note::Refused {
            author,
            reason,
            text: text[..text.floor_char_boundary(LONGEST_EXPLANATION)].into(),
        };
        // A receiver without a queue has ended. Beyond the room for refusals, the sender learns of it because the frame is
        // not acknowledged.
        if let Err(rejected) = self.accept(&way.receiver, payload, note) {
            tracing::debug!(process = %receiver, ?rejected, text, "a refusal cannot be sent back");
        }
    }

    fn accept(&self, receiver: &Arc<str>, payload: Bytes, note: Note) -> Result<(), Rejected> {
        if self.wire.has_left() {
            return Err(Rejected::Closed);
        }
        let mut unconfirmed = self.wire.unconfirmed.lock();
        let checked = match note {
            Note::Frame(..) => unconfirmed.check(receiver),
            Note::Refused { .. } => unconfirmed.check_refusal(receiver),
        };
        match checked {
            // Frames of all agents wait at the gate of their way.
            Err(Rejected::Congested) => return Err(Rejected::Full),
            other => other?,
        }
        unconfirmed.accept(receiver, payload, note, Instant::now());
        let is_sending = self.wire.sends.swap(true, Ordering::AcqRel);
        drop(unconfirmed);
        if !is_sending && let Some(own) = self.own.upgrade() {
            self.wire.broker.runtime.spawn(publisher::run(own));
        }
        publisher::publish(self);
        Ok(())
    }

    fn lost(&self, receiver: &Arc<str>, frames: Vec<(Note, Bytes)>, reason: &UndeliverableReason) {
        // A lost frame may have carried a proof.
        self.proofs.lock().forget_receiver(receiver);
        let identity = self.receivers.lock().get(receiver).cloned();
        let (Some(bus), Some(identity)) = (self.wire.bus().upgrade(), identity) else {
            return;
        };
        let frames = frames
            .into_iter()
            .filter_map(|(note, payload)| match note {
                Note::Frame(agent, _) => Some(LostFrame {
                    sender: agent.map(|agent| agent.name().clone()),
                    payload,
                    may_have_arrived: true,
                }),
                Note::Refused { .. } => None,
            })
            .collect();
        bus.frames_lost(&identity, frames, reason);
    }
}

impl Sends for ProcessLink {
    type Note = Note;

    fn wire(&self) -> &Wire<Note> {
        &self.wire
    }

    fn owner(&self) -> Owner {
        Owner {
            name: self.path.clone(),
            queue: Receiver::Process(self.number.clone()),
            credential: self.credential.lock().clone(),
        }
    }

    fn written(note: &Note) -> Option<&Written> {
        match note {
            Note::Frame(_, written) => written.as_ref(),
            Note::Refused { .. } => None,
        }
    }

    fn envelope(&self, publication: Publication<Note>) -> BrokerEnvelope {
        let authenticates = self.wire.config().security.level().authenticates();
        let mut proof = None;
        let evidence = Self::written(&publication.note).and_then(Written::evidence);
        let (kind, author) = match publication.note {
            Note::Frame(None, _) => (Kind::Frame, None),
            Note::Frame(Some(agent), _) => {
                if authenticates {
                    let (order, receiver) = (publication.order, &publication.receiver);
                    proof = self
                        .proofs
                        .lock()
                        .with(order, receiver, &agent)
                        .unwrap_or_else(|why| {
                            // The other side says that it is not proved.
                            tracing::warn!(agent = %agent.name(), why, "cannot prove itself to other processes");
                            None
                        });
                }
                (Kind::Frame, Some(agent.name().clone()))
            }
            Note::Refused {
                author,
                reason,
                text: explanation,
            } => (
                Kind::Refused {
                    reason,
                    explanation,
                },
                author,
            ),
        };
        BrokerEnvelope {
            to: Receiver::Process(publication.receiver),
            stamp: publication.stamp,
            kind,
            process: (!authenticates).then(|| self.path.clone()),
            author,
            proof,
            evidence,
            life: None,
            payload: publication.payload,
        }
    }

    fn confirmed(&self, order: u64) {
        self.proofs.lock().confirmed(order);
    }

    fn tell(&self, outcomes: Vec<Outcome<Note>>) {
        for outcome in outcomes {
            match outcome {
                Outcome::Undeliverable {
                    receiver,
                    payload,
                    note,
                    reason,
                } => self.lost(&receiver, vec![(note, payload)], &reason),
                // The process may only just be starting, or be gone already.
                Outcome::Returned { receiver, messages } => {
                    let own = self.own.clone();
                    self.wire.broker.runtime.spawn(async move {
                        sleep(NO_QUEUE).await;
                        let Some(own) = own.upgrade() else { return };
                        own.wire.unconfirmed.lock().settled(&receiver);
                        let reason = UndeliverableReason::ProcessUnreachable(
                            "it has no queue at the broker".to_owned(),
                        );
                        own.lost(&receiver, messages, &reason);
                        own.open_gate();
                    });
                }
            }
        }
    }

    fn open_gate(&self) {
        if !self.wire.unconfirmed.lock().has_room() {
            return;
        }
        let ways: Vec<_> = self
            .ways
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for way in ways {
            way.gate.open();
        }
    }
}

/// The way to the bus of another process: its queue.
pub(crate) struct Way {
    link: Arc<ProcessLink>,
    receiver: Arc<str>,
    gate: Gate,
}

impl ProcessDestination for Way {
    fn try_send(&self, frame: &OutgoingFrame<'_>) -> Result<(), Rejected> {
        let limit = self.link.wire.config().largest_message + FRAME_HEAD;
        if frame.length() > limit {
            return Err(Rejected::Impossible(UndeliverableReason::TooLarge {
                size: frame.length(),
                limit,
            }));
        }
        let level = self.link.wire.config().security.level();
        let note = match frame.sender {
            FrameSender::Process => Note::Frame(None, None),
            FrameSender::Agent(agent) => {
                let statement = frame.statement.filter(|_| level.authenticates());
                let written = statement.map(|statement| Written::new(agent.clone(), statement));
                Note::Frame(Some(agent.clone()), written)
            }
        };
        self.link.accept(&self.receiver, frame.to_bytes(), note)
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }
}

#[cfg(test)]
mod tests;
