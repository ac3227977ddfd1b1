//! The sending half of a link: bound agents, targets, credit, and the session with its unacknowledged frames. Senders
//! on any thread use it under a short lock. Nothing here waits.

mod binding;
mod closing;
mod credit;
mod frames;
mod kept;
mod loss;
mod messages;
mod sent;
mod signing;
mod writing;

pub(crate) use signing::LONGEST_HOLD;
pub(crate) use writing::Filled;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{
    ExplainedRefusal, Gate, LocalAgent, LostFrame, RefusalReason, Returned, SessionNumber,
    UndeliverableReason,
};
use sealbus_proof::{Author, Hash};
use sealbus_seal::binding::{Binding, BindingError, BoundConnection, Role};
use sealbus_seal::{
    CertificateChain, Credential, SecurityLevel, Timestamp, Trust, VerifiedIdentity,
};

use self::sent::{Beginning, ClosedTargets, Memory, Sent};
use self::signing::{Signatures, Signing};
use crate::flow::{Credit, Queued, TargetLine};
use crate::frame::{Frame, PROCESS_TARGET};
use crate::session::Session;

/// Work on the bus, to be done once the lock is released.
pub(crate) enum Action {
    /// Messages to an agent that is not there go back to the bus.
    Returned {
        receiver: Arc<str>,
        /// The former target, for [`Outward::settle`].
        serial: u64,
        messages: Vec<Returned>,
        denied: bool,
    },
    /// A message was lost or refused. Its sender is told.
    Undeliverable {
        sender: Arc<str>,
        receiver: Arc<str>,
        payload: Bytes,
        reason: UndeliverableReason,
    },
    /// The process did not take frames for its bus, or may not have taken them.
    FramesLost {
        /// The former target, for [`Outward::settle`], if the target ended with this loss.
        serial: Option<u64>,
        frames: Vec<LostFrame>,
        reason: UndeliverableReason,
    },
    /// The receiver did not prove who it is, or its process gives back messages that it was not given.
    Refused {
        receiver: Arc<str>,
        reason: RefusalReason,
        explanation: String,
    },
}

/// The value that proofs are bound to on the present connection.
#[derive(Clone)]
pub(crate) struct ConnectionProof {
    pub(crate) channel: BoundConnection,
    pub(crate) role: Role,
}

impl ConnectionProof {
    /// Binds the holder of `credential` to the connection.
    fn bind(&self, credential: &Credential) -> Result<Vec<u8>, BindingError> {
        let binding = Binding::prove(credential, &self.channel, self.role)?;
        let mut out = Vec::new();
        binding.encode(&mut out);
        Ok(out)
    }

    /// Checks that an agent at the other end holds the key of the certificate that it shows. At `signed` and above, the
    /// whole chain must be valid, even if the leaf is known here, and the certificate must be in the issuance log.
    pub(crate) fn believe(
        &self,
        binding: &[u8],
        level: SecurityLevel,
        trust: &Trust,
        now: Timestamp,
    ) -> Result<Believed, ExplainedRefusal> {
        let refused = |reason: RefusalReason, error: &dyn std::error::Error| ExplainedRefusal {
            reason,
            explanation: error.to_string(),
        };
        let shown = Binding::decode(binding).and_then(|binding| {
            let verified = binding.verify(&self.channel, self.role.other(), trust, now)?;
            Ok((verified, binding.chain().clone()))
        });
        let (verified, chain) =
            shown.map_err(|error| refused(RefusalReason::from(&error), &error))?;
        let author = match level >= SecurityLevel::Signed {
            true => Some(Author::verify(chain.clone(), trust, now)),
            false => None,
        };
        let author = author.transpose();
        Ok(Believed {
            author: author.map_err(|error| refused(RefusalReason::from(&error), &error))?,
            verified,
            chain,
        })
    }
}

/// An agent at the other end whose certificate is believed.
pub(crate) struct Believed {
    pub(crate) verified: VerifiedIdentity,
    pub(crate) chain: CertificateChain,
    /// Set at `signed` and above.
    pub(crate) author: Option<Author>,
}

enum TargetState {
    Open,
    /// Nothing more is sent to the target. Messages that come back are collected.
    Closing {
        returned: Vec<Returned>,
        denied: bool,
    },
}

struct Target {
    /// The number of the target among those of the session, from 1.
    number: u32,
    /// A number that distinguishes the target from a former one with the same handle.
    serial: u64,
    name: Arc<str>,
    /// Whether the target is the bus of the process, and not an agent.
    is_process: bool,
    credit: Credit,
    state: TargetState,
    gate: Arc<Gate>,
    /// Whether a sender was told to wait since the last acknowledgement that left room. The target is then among the
    /// blocked ones, once.
    is_waited_for: bool,
    /// The proved identity of the target.
    identity: Option<VerifiedIdentity>,
    /// The credit that the target gave before it proved itself. It does not count until then.
    unproved_limit: u64,
    /// The pieces of a message that is coming back.
    piece: Vec<u8>,
    sent: Sent,
    /// The beginning of the last message that was encoded for the target. Messages that join its frame begin alike.
    beginning: Option<Beginning>,
    /// The last sender: its number and handle; and the connection and the count of freed handles when it was bound.
    last_sender: (u64, u32, (u64, u64)),
}

struct Bound {
    agent: Arc<LocalAgent>,
    /// The connection on which the agent was bound last; 0: none.
    connection: u64,
    /// The credential that was bound then; `None` at levels without proofs.
    credential: Option<Arc<Credential>>,
    /// The number of its messages that wait in the queues of targets.
    queued: usize,
    /// Whether the agent has left this process. It is unbound once none of its messages waits.
    is_leaving: bool,
    signing: Signing,
}

struct Long {
    /// The number of the frame behind the last piece.
    end: u64,
    target: Arc<str>,
    message: Queued,
}

/// The data with which a [`Destination`](sealbus_bus::Destination) finds its target again.
pub(crate) struct TargetHandle {
    pub(crate) handle: u32,
    pub(crate) serial: u64,
    pub(crate) gate: Arc<Gate>,
    /// The session in which it was opened. The handle ends with it.
    pub(crate) session: SessionNumber,
}

/// The sending half of a link.
pub(crate) struct Outward {
    level: SecurityLevel,
    window: usize,
    /// The largest message that this process sends and accepts.
    largest_message: usize,
    /// The largest message that the peer accepts, as far as is known.
    peers_largest: usize,
    agents: usize,
    pub(crate) session: Session,
    /// The number of sessions so far, to distinguish the contents of former ones.
    pub(crate) epoch: u64,
    /// The session's number, as the bus knows it.
    session_number: SessionNumber,
    /// Frames for this connection only.
    control: Vec<u8>,
    /// The number of the present connection; 0: none.
    connection: u64,
    proof: Option<ConnectionProof>,
    targets: Vec<Option<Target>>,
    free_targets: Vec<u32>,
    names: HashMap<Arc<str>, u32>,
    line: TargetLine,
    bound: Vec<Option<Bound>>,
    free_handles: Vec<u32>,
    handles: HashMap<u64, u32>,
    /// Agents that had already left when they were bound, for messages that waited in the bus. They are unbound in the
    /// task's next turn.
    departing: HashSet<u64>,
    /// The number of handles freed so far.
    unbound: u64,
    leaving: VecDeque<(u64, u32)>,
    /// The agents of this process that the peer sends to, by the peer's handle.
    hosted: HashMap<u32, Arc<LocalAgent>>,
    /// The peer's handle for each of these agents, by the agent's number.
    hosted_as: HashMap<u64, u32>,
    /// Targets of the peer whose agents have left. The peer does not know yet which of its messages they received.
    departed: HashSet<u32>,
    /// Long messages that were begun and whose last piece the peer has not acknowledged.
    long: VecDeque<Long>,
    /// Those bytes kept for the peer that are not held against it.
    excused: u64,
    blocked: Vec<u32>,
    /// The messages in the session that are not signed yet, in order: their senders and statements. They are signed
    /// before anything is written.
    unsigned: Vec<(u32, Hash)>,
    /// The signatures that the peer has not acknowledged.
    signatures: Signatures,
    memory: Memory,
    /// The closed targets of the session.
    former: ClosedTargets,
    /// The pieces of a message that a closed target left unread.
    unread: Vec<u8>,
    /// The number of unwritten bytes up to the end of the last message that goes back.
    giving_back: usize,
    /// The number of targets opened in this session.
    opened: u32,
    serial: u64,
    /// Former targets whose messages have not all returned to the bus yet.
    returning: HashSet<u64>,
    /// Whether the link has ended, so that nothing may be opened on it.
    pub(crate) has_ended: bool,
    /// Whether the link was forgotten to make room. Another link then leads to the process.
    pub(crate) is_forgotten: bool,
    /// The number of messages sent.
    pub(crate) sent: u64,
    /// Whether the link's task was told that there is something to write.
    is_announced: bool,
    /// The bytes that senders may still write by themselves: the task had little to write the last time, or has read
    /// since.
    at_once: usize,
    /// The approximate number of bytes handed to the wire the last time that there were any.
    filled: usize,
}

impl Outward {
    pub(crate) fn new(
        level: SecurityLevel,
        window: usize,
        largest_message: usize,
        agents: usize,
    ) -> Self {
        Self {
            level,
            window,
            largest_message,
            peers_largest: largest_message,
            agents,
            session: Session::default(),
            epoch: 0,
            session_number: SessionNumber::next(),
            control: Vec::new(),
            connection: 0,
            proof: None,
            targets: Vec::new(),
            free_targets: Vec::new(),
            names: HashMap::new(),
            line: TargetLine::default(),
            bound: Vec::new(),
            free_handles: Vec::new(),
            handles: HashMap::new(),
            departing: HashSet::new(),
            unbound: 0,
            leaving: VecDeque::new(),
            hosted: HashMap::new(),
            hosted_as: HashMap::new(),
            departed: HashSet::new(),
            long: VecDeque::new(),
            excused: 0,
            blocked: Vec::new(),
            unsigned: Vec::new(),
            signatures: Signatures::default(),
            memory: Memory::default(),
            former: ClosedTargets::default(),
            unread: Vec::new(),
            giving_back: 0,
            opened: 0,
            serial: 0,
            returning: HashSet::new(),
            has_ended: false,
            is_forgotten: false,
            sent: 0,
            is_announced: false,
            at_once: writing::QUIET,
            filled: 0,
        }
    }

    /// Opens a target, or returns the open one. `None` if there are too many.
    pub(crate) fn open(&mut self, name: &str) -> Option<TargetHandle> {
        if let Some(handle) = self.names.get(name)
            && let Some(Some(target)) = self.targets.get(*handle as usize)
        {
            return Some(TargetHandle {
                handle: *handle,
                serial: target.serial,
                gate: target.gate.clone(),
                session: self.session_number,
            });
        }
        let handle = match self.free_targets.pop() {
            Some(handle) => handle,
            None if self.targets.len() < self.agents => {
                self.targets.push(None);
                // `agents` limits the number of targets.
                (self.targets.len() - 1) as u32
            }
            None => return None,
        };
        self.serial += 1;
        self.opened = self.opened.saturating_add(1);
        let name: Arc<str> = name.into();
        let is_process = *name == *PROCESS_TARGET;
        let gate = Arc::new(Gate::default());
        self.names.insert(name.clone(), handle);
        self.targets[handle as usize] = Some(Target {
            number: self.opened,
            serial: self.serial,
            name: name.clone(),
            is_process,
            credit: if is_process {
                Credit::of_process()
            } else {
                Credit::default()
            },
            state: TargetState::Open,
            gate: gate.clone(),
            is_waited_for: false,
            identity: None,
            unproved_limit: 0,
            piece: Vec::new(),
            sent: Sent::default(),
            beginning: None,
            last_sender: (0, 0, (0, 0)),
        });
        self.session.append(&Frame::Target {
            handle,
            name: &name,
        });
        Some(TargetHandle {
            handle,
            serial: self.serial,
            gate,
            session: self.session_number,
        })
    }

    /// A new connection has begun, and the session is agreed. Binds agents again whose messages are sent again. Returns
    /// the waiting messages that are larger than the peer accepts.
    pub(crate) fn connected(
        &mut self,
        number: u64,
        proof: Option<ConnectionProof>,
        peers_largest: usize,
    ) -> Vec<Action> {
        self.connection = number;
        self.peers_largest = peers_largest;
        self.proof = proof;
        self.control.clear();
        self.after_acknowledgement();
        let mut senders = Vec::new();
        let mut accepted = Vec::new();
        let mut gives_back = false;
        self.session.for_each_kept(|frame, _, _| match frame {
            Frame::Message { sender, .. }
            | Frame::Row { sender, .. }
            | Frame::Begin { sender, .. } => senders.push(*sender),
            Frame::Sign { authors, .. } => {
                senders.extend(authors.iter().map(|author| author.sender()));
            }
            Frame::Accept { target, .. } => accepted.push(*target),
            Frame::Returned { .. } | Frame::Unread { .. } => gives_back = true,
            _ => {}
        });
        self.giving_back = match gives_back {
            true => self.session.unwritten(),
            false => 0,
        };
        // The peer may already have taken the beginning of a long message, but not its end.
        senders.extend(self.long.iter().map(|long| long.message.sender));
        for sender in senders {
            self.prove_again(sender);
        }
        for target in accepted {
            self.prove_hosted(target);
        }
        self.take_too_large()
    }

    /// The largest message that both sides accept.
    fn largest(&self) -> usize {
        self.largest_message.min(self.peers_largest)
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&mut self) {
        self.session.disconnected();
        self.connection = 0;
        self.proof = None;
        self.control.clear();
    }

    pub(crate) fn proof(&self) -> Option<&ConnectionProof> {
        self.proof.as_ref()
    }
}

/// A frame of the process that consists of this body alone.
#[cfg(test)]
fn frame_of_process(body: &Bytes) -> sealbus_bus::OutgoingFrame<'_> {
    sealbus_bus::OutgoingFrame {
        sender: sealbus_bus::FrameSender::Process,
        head: b"",
        body,
        tail: b"",
        statement: None,
    }
}
