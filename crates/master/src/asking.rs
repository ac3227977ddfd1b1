//! Carries the Master's requests to the nodes: each node's in order, repeated until the node answers or is dead.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::desk::{Desk, DeskHandle, Outward};
use super::directories::LifeChange;
use super::state::About;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::node::{NodeAnswer, NodeRequest};
use sealbus_control::{Fault, FaultCode, UnixMillis};

/// How long a node may take to answer before it is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a node may take to freeze a process.
const FREEZING: Duration = Duration::from_secs(60);
/// The pause before a node is asked again.
const PAUSE: Duration = Duration::from_millis(300);

/// Carries out the desk's effects until the desk is closed.
pub(crate) async fn carry_out(
    mut outward: mpsc::UnboundedReceiver<Outward>,
    master: Correspondent,
    desk: DeskHandle,
    life_changes: mpsc::UnboundedSender<LifeChange>,
) {
    let mut queues: HashMap<String, mpsc::UnboundedSender<(Box<NodeRequest>, About)>> =
        HashMap::new();
    while let Some(effect) = outward.recv().await {
        match effect {
            Outward::Ask {
                node,
                request,
                about,
            } => {
                let queue = queues.entry(node.clone()).or_insert_with(|| {
                    let (sender, queue) = mpsc::unbounded_channel();
                    tokio::spawn(ask_in_order(node, queue, master.clone(), desk.clone()));
                    sender
                });
                let _ = queue.send((request, about));
            }
            Outward::WhitePages { agent, state } => {
                let _ = life_changes.send(LifeChange::State { agent, state });
            }
            Outward::Settled { waiting, result } => {
                for waiting in waiting {
                    // An operator that no longer waits is not told.
                    let _ = waiting.send(result.clone());
                }
            }
            Outward::Followed(told) => {
                let _ = life_changes.send(LifeChange::Followed(told));
            }
        }
    }
}

async fn ask_in_order(
    node: String,
    mut queue: mpsc::UnboundedReceiver<(Box<NodeRequest>, About)>,
    master: Correspondent,
    desk: DeskHandle,
) {
    while let Some((request, about)) = queue.recv().await {
        let asking = ask(
            node.clone(),
            request,
            about.clone(),
            master.clone(),
            desk.clone(),
        );
        // Agents may take long to save their state. Later requests need not wait for that.
        if matches!(about, About::Freeze { .. }) {
            tokio::spawn(asking);
        } else {
            asking.await;
        }
    }
}

async fn ask(
    node: String,
    request: Box<NodeRequest>,
    about: About,
    master: Correspondent,
    desk: DeskHandle,
) {
    let mut request = *request;
    loop {
        let Some(result) = answer(&node, &request, &about, &master, &desk).await else {
            return;
        };
        let about = about.clone();
        let noting = desk.run(move |desk, now| Ok(note(desk, about, &request, result, now)));
        match noting.await {
            Ok(Some(next)) => request = next,
            Ok(None) => return,
            Err(fault) => {
                tracing::error!(%node, %fault, "the answer could not be noted");
                return;
            }
        }
    }
}

/// Notes the answer to a request. If the answer has several parts, returns the request for the rest.
fn note(
    desk: &mut Desk,
    about: About,
    request: &NodeRequest,
    result: Result<NodeAnswer, Fault>,
    now: UnixMillis,
) -> Option<NodeRequest> {
    match (about, result, request) {
        (
            About::Certified { node, process },
            Ok(NodeAnswer::Certificates(shown)),
            NodeRequest::Certificates { after, .. },
        ) => {
            let next = desk.take_back_process(&node, &process, shown, after.is_none(), now);
            // A node that repeats the same part is not asked for ever.
            let after = next.filter(|next| Some(next) > after.as_ref());
            after.map(|after| NodeRequest::Certificates {
                process,
                after: Some(after),
            })
        }
        (about, result, _) => {
            desk.state.answered(about, result, now);
            None
        }
    }
}

/// Asks a node until it answers. Returns none if the node is dead. The Master handles its processes when it finds it dead,
/// and when it comes back.
async fn answer(
    node: &str,
    request: &NodeRequest,
    about: &About,
    master: &Correspondent,
    desk: &DeskHandle,
) -> Option<Result<NodeAnswer, Fault>> {
    let patience = if matches!(about, About::Freeze { .. }) {
        FREEZING
    } else {
        PATIENCE
    };
    loop {
        let result = match admit(desk, node, request).await {
            Ok(()) => master.ask(node, request, patience).await,
            Err(fault) => Err(fault),
        };
        match result {
            Err(fault) if fault.code == FaultCode::Unavailable => {
                let name = node.to_owned();
                let dead = desk.run(move |desk, _| {
                    let node = desk.state.nodes().get(&name);
                    Ok(node.is_none_or(|node| node.state.is_gone()))
                });
                if dead.await.unwrap_or(true) {
                    return None;
                }
                tracing::debug!(%node, %fault, "is asked again");
                tokio::time::sleep(PAUSE).await;
            }
            result => return Some(result),
        }
    }
}

/// On a broker, allows agents to log in before they are started.
async fn admit(desk: &DeskHandle, node: &str, request: &NodeRequest) -> Result<(), Fault> {
    let (NodeRequest::Start { launch } | NodeRequest::Expect { launch, .. }) = request else {
        return Ok(());
    };
    let Some(broker) = desk.run(|desk, _| Ok(desk.broker.clone())).await? else {
        return Ok(());
    };
    broker.admit_to(desk, node, &launch.agents).await
}
