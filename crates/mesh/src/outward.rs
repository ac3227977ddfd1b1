//! The sending half of a link: agents bound, targets, credit, and the session with what is not acknowledged. Senders on
//! any thread work on it under a short lock; nothing here waits.

mod frames;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sealbus_acl::EncodeError;
use sealbus_bus::{
    GATEWAY, Gate, LocalAgent, LostFrame, Outgoing, RefusalReason, Rejected, Returned,
    UndeliverableReason, is_foreign,
};
use sealbus_seal::binding::{Binding, Channel, Role};
use sealbus_seal::{Identity, SecurityLevel, Timestamp, Trust, VerifiedIdentity};

use crate::flow::{Admission, Credit, Line, Piece, Queued};
use crate::frame::{self, Frame, LONGEST_PIECE, MESSAGE_START, PROCESS_TARGET, Why};
use crate::session::{Session, Violation};
use crate::wire::Wire;

/// Bytes of counted frames put before the writer at a time, so that a long message does not go before everything else.
const AHEAD: usize = 128 << 10;
/// Bytes written together at most.
const BATCH: usize = 256 << 10;

/// What has to be done with the bus once the lock is released.
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

/// What proofs are bound to, on the connection there is now.
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
    /// Who it proved to be.
    identity: Option<VerifiedIdentity>,
    /// What it let come before it proved itself: worth nothing until it has.
    unproved_limit: u64,
    /// The pieces of a message that is coming back.
    piece: Vec<u8>,
    /// The sender's number and handle, and the connection they were bound on.
    last_sender: (u64, u32, u64),
}

struct Bound {
    agent: Arc<LocalAgent>,
    /// The connection it was bound on, and with which credential.
    connection: u64,
    /// Its messages that wait in the queues of targets.
    queued: usize,
    /// It has left this process, and is unbound once nothing of it waits.
    is_leaving: bool,
}

struct Long {
    /// Frame number after its last piece.
    end: u64,
    target: Arc<str>,
    message: Queued,
}

/// What a [`Destination`](sealbus_bus::Destination) keeps to find its target again.
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
}

enum Stop {
    Encode(EncodeError),
    TooLarge(usize),
    Long(Bytes),
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
            leaving: VecDeque::new(),
            hosted: HashMap::new(),
            long: VecDeque::new(),
            blocked: Vec::new(),
            serial: 0,
            returning: HashSet::new(),
            has_ended: false,
            sent: 0,
            is_announced: false,
        }
    }

    // ---- what senders do ----

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
            last_sender: (0, 0, 0),
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

    /// Accepts a message for a target. See [`sealbus_bus::Destination::try_send`].
    pub(crate) fn try_send(
        &mut self,
        handle: u32,
        serial: u64,
        sender: &Arc<LocalAgent>,
        outgoing: &Outgoing<'_>,
    ) -> Result<(), Rejected> {
        let sender_handle = match self.targets.get(handle as usize) {
            Some(Some(target)) if target.serial == serial => {
                if let TargetState::Closing { .. } = target.state {
                    return Err(Rejected::Moving);
                }
                let (number, known, connection) = target.last_sender;
                if number == sender.number() && connection == self.connection {
                    known
                } else {
                    self.bind(sender)?
                }
            }
            // What was sent there before is still on its way back to the bus.
            _ if self.returning.contains(&serial) => return Err(Rejected::Moving),
            _ => return Err(Rejected::Closed),
        };
        let has_window = self.session.kept() < self.window;
        let largest = self.largest_message;
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return Err(Rejected::Closed);
        };
        target.last_sender = (sender.number(), sender_handle, self.connection);
        let stop = match target.credit.admit(has_window) {
            Admission::Full => {
                if !target.is_waited_for {
                    target.is_waited_for = true;
                    self.blocked.push(handle);
                }
                return Err(Rejected::Full);
            }
            Admission::Now => {
                let mut length = 0;
                let appended = self.session.append_with(|out, sequence| {
                    let start = frame::begin_message(out, sender_handle, handle);
                    outgoing.encode_into(out).map_err(Stop::Encode)?;
                    length = out.len() - start - MESSAGE_START;
                    if length > largest {
                        return Err(Stop::TooLarge(length));
                    }
                    if length > LONGEST_PIECE {
                        return Err(Stop::Long(Bytes::copy_from_slice(
                            &out[start + MESSAGE_START..],
                        )));
                    }
                    frame::finish_message(out, start, sequence);
                    Ok(())
                });
                match appended {
                    Ok(()) => {
                        target.credit.sent(length);
                        self.sent += 1;
                        return Ok(());
                    }
                    Err(stop) => stop,
                }
            }
            Admission::Queue => {
                let mut encoded = Vec::new();
                match outgoing.encode_into(&mut encoded) {
                    Err(error) => Stop::Encode(error),
                    Ok(()) if encoded.len() > largest => Stop::TooLarge(encoded.len()),
                    Ok(()) => Stop::Long(encoded.into()),
                }
            }
        };
        match stop {
            Stop::Long(payload) => {
                self.sent += 1;
                let message = Queued::message(sender_handle, payload);
                self.line.enqueue(handle, &mut target.credit, message);
                self.note_queued(sender_handle);
                Ok(())
            }
            Stop::Encode(error) => Err(Rejected::Impossible(error.into())),
            Stop::TooLarge(size) => Err(Rejected::Impossible(UndeliverableReason::TooLarge {
                size,
                limit: largest,
            })),
        }
    }

    /// The handle of an agent of this process, bound on the connection there is.
    fn bind(&mut self, agent: &Arc<LocalAgent>) -> Result<u32, Rejected> {
        let handle = match self.handles.get(&agent.number()) {
            Some(handle) => *handle,
            None => {
                let handle = match self.free_handles.pop() {
                    Some(handle) => handle,
                    None if self.bound.len() < self.agents => {
                        self.bound.push(None);
                        (self.bound.len() - 1) as u32
                    }
                    None => {
                        return Err(Rejected::Impossible(UndeliverableReason::Refused {
                            reason: RefusalReason::OverLimit,
                            explanation: format!(
                                "{} agents send over this link already",
                                self.agents
                            ),
                        }));
                    }
                };
                self.handles.insert(agent.number(), handle);
                self.bound[handle as usize] = Some(Bound {
                    agent: agent.clone(),
                    connection: 0,
                    queued: 0,
                    is_leaving: false,
                });
                handle
            }
        };
        self.prove(handle)?;
        Ok(handle)
    }

    /// Sees to it that the agent of `handle` is bound on the connection there is.
    fn prove(&mut self, handle: u32) -> Result<(), Rejected> {
        let connection = self.connection;
        let Some(Some(bound)) = self.bound.get_mut(handle as usize) else {
            return Ok(());
        };
        if connection == 0 || bound.connection == connection {
            return Ok(());
        }
        if !self.level.authenticates() {
            let proof = bound.agent.name().as_bytes();
            Frame::Bind { handle, proof }.encode(0, &mut self.control);
        } else if let Some(proof) = &self.proof {
            let proof = prove(&bound.agent, proof).map_err(|explanation| {
                Rejected::Impossible(UndeliverableReason::Refused {
                    reason: RefusalReason::NotProved,
                    explanation,
                })
            })?;
            Frame::Bind {
                handle,
                proof: &proof,
            }
            .encode(0, &mut self.control);
        }
        bound.connection = connection;
        Ok(())
    }

    /// No more is sent to the target; what was not delivered comes back.
    pub(crate) fn recall(&mut self, handle: u32, serial: u64) {
        if let Some(Some(target)) = self.targets.get(handle as usize)
            && target.serial == serial
        {
            self.start_closing(handle, false);
        }
    }

    /// An agent shows a new credential.
    pub(crate) fn renew(&mut self, agent: &LocalAgent) {
        if let Some(handle) = self.handles.get(&agent.number()).copied() {
            if let Some(Some(bound)) = self.bound.get_mut(handle as usize) {
                bound.connection = 0;
            }
            // An agent that cannot prove itself hears of it with its next message.
            let _ = self.prove(handle);
        }
    }

    /// An agent of this process has left.
    pub(crate) fn unbind(&mut self, agent: &LocalAgent) {
        if let Some(handle) = self.handles.remove(&agent.number()) {
            if let Some(Some(bound)) = self.bound.get_mut(handle as usize) {
                bound.is_leaving = true;
            }
            self.unbind_if_done(handle);
        }
    }

    /// Says that an agent sends no more, once what it sent before it left has gone.
    fn unbind_if_done(&mut self, handle: u32) {
        if let Some(Some(bound)) = self.bound.get(handle as usize)
            && bound.is_leaving
            && bound.queued == 0
        {
            self.session.append(&Frame::Unbind { handle });
            // Once that is acknowledged the handle is free.
            self.leaving.push_back((self.session.next(), handle));
        }
    }

    /// A message of the agent waits in a target's queue.
    fn note_queued(&mut self, sender: u32) {
        if let Some(Some(bound)) = self.bound.get_mut(sender as usize) {
            bound.queued += 1;
        }
    }

    /// A message of the agent waits no more.
    fn note_unqueued(&mut self, sender: u32) {
        if let Some(Some(bound)) = self.bound.get_mut(sender as usize) {
            bound.queued -= 1;
            self.unbind_if_done(sender);
        }
    }

    // ---- what the writer does ----

    /// Whether the link's task has to be told that there is something to write; it counts as told then.
    pub(crate) fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    /// The task looks at everything now; the next message has to be announced again.
    pub(crate) fn heard(&mut self) {
        self.is_announced = false;
    }

    /// Hands the wire what there is to write. Returns whether something was.
    pub(crate) fn fill(&mut self, wire: &mut Wire) -> bool {
        self.is_announced = false;
        if wire.number != self.connection {
            return false;
        }
        if self.session.untold().0 > 0 {
            self.session.tell().encode(0, &mut self.control);
        }
        let mut is_something = !self.control.is_empty();
        wire.put(&self.control);
        self.control.clear();
        if self.control.capacity() > BATCH {
            self.control = Vec::new();
        }
        while wire.pending() < BATCH {
            self.pump();
            if !self.control.is_empty() {
                wire.put(&self.control);
                self.control.clear();
            }
            let bytes = self.session.to_write();
            if bytes.is_empty() {
                break;
            }
            wire.put(bytes);
            let length = bytes.len();
            self.session.written(length);
            is_something = true;
        }
        is_something
    }

    /// Moves queued messages into the session, the targets taking turns.
    fn pump(&mut self) {
        let mut stalled = 0;
        while self.session.unwritten() < AHEAD
            && self.session.kept() < self.window
            && stalled <= self.line.len()
        {
            let Some(handle) = self.line.next_target() else {
                return;
            };
            let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
                continue;
            };
            if let TargetState::Closing { .. } = target.state {
                // What waits here goes back to the bus when the target has closed.
                continue;
            }
            let piece = self.line.take_piece(handle, &mut target.credit);
            if target.is_waited_for {
                target.is_waited_for = false;
                target.gate.open();
            }
            let name = target.name.clone();
            let Some(piece) = piece else {
                stalled += 1;
                continue;
            };
            stalled = 0;
            match piece {
                Piece::Whole(message) => {
                    let sender = message.sender;
                    // Bound again if the connection is a new one; if that fails the receiver refuses and says so.
                    let _ = self.prove(sender);
                    self.session.append(&Frame::Message {
                        sender,
                        target: handle,
                        payload: &message.into_bytes(),
                    });
                    self.note_unqueued(sender);
                }
                Piece::First {
                    sender,
                    total,
                    piece,
                } => {
                    let _ = self.prove(sender);
                    self.long.push_back(Long {
                        end: u64::MAX,
                        target: name,
                        message: Queued::message(sender, Bytes::new()),
                    });
                    // Messages are limited to far less than 4 GiB.
                    let total = u32::try_from(total).unwrap_or(u32::MAX);
                    self.session.append(&Frame::Begin {
                        sender,
                        target: handle,
                        total,
                        piece: &piece,
                    });
                }
                Piece::Next { piece, complete } => {
                    self.session.append(&Frame::Continue {
                        target: handle,
                        piece: &piece,
                    });
                    if let Some(message) = complete
                        && let Some(long) = self
                            .long
                            .iter_mut()
                            .find(|long| long.end == u64::MAX && long.target == name)
                    {
                        long.end = self.session.next();
                        long.message = message;
                        let sender = long.message.sender;
                        self.note_unqueued(sender);
                    }
                }
            }
        }
    }

    /// Whether a connection is needed: something waits to be sent or acknowledged.
    pub(crate) fn needs_connection(&self) -> bool {
        !self.session.is_settled() || !self.line.is_empty()
    }

    /// A frame for this connection only.
    pub(crate) fn control(&mut self, frame: &Frame<'_>) {
        frame.encode(0, &mut self.control);
    }

    /// Bytes of such frames not yet written.
    pub(crate) fn control_bytes(&self) -> usize {
        self.control.len()
    }

    // ---- connections ----

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

    /// An agent of this process, or with `None` its bus, is the peer's target: proves it and lets messages come.
    pub(crate) fn accept_target(
        &mut self,
        target: u32,
        agent: Option<Arc<LocalAgent>>,
        limit: u64,
    ) {
        if let Some(agent) = agent {
            self.hosted.insert(target, agent);
            self.prove_hosted(target);
        }
        self.session.append(&Frame::Accept { target, limit });
    }

    fn prove_hosted(&mut self, target: u32) {
        if let Some(agent) = self.hosted.get(&target)
            && let Some(proof) = &self.proof
            // Without a proof the peer sends nothing, and logs why.
            && let Ok(proof) = prove(agent, proof)
        {
            Frame::Prove {
                target,
                proof: &proof,
            }
            .encode(0, &mut self.control);
        }
    }

    pub(crate) fn forget_hosted(&mut self, target: u32) {
        self.hosted.remove(&target);
    }

    // ---- what the peer says ----

    pub(crate) fn acknowledged(&mut self, received: u64) -> Result<(), Violation> {
        self.session.acknowledge(received)?;
        let acknowledged = self.session.acknowledged();
        while self
            .long
            .front()
            .is_some_and(|long| long.end <= acknowledged)
        {
            self.long.pop_front();
        }
        while let Some((end, handle)) = self.leaving.front().copied()
            && end <= acknowledged
        {
            self.leaving.pop_front();
            self.bound[handle as usize] = None;
            self.free_handles.push(handle);
        }
        if !self.blocked.is_empty() && self.session.kept() < self.window {
            for handle in std::mem::take(&mut self.blocked) {
                if let Some(Some(target)) = self.targets.get_mut(handle as usize)
                    && target.is_waited_for
                {
                    target.is_waited_for = false;
                    target.gate.open();
                }
            }
        }
        Ok(())
    }

    /// The receiver's proof.
    pub(crate) fn proved(
        &mut self,
        handle: u32,
        proof: &[u8],
        trust: Option<&Trust>,
        now: Timestamp,
    ) -> Option<Action> {
        let (Some(own), Some(trust)) = (&self.proof, trust) else {
            return None;
        };
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return None;
        };
        let verified = Binding::decode(proof)
            .and_then(|binding| binding.verify(&own.channel, own.role.other(), trust, now));
        let (reason, explanation) = match verified {
            Ok(identity) if may_take(identity.identity(), &target.name) => {
                target.identity = Some(identity);
                return None;
            }
            Ok(identity) => (
                RefusalReason::WrongIdentity,
                format!(
                    "{} answered where {} was expected",
                    identity.identity(),
                    target.name
                ),
            ),
            Err(error) => (RefusalReason::from(&error), error.to_string()),
        };
        Some(Action::ReceiverNotProved {
            receiver: target.name.clone(),
            reason,
            explanation,
        })
    }

    /// The target answered, or widened its credit.
    pub(crate) fn credited(&mut self, handle: u32, limit: u64, is_answer: bool) {
        let must_be_proved = self.level.authenticates();
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return;
        };
        if let TargetState::Closing { .. } = target.state {
            return;
        }
        // The process has proved itself by the connection.
        if must_be_proved && !target.is_process && target.identity.is_none() {
            if is_answer {
                self.start_closing(handle, true);
            } else {
                target.unproved_limit = target.unproved_limit.max(limit);
            }
            return;
        }
        target.credit.raise(limit.max(target.unproved_limit));
        self.line.notice(handle, &mut target.credit);
        if target.is_waited_for {
            target.is_waited_for = false;
            target.gate.open();
        }
    }

    /// Drops the credit of targets whose certificate is no longer believed.
    pub(crate) fn check_targets(&mut self, trust: &Trust, now: Timestamp) {
        for handle in 0..self.targets.len() {
            if let Some(Some(target)) = self.targets.get(handle)
                && let Some(identity) = &target.identity
                && let TargetState::Open = target.state
                && matches!(
                    trust.check(identity, now),
                    Err(sealbus_seal::VerifyError::Revoked { .. })
                )
            {
                self.start_closing(handle as u32, true);
            }
        }
    }

    /// The target is not there, or not for long.
    pub(crate) fn start_closing(&mut self, handle: u32, denied: bool) {
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return;
        };
        if let TargetState::Open = target.state {
            target.state = TargetState::Closing {
                returned: Vec::new(),
                denied,
            };
            self.session.append(&Frame::CloseTarget { target: handle });
            target.gate.open_all();
        }
    }

    /// A message, or a piece of one, came back.
    pub(crate) fn returned(
        &mut self,
        handle: u32,
        sender: u32,
        why: Why,
        more: bool,
        bytes: &[u8],
    ) -> Option<Action> {
        if why == Why::Moving || why == Why::NotHere {
            self.start_closing(handle, why == Why::NotHere);
        }
        let sender = self.name_of(sender);
        let limit = self.largest_message;
        let target = self.targets.get_mut(handle as usize)?.as_mut()?;
        // What comes back was sent from here, so it is within the limit unless the peer lies.
        if target.piece.len() + bytes.len() <= limit {
            target.piece.extend_from_slice(bytes);
        }
        if more {
            return None;
        }
        let payload = Bytes::from(std::mem::take(&mut target.piece));
        if target.is_process {
            let frames = vec![LostFrame {
                sender,
                payload,
                may_have_arrived: false,
            }];
            let reason = match why {
                Why::Refused(reason) => refused_there(reason),
                Why::Moving | Why::NotHere => UndeliverableReason::ReceiverGone,
            };
            return Some(Action::FramesLost {
                serial: None,
                frames,
                reason,
            });
        }
        let sender = sender?;
        if let Why::Refused(reason) = why {
            return Some(Action::Undeliverable {
                sender,
                receiver: target.name.clone(),
                payload,
                reason: refused_there(reason),
            });
        }
        if let TargetState::Closing { returned, .. } = &mut target.state {
            returned.push(Returned { sender, payload });
        }
        None
    }

    /// All that was sent to the target was delivered or has come back.
    pub(crate) fn target_closed(&mut self, handle: u32) -> Option<Action> {
        let slot = self.targets.get_mut(handle as usize)?;
        let mut target =
            slot.take_if(|target| matches!(target.state, TargetState::Closing { .. }))?;
        self.names.remove(&target.name);
        self.free_targets.push(handle);
        let rest = self.line.take_queue(&mut target.credit);
        for message in &rest {
            self.note_unqueued(message.sender);
        }
        self.long.retain(|long| long.target != target.name);
        let TargetState::Closing {
            returned: mut messages,
            denied,
            ..
        } = target.state
        else {
            return None;
        };
        self.returning.insert(target.serial);
        if target.is_process {
            let frames = rest
                .into_iter()
                .map(|frame| self.as_lost(frame, false))
                .collect();
            return Some(Action::FramesLost {
                serial: Some(target.serial),
                frames,
                reason: UndeliverableReason::ReceiverGone,
            });
        }
        messages.extend(
            rest.into_iter()
                .filter_map(|message| self.as_returned(&message)),
        );
        Some(Action::Returned {
            receiver: target.name,
            serial: target.serial,
            messages,
            denied,
        })
    }

    /// The bus has everything back that was sent to a former target.
    pub(crate) fn settle(&mut self, serial: u64) {
        self.returning.remove(&serial);
    }

    fn name_of(&self, sender: u32) -> Option<Arc<str>> {
        Some(
            self.bound
                .get(sender as usize)?
                .as_ref()?
                .agent
                .name()
                .clone(),
        )
    }

    fn as_returned(&self, message: &Queued) -> Option<Returned> {
        Some(Returned {
            sender: self.name_of(message.sender)?,
            payload: message.payload.clone(),
        })
    }

    /// The session is lost. Messages that may have arrived are reported; those that cannot have go back to the bus to be
    /// sent anew, if `is_reachable`, and are reported too otherwise.
    pub(crate) fn lose(&mut self, why: &str, is_reachable: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        // With the number of their last piece.
        let mut lost_frames = Vec::new();
        let reason = UndeliverableReason::ProcessUnreachable(why.to_owned());
        let mut unsent: HashMap<u32, Vec<Returned>> = HashMap::new();
        let unreachable =
            |sender: Arc<str>, receiver: &Arc<str>, payload: Bytes| Action::Undeliverable {
                sender,
                receiver: receiver.clone(),
                payload,
                reason: reason.clone(),
            };
        self.session
            .for_each_kept(|frame, number, may_have_arrived| {
                if let Frame::Message {
                    sender,
                    target: handle,
                    payload,
                } = frame
                    && let Some(Some(target)) = self.targets.get(*handle as usize)
                {
                    let payload = Bytes::copy_from_slice(payload);
                    if target.is_process {
                        let frame = Queued::message(*sender, payload);
                        lost_frames.push((number, self.as_lost(frame, may_have_arrived)));
                        return;
                    }
                    let Some(sender) = self.name_of(*sender) else {
                        return;
                    };
                    if may_have_arrived || !is_reachable {
                        actions.push(unreachable(sender, &target.name, payload));
                    } else {
                        unsent
                            .entry(*handle)
                            .or_default()
                            .push(Returned { sender, payload });
                    }
                }
            });
        for long in std::mem::take(&mut self.long) {
            // Those not sent to the end are still in their target's queue.
            if long.end == u64::MAX || long.end <= self.session.acknowledged() {
                continue;
            }
            if *long.target == *PROCESS_TARGET {
                lost_frames.push((long.end - 1, self.as_lost(long.message, true)));
            } else if let Some(sender) = self.name_of(long.message.sender) {
                actions.push(unreachable(sender, &long.target, long.message.payload));
            }
        }
        let mut returning = Vec::new();
        for (handle, slot) in (0..).zip(std::mem::take(&mut self.targets)) {
            let Some(mut target) = slot else { continue };
            if target.is_process {
                lost_frames.sort_by_key(|(number, _)| *number);
                let rest = self.line.take_queue(&mut target.credit).into_iter();
                let rest = rest.map(|frame| self.as_lost(frame, false));
                let sent = std::mem::take(&mut lost_frames).into_iter().map(|it| it.1);
                let frames = sent.chain(rest).collect();
                target.gate.open_all();
                returning.push(target.serial);
                actions.push(Action::FramesLost {
                    serial: Some(target.serial),
                    frames,
                    reason: reason.clone(),
                });
                continue;
            }
            let (mut messages, denied) = match target.state {
                TargetState::Open => (Vec::new(), false),
                TargetState::Closing {
                    returned, denied, ..
                } => (returned, denied),
            };
            messages.extend(unsent.remove(&handle).unwrap_or_default());
            let rest = self.line.take_queue(&mut target.credit);
            let rest = rest.iter().filter_map(|message| self.as_returned(message));
            if is_reachable {
                messages.extend(rest);
            } else {
                actions.extend(
                    rest.map(|message| unreachable(message.sender, &target.name, message.payload)),
                );
            }
            target.gate.open_all();
            // Also without messages: the bus may be waiting to hear that nothing more comes back.
            returning.push(target.serial);
            actions.push(Action::Returned {
                receiver: target.name,
                serial: target.serial,
                messages,
                denied,
            });
        }
        self.returning.extend(returning);
        self.epoch += 1;
        self.free_targets.clear();
        self.names.clear();
        self.line = Line::default();
        self.bound.clear();
        self.free_handles.clear();
        self.handles.clear();
        self.leaving.clear();
        self.hosted.clear();
        self.blocked.clear();
        self.session.start_over();
        actions
    }
}

fn refused_there(reason: RefusalReason) -> UndeliverableReason {
    UndeliverableReason::Refused {
        reason,
        explanation: "the log of the receiving process says more".to_owned(),
    }
}

/// Whether messages to `receiver` may go to who has proved to be this: the receiver itself, or the gateway for agents
/// of other platforms.
fn may_take(identity: &Identity, receiver: &str) -> bool {
    identity.is_agent_named(receiver)
        || (is_foreign(receiver, identity.platform())
            && identity.is_agent_named(&format!("{GATEWAY}@{}", identity.platform())))
}

fn prove(agent: &LocalAgent, proof: &Proof) -> Result<Vec<u8>, String> {
    let credential = agent.credential().ok_or_else(|| {
        format!(
            "agent {} has no certificate to prove its name with",
            agent.name()
        )
    })?;
    let binding = Binding::prove(&credential, &proof.channel, proof.role)
        .map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    binding.encode(&mut out);
    Ok(out)
}
