//! The suite's promises about persistent channels, tested on whole platforms: on one program, which is its own node,
//! and on a Master with two nodes, whose processes reach each other over the mesh.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{BoxFuture, Outbox};
use sealbus_channels::{Channels, LogRetention};
use sealbus_conformance::{KeepingSetting, KeepingWorld, TestedPromise};
use sealbus_master::embedded::EmbeddedPlatform;
use sealbus_process::{AgentHandle, Process};
use sealbus_seal::{PlatformName, SecurityLevel};
use support::keeping::{OfNodes, keeps};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// A program on a platform of its own.
struct InOneProgram;

struct Program {
    folder: TempDir,
    running: Mutex<Option<Running>>,
}

struct Running {
    _platform: EmbeddedPlatform,
    process: Process,
    agents: HashMap<String, AgentHandle>,
}

impl Program {
    /// Starts the program, once the one before has released the folder.
    async fn start(folder: &Path) -> Running {
        loop {
            let name = PlatformName::new("home").unwrap();
            let folder = Some(folder.to_owned());
            let platform = EmbeddedPlatform::start_in(name, folder).await.unwrap();
            let process = Process::open(platform.host(), Some(platform.bus()))
                .await
                .unwrap();
            let few = LogRetention {
                count: Some(10),
                ..LogRetention::default()
            };
            let channels = Channels::of(process.bus());
            let retained = channels.retain(&"/kept/few".parse().unwrap(), few).await;
            match retained {
                Ok(()) => {
                    return Running {
                        _platform: platform,
                        process,
                        agents: HashMap::new(),
                    };
                }
                Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
            }
            process.close().await;
            drop((process, platform));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl KeepingSetting for InOneProgram {
    fn name(&self) -> String {
        "in-process".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Box<dyn KeepingWorld>> {
        Box::pin(async {
            let folder = tempfile::tempdir().unwrap();
            let running = Mutex::new(Some(Program::start(folder.path()).await));
            let world: Box<dyn KeepingWorld> = Box::new(Program { folder, running });
            world
        })
    }
}

impl KeepingWorld for Program {
    fn agent<'a>(&'a self, _: usize, name: &'a str) -> BoxFuture<'a, Arc<Outbox>> {
        Box::pin(async move {
            let mut running = self.running.lock().await;
            let running = running.as_mut().unwrap();
            if !running.agents.contains_key(name) {
                let agent = running.process.agent(name).await.unwrap();
                running.agents.insert(name.to_owned(), agent);
            }
            running.agents[name].outbox().clone()
        })
    }

    fn restart(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut running = self.running.lock().await;
            if let Some(ended) = running.take() {
                drop(ended.agents);
                ended.process.close().await;
            }
            *running = Some(Program::start(self.folder.path()).await);
        })
    }
}

macro_rules! tests_of_logs {
    ($($module:ident $setting:expr),*) => { $(
        mod $module {
            use super::*;

            #[tokio::test]
            async fn replay() {
                keeps(&$setting, TestedPromise::Replay).await;
            }

            #[tokio::test]
            async fn last_per_key() {
                keeps(&$setting, TestedPromise::LastPerKey).await;
            }

            #[tokio::test]
            async fn durable() {
                keeps(&$setting, TestedPromise::Durable).await;
            }

            #[tokio::test]
            async fn acknowledged() {
                keeps(&$setting, TestedPromise::Acknowledged).await;
            }

            #[tokio::test]
            async fn retention() {
                keeps(&$setting, TestedPromise::Retention).await;
            }
        }
    )* };
}

tests_of_logs!(
    in_process InOneProgram,
    mesh_auth OfNodes::on_mesh(SecurityLevel::Auth),
    mesh_tls OfNodes::on_mesh(SecurityLevel::Tls),
    mesh_none OfNodes::on_mesh(SecurityLevel::None)
);
