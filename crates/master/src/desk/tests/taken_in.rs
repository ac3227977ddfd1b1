//! Acts that a CA hands in again, because it did not hear that the store has them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use sealbus_control::Blob;
use sealbus_seal::Serial;
use sealbus_store::WithCommits;

use super::*;
use crate::taking_in::{TakingIn, take_in_rows};
use crate::unstored::{Ledger, UNSTORED_ROW};

#[tokio::test]
async fn a_revocation_whose_row_is_written_again_revokes_nothing_that_was_certified_since() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path()).unwrap();
    let loses = Arc::new(AtomicBool::new(false));
    let is_lost = loses.clone();
    let store = Arc::new(WithCommits::new(move |store, batch| {
        let is_lost = is_lost.clone();
        let committing = async move {
            let made = store.commit(batch).await;
            match is_lost.load(Ordering::Relaxed) {
                true => Err(StoreError::Away {
                    members: "etcd".to_owned(),
                    detail: "its answer was lost".to_owned(),
                }),
                false => made,
            }
        };
        committing.boxed()
    }));
    let (desk, _outward, _news) = open(parts(), store.clone());
    let joining = desk.run(|desk, now| desk.state.join(Some("node-1"), description(), now));
    joining.await.unwrap();
    let certified = async || {
        let certifying = desk.run(|desk, now| {
            let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
            let identity = Identity::node(&desk.name, "node-1").unwrap();
            let request = KeyPair::generate().unwrap().signing_request().unwrap();
            desk.ca
                .certify_own(identity, here, None, &request, life, timestamp(now))
        });
        certifying.await.unwrap()
    };
    let is_believed = async |chain: &sealbus_seal::CertificateChain| {
        let chain = chain.clone();
        let looking = desk.run(move |desk, now| {
            let verified = desk.ca.trust().verify(&chain, timestamp(now));
            Ok(verified.is_ok())
        });
        looking.await.unwrap()
    };
    let mut taking = TakingIn::default();
    let former = certified().await;
    let revoked = Unstored::Revoked {
        what: "node-1".to_owned(),
        said: "stolen".to_owned(),
        at: timestamp(now()),
    };
    ledger.keep(revoked).await.unwrap();
    loses.store(true, Ordering::Relaxed);
    ledger.hand_in(&*store, "ca-2").await.unwrap_err();
    loses.store(false, Ordering::Relaxed);
    take_in_rows(&*store, &desk, &mut taking).await;
    assert!(!is_believed(&former).await);
    // With a new token the node comes back.
    let again = certified().await;
    assert!(is_believed(&again).await);

    let appended = tempfile::tempdir().unwrap();
    let file = "unstored.log";
    std::fs::copy(folder.path().join(file), appended.path().join(file)).unwrap();
    assert_eq!(ledger.acts().len(), 1);
    ledger.hand_in(&*store, "ca-2").await.unwrap();
    let waiting = store.scan(UNSTORED_ROW, None, 9).await.unwrap();
    assert_eq!(waiting.len(), 1);
    take_in_rows(&*store, &desk, &mut taking).await;
    let waiting = store.scan(UNSTORED_ROW, None, 9).await.unwrap();
    assert!(waiting.is_empty());
    assert!(is_believed(&again).await && !is_believed(&former).await);

    // Another Master stood in for that one, and brings the same again.
    let ledger = Ledger::open(appended.path()).unwrap();
    ledger.hand_in(&*store, "ca-3").await.unwrap();
    take_in_rows(&*store, &desk, &mut taking).await;
    let waiting = store.scan(UNSTORED_ROW, None, 9).await.unwrap();
    assert!(waiting.is_empty());
    assert!(is_believed(&again).await && !is_believed(&former).await);
}

#[test]
fn a_line_of_a_newer_version_is_named_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("unstored.log");
    let text = r#"[7,{"act":"suspended","what":"thief","at":1}]"#;
    std::fs::write(&file, text).unwrap();
    let error = Ledger::open(folder.path()).err().unwrap().to_string();
    for word in ["line 1 ", "suspended", "the version that wrote it"] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), text.as_bytes());
}

#[tokio::test]
async fn acts_of_a_newer_version_stay_and_hold_up_no_others() {
    let store = Arc::new(MemoryStore::new());
    let (desk, _outward, _news) = open(parts(), store.clone());
    let mut batch = Batch::new();
    for number in 0..200 {
        let key = format!("{UNSTORED_ROW}ca-2/{number:016x}");
        batch.put(key, r#"{"act":"suspended","what":"thief","at":1}"#);
    }
    let revoked = Unstored::Revoked {
        what: "thief".to_owned(),
        said: "stolen".to_owned(),
        at: timestamp(now()),
    };
    let key = format!("{UNSTORED_ROW}ca-3/1");
    batch.put(key, serde_json::to_vec(&revoked).unwrap());
    store.commit(batch).await.unwrap();
    let mut taking = TakingIn::default();
    for _ in 0..4 {
        take_in_rows(&*store, &desk, &mut taking).await;
    }
    let looking = desk.run(|desk, _| Ok(desk.ca.is_denied(&desk.agent("thief")?)));
    assert!(looking.await.unwrap());
    let waiting = store.scan(UNSTORED_ROW, None, 300).await.unwrap();
    assert_eq!(waiting.len(), 200);
    assert!(waiting.iter().all(|(key, _)| key.contains("ca-2")));
}

#[tokio::test]
async fn no_act_is_taken_in_before_an_earlier_one_that_must_wait() {
    let is_away = Arc::new(AtomicBool::new(false));
    let fails = is_away.clone();
    let store = Arc::new(WithCommits::new(move |store, batch| {
        let fails = fails.clone();
        let committing = async move {
            match fails.load(Ordering::Relaxed) {
                true => Err(StoreError::Away {
                    members: "etcd".to_owned(),
                    detail: "nobody is there".to_owned(),
                }),
                false => store.commit(batch).await,
            }
        };
        committing.boxed()
    }));
    let (desk, _outward, _news) = open(parts(), store.clone());
    let mut batch = Batch::new();
    for number in 0..65 {
        let revoked = Unstored::Revoked {
            what: format!("thief-{number}"),
            said: "stolen".to_owned(),
            at: timestamp(now()),
        };
        let key = format!("{UNSTORED_ROW}ca-2/{number:016x}");
        batch.put(key, serde_json::to_vec(&revoked).unwrap());
    }
    store.commit(batch).await.unwrap();
    let mut taking = TakingIn::default();
    is_away.store(true, Ordering::Relaxed);
    take_in_rows(&*store, &desk, &mut taking).await;
    is_away.store(false, Ordering::Relaxed);
    take_in_rows(&*store, &desk, &mut taking).await;
    let waiting = store.scan(UNSTORED_ROW, None, 99).await.unwrap();
    // All rows but the last one, if the first one was still there.
    assert!(waiting.len() <= 1, "{} wait", waiting.len());
}

#[tokio::test]
async fn a_revocation_waits_for_no_renewals_and_these_are_taken_in_together() {
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    let store = Arc::new(WithCommits::new(move |store, batch| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { store.commit(batch).await }.boxed()
    }));
    let (desk, _outward, _news) = open(parts(), store.clone());
    // The act is not believed, but it is looked at.
    let renewed = Unstored::Renewed {
        chain: Blob(Vec::new()),
        node: "node-1".to_owned(),
        process: String::new(),
        at: timestamp(now()),
    };
    let renewed = serde_json::to_vec(&renewed).unwrap();
    let mut batch = Batch::new();
    for number in 0..1000 {
        let key = format!("{UNSTORED_ROW}ca-2/{number:016x}");
        batch.put(key, renewed.clone());
    }
    store.commit(batch).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path()).unwrap();
    let mut taking = TakingIn::default();
    assert!(take_in_rows(&*store, &desk, &mut taking).await);
    // It comes in the middle of the renewals.
    let revoked = Unstored::Revoked {
        what: "thief".to_owned(),
        said: "stolen".to_owned(),
        at: timestamp(now()),
    };
    ledger.keep(revoked).await.unwrap();
    ledger.hand_in(&*store, "ca-1").await.unwrap();
    assert!(take_in_rows(&*store, &desk, &mut taking).await);
    let looking = desk.run(|desk, _| Ok(desk.ca.is_denied(&desk.agent("thief")?)));
    assert!(looking.await.unwrap());
    while take_in_rows(&*store, &desk, &mut taking).await {}
    let waiting = store.scan(UNSTORED_ROW, None, 9).await.unwrap();
    assert!(waiting.is_empty());
    let commits = commits.load(Ordering::Relaxed);
    assert!(commits < 100, "{commits} commits");
}

/// Another CA may have issued the certificate while the store was away.
#[tokio::test]
async fn a_certificate_that_is_yet_to_be_taken_in_is_denied_by_its_serial_number() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let denied = desk.run(|desk, now| {
        let serial = Serial::random().unwrap();
        let revoked = Unstored::Revoked {
            what: serial.to_string(),
            said: "stolen".to_owned(),
            at: timestamp(now),
        };
        desk.take_in(revoked, now)?;
        Ok(desk.ca.denial(serial).is_some())
    });
    assert!(denied.await.unwrap());
}
