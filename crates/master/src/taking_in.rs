//! A Master that leads on a shared store. It checks whether it still leads, and takes in the acts of CAs that did not know the
//! state.

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
use super::unstored::{Ledger, REVOKED_ROW, UNSTORED_ROW, act_in};

/// How often the Master checks whether it still leads.
const LOOK: Duration = Duration::from_secs(1);
/// How often the Master looks for the acts of other CAs. Operators wait until their revocations there are in force.
const TAKING_IN: Duration = Duration::from_millis(250);
/// Acts that are taken in at a time, with one write.
const PAGE: usize = 64;
/// Prefix of the rows that name revocations that were taken in. A CA that did not hear that its row was written writes it again.
/// So does a CA whose operator has appended another CA's file. A repeated revocation must not revoke later certificates.
const TAKEN_IN_ROW: &str = "taken-in/";
/// How often the Master looks for such rows that are of no more use.
const FORGETTING: Duration = Duration::from_secs(3600);

/// How far the acts that wait in the store were looked at.
#[derive(Default)]
pub(super) struct TakingIn {
    /// The row after which the Master goes on.
    last: Option<String>,
    /// The CAs whose acts of an unknown kind were named in the log.
    named: BTreeSet<String>,
}

impl TakingIn {
    /// Leaves an act that a newer version wrote where it is: it may be a revocation.
    fn leave(&mut self, row: &str, error: &serde_json::Error) {
        let authority = row.strip_prefix(REVOKED_ROW);
        let authority = authority.or_else(|| row.strip_prefix(UNSTORED_ROW));
        let authority = authority.unwrap_or(row);
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

/// Notices that another Master has taken over, even while there is nothing to write. Also notes whether the store is
/// away.
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
            tracing::warn!("it is not known whether this Master still leads: {error}");
        }
    }
}

/// Takes in the acts of all Masters' CAs from the time when the store was away, including this Master's CA.
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
        let is_more = take_in_rows(&*store, &desk, &mut taking).await;
        if forgot.is_none_or(|forgot| forgot.elapsed() > FORGETTING) {
            forgot = Some(Instant::now());
            if let Err(error) = forget(&*store, crate::timestamp_now()).await {
                tracing::debug!(%error, "the rows of acts taken in long ago cannot be removed yet");
            }
        }
        if !is_more {
            tokio::time::sleep(TAKING_IN).await;
        }
    }
}

/// Hands the acts of this Master's CA from the time when the store was away to the store.
pub(super) async fn hand_in(store: &dyn Store, ledger: &Arc<Ledger>, authority: &str) {
    if let Err(error) = ledger.hand_in(store, authority).await {
        tracing::debug!(%error, "the CA's acts are not stored yet");
    }
}

/// Takes in the revocations that wait in the store. This comes before programs are started, because a revoked program may be
/// among them.
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

/// Takes in the revocations that wait in the store, and then the next page of the other acts. It begins anew at their end, and
/// at an act that cannot be taken in yet. Returns whether it made progress and more acts wait.
pub(super) async fn take_in_rows(
    store: &dyn Store,
    desk: &DeskHandle,
    taking: &mut TakingIn,
) -> bool {
    // A revocation waits for no renewal, however many wait.
    let mut revocations = Vec::new();
    let read = read_all(store, REVOKED_ROW, |key, entry| {
        revocations.push((key, entry));
    });
    known(read.await);
    // No act comes before an earlier one that cannot be taken in yet, because the earlier one may deny the renewed
    // certificate.
    if take_in_each(store, desk, revocations, taking)
        .await
        .is_none()
    {
        return false;
    }
    let rows = known(store.scan(UNSTORED_ROW, taking.last.as_deref(), PAGE).await);
    let rows = rows.unwrap_or_default();
    let last = match rows.len() < PAGE {
        true => None,
        false => rows.last().map(|(key, _)| key.clone()),
    };
    let taken = take_in_each(store, desk, rows, taking).await;
    taking.last = last.filter(|_| taken.is_some());
    taking.last.is_some() && taken.is_some_and(|taken| taken > 0)
}

fn known<T>(read: Result<T, StoreError>) -> Option<T> {
    let log = |error: &StoreError| tracing::debug!(%error, "the acts of other CAs cannot be read");
    read.inspect_err(log).ok()
}

/// An act in the store.
struct Waiting {
    row: String,
    act: serde_json::Result<Unstored>,
    /// The row that names a revocation that was taken in.
    noted: Option<String>,
    /// Whether the act was taken in before, or is the same as an earlier act here.
    is_known: bool,
}

/// Takes in acts. Returns how many there were, or `None` if not all can be taken in yet.
async fn take_in_each(
    store: &dyn Store,
    desk: &DeskHandle,
    rows: Vec<(String, Entry)>,
    taking: &mut TakingIn,
) -> Option<usize> {
    let mut acts = Vec::new();
    // Two CAs may bring the same act.
    let mut brought = BTreeSet::new();
    for (row, entry) in rows {
        let act = match serde_json::from_slice::<Unstored>(&entry.value) {
            Err(error) if error.is_data() => {
                taking.leave(&row, &error);
                continue;
            }
            act => act,
        };
        let is_revocation = matches!(act, Ok(Unstored::Revoked { .. }));
        let noted = is_revocation.then(|| format!("{TAKEN_IN_ROW}{}", act_in(&row)));
        let is_known = match &noted {
            Some(noted) => {
                !brought.insert(noted.clone()) || known(store.get(noted).await)?.is_some()
            }
            None => false,
        };
        acts.push(Waiting {
            row,
            act,
            noted,
            is_known,
        });
    }
    let all = acts.len();
    while !acts.is_empty() {
        let page: Vec<Waiting> = acts.drain(..PAGE.min(acts.len())).collect();
        if let Err(fault) = take_in_page(desk, page).await {
            tracing::debug!(%fault, "an act of a CA cannot be taken in yet");
            return None;
        }
    }
    Some(all)
}

/// Takes in acts, and removes their rows in the same commit.
async fn take_in_page(desk: &DeskHandle, page: Vec<Waiting>) -> Result<(), Fault> {
    let taking = desk.run(move |desk, now| {
        for waiting in page {
            let Waiting {
                row,
                act,
                noted,
                is_known,
            } = waiting;
            let taken = match act {
                Ok(_) if is_known => Ok(()),
                Ok(act) => desk.take_in(act, now),
                Err(error) => Err(Fault::new(FaultCode::BadRequest, error.to_string())),
            };
            match taken {
                // There will be room later.
                Err(fault) if fault.code == FaultCode::Full => return Err(fault),
                Err(fault) => {
                    tracing::error!(%fault, row, "an act of a CA is not believed");
                }
                Ok(()) => {}
            }
            desk.ca.is_taken_in(row, noted, timestamp(now));
        }
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
