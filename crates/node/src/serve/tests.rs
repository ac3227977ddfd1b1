use futures_util::FutureExt;

use super::*;
use crate::memory::tests::remembered;
use crate::processes::Entry;
use crate::testing;

/// If a crowd waits at the door, those that wait are ended to make room.
#[tokio::test]
async fn a_newcomer_is_let_in_as_soon_as_its_ticket_is_used_however_slow_the_disk_is() {
    let place = tempfile::tempdir().unwrap();
    let (shared, _) = testing::node(place.path(), testing::no_isolation()).await;
    let ticket = Secret::random().unwrap();
    let mut entry = Entry::new(remembered("p"));
    entry.remembered.ticket = Some((ticket.hash(), now() + 1_000_000));
    let noting = entry.noting.clone();
    let entries = &shared.processes.entries;
    entries.lock().insert("p".to_owned(), entry);
    let strangers = Strangers::new(1);
    let newcomer = Newcomer::Local {
        place: strangers.came(None),
        peer: Peer::default(),
    };
    let is_waiting = || match &newcomer {
        Newcomer::Local { place, .. } => place.is_waiting(),
        Newcomer::Remote(_) => panic!("it came from this machine"),
    };
    let (stream, _peer) = tokio::io::duplex(1);
    let (caller, _requests, _drive) = rpc::open(stream, LONGEST_FRAME);

    let disk = noting.lock().await;
    let secret = (ticket.text(), None);
    let mut admitting = Box::pin(admit(&shared, secret, &caller, 1, &newcomer));
    assert!(is_waiting());
    assert!(admitting.as_mut().now_or_never().is_none());
    let is_used = shared
        .processes
        .with("p", |it| it.remembered.ticket.is_none());
    assert!(is_used.unwrap() && !is_waiting());
    drop(disk);
    let (process, ..) = admitting.await.unwrap();
    assert_eq!(process, "p");
}

#[test]
fn a_report_of_refusals_says_whose_it_is_and_is_bounded() {
    let record = RefusalRecord {
        at: u64::MAX,
        who: "\u{1b}[2Jams@factory".repeat(1000),
        proved: Some("\u{1b}spiffe://factory/agent/ams".repeat(1000)),
        receiver: None,
        reason: "x".repeat(1_000_000),
        count: u64::MAX,
        by: Some("somebody-else".to_owned()),
    };
    let passed_on = reported_by("mallory", vec![record.clone()]).unwrap();
    let [passed_on] = passed_on.as_slice() else {
        panic!()
    };
    assert_eq!(passed_on.by.as_deref(), Some("mallory"));
    assert!(passed_on.at <= now());
    assert!(
        passed_on.who.starts_with("\\u{1b}[2Jams@factory"),
        "{}",
        passed_on.who
    );
    assert!(passed_on.who.len() < 10 * LONGEST_NAME && passed_on.reason.len() < 2 * LONGEST_REASON);
    let proved = passed_on.proved.as_deref().unwrap();
    assert!(proved.starts_with("\\u{1b}spiffe") && proved.len() < 10 * LONGEST_NAME);
    let flood = vec![record; MOST_RECORDS + 1];
    assert_eq!(
        reported_by("mallory", flood).unwrap_err().code,
        FaultCode::BadRequest
    );
}
