//! The ports that a platform chooses once and keeps, in its store.

use sealbus_store::{Batch, Store, StoreError};
use serde::{Deserialize, Serialize};

/// The key of the row that keeps the ports.
const PORTS_ROW: &str = "ports";

/// The ports that were chosen once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) enrolment: u16,
    pub(super) agents: u16,
    /// Port of the control plane, where that has a process of its own.
    #[serde(default)]
    pub(super) control: u16,
}

pub(super) async fn kept_ports(store: &dyn Store) -> Result<Ports, StoreError> {
    let row = store.get(PORTS_ROW).await?;
    Ok(row
        .and_then(|entry| serde_json::from_slice(&entry.value).ok())
        .unwrap_or_default())
}

pub(super) async fn keep_ports(
    store: &dyn Store,
    kept: Ports,
    ports: Ports,
) -> Result<(), StoreError> {
    if kept == ports {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.put(PORTS_ROW, serde_json::to_vec(&ports).unwrap_or_default());
    store.commit(batch).await.map(|_| ())
}
