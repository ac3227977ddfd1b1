//! Processes that know of a subscription once it is listed.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{BoxFuture, ProcessEndpoint};
use sealbus_control::Fault;
use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest, ask};
use sealbus_control::host::{Command, Host, Membership};
use sealbus_node::Node;
use sealbus_process::attachment::Attachment;
use sealbus_process::{AgentHandle, Process};
use sealbus_seal::SecurityLevel;
use tokio::sync::mpsc;

use super::support::{Operator, joined, node_config, platform};
use super::without_master::uses_channels;

/// A process that obeys its node, and takes its time.
struct Slow(Attachment);

impl Host for Slow {
    fn membership(&self) -> &Membership {
        self.0.membership()
    }

    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        self.0.answer(request)
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        let mut told = self.0.commands()?;
        let (obeyed, commands) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(command) = told.recv().await {
                tokio::time::sleep(Duration::from_millis(300)).await;
                if obeyed.send(command).await.is_err() {
                    return;
                }
            }
        });
        Some(commands)
    }
}

async fn slow(operator: &Operator, agent: &str, node: &str) -> (Process, AgentHandle) {
    let ticket = operator.ticket(agent, Some(node)).await;
    let attachment = Attachment::join(&ticket).await.unwrap();
    let process = Process::open(Arc::new(Slow(attachment)), None)
        .await
        .unwrap();
    let handle = process.agent(agent).await.unwrap();
    uses_channels(&process).await;
    (process, handle)
}

fn of(process: &Process) -> ProcessEndpoint {
    process.contact().unwrap()
}

#[tokio::test]
async fn a_publisher_knows_who_is_listed_however_late_it_hears() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (first, _alice) = slow(&operator, "alice", "node-1").await;
    let (second, _bob) = joined(&operator, "bob", "node-2").await;
    uses_channels(&second).await;
    assert_eq!(first.bus().processes(), [of(&second)]);
}

/// The news of a node that fails are lost.
#[tokio::test]
async fn a_publisher_whose_node_failed_knows_who_was_listed_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let (first, _alice) = slow(&operator, "alice", "node-1").await;
    one.abandon().await;
    let (second, _bob) = joined(&operator, "bob", "node-2").await;
    let again = tokio::spawn(Node::start(node_config(directory.path(), "one", None)));
    uses_channels(&second).await;
    assert_eq!(first.bus().processes(), [of(&second)]);
    drop(again.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_process_that_never_says_what_it_heard_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let (_master, operator, _one, _two) = platform(directory.path(), SecurityLevel::Auth).await;
    let ticket = operator.ticket("mallory", Some("node-1")).await;
    let silent = Attachment::join(&ticket).await.unwrap();
    let address = ([127, 0, 0, 1], 9).into();
    silent.ask(ask::Announce { address }).await.unwrap();
    silent.ask(ask::UseChannels).await.unwrap();
    for name in ["alice", "bob"] {
        let (process, _agent) = joined(&operator, name, "node-2").await;
        uses_channels(&process).await;
    }
}
