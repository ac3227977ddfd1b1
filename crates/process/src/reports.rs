//! Reports of the process to the platform about its agents: in order, one after another, and each repeated until the
//! platform takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::again::again;
use sealbus_control::Fault;
use sealbus_control::attachment::{AgentReport, ask};
use sealbus_control::host::Host;

/// How long closing waits for the last reports to reach the platform.
const LAST_REPORTS: Duration = Duration::from_secs(2);
/// The longest pause before a report is offered again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The reports of one process.
pub(super) struct Reports {
    /// `None` once the process closes.
    queue: Mutex<Option<mpsc::UnboundedSender<Item>>>,
    reporter: Mutex<Option<JoinHandle<()>>>,
    /// The number of queued reports that an agent has left.
    departures: Arc<AtomicUsize>,
}

struct Item {
    /// `None` for a marker, which only waits for the reports before it.
    report: Option<(String, AgentReport)>,
    /// Told once the platform has taken the report or refused it.
    taken: Option<oneshot::Sender<()>>,
}

impl Reports {
    /// Starts reporting to `host`.
    pub(super) fn start(host: Arc<dyn Host>) -> Self {
        let (queue, items) = mpsc::unbounded_channel();
        let departures = Arc::new(AtomicUsize::new(0));
        let reporter = tokio::spawn(deliver(host, items, departures.clone()));
        Self {
            queue: Mutex::new(Some(queue)),
            reporter: Mutex::new(Some(reporter)),
            departures,
        }
    }

    /// Queues a report.
    pub(super) fn send(&self, agent: &str, report: AgentReport) {
        if has_left(&report) {
            self.departures.fetch_add(1, Ordering::Relaxed);
        }
        self.put(Item {
            report: Some((agent.to_owned(), report)),
            taken: None,
        });
    }

    /// Queues a report, and waits until the platform has taken it or refused it.
    pub(super) async fn tell(&self, agent: &str, report: AgentReport) {
        self.put_and_wait(Some((agent.to_owned(), report))).await;
    }

    /// Waits until the platform knows which agents have left. Otherwise it could take a report about such an agent for
    /// one about the next agent of its name.
    pub(super) async fn departures_told(&self) {
        if self.departures.load(Ordering::Relaxed) > 0 {
            self.put_and_wait(None).await;
        }
    }

    async fn put_and_wait(&self, report: Option<(String, AgentReport)>) {
        let (taken, told) = oneshot::channel();
        self.put(Item {
            report,
            taken: Some(taken),
        });
        // An error means that the process is closing, so nobody will be told.
        let _ = told.await;
    }

    fn put(&self, item: Item) {
        if let Some(queue) = &*self.queue.lock() {
            // This fails only if the reporter has ended, so nobody is left to be told.
            let _ = queue.send(item);
        }
    }

    /// Takes no more reports, and waits a while for the queued ones.
    pub(super) async fn close(&self) {
        // When its sender is dropped, the reporter ends after it has sent all reports.
        self.queue.lock().take();
        let reporter = self.reporter.lock().take();
        if let Some(reporter) = reporter
            && tokio::time::timeout(LAST_REPORTS, reporter).await.is_err()
        {
            tracing::warn!("the platform did not take the last reports of this process in time");
        }
    }
}

fn has_left(report: &AgentReport) -> bool {
    matches!(report, AgentReport::Ended | AgentReport::Failed { .. })
}

async fn deliver(
    host: Arc<dyn Host>,
    mut items: mpsc::UnboundedReceiver<Item>,
    departures: Arc<AtomicUsize>,
) {
    while let Some(Item { report, taken }) = items.recv().await {
        if let Some((agent, report)) = report {
            let has_left = has_left(&report);
            let ask = ask::Report {
                agent: agent.clone(),
                report,
            };
            let report = || host.ask(ask.clone());
            if let Err(error) = again(LONGEST_PAUSE, Fault::may_pass, report).await {
                tracing::warn!(agent, %error, "the platform did not take a report about this agent");
            }
            if has_left {
                departures.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if let Some(taken) = taken {
            // The waiting task may have given up.
            let _ = taken.send(());
        }
    }
}
