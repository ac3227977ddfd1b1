//! The post of an embedded platform, whose one process is its own node.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sealbus_channels::ChannelPath;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::AbortHandle;

use sealbus_journal::Retention;
use sealbus_seal::PlatformName;

use super::{KeptLetters, Ways, Whereabouts, run};
use crate::channel_log::KeptChannelLogs;
use crate::node_journal::NodeJournal;
use sealbus_control::Rules;
use sealbus_control::channel_log::{LogAnswer, LogRequest};
use sealbus_control::host::Command;
use sealbus_control::post::{DeliveredLetter, LetterMark, LetterOutcome, PostedLetter, Trail};
use sealbus_control::{Fault, FaultCode};

/// The name of the process as a node.
const NODE: &str = "program";

/// The place where an embedded platform keeps messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostPlace {
    /// In this folder, which later runs of the program can also use.
    Folder(PathBuf),
    /// In a temporary folder of the system, which is made when first needed and removed at the end.
    Temporary,
}

/// Keeps messages for agents of this process that are away or not there yet.
pub struct OwnPost {
    place: PostPlace,
    platform: PlatformName,
    max_message: u64,
    ways: Arc<OwnWays>,
    open: OnceCell<Open>,
}

struct Open {
    post: Arc<KeptLetters>,
    logs: Arc<KeptChannelLogs>,
    tasks: [AbortHandle; 2],
    temporary: Option<PathBuf>,
}

impl Drop for Open {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Some(folder) = &self.temporary {
            remove(folder);
        }
    }
}

/// Removes a temporary folder, even while the journal finishes a file in it.
fn remove(folder: &Path) {
    let mut result = Ok(());
    for _ in 0..10 {
        result = std::fs::remove_dir_all(folder);
        if result.is_ok() || !folder.exists() {
            return;
        }
    }
    if let Err(error) = result {
        tracing::debug!(folder = %folder.display(), %error, "a temporary folder stays");
    }
}

struct OwnWays {
    commands: mpsc::Sender<Command>,
    active: Mutex<HashSet<String>>,
}

impl Ways for OwnWays {
    fn whereabouts(&self, agent: &str) -> Whereabouts {
        if self.active.lock().contains(agent) {
            Whereabouts::Here(NODE.to_owned(), 0)
        } else {
            Whereabouts::Away
        }
    }

    fn deliver<'a>(
        &'a self,
        agent: &'a str,
        letters: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let agent = agent.to_owned();
        async move {
            let command = Command::Letters { agent, letters };
            let gone = |_| Fault::new(FaultCode::Unavailable, "the program is ending");
            self.commands.send(command).await.map_err(gone)
        }
        .boxed()
    }

    fn forward<'a>(
        &'a self,
        node: &'a str,
        _letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>> {
        std::future::ready(Err(no_node(node))).boxed()
    }

    fn trail<'a>(
        &'a self,
        node: &'a str,
        _receiver: &'a str,
        _letters: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>> {
        std::future::ready(Err(no_node(node))).boxed()
    }
}

fn no_node(node: &str) -> Fault {
    Fault::new(FaultCode::Unknown, format!("there is no node {node}"))
}

impl OwnPost {
    /// Keeps messages for absent agents in `place`, and hands them over through `commands`.
    pub fn new(
        place: PostPlace,
        platform: PlatformName,
        max_message: u64,
        commands: mpsc::Sender<Command>,
    ) -> Self {
        Self {
            place,
            platform,
            max_message,
            ways: Arc::new(OwnWays {
                commands,
                active: Mutex::default(),
            }),
            open: OnceCell::new(),
        }
    }

    /// Removes the messages that were kept for this run only. The caller waits for this, because a program may end
    /// before its last task is dropped.
    pub async fn close(&self) {
        let Some(open) = self.open.get() else { return };
        let Some(folder) = open.temporary.clone() else {
            return;
        };
        for task in &open.tasks {
            task.abort();
        }
        // An error means that the runtime is ending, so there is nothing left to wait for.
        let _ = tokio::task::spawn_blocking(move || remove(&folder)).await;
    }

    /// The post, which is opened at the first call.
    async fn opened(&self) -> Result<&Open, Fault> {
        let open = || async {
            let (folder, temporary) = match &self.place {
                PostPlace::Folder(folder) => (folder.join("journal"), None),
                PostPlace::Temporary => {
                    let name = format!("sealbus-{:x}", super::new_origin());
                    let folder = std::env::temp_dir().join(name);
                    (folder.clone(), Some(folder))
                }
            };
            let (platform, max_message) = (self.platform.clone(), self.max_message);
            let opening = move || NodeJournal::open(&folder, NODE, &platform, max_message);
            let opened = tokio::task::spawn_blocking(opening)
                .await
                .map_err(Fault::internal)?
                .map_err(super::storage)?;
            let (post, logs) = (Arc::new(opened.post), Arc::new(opened.logs));
            logs.obey(&Rules::default());
            let carrying = tokio::spawn(run(post.clone(), self.ways.clone()));
            let tidying = tokio::spawn(logs.clone().tidy());
            Ok::<_, Fault>(Open {
                post,
                logs,
                tasks: [carrying.abort_handle(), tidying.abort_handle()],
                temporary,
            })
        };
        self.open.get_or_try_init(open).await
    }

    /// Answers a request of this program to its logs of channels.
    pub async fn channel_log(&self, request: LogRequest) -> Result<LogAnswer, Fault> {
        self.opened().await?.logs.answer(NODE, request).await
    }

    /// Sets the retention of a channel.
    pub async fn retain(&self, channel: &ChannelPath, retention: Retention) -> Result<(), Fault> {
        self.opened().await?.logs.retain(channel, retention)
    }

    /// Keeps letters from this program's agents.
    pub async fn post(&self, letters: Vec<PostedLetter>) -> Result<Vec<Option<Fault>>, Fault> {
        Ok(self.opened().await?.post.keep(letters).await)
    }

    /// Notes the outcomes of letters.
    pub async fn settle(
        &self,
        agent: &str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> Result<(), Fault> {
        let post = &self.opened().await?.post;
        post.settle(NODE, agent, outcomes).await
    }

    /// Notes whether an agent of this program is there. Letters for it from an earlier run of the program are then
    /// delivered.
    pub async fn is_active(&self, agent: &str, is_active: bool) -> Result<(), Fault> {
        {
            let mut active = self.ways.active.lock();
            if is_active {
                active.insert(agent.to_owned());
            } else {
                active.remove(agent);
            }
        }
        if is_active && matches!(self.place, PostPlace::Folder(_)) {
            self.opened().await?;
        }
        if let Some(open) = self.open.get() {
            open.post.wake(agent);
        }
        Ok(())
    }
}
