//! A host: its agent, and the channels it listens to.

use std::sync::Arc;

use sealbus::Voice;
use sealbus_callers::Caller;

use crate::feed::{Feed, FeedError, Feeds};

/// A caller and its channels.
pub(crate) struct Host {
    pub(crate) caller: Caller,
    pub(crate) feeds: Feeds,
}

impl Host {
    /// The host's agent.
    pub(crate) fn voice(&self) -> &Voice {
        &self.caller.voice
    }

    /// The events of a channel, to which the host listens from now on.
    pub(crate) fn feed(&self, channel: &str) -> Result<Arc<Feed>, FeedError> {
        self.feeds.open(&self.caller.voice, channel)
    }
}

impl From<Caller> for Host {
    fn from(caller: Caller) -> Self {
        Self {
            caller,
            feeds: Feeds::default(),
        }
    }
}
