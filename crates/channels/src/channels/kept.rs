//! Persistent channels, as agents use them. An event goes to the log first, and then to the subscriptions that follow
//! present events. Subscriptions that read logs get the event from the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_seal::SecurityLevel;
use tokio::sync::oneshot;

use super::{Channels, Shared};
use crate::event::{ChannelHeader, Mechanism, ReceivedEvent};
use crate::exchange::{Consumer, PublishError, Reach};
use crate::frame::Head;
use crate::log::{
    ChannelLogs, EventToKeep, Feed, FeedSink, FilterErrorSink, LogReading, LogRetention,
};
use crate::path::ChannelPath;
use crate::qos::Qos;
use sealbus_bus::Acknowledgement;
use sealbus_bus::NotKept;
use sealbus_bus::Outbox;
use sealbus_bus::RefusalReason;
use sealbus_bus::UndeliverableReason;

/// The order of each agent's persistent events: they are handed out in the order in which they were kept.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Arc<str>, Arc<Line>>>);

/// The places of one agent's events, in order. A waiting event is told when its place becomes the first.
#[derive(Debug, Default)]
struct Line(Mutex<BTreeMap<u64, Option<oneshot::Sender<()>>>>);

/// A place in a line. Dropping it gives the place up, also before the places in front of it.
struct Turn {
    line: Arc<Line>,
    place: u64,
}

impl Turns {
    fn enter(&self, agent: &Arc<str>) -> Turn {
        let line = self.0.lock().entry(agent.clone()).or_default().clone();
        let mut places = line.0.lock();
        let place = places.last_key_value().map_or(0, |(last, _)| last + 1);
        places.insert(place, None);
        drop(places);
        Turn { line, place }
    }

    pub(super) fn forget(&self, agent: &str) {
        self.0.lock().remove(agent);
    }
}

impl Turn {
    /// Waits until this place is the first.
    async fn come(&self) {
        let (tell, told) = oneshot::channel();
        {
            let mut places = self.line.0.lock();
            let first = places.first_key_value();
            if first.is_some_and(|(place, _)| *place == self.place) {
                return;
            }
            places.insert(self.place, Some(tell));
        }
        // The line keeps the sender until it has told.
        let _ = told.await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut places = self.line.0.lock();
            places.remove(&self.place);
            let first = places.first_entry();
            first.and_then(|mut first| first.get_mut().take())
        };
        if let Some(tell) = next {
            // The event may have been given up in the meantime.
            let _ = tell.send(());
        }
    }
}

impl Channels {
    /// Sets the service that keeps the events of persistent channels. Call this before the capabilities of channels are
    /// first asked for. Returns false if a service was set before.
    pub fn set_logs(&self, logs: Arc<dyn ChannelLogs>) -> bool {
        self.shared.logs.set(logs).is_ok()
    }

    /// From now on, the subscriptions of an agent that moves hand out nothing, and count nothing more as handled, until
    /// the agent [goes on](Self::go_on) here, or leaves. Events wait. An event that a task of the agent has in hand is
    /// not handled: it comes again, marked, if the agent goes on elsewhere.
    pub fn rest(&self, agent: &str) {
        self.shared
            .work(|exchange, _| exchange.set_resting(agent, true));
    }

    /// Lets the subscriptions of an agent that rested go on.
    pub fn go_on(&self, agent: &str) {
        self.shared
            .work(|exchange, _| exchange.set_resting(agent, false));
    }

    /// Waits until the nodes know the progress of an agent that rests, for `limit` at most. Returns whether they do.
    pub async fn rest_is_noted(&self, agent: &str, limit: Duration) -> bool {
        let consumers = self
            .shared
            .work(|exchange, _| exchange.set_resting(agent, true));
        let durable = consumers.iter().filter(|it| it.options.durable.is_some());
        let trackers = durable.filter_map(|it| it.tracker.as_ref());
        let noted = join_all(trackers.map(|tracker| tracker.all_noted()));
        tokio::time::timeout(limit, noted).await.is_ok()
    }

    /// Waits until the nodes know the progress of durable subscriptions that have ended.
    pub async fn settled(&self) {
        self.shared.feeds.all_ended().await;
    }

    /// Sets how much of a persistent channel an embedded platform keeps. On other platforms the manifest sets this.
    ///
    /// # Errors
    /// [`NotKept`] if the retention cannot be set here, or nothing is kept.
    pub async fn retain(
        &self,
        channel: &ChannelPath,
        retention: LogRetention,
    ) -> Result<(), NotKept> {
        let no_log = || NotKept("this platform keeps no events".to_owned());
        let logs = self.shared.logs.get().ok_or_else(no_log)?;
        let retained = logs.retain(channel, retention).await;
        retained.map_err(|error| NotKept(error.to_string()))
    }

    /// Publishes an event of a persistent channel.
    pub(super) async fn publish_kept(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        message: &Arc<AclMessage>,
    ) -> Result<Reach, PublishError> {
        let publisher = outbox.name();
        let no_log = || PublishError::NotKept(NotKept("this platform keeps no events".to_owned()));
        let logs = self.shared.logs.get().ok_or_else(no_log)?;
        let now = self.shared.work(|exchange, now| {
            exchange.may_publish(publisher, channel)?;
            let declared = exchange.declared_level(channel);
            exchange.is_to_seal(publisher, channel, declared, qos, &Mechanism::Event)?;
            Ok::<_, PublishError>(now.moment)
        })?;
        let header = ChannelHeader::new(Mechanism::Event, channel.clone(), *qos, 0, now);
        if header.is_never_valid(now) {
            return Err(PublishError::Expired);
        }
        let mut body = Vec::new();
        bitefficient::encode(message, &mut body)?;
        let limit = self.shared.capabilities().0.largest_message;
        if body.len() > limit {
            let size = body.len();
            return Err(PublishError::TooLarge { size, limit });
        }
        let evidence = match outbox.bus().signs() || qos.level >= Some(SecurityLevel::Signed) {
            true => {
                let signed = outbox.agent().sign_one(Head::of(&header).statement(&body));
                signed.map_err(|reason| PublishError::NotSigned {
                    agent: publisher.clone(),
                    reason,
                })?
            }
            false => Vec::new(),
        };
        let turn = self.shared.turns.enter(publisher);
        let event = EventToKeep {
            publisher: publisher.clone(),
            channel: channel.clone(),
            header: Arc::new(header),
            body: body.into(),
            evidence: evidence.into(),
        };
        let place = logs.keep(event).await.map_err(PublishError::NotKept)?;
        turn.come().await;
        let qos = Qos {
            // The event is on disk.
            acknowledgement: qos
                .acknowledgement
                .filter(|wanted| *wanted < Acknowledgement::OnDisk),
            ..*qos
        };
        let handed_out = self
            .put(
                outbox,
                channel,
                &qos,
                message,
                Some((place.number, now)),
                |exchange, publication, now| exchange.publish(publication, now),
            )
            .await;
        let kept = Some(place);
        match handed_out {
            Ok(reach) => Ok(Reach { kept, ..reach }),
            // The event waited too long for the subscriptions, but is in the log.
            Err(PublishError::Expired) => Ok(Reach {
                kept,
                ..Reach::default()
            }),
            Err(PublishError::Unacknowledged { reason, reach }) => {
                let reach = Reach { kept, ..reach };
                Err(PublishError::Unacknowledged { reason, reach })
            }
            Err(error) => Err(PublishError::Unacknowledged {
                reason: UndeliverableReason::Refused {
                    reason: RefusalReason::NotPermitted,
                    explanation: format!(
                        "it is in the log, and was not given to those who listen now: {error}"
                    ),
                },
                reach: Reach {
                    kept,
                    ..Reach::default()
                },
            }),
        }
    }

    /// Feeds a subscription from the logs, if it reads them.
    pub(super) fn feed(&self, consumer: &Arc<Consumer>) {
        let Some(tracker) = consumer.tracker.clone() else {
            return;
        };
        let (Some(logs), Some(bus)) = (self.shared.logs.get(), self.shared.bus.upgrade()) else {
            return;
        };
        let options = &consumer.options;
        let weak = Arc::downgrade(&self.shared);
        let id = consumer.id;
        let sink: FeedSink = Arc::new(move |event: ReceivedEvent, note| {
            weak.upgrade().is_some_and(|shared: Arc<Shared>| {
                shared.work(|exchange, now| exchange.hand_logged(id, event, note, now))
            })
        });
        let weak = Arc::downgrade(&self.shared);
        let filter_errors: FilterErrorSink = {
            let consumer = consumer.clone();
            Arc::new(move |count, problem: &str| {
                if let Some(shared) = weak.upgrade() {
                    shared.work(|exchange, _| {
                        exchange.count_filter_errors(&consumer, count, problem);
                    });
                }
            })
        };
        let feed = Feed {
            logs: logs.clone(),
            tracker,
            sink,
            filter_errors,
            reading: LogReading {
                durable: options.durable.clone(),
                ..LogReading::new(
                    consumer.agent.clone(),
                    options.pattern.clone(),
                    options.filter.clone(),
                    options.replay.clone(),
                )
            },
            limits: options.limits,
        };
        feed.start(bus.runtime(), &self.shared.feeds);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_place_that_is_given_up_early_lets_nobody_overtake_those_in_front() {
        let turns = Turns::default();
        let agent: Arc<str> = "alice@factory".into();
        let mut context = Context::from_waker(Waker::noop());
        let [first, failed, cancelled, last] = [(); 4].map(|()| turns.enter(&agent));
        let mut waits = pin!(last.come());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(pin!(cancelled.come()).poll(&mut context).is_pending());
        drop(cancelled);
        drop(failed);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(waits.as_mut().poll(&mut context).is_ready());
    }
}
