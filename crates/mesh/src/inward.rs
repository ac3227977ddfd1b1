//! The receiving half of a link: the bound senders, the targets, and the checks on each message's way into a mailbox.
//! Only the link's task uses it.

mod foreign;
mod frames;
mod line;
mod messages;
mod senders;
mod shown;
mod signing;
mod targets;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use sealbus_bus::text::{LONGEST_EXPLANATION, excerpt};
use sealbus_bus::{Bus, FrameOrigin, FrameWriter, Provenance, RefusalReason};
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::Checker;
use sealbus_proof::{Malformed, NotProved, Verifier};
use sealbus_seal::{Identity, SecurityLevel, Serial, Timestamp, Trust, VerifiedIdentity};
use thiserror::Error;

use self::frames::FrameRow;
use self::line::FrameLine;
use self::messages::Row;
use self::senders::Sender;
use self::signing::AwaitingSignature;
use self::targets::{Partial, Target};
use crate::frame::{self, Frame, FrameError, GoodbyeReason, LONGEST_BODY, Why};
use crate::link::Link;
use crate::outward::Action;
use crate::session::{self, Judgement, Taken, Violation};

/// The reason why a connection cannot go on.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Session(#[from] Violation),
    #[error("{0}")]
    Rule(&'static str),
    #[error("a proof is malformed: {0}")]
    Proof(#[from] Malformed),
    #[error(transparent)]
    NotProved(NotProved),
    #[error("the peer makes this process keep too much for it")]
    Overdrawn,
    #[error("the peer closed the connection ({reason:?}): {text}")]
    Goodbye { reason: GoodbyeReason, text: String },
}

/// The receiving half of a link.
pub(crate) struct Inward {
    link: Weak<Link>,
    bus: Bus,
    peer: Arc<Identity>,
    /// The peer's name, for mailboxes.
    writer: Arc<str>,
    /// The peer itself as the writer of frames, with the identity that it proved on the connection.
    peer_writer: Arc<FrameWriter>,
    trust: Option<Arc<Trust>>,
    level: SecurityLevel,
    largest_message: usize,
    agents: usize,
    checker: Checker,
    /// The sender of the last sound message, if its name was the proved one.
    last_sender: Option<Arc<str>>,
    senders: Vec<Option<Sender>>,
    /// How many handles each believed agent has.
    handles_of: HashMap<Arc<str>, u32>,
    targets: Vec<Option<Target>>,
    /// The bytes of their names.
    names: usize,
    /// The handles of targets whose agents were here when they were opened.
    open_names: HashMap<Arc<str>, u32>,
    /// The number of targets opened in this session.
    opened: u32,
    partials: usize,
    /// Messages and frames that wait for a signature, in the order in which they came.
    waiting: VecDeque<AwaitingSignature>,
    /// Checks the peer's signatures; `None` if nothing is signed.
    verifier: Option<Verifier>,
    /// The bus frames that wait.
    line: FrameLine,
    /// When the first of the senders' certificates ends.
    next_expiry: Option<Timestamp>,
    /// The number of the counted frame that is due.
    due: u64,
    /// The number of messages accepted.
    pub(crate) received: u64,
    /// Messages that passed the checks and go into their mailbox together: successive messages to one target.
    row: Row,
    /// The frames that go to the bus together.
    frames: FrameRow,
}

impl Inward {
    pub(crate) fn new(link: &Arc<Link>, bus: Bus) -> Self {
        let config = &link.config;
        let level = config.security.level();
        let trust = config.security.process();
        let trust = trust.map(|security| security.trust.clone());
        let verifier = trust.as_ref().filter(|_| level.authenticates());
        let verifier = verifier
            .map(|trust| Verifier::new(trust.platform().clone(), level.max(SecurityLevel::Signed)));
        let peer = Arc::new(link.peer.clone());
        Self {
            link: Arc::downgrade(link),
            bus,
            writer: peer.to_string().into(),
            peer_writer: writer_of(&peer, FrameOrigin::Process, Provenance::Claimed),
            peer,
            trust,
            level,
            largest_message: config.largest_message,
            agents: config.agents_per_link,
            checker: Checker::new(Limits {
                message_length: config.largest_message,
                ..Limits::default()
            }),
            last_sender: None,
            senders: Vec::new(),
            handles_of: HashMap::new(),
            targets: Vec::new(),
            names: 0,
            open_names: HashMap::new(),
            opened: 0,
            partials: 0,
            waiting: VecDeque::new(),
            verifier,
            line: FrameLine::default(),
            next_expiry: None,
            due: 0,
            received: 0,
            row: Row::default(),
            frames: FrameRow::default(),
        }
    }

    /// A new connection has begun. Every agent that was bound on the former one must prove itself again.
    pub(crate) fn connected(&mut self, due: u64, peer: Option<VerifiedIdentity>) {
        let provenance = match peer {
            Some(peer) if self.level.authenticates() => Provenance::Proved(peer),
            _ => Provenance::Claimed,
        };
        self.peer_writer = writer_of(&self.peer, FrameOrigin::Process, provenance);
        self.due = due;
        self.next_expiry = None;
        if self.level.authenticates() {
            for sender in self.senders.iter_mut().flatten() {
                sender.refused = Some(RefusalReason::NotProved);
            }
        }
    }

    /// The session is lost, and its state with it.
    pub(crate) fn reset(&mut self) {
        self.senders.clear();
        self.handles_of.clear();
        self.targets.clear();
        self.names = 0;
        self.open_names.clear();
        self.opened = 0;
        self.partials = 0;
        self.waiting.clear();
        self.line = FrameLine::default();
        self.next_expiry = None;
        self.due = 0;
    }

    /// Takes the frames at the beginning of `bytes`. Returns their length in bytes.
    pub(crate) fn receive(
        &mut self,
        link: &Arc<Link>,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<usize, Broken> {
        if self.next_expiry.is_some_and(|expiry| expiry < now) {
            self.check(link, now);
        }
        let mut taken = Taken::default();
        let mut at = 0;
        let outcome = loop {
            match frame::parse(&bytes[at..], LONGEST_BODY) {
                Ok(Some(parsed)) => {
                    at += parsed.length;
                    if let Err(broken) = self.take(link, &parsed, now, &mut taken) {
                        break Err(broken);
                    }
                }
                Ok(None) => break Ok(at),
                Err(error) => break Err(error.into()),
            }
        };
        self.end_row(link);
        commit(&mut taken, link, self.waiting.is_empty());
        outcome
    }

    fn take(
        &mut self,
        link: &Arc<Link>,
        parsed: &frame::Parsed<'_>,
        now: Timestamp,
        taken: &mut Taken,
    ) -> Result<(), Broken> {
        check_kept(link)?;
        if !parsed.frame.kind().is_counted() {
            self.end_row(link);
            commit(taken, link, self.waiting.is_empty());
            return self.take_uncounted(link, &parsed.frame, now);
        }
        match session::judge(parsed.sequence, self.due)? {
            Judgement::Again => return Ok(()),
            Judgement::Due => {}
        }
        if let Frame::Message {
            sender,
            target,
            is_signed,
            payload,
        } = parsed.frame
        {
            self.message(link, sender, target, is_signed, [payload, &[]])?;
        } else if let Frame::Row {
            sender,
            target,
            messages,
        } = parsed.frame
        {
            for rest in messages.rests() {
                check_kept(link)?;
                self.message(link, sender, target, false, [messages.beginning(), rest])?;
            }
        } else if let Frame::Sign {
            time,
            signature,
            authors,
        } = parsed.frame
        {
            self.signed(link, time, signature, authors, now)?;
            taken.signatures += 1;
        } else {
            self.end_row(link);
            commit(taken, link, self.waiting.is_empty());
            link.note_kept();
            self.take_counted(link, &parsed.frame)?;
        }
        self.due += 1;
        taken.frames += 1;
        taken.bytes += parsed.length;
        if taken.signatures > 0 && self.waiting.is_empty() {
            // Messages behind the signature wait for another one, and the peer may already be told of those before it.
            self.end_row(link);
            commit(taken, link, true);
        }
        Ok(())
    }

    fn take_uncounted(
        &mut self,
        link: &Arc<Link>,
        frame: &Frame<'_>,
        now: Timestamp,
    ) -> Result<(), Broken> {
        if !matches!(frame, Frame::Acknowledge { .. }) {
            link.note_kept();
        }
        match frame {
            Frame::Acknowledge { received } => {
                let mut outward = link.outward.lock();
                outward.acknowledged(*received)?;
                if outward.holds_messages() {
                    drop(outward);
                    link.wake();
                }
            }
            Frame::Bind { handle, proof } => self.bind(link, *handle, proof, now)?,
            Frame::Delegate {
                handle,
                serial,
                delegation,
            } => self.delegated(*handle, Serial::from_bytes(*serial), delegation)?,
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
                is_signed,
                total,
                piece,
            } => {
                self.begin(*sender, *target, *is_signed, *total as usize, piece)?;
            }
            Frame::Continue { target, piece } => {
                if let Some(Partial {
                    sender,
                    is_signed,
                    bytes,
                    ..
                }) = self.go_on(*target, piece)?
                {
                    self.arrived(link, sender, *target, is_signed, bytes.into());
                }
            }
            Frame::CloseTarget { target } => self.close_target(link, *target)?,
            Frame::Unbind { handle } => {
                if let Some(slot) = self.senders.get_mut(*handle as usize) {
                    if slot.as_ref().is_some_and(Sender::has_unproved) {
                        return Err(Broken::Rule(
                            "an agent leaves before its messages are proved",
                        ));
                    }
                    let sender = slot.take();
                    self.unbound(sender);
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
                let mut outward = link.outward.lock();
                let action = outward.returned(*target, *sender, *why, *more, piece);
                drop(outward);
                given_back(link, action)?;
            }
            Frame::Unread {
                number,
                sender,
                more,
                piece,
            } => {
                let mut outward = link.outward.lock();
                let action = outward.left_unread(*number, *sender, *more, piece);
                drop(outward);
                given_back(link, action)?;
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
                let peer = self.peer.to_string();
                if let Some(left_out) = self.bus.admit_line(&peer) {
                    let text = excerpt(text, LONGEST_EXPLANATION);
                    tracing::warn!(peer, handle, %reason, left_out, "the peer refuses an agent of this process: {text}");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A writer, for all of its frames.
fn writer_of(
    process: &Arc<Identity>,
    origin: FrameOrigin,
    provenance: Provenance,
) -> Arc<FrameWriter> {
    Arc::new(FrameWriter {
        process: process.clone(),
        origin,
        provenance,
    })
}

/// Checks that the peer does not make this process keep too much for it.
#[inline]
fn check_kept(link: &Link) -> Result<(), Broken> {
    match link.is_overdrawn() {
        true => Err(Broken::Overdrawn),
        false => Ok(()),
    }
}

/// A message came back to this process.
fn given_back(link: &Link, action: Option<Action>) -> Result<(), Broken> {
    let is_deceived = link.outward.lock().is_deceived();
    link.act(action);
    link.wake();
    match is_deceived {
        true => Err(Broken::Rule("it gives back what it was not given")),
        false => Ok(()),
    }
}

/// The slot for a handle, which the peer chooses. Handles must be dense, so that the peer cannot make this process keep much.
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

/// Reports taken frames to the session. `are_settled`: no message taken so far waits for its proof.
fn commit(taken: &mut Taken, link: &Link, are_settled: bool) {
    if taken.frames > 0 {
        let taken = std::mem::take(taken);
        link.outward.lock().session.took(taken, are_settled);
    }
}
