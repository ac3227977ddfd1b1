//! The task that receives what the buses of other processes say to this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use lapin::message::Delivery;
use lapin::options::BasicRejectOptions;
use lapin::types::AMQPValue;
use lapin::{Channel, Result as LapinResult};
use sealbus_bus::{
    ArrivedFrame, FrameCredit, FrameOrigin, LostFrame, Provenance, RefusalReason, Refused,
    UndeliverableReason,
};
use sealbus_seal::{Identity, Timestamp};
use tokio::time::sleep;

use super::acks::Acks;
use super::config::RabbitSecurity;
use super::connect::{Opened, Purpose};
use super::consumer::{sleep_until, stuck};
use super::deliveries::Deliveries;
use super::incoming::{Arrival, Incoming};
use super::link::Sends;
use super::names;
use super::process_link::{
    AUTHOR, FRAME_HEAD, KIND_FRAME, KIND_REFUSED, LONGEST_TEXT, PROCESS, PROOF, ProcessLink,
    REASON, TEXT,
};
use super::proofs;
use super::stamp::Stamp;

/// Processes remembered, so that the name of each is read once.
const PROCESSES: usize = 65_536;

/// What arrived from a process that is proved, in a place of its order.
struct Checked {
    /// On the present connection, if it came on that one.
    connection: u64,
    tag: u64,
    process: Arc<Identity>,
    author: Option<Arc<str>>,
    proof: Option<Vec<u8>>,
    /// Why it was sent back, if it is one of this process that was refused.
    refused: Option<Refused>,
    payload: Bytes,
}

struct Inbox {
    link: Arc<ProcessLink>,
    incoming: Incoming<Checked>,
    /// Known processes, so that each is parsed once.
    processes: HashMap<String, (Arc<str>, Arc<Identity>)>,
    connection: u64,
    acks: Acks,
}

/// Receives until the process leaves.
pub(crate) async fn run(link: Arc<ProcessLink>) {
    let mut inbox = Inbox {
        incoming: Incoming::new(link.wire.config().reorder_time),
        processes: HashMap::new(),
        connection: 0,
        acks: Acks::default(),
        link: link.clone(),
    };
    while !link.wire.has_left() {
        let mut leaving = link.wire.leaving.subscribe();
        let opened = tokio::select! {
            opened = link.wire.connect(|| link.client(), Purpose::Receiving, |_| {}) => opened,
            _ = leaving.wait_for(|leaving| *leaving) => return,
        };
        let Some(opened) = opened else {
            return;
        };
        let result = inbox.serve(opened).await;
        link.wire.is_receiving.send_replace(false);
        inbox.acks = Acks::default();
        inbox.connection += 1;
        match result {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(process = %link.identity, %error, "the connection to the broker for frames broke");
                sleep(link.wire.config().redial.0).await;
            }
        }
    }
}

impl Inbox {
    /// Receives on one connection until it breaks. `Ok`: the link has ended.
    async fn serve(&mut self, opened: Opened) -> LapinResult<()> {
        let link = self.link.clone();
        let queue = names::process_queue(&link.id);
        let prefetch = link.wire.config().prefetch;
        let mut deliveries = Deliveries::open(opened, &queue, "frames", prefetch).await?;
        link.wire.is_receiving.send_replace(true);
        self.incoming.connected(Instant::now());
        let mut ending = link.wire.ending.subscribe();
        let mut leaving = link.wire.leaving.subscribe();
        loop {
            let now = Instant::now();
            let is_over = *ending.borrow() || *leaving.borrow();
            if is_over || self.acks.is_due(0, now) {
                self.acks.send(&deliveries.channel, now)?;
            }
            if is_over {
                deliveries.close("the process has left").await;
                return Ok(());
            }
            let acknowledge_at = self.acks.due().filter(|_| self.acks.is_waiting());
            let deadline = self.incoming.deadline();
            tokio::select! {
                together = deliveries.next() => for delivery in together? {
                    self.delivered(delivery, &deliveries.channel).await?;
                },
                () = sleep_until(acknowledge_at) => {}
                () = sleep_until(deadline) => {
                    for checked in self.incoming.overdue(Instant::now()) {
                        self.hand_over(checked);
                    }
                }
                _ = ending.changed() => {}
                _ = leaving.changed() => {}
            }
        }
    }

    async fn delivered(&mut self, delivery: Delivery, channel: &Channel) -> LapinResult<()> {
        let tag = delivery.delivery_tag;
        let (sender, stamp, checked) = match self.check(delivery) {
            Ok(checked) => checked,
            Err((tried_by, proved, refused)) => {
                self.note(&tried_by, proved, &refused);
                // It is kept where operators find it.
                let requeue = BasicRejectOptions { requeue: false };
                return channel.basic_reject(tag, requeue).await;
            }
        };
        self.acks.delivered(tag);
        let Arrival { next, spare } =
            self.incoming
                .arrived(&sender, stamp, checked, Instant::now());
        if let Some(spare) = spare {
            self.may_acknowledge(&spare);
        }
        if next.is_empty() && self.is_stuck() {
            return Err(stuck(&self.link.identity.to_string()));
        }
        for checked in next {
            self.hand_over(checked);
        }
        Ok(())
    }

    /// What came on a former connection comes again, and is acknowledged then.
    fn may_acknowledge(&mut self, checked: &Checked) {
        if checked.connection == self.connection {
            self.acks.may(checked.tag);
        }
    }

    /// Whether the broker delivers no more until something is acknowledged, and all there is waits for something before it.
    fn is_stuck(&self) -> bool {
        let prefetch = usize::from(self.link.wire.config().prefetch);
        let is_here = |checked: &&Checked| checked.connection == self.connection;
        self.acks.open() >= prefetch && self.incoming.kept().filter(is_here).count() >= prefetch
    }

    fn note(&self, tried_by: &str, proved: Option<String>, refused: &Refused) {
        if let Some(bus) = self.link.wire.bus().upgrade() {
            let receiver = self.link.identity.to_string();
            bus.refused(
                tried_by,
                proved,
                Some(&receiver),
                refused.reason,
                refused.explanation.clone(),
            );
        }
    }

    /// Who sent it, and where it belongs. What is wrong there is of nobody's order.
    #[allow(clippy::type_complexity)]
    fn check(
        &mut self,
        delivery: Delivery,
    ) -> Result<(Arc<str>, Stamp, Checked), (String, Option<String>, Refused)> {
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
            let refused = Refused {
                reason,
                explanation,
            };
            (tried_by, user.map(str::to_owned), refused)
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
            connection: self.connection,
            tag: delivery.delivery_tag,
            process,
            author: author.map(Arc::from),
            proof: header(PROOF).map(<[u8]>::to_vec),
            refused: sent_back,
            payload: Bytes::from(delivery.data),
        };
        Ok((name, stamp, checked))
    }

    /// Its turn has come.
    fn hand_over(&mut self, checked: Checked) {
        self.may_acknowledge(&checked);
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
            ..
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
            Ok((origin, provenance)) => {
                let frame = ArrivedFrame {
                    process: process.clone(),
                    origin,
                    provenance,
                    payload: payload.clone(),
                    // Subscriptions hold back publishers by credit of their own.
                    credit: FrameCredit::free(),
                };
                let refused = bus.take_frames(&mut vec![frame]).pop();
                refused.map(|it| it.refused)
            }
            Err(refused) => {
                let tried_by = author.as_deref().unwrap_or_default();
                self.note(tried_by, Some(process.to_string()), &refused);
                Some(refused)
            }
        };
        if let Some(refused) = taken {
            let (reason, text) = (refused.reason, &refused.explanation);
            self.link.send_back(&process, payload, author, reason, text);
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
