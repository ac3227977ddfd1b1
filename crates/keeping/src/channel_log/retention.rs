//! How long the logs are kept, and the task that removes old events.

use std::sync::Arc;
use std::time::Duration;

use sealbus_channels::{ChannelPath, ChannelPattern};
use sealbus_control::Fault;
use sealbus_journal::{Retention, StreamConfig};

use super::{KeptChannelLogs, Obeyed, RECORD, storage};

/// The retention of channels that the manifest does not name.
const USUAL: Retention = Retention {
    age: Some(Duration::from_secs(7 * 24 * 3600)),
    count: None,
    bytes: Some(1 << 30),
};
/// How often the logs are searched for events that are too old.
const TIDYING: Duration = Duration::from_secs(60);

impl Obeyed {
    /// The retention that a manifest gives, or the usual one.
    pub(super) fn given(given: sealbus_manifest::Retention) -> Retention {
        let given = Retention {
            age: given.age.map(Duration::from_secs),
            count: given.count,
            bytes: given.bytes,
        };
        match given == Retention::default() {
            true => USUAL,
            false => given,
        }
    }

    pub(super) fn retention(&self, channel: &ChannelPath) -> Retention {
        let entry = self
            .retention
            .iter()
            .find(|(pattern, _)| pattern.matches(channel));
        entry.map_or(USUAL, |(_, retention)| *retention)
    }
}

impl KeptChannelLogs {
    /// Sets the retention of one channel on an embedded platform, which has no manifest.
    pub fn retain(&self, channel: &ChannelPath, retention: Retention) -> Result<(), Fault> {
        {
            let mut obeyed = self.rules.lock();
            let mut entries = obeyed.retention.clone();
            entries.retain(|(pattern, _)| pattern.as_path().as_ref() != Some(channel));
            entries.insert(0, (ChannelPattern::from(channel), retention));
            *obeyed = Arc::new(Obeyed {
                rules: obeyed.rules.clone(),
                permissions: obeyed.permissions.clone(),
                retention: entries,
                recorded: obeyed.recorded,
            });
        }
        if let Some(log) = self.logs.lock().get(channel) {
            let config = self.config(retention);
            self.journal
                .open_stream(log.stream.name(), config)
                .map_err(storage)?;
        }
        Ok(())
    }

    pub(super) fn config(&self, retention: Retention) -> StreamConfig {
        let segment_bytes = retention
            .bytes
            // A segment is a fraction of the kept bytes, so that retention can remove whole segments.
            .map_or(16 << 20, |bytes| (bytes / 8).clamp(64 << 10, 16 << 20));
        StreamConfig {
            retention,
            segment_bytes: u32::try_from(segment_bytes).unwrap_or(16 << 20),
            largest_payload: self.longest + 4096,
        }
    }

    /// Removes events that are too old. This runs for ever.
    pub async fn tidy(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TIDYING).await;
            let logs: Vec<_> = self.logs.lock().values().cloned().collect();
            let streams = logs.iter().map(|log| log.stream.clone());
            let record = self.journal.streams().into_iter();
            for stream in streams.chain(record.filter(|stream| stream.name() == RECORD)) {
                if let Ok(retained) = stream.retain() {
                    // The error is reported where the write happens.
                    let _ = retained.await;
                }
            }
        }
    }
}
