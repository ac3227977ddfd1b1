//! Keeping events: the checks before an event is kept, and its number on disk.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use sealbus_channels::frame::{Frame, Head, HeadMechanism};
use sealbus_channels::{ChannelPath, Moment};
use sealbus_control::channel_log::{KeepOutcome, PostedEvent};
use sealbus_control::{Fault, FaultCode};
use sealbus_fipa::{Limits, bitefficient};
use sealbus_journal::NewRecord;
use sealbus_seal::permission::ChannelRight;

use super::origins::{Given, Keeping};
use super::{ChannelLog, KeptChannelLogs, Obeyed, storage};

impl KeptChannelLogs {
    pub(super) async fn keep(
        &self,
        process: &Arc<str>,
        events: Vec<PostedEvent>,
    ) -> Result<Vec<KeepOutcome>, Fault> {
        let obeyed = self.obeyed()?;
        let mut under_way = Vec::with_capacity(events.len());
        let mut full: HashMap<ChannelPath, Fault> = HashMap::new();
        for event in events {
            under_way.push(self.put(&obeyed, process, event, &mut full));
        }
        let mut outcomes = Vec::with_capacity(under_way.len());
        let mut kept: BTreeSet<ChannelPath> = BTreeSet::new();
        for put in under_way {
            let outcome = match put {
                Ok(put) => {
                    let channel = put.log.channel.clone();
                    let outcome = put.finish().await;
                    kept.extend(outcome.is_ok().then_some(channel));
                    outcome
                }
                Err(fault) => Err(fault),
            };
            outcomes.push(match outcome {
                Ok(number) => KeepOutcome::Kept { number },
                Err(fault) => KeepOutcome::Refused { fault },
            });
        }
        self.news.send_modify(|news| {
            for channel in &kept {
                news.note(channel);
            }
        });
        Ok(outcomes)
    }

    /// Puts one event into the journal's queue. `full` has the channels on which an earlier event found no room.
    fn put(
        &self,
        obeyed: &Obeyed,
        process: &Arc<str>,
        event: PostedEvent,
        full: &mut HashMap<ChannelPath, Fault>,
    ) -> Result<EventWrite, Fault> {
        let refuse = |text: String| Fault::new(FaultCode::BadRequest, text);
        let bytes = Bytes::from(event.frame.0);
        let frame = Frame::decode(&bytes)
            .map_err(|error| refuse(format!("the record to keep is not an event: {error}")))?;
        let Frame::Keep {
            stamp, head, body, ..
        } = frame
        else {
            return Err(refuse("the record to keep is not an event".to_owned()));
        };
        let channel = ChannelPath::new(head.channel).map_err(|error| refuse(error.to_string()))?;
        self.check(obeyed, &event.publisher, &channel, &head, body)?;
        // A later frame must not overtake one that found no room.
        if let Some(fault) = full.get(&channel) {
            return Err(fault.clone());
        }
        let log = self.log(obeyed, &channel, &event.publisher)?;
        let given = Given {
            process: process.clone(),
            session: stamp.session,
            sequence: stamp.number,
        };
        let mut origins = log.origins.lock();
        if let Some(keeping) = origins.known(&given) {
            drop(origins);
            return Ok(EventWrite {
                log,
                given,
                keeping,
            });
        }
        let key = given.to_key();
        let size = (key.len() + bytes.len()) as u64;
        let room = self.reserve.check(&self.node);
        let room = room.and_then(|()| self.check_share(obeyed, &log, &event.publisher, size));
        if let Err(fault) = room {
            full.insert(channel, fault.clone());
            return Err(fault);
        }
        let written = log.stream.append(NewRecord {
            key,
            attributes: Bytes::new(),
            payload: bytes.clone(),
        });
        let written = written.map_err(|error| {
            let fault = storage(error);
            full.insert(channel.clone(), fault.clone());
            fault
        })?;
        let keeping = async move { written.await.map_err(storage) }
            .boxed()
            .shared();
        origins.note(&given, keeping.clone());
        drop(origins);
        self.grows(obeyed, &log, size);
        Ok(EventWrite {
            log,
            given,
            keeping,
        })
    }

    /// Checks whether an event may be kept.
    fn check(
        &self,
        obeyed: &Obeyed,
        publisher: &str,
        channel: &ChannelPath,
        head: &Head<'_>,
        body: &[u8],
    ) -> Result<(), Fault> {
        let refuse = |text: String| Err(Fault::new(FaultCode::BadRequest, text));
        if head.mechanism != HeadMechanism::Event || !head.persistence.is_persistent() {
            return refuse("only events of persistent channels are kept".to_owned());
        }
        if body.len() > self.longest {
            return refuse(format!(
                "the event has {} bytes, and at most {} are kept",
                body.len(),
                self.longest
            ));
        }
        let name = format!("{publisher}@{}", self.platform);
        if !obeyed
            .permissions
            .may(&name, ChannelRight::Publish, channel)
        {
            return Err(Fault::new(
                FaultCode::NotPermitted,
                format!("the policy does not let {name} publish on {channel}"),
            ));
        }
        let limits = Limits {
            message_length: body.len(),
            ..Limits::default()
        };
        let view = match bitefficient::decode_ref(body, &limits) {
            Ok(view) => view,
            Err(error) => return refuse(format!("what is to be kept is no ACL message: {error}")),
        };
        match view.sender() {
            Some(sender) if sender.name() == name => {}
            _ => return refuse(format!("the event is not from {name}, who publishes it")),
        }
        if head.expiry.is_some_and(|expiry| expiry <= Moment::now()) {
            return refuse("the event has expired".to_owned());
        }
        Ok(())
    }
}

/// An event in the journal's queue or already on disk.
struct EventWrite {
    log: Arc<ChannelLog>,
    given: Given,
    keeping: Keeping,
}

impl EventWrite {
    async fn finish(self) -> Result<u64, Fault> {
        let kept = self.keeping.await;
        if kept.is_err() {
            self.log.origins.lock().forget(&self.given);
        }
        kept
    }
}
