//! Sends the nodes their news at once: deny lists and changes of the directory. A node that misses some gets it with
//! its next heartbeat.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::desk::{DeskHandle, News};
use sealbus_control::Blob;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::node::NodeRequest;

/// How long a node may take to apply news.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends news as long as the desk is open.
pub(crate) async fn tell(master: Correspondent, desk: DeskHandle, mut news: watch::Receiver<News>) {
    let mut tellers: HashMap<String, JoinHandle<()>> = HashMap::new();
    loop {
        let alive = desk
            .run(|desk, _| {
                let nodes = desk.state.nodes().iter();
                let alive = nodes.filter(|(_, node)| node.state.is_there());
                Ok(alive.map(|(name, _)| name.clone()).collect::<Vec<_>>())
            })
            .await;
        let Ok(alive) = alive else { return };
        tellers.retain(|_, teller| !teller.is_finished());
        for node in alive {
            tellers.entry(node.clone()).or_insert_with(|| {
                tokio::spawn(tell_node(node, master.clone(), desk.clone(), news.clone()))
            });
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Sends news to one node until it cannot be reached. The node gets news again from its next sign of life on.
async fn tell_node(
    node: String,
    master: Correspondent,
    desk: DeskHandle,
    mut news: watch::Receiver<News>,
) {
    // The node's present knowledge is not known here, so the first notice has everything.
    let mut known = News {
        directory: 0,
        deny_list: 0,
    };
    loop {
        let present = news.borrow_and_update().clone();
        let (from, held) = (known.directory, known.deny_list);
        let newer = present.deny_list != held;
        let told = desk
            .run(move |desk, _| {
                let list = newer.then(|| Blob(desk.ca.deny_list_since(held)));
                Ok((desk.update(from), list))
            })
            .await;
        let Ok((update, list)) = told else { return };
        let to = update.to;
        let mut requests = Vec::new();
        requests.extend(list.map(|list| NodeRequest::DenyList { list }));
        if !update.changes.is_empty() {
            requests.push(NodeRequest::Directory { update });
        }
        for request in requests {
            if master.ask(&node, &request, PATIENCE).await.is_err() {
                return;
            }
        }
        known = News {
            directory: to,
            deny_list: present.deny_list,
        };
        if news.changed().await.is_err() {
            return;
        }
    }
}
