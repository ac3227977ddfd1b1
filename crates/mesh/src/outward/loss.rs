//! The loss of a session: some messages are reported, and the others go back to the bus to be sent again.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{Returned, SessionNumber, UndeliverableReason};

use super::closing::hashes;
use super::sent::{ClosedTargets, Memory, Outstanding};
use super::signing::Signatures;
use super::{Action, Outward, Target, TargetState};
use crate::flow::{Queued, TargetLine};
use crate::frame::{Frame, PROCESS_TARGET};

impl Outward {
    /// The session is lost. Reports messages that may have arrived. If `is_reachable`, the others go back to the bus to
    /// be sent again; if not, they are reported, too. Messages that came back already are skipped.
    pub(crate) fn lose(&mut self, why: &str, is_reachable: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        // Each with the number of its last frame.
        let mut lost_frames = Vec::new();
        let reason = UndeliverableReason::ProcessUnreachable(why.to_owned());
        let mut unsent: HashMap<u32, Vec<Returned>> = HashMap::new();
        let mut outstanding: HashMap<u32, Outstanding> = HashMap::new();
        let mut is_outstanding = |handle: u32, target: &Target, sender: &str, payload: &[u8]| {
            let of_target = outstanding.entry(handle);
            let of_target = of_target.or_insert_with(|| target.sent.outstanding());
            of_target.take(hashes(&self.memory, sender, payload))
        };
        let unreachable =
            |sender: Arc<str>, receiver: &Arc<str>, payload: Bytes| Action::Undeliverable {
                sender,
                receiver: receiver.clone(),
                payload,
                reason: reason.clone(),
            };
        self.session
            .for_each_kept(|frame, number, may_have_arrived| {
                let (sender, handle, payloads) = match frame {
                    Frame::Message {
                        sender,
                        target,
                        payload,
                        ..
                    } => (*sender, *target, vec![Bytes::copy_from_slice(payload)]),
                    Frame::Row {
                        sender,
                        target,
                        messages,
                    } => (*sender, *target, messages.to_bytes().collect()),
                    _ => return,
                };
                let Some(Some(target)) = self.targets.get(handle as usize) else {
                    return;
                };
                for payload in payloads {
                    if target.is_process {
                        let frame = Queued::message(sender, payload);
                        lost_frames.push((number, self.as_lost(frame, may_have_arrived)));
                        continue;
                    }
                    let Some(sender) = self.agent_of(sender).cloned() else {
                        continue;
                    };
                    if !is_outstanding(handle, target, sender.name(), &payload) {
                        continue;
                    }
                    if may_have_arrived || !is_reachable {
                        actions.push(unreachable(sender.name().clone(), &target.name, payload));
                    } else {
                        unsent
                            .entry(handle)
                            .or_default()
                            .push(Returned { sender, payload });
                    }
                }
            });
        for long in std::mem::take(&mut self.long) {
            // Messages that were not sent completely are still in their target's queue.
            if long.end == u64::MAX || long.end <= self.session.acknowledged() {
                continue;
            }
            if *long.target == *PROCESS_TARGET {
                lost_frames.push((long.end - 1, self.as_lost(long.message, true)));
            } else if let Some(sender) = self.name_of(long.message.sender) {
                let payload = long.message.payload;
                let handle = self.names.get(&long.target);
                let target = handle.and_then(|handle| {
                    Some((*handle, self.targets.get(*handle as usize)?.as_ref()?))
                });
                let has_come_back = target.is_some_and(|(handle, target)| {
                    !is_outstanding(handle, target, &sender, &payload)
                });
                if !has_come_back {
                    actions.push(unreachable(sender, &long.target, payload));
                }
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
                actions.extend(rest.map(|message| {
                    unreachable(message.sender.name().clone(), &target.name, message.payload)
                }));
            }
            target.gate.open_all();
            // Needed even without messages, because the bus may be waiting to learn that nothing more comes back.
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
        self.session_number = SessionNumber::next();
        self.free_targets.clear();
        self.names.clear();
        self.line = TargetLine::default();
        self.bound.clear();
        self.free_handles.clear();
        self.handles.clear();
        self.departing.clear();
        self.leaving.clear();
        self.hosted.clear();
        self.hosted_as.clear();
        self.departed.clear();
        self.blocked.clear();
        self.excused = 0;
        self.unsigned.clear();
        self.session.start_over();
        self.signatures = Signatures::default();
        self.memory = Memory::default();
        self.former = ClosedTargets::default();
        self.unread.clear();
        self.giving_back = 0;
        self.opened = 0;
        actions
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sealbus_bus::{Bus, BusConfig};
    use sealbus_seal::{PlatformName, SecurityLevel};

    use super::*;
    use crate::frame::Why;

    #[tokio::test]
    async fn what_came_back_before_its_session_was_lost_goes_one_way_only() {
        let config = BusConfig::new(PlatformName::new("factory").unwrap());
        let bus = Bus::new(config, tokio::runtime::Handle::current());
        let (alice, _mailbox) = bus.attach("alice@factory", None, None).unwrap();
        let mut outward = Outward::new(SecurityLevel::None, 1 << 20, 1 << 20, 16);
        let target = outward.open("bob@factory").unwrap().handle;
        let sender = outward.bind(alice.agent()).unwrap();
        for payload in [b"1", b"2"] {
            outward.session.append(&Frame::Message {
                sender,
                target,
                is_signed: false,
                payload,
            });
            let hash = outward.memory.hash(alice.name(), payload);
            let Some(Some(bob)) = outward.targets.get_mut(target as usize) else {
                unreachable!()
            };
            bob.sent.note(hash, &mut outward.memory);
        }
        outward.session.written(outward.session.unwritten());
        // Nothing is acknowledged yet.
        let action = outward.returned(target, sender, Why::Moving, false, b"1");
        assert!(action.is_none());
        let (mut reported, mut sent_on) = (Vec::new(), Vec::new());
        for action in outward.lose("the process has ended", true) {
            match action {
                Action::Undeliverable { payload, .. } => reported.push(payload),
                Action::Returned { messages, .. } => {
                    sent_on.extend(messages.into_iter().map(|message| message.payload));
                }
                Action::FramesLost { .. } | Action::Refused { .. } => unreachable!(),
            }
        }
        assert_eq!(reported, [&b"2"[..]]);
        assert_eq!(sent_on, [&b"1"[..]]);
    }
}
