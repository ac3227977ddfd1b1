//! The bytes that are kept for the peer. A peer that does not take them must not fill this process's memory.

use super::{Outward, TargetState};
use crate::flow::{PARTIAL_MESSAGES, cost};

/// The bytes that the peer may make this process keep for it, in addition to the messages' own flow control.
const OWED: usize = 64 << 20;

impl Outward {
    /// Whether the peer makes this process keep too much for it.
    pub(crate) fn is_overdrawn(&self) -> bool {
        let session = self.session.kept();
        // A long message is kept completely until its last piece is acknowledged. The session counts it, except for
        // pieces that are acknowledged already. Only a few long messages are under way at a time.
        let long: usize = self.long.iter().map(|long| long.message.length()).sum();
        let few = PARTIAL_MESSAGES.saturating_mul(self.largest_message);
        let long = long.saturating_sub(session).saturating_sub(few);
        let most = (OWED as u64)
            .saturating_add(self.window as u64)
            .saturating_add(self.excused);
        (self.control.len() + session + long) as u64 > most
    }

    /// Excuses a message of this length, which goes back because an agent of this process has ended without reading it.
    /// The agent's mailbox already limited such messages, so they are not held against the peer.
    pub(crate) fn excuse(&mut self, length: usize) {
        self.excused = self.excused.saturating_add(cost(length));
    }

    /// Whether anything waits for the peer: to be sent, to be acknowledged, or to come back from a target that closes.
    pub(crate) fn awaits_peer(&self) -> bool {
        self.needs_connection()
            || !self.line.is_drained()
            || self
                .targets
                .iter()
                .flatten()
                .any(|target| matches!(target.state, TargetState::Closing { .. }))
    }

    /// The link is forgotten. Senders that wait for room try again, and find another way.
    pub(crate) fn forget(&mut self) {
        self.has_ended = true;
        self.is_forgotten = true;
        for target in self.targets.iter().flatten() {
            target.gate.open_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use sealbus_bus::Rejected;
    use sealbus_seal::SecurityLevel;
    use tokio::time::timeout;

    use super::*;
    use crate::frame::{Frame, LONGEST_PIECE, PROCESS_TARGET, Why};
    use crate::outward::frame_of_process;

    const WINDOW: usize = 1 << 20;

    fn outward() -> Outward {
        Outward::new(SecurityLevel::None, WINDOW, 1 << 20, 16)
    }

    #[test]
    fn what_an_agent_left_unread_is_not_held_against_the_peer() {
        let mut outward = outward();
        let piece = vec![0; LONGEST_PIECE];
        let give_back = |outward: &mut Outward, bytes: usize| {
            for _ in 0..bytes / piece.len() {
                outward.session.append(&Frame::Returned {
                    target: 0,
                    sender: 0,
                    why: Why::NotHere,
                    more: false,
                    piece: &piece,
                });
            }
        };
        give_back(&mut outward, OWED);
        assert!(!outward.is_overdrawn());
        give_back(&mut outward, 4 * WINDOW);
        assert!(outward.is_overdrawn());
        outward.excuse(4 * WINDOW);
        assert!(!outward.is_overdrawn());
        give_back(&mut outward, 2 * WINDOW);
        assert!(outward.is_overdrawn());
        outward.session.written(outward.session.unwritten());
        outward.acknowledged(outward.session.next()).unwrap();
        assert!(!outward.is_overdrawn());
        assert_eq!(outward.excused, 0);
    }

    #[tokio::test]
    async fn a_forgotten_link_takes_nothing_and_holds_nobody_up() {
        let mut outward = outward();
        let process = outward.open(PROCESS_TARGET).unwrap();
        let body = Bytes::from_static(b"hello");
        let frame = frame_of_process(&body);
        let sent = outward.try_send_frame(process.handle, process.serial, &frame);
        assert!(sent.is_ok());
        let gate = process.gate.clone();
        let waiting = tokio::spawn(async move {
            let mut tries = 0;
            let again = || {
                tries += 1;
                (tries > 1).then_some(())
            };
            gate.pass(again).await;
        });
        while !process.gate.is_crowded() {
            tokio::task::yield_now().await;
        }
        outward.forget();
        let sent = outward.try_send_frame(process.handle, process.serial, &frame);
        assert!(matches!(sent, Err(Rejected::Closed)));
        let passed = timeout(Duration::from_secs(60), waiting).await;
        passed.unwrap().unwrap();
    }
}
