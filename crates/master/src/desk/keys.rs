//! The keys for sealed messages that agents stated: the latest key of each agent, in a row of its own. Senders verify the
//! keys that they get.

use std::collections::HashMap;

use sealbus_control::{Blob, Fault, FaultCode, PublishedKey};
use sealbus_seal::encryption::CertifiedEncryptionKey;
use sealbus_seal::{Certificate, Identity, PlatformName, Serial};
use sealbus_store::{Row, Rows};

/// Prefix of the rows that keep the keys.
pub(crate) const KEY_ROW: &str = "key/";

/// The stated keys by local name, with the rows that keep them.
#[derive(Default)]
pub(crate) struct Keys {
    stated: HashMap<String, Stated>,
    rows: Rows,
}

struct Stated {
    /// The certificate under which the key was stated.
    serial: Serial,
    key: Blob,
}

impl Keys {
    /// Loads the keys from their rows. Other rows are passed over. A row that cannot be read is as good as none: the agent
    /// states its key again.
    pub(crate) fn load<'r>(rows: impl IntoIterator<Item = (&'r str, &'r [u8])>) -> Self {
        let mut keys = Self::default();
        for (row, value) in rows {
            if let Some(agent) = row.strip_prefix(KEY_ROW)
                && let Some((_, serial)) = owner_of(value)
            {
                let key = Blob(value.to_vec());
                let stated = Stated { serial, key };
                keys.stated.insert(agent.to_owned(), stated);
            }
        }
        keys
    }

    /// Enters the key that an agent states. Under one certificate an agent states one key, so that the CA's limits bound
    /// this, too.
    ///
    /// # Errors
    /// If the bytes are not a key of this agent.
    pub(crate) fn put(
        &mut self,
        agent: &str,
        key: Blob,
        platform: &PlatformName,
    ) -> Result<(), Fault> {
        let wrong = |why: &str| {
            let message = format!("{agent} cannot state this key for sealed messages: {why}");
            Fault::new(FaultCode::BadRequest, message)
        };
        let (owner, serial) = owner_of(&key.0).ok_or_else(|| wrong("it cannot be read"))?;
        if Identity::agent(platform, agent).ok() != Some(owner) {
            return Err(wrong("it is another agent's"));
        }
        if self
            .stated
            .get(agent)
            .is_none_or(|held| held.serial != serial)
        {
            self.rows
                .put_bytes(format!("{KEY_ROW}{agent}"), key.0.clone());
            self.stated.insert(agent.to_owned(), Stated { serial, key });
        }
        Ok(())
    }

    /// The key that an agent stated last.
    pub(crate) fn of(&self, agent: &str) -> PublishedKey {
        PublishedKey {
            key: self.stated.get(agent).map(|stated| stated.key.clone()),
        }
    }

    /// Forgets the key of an agent that an operator revoked.
    pub(crate) fn forget(&mut self, agent: &str) {
        if self.stated.remove(agent).is_some() {
            self.rows.delete(format!("{KEY_ROW}{agent}"));
        }
    }

    /// Takes the changed rows.
    pub(super) fn take_rows(&mut self) -> Vec<Row> {
        self.rows.take()
    }
}

/// The agent that states a key, and the serial number of its certificate.
fn owner_of(key: &[u8]) -> Option<(Identity, Serial)> {
    let (stated, _) = CertifiedEncryptionKey::decode_with_package(key).ok()?;
    let leaf = Certificate::parse(stated.chain().leaf()).ok()?;
    Some((leaf.identity().clone(), leaf.serial()))
}
