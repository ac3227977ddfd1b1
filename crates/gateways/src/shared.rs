//! The state that the tasks of a gateway share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use sealbus_bus::Outbox;
use sealbus_fipa::Aid;
use sealbus_seal::PlatformName;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::address::Address;
use crate::book::{Book, Bounded};
use crate::config::{GatewayConfig, ReadPlatform};
use crate::counters::Counts;
use crate::http::transmission::Writer;
use crate::outside::Own;
use crate::peer_handle::PeerHandle;
use crate::policy::GatewayPolicy;
use crate::waiting::{Lines, WaitingMessage};

/// The state that the tasks of a gateway share.
pub(crate) struct Shared {
    pub(crate) platform: PlatformName,
    pub(crate) config: GatewayConfig,
    pub(crate) known: HashMap<String, ReadPlatform>,
    /// The addresses by which other platforms reach the gateway.
    pub(crate) own: Own,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) policy: RwLock<Arc<GatewayPolicy>>,
    pub(crate) book: Mutex<Book>,
    /// The messages from outside, by id, and whether they were delivered.
    pub(crate) seen: Mutex<Bounded<bool>>,
    /// The peers, by platform, in lower case, and addresses.
    pub(crate) peers: Mutex<HashMap<(String, Vec<Address>), PeerHandle>>,
    /// Messages from outside that wait for full mailboxes.
    pub(crate) lines: Mutex<Lines<WaitingMessage>>,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) counts: Counts,
    pub(crate) tasks: std::sync::Weak<Mutex<JoinSet<()>>>,
    pub(crate) runtime: Handle,
    /// Tells this run's messages apart from those of another run.
    pub(crate) run: String,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) next: AtomicU64,
}

impl Shared {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = self.tasks.upgrade() {
            let mut tasks = tasks.lock();
            while tasks.try_join_next().is_some() {}
            // Agents send from any thread.
            tasks.spawn_on(task, &self.runtime);
        }
    }

    pub(crate) fn aid(&self, local: &str) -> Aid {
        Aid {
            name: format!("{local}@{}", self.platform),
            addresses: Vec::new(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        }
    }
}
