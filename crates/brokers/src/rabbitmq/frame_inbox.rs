//! What the buses of other processes say to this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use lapin::message::Delivery;
use lapin::types::AMQPValue;
use sealbus_bus::{
    ArrivedFrame, Bus, FrameCredit, FrameOrigin, LostFrame, Provenance, RefusalReason, Refused,
    UndeliverableReason,
};
use sealbus_seal::{Identity, Timestamp};

use super::acks::{Acks, Tag};
use super::config::RabbitSecurity;
use super::names;
use super::process_link::{
    AUTHOR, FRAME_HEAD, KIND_FRAME, KIND_REFUSED, LONGEST_TEXT, PROCESS, PROOF, ProcessLink,
    REASON, TEXT,
};
use super::proofs;
use super::reader::{self, Receives, Refusal};
use super::stamp::Stamp;

/// Processes remembered, so that the name of each is read once.
const PROCESSES: usize = 65_536;

/// What arrived from a process that is proved, in a place of its order.
struct Checked {
    process: Arc<Identity>,
    author: Option<Arc<str>>,
    proof: Option<Vec<u8>>,
    /// Why it was sent back, if it is one of this process that was refused.
    refused: Option<Refused>,
    payload: Bytes,
}

struct Inbox {
    link: Arc<ProcessLink>,
    /// Known processes, so that each is parsed once.
    processes: HashMap<String, (Arc<str>, Arc<Identity>)>,
}

/// Receives until the process leaves.
pub(crate) async fn run(link: Arc<ProcessLink>) {
    let processes = HashMap::new();
    reader::run(Inbox { link, processes }).await;
}

impl Receives for Inbox {
    type Link = ProcessLink;
    type Item = Checked;

    fn link(&self) -> &Arc<ProcessLink> {
        &self.link
    }

    fn name(&self) -> String {
        self.link.identity.to_string()
    }

    fn queue(&self) -> String {
        names::process_queue(&self.link.id)
    }

    fn check(
        &mut self,
        _: &Bus,
        delivery: Delivery,
    ) -> Result<(Arc<str>, Stamp, Checked), Refusal> {
        let config = self.link.wire.config();
        let properties = &delivery.properties;
        let user = properties.user_id().as_ref().map(|user| user.as_str());
        let headers = properties.headers().as_ref();
        let header = |name: &str| match headers?.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.as_bytes()),
            _ => None,
        };
        let text = |name| header(name).and_then(|bytes| str::from_utf8(bytes).ok());
        let author = text(AUTHOR);
        let refused = |reason, explanation: String| {
            let tried_by = author
                .or(user)
                .unwrap_or("a frame without user-id")
                .chars()
                .take(200)
                .collect();
            Refusal {
                tried_by,
                proved: user.map(str::to_owned),
                reason,
                explanation,
            }
        };
        let (size, limit) = (delivery.data.len(), config.largest_message + FRAME_HEAD);
        if size > limit {
            let why = format!("{size} bytes, and the limit is {limit}");
            return Err(refused(RefusalReason::TooLarge, why));
        }
        let named = if config.security.level().authenticates() {
            user.ok_or_else(|| {
                let why = "the broker lets frames without user-id pass, so nobody knows which process wrote this one";
                refused(RefusalReason::NotProved, why.to_owned())
            })?
        } else {
            text(PROCESS).ok_or_else(|| {
                let why = "the frame does not say which process wrote it";
                refused(RefusalReason::Malformed, why.to_owned())
            })?
        };
        let (name, process) = match self.processes.get(named) {
            Some(known) => known.clone(),
            None => {
                let identity = if config.security.level().authenticates() {
                    names::process_of_user(named, &config.platform)
                } else {
                    names::process(named, &config.platform)
                };
                let identity = identity.ok_or_else(|| {
                    let why = format!(
                        "{named:?} is no process of this platform, and only processes write frames"
                    );
                    refused(RefusalReason::WrongIdentity, why)
                })?;
                if self.processes.len() >= PROCESSES {
                    self.processes.clear();
                }
                let known: (Arc<str>, _) = (identity.to_string().into(), Arc::new(identity));
                self.processes.insert(named.to_owned(), known.clone());
                known
            }
        };
        let kind = properties.kind().as_ref().map(|kind| kind.as_str());
        let sent_back = match kind {
            Some(KIND_FRAME) => None,
            Some(KIND_REFUSED) => {
                let reason = text(REASON).and_then(|text| {
                    RefusalReason::ALL
                        .into_iter()
                        .find(|it| it.as_str() == text)
                });
                let explanation = text(TEXT).filter(|text| text.len() <= LONGEST_TEXT);
                let (Some(reason), Some(explanation)) = (reason, explanation) else {
                    let why = "a frame is sent back without a reason";
                    return Err(refused(RefusalReason::Malformed, why.to_owned()));
                };
                Some(Refused {
                    reason,
                    explanation: explanation.to_owned(),
                })
            }
            other => {
                let why = format!("{other:?} is no type of what processes write to each other");
                return Err(refused(RefusalReason::Malformed, why));
            }
        };
        let stamp = properties.message_id().as_ref();
        let stamp = stamp
            .and_then(|id| Stamp::parse(id.as_str()))
            .ok_or_else(|| {
                let why = "its message-id does not say which of its process' frames it is";
                refused(RefusalReason::Malformed, why.to_owned())
            })?;
        if author.is_some_and(|author| author.len() > 2 * sealbus_seal::MAX_NAME_LENGTH + 1) {
            let why = "the name of the agent that wrote it is too long";
            return Err(refused(RefusalReason::Malformed, why.to_owned()));
        }
        let checked = Checked {
            process,
            author: author.map(Arc::from),
            proof: header(PROOF).map(<[u8]>::to_vec),
            refused: sent_back,
            payload: Bytes::from(delivery.data),
        };
        Ok((name, stamp, checked))
    }

    fn hand_over(&mut self, checked: Checked, tag: Tag, acks: &mut Acks) {
        acks.may(tag);
        self.link.wire.received.fetch_add(1, Ordering::Relaxed);
        let Some(bus) = self.link.wire.bus().upgrade() else {
            return;
        };
        let Checked {
            process,
            author,
            proof,
            refused,
            payload,
        } = checked;
        if let Some(Refused {
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
            return bus.frames_lost(&process, vec![frame], &reason);
        }
        let taken = match self.origin(&process, author.as_ref(), proof.as_deref()) {
            Ok((origin, provenance)) => bus.take_frame(ArrivedFrame {
                process: process.clone(),
                origin,
                provenance,
                payload: payload.clone(),
                // Subscriptions hold back publishers by credit of their own.
                credit: FrameCredit::free(),
            }),
            Err(refused) => {
                let tried_by = author.as_deref().unwrap_or_default();
                self.note(tried_by, Some(process.to_string()), &refused);
                Err(refused)
            }
        };
        if let Err(refused) = taken {
            let (reason, text) = (refused.reason, &refused.explanation);
            self.link.send_back(&process, payload, author, reason, text);
        }
    }

    fn came_again(&mut self, _: Checked, tag: Tag, acks: &mut Acks) {
        acks.may(tag);
    }
}

impl Inbox {
    fn note(&self, tried_by: &str, proved: Option<String>, refused: &Refused) {
        if let Some(bus) = self.link.wire.bus().upgrade() {
            bus.refused(
                tried_by,
                proved,
                Some(&self.name()),
                refused.reason,
                refused.explanation.clone(),
            );
        }
    }

    /// Who wrote it, as far as it is proved.
    fn origin(
        &mut self,
        process: &Arc<Identity>,
        author: Option<&Arc<str>>,
        proof: Option<&[u8]>,
    ) -> Result<(FrameOrigin, Provenance), Refused> {
        let RabbitSecurity::Auth(trust) = &self.link.wire.config().security else {
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
                    proofs::verify(proof, process, level, trust, now).map_err(|error| Refused {
                        reason: RefusalReason::from(&error),
                        explanation: error.to_string(),
                    })?;
                if !verified.identity().is_agent_named(author) {
                    return Err(Refused {
                        reason: RefusalReason::ForgedSender,
                        explanation: format!(
                            "{process} shows the proof of {} for {author}",
                            verified.identity()
                        ),
                    });
                }
                self.link.proved(process, author, verified.clone());
                Some(verified)
            }
            None => self.link.proof_of(process, author),
        };
        let verified = verified.ok_or_else(|| Refused {
            reason: RefusalReason::NotProved,
            explanation: format!("{author} has not proved to speak through {process}"),
        })?;
        // It may have been revoked meanwhile.
        trust.check(&verified, now).map_err(|error| Refused {
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
