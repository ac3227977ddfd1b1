use std::fs;
use std::process::Command;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::isolation::{IsolationConfig, SLOTS};
use crate::testing;
use sealbus_control::node::MasterRequest;

/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(600);

/// A launcher that notes each order to start a program, and obeys it once the file `open` is there. In the mode `uid`
/// nothing works.
const LAUNCHER: &str = r#"#!/bin/sh
order=$(cat)
case "$order" in
*'"mode":"uid"'*) exit 1 ;;
*'"arguments":["version"]'*) printf 'sealed\n' >&0; exit 0 ;;
esac
echo $$ >>"$0.started"
while [ ! -e "$0.open" ]; do sleep 0.05; done
if [ -e "$0.fails" ]; then exit 1; fi
printf 'sealed\n' >&0
exec sleep 1000 </dev/null
"#;

struct StartingNode {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
    reports: mpsc::UnboundedReceiver<MasterRequest>,
}

impl StartingNode {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let launcher = folder.path().join("launcher");
        // A process that has the file open for writing would keep it from being run, and other tests start processes.
        let writing = "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let mut command = Command::new("sh");
        let command = command.args(["-c", writing, "sh", LAUNCHER]).arg(&launcher);
        assert!(command.status().unwrap().success());
        let isolation = IsolationConfig {
            mode: None,
            launcher,
            hidden: Vec::new(),
            slots: SLOTS,
        };
        let (shared, reports) = testing::node(&folder.path().join("node"), isolation).await;
        Self {
            folder,
            shared,
            reports,
        }
    }

    fn launch(&self) -> Launch {
        let launch = serde_json::json!({
            "process": "p-1", "group": "p", "agents": ["p"], "directory": self.folder.path(),
            "command": ["sleep", "1000"], "environment": {},
        });
        serde_json::from_value(launch).unwrap()
    }

    fn start(&self) -> JoinHandle<Result<u32, Fault>> {
        let (shared, launch) = (self.shared.clone(), self.launch());
        tokio::spawn(async move { shared.start(launch).await })
    }

    fn put(&self, name: &str) {
        fs::write(self.folder.path().join(name), "").unwrap();
    }

    /// The launchers that got the order to start a program.
    fn launched(&self) -> Vec<u32> {
        let noted = fs::read_to_string(self.folder.path().join("launcher.started"));
        let noted = noted.unwrap_or_default();
        // The last line may be incomplete.
        let lines = noted.split_inclusive('\n');
        let whole = lines.filter_map(|line| line.strip_suffix('\n'));
        whole.map(|line| line.parse().unwrap()).collect()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !is_so(self) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let waited = tokio::time::timeout(LONG, waiting).await;
        waited.unwrap_or_else(|_| panic!("{what}"));
    }

    async fn until_launched(&self) -> u32 {
        self.until("a launcher is started", |node| !node.launched().is_empty())
            .await;
        self.launched()[0]
    }

    /// How the process ended, according to its file.
    fn noted(&self) -> Option<Exit> {
        let noted = self.shared.memory.processes().unwrap();
        noted.first().and_then(|row| row.ended.clone())
    }

    async fn until_forgotten(&self) {
        self.until("the process is forgotten", |node| {
            node.shared.memory.processes().unwrap().is_empty()
        })
        .await;
    }

    /// The end of the process, as the Master is told.
    fn reported(&mut self) -> Exit {
        match self.reports.try_recv().unwrap() {
            MasterRequest::Exited { process, exit } if process == "p-1" => exit,
            other => panic!("{other:?}"),
        }
    }
}

async fn outcome(start: JoinHandle<Result<u32, Fault>>) -> Result<u32, Fault> {
    let ended = tokio::time::timeout(LONG, start).await;
    ended.expect("the start is answered").unwrap()
}

/// This is not a failure of its isolation, so it is not started in a weaker mode either.
#[tokio::test]
async fn a_program_that_is_told_to_stop_while_it_is_started_does_not_run() {
    for grace in [Duration::ZERO, LONG] {
        let mut node = StartingNode::new().await;
        let start = node.start();
        let pid = node.until_launched().await;
        // A node that is killed now knows the process afterwards.
        let noted = node.shared.memory.processes().unwrap();
        let noted: Vec<_> = noted.iter().map(|it| it.pid.map(|(pid, _)| pid)).collect();
        assert_eq!(noted, [Some(pid)]);

        node.shared.stop("p-1", grace, "a test");
        let fault = outcome(start).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::StartFailed);
        assert!(
            fault.message.starts_with("p could not be started"),
            "{fault}"
        );
        assert_eq!(child::started_at(pid), None);
        assert_eq!(node.launched(), [pid]);
        assert_eq!(node.shared.processes.count(), 0);
        assert!(matches!(node.reported(), Exit::NotStarted { .. }));
        node.shared.end_is_known("p-1");
        node.until_forgotten().await;

        // The Master asks again, because the answer was lost.
        node.put("launcher.open");
        assert_eq!(outcome(node.start()).await, Ok(pid));
        assert_eq!(node.launched(), [pid]);
        assert_eq!(node.shared.processes.count(), 0);
        assert!(matches!(node.reported(), Exit::NotStarted { .. }));
    }
}

#[tokio::test]
async fn a_program_that_is_told_to_stop_before_its_launcher_is_there_gets_none() {
    let mut node = StartingNode::new().await;
    let launch = node.launch();
    let token = node.shared.ticket().unwrap();
    let entry = Entry::new(to_attach(launch.clone(), (token.secret().hash(), now())));
    let Begun::Now(_outcome) = node.shared.processes.begin(entry) else {
        panic!("it began before");
    };
    node.shared.stop("p-1", Duration::ZERO, "a test");
    let fault = node.shared.start_once(&launch, &token).await.err().unwrap();
    assert!(fault.message.contains("told to stop"), "{fault}");
    assert!(node.launched().is_empty());
    // Its end is reported with the end of the start, and not before.
    assert!(node.reports.try_recv().is_err());
    node.shared.not_started("p-1", fault);
    assert!(matches!(node.reported(), Exit::NotStarted { .. }));
    assert_eq!(node.shared.processes.count(), 0);
}

#[tokio::test]
async fn a_node_that_leaves_starts_nothing_more() {
    let mut node = StartingNode::new().await;
    let start = node.start();
    let pid = node.until_launched().await;
    node.shared.leave(crate::shared::Leave {
        grace: LONG,
        is_masters: false,
    });
    node.shared.end_all(LONG).await;
    let fault = outcome(start).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert_eq!((node.launched(), child::started_at(pid)), (vec![pid], None));
    // The program is not to blame, and is started elsewhere.
    assert_eq!(node.reported(), Exit::NodeLeft);
}

#[tokio::test]
async fn a_start_that_is_asked_for_again_starts_nothing_more() {
    let mut node = StartingNode::new().await;
    let first = node.start();
    let pid = node.until_launched().await;
    let again = node.start();
    tokio::task::yield_now().await;
    node.put("launcher.open");
    assert_eq!(outcome(first).await, Ok(pid));
    assert_eq!(outcome(again).await, Ok(pid));
    assert_eq!(outcome(node.start()).await, Ok(pid));

    node.shared.stop("p-1", Duration::ZERO, "a test");
    node.until("it ends", |node| node.shared.processes.count() == 0)
        .await;
    let ended = node.reported();
    assert!(matches!(ended, Exit::Signal { .. }), "{ended:?}");
    // Another Master leads, which got neither the answer nor the end.
    assert_eq!(outcome(node.start()).await, Ok(pid));
    assert_eq!(node.reported(), ended);
    assert_eq!(node.launched(), [pid]);
    assert_eq!(node.shared.processes.count(), 0);
}

/// The node is killed before the Master knows how the program ended. If the end were lost, the program would be started
/// again.
#[tokio::test]
async fn an_end_that_the_master_does_not_know_of_outlives_the_node() {
    let mut node = StartingNode::new().await;
    node.put("launcher.open");
    let pid = outcome(node.start()).await.unwrap();
    node.shared.stop("p-1", Duration::ZERO, "a test");
    let is_noted = |node: &StartingNode| node.noted().is_some();
    node.until("its end is noted", is_noted).await;
    let ended = node.reported();
    assert_eq!(node.noted(), Some(ended.clone()));
    assert!(!ended.is_of_its_node());

    let mut again = StartingNode::new().await;
    let noted = node.shared.memory.processes().unwrap();
    again.shared.memory.keep_process(&noted[0]).unwrap();
    again.shared.take_over(noted);
    assert_eq!(again.shared.processes.count(), 0);
    assert_eq!(again.shared.processes.ended().len(), 1);
    assert_eq!(again.reported(), ended);
    // Another Master leads, which did not get the answer.
    assert_eq!(outcome(again.start()).await, Ok(pid));
    assert_eq!(again.reported(), ended);
    assert!(again.launched().is_empty());
    again.shared.end_is_known("p-1");
    again.until_forgotten().await;
}

#[tokio::test]
async fn all_that_ask_for_a_start_hear_that_it_failed() {
    let node = StartingNode::new().await;
    let first = node.start();
    node.until_launched().await;
    let again = node.start();
    tokio::task::yield_now().await;
    node.put("launcher.fails");
    node.put("launcher.open");
    let fault = outcome(first).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::StartFailed);
    assert_eq!(outcome(again).await, Err(fault));
    // One start has tried both modes.
    assert_eq!(node.launched().len(), 2);
    assert_eq!(node.shared.processes.count(), 0);
}
