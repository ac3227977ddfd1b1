//! A platform on a cluster of three brokers.

use std::iter::once;
use std::time::Duration;

use sealbus_brokers::rabbitmq::{BrokerPorts, ManagedBroker};
use sealbus_seal::SecurityLevel;
use tempfile::TempDir;

use super::platform::{Platform, control, folder, kill, node_name, setup};
use super::{LOOPBACK, wait_for};

/// A further broker of a cluster.
pub struct Member {
    pub broker: ManagedBroker,
    pub folder: TempDir,
}

impl Platform {
    pub async fn start_cluster() -> Self {
        let mut platform = Self::start(SecurityLevel::Auth).await;
        for _ in 0..2 {
            let member = platform.join().await;
            platform.others.push(member);
        }
        platform
    }

    /// A broker of the cluster. The first one has the number 0.
    fn member(&mut self, index: usize) -> &mut ManagedBroker {
        match index.checked_sub(1) {
            None => self.broker.as_mut().unwrap(),
            Some(index) => &mut self.others[index].broker,
        }
    }

    pub fn kill_member(&mut self, index: usize) {
        assert!(kill(self.member(index)));
    }

    /// Starts a broker of the cluster again, and waits until every queue has a copy there.
    pub async fn revive(&mut self, index: usize) {
        let broker = self.member(index);
        wait_for("the broker to have died and be there again", async || {
            is_revived(broker).await
        })
        .await;
        self.complete().await;
    }

    /// Starts all brokers again after each was killed. None of them comes up alone, for each waits for the others.
    pub async fn revive_all(&mut self) {
        let Self { broker, others, .. } = self;
        let brokers = broker
            .iter_mut()
            .chain(others.iter_mut().map(|member| &mut member.broker));
        let reviving = brokers.map(|broker| async {
            wait_for("the brokers to be there again", async || {
                is_revived(broker).await
            })
            .await;
        });
        futures_util::future::join_all(reviving).await;
        self.complete().await;
    }

    /// Waits until every broker has a copy of every queue.
    async fn complete(&self) {
        let names: Vec<_> = once(self.ports)
            .chain(self.others.iter().map(|member| member.broker.ports()))
            .map(node_name)
            .collect();
        wait_for("all copies of all queues", async || {
            // Each look starts an Erlang node of its own.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let queues = self.control(&[
                "list_queues",
                "-p",
                self.authority.name.as_str(),
                "name",
                "online",
            ]);
            queues
                .lines()
                .filter(|line| line.starts_with("Agent-"))
                .all(|line| names.iter().all(|name| line.contains(name)))
        })
        .await;
    }

    async fn join(&self) -> Member {
        let folder = folder();
        // The brokers find each other through one port mapper, and know each other by one cookie.
        let cookie = folder.path().join(".erlang.cookie");
        std::fs::copy(self.folder.path().join(".erlang.cookie"), cookie).unwrap();
        let configure = |ports: &mut BrokerPorts| {
            ports.mapper = self.ports.mapper;
            setup(
                &self.authority,
                self.level,
                *ports,
                &self.operator,
                folder.path(),
            );
            Ok(())
        };
        let broker = ManagedBroker::start(folder.path(), LOOPBACK, configure)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let member = Member { broker, folder };
        let ports = member.broker.ports();
        let first = node_name(self.ports);
        let steps: [&[&str]; 3] = [&["stop_app"], &["join_cluster", &first], &["start_app"]];
        for step in steps {
            control(member.folder.path(), ports, step);
        }
        member
    }
}

/// Whether the broker had died and runs again. A RabbitMQ that starts while others of its cluster start may give up, for
/// they exchange their feature flags: it is started again, as a service's supervisor does.
async fn is_revived(broker: &mut ManagedBroker) -> bool {
    broker.keep_running().await.unwrap_or_else(|error| {
        eprintln!("{error}");
        false
    })
}
