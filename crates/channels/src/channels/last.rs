//! One-off questions for the last events of a channel.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::Outbox;
use thiserror::Error;

use super::{Channels, LONGEST_WAIT};
use crate::event::ReceivedEvent;
use crate::filter::{ChannelFilter, EventKey, FilterError};
use crate::log::{FilterErrorSink, LogReading, NotGathered, Replay, gather};
use crate::path::ChannelPath;
use crate::pattern::ChannelPattern;
use crate::qos::{Promise, Qos, UnavailableQos};

/// The last events of a channel, from [`Channels::last`].
#[derive(Clone, Debug, Default)]
pub struct LastEvents {
    /// The last event for each value of the key, in the order of publication.
    pub events: Vec<ReceivedEvent>,
    /// The nodes whose events may be missing, and why.
    pub unanswered: Vec<(Arc<str>, String)>,
    /// The number of events without the key, or for which the filter could not be evaluated, and the reason for one of
    /// them.
    pub filter_errors: (u64, String),
}

/// The reason why the last events of a channel were not read.
#[derive(Clone, Debug, Error)]
pub enum LastError {
    /// The filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The agent may not read the channel.
    #[error("agent {agent} may not read {channel}: the platform's policy does not allow it")]
    NotPermitted {
        /// The agent.
        agent: Arc<str>,
        /// The channel.
        channel: ChannelPath,
    },
    /// The channel keeps no events.
    #[error(transparent)]
    Unavailable(#[from] UnavailableQos),
    /// There are more values than one answer can hold.
    #[error("{channel}: {problem}: take another key, or a filter")]
    TooManyKeys {
        /// The channel.
        channel: ChannelPath,
        /// The limit.
        problem: String,
    },
    /// The agent has left this process.
    #[error("agent {0} has left this process and cannot read channels")]
    Detached(Arc<str>),
}

impl Channels {
    /// Asks all nodes for the last event of each value of `key` on a persistent channel, among those that fulfil the
    /// filter (empty: all events). Waits for `within` at most.
    ///
    /// # Errors
    /// [`LastError`], for example if the channel is transient and no node keeps events of it.
    pub async fn last(
        &self,
        outbox: &Outbox,
        channel: &ChannelPath,
        qos: &Qos,
        key: &EventKey,
        filter: &str,
        within: Duration,
    ) -> Result<LastEvents, LastError> {
        let agent = outbox.name();
        if outbox.agent().mailbox().closed().is_some() {
            return Err(LastError::Detached(agent.clone()));
        }
        if !filter.is_empty() {
            ChannelFilter::new(filter)?;
        }
        let pattern = ChannelPattern::from(channel);
        let may_read = self
            .shared
            .work(|exchange, _| exchange.may_subscribe(agent, &pattern, false));
        if !may_read {
            return Err(LastError::NotPermitted {
                agent: agent.clone(),
                channel: channel.clone(),
            });
        }
        let unavailable = |promise| UnavailableQos {
            transport: self.shared.capabilities().1.to_owned(),
            missing: vec![promise],
        };
        let Some(logs) = self.shared.logs.get().cloned() else {
            return Err(unavailable(Promise::Persistent).into());
        };
        let reading = LogReading::new(
            agent.clone(),
            pattern,
            filter.to_owned(),
            Replay::LastPerKey(key.clone()),
        );
        let errors = Arc::new(Mutex::new((0, String::new())));
        let sink: FilterErrorSink = {
            let errors = errors.clone();
            Arc::new(move |count, problem: &str| {
                let mut errors = errors.lock();
                errors.0 += count;
                errors.1 = problem.to_owned();
            })
        };
        let (key, within) = (key.clone(), within.min(LONGEST_WAIT));
        // The timers belong to the bus's runtime, even if another runtime polls this future.
        let asked = logs.clone();
        let gathering = async move { gather(&*asked, &reading, &key, within, &sink).await };
        let gathered = outbox.bus().runtime().spawn(gathering).await;
        // The runtime has ended, and nothing can be read any more.
        let gathered = gathered.map_err(|_| LastError::Detached(agent.clone()))?;
        let too_many = |(_, problem): &&(_, NotGathered)| *problem == NotGathered::TooManyKeys;
        if let Some((_, problem)) = gathered.missing.iter().find(too_many) {
            return Err(LastError::TooManyKeys {
                channel: channel.clone(),
                problem: problem.to_string(),
            });
        }
        let is_persistent = qos.persistence.is_persistent() || gathered.latest.has_logs();
        if !is_persistent && gathered.missing.is_empty() {
            return Err(unavailable(Promise::LastPerKeyOfTransient).into());
        }
        let mut events: Vec<ReceivedEvent> = Vec::new();
        for (node, parts) in gathered.latest.into_parts() {
            for event in parts.into_iter().flat_map(|part| part.events) {
                // The key was read already, but the author may not be proved.
                match event.open(&*logs, &node, 0, agent) {
                    Ok(event) => events.extend(event),
                    Err(problem) => tracing::error!(
                        %node, number = event.number, problem, "a kept event is not handed out"
                    ),
                }
            }
        }
        events.sort_by_key(|event| event.header.published);
        let missing = gathered.missing.into_iter();
        let filter_errors = errors.lock().clone();
        Ok(LastEvents {
            events,
            unanswered: missing.map(|(node, why)| (node, why.to_string())).collect(),
            filter_errors,
        })
    }
}
