use std::fs;

use super::*;
use crate::testing;
use sealbus_control::FaultCode;
use sealbus_control::node::{LogPosition, MasterRequest};

/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(600);
const LIMIT: u64 = 1 << 20;
/// A program that keeps writing.
const FILL: &str =
    "while :; do dd if=/dev/zero bs=65536 count=1 status=none >>\"$SEALBUS_FOLDER/big\"; done";

fn launch(group: &str, start: u32, script: &str) -> Launch {
    let launch = serde_json::json!({
        "process": format!("{group}-{start}"), "group": group, "agents": [group], "directory": "/",
        "command": ["sh", "-c", script], "environment": {}, "confinement": { "isolation": "none", "disk": LIMIT },
    });
    serde_json::from_value(launch).unwrap()
}

#[tokio::test]
async fn a_program_that_fills_the_disk_is_ended_by_name_and_begins_again_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("node");
    let (shared, mut reports) = testing::node(&folder, testing::no_isolation()).await;
    shared.start(launch("filler", 1, FILL)).await.unwrap();
    let quiet = launch("quiet", 1, "exec sleep 1000");
    shared.start(quiet).await.unwrap();
    let watching = tokio::spawn(watch(shared.clone()));
    let ended = async {
        while shared.processes.count() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
    watching.abort();
    let Ok(MasterRequest::Exited { process, exit }) = reports.try_recv() else {
        panic!("the Master hears of its end");
    };
    assert_eq!(process, "filler-1");
    let Exit::OutOfDisk { held, most } = exit else {
        panic!("{exit}");
    };
    assert!(held.is_some_and(|held| held > LIMIT));
    assert_eq!(most, Some(LIMIT));
    let last = LogPosition::LastLines { lines: 1 };
    let (told, _) = shared.logs.read("filler", last, 1000, 0).unwrap();
    assert!(
        told.starts_with("-- filler ended: used more than its `disk`"),
        "{told}"
    );
    assert!(told.contains("write `disk = \""), "{told}");

    let fault = shared.start(launch("filler", 2, FILL)).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::StartFailed);
    assert!(
        fault.message.contains("used more than its `disk`"),
        "{fault}"
    );
    fs::remove_file(shared.sealing.work().join("filler/big")).unwrap();
    shared
        .start(launch("filler", 3, "exec sleep 1000"))
        .await
        .unwrap();
    shared.end_all(Duration::ZERO).await;
}
