//! A host: its agent, and the channels it listens to.

use sealbus_callers::Caller;

use crate::feed::Feeds;

/// A caller and its channels.
pub(crate) struct Host {
    pub(crate) caller: Caller,
    pub(crate) feeds: Feeds,
}

impl From<Caller> for Host {
    fn from(caller: Caller) -> Self {
        Self {
            caller,
            feeds: Feeds::default(),
        }
    }
}
