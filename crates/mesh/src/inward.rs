//! The receiving half of a link: who is bound, which agents are targets, and the checks each message goes through on its way
//! into a mailbox. Only the link's task works on it.

mod frames;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use sealbus_acl::Limits;
use sealbus_acl::bitefficient::EncodedMessage;
use sealbus_bus::{
    Bus, Closed, FrameWindow, LocalAgent, Permit, Provenance, ReceivedMessage, RefusalReason,
    Refused, Window, WindowListener, check_sender,
};
use sealbus_seal::binding::Binding;
use sealbus_seal::{Identity, Timestamp, Trust, VerifiedIdentity};
use thiserror::Error;

use crate::flow::{Allowance, PARTIAL_MESSAGES};
use crate::frame::{
    self, Frame, FrameError, GoodbyeReason, LONGEST_BODY, LONGEST_PIECE, PROCESS_TARGET, Why,
};
use crate::link::Link;
use crate::session::{self, Arrival, Violation};

/// Why a connection cannot go on.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Session(#[from] Violation),
    #[error("{0}")]
    Rule(&'static str),
    #[error("the peer says goodbye ({reason:?}): {text}")]
    Goodbye { reason: GoodbyeReason, text: String },
}

/// What a handle of the peer's stands for.
struct Sender {
    name: Arc<str>,
    provenance: Provenance,
    /// Why nothing is taken from it.
    refused: Option<RefusalReason>,
}

/// A message that is arriving in pieces.
struct Partial {
    sender: u32,
    total: usize,
    bytes: Vec<u8>,
}

/// An agent of this process, or its bus, that the peer sends to.
struct Target {
    name: Arc<str>,
    /// `None`: it is not here, or no longer.
    place: Option<Place>,
    why_not: Why,
    allowance: Allowance,
    partial: Option<Partial>,
    permits: LastPermit,
}

/// What was decided about the agent that wrote to a target last.
#[derive(Default)]
struct LastPermit {
    sender: Option<Arc<str>>,
    permit: Permit,
}

impl LastPermit {
    /// What was decided about this sender; nothing if another one wrote last.
    fn of(&mut self, sender: &Arc<str>) -> &mut Permit {
        let is_known = self
            .sender
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, sender));
        if !is_known {
            self.sender = Some(sender.clone());
            self.permit = Permit::default();
        }
        &mut self.permit
    }
}

struct Place {
    whom: Whom,
    credit: Arc<TargetCredit>,
}

enum Whom {
    Agent {
        agent: Arc<LocalAgent>,
        window: Window,
    },
    /// The bus of this process.
    Process(Arc<FrameWindow>),
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the peer hears that the target is closed, and so before its handle is used again.
        self.credit.is_over.store(true, Ordering::Release);
    }
}

/// Tells the peer when its target's mailbox has room again.
struct TargetCredit {
    link: Weak<Link>,
    target: u32,
    epoch: u64,
    limit: AtomicU64,
    /// The handle may stand for another target by now.
    is_over: AtomicBool,
}

impl WindowListener for TargetCredit {
    fn widened(&self, _tag: u64, limit: u64) {
        self.limit.fetch_max(limit, Ordering::AcqRel);
        let Some(link) = self.link.upgrade() else {
            return;
        };
        {
            let mut outward = link.outward.lock();
            if outward.epoch != self.epoch || self.is_over.load(Ordering::Acquire) {
                return;
            }
            outward.session.append(&Frame::Credit {
                target: self.target,
                limit,
            });
        }
        link.wake();
    }
}

/// The receiving half of a link.
pub(crate) struct Inward {
    link: Weak<Link>,
    bus: Bus,
    peer: Arc<Identity>,
    /// What the peer itself proved on the connection.
    peer_provenance: Provenance,
    trust: Option<Arc<Trust>>,
    authenticates: bool,
    largest_message: usize,
    agents: usize,
    limits: Limits,
    senders: Vec<Option<Sender>>,
    targets: Vec<Option<Target>>,
    partials: usize,
    /// When the first of the senders' certificates ends.
    next_expiry: Option<Timestamp>,
    /// Number of the counted frame that is due.
    due: u64,
    /// Messages taken.
    pub(crate) received: u64,
    /// Messages that passed the checks and go into their mailbox together: those in a row to one target.
    row: Row,
}

/// Messages in a row to one target.
#[derive(Default)]
struct Row {
    target: u32,
    messages: Vec<ReceivedMessage>,
    senders: Vec<u32>,
    /// Room for the payloads of short messages, so that not each has to have its own.
    shared: BytesMut,
}

/// Room for a long message that is taken with its first piece, at most.
const ROOM_AT_ONCE: usize = 1 << 20;
/// Messages put into a mailbox at a time, at most.
const ROW: usize = 128;
/// Short messages to one target share blocks of this size; who keeps one keeps its block.
const SHARED_BLOCK: usize = 4 << 10;
/// Messages of this length and above have their own room.
const SHARED_LIMIT: usize = 512;

impl Row {
    /// A copy of a payload, for a mailbox.
    fn keep(&mut self, payload: &[u8]) -> Bytes {
        if payload.len() >= SHARED_LIMIT {
            return Bytes::copy_from_slice(payload);
        }
        if self.messages.is_empty() || self.shared.capacity() < payload.len() {
            // The first message of a row stands alone, so that an agent that gets few messages keeps little.
            let room = if self.messages.is_empty() {
                payload.len()
            } else {
                SHARED_BLOCK
            };
            self.shared = BytesMut::with_capacity(room);
        }
        self.shared.extend_from_slice(payload);
        self.shared.split().freeze()
    }
}

impl Inward {
    pub(crate) fn new(link: &Arc<Link>, bus: Bus) -> Self {
        let config = &link.config;
        Self {
            link: Arc::downgrade(link),
            bus,
            peer: Arc::new(link.peer.clone()),
            peer_provenance: Provenance::Claimed,
            trust: config
                .security
                .process()
                .map(|security| security.trust.clone()),
            authenticates: config.security.level().authenticates(),
            largest_message: config.largest_message,
            agents: config.agents_per_link,
            limits: Limits {
                message_length: config.largest_message,
                ..Limits::default()
            },
            senders: Vec::new(),
            targets: Vec::new(),
            partials: 0,
            next_expiry: None,
            due: 0,
            received: 0,
            row: Row::default(),
        }
    }

    /// A new connection: who was bound to the former one has to prove itself again.
    pub(crate) fn connected(&mut self, due: u64, peer: Option<VerifiedIdentity>) {
        self.peer_provenance = match peer {
            Some(peer) if self.authenticates => Provenance::Proved(peer),
            _ => Provenance::Claimed,
        };
        self.due = due;
        self.next_expiry = None;
        if self.authenticates {
            for sender in self.senders.iter_mut().flatten() {
                sender.refused = Some(RefusalReason::NotProved);
            }
        }
    }

    /// The session is lost, and with it all it stood for.
    pub(crate) fn reset(&mut self) {
        self.senders.clear();
        self.targets.clear();
        self.partials = 0;
        self.next_expiry = None;
        self.due = 0;
    }

    /// Takes the frames at the beginning of `bytes`; returns how many bytes they were.
    pub(crate) fn receive(
        &mut self,
        link: &Arc<Link>,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<usize, Broken> {
        if self.next_expiry.is_some_and(|expiry| expiry < now) {
            self.check(link, now);
        }
        let mut batch = Batch::default();
        let mut at = 0;
        let outcome = loop {
            match frame::parse(&bytes[at..], LONGEST_BODY) {
                Ok(Some(parsed)) => {
                    at += parsed.length;
                    if let Err(broken) = self.take(link, &parsed, now, &mut batch) {
                        break Err(broken);
                    }
                }
                Ok(None) => break Ok(at),
                Err(error) => break Err(error.into()),
            }
        };
        self.end_row(link);
        batch.commit(link);
        outcome
    }

    fn take(
        &mut self,
        link: &Arc<Link>,
        parsed: &frame::Parsed<'_>,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<(), Broken> {
        if !parsed.frame.kind().is_counted() {
            self.end_row(link);
            batch.commit(link);
            return self.take_uncounted(link, &parsed.frame, now);
        }
        match session::judge(parsed.sequence, self.due)? {
            Arrival::Again => return Ok(()),
            Arrival::Due => {}
        }
        if let Frame::Message {
            sender,
            target,
            payload,
        } = parsed.frame
        {
            self.message(link, sender, target, payload)?;
        } else {
            self.end_row(link);
            batch.commit(link);
            self.take_counted(link, &parsed.frame)?;
        }
        self.due += 1;
        batch.frames += 1;
        batch.bytes += parsed.length;
        Ok(())
    }

    fn take_uncounted(
        &mut self,
        link: &Arc<Link>,
        frame: &Frame<'_>,
        now: Timestamp,
    ) -> Result<(), Broken> {
        match frame {
            Frame::Acknowledge { received } => link.outward.lock().acknowledged(*received)?,
            Frame::Bind { handle, proof } => self.bind(link, *handle, proof, now)?,
            Frame::Prove { target, proof } => {
                let action = link
                    .outward
                    .lock()
                    .proved(*target, proof, self.trust.as_deref(), now);
                link.act(action);
            }
            Frame::Ping => {
                link.outward.lock().control(&Frame::Pong);
                link.wake();
            }
            Frame::Goodbye { reason, text } => {
                return Err(Broken::Goodbye {
                    reason: *reason,
                    text: (*text).to_owned(),
                });
            }
            Frame::Hello(_) => return Err(Broken::Rule("a second hello on a connection")),
            _ => {}
        }
        Ok(())
    }

    fn take_counted(&mut self, link: &Arc<Link>, frame: &Frame<'_>) -> Result<(), Broken> {
        match frame {
            Frame::Target { handle, name } => self.open_target(link, *handle, name)?,
            Frame::Begin {
                sender,
                target,
                total,
                piece,
            } => {
                self.begin(*sender, *target, *total as usize, piece)?;
            }
            Frame::Continue { target, piece } => {
                if let Some(Partial { sender, bytes, .. }) = self.go_on(*target, piece)? {
                    self.deliver(link, sender, *target, bytes.into());
                }
            }
            Frame::CloseTarget { target } => self.close_target(link, *target)?,
            Frame::Unbind { handle } => {
                if let Some(sender) = self.senders.get_mut(*handle as usize) {
                    *sender = None;
                }
            }
            Frame::Accept { target, limit } => {
                link.outward.lock().credited(*target, *limit, true);
                link.wake();
            }
            Frame::Credit { target, limit } => {
                link.outward.lock().credited(*target, *limit, false);
                link.wake();
            }
            Frame::Leaving { target, why } => {
                link.outward
                    .lock()
                    .start_closing(*target, *why == Why::NotHere);
                link.wake();
            }
            Frame::Returned {
                target,
                sender,
                why,
                more,
                piece,
            } => {
                let action = link
                    .outward
                    .lock()
                    .returned(*target, *sender, *why, *more, piece);
                link.act(action);
                link.wake();
            }
            Frame::TargetClosed { target } => {
                let action = link.outward.lock().target_closed(*target);
                link.act(action);
            }
            Frame::Refused {
                handle,
                reason,
                text,
            } => {
                tracing::warn!(peer = %self.peer, handle, %reason, "the peer refuses an agent of this process: {text}");
            }
            _ => {}
        }
        Ok(())
    }

    // ---- agents that send ----

    fn bind(
        &mut self,
        link: &Arc<Link>,
        handle: u32,
        proof: &[u8],
        now: Timestamp,
    ) -> Result<(), Broken> {
        let slot = slot(&mut self.senders, handle, self.agents)?;
        if !self.authenticates {
            let name =
                str::from_utf8(proof).map_err(|_| Broken::Rule("an agent's name is not UTF-8"))?;
            if name.len() > 2 * sealbus_seal::MAX_NAME_LENGTH + 1 {
                return Err(Broken::Rule("an agent's name is too long"));
            }
            *slot = Some(Sender {
                name: name.into(),
                provenance: Provenance::Claimed,
                refused: None,
            });
            return Ok(());
        }
        let (Some(trust), Some(own)) = (&self.trust, link.outward.lock().proof().cloned()) else {
            return Err(Broken::Rule("an agent is bound before the connection is"));
        };
        let binding = Binding::decode(proof);
        let verified = binding
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|binding| binding.verify(&own.channel, own.role.other(), trust, now));
        match verified {
            Ok(verified) => {
                let name: Arc<str> = verified.identity().agent_name().unwrap_or_default().into();
                // The other direction of a handle's life: it belongs to one agent until it is unbound.
                if slot
                    .as_ref()
                    .is_some_and(|sender| sender.name != name && !sender.name.is_empty())
                {
                    return Err(Broken::Rule(
                        "the handle of an agent is bound to another one",
                    ));
                }
                let expiry = verified.not_after();
                self.next_expiry = Some(self.next_expiry.map_or(expiry, |next| next.min(expiry)));
                *slot = Some(Sender {
                    name,
                    provenance: Provenance::Proved(verified),
                    refused: None,
                });
            }
            Err(error) => {
                let claimed = binding
                    .ok()
                    .and_then(|binding| binding.chain().certificate().ok())
                    .and_then(|certificate| certificate.identity().agent_name())
                    .unwrap_or_else(|| format!("an agent of {}", self.peer));
                let reason = RefusalReason::from(&error);
                let explanation = error.to_string();
                let name = slot
                    .as_ref()
                    .map_or_else(|| Arc::from(claimed.as_str()), |sender| sender.name.clone());
                *slot = Some(Sender {
                    name,
                    provenance: Provenance::Claimed,
                    refused: Some(reason),
                });
                link.outward.lock().session.append(&Frame::Refused {
                    handle,
                    reason,
                    text: &explanation,
                });
                link.wake();
                self.bus.refused(
                    &claimed,
                    Some(self.peer.to_string()),
                    None,
                    reason,
                    explanation,
                );
            }
        }
        Ok(())
    }

    /// Looks at all certificates again: the deny list has changed, or time has passed.
    pub(crate) fn check(&mut self, link: &Arc<Link>, now: Timestamp) {
        self.next_expiry = None;
        let Some(trust) = self.trust.clone() else {
            return;
        };
        for (handle, sender) in (0..).zip(&mut self.senders) {
            let Some(sender) = sender else { continue };
            let Provenance::Proved(verified) = &sender.provenance else {
                continue;
            };
            if sender.refused.is_some() {
                continue;
            }
            match trust.check(verified, now) {
                Ok(()) => {
                    let expiry = verified.not_after();
                    // Within the tolerance for clocks it is looked at once a second.
                    let expiry = expiry.max(now);
                    self.next_expiry =
                        Some(self.next_expiry.map_or(expiry, |next| next.min(expiry)));
                }
                Err(error) => {
                    let reason = RefusalReason::from(&error);
                    let explanation = error.to_string();
                    sender.refused = Some(reason);
                    link.outward.lock().session.append(&Frame::Refused {
                        handle,
                        reason,
                        text: &explanation,
                    });
                    link.wake();
                    let proved = Some(verified.identity().to_string());
                    self.bus
                        .refused(&sender.name, proved, None, reason, explanation);
                }
            }
        }
        link.outward.lock().check_targets(&trust, now);
    }

    // ---- agents that receive ----

    fn open_target(&mut self, link: &Arc<Link>, handle: u32, name: &str) -> Result<(), Broken> {
        let slot = slot(&mut self.targets, handle, self.agents)?;
        if slot.is_some() {
            return Err(Broken::Rule("a target's handle is used twice"));
        }
        let mut target = Target {
            name: name.into(),
            place: None,
            why_not: Why::NotHere,
            allowance: Allowance::new(0),
            partial: None,
            permits: LastPermit::default(),
        };
        let credit = Arc::new(TargetCredit {
            link: self.link.clone(),
            target: handle,
            epoch: link.outward.lock().epoch,
            limit: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let whom = if *name == *PROCESS_TARGET {
            self.bus
                .takes_frames()
                .then(|| Whom::Process(FrameWindow::new(frames::WINDOW, credit.clone())))
        } else {
            self.bus
                .receiver(name)
                .filter(|agent| agent.mailbox().closed().is_none())
                .map(|agent| Whom::Agent {
                    window: agent.mailbox().open_window(credit.clone(), 0),
                    agent,
                })
        };
        match whom {
            Some(whom) => {
                let (limit, agent) = match &whom {
                    Whom::Agent { agent, window } => (window.first_limit(), Some(agent.clone())),
                    Whom::Process(window) => (window.first_limit(), None),
                };
                credit.limit.fetch_max(limit, Ordering::AcqRel);
                target.allowance.raise(limit);
                target.place = Some(Place { whom, credit });
                link.outward.lock().accept_target(handle, agent, limit);
            }
            None => {
                link.outward.lock().session.append(&Frame::Leaving {
                    target: handle,
                    why: Why::NotHere,
                });
            }
        }
        *slot = Some(target);
        link.wake();
        Ok(())
    }

    /// Agents of this process have left: those who send to them hear of it.
    pub(crate) fn agents_left(&mut self, link: &Arc<Link>) {
        for (handle, target) in (0..).zip(&mut self.targets) {
            let Some(target) = target else { continue };
            let Some(place) = &target.place else { continue };
            if let Whom::Agent { agent, .. } = &place.whom
                && let Some(closed) = agent.mailbox().closed()
            {
                target.leave(link, handle, closed);
            }
        }
    }

    fn close_target(&mut self, link: &Arc<Link>, handle: u32) -> Result<(), Broken> {
        let slot = slot(&mut self.targets, handle, self.agents)?;
        if let Some(target) = slot.take()
            && target.partial.is_some()
        {
            self.partials -= 1;
        }
        let mut outward = link.outward.lock();
        outward.forget_hosted(handle);
        outward
            .session
            .append(&Frame::TargetClosed { target: handle });
        drop(outward);
        link.wake();
        Ok(())
    }

    // ---- messages ----

    fn message(
        &mut self,
        link: &Arc<Link>,
        sender: u32,
        target: u32,
        payload: &[u8],
    ) -> Result<(), Broken> {
        let Some(Some(slot)) = self.targets.get_mut(target as usize) else {
            return Err(Broken::Rule("a message to a target that was not opened"));
        };
        slot.allow(payload.len())?;
        if self.row.target != target || self.row.messages.len() == ROW {
            self.end_row(link);
            self.row.target = target;
        }
        let payload = self.row.keep(payload);
        self.deliver(link, sender, target, payload);
        Ok(())
    }

    /// Puts the messages of the row into their mailbox.
    fn end_row(&mut self, link: &Arc<Link>) {
        let Row {
            target: handle,
            messages,
            senders,
            ..
        } = &mut self.row;
        if messages.is_empty() {
            return;
        }
        if let Some(Some(target)) = self.targets.get_mut(*handle as usize)
            && let Some(place) = &target.place
            && let Whom::Agent { window, .. } = &place.whom
        {
            let count = messages.len() as u64;
            match window.push_all(messages) {
                Ok(()) => self.received += count,
                Err(closed) => {
                    target.leave(link, *handle, closed);
                    for (message, sender) in messages.drain(..).zip(senders.drain(..)) {
                        if let Ok(payload) = message.to_bytes() {
                            give_back(link, *handle, sender, target.why_not, &payload);
                        }
                    }
                }
            }
        }
        messages.clear();
        senders.clear();
    }

    fn begin(
        &mut self,
        sender: u32,
        target: u32,
        total: usize,
        piece: &[u8],
    ) -> Result<(), Broken> {
        let largest = self.largest_message;
        let Some(Some(slot)) = self.targets.get_mut(target as usize) else {
            return Err(Broken::Rule("a message to a target that was not opened"));
        };
        if slot.partial.is_some() || self.partials == PARTIAL_MESSAGES {
            return Err(Broken::Rule("too many long messages at the same time"));
        }
        if total > largest || piece.len() >= total {
            return Err(Broken::Rule(
                "a long message of a length that is not allowed",
            ));
        }
        slot.allow(total)?;
        // Beyond a little the room is taken as the pieces come, not on the word of the peer.
        let mut bytes = Vec::with_capacity(total.min(ROOM_AT_ONCE));
        bytes.extend_from_slice(piece);
        slot.partial = Some(Partial {
            sender,
            total,
            bytes,
        });
        self.partials += 1;
        Ok(())
    }

    fn go_on(&mut self, target: u32, piece: &[u8]) -> Result<Option<Partial>, Broken> {
        let Some(Some(Target { partial, .. })) = self.targets.get_mut(target as usize) else {
            return Err(Broken::Rule("a piece for a target that was not opened"));
        };
        let Some(begun) = partial else {
            return Err(Broken::Rule("a piece of no message"));
        };
        begun.bytes.extend_from_slice(piece);
        if begun.bytes.len() > begun.total || piece.is_empty() {
            return Err(Broken::Rule("more pieces than the message has"));
        }
        if begun.bytes.len() < begun.total {
            return Ok(None);
        }
        self.partials -= 1;
        Ok(partial.take())
    }

    /// The checks, then the mailbox.
    fn deliver(
        &mut self,
        link: &Arc<Link>,
        sender_handle: u32,
        target_handle: u32,
        payload: Bytes,
    ) {
        let Some(Some(target)) = self.targets.get_mut(target_handle as usize) else {
            return;
        };
        let sender = self
            .senders
            .get(sender_handle as usize)
            .and_then(Option::as_ref);
        let Some(place) = &target.place else {
            give_back(link, target_handle, sender_handle, target.why_not, &payload);
            return;
        };
        let window = match &place.whom {
            Whom::Agent { window, .. } => window,
            Whom::Process(window) => {
                let credit = window.credit(payload.len());
                self.deliver_frame(link, sender_handle, target_handle, payload, credit);
                return;
            }
        };
        let message = match EncodedMessage::new(payload, &self.limits) {
            Ok(message) if message.length() == message.bytes().len() => message,
            // Not even its sender can be read.
            _ => {
                let name = sender.map_or("an agent that was not bound", |sender| &sender.name);
                self.bus.refused(
                    name,
                    Some(self.peer.to_string()),
                    Some(&target.name),
                    RefusalReason::Malformed,
                    "the payload is no ACL message".to_owned(),
                );
                return;
            }
        };
        let judged = match sender {
            None => Err(never_bound()),
            Some(sender) => {
                let permit = target.permits.of(&sender.name);
                judge(&self.bus, sender, &target.name, &message, permit)
            }
        };
        let refused = match judged {
            Ok(provenance) => {
                let received = ReceivedMessage::encoded(message, provenance);
                self.row.target = target_handle;
                self.row.messages.push(received);
                self.row.senders.push(sender_handle);
                return;
            }
            Err(refused) => refused,
        };
        let Refused {
            reason,
            explanation,
        } = refused;
        let claimed = message
            .message()
            .sender()
            .map(|sender| sender.name().to_owned());
        let proved = match sender.map(|sender| &sender.provenance) {
            Some(Provenance::Proved(verified)) => verified.identity().to_string(),
            _ => self.peer.to_string(),
        };
        let tried_by = claimed
            .or_else(|| sender.map(|sender| sender.name.to_string()))
            .unwrap_or_else(|| "a message without a sender".to_owned());
        self.bus.refused(
            &tried_by,
            Some(proved),
            Some(&target.name),
            reason,
            explanation,
        );
        let payload = message.into_bytes();
        window.refund(payload.len());
        give_back(
            link,
            target_handle,
            sender_handle,
            Why::Refused(reason),
            &payload,
        );
    }
}

/// What is known of who wrote a message, or why it is refused.
fn judge(
    bus: &Bus,
    sender: &Sender,
    receiver: &str,
    message: &EncodedMessage<Bytes>,
    permit: &mut Permit,
) -> Result<Provenance, Refused> {
    sender.check()?;
    let view = message.message();
    let provenance = match check_sender(&sender.name, &view) {
        Ok(()) => sender.provenance.clone(),
        // The gateway may write in the names of agents of other platforms.
        Err(refused) => bus.spoken_for(&sender.name, &view).ok_or(refused)?,
    };
    // The platform's own notices ask nobody.
    if !provenance.is_of_platform() {
        bus.permits(permit, &sender.name, receiver)?;
    }
    Ok(provenance)
}

fn never_bound() -> Refused {
    Refused {
        reason: RefusalReason::NotProved,
        explanation: "its sender was never bound to this connection".to_owned(),
    }
}

impl Sender {
    /// Whether anything is taken from it.
    fn check(&self) -> Result<(), Refused> {
        match self.refused {
            None => Ok(()),
            Some(reason) => Err(Refused {
                reason,
                explanation: format!(
                    "the certificate of {} is not accepted ({reason})",
                    self.name
                ),
            }),
        }
    }
}

impl Target {
    /// Counts a message against the allowance, whose limit may have been raised since.
    fn allow(&mut self, length: usize) -> Result<(), Broken> {
        if let Some(place) = &self.place {
            self.allowance
                .raise(place.credit.limit.load(Ordering::Acquire));
        }
        if self.allowance.take(length) {
            Ok(())
        } else {
            Err(Broken::Rule("more is sent to a target than it allowed"))
        }
    }

    fn leave(&mut self, link: &Arc<Link>, handle: u32, closed: Closed) {
        self.why_not = match closed {
            Closed::Gone => Why::NotHere,
            Closed::Moving => Why::Moving,
        };
        self.place = None;
        let mut outward = link.outward.lock();
        outward.forget_hosted(handle);
        outward.session.append(&Frame::Leaving {
            target: handle,
            why: self.why_not,
        });
        drop(outward);
        link.wake();
    }
}

/// Sends a message back where it came from, in pieces if it is long.
fn give_back(link: &Arc<Link>, target: u32, sender: u32, why: Why, payload: &[u8]) {
    let mut outward = link.outward.lock();
    let mut rest = payload;
    loop {
        let (piece, after) = rest.split_at(rest.len().min(LONGEST_PIECE));
        let more = !after.is_empty();
        outward.session.append(&Frame::Returned {
            target,
            sender,
            why,
            more,
            piece,
        });
        rest = after;
        if !more {
            break;
        }
    }
    drop(outward);
    link.wake();
}

/// The place for a handle of the peer's choice. Handles are dense, so that the peer cannot make us keep much.
fn slot<T>(slots: &mut Vec<Option<T>>, handle: u32, most: usize) -> Result<&mut Option<T>, Broken> {
    let index = handle as usize;
    if index >= most {
        return Err(Broken::Rule(
            "a handle beyond the limit of agents on a link",
        ));
    }
    if index >= slots.len() {
        slots.resize_with(index + 1, || None);
    }
    slots.get_mut(index).ok_or(Broken::Rule(
        "a handle beyond the limit of agents on a link",
    ))
}

/// Frames taken that the session has not been told of.
#[derive(Default)]
struct Batch {
    frames: u64,
    bytes: usize,
}

impl Batch {
    fn commit(&mut self, link: &Link) {
        if self.frames > 0 {
            link.outward.lock().session.took(self.frames, self.bytes);
            *self = Self::default();
        }
    }
}
