//! The ports that a Master chooses once and keeps, in the store.

use sealbus_store::{Batch, Store, StoreError};
use serde::{Deserialize, Serialize};

/// The key of the row with the ports of the Master that led last.
const PORTS_ROW: &str = "ports";

/// The ports that were chosen once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) enrolment: u16,
    pub(super) agents: u16,
    /// Port of the control plane, where that has a process of its own.
    #[serde(default)]
    pub(super) control: u16,
    /// The instance that listens there, if there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<String>,
}

/// The ports that a Master is to use again.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) ports: Ports,
    /// Whether they are this Master's own. If not, it may choose others where they are in use.
    pub(super) are_own: bool,
    /// Whether this Master led last, or the platform has no other.
    pub(super) led_last: bool,
}

impl Kept {
    /// The port to use, by the operator's wish (0 for none) and what is kept; and whether another one will do.
    pub(super) fn choose(&self, wish: u16, kept: u16) -> (u16, bool) {
        match wish {
            0 => (kept, !self.are_own),
            wish => (wish, false),
        }
    }
}

fn row_of(instance: &str) -> String {
    format!("{PORTS_ROW}/{instance}")
}

async fn row(store: &dyn Store, key: &str) -> Result<Option<Ports>, StoreError> {
    let row = store.get(key).await?;
    Ok(row.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
}

/// The ports for a Master: its own, or those of the one that led last, because nodes know that one.
pub(super) async fn kept_ports(
    store: &dyn Store,
    instance: Option<&str>,
) -> Result<Kept, StoreError> {
    let last = row(store, PORTS_ROW).await?.unwrap_or_default();
    let led_last = last.instance.as_deref() == instance;
    let own = match instance {
        Some(instance) if !led_last => row(store, &row_of(instance)).await?,
        _ => None,
    };
    Ok(Kept {
        are_own: led_last || own.is_some(),
        led_last,
        ports: own.unwrap_or(last),
    })
}

/// Keeps the ports of the Master that leads now.
pub(super) async fn keep_ports(
    store: &dyn Store,
    kept: &Kept,
    ports: Ports,
) -> Result<(), StoreError> {
    if kept.led_last && kept.ports == ports {
        return Ok(());
    }
    let row = serde_json::to_vec(&ports).unwrap_or_default();
    let mut batch = Batch::new();
    if let Some(instance) = &ports.instance {
        batch.put(row_of(instance), row.clone());
    }
    batch.put(PORTS_ROW, row);
    store.commit(batch).await.map(|_| ())
}
