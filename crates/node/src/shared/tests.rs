use sealbus_control::rpc::{self, Incoming, LONGEST_FRAME};
use sealbus_seal::Serial;
use sealbus_seal::denylist::{Denial, Reason};

use super::*;
use crate::memory::Remembered;
use crate::processes::Entry;
use crate::testing;

/// Far longer than anything takes.
const LATE: Duration = Duration::from_secs(120);

/// The process reads as fast as it can, and a node may have several long lists for it at the same moment.
#[tokio::test]
async fn a_process_that_still_reads_a_long_deny_list_lives_and_is_told_the_latest_one() {
    let place = tempfile::tempdir().unwrap();
    let (shared, authority) = testing::node_and_ca(place.path()).await;
    let launch = serde_json::json!({
        "process": "p", "group": "p", "agents": ["a"], "command": [], "environment": {},
    });
    let entry = Entry::new(Remembered::new(serde_json::from_value(launch).unwrap()));
    let entries = &shared.processes.entries;
    entries.lock().insert("p".to_owned(), entry);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (caller, _requests, drive) = rpc::open(ours, LONGEST_FRAME);
    tokio::spawn(drive);
    let turn = shared.processes.connect("p", &caller, 1).unwrap();
    let (node, to_process) = (shared.clone(), caller.clone());
    tokio::spawn(async move { node.tell_lacking_denials(&to_process, &turn).await });

    // The process is reading one of the longest lists, and there is no room for the shortest.
    for length in [16 << 20, 1 << 20, 1 << 10, 1] {
        let list = Blob(vec![0; length]);
        let list = AttachmentNotice::DenyList { list };
        while caller.try_notify(&list).is_ok() {}
    }
    let at = present();
    let denial = Denial {
        at,
        reason: Reason::ByOperator,
    };
    let mut list = DenyList::new(authority.identity().clone());
    let serial = Serial::from_bytes([1; 16]);
    list.deny_serial(serial, at.plus(LATE), denial).unwrap();
    let mut latest = Vec::new();
    for _ in 0..3 {
        list.raise_version(list.version() + 1);
        latest = list.sign(&authority).unwrap().whole();
        shared.deny_list_changed(Blob(latest.clone())).await;
    }
    assert!(shared.processes.placement("p").is_ok(), "it was ended");

    let (_process, mut told, drive) = rpc::open(theirs, LONGEST_FRAME);
    tokio::spawn(drive);
    let reading = async {
        loop {
            let Some(Incoming::Notice { body }) = told.recv().await else {
                panic!("the connection has ended");
            };
            match Incoming::parse(&body).unwrap() {
                AttachmentNotice::DenyList { list } if list.0 == latest => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(LATE, reading).await.unwrap();
}
