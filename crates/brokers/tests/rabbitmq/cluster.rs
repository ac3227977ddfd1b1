//! The transport on a cluster of three RabbitMQ brokers. Run by `make test-rabbitmq`.

use std::time::Duration;

use crate::support::platform::Platform;
use crate::support::{Agent, PATIENCE};
use sealbus_bus::Transport;

/// The number of messages before the death of a broker, and after it.
const MANY: u32 = 100;

/// One cluster serves the whole test: three Erlang nodes take half a minute of processor time to start.
#[tokio::test]
#[ignore = "needs rabbitmq-server: make test-rabbitmq"]
async fn nothing_is_lost_when_brokers_die() {
    let mut platform = Platform::start_cluster().await;
    // However long brokers take to start: no message is given up, and none is handed out before an earlier one.
    let mut config = platform.config();
    config.give_up = Duration::from_secs(900);
    config.reorder_time = config.give_up;
    let a = platform.agent_with("a", config.clone()).await;
    let mut b = platform.agent_with("b", config).await;
    let mut traffic = Traffic::default();
    for victim in 0..3 {
        traffic.send(&a, MANY).await;
        platform.kill_member(victim);
        traffic.send(&a, MANY).await;
        traffic.receive(&mut b).await;
        platform.revive(victim).await;
    }
    // The receiver has taken some messages, and others wait, when there is no broker at all for a while.
    traffic.send(&a, MANY).await;
    for victim in 0..3 {
        platform.kill_member(victim);
    }
    traffic.send(&a, MANY).await;
    platform.revive_all().await;
    traffic.send(&a, MANY).await;
    traffic.receive(&mut b).await;
    a.endpoint.shut_down(PATIENCE).await;
    assert!(b.mailbox.try_recv().is_none());
    b.endpoint.shut_down(PATIENCE).await;
    platform.stop().await;
}

/// Numbered messages. Each must arrive once, and in order.
#[derive(Default)]
struct Traffic {
    sent: u32,
    received: u32,
}

impl Traffic {
    async fn send(&mut self, from: &Agent, count: u32) {
        for _ in 0..count {
            from.send("b@factory", &self.sent.to_string()).await;
            self.sent += 1;
            // The messages are under way while a broker dies, not all in one packet before.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn receive(&mut self, at: &mut Agent) {
        while self.received < self.sent {
            assert_eq!(at.receive_text().await, self.received.to_string());
            self.received += 1;
        }
    }
}
