//! The reports that wait for the Master, in order. They wait while the Master is away, and their number and their bytes
//! are limited. The node's own reports always find room, because they are few. Reports of processes beyond a limit are
//! refused, and the processes bring them again. Reports of refused attempts leave room for the others, and beyond it
//! are dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sealbus_control::attachment::AgentReport;
use sealbus_control::node::{MOST_REPORTS, MasterRequest};
use sealbus_control::{Fault, FaultCode, RefusalRecord};
use tokio::sync::mpsc;

/// The most reports of processes that wait, and their bytes.
const MOST: Load = Load {
    reports: 16_384,
    bytes: 64 << 20,
};
/// If this much is waiting, reports of refused attempts are dropped.
const MOST_BEFORE_REFUSALS: Load = Load {
    reports: MOST.reports / 2,
    bytes: MOST.bytes / 2,
};

/// If reports have more bytes than this, the rest waits for the next request to the Master.
const TOGETHER: usize = 1 << 20;

/// How much waits.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    reports: usize,
    bytes: usize,
}

impl Load {
    fn reaches(self, most: Self) -> bool {
        self.reports >= most.reports || self.bytes >= most.bytes
    }
}

/// The waiting reports.
pub(crate) struct Reports {
    queue: mpsc::UnboundedSender<MasterRequest>,
    waiting: Mutex<Load>,
    /// The number of reports of refused attempts that were dropped since one was last accepted.
    dropped: AtomicU64,
}

impl Reports {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<MasterRequest>) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let reports = Self {
            queue,
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
        };
        (reports, waiting)
    }

    /// Takes a report of the node itself.
    pub(crate) fn put(&self, report: MasterRequest) {
        {
            let mut waiting = self.waiting.lock();
            waiting.reports += 1;
            waiting.bytes += size(&report);
        }
        // The receiver lives as long as the node.
        let _ = self.queue.send(report);
    }

    /// Takes a report that a process brings.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if too many are waiting: the process must bring it again.
    pub(crate) fn put_of_process(&self, report: MasterRequest) -> Result<(), Fault> {
        let waiting = *self.waiting.lock();
        if matches!(report, MasterRequest::Refusals { .. }) {
            if waiting.reaches(MOST_BEFORE_REFUSALS) {
                if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        waiting = waiting.reports,
                        "the Master is away and many reports wait: refused attempts are not reported"
                    );
                }
                return Ok(());
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(dropped, "reports of refused attempts were dropped");
            }
        } else if waiting.reaches(MOST) {
            let waiting = waiting.reports;
            let message = format!("the Master is away, and {waiting} reports wait for it");
            return Err(Fault::new(FaultCode::Unavailable, message));
        }
        self.put(report);
        Ok(())
    }

    /// Notes that the Master has accepted or refused the first report.
    pub(crate) fn is_told(&self, report: &MasterRequest) {
        let mut waiting = self.waiting.lock();
        waiting.reports = waiting.reports.saturating_sub(1);
        waiting.bytes = waiting.bytes.saturating_sub(size(report));
    }
}

/// Waits for a report, and takes it together with the waiting ones that the Master accepts in the same request.
pub(crate) async fn next_reports(
    queue: &mut mpsc::UnboundedReceiver<MasterRequest>,
) -> Option<Vec<MasterRequest>> {
    let first = queue.recv().await?;
    let mut bytes = size(&first);
    let mut reports = vec![first];
    while reports.len() < MOST_REPORTS
        && bytes < TOGETHER
        && let Ok(next) = queue.try_recv()
    {
        bytes += size(&next);
        reports.push(next);
    }
    Some(reports)
}

/// The bytes of a report that a process can influence.
fn size(report: &MasterRequest) -> usize {
    let texts = match report {
        MasterRequest::Refusals { records } => records.iter().map(record_size).sum(),
        MasterRequest::KeyPublished { agent, key, .. } => agent.len() + key.0.len(),
        MasterRequest::Reported { agent, report, .. } => {
            agent.len()
                + match report {
                    AgentReport::Failed { error } => error.len(),
                    AgentReport::State { .. } | AgentReport::Ended => 0,
                }
        }
        _ => 0,
    };
    size_of::<MasterRequest>() + texts
}

fn record_size(record: &RefusalRecord) -> usize {
    let names = [&record.proved, &record.receiver, &record.by];
    let names = names.into_iter().flatten().map(String::len);
    size_of::<RefusalRecord>() + record.who.len() + record.reason.len() + names.sum::<usize>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
            // Reports of refused attempts never take the room of others.
            reports.put_of_process(refusals()).unwrap();
        }
        let mut all = Vec::new();
        while let Ok(report) = waiting.try_recv() {
            all.push(report);
        }
        assert_eq!(all.len(), MOST.reports);
        assert!(taken > MOST.reports / 2);
        // The queue always takes the node's own reports.
        reports.put(MasterRequest::Leaving);
        all.push(waiting.try_recv().unwrap());
        let fault = reports.put_of_process(ended()).unwrap_err();
        assert_eq!(fault.code, FaultCode::Unavailable);
        for report in all {
            reports.is_told(&report);
        }
        reports.put_of_process(refusals()).unwrap();
        reports.put_of_process(ended()).unwrap();
    }

    #[test]
    fn long_reports_occupy_bounded_memory() {
        let (reports, mut waiting) = Reports::new();
        let record = RefusalRecord {
            at: 1,
            who: "w".repeat(256),
            proved: Some("p".repeat(256)),
            receiver: Some("r".repeat(256)),
            reason: "x".repeat(1024),
            count: 1,
            by: Some("mallory".to_owned()),
        };
        let refusals = MasterRequest::Refusals {
            records: vec![record; 1024],
        };
        let key = MasterRequest::KeyPublished {
            process: "1".to_owned(),
            agent: "a".to_owned(),
            key: sealbus_control::Blob(vec![0; 8000]),
        };
        let mut taken = Vec::new();
        let mut bytes = 0;
        for _ in 0..100 {
            reports.put_of_process(refusals.clone()).unwrap();
            while let Ok(report) = waiting.try_recv() {
                bytes += serde_json::to_vec(&report).unwrap().len();
                taken.push(report);
            }
        }
        assert!(!taken.is_empty() && bytes < 40 << 20, "{bytes} bytes");
        // There is room for other reports, until as many bytes wait again.
        let mut keys = 0;
        while reports.put_of_process(key.clone()).is_ok() {
            keys += 1;
        }
        assert!((2_000..MOST.reports).contains(&keys), "{keys} keys");
        for report in &taken {
            reports.is_told(report);
        }
        reports.put_of_process(key).unwrap();
    }

    #[tokio::test]
    async fn reports_go_together_in_their_order_as_far_as_a_message_holds_them() {
        let (reports, mut waiting) = Reports::new();
        let started = |process: usize| MasterRequest::Started {
            process: process.to_string(),
            pid: None,
        };
        for process in 0..MOST_REPORTS + 2 {
            reports.put(started(process));
        }
        let together = next_reports(&mut waiting).await.unwrap();
        assert!(together.into_iter().eq((0..MOST_REPORTS).map(started)));
        let together = next_reports(&mut waiting).await.unwrap();
        assert!(
            together
                .into_iter()
                .eq((MOST_REPORTS..MOST_REPORTS + 2).map(started))
        );
        let key = || MasterRequest::KeyPublished {
            process: "1".to_owned(),
            agent: "a".to_owned(),
            key: sealbus_control::Blob(vec![0; TOGETHER / 4]),
        };
        for _ in 0..5 {
            reports.put(key());
        }
        assert_eq!(next_reports(&mut waiting).await.unwrap().len(), 4);
        assert_eq!(next_reports(&mut waiting).await.unwrap().len(), 1);
    }
}
