//! The end of a target: nothing more is sent to it, and undelivered messages come back.

use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{LostFrame, OWN_ENCODING, RefusalReason, Returned, UndeliverableReason};
use sealbus_fipa::bitefficient;

use super::messages::beginning;
use super::sent::{Memory, WhetherSent};
use super::{Action, Outward, TargetState};
use crate::flow::Queued;
use crate::frame::{Frame, Why};

impl Outward {
    /// Stops sending to the target. Undelivered messages come back.
    pub(crate) fn recall(&mut self, handle: u32, serial: u64) {
        if let Some(Some(target)) = self.targets.get(handle as usize)
            && target.serial == serial
        {
            self.start_closing(handle, false);
        }
    }

    /// Begins to close a target that is not there, or not for long.
    pub(crate) fn start_closing(&mut self, handle: u32, denied: bool) {
        // When a target closes, no message to it may wait for its proof.
        self.sign_all();
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

    /// Whether the peer has given back too much that it was not given.
    pub(crate) fn is_deceived(&self) -> bool {
        self.memory.is_deceived()
    }

    /// A message, or a piece of one, has come back.
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
        let sender = self.agent_of(sender).cloned();
        let limit = self.largest_message;
        let target = self.targets.get_mut(handle as usize)?.as_mut()?;
        // Returned messages were sent from here, so they are within the limit unless the peer lies.
        if target.piece.len() + bytes.len() <= limit {
            target.piece.extend_from_slice(bytes);
        }
        if more {
            return None;
        }
        let payload = Bytes::from(std::mem::take(&mut target.piece));
        if target.is_process {
            let frames = vec![LostFrame {
                sender: sender.map(|sender| sender.name().clone()),
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
        let hashes = hashes(&self.memory, sender.name(), &payload);
        let reason = match (target.sent.take_back(hashes, &mut self.memory), why) {
            (WhetherSent::Never, _) => {
                return Some(never_sent(target.name.clone(), sender.name()));
            }
            (_, Why::Refused(reason)) => Some(refused_there(reason)),
            (WhetherSent::Forgotten, _) => Some(UndeliverableReason::ReceiverGone),
            (WhetherSent::Sent, _) => None,
        };
        if let Some(reason) = reason {
            return Some(Action::Undeliverable {
                sender: sender.name().clone(),
                receiver: target.name.clone(),
                payload,
                reason,
            });
        }
        if let TargetState::Closing { returned, .. } = &mut target.state {
            returned.push(Returned { sender, payload });
        }
        None
    }

    /// A former target has ended, and has left this message or piece unread.
    pub(crate) fn left_unread(
        &mut self,
        number: u32,
        sender: u32,
        more: bool,
        bytes: &[u8],
    ) -> Option<Action> {
        let sender = self.name_of(sender);
        if self.unread.len() + bytes.len() <= self.largest_message {
            self.unread.extend_from_slice(bytes);
        }
        if more {
            return None;
        }
        let payload = Bytes::from(std::mem::take(&mut self.unread));
        let sender = sender?;
        let hashes = hashes(&self.memory, &sender, &payload);
        let (receiver, origin) = self.former.take_back(number, hashes, &mut self.memory)?;
        Some(match origin {
            WhetherSent::Never => never_sent(receiver, &sender),
            WhetherSent::Sent | WhetherSent::Forgotten => Action::Undeliverable {
                sender,
                receiver,
                payload,
                reason: UndeliverableReason::ReceiverGone,
            },
        })
    }

    /// Everything sent to the target was delivered or has come back.
    pub(crate) fn target_closed(&mut self, handle: u32) -> Option<Action> {
        let slot = self.targets.get_mut(handle as usize)?;
        let mut target =
            slot.take_if(|target| matches!(target.state, TargetState::Closing { .. }))?;
        let (number, name) = (target.number, target.name.clone());
        self.former
            .keep(number, name, target.sent, &mut self.memory);
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

    /// The bus has got back all messages that were sent to a former target.
    pub(crate) fn settle(&mut self, serial: u64) {
        self.returning.remove(&serial);
    }

    pub(super) fn as_returned(&self, message: &Queued) -> Option<Returned> {
        Some(Returned {
            sender: self.agent_of(message.sender)?.clone(),
            payload: message.payload.clone(),
        })
    }
}

/// The hashes under which a message may be noted: of all its bytes, or behind a known beginning.
pub(super) fn hashes(memory: &Memory, sender: &str, payload: &[u8]) -> [u64; 2] {
    let content = bitefficient::decode_ref(payload, &OWN_ENCODING)
        .ok()
        .and_then(|message| message.content_bytes())
        .map_or(0, |content| content.len());
    let (before, rest) = payload.split_at(beginning(payload.len(), content));
    [
        memory.hash(sender, payload),
        memory.beginning(sender, before).hash(rest),
    ]
}

fn never_sent(receiver: Arc<str>, sender: &str) -> Action {
    Action::Refused {
        receiver,
        reason: RefusalReason::NotProved,
        explanation: format!("its process gives back a message of {sender} that it was not given"),
    }
}

fn refused_there(reason: RefusalReason) -> UndeliverableReason {
    UndeliverableReason::Refused {
        reason,
        explanation: "the log of the receiving process says more".to_owned(),
    }
}
