use sealbus_control::Blob;
use sealbus_seal::Timestamp;
use sealbus_store::{MemoryStore, read_all};

use super::*;

fn act(number: u64) -> Unstored {
    Unstored::Revoked {
        what: format!("agent-{number}"),
        said: "stolen\nkey".to_owned(),
        at: Timestamp::from_unix_seconds(number),
    }
}

async fn rows(store: &dyn Store) -> Vec<Unstored> {
    let mut rows = Vec::new();
    read_all(store, UNSTORED_ROW, |_, entry| {
        rows.push(serde_json::from_slice(&entry.value).unwrap());
    })
    .await
    .unwrap();
    rows
}

#[tokio::test]
async fn acts_survive_a_restart_and_a_cut_and_come_into_the_store_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    let ledger = Ledger::open(folder.path()).unwrap();
    for number in 0..100 {
        ledger.keep(act(number)).await.unwrap();
    }
    let whole = std::fs::read(&file).unwrap();
    // The machine stopped in the middle of the last line, and the next act comes after it.
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    drop(ledger);
    let ledger = Ledger::open(folder.path()).unwrap();
    ledger.keep(act(100)).await.unwrap();
    let expected: Vec<_> = (0..99).chain([100]).map(act).collect();
    assert_eq!(ledger.acts(), expected);
    drop(ledger);
    let ledger = Ledger::open(folder.path()).unwrap();
    assert_eq!(ledger.acts(), expected);

    let store = MemoryStore::new();
    ledger.hand_in(&store, "ca-1").await.unwrap();
    assert_eq!(rows(&store).await, expected);
    assert!(ledger.acts().is_empty());
    // Later acts come after the earlier ones, also if the file was emptied and opened anew.
    drop(ledger);
    let ledger = Ledger::open(folder.path()).unwrap();
    assert!(ledger.acts().is_empty());
    ledger.keep(act(101)).await.unwrap();
    ledger.hand_in(&store, "ca-1").await.unwrap();
    assert_eq!(rows(&store).await.last(), Some(&act(101)));
    assert_eq!(rows(&store).await.len(), 101);
}

/// A write goes on although the task that waits for it has gone.
#[tokio::test]
async fn a_ledger_that_is_still_at_work_takes_no_act_of_the_one_that_was_opened_since() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path()).unwrap();
    let handed_in = ledger.keep(act(0)).await.unwrap();
    let at_work = ledger.clone();
    drop(ledger);
    let ledger = Ledger::open(folder.path()).unwrap();
    ledger.keep(act(1)).await.unwrap();
    at_work.forget(&handed_in).unwrap();
    drop(at_work);
    ledger.keep(act(2)).await.unwrap();
    drop(ledger);
    let ledger = Ledger::open(folder.path()).unwrap();
    assert_eq!(ledger.acts(), [act(1), act(2)]);
}

#[tokio::test]
async fn joined_files_lose_no_act_although_two_cas_gave_the_same_number() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut joined = Vec::new();
    for (number, folder) in (0..).zip(&folders) {
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.kept.lock().next = 7;
        ledger.keep(act(number)).await.unwrap();
        let text = std::fs::read(folder.path().join(FILE)).unwrap();
        // One file was appended twice.
        joined.extend([text.clone(), text].concat());
    }
    std::fs::write(folders[0].path().join(FILE), joined).unwrap();
    let ledger = Ledger::open(folders[0].path()).unwrap();
    let by_name = |acts: Vec<Unstored>| {
        let mut names: Vec<String> = acts.iter().map(|act| format!("{act:?}")).collect();
        names.sort();
        names
    };
    let both = by_name(vec![act(0), act(1)]);
    assert_eq!(by_name(ledger.acts()), both);
    let store = MemoryStore::new();
    ledger.hand_in(&store, "ca-1").await.unwrap();
    assert_eq!(by_name(rows(&store).await), both);
    assert!(ledger.acts().is_empty());
}

#[tokio::test]
async fn acts_after_the_highest_number_are_kept_too() {
    let folder = tempfile::tempdir().unwrap();
    let line = serde_json::to_string(&(u64::MAX, act(1))).unwrap();
    std::fs::write(folder.path().join(FILE), line).unwrap();
    let ledger = Ledger::open(folder.path()).unwrap();
    for number in [2, 3] {
        ledger.keep(act(number)).await.unwrap();
    }
    assert_eq!(ledger.acts().len(), 3);
    drop(ledger);
    assert_eq!(Ledger::open(folder.path()).unwrap().acts().len(), 3);
}

#[test]
fn an_act_has_one_name_whichever_ca_brings_it_and_an_earlier_versions_number_is_of_its_ca() {
    let name = name_of(7, &act(1)).unwrap();
    for authority in ["ca", "ca-2"] {
        assert_eq!(act_in(&row_of(authority, &name, &act(1))), name);
    }
    assert_ne!(name_of(7, &act(2)).unwrap(), name);
    assert_eq!(
        act_in("unstored/ca-2/0000000000000007"),
        "ca-2/0000000000000007"
    );
}

#[tokio::test]
async fn a_damaged_line_is_named_and_a_cut_one_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    let ledger = Ledger::open(folder.path()).unwrap();
    for number in 0..3 {
        ledger.keep(act(number)).await.unwrap();
    }
    drop(ledger);
    let whole = std::fs::read(&file).unwrap();
    let second = whole.windows(7).position(|it| it == b"agent-1").unwrap();
    let line = whole[..second].split(|byte| *byte == b'\n').count();
    for (at, with) in [(second - 1, b'x'), (second - 20, 0xff), (second, 7)] {
        let mut damaged = whole.clone();
        damaged[at] = with;
        std::fs::write(&file, &damaged).unwrap();
        let error = Ledger::open(folder.path()).err().unwrap();
        assert!(
            error.to_string().contains(&format!("line {line} ")),
            "{error}"
        );
        assert_eq!(std::fs::read(&file).unwrap(), damaged);
    }
    // The disk was full, or has zeros where nothing was written.
    let end = second
        + whole[second..]
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap();
    for cut in second - 10..end {
        let mut torn = whole.clone();
        torn[cut..end].fill(0);
        std::fs::write(&file, &torn).unwrap();
        assert_eq!(
            Ledger::open(folder.path()).unwrap().acts(),
            [act(0), act(2)]
        );
        torn.drain(cut..end);
        std::fs::write(&file, &torn).unwrap();
        assert_eq!(
            Ledger::open(folder.path()).unwrap().acts(),
            [act(0), act(2)]
        );
    }
}

#[tokio::test]
async fn no_more_is_accepted_than_is_read_again_and_revocations_have_room_of_their_own() {
    const LONGEST: u64 = 1 << 16;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    let length = || std::fs::metadata(&file).unwrap().len();
    let open = || Ledger::open_within(folder.path(), LONGEST);
    let ledger = open().unwrap();
    let renewed = || Unstored::Renewed {
        chain: Blob(vec![7; 500]),
        node: "node-1".to_owned(),
        process: "0".repeat(32),
        at: Timestamp::from_unix_seconds(1),
    };
    let mut accepted = 0;
    let full = loop {
        match ledger.keep(renewed()).await {
            Ok(_) => accepted += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(full.code, FaultCode::Storage);
    assert!(full.message.contains(FILE), "{full}");
    assert!(length() <= LONGEST - LONGEST / PARTS);
    for number in 0..3 {
        ledger.keep(act(number)).await.unwrap();
        accepted += 1;
    }
    while ledger.keep(act(accepted)).await.is_ok() {
        accepted += 1;
    }
    assert!(length() <= LONGEST);
    let kept = ledger.acts();
    assert_eq!(kept.len() as u64, accepted);
    drop(ledger);
    let ledger = open().unwrap();
    assert_eq!(ledger.acts(), kept);
    drop(ledger);

    // An operator has joined files that are too long together.
    let whole = std::fs::read(&file).unwrap();
    let joined = [whole.as_slice(), &whole].concat();
    std::fs::write(&file, &joined).unwrap();
    let error = open().err().unwrap();
    assert!(error.to_string().contains(FILE), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), joined);

    // There is room again once the store has them.
    std::fs::write(&file, &whole).unwrap();
    let ledger = open().unwrap();
    ledger.hand_in(&MemoryStore::new(), "ca-1").await.unwrap();
    ledger.keep(renewed()).await.unwrap();
}
