//! The grants of the peer: acknowledgements, the proofs of receivers, and their credit.

use sealbus_bus::{ExplainedRefusal, GATEWAY, RefusalReason, is_foreign};
use sealbus_seal::{Identity, Timestamp, Trust};

use super::{Action, Outward, TargetState};
use crate::session::Violation;

impl Outward {
    pub(crate) fn acknowledged(&mut self, received: u64) -> Result<(), Violation> {
        self.session.acknowledge(received)?;
        self.after_acknowledgement();
        Ok(())
    }

    /// Handles newly acknowledged frames, which were reported by number or in the hello of a new connection.
    pub(super) fn after_acknowledgement(&mut self) {
        let acknowledged = self.session.acknowledged();
        // Long messages end in another order than they began, and some end only when their target closes.
        self.long.retain(|long| long.end > acknowledged);
        self.excused = self.excused.min(self.session.kept() as u64);
        self.signatures_arrived(acknowledged);
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
    }

    /// Takes the proof of a receiver.
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
        let believed = own.believe(proof, self.level, trust, now);
        let (reason, explanation) = match believed.map(|it| it.verified) {
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
            Err(ExplainedRefusal {
                reason,
                explanation,
            }) => (reason, explanation),
        };
        Some(Action::Refused {
            receiver: target.name.clone(),
            reason,
            explanation,
        })
    }

    /// The target has answered, or has widened its credit.
    pub(crate) fn credited(&mut self, handle: u32, limit: u64, is_answer: bool) {
        let must_be_proved = self.level.authenticates();
        let Some(Some(target)) = self.targets.get_mut(handle as usize) else {
            return;
        };
        if let TargetState::Closing { .. } = target.state {
            return;
        }
        // The connection itself proves the process.
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
            target.gate.open();
        }
    }

    /// Drops the credit of targets whose certificate is no longer trusted.
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
}

/// Whether messages to `receiver` may go to the holder of this proved identity: the receiver itself or, for agents of
/// other platforms, the gateway.
fn may_take(identity: &Identity, receiver: &str) -> bool {
    identity.is_agent_named(receiver)
        || (is_foreign(receiver, identity.platform())
            && identity.is_agent_named(&format!("{GATEWAY}@{}", identity.platform())))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sealbus_bus::Rejected;
    use sealbus_seal::SecurityLevel;

    use super::*;
    use crate::frame::PROCESS_TARGET;
    use crate::outward::frame_of_process;

    #[test]
    fn a_target_is_blocked_once_however_often_its_peer_widens_its_credit() {
        let mut outward = Outward::new(SecurityLevel::None, 1 << 10, 1 << 20, 16);
        let process = outward.open(PROCESS_TARGET).unwrap();
        let body = Bytes::from(vec![0; 2 << 10]);
        let frame = frame_of_process(&body);
        let credit = 1 << 20;
        outward.credited(process.handle, credit, true);
        let sent = outward.try_send_frame(process.handle, process.serial, &frame);
        assert!(sent.is_ok());
        // The peer acknowledges nothing.
        for more in 1..100 {
            let sent = outward.try_send_frame(process.handle, process.serial, &frame);
            assert!(matches!(sent, Err(Rejected::Full)));
            outward.credited(process.handle, credit + more, false);
        }
        assert_eq!(outward.blocked.len(), 1);
        outward.session.written(outward.session.unwritten());
        outward.acknowledged(outward.session.next()).unwrap();
        assert!(outward.blocked.is_empty());
        let sent = outward.try_send_frame(process.handle, process.serial, &frame);
        assert!(sent.is_ok());
    }
}
