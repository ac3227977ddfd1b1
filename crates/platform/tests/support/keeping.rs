//! A Master and two nodes that keep events, for the suite's promises about persistent channels.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use sealbus_brokers::BrokerPromise;
use sealbus_brokers::rabbitmq::{BrokerChoice, BrokerPorts, ManagedBroker, RabbitSettings};
use sealbus_bus::{BoxFuture, Bus, BusConfig, Outbox};
use sealbus_conformance::{Column, KeepingSetting, KeepingWorld, TestedPromise, run_kept};
use sealbus_control::Rules;
use sealbus_manifest::Manifest;
use sealbus_master::Master;
use sealbus_node::Node;
use sealbus_process::{AgentHandle, Process};
use sealbus_seal::{PlatformName, SecurityLevel};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::{HERE, LONG, Operator, alive, config, joined_on, node_config, platform_of};

/// A Master and two nodes.
pub(crate) struct OfNodes {
    level: SecurityLevel,
    /// Whether they have a RabbitMQ of their own. Otherwise they use the mesh.
    on_rabbitmq: bool,
}

impl OfNodes {
    pub(crate) fn on_mesh(level: SecurityLevel) -> Self {
        Self {
            level,
            on_rabbitmq: false,
        }
    }

    pub(crate) fn on_rabbitmq(level: SecurityLevel) -> Self {
        Self {
            level,
            on_rabbitmq: true,
        }
    }
}

/// The fields are dropped from top to bottom: the Master would restart a broker that ended first.
struct Nodes {
    agents: Mutex<HashMap<String, (Process, AgentHandle)>>,
    nodes: Mutex<Vec<Node>>,
    operator: Operator,
    _master: Master,
    _broker: Option<OwnBroker>,
    directory: TempDir,
}

/// A Master's own broker, in the Master's folder. It ends when this is dropped, even when the test fails.
struct OwnBroker(PathBuf);

impl Drop for OwnBroker {
    fn drop(&mut self) {
        let folder = self.0.clone();
        // The test's runtime is busy, so another thread ends the broker.
        let ending = std::thread::spawn(move || {
            let ports = BrokerPorts::kept(&folder).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(ManagedBroker::found(&folder, HERE, ports).stop());
        });
        assert!(ending.join().is_ok() || std::thread::panicking());
    }
}

impl KeepingSetting for OfNodes {
    fn name(&self) -> String {
        let transport = if self.on_rabbitmq { "RabbitMQ" } else { "mesh" };
        format!("{transport}, {}", self.level)
    }

    fn open(&self) -> BoxFuture<'_, Box<dyn KeepingWorld>> {
        Box::pin(async {
            let directory = tempfile::tempdir().unwrap();
            let mut config = config(directory.path(), self.level);
            let text = r#"
                [platform]
                name = "factory"
                [[channel]]
                path = "/kept/few"
                persistent = true
                retention = { count = 10 }
            "#;
            let manifest = Manifest::parse("platform.toml", text, directory.path()).unwrap();
            config.settings.rules = Rules {
                permission: manifest.permission,
                channels: manifest.channels,
                evidence: manifest.evidence,
                tap: manifest.tap,
                ..Rules::default()
            };
            let broker = self.on_rabbitmq.then(|| {
                config.settings.broker = Some(Arc::new(RabbitSettings {
                    broker: BrokerChoice::Managed,
                    promise: BrokerPromise::Durable,
                    message_life: None,
                }));
                OwnBroker(config.directory.join("broker"))
            });
            let (master, operator, one, two) = platform_of(config, directory.path()).await;
            let world: Box<dyn KeepingWorld> = Box::new(Nodes {
                agents: Mutex::default(),
                nodes: Mutex::new(vec![one, two]),
                operator,
                _master: master,
                _broker: broker,
                directory,
            });
            world
        })
    }
}

impl KeepingWorld for Nodes {
    fn agent<'a>(&'a self, process: usize, name: &'a str) -> BoxFuture<'a, Arc<Outbox>> {
        Box::pin(async move {
            let mut agents = self.agents.lock().await;
            if !agents.contains_key(name) {
                let node = ["node-1", "node-2"][process];
                // Another process may take longer than usual to say what its agents subscribe to.
                let mut config = BusConfig::new(PlatformName::new("factory").unwrap());
                config.hold_time = LONG;
                let bus = Bus::new(config, Handle::current());
                let agent = joined_on(&self.operator, name, node, Some(bus)).await;
                agents.insert(name.to_owned(), agent);
            }
            agents[name].1.outbox().clone()
        })
    }

    /// The processes go on, and their nodes take them over.
    fn restart(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut nodes = self.nodes.lock().await;
            for node in nodes.drain(..) {
                node.abandon().await;
            }
            for name in ["one", "two"] {
                let config = node_config(self.directory.path(), name, None);
                nodes.push(Node::start(config).await.unwrap());
            }
            alive(&self.operator, 2).await;
        })
    }
}

/// Tries a promise, and compares the outcome with the table's column.
pub(crate) async fn keeps(setting: &dyn KeepingSetting, promise: TestedPromise) {
    match run_kept(setting, promise).await {
        Ok(verdict) => {
            let columns = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/transports");
            let column = Column::of_keeping(setting);
            if let Err(stale) = column.check(columns.as_ref(), promise, &verdict) {
                panic!("{stale}");
            }
        }
        Err(failure) => panic!("{failure}"),
    }
}
