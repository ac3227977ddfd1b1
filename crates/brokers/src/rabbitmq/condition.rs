//! The condition of the brokers of a cluster: whether they run, and whether they take messages.

use hyper::Method;
use serde::Deserialize;
use serde_json::Value;

use super::management::{Management, ManagementError, read};
use super::names::{self, escape};
use crate::administration::{Member, WaitingCounts};
use crate::envelope::{Queue, Receiver};

/// A broker of the cluster, in its own words.
#[derive(Deserialize)]
struct Node {
    name: String,
    #[serde(default)]
    running: bool,
    #[serde(default)]
    mem_alarm: bool,
    #[serde(default)]
    disk_free_alarm: bool,
}

impl Management {
    /// The brokers of the cluster, by name.
    pub(super) async fn nodes(&self) -> Result<Vec<Member>, ManagementError> {
        let what = "say how the brokers are";
        let path = "nodes?columns=name,running,mem_alarm,disk_free_alarm";
        let (status, answer) = self.ask(what, Method::GET, path, None).await?;
        let nodes: Vec<Node> = read(what, status, &answer)?;
        let member = |node: Node| Member {
            name: node.name,
            running: node.running,
            memory_alarm: node.mem_alarm,
            disk_alarm: node.disk_free_alarm,
        };
        let mut members: Vec<_> = nodes.into_iter().map(member).collect();
        members.sort();
        Ok(members)
    }

    /// Counts the messages in the queues. The broker updates its counts every few seconds.
    pub(super) async fn queue_depths(&self) -> Result<WaitingCounts, ManagementError> {
        let what = "say what waits";
        let path = format!("queues/{}?columns=name,messages", escape(&self.vhost));
        let (status, answer) = self.ask(what, Method::GET, &path, None).await?;
        let queues: Vec<Value> = read(what, status, &answer)?;
        let mut waiting = WaitingCounts::default();
        for queue in &queues {
            let name = queue["name"].as_str().unwrap_or_default();
            let messages = queue["messages"].as_u64().unwrap_or_default();
            if name == names::DEAD_LETTERS {
                waiting.dead_letters = messages;
            } else if let Some(Queue {
                owner: Receiver::Agent(agent),
                ..
            }) = names::queue_of_name(name)
                && messages > 0
            {
                waiting.agents.push((agent.to_string(), messages));
            }
        }
        waiting.agents.sort();
        Ok(waiting)
    }
}
