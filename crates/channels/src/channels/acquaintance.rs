//! How processes whose agents use channels learn of each other. A process reports to the platform when its first agent
//! uses channels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::BoxFuture;
use tokio::task::JoinSet;

use super::{Channels, Shared};
use crate::exchange::Exchange;

/// The first pause before the platform is told again, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The platform, which tells processes whose agents use channels of each other.
pub trait ChannelRegistrar: Send + Sync {
    /// Tells the platform that agents of this process use channels. The platform then tells this process of the others,
    /// and calls [`Channels::acquainted`]. Returns once the others have heard of this process, too.
    ///
    /// # Errors
    /// The reason why the platform does not know of this process now. It is told again later.
    fn register(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// The report of a process to the platform that its agents use channels.
#[derive(Default)]
pub(super) struct Registration {
    registrar: OnceLock<Arc<dyn ChannelRegistrar>>,
    /// Whether the platform is being told, or knows.
    has_begun: AtomicBool,
    /// Whether the other processes know.
    is_listed: AtomicBool,
    /// The latest attempt. It ends with the channels, because it holds the way to the platform.
    attempt: Mutex<JoinSet<()>>,
}

impl Registration {
    /// Whether the other processes know, or there can be none.
    fn is_known(&self) -> bool {
        self.registrar.get().is_none() || self.is_listed.load(Ordering::Acquire)
    }
}

impl Channels {
    /// Sets the platform that tells this process of others. Publishers wait until it has done so. Call this before
    /// agents use channels. Without a registrar the bus is [told](sealbus_bus::Bus::process_joined) of all others
    /// anyway. Returns false if a registrar was set before.
    pub fn set_registrar(&self, registrar: Arc<dyn ChannelRegistrar>) -> bool {
        let is_first = self.shared.registration.registrar.set(registrar).is_ok();
        if is_first {
            self.shared
                .work(|exchange, _| exchange.is_to_be_acquainted());
        }
        is_first
    }

    /// The platform has told the bus of all other processes whose agents use channels.
    pub fn acquainted(&self) {
        self.shared.work(|exchange, _| exchange.acquainted());
        self.shared.introduced.notify_waiters();
    }

    /// Tells the platform that agents of this process use channels, before any of them does.
    pub fn register(&self) {
        self.shared.use_channels();
    }

    /// Tells the platform again, because it may have forgotten, that agents of this process use channels, if they do.
    pub fn register_again(&self) {
        if self.shared.registration.has_begun.load(Ordering::Acquire) {
            self.shared.register();
        }
    }

    /// Waits until the other processes whose agents use channels have heard of this one, for `limit` at most. Returns
    /// whether they have. From then on, each event of a publisher reaches the subscriptions that were made here before.
    pub async fn listed(&self, limit: Duration) -> bool {
        self.shared.use_channels();
        let shared = self.shared.clone();
        let is_listed = move |_: &mut Exchange, _| shared.registration.is_known();
        self.wait_until(limit, is_listed).await
    }

    /// Whether [`listed`](Self::listed) would not wait.
    pub fn is_listed(&self) -> bool {
        self.shared.registration.is_known()
    }
}

impl Shared {
    /// Agents of this process use channels.
    pub(super) fn use_channels(self: &Arc<Self>) {
        let Registration {
            registrar,
            has_begun,
            ..
        } = &self.registration;
        if registrar.get().is_some() && !has_begun.load(Ordering::Acquire) {
            let is_first = !has_begun.swap(true, Ordering::AcqRel);
            if is_first {
                self.register();
            }
        }
    }

    fn register(self: &Arc<Self>) {
        let registrar = self.registration.registrar.get().cloned();
        let (Some(registrar), Some(bus)) = (registrar, self.bus.upgrade()) else {
            return;
        };
        let shared = Arc::downgrade(self);
        let registering = async move {
            let mut pause = PAUSE.0;
            while let Err(why) = registrar.register().await {
                tracing::debug!(
                    why,
                    "the platform does not know yet that channels are used here"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
            if let Some(shared) = shared.upgrade() {
                let is_listed = &shared.registration.is_listed;
                is_listed.store(true, Ordering::Release);
                shared.introduced.notify_waiters();
            }
        };
        let mut attempt = self.registration.attempt.lock();
        attempt.abort_all();
        attempt.spawn_on(registering, bus.runtime());
    }
}
