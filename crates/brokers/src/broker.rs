//! The links' access to the broker, and the bus that they serve.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sealbus_bus::WeakBus;
use tokio::runtime::Handle;

use crate::client::Client;
use crate::config::BrokerConfig;

/// The links' access to the broker, and the bus that they serve.
pub(crate) struct Broker {
    pub(crate) config: BrokerConfig,
    pub(crate) client: Arc<dyn Client>,
    pub(crate) bus: WeakBus,
    /// The index of the address that the next connection tries first.
    pub(crate) next_address: AtomicUsize,
    /// The runtime of the links' tasks.
    pub(crate) runtime: Handle,
}
