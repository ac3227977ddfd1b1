//! Work that is done although the store does not answer. A file of this machine keeps the CA's acts meanwhile.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sealbus_ca::Unstored;
use sealbus_control::{Fault, FaultCode, UnixMillis};
use sealbus_store::StoreError;

use super::{Desk, DeskHandle};
use crate::unstored::Ledger;

/// The file, and whether the store is away.
#[derive(Default)]
pub(super) struct Keeping {
    ledger: OnceLock<Arc<Ledger>>,
    /// The members and the last attempt of [`StoreError::Away`].
    away: Mutex<Option<(String, String)>>,
}

impl Keeping {
    /// The error of a store that is known to be away.
    pub(super) fn away(&self) -> Option<StoreError> {
        let away = self.away.lock().clone();
        away.map(|(members, detail)| StoreError::Away { members, detail })
    }
}

impl DeskHandle {
    /// From now on, this file keeps the acts that are not stored.
    pub(crate) fn keep_in(&self, ledger: Arc<Ledger>) {
        // There is one ledger.
        let _ = self.keeping.ledger.set(ledger);
    }

    /// Notes whether the store answers. While it does not, nothing waits for it.
    pub(crate) fn store_answers(&self, found: &Result<(), StoreError>) {
        *self.keeping.away.lock() = match found {
            Err(StoreError::Away { members, detail }) => Some((members.clone(), detail.clone())),
            _ => None,
        };
    }

    /// Checks that the store is not known to be away. If it is away, operators need not wait for it.
    ///
    /// # Errors
    /// [`FaultCode::Storage`]. Nothing was done.
    pub(crate) fn check_store(&self) -> Result<(), Fault> {
        match self.keeping.away() {
            None => Ok(()),
            Some(error) => Err(Fault::new(FaultCode::Storage, error.to_string())
                .advise("nothing was done: ask again when it answers")),
        }
    }

    /// As [`order`](Self::order). If the store does not take the changes, the act that `work` returns is kept in the file, and
    /// counts. Returns whether the changes are in the store.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub(crate) async fn run_or_keep<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk, UnixMillis) -> Result<(T, Option<Unstored>), Fault>
        + Send
        + 'static,
    ) -> Result<(T, bool), Fault> {
        let (written, result) = self.submit(true, work).await?;
        match (written, result, self.keeping.ledger.get()) {
            (Ok(()), result, _) => result.map(|(done, _)| (done, true)),
            (Err(fault), Ok((done, Some(act))), Some(ledger))
                if fault.code == FaultCode::Storage =>
            {
                ledger.keep(act).await?;
                Ok((done, false))
            }
            (Err(fault), ..) => Err(fault),
        }
    }
}
