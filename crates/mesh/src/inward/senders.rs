//! The agents that send over the link: their proofs, and the end of trust in them.

use std::sync::Arc;

use sealbus_bus::{ExplainedRefusal, FrameOrigin, FrameWriter, Provenance, RefusalReason};
use sealbus_seal::binding::Binding;
use sealbus_seal::{Identity, Timestamp};

use super::shown::Unproved;
use super::{Broken, Inward, slot, writer_of};
use crate::frame::Frame;
use crate::link::Link;
use crate::outward::Believed;

/// The most handles of one agent, each of which keeps its certificates. An agent that left and came back has another
/// handle until its last messages have gone.
const HANDLES_OF_ONE: u32 = 1024;

/// The agent behind a sender's handle of the peer.
pub(super) struct Sender {
    pub(super) name: Arc<str>,
    pub(super) provenance: Provenance,
    /// The agent as the writer of frames.
    pub(super) writer: Arc<FrameWriter>,
    /// The reason why nothing is accepted from it.
    pub(super) refused: Option<RefusalReason>,
    /// Its messages that wait for their proof; `None` at levels without proofs.
    pub(super) unproved: Option<Box<Unproved>>,
}

impl Sender {
    /// A sender whose messages are accepted.
    fn new(
        process: &Arc<Identity>,
        name: Arc<str>,
        provenance: Provenance,
        unproved: Option<Box<Unproved>>,
    ) -> Self {
        let origin = FrameOrigin::Agent(name.clone());
        Self {
            name,
            writer: writer_of(process, origin, provenance.clone()),
            provenance,
            refused: None,
            unproved,
        }
    }

    /// Whether messages of the sender wait for their proof.
    pub(super) fn has_unproved(&self) -> bool {
        self.unproved.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// Checks that messages of the sender are accepted.
    pub(super) fn check(&self) -> Result<(), ExplainedRefusal> {
        match self.refused {
            None => Ok(()),
            Some(reason) => Err(ExplainedRefusal {
                reason,
                explanation: format!(
                    "the certificate of {} is not accepted ({reason})",
                    self.name
                ),
            }),
        }
    }
}

impl Inward {
    pub(super) fn bind(
        &mut self,
        link: &Arc<Link>,
        handle: u32,
        proof: &[u8],
        now: Timestamp,
    ) -> Result<(), Broken> {
        let slot = slot(&mut self.senders, handle, self.agents)?;
        if !self.level.authenticates() {
            let name =
                str::from_utf8(proof).map_err(|_| Broken::Rule("an agent's name is not UTF-8"))?;
            if name.len() > 2 * sealbus_seal::LONGEST_NAME + 1 {
                return Err(Broken::Rule("an agent's name is too long"));
            }
            let (name, provenance) = (name.into(), Provenance::Claimed);
            *slot = Some(Sender::new(&self.peer, name, provenance, None));
            return Ok(());
        }
        let (Some(trust), Some(own)) = (&self.trust, link.outward.lock().proof().cloned()) else {
            return Err(Broken::Rule("an agent is bound before the connection is"));
        };
        let unproved = slot.as_ref().and_then(|sender| sender.unproved.as_ref());
        let is_new = unproved.is_none_or(|unproved| !unproved.is_counted);
        let believed = own.believe(proof, self.level, trust, now);
        let believed = believed.and_then(|believed| {
            let name = believed
                .verified
                .identity()
                .agent_name()
                .unwrap_or_default();
            match self.handles_of.get(&*name) {
                Some(count) if is_new && *count >= HANDLES_OF_ONE => Err(ExplainedRefusal {
                    reason: RefusalReason::OverLimit,
                    explanation: format!(
                        "{name} has {HANDLES_OF_ONE} handles on this link already"
                    ),
                }),
                _ => Ok(believed),
            }
        });
        match believed {
            Ok(Believed {
                verified,
                chain,
                author,
            }) => {
                let name: Arc<str> = verified.identity().agent_name().unwrap_or_default().into();
                // A handle belongs to one agent until it is unbound.
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
                let unproved = slot.take().and_then(|sender| sender.unproved);
                let mut unproved = unproved.unwrap_or_default();
                unproved.add(verified.clone(), chain, author);
                if !unproved.is_counted {
                    unproved.is_counted = true;
                    *self.handles_of.entry(name.clone()).or_default() += 1;
                }
                let provenance = Provenance::Proved(verified);
                *slot = Some(Sender::new(&self.peer, name, provenance, Some(unproved)));
            }
            Err(ExplainedRefusal {
                reason,
                explanation,
            }) => {
                let binding = Binding::decode(proof).ok();
                let chain = binding.as_ref().map(Binding::chain);
                let unproved = slot.as_mut().and_then(|sender| sender.unproved.take());
                let mut unproved = unproved.unwrap_or_default();
                if let Some(chain) = chain {
                    unproved.add_refused(chain);
                }
                let claimed = chain
                    .and_then(|chain| chain.certificate().ok())
                    .and_then(|certificate| certificate.identity().agent_name())
                    .unwrap_or_else(|| format!("an agent of {}", self.peer));
                let name = slot
                    .as_ref()
                    .map_or_else(|| Arc::from(claimed.as_str()), |sender| sender.name.clone());
                let provenance = Provenance::Claimed;
                *slot = Some(Sender {
                    refused: Some(reason),
                    ..Sender::new(&self.peer, name, provenance, Some(unproved))
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

    /// Notes that the handle of a sender is free.
    pub(super) fn unbound(&mut self, sender: Option<Sender>) {
        if let Some(Sender {
            name,
            unproved: Some(unproved),
            ..
        }) = sender
            && unproved.is_counted
            && let Some(count) = self.handles_of.get_mut(&name)
        {
            *count -= 1;
            if *count == 0 {
                self.handles_of.remove(&name);
            }
        }
    }

    /// Checks all certificates again, because the deny list has changed or time has passed.
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
                    // Within the clock tolerance, the certificate is checked once a second.
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
}

pub(super) fn never_bound() -> ExplainedRefusal {
    ExplainedRefusal {
        reason: RefusalReason::NotProved,
        explanation: "its sender was never bound to this connection".to_owned(),
    }
}
