//! How the brokers of a cluster are: whether they run, and whether they take messages.

use hyper::Method;
use serde::Deserialize;
use serde_json::Value;

use super::management::{Management, ManagementError, read};
use super::names::{self, escape};

/// A broker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Member {
    /// Its name, `rabbit@host`.
    pub name: String,
    /// Whether it runs.
    #[serde(default)]
    pub running: bool,
    /// It is short of memory: the whole cluster takes no messages.
    #[serde(default, rename = "mem_alarm")]
    pub memory_alarm: bool,
    /// It is short of disk: the whole cluster takes no messages.
    #[serde(default, rename = "disk_free_alarm")]
    pub disk_alarm: bool,
}

/// What waits at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Messages in the queues of agents, by the agents' whole names; those without are left out.
    pub agents: Vec<(String, u64)>,
    /// Dead letters kept.
    pub dead_letters: u64,
}

impl Management {
    /// The brokers of the cluster, by name.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn members(&self) -> Result<Vec<Member>, ManagementError> {
        let what = "say how the brokers are";
        let path = "nodes?columns=name,running,mem_alarm,disk_free_alarm";
        let (status, answer) = self.ask(what, Method::GET, path, None).await?;
        let mut members: Vec<Member> = read(what, status, &answer)?;
        members.sort();
        Ok(members)
    }

    /// What waits at the broker. It counts every few seconds.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn waiting(&self) -> Result<Waiting, ManagementError> {
        let what = "say what waits";
        let path = format!("queues/{}?columns=name,messages", escape(&self.vhost));
        let (status, answer) = self.ask(what, Method::GET, &path, None).await?;
        let queues: Vec<Value> = read(what, status, &answer)?;
        let mut waiting = Waiting::default();
        for queue in &queues {
            let name = queue["name"].as_str().unwrap_or_default();
            let messages = queue["messages"].as_u64().unwrap_or_default();
            if name == names::DEAD_LETTERS {
                waiting.dead_letters = messages;
            } else if let Some(agent) = names::agent_of_queue(name)
                && messages > 0
            {
                waiting.agents.push((agent.to_owned(), messages));
            }
        }
        waiting.agents.sort();
        Ok(waiting)
    }
}
