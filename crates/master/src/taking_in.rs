//! A Master that leads on a shared store: it looks whether it still does, and takes in what CAs did while they did not know the
//! state.

use std::sync::Arc;
use std::time::Duration;

use sealbus_ca::Unstored;
use sealbus_control::{Fault, FaultCode};
use sealbus_store::{Fenced, Store, StoreError};
use tokio::sync::watch;

use super::desk::DeskHandle;
use super::unstored::{Ledger, UNSTORED_ROW};

/// How often it looks whether it still leads.
const LOOK: Duration = Duration::from_secs(1);
/// How often it looks what other CAs did. Operators wait for what they revoked there.
const TAKING_IN: Duration = Duration::from_millis(250);
/// Acts that are taken in at a time.
const PAGE: usize = 64;

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
    loop {
        if let Err(error) = ledger.hand_in(&*store, &authority).await {
            tracing::debug!(%error, "what the CA did is not stored yet");
        }
        match store.scan(UNSTORED_ROW, None, PAGE).await {
            Ok(rows) => {
                for (key, entry) in rows {
                    if let Err(fault) = take_in_one(&desk, key, &entry.value).await {
                        tracing::debug!(%fault, "what a CA did cannot be taken in yet");
                        break;
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "what other CAs did is not known"),
        }
        tokio::time::sleep(TAKING_IN).await;
    }
}

/// Takes in one act, and removes its row in the same commit.
async fn take_in_one(desk: &DeskHandle, key: String, row: &[u8]) -> Result<(), Fault> {
    let act = serde_json::from_slice::<Unstored>(row);
    let taking = desk.run(move |desk, now| {
        let taken = match act {
            Ok(act) => desk.take_in(act, now),
            Err(error) => Err(Fault::new(FaultCode::BadRequest, error.to_string())),
        };
        match taken {
            // There will be room.
            Err(fault) if fault.code == FaultCode::Full => return Err(fault),
            Err(fault) => tracing::error!(%fault, row = key, "what a CA did is not believed"),
            Ok(()) => {}
        }
        desk.ca.is_taken_in(key);
        Ok(())
    });
    taking.await
}
