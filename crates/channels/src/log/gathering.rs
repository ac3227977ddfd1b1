//! Gathering the last event of each key: one question to all nodes. Each node is asked until it has given all that it kept.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::latest::{Latest, MOST_VALUES, TooManyKeys};
use super::{ChannelLogs, LogReading, NotRead};
use crate::filter::EventKey;

/// Is told how many events the subscription's filter could not be evaluated for, and the reason.
pub(crate) type FilterErrorSink = Arc<dyn Fn(u64, &str) + Send + Sync>;

/// How long a subscription waits for the last events of all nodes.
pub(crate) const GATHERING: Duration = Duration::from_secs(5);
/// The pause before a node that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of one answer.
const MOST_BYTES: usize = 1 << 20;

/// The events gathered from all nodes.
pub(crate) struct Gathered {
    pub(crate) latest: Latest,
    /// The nodes that have not given everything, and why.
    pub(crate) missing: Vec<(Arc<str>, NotGathered)>,
}

/// The reason why a node has not given everything that it keeps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotGathered {
    #[error("it did not answer in time{0}")]
    Late(String),
    #[error("{0}")]
    Refused(String),
    #[error("there are more than {} values of the key, or {} MiB of them", MOST_VALUES.0, MOST_VALUES.1 >> 20)]
    TooManyKeys,
}

/// Gathers the last event of each key from all nodes, for `within` at most.
pub(crate) async fn gather(
    logs: &dyn ChannelLogs,
    reading: &LogReading,
    key: &EventKey,
    within: Duration,
    filter_errors: &FilterErrorSink,
) -> Gathered {
    let latest = Mutex::new(Latest::new(key.clone()));
    let reading = LogReading {
        last_per: Some(key.clone()),
        events: MOST_VALUES.0,
        bytes: MOST_BYTES,
        wait: Duration::ZERO,
        ..reading.clone()
    };
    let until = Instant::now() + within;
    let (latest_of_all, reading) = (&latest, &reading);
    let questions = logs.nodes().await.into_iter().map(|node| async move {
        let asked = ask(logs, reading, &node, latest_of_all, until, filter_errors).await;
        asked.err().map(|problem| (node, problem))
    });
    let missing = join_all(questions).await;
    Gathered {
        latest: latest.into_inner(),
        missing: missing.into_iter().flatten().collect(),
    }
}

/// Asks one node until it has given all that it keeps.
async fn ask(
    logs: &dyn ChannelLogs,
    reading: &LogReading,
    node: &Arc<str>,
    latest: &Mutex<Latest>,
    until: Instant,
    filter_errors: &FilterErrorSink,
) -> Result<(), NotGathered> {
    let mut problem = String::new();
    loop {
        let reading = LogReading {
            positions: latest.lock().positions(node),
            ..reading.clone()
        };
        let answer = tokio::time::timeout_at(until, logs.read(node, reading)).await;
        match answer.map_err(|_| NotGathered::Late(problem.clone()))? {
            Ok(parts) => {
                for part in &parts {
                    let (count, problem) = &part.filter_errors;
                    if *count > 0 {
                        filter_errors(*count, problem);
                    }
                }
                let mut latest = latest.lock();
                match latest.take_in(node, parts) {
                    Ok(()) if latest.is_complete(node) => return Ok(()),
                    Ok(()) => {}
                    Err(TooManyKeys) => return Err(NotGathered::TooManyKeys),
                }
            }
            Err(NotRead::Away(why)) => {
                problem = format!(": {why}");
                tokio::time::sleep(PAUSE).await;
            }
            Err(NotRead::Refused(why)) => return Err(NotGathered::Refused(why)),
        }
    }
}
