//! The task that receives the frames of other processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use sealbus_bus::text::LONGEST_EXPLANATION;
use sealbus_bus::{
    ArrivedFrame, Bus, ExplainedRefusal, FrameCredit, FrameOrigin, FrameWriter, LostFrame,
    Provenance, RefusalReason, UndeliverableReason,
};
use sealbus_proof::{Evidence, Verifier};
use sealbus_seal::{Identity, SecurityLevel, Timestamp};

use crate::authorship::{self, LastNumbers};
use crate::deliveries::{Delivered, Deliveries};
use crate::envelope::{BrokerDelivery, Kind};
use crate::process_link::{FRAME_HEAD, ProcessLink};
use crate::proofs;
use crate::reconnecting::{Inbox, RefusedDelivery, receive};
use crate::stamp::OrderStamp;

/// The number of processes remembered, so that the name of each is read once.
const PROCESSES: usize = 65_536;
/// The number of characters of a claimed name that the refusal log shows.
const LONGEST_NAME: usize = 200;

fn refused(reason: RefusalReason, explanation: impl Into<String>) -> ExplainedRefusal {
    ExplainedRefusal {
        reason,
        explanation: explanation.into(),
    }
}

/// A frame that was checked.
struct Checked {
    process: Arc<Identity>,
    author: Option<Arc<str>>,
    proof: Option<Bytes>,
    evidence: Option<Bytes>,
    /// The reason why the frame was sent back, if it is a frame of this process that was refused.
    refused: Option<ExplainedRefusal>,
    payload: Bytes,
}

struct FrameInbox {
    link: Arc<ProcessLink>,
    deliveries: Deliveries<Checked>,
    /// Known processes, so that each is parsed once.
    processes: HashMap<String, (Arc<str>, Arc<Identity>)>,
    /// The verifiers of the signatures of each process's agents.
    verifiers: HashMap<Arc<Identity>, Verifier>,
    last_numbers: LastNumbers,
}

/// Receives until the process leaves.
pub(crate) async fn run(link: Arc<ProcessLink>) {
    receive(FrameInbox {
        deliveries: Deliveries::new(link.wire.config().reorder_time, link.wire.config().prefetch),
        processes: HashMap::new(),
        verifiers: HashMap::new(),
        last_numbers: LastNumbers::default(),
        link,
    })
    .await;
}

impl Inbox for FrameInbox {
    type Link = ProcessLink;
    type Content = Checked;

    fn link(&self) -> &Arc<ProcessLink> {
        &self.link
    }

    fn receiver(&self) -> String {
        self.link.identity.to_string()
    }

    fn deliveries(&mut self) -> &mut Deliveries<Checked> {
        &mut self.deliveries
    }

    fn check(
        &mut self,
        _: &Bus,
        delivery: BrokerDelivery,
    ) -> Result<(Arc<str>, OrderStamp, Checked), RefusedDelivery> {
        let proved = delivery.from.clone();
        let tried_by = delivery.author.as_deref().or(proved.as_deref());
        let tried_by = tried_by.unwrap_or("a frame of nobody");
        let tried_by = tried_by.chars().take(LONGEST_NAME).collect();
        let checked = self.check_frame(delivery);
        checked.map_err(|refused| RefusedDelivery {
            tried_by,
            proved,
            refused,
        })
    }

    /// A frame that is not taken goes back to its process.
    fn hand_over(&mut self, delivered: Delivered<Checked>) -> Result<(), RefusedDelivery> {
        self.deliveries.may_acknowledge(delivered.tag);
        self.link.wire.received.fetch_add(1, Ordering::Relaxed);
        let Some(bus) = self.link.wire.bus().upgrade() else {
            return Ok(());
        };
        let Checked {
            process,
            author,
            proof,
            evidence,
            refused,
            payload,
        } = delivered.content;
        if let Some(ExplainedRefusal {
            reason,
            explanation,
        }) = refused
        {
            let frame = LostFrame {
                sender: author,
                payload,
                may_have_arrived: false,
            };
            if reason == RefusalReason::NotProved {
                self.link.prove_again(&process);
            }
            let reason = UndeliverableReason::Refused {
                reason,
                explanation,
            };
            bus.frames_lost(&process, vec![frame], &reason);
            return Ok(());
        }
        let origin = self.origin(&process, author.as_ref(), proof.as_deref());
        let origin = origin.and_then(|(origin, vouched)| {
            let signed = self.signed(
                &bus,
                &process,
                author.as_deref(),
                evidence.as_ref(),
                &payload,
            )?;
            Ok((origin, signed.map_or(vouched, Provenance::Signed)))
        });
        let taken = match origin {
            Ok((origin, provenance)) => {
                let frame = ArrivedFrame {
                    writer: Arc::new(FrameWriter {
                        process: process.clone(),
                        origin,
                        provenance,
                    }),
                    payload: payload.clone(),
                    // Subscriptions hold back publishers by their own credit.
                    credit: FrameCredit::free(),
                };
                let refused = bus.take_frames(&mut vec![frame]).pop();
                refused.map(|it| it.refused)
            }
            Err(refused) => {
                let tried_by = author.as_deref().unwrap_or_default();
                let (proved, receiver) = (Some(process.to_string()), self.receiver());
                let (reason, why) = (refused.reason, refused.explanation.clone());
                bus.refused(tried_by, proved, Some(&receiver), reason, why);
                Some(refused)
            }
        };
        if let Some(refused) = taken {
            let (reason, text) = (refused.reason, &refused.explanation);
            self.link.send_back(&process, payload, author, reason, text);
        }
        Ok(())
    }
}

impl FrameInbox {
    /// Identifies the sender of a delivery, and its place in that sender's order.
    fn check_frame(
        &mut self,
        delivery: BrokerDelivery,
    ) -> Result<(Arc<str>, OrderStamp, Checked), ExplainedRefusal> {
        let config = self.link.wire.config();
        let (size, limit) = (delivery.payload.len(), config.largest_message + FRAME_HEAD);
        if size > limit {
            let why = format!("{size} bytes, and the limit is {limit}");
            return Err(refused(RefusalReason::TooLarge, why));
        }
        let (name, process) = self.process(&delivery)?;
        let sent_back = match delivery.kind {
            Some(Kind::Frame) => None,
            Some(Kind::Refused {
                reason,
                explanation,
            }) if explanation.len() <= LONGEST_EXPLANATION => Some(ExplainedRefusal {
                reason,
                explanation: explanation.to_string(),
            }),
            _ => {
                let why = "it is neither a frame nor one that is sent back with a reason";
                return Err(refused(RefusalReason::Malformed, why));
            }
        };
        let stamp = delivery.stamp.ok_or_else(|| {
            let why = "it does not say which of its process's frames it is";
            refused(RefusalReason::Malformed, why)
        })?;
        let author = delivery.author;
        if author
            .as_ref()
            .is_some_and(|author| author.len() > 2 * sealbus_seal::LONGEST_NAME + 1)
        {
            let why = "the name of the agent that wrote it is too long";
            return Err(refused(RefusalReason::Malformed, why));
        }
        let checked = Checked {
            process,
            author,
            proof: delivery.proof,
            evidence: delivery.evidence,
            refused: sent_back,
            payload: delivery.payload,
        };
        Ok((name, stamp, checked))
    }

    /// The process that sent a delivery, by its name and its identity. Each process is parsed once.
    fn process(
        &mut self,
        delivery: &BrokerDelivery,
    ) -> Result<(Arc<str>, Arc<Identity>), ExplainedRefusal> {
        let broker = &self.link.wire.broker;
        let is_proved = broker.config.security.level().authenticates();
        let named = if is_proved {
            delivery.from.as_deref().ok_or_else(|| {
                let why =
                    "the broker does not say who sent it, so nobody knows which process wrote it";
                refused(RefusalReason::NotProved, why)
            })?
        } else {
            delivery.process.as_deref().ok_or_else(|| {
                let why = "it does not say which process wrote it";
                refused(RefusalReason::Malformed, why)
            })?
        };
        if let Some(known) = self.processes.get(named) {
            return Ok(known.clone());
        }
        let identity = if is_proved {
            broker.client.identity_of(named)
        } else {
            format!("spiffe://{}/{named}", broker.config.platform)
                .parse()
                .ok()
        };
        let identity = identity
            .filter(|identity| matches!(identity, Identity::Process { .. }))
            .ok_or_else(|| {
                let why = format!(
                    "{named:?} is not a process of this platform, and only processes write frames"
                );
                refused(RefusalReason::WrongIdentity, why)
            })?;
        if self.processes.len() >= PROCESSES {
            self.processes.clear();
        }
        let known: (Arc<str>, _) = (identity.to_string().into(), Arc::new(identity));
        self.processes.insert(named.to_owned(), known.clone());
        Ok(known)
    }

    /// The evidence of what an agent says in a frame; `None`: the agent need not sign it.
    fn signed(
        &mut self,
        bus: &Bus,
        process: &Arc<Identity>,
        author: Option<&str>,
        shown: Option<&Bytes>,
        payload: &[u8],
    ) -> Result<Option<Evidence>, ExplainedRefusal> {
        let security = &self.link.wire.config().security;
        let (Some(trust), Some(author)) = (security.certified(), author) else {
            return Ok(None);
        };
        let level = security.level();
        if shown.is_none() && level < SecurityLevel::Signed {
            return Ok(None);
        }
        let statement = bus.frame_statement(payload);
        // Some frames of an agent make no statement.
        if shown.is_none() && statement.is_none() {
            return Ok(None);
        }
        if self.verifiers.len() >= PROCESSES && !self.verifiers.contains_key(process) {
            self.verifiers.clear();
        }
        let verifier = self.verifiers.entry(process.clone());
        let verifier = verifier.or_insert_with(|| authorship::verifier(trust));
        let evidence = authorship::verify(verifier, shown, statement, author, trust)?;
        self.last_numbers.next(&evidence)?;
        Ok(Some(evidence))
    }

    /// Identifies the writer of a frame, and the proof for that writer.
    fn origin(
        &mut self,
        process: &Arc<Identity>,
        author: Option<&Arc<str>>,
        proof: Option<&[u8]>,
    ) -> Result<(FrameOrigin, Provenance), ExplainedRefusal> {
        let Some(trust) = self.link.wire.config().security.certified() else {
            let origin = author.map_or(FrameOrigin::Process, |author| {
                FrameOrigin::Agent(author.clone())
            });
            return Ok((origin, Provenance::Claimed));
        };
        let Some(author) = author else {
            return Ok((FrameOrigin::Process, Provenance::Vouched(process.clone())));
        };
        let level = self.link.wire.config().security.level();
        let now = Timestamp::from(SystemTime::now());
        let verified = match proof {
            Some(proof) => {
                let verified =
                    proofs::verify(proof, process, level, trust, now).map_err(|error| {
                        ExplainedRefusal {
                            reason: RefusalReason::from(&error),
                            explanation: error.to_string(),
                        }
                    })?;
                if !verified.identity().is_agent_named(author) {
                    return Err(ExplainedRefusal {
                        reason: RefusalReason::ForgedSender,
                        explanation: format!(
                            "{process} shows the proof of {} for {author}",
                            verified.identity()
                        ),
                    });
                }
                let noted = verified.clone();
                self.link.proved(process, author, noted, trust, now);
                Some(verified)
            }
            None => self.link.proof_of(process, author),
        };
        let verified = verified.ok_or_else(|| ExplainedRefusal {
            reason: RefusalReason::NotProved,
            explanation: format!("{author} has not proved to speak through {process}"),
        })?;
        // The identity may have been revoked meanwhile.
        trust
            .check(&verified, now)
            .map_err(|error| ExplainedRefusal {
                reason: RefusalReason::from(&error),
                explanation: error.to_string(),
            })?;
        let identity = Arc::new(verified.identity().clone());
        Ok((
            FrameOrigin::Agent(author.clone()),
            Provenance::Vouched(identity),
        ))
    }
}
