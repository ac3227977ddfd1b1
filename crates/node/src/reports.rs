//! The reports that wait for the Master, in order. While the Master is away they wait, and their number is bounded: the
//! node's own reports always find room, because there are few of them. Reports of processes are refused beyond a limit,
//! and the processes bring them again. Refused attempts leave room for the others, and are dropped and counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sealbus_control::node::MasterRequest;
use sealbus_control::{Fault, FaultCode};
use tokio::sync::mpsc;

/// Most reports of processes that wait.
const MOST: usize = 16_384;
/// With this many waiting, refused attempts are dropped.
const MOST_BEFORE_REFUSALS: usize = MOST / 2;

/// The waiting reports.
pub(crate) struct Reports {
    queue: mpsc::UnboundedSender<MasterRequest>,
    waiting: AtomicUsize,
    /// Reports of refused attempts that were dropped since the last one that was taken.
    dropped: AtomicU64,
}

impl Reports {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<MasterRequest>) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let reports = Self {
            queue,
            waiting: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        };
        (reports, waiting)
    }

    /// Takes a report of the node itself.
    pub(crate) fn put(&self, report: MasterRequest) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The receiver lives as long as the node.
        let _ = self.queue.send(report);
    }

    /// Takes a report that a process brings.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if too many wait: the process is to bring it again.
    pub(crate) fn put_of_process(&self, report: MasterRequest) -> Result<(), Fault> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if matches!(report, MasterRequest::Refusals { .. }) {
            if waiting >= MOST_BEFORE_REFUSALS {
                if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        waiting,
                        "the Master is away and many reports wait: refused attempts are not reported"
                    );
                }
                return Ok(());
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(dropped, "reports of refused attempts were dropped");
            }
        } else if waiting >= MOST {
            let message = format!("the Master is away, and {waiting} reports wait for it");
            return Err(Fault::new(FaultCode::Unavailable, message));
        }
        self.put(report);
        Ok(())
    }

    /// The Master has taken, or refused, the first report.
    pub(crate) fn is_told(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sealbus_control::attachment::AgentReport;

    use super::*;

    #[test]
    fn reports_that_wait_for_the_master_are_bounded() {
        let (reports, mut waiting) = Reports::new();
        let ended = || MasterRequest::Reported {
            process: "1".to_owned(),
            agent: "a".to_owned(),
            report: AgentReport::Ended,
        };
        let refusals = || MasterRequest::Refusals {
            records: Vec::new(),
        };
        let mut taken = 0;
        while reports.put_of_process(ended()).is_ok() {
            taken += 1;
            // Refused attempts never take the room of other reports.
            reports.put_of_process(refusals()).unwrap();
        }
        let mut all = Vec::new();
        while let Ok(report) = waiting.try_recv() {
            all.push(report);
        }
        assert_eq!(all.len(), MOST);
        assert!(taken > MOST / 2);
        // The queue always takes the node's own reports.
        reports.put(MasterRequest::Leaving);
        assert!(waiting.try_recv().is_ok());
        let fault = reports.put_of_process(ended()).unwrap_err();
        assert_eq!(fault.code, FaultCode::Unavailable);
        for _ in all {
            reports.is_told();
        }
        reports.is_told();
        reports.put_of_process(refusals()).unwrap();
        reports.put_of_process(ended()).unwrap();
    }
}
