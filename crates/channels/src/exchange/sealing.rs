//! Sealed events at both ends. The publisher's process seals an event to all agents that may read the channel, and
//! sends it to those whose subscriptions want it. A subscriber's process opens it for each of its agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealbus_bus::{
    NotSealed, Opened, ReceivedMessage, RefusalReason, UndeliverableReason, is_sealed,
};
use sealbus_fipa::AclMessage;
use sealbus_seal::{SecurityLevel, Timestamp};

use super::arrival::{Objection, refuse};
use super::chosen::{Chosen, by_agent};
use super::publication::{Publication, PublishError};
use super::share::Share;
use super::stream::KeptFrame;
use super::targets::{ChannelReceivers, Here, There};
use super::{Exchange, Now};
use crate::event::{ChannelHeader, Mechanism};
use crate::frame::{Frame, Head, Stamp, Targets};
use crate::path::ChannelPath;
use crate::qos::{Qos, Reliability};
use crate::sealed::{EventSealer, EventToSeal, GroupChange, LeftOut, Reader, SealedEvent};
use crate::sealed::{Needs, OpenedPart, PartKind, SealedPart, Unsealed, outline};

/// The result of opening a message that arrived.
pub(super) enum Opening {
    /// The message is not sealed.
    Plain,
    /// A change of a group, and the reasons of the agents that could not take it.
    Change(Vec<String>),
    /// An event, the agents that opened it, and the reasons why the others did not.
    Event(Option<Opened>, BTreeSet<Arc<str>>, Vec<String>),
}

/// The keys that events of queue groups wait for.
#[derive(Default)]
pub(super) struct LookUps {
    wanted: Vec<Reader>,
    under_way: Vec<Reader>,
}

impl Exchange {
    /// The readers whose keys must be looked up before events of queue groups can be sealed to them. Each look-up ends
    /// with [`looked_up`](Self::looked_up).
    pub(crate) fn take_look_ups(&mut self) -> Vec<Reader> {
        let wanted = std::mem::take(&mut self.look_ups.wanted);
        self.look_ups.under_way.extend_from_slice(&wanted);
        wanted
    }

    /// Notes that the keys of these readers were looked up.
    pub(crate) fn looked_up(&mut self, readers: &[Reader], now: Now) {
        self.look_ups.under_way.retain(|it| !readers.contains(it));
        let is_meant = |agent: &str| readers.iter().any(|it| *it.agent == *agent);
        self.groups.try_keys(is_meant);
        self.serve_groups(now);
    }

    /// Sets the service that seals and opens events.
    pub(crate) fn set_sealer(&mut self, sealer: Arc<dyn EventSealer>) {
        self.sealer = Some(sealer);
    }

    /// The level that the platform declares for a channel.
    pub(crate) fn declared_level(&self, path: &ChannelPath) -> Option<SecurityLevel> {
        self.declared.qos(path).level
    }

    /// Whether everything that an agent writes on this platform is sealed.
    fn seals_all(&self, author: &str) -> bool {
        let sealer = self.sealer.as_ref();
        sealer.is_some_and(|sealer| sealer.is_for_all() && !sealer.is_of_platform(author))
    }

    /// Whether an event must be sealed, on a channel for which the platform declares this level. Only events that are
    /// not kept can be sealed.
    ///
    /// # Errors
    /// If it must be sealed, and cannot be.
    pub(crate) fn is_to_seal(
        &self,
        publisher: &Arc<str>,
        path: &ChannelPath,
        declared: Option<SecurityLevel>,
        qos: &Qos,
        mechanism: &Mechanism,
    ) -> Result<bool, PublishError> {
        let level = qos.level.max(declared);
        if level != Some(SecurityLevel::Sealed) && !self.seals_all(publisher) {
            return Ok(false);
        }
        let reason = match mechanism {
            _ if self.sealer.is_none() => "this process has no keys",
            Mechanism::Event if qos.persistence.is_persistent() => {
                "a log cannot hold what its later readers could not open: publish it without `persistent`, or at level \
                 `signed`"
            }
            Mechanism::Event => return Ok(true),
            Mechanism::Message { .. } => {
                "a message to one agent is not sealed on a channel: send it to the agent directly, at level `sealed`"
            }
            Mechanism::Request { .. } | Mechanism::Reply { .. } => {
                "questions to all and their answers are not sealed: ask each agent directly, at level `sealed`, or ask at \
                 level `signed`"
            }
        };
        Err(PublishError::NotSealed {
            agent: publisher.clone(),
            channel: path.clone(),
            reason: NotSealed(reason.to_owned()),
        })
    }

    /// The agents of other processes that may read events of a channel.
    fn readers(&self, targets: &ChannelReceivers) -> Vec<Reader> {
        let mut readers: Vec<Reader> = Vec::new();
        for there in &targets.there {
            let Some(peer) = self.peers.get(there.peer) else {
                continue;
            };
            let session = peer.session_out();
            let reading = there.subscriptions.iter().filter(|it| reads_events(it));
            readers.extend(reading.map(|it| Reader {
                agent: it.subscription.agent.clone(),
                session,
                since: it.subscription.since,
            }));
        }
        // An agent that moves may be in two processes. The one to which it came last counts.
        fn order(it: &Reader) -> (&str, Option<Timestamp>, u64) {
            (&it.agent, it.since, it.session)
        }
        readers.sort_unstable_by(|a, b| order(b).cmp(&order(a)));
        readers.dedup_by(|later, first| later.agent == first.agent);
        readers
    }

    /// Seals an event. Returns the readers whose keys must be looked up first, if there are any.
    pub(super) fn seal(
        &mut self,
        publication: &Publication<'_>,
        targets: &ChannelReceivers,
    ) -> Result<Result<SealedEvent, Vec<Reader>>, PublishError> {
        let failed = |reason: NotSealed| PublishError::NotSealed {
            agent: publication.publisher.clone(),
            channel: publication.channel.clone(),
            reason,
        };
        let Some(sealer) = self.sealer.clone() else {
            return Err(failed(NotSealed("this process has no keys".to_owned())));
        };
        let readers = self.readers(targets);
        match sealer.seal(&EventToSeal {
            publisher: publication.publisher,
            channel: publication.channel,
            message: publication.message,
            readers: &readers,
            needs: Needs::All,
        }) {
            Ok(event) => Ok(Ok(event)),
            Err(Unsealed::Unknown(readers)) => Ok(Err(readers)),
            Err(Unsealed::Failed(reason)) => Err(failed(reason)),
        }
    }

    /// Seals an event of a queue group for the member that gets it.
    pub(super) fn seal_share(
        &mut self,
        share: Share,
        header: &ChannelHeader,
        publisher: &Arc<str>,
        message: &AclMessage,
        now: Now,
    ) -> Result<SealedEvent, UndeliverableReason> {
        let refused = |explanation: String| UndeliverableReason::Refused {
            reason: RefusalReason::NotSealed,
            explanation,
        };
        let targets = self.targets(&header.channel);
        let readers = self.readers(&targets);
        let (process, id) = share.member;
        let peer = process.and_then(|index| self.peers.get(index));
        let member = peer.and_then(|peer| peer.subscriptions.get(&id));
        let member = member.map(|it| it.agent.clone());
        let sealer = self.sealer.clone();
        let sealer = sealer.ok_or_else(|| refused("this process has no keys".to_owned()))?;
        let event = EventToSeal {
            publisher,
            channel: &header.channel,
            message,
            readers: &readers,
            needs: member.as_deref().map_or(Needs::None, Needs::Reader),
        };
        let sealed = match sealer.seal(&event) {
            Ok(sealed) => sealed,
            Err(Unsealed::Failed(reason)) => return Err(refused(reason.0)),
            Err(Unsealed::Unknown(readers)) => {
                let LookUps { wanted, under_way } = &mut self.look_ups;
                let is_new = |it: &Reader| !wanted.contains(it) && !under_way.contains(it);
                let new: Vec<_> = readers.into_iter().filter(is_new).collect();
                wanted.extend(new);
                let agent = member.as_deref().unwrap_or_default();
                // The reason of an earlier failed look-up is more useful.
                let earlier = self.groups.held(share).and_then(|it| it.reason.clone());
                return Err(earlier.unwrap_or_else(|| {
                    refused(format!(
                        "{agent} cannot read it: its key package is not known"
                    ))
                }));
            }
        };
        self.send_changes(header, publisher, &targets, &sealed.changes, now)
            .map_err(|error| refused(error.to_string()))?;
        let is_it = |it: &&LeftOut| member.as_ref() == Some(&it.agent);
        match sealed.left_out.iter().find(is_it) {
            Some(out) => Err(refused(format!(
                "{} cannot read it: {}",
                out.agent, out.reason
            ))),
            None => Ok(sealed),
        }
    }

    /// Sends the changes of a group, before the event that needs them. They are numbered even if the event is not.
    pub(super) fn send_changes(
        &mut self,
        header: &ChannelHeader,
        publisher: &Arc<str>,
        targets: &ChannelReceivers,
        changes: &[GroupChange],
        now: Now,
    ) -> Result<(), PublishError> {
        let header = ChannelHeader {
            qos: Qos {
                reliability: Reliability::ExactlyOnce,
                level: header.qos.level,
                ..Qos::default()
            },
            valid_from: None,
            expiry: None,
            ..header.clone()
        };
        let head = Head::of(&header);
        for change in changes {
            let encoded = self.encode(&change.message)?;
            for there in &targets.there {
                let Some(peer) = self.peers.get_mut(there.peer) else {
                    continue;
                };
                let reading = there.subscriptions.iter().filter(|it| reads_events(it));
                // Any of an agent's subscriptions may end in the meantime, so all are named. The agent takes the change once.
                let named: Vec<&There> = reading
                    .filter(|it| change.readers.contains(&it.subscription.agent))
                    .collect();
                let is_for_it = !named.is_empty();
                for part in by_agent(named) {
                    let part: Vec<u32> = part.iter().map(|it| it.id).collect();
                    let stamp = Stamp {
                        session: peer.session_out(),
                        number: peer.outgoing.next(),
                    };
                    let parcel = encoded.parcel(publisher, stamp, &head, &part);
                    let kept = KeptFrame {
                        // The author is told of lost events, but not of lost changes.
                        is_settled: true,
                        ..KeptFrame::new(parcel)
                    };
                    peer.outgoing.push(kept, now.since_start);
                }
                if is_for_it {
                    self.mark_ready(there.peer);
                }
            }
            self.keep_buffer(encoded);
        }
        Ok(())
    }

    /// Removes the readers that the event was not sealed to. Its publisher is told once of each.
    pub(super) fn leave_out_readers(
        &mut self,
        publication: &Publication<'_>,
        chosen: &mut Chosen,
        targets: &ChannelReceivers,
        left_out: &[LeftOut],
    ) {
        if left_out.is_empty() {
            return;
        }
        let agents: BTreeSet<&str> = left_out.iter().map(|it| &*it.agent).collect();
        chosen.there.retain_mut(|there| {
            let Some(of_peer) = targets.there.get(there.at) else {
                return false;
            };
            let is_out = |id: u32| {
                let mut subscriptions = of_peer.subscriptions.iter();
                subscriptions.any(|it| it.id == id && agents.contains(&*it.subscription.agent))
            };
            if !there.named.iter().any(|id| is_out(*id)) {
                return true;
            }
            there.named.retain(|id| !is_out(*id));
            let charged = there.charged.take().into_iter();
            let charged: Arc<[u32]> = charged
                .flat_map(|ids| ids.to_vec())
                .filter(|id| !is_out(*id))
                .collect();
            there.charged = (!charged.is_empty()).then_some(charged);
            !there.named.is_empty()
        });
        for it in left_out.iter().filter(|it| it.is_news) {
            let reason = UndeliverableReason::Refused {
                reason: RefusalReason::NotSealed,
                explanation: format!(
                    "events of {} are not sealed to {}: {}",
                    publication.channel, it.agent, it.reason
                ),
            };
            let (publisher, channel) = (publication.publisher, publication.channel);
            self.tell_publisher(publisher, channel, &outline(publication.message), reason);
        }
    }

    /// Opens a message of another process for the agents here that get it.
    pub(super) fn open(
        &self,
        author: &str,
        path: &ChannelPath,
        message: &ReceivedMessage,
        level: Option<SecurityLevel>,
        targets: &ChannelReceivers,
        named: Targets<'_>,
    ) -> Result<Opening, Objection> {
        let outer = message.message();
        if !is_sealed(&outer) {
            return match level == Some(SecurityLevel::Sealed) || self.seals_all(author) {
                false => Ok(Opening::Plain),
                true => Err(refuse(
                    RefusalReason::NotSealed,
                    "it is not sealed, and everybody could read it",
                )),
            };
        }
        let not_opened = |why: String| refuse(RefusalReason::NotOpened, why);
        let Some(sealer) = &self.sealer else {
            return Err(not_opened("this process has no keys".to_owned()));
        };
        let content = outer.content_bytes().unwrap_or_default();
        let part = SealedPart::parse(&content, author, path.as_str()).map_err(not_opened)?;
        let is_meant = |it: &&Here| match named.is_all() {
            true => it.uses.sees,
            false => {
                (it.uses.sees || it.uses.shares) && named.iter().any(|id| id == it.consumer.id)
            }
        };
        let agents: BTreeSet<Arc<str>> = targets
            .here
            .iter()
            .filter(is_meant)
            .map(|it| it.consumer.agent.clone())
            .collect();
        let OpenedPart { event, failed } = sealer.open(&part, &agents);
        let mut readers = agents;
        readers.retain(|agent| !failed.contains_key(agent));
        let failed = failed
            .into_iter()
            .map(|(agent, why)| format!("{agent} cannot open it: {why}"))
            .collect();
        Ok(match part.kind {
            PartKind::Event(_) => Opening::Event(event, readers, failed),
            PartKind::Commit | PartKind::Welcome => Opening::Change(failed),
        })
    }

    /// Agents of another process could not open a message. They join the group of its author anew.
    pub(super) fn was_not_opened(&mut self, index: u32, number: u64) {
        let (Some(peer), Some(sealer)) = (self.peers.get_mut(index), &self.sealer) else {
            return;
        };
        let Some(parcel) = peer.outgoing.owed(number).map(|kept| kept.parcel.clone()) else {
            return;
        };
        let Ok(Frame::Event { head, targets, .. }) = Frame::decode(&parcel.head) else {
            return;
        };
        if head.level != Some(SecurityLevel::Sealed) {
            return;
        }
        let subscriptions = peer.subscriptions.iter();
        let meant = subscriptions
            .filter(|(id, _)| targets.is_all() || targets.iter().any(|named| named == **id));
        let agents = meant.map(|(_, it)| it.agent.clone()).collect();
        let author = parcel.author.as_deref().unwrap_or_default();
        sealer.not_opened(author, head.channel, &agents);
    }
}

/// Whether a subscription gets events, alone or as a member of a group.
fn reads_events(it: &There) -> bool {
    it.uses.sees || it.uses.shares
}
