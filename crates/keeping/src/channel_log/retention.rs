//! How long the logs are kept, and the task that removes old events.

use std::sync::Arc;
use std::time::Duration;

use sealbus_channels::{ChannelPath, ChannelPattern};
use sealbus_control::{Fault, FaultCode};
use sealbus_journal::{Retention, StreamConfig};

use super::{ChannelLog, KeptChannelLogs, MOST_LOGS_OF_AGENT, Obeyed, RECORD, storage};

/// The retention of channels of which nobody gives one.
pub(super) const USUAL: Retention = Retention {
    age: Some(Duration::from_secs(7 * 24 * 3600)),
    count: None,
    bytes: Some(if cfg!(test) { 512 << 10 } else { 1 << 30 }),
};
/// The most bytes of the logs that one agent began and of which nobody gives the retention. Otherwise an agent with many
/// channels would fill the disk, and letters and events of others would be refused.
pub(super) const MOST_OF_AGENT: u64 = if cfg!(test) { 1 << 20 } else { 4 << 30 };
/// The growth after which these logs are measured again, so that an event costs no measurement.
const MEASURED: u64 = MOST_OF_AGENT / 8;
/// The bytes of these logs from which on the agent's long events are refused there: a log keeps its last event, however
/// long, so that cutting the logs does not bound them. Logs that can be cut have fewer bytes.
const FULL: u64 = MOST_OF_AGENT + MOST_OF_AGENT / 4;
/// The bytes of a long event: half of the part of each log if the agent has begun as many as it may.
const LONG: u64 = MOST_OF_AGENT / MOST_LOGS_OF_AGENT as u64 / 2;
/// How often the logs are searched for events that are too old.
const TIDYING: Duration = Duration::from_secs(60);

impl Obeyed {
    /// The retention that a manifest gives, if it gives one.
    pub(super) fn given(given: sealbus_manifest::RetentionEntry) -> Option<Retention> {
        let given = Retention {
            age: given.age.map(Duration::from_secs),
            count: given.count,
            bytes: given.bytes,
        };
        (given != Retention::default()).then_some(given)
    }

    /// The retention that is given for a channel, if there is one.
    fn retention(&self, channel: &ChannelPath) -> Option<Retention> {
        let entry = self
            .retention
            .iter()
            .find(|(pattern, _)| pattern.matches(channel));
        entry.and_then(|(_, retention)| *retention)
    }
}

/// The room that the logs of one agent share, of which nobody gives the retention.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// The bytes by which the logs that the agent began have grown since they were measured.
    pub(super) grown: u64,
    /// The most bytes of each log, if the logs are too long together.
    most: Option<u64>,
}

/// The most bytes that each log may have, so that all have no more than `room` together. Short logs stay whole, and long
/// ones are cut to the same length. `None` if all stay whole.
fn part_of_each(mut lengths: Vec<u64>, mut room: u64) -> Option<u64> {
    lengths.sort_unstable();
    for (length, left) in lengths.iter().zip((1..=lengths.len() as u64).rev()) {
        let part = room / left;
        if *length > part {
            return Some(part);
        }
        room -= length;
    }
    None
}

impl KeptChannelLogs {
    /// Sets the retention of one channel on an embedded platform, which has no manifest.
    pub fn retain(&self, channel: &ChannelPath, retention: Retention) -> Result<(), Fault> {
        {
            let mut obeyed = self.rules.lock();
            let mut entries = obeyed.retention.clone();
            entries.retain(|(pattern, _)| pattern.as_path().as_ref() != Some(channel));
            entries.insert(0, (ChannelPattern::from(channel), Some(retention)));
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

    /// How the log of a channel is kept that this agent began.
    pub(super) fn config_of(
        &self,
        obeyed: &Obeyed,
        channel: &ChannelPath,
        maker: Option<&str>,
    ) -> StreamConfig {
        let usual = || {
            let shares = self.shares.lock();
            let most = maker.and_then(|maker| shares.get(maker)?.most);
            Retention {
                bytes: most.into_iter().chain(USUAL.bytes).min(),
                ..USUAL
            }
        };
        let given = obeyed.retention(channel);
        let mut config = self.config(given.unwrap_or_else(usual));
        if given.is_none() {
            // A log keeps its last segment, so that of an idle log must be a small part of the share.
            let most = u32::try_from(LONG).unwrap_or(u32::MAX);
            config.segment_bytes = config.segment_bytes.min(most);
        }
        config
    }

    /// Keeps a log from now on as the rules in force say.
    pub(super) fn keep_as_told(&self, obeyed: &Obeyed, log: &ChannelLog) {
        let config = self.config_of(obeyed, &log.channel, log.maker.as_deref());
        if let Err(error) = self.journal.open_stream(log.stream.name(), config) {
            tracing::error!(channel = %log.channel, %error, "its retention is not obeyed");
        }
    }

    /// Notes that a log grows by this many bytes. If the logs that its maker began have grown much, they are measured.
    pub(super) fn grows(&self, obeyed: &Obeyed, log: &ChannelLog, bytes: u64) {
        let Some(maker) = log.maker.as_deref() else {
            return;
        };
        {
            let mut shares = self.shares.lock();
            let Some(share) = shares.get_mut(maker) else {
                return;
            };
            share.grown += bytes;
            if share.grown < MEASURED {
                return;
            }
            share.grown = 0;
        }
        self.measure(obeyed, maker);
    }

    /// Checks whether an event of so many bytes finds room in the share of its publisher. Events of others on the channels
    /// that an agent began are not refused because of that agent, and neither is an event that takes the place of as
    /// many bytes.
    ///
    /// # Errors
    /// [`FaultCode::Full`], with the agent and the bytes of its logs.
    pub(super) fn check_share(
        &self,
        obeyed: &Obeyed,
        log: &ChannelLog,
        publisher: &str,
        bytes: u64,
    ) -> Result<(), Fault> {
        let is_theirs = log.maker.as_deref() == Some(publisher);
        if !is_theirs
            || bytes <= LONG
            || bytes <= log.stream.info().bytes
            || obeyed.retention(&log.channel).is_some()
        {
            return Ok(());
        }
        let logs = self.in_share(obeyed, publisher);
        let taken: u64 = logs.iter().map(|log| log.stream.info().bytes).sum();
        if taken < FULL {
            return Ok(());
        }
        // Logs from before a restart may not have been cut yet.
        self.measure(obeyed, publisher);
        let message = format!(
            "{} keeps {} MiB on the channels on which {publisher} published first, so its event of {bytes} bytes on {} finds no room",
            self.node,
            taken >> 20,
            log.channel
        );
        let advice =
            "publish shorter events, or on fewer channels, or give their retention in [[channel]]";
        Err(Fault::new(FaultCode::Full, message).advise(advice))
    }

    /// The logs that an agent began and of which nobody gives the retention.
    fn in_share(&self, obeyed: &Obeyed, maker: &str) -> Vec<Arc<ChannelLog>> {
        let is_theirs = |log: &&Arc<ChannelLog>| {
            log.maker.as_deref() == Some(maker) && obeyed.retention(&log.channel).is_none()
        };
        let logs = self.logs.lock();
        logs.values().filter(is_theirs).cloned().collect()
    }

    /// Measures the logs that an agent began and of which nobody gives the retention. If they are too long together, the
    /// long ones lose their oldest events.
    fn measure(&self, obeyed: &Obeyed, maker: &str) {
        let logs = self.in_share(obeyed, maker);
        let lengths = logs.iter().map(|log| log.stream.info().bytes);
        // Until they are measured again, they may grow.
        let most = part_of_each(lengths.collect(), MOST_OF_AGENT - MEASURED);
        let former = {
            let mut shares = self.shares.lock();
            let share = shares.get_mut(maker);
            share.and_then(|share| std::mem::replace(&mut share.most, most))
        };
        if former == most {
            return;
        }
        if let Some(most) = most {
            tracing::warn!(
                agent = maker,
                channels = logs.len(),
                most,
                "the channels that it began take too much of the disk, so each keeps at most this many bytes: [[channel]] of the manifest gives their retention"
            );
        }
        for log in logs {
            self.keep_as_told(obeyed, &log);
            // A log to which nobody writes makes room, too. An error is reported where the write happens.
            drop(log.stream.retain());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_logs_are_cut_to_the_same_length_and_short_ones_stay_whole() {
        assert_eq!(part_of_each(Vec::new(), 5), None);
        assert_eq!(part_of_each(vec![1, 3, 2], 6), None);
        assert_eq!(part_of_each(vec![7], 5), Some(5));
        assert_eq!(part_of_each(vec![10, 1, 90], 11), Some(5));
        assert_eq!(part_of_each(vec![1; 4], 0), Some(0));
    }
}
