//! The suite that all transports pass, on a real RabbitMQ, at each of its levels. `make test-rabbitmq` installs
//! RabbitMQ and runs it.
//!
//! A level is one test, since an Erlang node takes seconds of processor time to start. Each promise has a virtual host
//! of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::LOOPBACK;
use crate::support::platform::{Platform, SETTLING, management};
use crate::support::processes::{Connected, Ground, Processes, Way};
use crate::support::way::TcpWay;
use sealbus_brokers::rabbitmq::RabbitClient;
use sealbus_brokers::{Administration, BrokerConfig, BrokerPromise, Client};
use sealbus_bus::BoxFuture;
use sealbus_conformance::{Column, Setting, TestedPromise, Verdict, World};
use sealbus_seal::SecurityLevel;

struct RabbitMq {
    platform: Arc<Platform>,
    promise: BrokerPromise,
    opened: Arc<AtomicU32>,
}

impl Setting for RabbitMq {
    fn name(&self) -> String {
        let level = self.platform.level;
        match self.promise {
            BrokerPromise::Durable => format!("RabbitMQ, {level}"),
            BrokerPromise::Transient => format!("RabbitMQ, {level}, transient"),
        }
    }

    fn open(&self, processes: usize) -> BoxFuture<'_, Box<dyn World>> {
        Box::pin(async move {
            let number = self.opened.fetch_add(1, Ordering::Relaxed);
            let vhost = format!("promise-{number}");
            let platform = &self.platform;
            let (authority, ports) = (&platform.authority, platform.ports);
            let administration = management(authority, ports, &platform.operator, &vhost);
            let shared = (!platform.level.authenticates()).then_some(&platform.shared);
            administration.prepare(shared).await.unwrap();
            let ground = Arc::new(Ground {
                authority: authority.clone(),
                level: platform.level,
                promise: self.promise,
                administration: Arc::new(administration),
                shared: platform.shared.clone(),
                settling: SETTLING,
            });
            let connect = move |mut config: BrokerConfig| -> BoxFuture<'static, Connected> {
                let vhost = vhost.clone();
                Box::pin(async move {
                    let way = TcpWay::to(SocketAddr::new(LOOPBACK, ports.amqp)).await;
                    config.addresses = vec![way.address.to_string()];
                    let client = RabbitClient::new(&config).in_vhost(&vhost);
                    (
                        config,
                        Arc::new(client) as Arc<dyn Client>,
                        way as Arc<dyn Way>,
                    )
                })
            };
            let world: Box<dyn World> = Box::new(Processes::open(ground, processes, connect).await);
            world
        })
    }

    fn lacks(&self, promise: TestedPromise) -> Option<&'static str> {
        match promise {
            TestedPromise::PushBack | TestedPromise::PushBackAlone => {
                Some("messages that an agent does not read wait at the broker, on its disk")
            }
            TestedPromise::FramesPushBack => {
                Some("frames that a process does not take wait at the broker, on its disk")
            }
            TestedPromise::ForgedSender | TestedPromise::RevokedSender
                if !self.platform.level.authenticates() =>
            {
                Some("senders are not proved at this level")
            }
            _ => None,
        }
    }
}

/// The promises that depend on the kind of the queues. In memory, the whole suite is tried with both kinds.
const OF_QUEUES: [TestedPromise; 6] = [
    TestedPromise::Order,
    TestedPromise::Resume,
    TestedPromise::Crash,
    TestedPromise::Unread,
    TestedPromise::FramesResume,
    TestedPromise::EventsResume,
];

/// Tries all promises with durable queues, and `also` with transient ones.
async fn all_promises(level: SecurityLevel, also: &[TestedPromise]) {
    let platform = Arc::new(Platform::start(level).await);
    let opened = Arc::new(AtomicU32::new(0));
    let setting = |promise| RabbitMq {
        platform: platform.clone(),
        promise,
        opened: opened.clone(),
    };
    let columns = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/transports");
    let only = std::env::var("SEALBUS_PROMISE").ok();
    let mut broken = Vec::new();
    let durable = setting(BrokerPromise::Durable);
    let transient = setting(BrokerPromise::Transient);
    let of_durable = TestedPromise::ALL.iter().map(|promise| (&durable, promise));
    let of_transient = also.iter().map(|promise| (&transient, promise));
    for (setting, promise) in of_durable.chain(of_transient) {
        if only.as_ref().is_some_and(|only| only != promise.as_str()) {
            continue;
        }
        let start = std::time::Instant::now();
        match sealbus_conformance::run(setting, *promise).await {
            // The table shows the promises while the broker runs, which are the same.
            Ok(Verdict::Kept) if setting.promise == BrokerPromise::Transient => {}
            Ok(verdict) => {
                if let Err(stale) = Column::of(setting).check(&columns, *promise, &verdict) {
                    broken.push(stale.to_string());
                }
            }
            Err(failure) => broken.push(failure.to_string()),
        }
        let took = start.elapsed();
        println!(
            "{}, {promise}: {took:?} {:?}",
            setting.name(),
            broken.last()
        );
    }
    drop((durable, transient));
    if let Ok(platform) = Arc::try_unwrap(platform) {
        platform.stop().await;
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn auth() {
    all_promises(SecurityLevel::Auth, &OF_QUEUES).await;
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn tls() {
    all_promises(SecurityLevel::Tls, &[]).await;
}

#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn none() {
    all_promises(SecurityLevel::None, &[]).await;
}
