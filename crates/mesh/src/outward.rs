//! The sending half of a link: agents bound, targets, credit, and the session with what is not acknowledged. Senders on
//! any thread work on it under a short lock; nothing here waits.

mod binding;
mod closing;
mod credit;
mod frames;
mod loss;
mod messages;
mod writing;

pub(crate) use writing::Filled;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{Gate, LocalAgent, LostFrame, RefusalReason, Returned, UndeliverableReason};
use sealbus_seal::binding::{Channel, Role};
use sealbus_seal::{SecurityLevel, VerifiedIdentity};

use crate::flow::{Credit, Line, Queued};
use crate::frame::{Frame, PROCESS_TARGET};
use crate::session::Session;

/// The work on the bus once the lock is released.
pub(crate) enum Action {
    /// Messages to an agent that is not there go back to the bus.
    Returned {
        receiver: Arc<str>,
        /// The former target, for [`Outward::settle`].
        serial: u64,
        messages: Vec<Returned>,
        denied: bool,
    },
    /// A message was lost or refused: its sender is told.
    Undeliverable {
        sender: Arc<str>,
        receiver: Arc<str>,
        payload: Bytes,
        reason: UndeliverableReason,
    },
    /// Frames to the bus of the process were not taken there, or may not have been.
    FramesLost {
        /// The former target, for [`Outward::settle`], if it ended with this.
        serial: Option<u64>,
        frames: Vec<LostFrame>,
        reason: UndeliverableReason,
    },
    /// The receiver did not prove who it is.
    ReceiverNotProved {
        receiver: Arc<str>,
        reason: RefusalReason,
        explanation: String,
    },
}

/// The value that proofs are bound to, on the present connection.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) channel: Channel,
    pub(crate) role: Role,
}

enum TargetState {
    Open,
    /// Nothing is sent to it any more; what comes back is collected.
    Closing {
        returned: Vec<Returned>,
        denied: bool,
    },
}

struct Target {
    /// Tells it from a former target with the same handle.
    serial: u64,
    name: Arc<str>,
    /// Whether it is the bus of the process rather than an agent.
    is_process: bool,
    credit: Credit,
    state: TargetState,
    gate: Arc<Gate>,
    /// Somebody was told to wait.
    is_waited_for: bool,
    /// The proved identity.
    identity: Option<VerifiedIdentity>,
    /// Credit that it gave before it proved itself: void until then.
    unproved_limit: u64,
    /// The pieces of a message that is coming back.
    piece: Vec<u8>,
    /// The sender's number and handle, and the connection and the count of handles given back when it was bound.
    last_sender: (u64, u32, (u64, u64)),
}

struct Bound {
    agent: Arc<LocalAgent>,
    /// The connection it was bound on, and with which credential.
    connection: u64,
    /// Its messages that wait in the queues of targets.
    queued: usize,
    /// It had left this process when it was bound.
    has_left: bool,
    /// It has left this process, and is unbound once nothing of it waits.
    is_leaving: bool,
}

struct Long {
    /// Frame number after its last piece.
    end: u64,
    target: Arc<str>,
    message: Queued,
}

/// The data with which a [`Destination`](sealbus_bus::Destination) finds its target again.
pub(crate) struct OpenTarget {
    pub(crate) handle: u32,
    pub(crate) serial: u64,
    pub(crate) gate: Arc<Gate>,
}

/// The sending half of a link.
pub(crate) struct Outward {
    level: SecurityLevel,
    window: usize,
    largest_message: usize,
    agents: usize,
    pub(crate) session: Session,
    /// Counts the sessions, so that what belongs to a former one is told apart.
    pub(crate) epoch: u64,
    /// Frames for this connection only.
    control: Vec<u8>,
    /// The connection there is, by number; 0: none.
    connection: u64,
    proof: Option<Proof>,
    targets: Vec<Option<Target>>,
    free_targets: Vec<u32>,
    names: HashMap<Arc<str>, u32>,
    line: Line,
    bound: Vec<Option<Bound>>,
    free_handles: Vec<u32>,
    handles: HashMap<u64, u32>,
    /// How many handles were given back so far.
    unbound: u64,
    leaving: VecDeque<(u64, u32)>,
    /// Agents of this process that the peer sends to, by the peer's handle.
    hosted: HashMap<u32, Arc<LocalAgent>>,
    long: VecDeque<Long>,
    blocked: Vec<u32>,
    serial: u64,
    /// Former targets whose messages the bus does not have back yet.
    returning: HashSet<u64>,
    /// Whether the link is forgotten: nothing may be opened on it.
    pub(crate) has_ended: bool,
    /// Messages sent.
    pub(crate) sent: u64,
    /// Whether the link's task was told that there is something to write.
    is_announced: bool,
    /// Bytes that senders may still write at once themselves: the task had little to write the last time, or has read since.
    at_once: usize,
    /// Bytes that were handed to the wire the last time there were any, roughly.
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
            agents,
            session: Session::default(),
            epoch: 0,
            control: Vec::new(),
            connection: 0,
            proof: None,
            targets: Vec::new(),
            free_targets: Vec::new(),
            names: HashMap::new(),
            line: Line::default(),
            bound: Vec::new(),
            free_handles: Vec::new(),
            handles: HashMap::new(),
            unbound: 0,
            leaving: VecDeque::new(),
            hosted: HashMap::new(),
            long: VecDeque::new(),
            blocked: Vec::new(),
            serial: 0,
            returning: HashSet::new(),
            has_ended: false,
            sent: 0,
            is_announced: false,
            at_once: writing::QUIET,
            filled: 0,
        }
    }

    /// Opens a target, or gives the one that is open. `None`: there are too many.
    pub(crate) fn open(&mut self, name: &str) -> Option<OpenTarget> {
        if let Some(handle) = self.names.get(name)
            && let Some(Some(target)) = self.targets.get(*handle as usize)
        {
            return Some(OpenTarget {
                handle: *handle,
                serial: target.serial,
                gate: target.gate.clone(),
            });
        }
        let handle = match self.free_targets.pop() {
            Some(handle) => handle,
            None if self.targets.len() < self.agents => {
                self.targets.push(None);
                // Limited by `agents`.
                (self.targets.len() - 1) as u32
            }
            None => return None,
        };
        self.serial += 1;
        let name: Arc<str> = name.into();
        let is_process = *name == *PROCESS_TARGET;
        let gate = Arc::new(Gate::default());
        self.names.insert(name.clone(), handle);
        self.targets[handle as usize] = Some(Target {
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
            last_sender: (0, 0, (0, 0)),
        });
        self.session.append(&Frame::Target {
            handle,
            name: &name,
        });
        Some(OpenTarget {
            handle,
            serial: self.serial,
            gate,
        })
    }

    /// A new connection, with the session agreed. Agents are bound again whose messages are sent again.
    pub(crate) fn connected(&mut self, number: u64, proof: Option<Proof>) {
        self.connection = number;
        self.proof = proof;
        self.control.clear();
        let mut senders = Vec::new();
        let mut accepted = Vec::new();
        self.session.for_each_kept(|frame, _, _| match frame {
            Frame::Message { sender, .. } | Frame::Begin { sender, .. } => senders.push(*sender),
            Frame::Accept { target, .. } => accepted.push(*target),
            _ => {}
        });
        // The beginning of a long message may have been taken before, its end not.
        senders.extend(self.long.iter().map(|long| long.message.sender));
        for sender in senders {
            let _ = self.prove(sender);
        }
        for target in accepted {
            self.prove_hosted(target);
        }
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&mut self) {
        self.session.disconnected();
        self.connection = 0;
        self.proof = None;
        self.control.clear();
    }

    pub(crate) fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }
}
