//! The processes of a walk, and the subscriptions of their agents.

use sealbus_channels::{EventSealer, Subscription};
use tokio::task::JoinHandle;

use super::super::*;

pub(super) struct Program {
    pub(super) process: Process,
    pub(super) host: Arc<TestHost>,
    pub(super) has_lost: bool,
    /// Whether one of its agents was revoked, so that it takes no others.
    pub(super) is_ending: bool,
}

pub(super) async fn program(world: &Arc<World>, agents: &[String]) -> Program {
    let names: Vec<&str> = agents.iter().map(String::as_str).collect();
    let (host, tell) = TestHost::new(world, &names, HOUR, Vec::new());
    // The channel for commands lives as long as the test.
    std::mem::forget(tell);
    Program {
        process: Process::open(host.clone(), None).await.unwrap(),
        host,
        has_lost: false,
        is_ending: false,
    }
}

impl Program {
    /// Renews all certificates. The first one has come when this returns.
    pub(super) async fn renew(&self) {
        if self.is_ending {
            return;
        }
        let shared = &self.process.shared;
        let before = self.host.certified.load(Ordering::SeqCst);
        if shared.renew_at_once(|_| true) == 0 {
            return;
        }
        shared.renewals_changed.notify_one();
        until("renewed certificates", || {
            self.host.certified.load(Ordering::SeqCst) > before
        })
        .await;
    }
}

/// The numbers that a reader heard, each with the content of the outer message, and whether it was marked.
pub(super) type Heard = Arc<Mutex<Vec<(u64, Vec<u8>, bool)>>>;

/// A subscription of an agent, from its beginning to its end.
pub(super) struct Seat {
    pub(super) agent: String,
    pub(super) program: usize,
    pub(super) is_worker: bool,
    pub(super) handle: Option<AgentHandle>,
    pub(super) sealer: Arc<dyn EventSealer>,
    pub(super) heard: Heard,
    pub(super) reading: JoinHandle<()>,
    /// The first number that it must get, the first that it no longer must get, and the first that it cannot open.
    pub(super) from: u64,
    pub(super) until: Option<u64>,
    pub(super) gone: Option<u64>,
}

impl Seat {
    pub(super) fn name(&self) -> String {
        format!("{}@factory", self.agent)
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.heard.lock().iter().map(|it| it.0).collect()
    }
}

pub(super) fn read_all(mut subscription: Subscription) -> (Heard, JoinHandle<()>) {
    let heard = Heard::default();
    let notes = heard.clone();
    let reading = tokio::spawn(async move {
        while let Some(event) = subscription.recv().await {
            let number = event.message.message().content_text().unwrap();
            let number = number.parse().unwrap();
            let outer = event.message.seen().to_owned();
            assert!(event.message.is_sealed());
            let content = outer.content_bytes().unwrap().to_vec();
            let note = (number, content, event.header.may_be_again);
            notes.lock().push(note);
        }
    });
    (heard, reading)
}
