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

use super::address::HttpAddress;
use super::book::{Book, Bounded};
use super::config::{HttpGatewayConfig, Known};
use super::counters::Counts;
use super::peer_handle::PeerHandle;
use super::policy::GatewayPolicy;
use super::transmission::Writer;
use super::waiting::{Lines, WaitingMessage};

/// The state that the tasks of a gateway share.
pub(super) struct Shared {
    pub(super) platform: PlatformName,
    pub(super) config: HttpGatewayConfig,
    pub(super) known: HashMap<String, Known>,
    /// The addresses other platforms reach it by.
    pub(super) own: Vec<String>,
    pub(super) own_addresses: Vec<HttpAddress>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) policy: RwLock<Arc<GatewayPolicy>>,
    pub(super) book: Mutex<Book>,
    /// The messages from outside, by id, and whether they were delivered.
    pub(super) seen: Mutex<Bounded<bool>>,
    /// By platform, in lower case, and addresses.
    pub(super) peers: Mutex<HashMap<(String, Vec<HttpAddress>), PeerHandle>>,
    /// Messages from outside that wait for full mailboxes.
    pub(super) lines: Mutex<Lines<WaitingMessage>>,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) counts: Counts,
    pub(super) tasks: std::sync::Weak<Mutex<JoinSet<()>>>,
    pub(super) runtime: Handle,
    /// Tells this run's messages from those of another.
    pub(super) run: String,
    pub(super) writer: Mutex<Writer>,
    pub(super) next: AtomicU64,
}

impl Shared {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = self.tasks.upgrade() {
            let mut tasks = tasks.lock();
            while tasks.try_join_next().is_some() {}
            // Agents send from any thread.
            tasks.spawn_on(task, &self.runtime);
        }
    }

    pub(super) fn aid(&self, local: &str) -> Aid {
        Aid {
            name: format!("{local}@{}", self.platform),
            addresses: Vec::new(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        }
    }
}
