//! The gateway itself. It stands between the bus and other platforms.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use parking_lot::{Mutex, RwLock};
use sealbus_bus::{Mailbox, MailboxLimits, Outbox, ReceivedMessage, StandInLimits};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::book::Bounded;
use crate::config::{ConfigError, GatewayConfig};
use crate::counters::{Counts, GatewayCounters};
use crate::http::server::Server;
use crate::http::{self, transmission::Writer};
use crate::iiop;
use crate::iiop::OwnObject;
use crate::outside::Own;
use crate::places::Places;
use crate::policy::{GatewayPolicy, GatewayPolicyError};
use crate::shared::Shared;
use crate::waiting::Lines;
use sealbus_web::tls::{Tls, TlsSetupError};

/// The pause between checks of the gateway's own certificate. A short-lived certificate is checked more often.
const RENEWAL_CHECK: Duration = Duration::from_secs(20);
const SHORTEST_RENEWAL_CHECK: Duration = Duration::from_secs(1);
/// The number of messages from outside that are remembered, so that none is delivered twice.
const REMEMBERED: usize = 65_536;
/// The bytes that wait in the mailbox of an agent of another platform before its senders must wait. There may be
/// thousands of such mailboxes. One message may exceed this, so that messages of any length pass.
const STAND_IN_BYTES: usize = 256 << 10;
/// The bytes of messages from other processes on their way to all platforms are this many times those to one platform,
/// but no fewer than [`LEAST_ROOM`]. One process gets at most half of them.
const PLATFORMS_AT_ONCE: usize = 8;
/// As much as [`PLATFORMS_AT_ONCE`] have by default. Mailboxes need a part of it, however small `outgoing` is.
const LEAST_ROOM: usize = 256 << 20;

/// Why a gateway was not opened.
#[derive(Debug, Error)]
pub enum OpenGatewayError {
    /// The gateway's configuration is faulty.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The settings of HTTPS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The gateway cannot listen on its address.
    #[error(
        "the gateway cannot listen on {address}: {error}; free it, or choose another in the manifest"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// The name by which others are to reach the gateway is wrong.
    #[error(transparent)]
    Address(#[from] http::HttpAddressError),
    /// The gateway's agent has left.
    #[error("the agent {0} is not on the bus")]
    NoAgent(String),
}

/// A running gateway. It ends when this value is dropped.
pub struct Gateway {
    inner: Arc<Shared>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Gateway {
    /// Opens a gateway for the agent of `outbox`, which must be named [`gateway`](sealbus_bus::GATEWAY). The reader of
    /// that agent's mailbox must hand failure notices for agents of other platforms to [`notice`](Self::notice).
    ///
    /// # Errors
    /// [`OpenGatewayError`]; then nothing is open.
    pub async fn open(
        config: GatewayConfig,
        outbox: Arc<Outbox>,
    ) -> Result<Self, OpenGatewayError> {
        config.check()?;
        let bus = outbox.bus().clone();
        let agent = bus
            .agent(outbox.name())
            .ok_or_else(|| OpenGatewayError::NoAgent(outbox.name().to_string()))?;
        let tls = Tls::new(
            config.tls.as_ref(),
            config.trust.as_deref(),
            agent.credential(),
        )?;
        let (listener, bound) = listen(config.listen).await?;
        let address = config.address(bound)?;
        let platform = bus.config().platform.clone();
        let (mut object, mut iiop_listener) = (None, None);
        if let Some(iiop) = &config.iiop {
            let (listener, bound) = listen(iiop.listen).await?;
            let host = iiop.host.clone().unwrap_or_else(|| bound.ip().to_string());
            let port = iiop.port.unwrap_or(bound.port());
            object = Some(OwnObject::new(platform.as_str(), host, port));
            iiop_listener = Some(listener);
        }
        let own = Own::new(address, object);
        let known = config
            .platforms
            .iter()
            .map(|(name, platform)| Ok((name.to_ascii_lowercase(), platform.read(name)?)))
            .collect::<Result<_, ConfigError>>()?;
        let tasks: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let mut random = [0_u8; 16];
        // Boundaries need not be secret. The start time of the gateway also tells ids apart.
        let _ = aws_lc_rs::rand::fill(&mut random);
        let run = HEXLOWER.encode(&random);
        let inner = Arc::new(Shared {
            platform,
            known,
            own,
            policy: RwLock::new(Arc::new(config.policy())),
            book: Mutex::default(),
            seen: Mutex::new(Bounded::new(REMEMBERED)),
            peers: Mutex::default(),
            lines: Mutex::new(Lines::new(config.limits.waiting)),
            tls: tls.client.clone(),
            counts: Counts::default(),
            tasks: Arc::downgrade(&tasks),
            runtime: Handle::current(),
            writer: Mutex::new(Writer::new(run.clone())),
            run,
            next: AtomicU64::new(0),
            config,
            outbox,
        });
        let limits = inner.config.limits.clone();
        let places = Places::new(&limits);
        let server = Server::new(inner.clone(), limits, places.clone(), tls.server.clone());
        let mut running = tasks.lock();
        running.spawn(server.accept(listener));
        if let (Some(listener), Some(object)) = (iiop_listener, &inner.own.iiop) {
            let server = iiop::server::Server {
                shared: inner.clone(),
                places,
                key: object.key.clone(),
            };
            running.spawn(Arc::new(server).accept(listener));
        }
        if let Some(own) = tls.own {
            running.spawn(inner.clone().renew(own));
        }
        drop(running);
        let weak = Arc::downgrade(&inner);
        let reader = move |name: Arc<str>, mailbox: Mailbox| {
            if let Some(inner) = weak.upgrade() {
                inner.clone().spawn(inner.carry(name, mailbox));
            }
        };
        let limits = &inner.config.limits;
        let room = limits.outgoing.saturating_mul(PLATFORMS_AT_ONCE);
        let limits = StandInLimits {
            most: limits.foreign_agents,
            mailbox: MailboxLimits {
                bytes: STAND_IN_BYTES,
                ..MailboxLimits::default()
            },
            room: room.max(LEAST_ROOM),
        };
        if !bus.open_gateway(inner.outbox.name(), limits, Box::new(reader)) {
            return Err(OpenGatewayError::NoAgent(inner.outbox.name().to_string()));
        }
        Ok(Self { inner, tasks })
    }

    /// The addresses by which other platforms reach the gateway: that of HTTP first, then those of IIOP.
    pub fn addresses(&self) -> &[String] {
        &self.inner.own.all
    }

    /// The rules that are in force.
    pub fn policy(&self) -> Arc<GatewayPolicy> {
        self.inner.policy.read().clone()
    }

    /// Puts other rules in force, for messages that come from now on.
    ///
    /// # Errors
    /// If a rule makes no sense. The former rules then stay in force.
    pub fn set_policy(&self, policy: GatewayPolicy) -> Result<(), GatewayPolicyError> {
        policy.check()?;
        *self.inner.policy.write() = Arc::new(policy);
        Ok(())
    }

    /// The counters so far.
    pub fn counters(&self) -> GatewayCounters {
        self.inner.counts.snapshot()
    }

    /// Sends a failure notice from the gateway's mailbox to the agent of another platform whose message was not
    /// delivered. The bus had put the notice there. Returns false for any other message.
    pub async fn notice(&self, received: ReceivedMessage) -> bool {
        if !matches!(received.provenance(), sealbus_bus::Provenance::Platform) {
            return false;
        }
        let message = received.into_message();
        let Some(receiver) = message.receivers.first().map(|it| it.name.clone()) else {
            return false;
        };
        if !sealbus_bus::is_foreign(&receiver, &self.inner.platform) {
            return false;
        }
        let now = Instant::now();
        self.inner
            .send(message, &receiver.into(), true, None, None, now)
            .await;
        true
    }

    /// Ends the gateway once messages on their way were taken, or after `patience`.
    pub async fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while Instant::now() < until && self.inner.is_busy() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), OpenGatewayError> {
    let failed = |error| OpenGatewayError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

impl Shared {
    /// Shows the gateway's certificate whenever it is renewed.
    async fn renew(self: Arc<Self>, own: Arc<sealbus_seal::tls::CertificateSource>) {
        let mut shown = None;
        let mut pause = SHORTEST_RENEWAL_CHECK;
        loop {
            let agent = self.outbox.bus().agent(self.outbox.name());
            let credential = agent.and_then(|agent| agent.credential());
            if let Some(credential) = credential
                && shown
                    .as_ref()
                    .is_none_or(|shown| !Arc::ptr_eq(shown, &credential))
            {
                if let Err(error) = own.renew(&credential) {
                    tracing::error!(%error, "the gateway cannot show its new certificate");
                }
                if let Ok(certificate) = credential.certificate() {
                    let (begin, end) = (certificate.not_before(), certificate.not_after());
                    let seconds = end
                        .as_unix_seconds()
                        .saturating_sub(begin.as_unix_seconds());
                    // The certificate is renewed at half its life.
                    pause = Duration::from_secs(seconds / 20)
                        .clamp(SHORTEST_RENEWAL_CHECK, RENEWAL_CHECK);
                }
                shown = Some(credential);
            }
            tokio::time::sleep(pause).await;
        }
    }
}
