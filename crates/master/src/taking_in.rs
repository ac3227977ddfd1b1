//! A Master that leads on a shared store: it looks whether it still leads, and takes in the acts of CAs that did not know the state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_ca::{NODE_CERTIFICATE, Unstored};
use sealbus_control::clock::timestamp;
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::Timestamp;
use sealbus_store::{Batch, Entry, Fenced, Store, StoreError, read_all};
use tokio::sync::watch;

use super::desk::DeskHandle;
use super::unstored::{Ledger, UNSTORED_ROW, act_in};

/// How often it looks whether it still leads.
const LOOK: Duration = Duration::from_secs(1);
/// How often it looks for the acts of other CAs. Operators wait until their revocations there are in force.
const TAKING_IN: Duration = Duration::from_millis(250);
/// Acts that are taken in at a time.
const PAGE: usize = 64;
/// Prefix of the rows that name revocations which were taken in. A CA that did not hear that a row of its own was written writes it
/// again, as does one whose operator has appended the file of another, and then it must not revoke later certificates.
const TAKEN_IN_ROW: &str = "taken-in/";
/// How often it looks which of them are of no use any more.
const FORGETTING: Duration = Duration::from_secs(3600);

/// How far the acts that wait in the store were looked at.
#[derive(Default)]
pub(super) struct TakingIn {
    /// The row after which it goes on.
    last: Option<String>,
    /// The CAs whose acts of an unknown kind were named in the log.
    named: BTreeSet<String>,
}

impl TakingIn {
    /// Leaves an act that a newer version wrote where it is: it may be a revocation.
    fn leave(&mut self, row: &str, error: &serde_json::Error) {
        let authority = row.strip_prefix(UNSTORED_ROW).unwrap_or(row);
        let (authority, _) = authority.split_once('/').unwrap_or((authority, ""));
        if self.named.insert(authority.to_owned()) {
            tracing::error!(
                authority, row, %error,
                "a newer version than {} wrote this act of a CA, which may be a revocation: it stays in the store until a Master of that version leads",
                env!("CARGO_PKG_VERSION")
            );
        }
    }
}

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

/// Takes in the acts of all Masters' CAs from the time when the store was away, those of this Master's CA among them.
pub(super) async fn take_in(
    store: Arc<dyn Store>,
    desk: DeskHandle,
    ledger: Arc<Ledger>,
    authority: String,
) {
    let mut forgot: Option<Instant> = None;
    let mut taking = TakingIn::default();
    loop {
        hand_in(&*store, &ledger, &authority).await;
        take_in_rows(&*store, &desk, &mut taking).await;
        if forgot.is_none_or(|forgot| forgot.elapsed() > FORGETTING) {
            forgot = Some(Instant::now());
            if let Err(error) = forget(&*store, crate::timestamp_now()).await {
                tracing::debug!(%error, "the rows of acts taken in long ago cannot be removed yet");
            }
        }
        tokio::time::sleep(TAKING_IN).await;
    }
}

/// Hands the acts of this Master's CA from the time when the store was away to the store.
pub(super) async fn hand_in(store: &dyn Store, ledger: &Arc<Ledger>, authority: &str) {
    if let Err(error) = ledger.hand_in(store, authority).await {
        tracing::debug!(%error, "the CA's acts are not stored yet");
    }
}

/// Takes in the revocations that wait in the store. This comes before programs are started, because a revoked one may be among
/// them.
pub(super) async fn take_in_revocations(store: &dyn Store, desk: &DeskHandle) {
    let mut revocations = Vec::new();
    let read = read_all(store, UNSTORED_ROW, |key, entry| {
        let act = serde_json::from_slice::<Unstored>(&entry.value);
        if matches!(act, Ok(Unstored::Revoked { .. })) {
            revocations.push((key, entry));
        }
    });
    known(read.await);
    take_in_each(store, desk, revocations, &mut TakingIn::default()).await;
}

/// Takes in the acts that wait in the store, or the next ones of them. It begins anew at their end, and where one
/// cannot be taken in yet.
pub(super) async fn take_in_rows(store: &dyn Store, desk: &DeskHandle, taking: &mut TakingIn) {
    let rows = known(store.scan(UNSTORED_ROW, taking.last.as_deref(), PAGE).await);
    let rows = rows.unwrap_or_default();
    let last = match rows.len() < PAGE {
        true => None,
        false => rows.last().map(|(key, _)| key.clone()),
    };
    // No act comes before an earlier one that cannot be taken in yet: what was renewed may be denied by it.
    let is_at_end = take_in_each(store, desk, rows, taking).await;
    taking.last = last.filter(|_| is_at_end);
}

fn known<T>(read: Result<T, StoreError>) -> Option<T> {
    let log = |error: &StoreError| tracing::debug!(%error, "the acts of other CAs cannot be read");
    read.inspect_err(log).ok()
}

/// Takes in acts. Returns whether it came to their end.
async fn take_in_each(
    store: &dyn Store,
    desk: &DeskHandle,
    rows: Vec<(String, Entry)>,
    taking: &mut TakingIn,
) -> bool {
    for (key, entry) in rows {
        let act = match serde_json::from_slice::<Unstored>(&entry.value) {
            Err(error) if error.is_data() => {
                taking.leave(&key, &error);
                continue;
            }
            act => act,
        };
        if let Err(fault) = take_in_one(store, desk, key, act).await {
            tracing::debug!(%fault, "an act of a CA cannot be taken in yet");
            return false;
        }
    }
    true
}

/// Takes in one act, and removes its row in the same commit.
async fn take_in_one(
    store: &dyn Store,
    desk: &DeskHandle,
    key: String,
    act: serde_json::Result<Unstored>,
) -> Result<(), Fault> {
    let is_revocation = matches!(act, Ok(Unstored::Revoked { .. }));
    let noted = is_revocation.then(|| format!("{TAKEN_IN_ROW}{}", act_in(&key)));
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
            Err(fault) => tracing::error!(%fault, row = key, "an act of a CA is not believed"),
            Ok(()) => {}
        }
        desk.ca.is_taken_in(key, noted, timestamp(now));
        Ok(())
    });
    taking.await
}

/// Removes the rows of acts that were taken in so long ago that all certificates from before have expired.
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
