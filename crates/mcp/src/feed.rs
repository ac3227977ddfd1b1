//! The channels that a caller listens to, each with its latest events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus::Voice;
use sealbus::channel::{ChannelEvent, SubscribeError};
use sealbus_callers::said::Said;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Most channels of one caller.
const MOST_FEEDS: usize = 32;
/// Most events that wait to be read, and most of their bytes. The oldest go first.
const MOST_EVENTS: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// The reason why a caller cannot listen to a channel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("no caller may listen to more than {MOST_FEEDS} channels: unsubscribe from one")]
    TooMany,
    #[error(transparent)]
    Path(#[from] sealbus::channel::PathError),
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

/// The channels of one caller.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Mutex<BTreeMap<String, Arc<Feed>>>,
}

impl Feeds {
    /// Listens to a channel, unless the caller already does.
    pub(crate) fn open(&self, voice: &Voice, channel: &str) -> Result<Arc<Feed>, FeedError> {
        let mut feeds = self.feeds.lock();
        if let Some(feed) = feeds.get(channel).filter(|feed| !feed.has_ended()) {
            return Ok(feed.clone());
        }
        feeds.retain(|_, feed| !feed.has_ended());
        if feeds.len() >= MOST_FEEDS {
            return Err(FeedError::TooMany);
        }
        let mut subscription = voice.subscribe(channel)?.open()?;
        let (latest, _) = watch::channel(0);
        let events = Arc::new(Mutex::new(Events::default()));
        let reading = {
            let (latest, events) = (latest.clone(), events.clone());
            tokio::spawn(async move {
                while let Some(event) = subscription.next().await {
                    let number = events.lock().add(&event);
                    latest.send_replace(number);
                }
            })
        };
        let feed = Arc::new(Feed {
            events,
            latest,
            reading: reading.abort_handle(),
        });
        feeds.insert(channel.to_owned(), feed.clone());
        Ok(feed)
    }

    /// Ends listening to a channel. Returns whether the caller listened.
    pub(crate) fn close(&self, channel: &str) -> bool {
        self.feeds.lock().remove(channel).is_some()
    }

    /// The channels, in order.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.feeds.lock().keys().cloned().collect()
    }
}

/// A channel that a caller listens to. The subscription ends with it.
pub(crate) struct Feed {
    events: Arc<Mutex<Events>>,
    latest: watch::Sender<u64>,
    reading: AbortHandle,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Feed {
    fn has_ended(&self) -> bool {
        self.reading.is_finished()
    }

    /// The number of the latest event, now and whenever there is one.
    pub(crate) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Up to `most` events after the event of this number, and the number of events that are no longer here.
    pub(crate) fn after(&self, number: u64, most: usize) -> Value {
        let events = self.events.lock();
        let first = events.last + 1 - events.waiting.len() as u64;
        let from = number.saturating_add(1);
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let found: Vec<&Value> = events
            .waiting
            .iter()
            .skip(skipped)
            .take(most)
            .map(|(event, _)| event)
            .collect();
        json!({"events": found, "missed": first.saturating_sub(from), "last": events.last})
    }
}

#[derive(Default)]
struct Events {
    waiting: VecDeque<(Value, usize)>,
    bytes: usize,
    /// The number of the last event; they are counted from 1.
    last: u64,
}

impl Events {
    fn add(&mut self, event: &ChannelEvent) -> u64 {
        let content = Said::value_in(event.message());
        let number = self.last + 1;
        let event = json!({
            "number": number,
            "channel": event.channel().as_str(),
            "sender": event.sender_name(),
            "performative": event.performative.as_str(),
            "content": content,
            "provenance": event.provenance().as_str(),
        });
        let bytes = event.to_string().len();
        self.push(event, bytes);
        number
    }

    fn push(&mut self, event: Value, bytes: usize) {
        self.last += 1;
        self.bytes += bytes;
        self.waiting.push_back((event, bytes));
        while self.waiting.len() > MOST_EVENTS
            || (self.bytes > MOST_BYTES && self.waiting.len() > 1)
        {
            if let Some((_, bytes)) = self.waiting.pop_front() {
                self.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(count: u64, bytes: usize) -> Feed {
        let mut events = Events::default();
        for number in 1..=count {
            events.push(json!(number), bytes);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let task = runtime.spawn(async {});
        Feed {
            events: Arc::new(Mutex::new(events)),
            latest: watch::channel(count).0,
            reading: task.abort_handle(),
        }
    }

    #[test]
    fn the_oldest_events_go_and_are_counted() {
        let few = feed(3, 10);
        assert_eq!(
            few.after(0, 2),
            json!({"events": [1, 2], "missed": 0, "last": 3})
        );
        assert_eq!(
            few.after(2, 2),
            json!({"events": [3], "missed": 0, "last": 3})
        );
        assert_eq!(
            few.after(u64::MAX, 2),
            json!({"events": [], "missed": 0, "last": 3})
        );
        let many = feed(300, 10);
        assert_eq!(
            many.after(0, 1),
            json!({"events": [45], "missed": 44, "last": 300})
        );
        let large = feed(5, MOST_BYTES / 2);
        assert_eq!(
            large.after(0, 9),
            json!({"events": [4, 5], "missed": 3, "last": 5})
        );
        assert_eq!(
            feed(0, 0).after(0, 9),
            json!({"events": [], "missed": 0, "last": 0})
        );
    }
}
