//! The way of a message, from its pieces through the checks into a mailbox, or back to its source.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sealbus_bus::{
    Bus, Closed, ExplainedRefusal, GATEWAY, NotOpened, Permit, Provenance, ReceivedMessage,
    RefusalReason, check_sender,
};
use sealbus_fipa::AclMessageRef;
use sealbus_fipa::bitefficient::{EncodedMessage, Likeness};
use sealbus_proof::Evidence;
use sealbus_seal::SecurityLevel;

use super::senders::{Sender, never_bound};
use super::targets::{Partial, Target, Whom};
use super::{Broken, Inward};
use crate::flow::PARTIAL_MESSAGES;
use crate::frame::{Frame, LONGEST_PIECE, Why};
use crate::link::{Link, Unread};

/// The most room for a long message that is reserved with its first piece.
const ROOM_AT_ONCE: usize = 1 << 20;
/// The most messages that are put into a mailbox at a time.
const ROW: usize = 128;
/// The size of the blocks that short messages to one target share. A message keeps its whole block in memory.
const SHARED_BLOCK: usize = 4 << 10;
/// Messages of at least this length have room of their own.
const SHARED_LIMIT: usize = 512;

/// Successive messages to one target.
#[derive(Default)]
pub(super) struct Row {
    pub(super) target: u32,
    pub(super) messages: Vec<ReceivedMessage>,
    pub(super) senders: Vec<u32>,
    /// The sender of the last checked message, if that message is the last in the row and not sealed.
    judged: Option<u32>,
    /// Room that the payloads of short messages share, to save allocations.
    shared: BytesMut,
}

impl Row {
    /// Adds an unsealed message that has passed all checks.
    fn accept(&mut self, message: EncodedMessage<Bytes>, provenance: Provenance, sender: u32) {
        self.messages
            .push(ReceivedMessage::encoded(message, provenance));
        self.senders.push(sender);
        self.judged = Some(sender);
    }

    /// A copy of a payload, which comes in two parts, for a mailbox.
    fn keep(&mut self, [beginning, rest]: [&[u8]; 2], is_first: bool) -> Bytes {
        let length = beginning.len() + rest.len();
        if length >= SHARED_LIMIT {
            return [beginning, rest].concat().into();
        }
        if is_first || self.shared.capacity() < length {
            // The first message of a row has room of its own, so that an agent that gets few messages keeps little.
            let room = if is_first { length } else { SHARED_BLOCK };
            self.shared = BytesMut::with_capacity(room);
        }
        self.shared.extend_from_slice(beginning);
        self.shared.extend_from_slice(rest);
        self.shared.split().freeze()
    }
}

impl Inward {
    pub(super) fn message(
        &mut self,
        link: &Arc<Link>,
        sender: u32,
        target: u32,
        is_signed: bool,
        payload: [&[u8]; 2],
    ) -> Result<(), Broken> {
        let Some(Some(slot)) = self.targets.get_mut(target as usize) else {
            return Err(Broken::Rule("a message to a target that was not opened"));
        };
        slot.allow(payload[0].len() + payload[1].len())?;
        if is_signed || self.level >= SecurityLevel::Signed || !self.line.is_empty() {
            let payload = self.row.keep(payload, self.waiting.is_empty());
            self.arrived(link, sender, target, is_signed, payload);
            return Ok(());
        }
        self.continue_row(link, target);
        let kept = self.row.keep(payload, self.row.messages.is_empty());
        self.deliver(link, sender, target, kept, payload, Ok(None));
        Ok(())
    }

    /// Takes a message that has arrived completely. If its sender signs, it waits for its proof.
    pub(super) fn arrived(
        &mut self,
        link: &Arc<Link>,
        sender: u32,
        target: u32,
        is_signed: bool,
        payload: Bytes,
    ) {
        if let Some(payload) = self.hold(sender, target, is_signed, payload) {
            self.continue_row(link, target);
            let same = payload.clone();
            self.deliver(link, sender, target, payload, [&same[..], &[]], Ok(None));
        }
    }

    /// Ends the row unless a message to `target` may be added.
    pub(super) fn continue_row(&mut self, link: &Arc<Link>, target: u32) {
        if self.row.target != target || self.row.messages.len() == ROW {
            self.end_row(link);
            self.row.target = target;
        }
    }

    /// Puts the messages of the row into their mailbox, and hands the frames of the row to the bus.
    pub(super) fn end_row(&mut self, link: &Arc<Link>) {
        self.end_frames(link);
        self.row.judged = None;
        self.take_foreign_room(link);
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
            && let Some(open) = &target.open
            && let Whom::Agent { window, .. } = &open.whom
        {
            let count = messages.len() as u64;
            match window.push_all(messages, senders) {
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

    pub(super) fn begin(
        &mut self,
        sender: u32,
        target: u32,
        is_signed: bool,
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
        // More than a little room is reserved only as the pieces come, and not because the peer announces them.
        let mut bytes = Vec::with_capacity(total.min(ROOM_AT_ONCE));
        bytes.extend_from_slice(piece);
        slot.partial = Some(Partial {
            sender,
            is_signed,
            total,
            bytes,
        });
        self.partials += 1;
        Ok(())
    }

    pub(super) fn go_on(&mut self, target: u32, piece: &[u8]) -> Result<Option<Partial>, Broken> {
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

    /// Checks a message and puts it into the mailbox. `same`: the bytes of `payload`, which the check consumes.
    /// `proved`: the author's evidence, or why its proof was refused.
    pub(super) fn deliver(
        &mut self,
        link: &Arc<Link>,
        sender_handle: u32,
        target_handle: u32,
        payload: Bytes,
        same: [&[u8]; 2],
        proved: Result<Option<Evidence>, ExplainedRefusal>,
    ) {
        let Some(Some(target)) = self.targets.get_mut(target_handle as usize) else {
            return;
        };
        let sender = self
            .senders
            .get(sender_handle as usize)
            .and_then(Option::as_ref);
        let Some(open) = &target.open else {
            give_back(link, target_handle, sender_handle, target.why_not, &payload);
            return;
        };
        let window = match &open.whom {
            Whom::Agent { window, .. } => window,
            Whom::Process(_) => {
                let origin = self.origin(sender_handle, proved);
                self.deliver_frame(link, sender_handle, target_handle, payload, origin);
                return;
            }
        };
        let judged = self.row.judged.take();
        let (message, likeness) = match self.checker.check(payload) {
            Ok(checked) if checked.0.length() == checked.0.bytes().len() => checked,
            // Not even the sender is readable.
            unsound => {
                // The next message may be like this one, whose sender nobody checked.
                self.last_sender = None;
                let name = sender.map_or("an agent that was not bound", |sender| &sender.name);
                let why = match unsound {
                    Err(error) => format!("the payload is no ACL message: {error}"),
                    Ok(_) => "more bytes follow the end of the message".to_owned(),
                };
                let reason = RefusalReason::Malformed;
                let proved = Some(self.peer.to_string());
                self.bus
                    .refused(name, proved, Some(&target.name), reason, why);
                let payload = same.concat();
                window.refund(payload.len());
                let why = Why::Refused(reason);
                give_back(link, target_handle, sender_handle, why, &payload);
                return;
            }
        };
        // The message may differ only in content from the one before, which passed all checks.
        if likeness == Likeness::AllButContent
            && judged == Some(sender_handle)
            && let (Some(last), Ok(None)) = (self.row.messages.last(), &proved)
        {
            let provenance = last.provenance().clone();
            self.row.accept(message, provenance, sender_handle);
            return;
        }
        let view = message.message();
        let last_sender = self.last_sender.take();
        let judged = match (sender, proved) {
            (None, _) => Err(never_bound()),
            (_, Err(refused)) => Err(refused),
            (Some(sender), Ok(evidence)) => {
                // The message has the same proved name as the one before.
                let known = last_sender
                    .filter(|last| likeness >= Likeness::Sender && Arc::ptr_eq(last, &sender.name));
                let permit = target.permits.of(&sender.name);
                let judged = judge(&self.bus, sender, &target.name, &view, known, permit);
                judged.map(|(provenance, named)| {
                    self.last_sender = named;
                    match (provenance, evidence) {
                        (Provenance::Proved(_), Some(evidence)) => Provenance::Signed(evidence),
                        (provenance, _) => provenance,
                    }
                })
            }
        };
        let refused = match judged {
            Err(refused) => refused,
            Ok(provenance) => match self.bus.open(&view, &target.name) {
                // Nearly all messages come here, so nothing is moved without need.
                Ok(None) => {
                    self.row.accept(message, provenance, sender_handle);
                    return;
                }
                Ok(Some(_)) if matches!(provenance, Provenance::Proved(_)) => ExplainedRefusal {
                    reason: RefusalReason::NotProved,
                    explanation: "it is sealed, and its author did not sign it".to_owned(),
                },
                Ok(opened) => {
                    let received = ReceivedMessage::encoded(message, provenance).opened(opened);
                    self.row.messages.push(received);
                    self.row.senders.push(sender_handle);
                    return;
                }
                Err(NotOpened::UnknownRow) => {
                    let payload = message.into_bytes();
                    self.ask_again(link, sender_handle, target_handle, &payload);
                    return;
                }
                Err(NotOpened::Refused(refused)) => refused,
            },
        };
        let ExplainedRefusal {
            reason,
            explanation,
        } = refused;
        let claimed = message
            .message()
            .sender()
            .map(|sender| sender.name().to_owned());
        let proved = match sender.and_then(|sender| sender.provenance.certified()) {
            Some(verified) => verified.identity().to_string(),
            None => self.peer.to_string(),
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

    /// Gives back a message whose row is not known here, and all later ones to the same target, as if the target were
    /// moving. They come again in order, with the row's secret.
    fn ask_again(&mut self, link: &Arc<Link>, sender: u32, target: u32, payload: &[u8]) {
        // The messages before it stay here.
        self.end_row(link);
        if let Some(Some(slot)) = self.targets.get_mut(target as usize) {
            if slot.open.is_some() {
                slot.leave(link, target, Closed::Moving);
            }
            give_back(link, target, sender, slot.why_not, payload);
        }
    }

    /// Sends back messages that agents of this process will never read.
    pub(super) fn give_back_unread(&self, link: &Arc<Link>) {
        let unread = std::mem::take(&mut *link.unread.lock());
        let epoch = link.outward.lock().epoch;
        // If the session was lost, the peer has already told the senders.
        for unread in unread.into_iter().filter(|unread| unread.epoch == epoch) {
            let handles: HashMap<&str, u32> = (0..)
                .zip(&self.senders)
                .filter_map(|(handle, sender)| Some((&*sender.as_ref()?.name, handle)))
                .collect();
            let Unread { target, number, .. } = unread;
            let slot = self.targets.get(target as usize);
            let slot = slot.and_then(Option::as_ref);
            let is_open = slot.is_some_and(|target| target.number == number);
            for message in unread.messages {
                let sender = match message.provenance() {
                    Provenance::Proved(_) | Provenance::Signed(_) => {
                        let verified = message.provenance().certified();
                        verified.and_then(|it| it.identity().agent_name())
                    }
                    // The gateway relayed the message.
                    Provenance::Foreign(_) => Some(format!("{GATEWAY}@{}", self.peer.platform())),
                    _ => message.message().sender().map(|it| it.name().to_owned()),
                };
                // A sender that has left since needs no answer.
                let sender = sender.and_then(|sender| handles.get(&*sender).copied());
                let (Some(sender), Ok(payload)) = (sender, message.to_bytes()) else {
                    continue;
                };
                link.outward.lock().excuse(payload.len());
                match is_open {
                    true => give_back(link, target, sender, Why::NotHere, &payload),
                    false => in_pieces(link, &payload, |more, piece| Frame::Unread {
                        number,
                        sender,
                        more,
                        piece,
                    }),
                }
            }
        }
    }
}

/// The known facts about the writer of a message, or the reason for its refusal; and the writer's name, if the message
/// bears it. `known`: this name, if the message is known to bear it.
fn judge(
    bus: &Bus,
    sender: &Sender,
    receiver: &str,
    message: &AclMessageRef<'_>,
    known: Option<Arc<str>>,
    permit: &mut Permit,
) -> Result<(Provenance, Option<Arc<str>>), ExplainedRefusal> {
    sender.check()?;
    let (provenance, named) = match known {
        Some(known) => (sender.provenance.clone(), Some(known)),
        None => match check_sender(&sender.name, message) {
            Ok(()) => (sender.provenance.clone(), Some(sender.name.clone())),
            // The gateway may write in the name of agents of other platforms.
            Err(refused) => {
                let spoken_for = bus.spoken_for(&sender.name, message);
                (spoken_for.ok_or(refused)?, None)
            }
        },
    };
    // The platform's own notices need no permission.
    if !provenance.is_of_platform() {
        bus.permits_message(permit, &sender.name, receiver, message)?;
    }
    Ok((provenance, named))
}

/// Sends a message back to its source.
pub(super) fn give_back(link: &Arc<Link>, target: u32, sender: u32, why: Why, payload: &[u8]) {
    in_pieces(link, payload, |more, piece| Frame::Returned {
        target,
        sender,
        why,
        more,
        piece,
    });
}

/// Sends a message in frames, more than one if it is long.
fn in_pieces<'a>(link: &Arc<Link>, payload: &'a [u8], frame: impl Fn(bool, &'a [u8]) -> Frame<'a>) {
    let mut outward = link.outward.lock();
    let mut rest = payload;
    loop {
        let (piece, after) = rest.split_at(rest.len().min(LONGEST_PIECE));
        let more = !after.is_empty();
        outward.session.append(&frame(more, piece));
        rest = after;
        if !more {
            break;
        }
    }
    outward.gives_back();
    drop(outward);
    link.note_kept();
    link.wake();
}
