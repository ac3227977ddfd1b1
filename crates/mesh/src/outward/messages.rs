//! Messages to an agent of the other process. A message is sent at once if its credit allows, and otherwise queued.

use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{LocalAgent, Outgoing, Rejected, UndeliverableReason};
use sealbus_fipa::EncodeError;

use super::{Action, Outward, TargetState};
use crate::flow::{Admission, Queued};
use crate::frame::LONGEST_PIECE;
use crate::statement::statement_of;

/// The room for the parts of a message besides its content.
const ROOM_FOR_PARAMETERS: usize = 512;

/// The bytes behind the content of a text. Everything before the content is mostly the same in the next message.
const END: usize = 2;

/// The number of bytes before the content, given the lengths of the message and of its content.
pub(super) fn beginning(length: usize, content: usize) -> usize {
    length.saturating_sub(content + END)
}

enum Stop {
    Encode(EncodeError),
    TooLarge(usize),
    Long(Bytes),
}

impl Outward {
    /// Accepts a message for a target. See [`sealbus_bus::Destination::try_send`].
    pub(crate) fn try_send(
        &mut self,
        handle: u32,
        serial: u64,
        sender: &Arc<LocalAgent>,
        outgoing: &Outgoing<'_>,
    ) -> Result<(), Rejected> {
        if self.is_forgotten {
            return Err(Rejected::Closed);
        }
        let sender_handle = match self.targets.get(handle as usize) {
            Some(Some(target)) if target.serial == serial => {
                if let TargetState::Closing { .. } = target.state {
                    return Err(Rejected::Moving);
                }
                self.bind_for(handle, sender)?
            }
            // Earlier messages to the receiver are still on their way back to the bus.
            _ if self.returning.contains(&serial) => return Err(Rejected::Moving),
            _ => return Err(Rejected::Closed),
        };
        let has_window = self.session.kept() < self.window;
        let largest = self.largest();
        let signs = self.signs() || self.level.authenticates() && outgoing.is_signed();
        if !signs {
            // The message would overtake earlier ones that wait for their proof.
            self.sign(sender_handle);
        }
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return Err(Rejected::Closed);
        };
        let is_long = outgoing.content_length() > LONGEST_PIECE;
        let stop = match target.credit.admit(has_window, self.line.has_queue()) {
            Admission::Full => {
                if !target.is_waited_for {
                    target.is_waited_for = true;
                    self.blocked.push(handle);
                }
                return Err(Rejected::Full);
            }
            Admission::Now if !is_long => {
                let mut length = 0;
                let mut statement = None;
                let mut hash = 0;
                let rest_behind = |bytes: &[u8]| {
                    let rest = outgoing.rest_behind(bytes)?;
                    length = bytes.len() + rest.length();
                    (length <= largest).then_some(rest)
                };
                if !signs
                    && let Some(begins) = &target.beginning
                    && let Some(rest) = self.session.join(sender_handle, handle, rest_behind)
                {
                    let hash = begins.hash(rest);
                    target.credit.sent(length);
                    target.sent.note(hash, &mut self.memory);
                    self.sent += 1;
                    return Ok(());
                }
                let mut begins = None;
                let write = |out: &mut Vec<u8>| {
                    let start = out.len();
                    outgoing.encode_into(out).map_err(Stop::Encode)?;
                    let message = &out[start..];
                    length = message.len();
                    if length > largest {
                        return Err(Stop::TooLarge(length));
                    }
                    if length > LONGEST_PIECE {
                        return Err(Stop::Long(Bytes::copy_from_slice(message)));
                    }
                    if signs {
                        statement = Some(statement_of(&target.name, message));
                    }
                    let beginning = beginning(length, outgoing.content_length());
                    let (before, rest) = message.split_at(beginning);
                    let common = self.memory.beginning(sender.name(), before);
                    hash = common.hash(rest);
                    begins = Some(common);
                    Ok(beginning)
                };
                let appended = self
                    .session
                    .append_message(sender_handle, handle, signs, write);
                match appended {
                    Ok(()) => {
                        target.beginning = begins;
                        target.credit.sent(length);
                        target.sent.note(hash, &mut self.memory);
                        self.sent += 1;
                        if let Some(statement) = statement {
                            self.note_unsigned(sender_handle, statement);
                        }
                        return Ok(());
                    }
                    Err(stop) => stop,
                }
            }
            // A message that goes in pieces has room of its own from the beginning, which saves a copy.
            Admission::Now | Admission::Queue => {
                let mut encoded = Vec::new();
                if is_long {
                    encoded.reserve_exact(outgoing.content_length() + ROOM_FOR_PARAMETERS);
                }
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
                let message = Queued {
                    statement: signs.then(|| statement_of(&target.name, &payload)),
                    ..Queued::message(sender_handle, payload)
                };
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

    /// Takes out the waiting messages that are larger than the peer accepts. They were accepted before the peer said so.
    pub(super) fn take_too_large(&mut self) -> Vec<Action> {
        let limit = self.largest();
        let mut actions = Vec::new();
        for target in 0..self.targets.len() {
            let Some(Some(target)) = self.targets.get_mut(target) else {
                continue;
            };
            let (name, is_process) = (target.name.clone(), target.is_process);
            let too_large = self.line.take_longer(&mut target.credit, limit);
            for message in too_large {
                self.note_unqueued(message.sender);
                let size = message.length();
                let reason = UndeliverableReason::TooLarge { size, limit };
                if is_process {
                    actions.push(Action::FramesLost {
                        serial: None,
                        frames: vec![self.as_lost(message, false)],
                        reason,
                    });
                } else if let Some(sender) = self.name_of(message.sender) {
                    actions.push(Action::Undeliverable {
                        sender,
                        receiver: name.clone(),
                        payload: message.payload,
                        reason,
                    });
                }
            }
        }
        actions
    }
}
