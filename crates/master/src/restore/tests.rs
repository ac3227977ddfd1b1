//! Restores into a store that Masters may reach meanwhile, and backups that are not whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use sealbus_store::backup::BackupWriter;
use sealbus_store::{Fenced, WithCommits};

use super::*;

/// A row of the backup, and a row from a CA that stands by.
const ROW: &str = "group/0";
const ACT: &str = "unstored/ca-2/1";

/// A state directory with a backup that takes two commits and more, made by `version`.
fn directory(version: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let file = File::create(directory.path().join("backup")).unwrap();
    let description = Description {
        platform: "factory".to_owned(),
        made: 1,
        version: version.to_owned(),
        has_keys: false,
    };
    let mut writer = BackupWriter::new(file, &description).unwrap();
    for number in 0..2 * ROWS {
        writer.row(&format!("group/{number}"), b"{}").unwrap();
    }
    writer.file(ROOT_CERTIFICATE, b"root").unwrap();
    writer.finish().unwrap();
    directory
}

async fn restored(directory: &tempfile::TempDir, store: &dyn Store) -> Result<(), RestoreError> {
    let (directory, platform) = (directory.path(), PlatformName::new("factory").unwrap());
    let file = directory.join("backup");
    write_beside(&file, directory, store, &platform, None, now()).await
}

/// A store that does not take its commit of this number, counted from 0.
fn failing_at(failing: usize) -> Arc<dyn Store> {
    let commits = AtomicUsize::new(0);
    Arc::new(WithCommits::new(move |store, batch| {
        let fails = commits.fetch_add(1, Ordering::Relaxed) == failing;
        let committing = async move {
            match fails {
                true => Err(StoreError::Unanswered),
                false => store.commit(batch).await,
            }
        };
        committing.boxed()
    }))
}

/// A state that was restored halfway.
async fn interrupted(directory: &tempfile::TempDir) -> Arc<dyn Store> {
    let store = failing_at(2);
    restored(directory, &*store).await.unwrap_err();
    assert!(store.get(ROW).await.unwrap().is_some());
    store
}

#[tokio::test]
async fn no_master_leads_on_half_a_state_and_the_same_restore_completes_it() {
    let directory = directory("1");
    let store = interrupted(&directory).await;
    let refused = Fenced::claim(store.clone()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Restoring), "{refused}");
    let other = self::directory("1");
    let refused = restored(&other, &*store).await.unwrap_err();
    assert!(
        matches!(refused, RestoreError::EtcdNotEmpty(_)),
        "{refused}"
    );
    let mut meanwhile = Batch::new();
    meanwhile.put(ACT, "{}");
    meanwhile.put("group/stray", "{}");
    store.commit(meanwhile).await.unwrap();

    restored(&directory, &*store).await.unwrap();
    let is_there = async |row: &str| store.get(row).await.unwrap().is_some();
    assert!(is_there(ROW).await && is_there(ROOT_ROW).await && is_there(ACT).await);
    assert!(!is_there("group/stray").await && !is_there(RESTORING_ROW).await);
    assert!(!directory.path().join(DRAFT).exists());
    Fenced::claim(store.clone()).await.unwrap();
}

#[tokio::test]
async fn a_restore_that_was_completed_is_not_begun_again_by_the_draft_that_it_left() {
    let directory = directory("1");
    let store = interrupted(&directory).await;
    let draft = directory.path().join(DRAFT);
    let name = fs::read(&draft).unwrap();
    restored(&directory, &*store).await.unwrap();
    // The machine stopped before the draft was gone.
    fs::write(&draft, name).unwrap();
    let led = Fenced::claim(store.clone()).await.unwrap();
    let mut batch = Batch::new();
    batch.put("group/late", "{}");
    led.commit(batch).await.unwrap();

    let refused = restored(&directory, &*store).await.unwrap_err();
    assert!(
        matches!(refused, RestoreError::DraftLeft { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains(DRAFT), "{refused}");
    assert!(store.get("group/late").await.unwrap().is_some());
    led.look().await.unwrap();
}

#[test]
fn a_backup_whose_pieces_are_of_two_is_not_whole() {
    let [one, other] = ["1", "2"].map(directory);
    let path = one.path().join("backup");
    check_backup(&path).unwrap();
    let mut mixed = fs::read(&path).unwrap();
    let other = fs::read(other.path().join("backup")).unwrap();
    let half = mixed.len() / 2;
    mixed.truncate(half);
    mixed.extend_from_slice(&other[half..]);
    fs::write(&path, mixed).unwrap();
    let refused = check_backup(&path).unwrap_err();
    assert!(matches!(refused, RestoreError::Backup { .. }), "{refused}");
}
