#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_journal::JournalConfig;

use super::*;

fn open(folder: &Path) -> ChannelLogs {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    let platform = PlatformName::new("factory").unwrap();
    ChannelLogs::open(journal, &report, "node-1", platform, 1 << 20).unwrap()
}

fn make(logs: &ChannelLogs, channel: &str, publisher: &str) -> Result<(), Fault> {
    let channel = ChannelPath::new(channel).unwrap();
    logs.log(&Obeyed::default(), &channel, publisher).map(drop)
}

#[test]
fn an_agent_begins_only_so_many_channels_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    for number in 0..MOST_LOGS_OF_AGENT {
        make(&logs, &format!("/flood/{number}"), "mallory").unwrap();
    }
    let fault = make(&logs, "/one/more", "mallory").unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    assert!(
        fault.to_string().contains("mallory published first"),
        "{fault}"
    );
    // There is room for others, and on the channels that are there.
    make(&logs, "/news", "alice").unwrap();
    make(&logs, "/news", "mallory").unwrap();
    make(&logs, "/flood/0", "mallory").unwrap();
    logs.journal.close();
    let logs = open(folder.path());
    assert!(make(&logs, "/one/more", "mallory").is_err());
    make(&logs, "/one/more", "alice").unwrap();
}

#[test]
fn events_leave_a_reserve_of_the_disk_for_the_platform() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 20));
    let mut logs = open(folder.path());
    logs.reserve = Reserve::with_free(&free);
    assert_eq!(
        make(&logs, "/news", "alice").unwrap_err().code,
        FaultCode::Full
    );
    free.store(1 << 30, Ordering::SeqCst);
    make(&logs, "/news", "alice").unwrap();
}
