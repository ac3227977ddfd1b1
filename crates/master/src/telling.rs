//! Sends the nodes their news at once: deny lists, and the changes of the directory that concern them. A node that misses
//! news gets it with its next heartbeat.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::desk::{DeskHandle, News};
use sealbus_control::Blob;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::directory::Concerned;
use sealbus_control::node::{DirectoryHeard, NodeAnswer, NodeRequest};

/// How long a node may take to apply news.
const PATIENCE: Duration = Duration::from_secs(5);

/// The task that sends news to a node, and the way to wake it. It ends when nobody can wake it any more.
struct Teller {
    wake: watch::Sender<()>,
    task: JoinHandle<()>,
}

/// Sends news as long as the desk is open.
pub(crate) async fn tell(master: Correspondent, desk: DeskHandle, mut news: watch::Receiver<News>) {
    let mut tellers: HashMap<String, Teller> = HashMap::new();
    let mut denied = None;
    loop {
        let deny_list = news.borrow_and_update().deny_list;
        let is_denied = denied.replace(deny_list) != Some(deny_list);
        let concerned = desk
            .run(move |desk, _| {
                let concerned = desk.state.directory_mut().concerned();
                let nodes = desk.state.nodes().iter();
                let alive = nodes.filter(|(_, node)| node.state.is_there());
                Ok(match concerned {
                    Concerned::Nodes(nodes) if !is_denied => nodes.into_iter().collect(),
                    _ => alive.map(|(name, _)| name.clone()).collect::<Vec<_>>(),
                })
            })
            .await;
        let Ok(concerned) = concerned else { return };
        tellers.retain(|_, teller| !teller.task.is_finished());
        for node in concerned {
            let teller = tellers.entry(node.clone()).or_insert_with(|| {
                let (wake, woken) = watch::channel(());
                let telling = tell_node(node, master.clone(), desk.clone(), news.clone(), woken);
                let task = tokio::spawn(telling);
                Teller { wake, task }
            });
            teller.wake.send_replace(());
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
    news: watch::Receiver<News>,
    mut woken: watch::Receiver<()>,
) {
    // The node's present list is not known here, so the first notice contains the whole list.
    let mut held = 0;
    while woken.changed().await.is_ok() {
        let present = news.borrow().deny_list;
        let newer = present != held;
        let name = node.clone();
        let told = desk
            .run(move |desk, _| {
                let list = newer.then(|| Blob(desk.ca.deny_list_since(held)));
                Ok((desk.state.directory_mut().news_for(&name), list))
            })
            .await;
        let Ok((update, list)) = told else { return };
        let mut requests = Vec::new();
        requests.extend(list.map(|list| NodeRequest::DenyList { list }));
        requests.extend(update.map(|update| NodeRequest::Directory { update }));
        for request in requests {
            let Ok(answer) = master.ask(&node, &request, PATIENCE).await else {
                return;
            };
            if let NodeRequest::Directory { update } = request
                && update.tells_of_processes()
                && let NodeAnswer::Heard(DirectoryHeard { heard }) = answer
            {
                let name = node.clone();
                let noted = desk.run(move |desk, _| {
                    desk.state.directory_mut().heard(&name, heard);
                    Ok(())
                });
                if noted.await.is_err() {
                    return;
                }
            }
        }
        held = present;
    }
}
