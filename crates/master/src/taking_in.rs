//! A Master that leads on a shared store: it looks whether it still does, and takes in what CAs did while they did not know the
//! state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_ca::{NODE_CERTIFICATE, Unstored};
use sealbus_control::clock::timestamp;
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::Timestamp;
use sealbus_store::{Batch, Entry, Fenced, Store, StoreError, read_all};
use tokio::sync::watch;

use super::desk::DeskHandle;
use super::unstored::{Ledger, UNSTORED_ROW};

/// How often it looks whether it still leads.
const LOOK: Duration = Duration::from_secs(1);
/// How often it looks what other CAs did. Operators wait for what they revoked there.
const TAKING_IN: Duration = Duration::from_millis(250);
/// Acts that are taken in at a time.
const PAGE: usize = 64;
/// Prefix of the rows that name revocations which were taken in. A CA that did not hear that a row of its own was written writes it
/// again, and then it must not revoke what was certified since.
const TAKEN_IN_ROW: &str = "taken-in/";
/// How often it looks which of them are of no use any more.
const FORGETTING: Duration = Duration::from_secs(3600);

/// Notices that another Master has taken over, also while there is nothing to write, and tells of a store that is away.
pub(super) async fn look(
    store: Arc<Fenced>,
    desk: DeskHandle,
    trouble: watch::Sender<Option<String>>,
) {
    loop {
        tokio::time::sleep(LOOK).await;
        let found = store.look().await;
        if let Err(StoreError::Superseded { .. }) = &found {
            return;
        }
        desk.store_answers(&found);
        let found = found.err().map(|error| error.to_string());
        if trouble.send_replace(found.clone()).is_none()
            && let Some(error) = found
        {
            tracing::warn!("whether this Master still leads is not known: {error}");
        }
    }
}

/// Takes in what the CAs of all Masters did while the store was away, this one's among them.
pub(super) async fn take_in(
    store: Arc<dyn Store>,
    desk: DeskHandle,
    ledger: Arc<Ledger>,
    authority: String,
) {
    let mut forgot: Option<Instant> = None;
    loop {
        hand_in(&*store, &ledger, &authority).await;
        take_in_rows(&*store, &desk).await;
        if forgot.is_none_or(|forgot| forgot.elapsed() > FORGETTING) {
            forgot = Some(Instant::now());
            if let Err(error) = forget(&*store, crate::timestamp_now()).await {
                tracing::debug!(%error, "what was taken in long ago is not forgotten yet");
            }
        }
        tokio::time::sleep(TAKING_IN).await;
    }
}

/// Has the store know what this Master's CA did while the store was away.
pub(super) async fn hand_in(store: &dyn Store, ledger: &Arc<Ledger>, authority: &str) {
    if let Err(error) = ledger.hand_in(store, authority).await {
        tracing::debug!(%error, "what the CA did is not stored yet");
    }
}

/// Takes in the revocations that wait in the store: what comes next may be the start of a program that was revoked.
pub(super) async fn take_in_revocations(store: &dyn Store, desk: &DeskHandle) {
    let mut revocations = Vec::new();
    let read = read_all(store, UNSTORED_ROW, |key, entry| {
        let act = serde_json::from_slice::<Unstored>(&entry.value);
        if matches!(act, Ok(Unstored::Revoked { .. })) {
            revocations.push((key, entry));
        }
    });
    known(read.await);
    take_in_each(store, desk, revocations).await;
}

/// Takes in the acts that wait in the store, or the first of them.
pub(super) async fn take_in_rows(store: &dyn Store, desk: &DeskHandle) {
    let rows = known(store.scan(UNSTORED_ROW, None, PAGE).await);
    take_in_each(store, desk, rows.unwrap_or_default()).await;
}

fn known<T>(read: Result<T, StoreError>) -> Option<T> {
    let log = |error: &StoreError| tracing::debug!(%error, "what other CAs did is not known");
    read.inspect_err(log).ok()
}

async fn take_in_each(store: &dyn Store, desk: &DeskHandle, rows: Vec<(String, Entry)>) {
    for (key, entry) in rows {
        if let Err(fault) = take_in_one(store, desk, key, &entry.value).await {
            tracing::debug!(%fault, "what a CA did cannot be taken in yet");
            break;
        }
    }
}

/// Takes in one act, and removes its row in the same commit.
async fn take_in_one(
    store: &dyn Store,
    desk: &DeskHandle,
    key: String,
    row: &[u8],
) -> Result<(), Fault> {
    let act = serde_json::from_slice::<Unstored>(row);
    let noted = matches!(act, Ok(Unstored::Revoked { .. })).then(|| {
        let name = key.strip_prefix(UNSTORED_ROW).unwrap_or(&key);
        format!("{TAKEN_IN_ROW}{name}")
    });
    let is_known = match &noted {
        Some(noted) => {
            let known = store.get(noted).await;
            let known = known.map_err(|error| Fault::new(FaultCode::Storage, error.to_string()))?;
            known.is_some()
        }
        None => false,
    };
    let taking = desk.run(move |desk, now| {
        let taken = match act {
            Ok(_) if is_known => Ok(()),
            Ok(act) => desk.take_in(act, now),
            Err(error) => Err(Fault::new(FaultCode::BadRequest, error.to_string())),
        };
        match taken {
            // There will be room.
            Err(fault) if fault.code == FaultCode::Full => return Err(fault),
            Err(fault) => tracing::error!(%fault, row = key, "what a CA did is not believed"),
            Ok(()) => {}
        }
        desk.ca.is_taken_in(key, noted, timestamp(now));
        Ok(())
    });
    taking.await
}

/// Forgets what was taken in so long ago that nothing certified before is valid.
async fn forget(store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
    let mut old = Batch::new();
    read_all(store, TAKEN_IN_ROW, |key, entry| {
        let at = serde_json::from_slice::<Timestamp>(&entry.value);
        if at.is_ok_and(|at| at.plus(NODE_CERTIFICATE) < now) {
            old.delete(key);
        }
    })
    .await?;
    match old.is_empty() {
        true => Ok(()),
        false => store.commit(old).await.map(drop),
    }
}
