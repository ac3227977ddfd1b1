//! Messages to agents of other platforms, which the gateway of this process carries on. The peer has a share of the
//! room for them.

use std::mem;
use std::sync::Arc;

use sealbus_bus::RefusalReason;

use super::Inward;
use super::messages::{Row, give_back};
use super::targets::{OpenTarget, Target, Whom};
use crate::frame::Why;
use crate::link::Link;

impl Inward {
    /// Takes room for the messages of the row, if they are for an agent of another platform. Those for which the peer
    /// has no room left go back.
    pub(super) fn take_foreign_room(&mut self, link: &Arc<Link>) {
        let Row {
            target: handle,
            messages,
            senders,
            ..
        } = &mut self.row;
        if messages.is_empty() {
            return;
        }
        let Some(Some(Target { name, open, .. })) = self.targets.get(*handle as usize) else {
            return;
        };
        let Some(OpenTarget {
            whom: Whom::Agent { agent, window },
            ..
        }) = open
        else {
            return;
        };
        let Some(room) = agent.foreign_room() else {
            return;
        };
        let row = mem::take(messages).into_iter().zip(mem::take(senders));
        for (message, sender) in row {
            let length = message.size();
            if let Some(room) = room.take(&self.writer, length) {
                messages.push(message.with_room(room));
                senders.push(sender);
                continue;
            }
            let reason = RefusalReason::OverLimit;
            let explanation = "messages of its process to other platforms take as much room here as is left for \
                 others: send more once they are taken, or raise the gateway's limit outgoing";
            let view = message.message();
            let tried_by = view.sender().map(|sender| sender.name().to_owned());
            self.bus.refused(
                tried_by.as_deref().unwrap_or(&self.writer),
                Some(self.writer.to_string()),
                Some(name),
                reason,
                explanation.to_owned(),
            );
            window.refund(length);
            // A message of the peer is in the encoding in which it came.
            if let Ok(payload) = message.to_bytes() {
                give_back(link, *handle, sender, Why::Refused(reason), &payload);
            }
        }
    }
}
