//! Keys that move with their agents. The former process seals them to the new one, which proves to be the same agent.
//! It adds the secrets of the rows whose messages the agent has not read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use sealbus_bus::{OpenedRow, ReceivedMessage};
use sealbus_proof::Inclusion;
use sealbus_seal::encryption::{CertifiedEncryptionKey, Encapsulation, Opening, Sealing as Sealed};
use sealbus_seal::{Certificate, Identity};
use zeroize::Zeroizing;

use super::{ProcessSealer, stated, unusable};
use crate::certification::Certified;
use crate::freeze::Resting;
use crate::keyring::{Keyring, NotAKeyring};
use crate::{Shared, now};
use sealbus_control::attachment::ask;
use sealbus_control::{Blob, Fault, FaultCode, SealedKeys};

/// The most bytes of a row besides its sender's name; and of the length and the end of the sealed data.
const ROW: usize = 64;

/// The context that the keys of a moving process are bound to: the agent that states the key to which they are sealed.
fn context_of_keys(agent: &str) -> Vec<u8> {
    [b"sealbus former keys v2\0", agent.as_bytes()].concat()
}

impl ProcessSealer {
    /// Seals the keys of this process to the key that `agent`, which moves with these messages, has stated in its new
    /// process.
    fn hand_over<'m>(
        &self,
        stated: &[u8],
        agent: &Identity,
        unread: impl Iterator<Item = &'m ReceivedMessage>,
    ) -> Result<SealedKeys, Fault> {
        let stated = CertifiedEncryptionKey::decode(stated).map_err(unusable)?;
        Inclusion::check_of(stated.chain(), &self.trust).map_err(unusable)?;
        let key = stated.verify(agent, &self.trust, now()).map_err(unusable)?;
        let info = context_of_keys(&agent.to_string());
        let (encapsulation, mut sealing) = Sealed::begin(key, &info).map_err(unusable)?;
        let keyring = self.keyring.lock().to_bytes().map_err(unusable)?;
        let rows = rows_of(unread);
        let of_rows: usize = rows.iter().map(|row| ROW + row.sender().len()).sum();
        // The buffer never grows, so no unsealed copy stays behind.
        let mut keys = Vec::with_capacity(keyring.len() + of_rows + ROW);
        let length = u32::try_from(keyring.len()).map_err(unusable)?;
        keys.extend_from_slice(&length.to_be_bytes());
        keys.extend_from_slice(&keyring);
        for row in rows {
            row.encode(&mut keys);
        }
        sealing.seal(&[], &mut keys).map_err(unusable)?;
        Ok(SealedKeys {
            encapsulation: Blob(encapsulation.as_bytes().to_vec()),
            sealed: Blob(keys),
        })
    }

    /// Takes over the keys of the process from which an agent moved. They were sealed to the key that the agent states
    /// here.
    async fn take_over(&self, agent: &Identity, certified: &Certified) -> Result<(), Fault> {
        let key = self
            .key_for(&certified.certificate, certified.lifetime)
            .map_err(unusable)?;
        let asking = ask::FormerKeys {
            key: Blob(stated(&key, certified).map_err(unusable)?),
        };
        let SealedKeys {
            encapsulation,
            sealed,
        } = self.host.ask(asking).await?;
        let encapsulation = Encapsulation::from_bytes(&encapsulation.0).map_err(unusable)?;
        let info = context_of_keys(&agent.to_string());
        let mut opening = Opening::begin(&key, &encapsulation, &info).map_err(unusable)?;
        let mut keys = Zeroizing::new(sealed.0);
        let former = opening.open(&[], &mut keys).map_err(unusable)?;
        let (former, rows) = parted(former, agent).ok_or_else(|| unusable(NotAKeyring))?;
        {
            let mut opened = self.opened.lock();
            for row in rows {
                opened.keep(row, Instant::now());
            }
        }
        let mut keyring = self.keyring.lock();
        keyring.take_over(former, now());
        self.write(&keyring);
        Ok(())
    }
}

/// The rows that these messages need, each once.
fn rows_of<'m>(unread: impl Iterator<Item = &'m ReceivedMessage>) -> Vec<&'m Arc<OpenedRow>> {
    let mut known = HashSet::new();
    let rows = unread.filter_map(ReceivedMessage::row);
    rows.filter(|row| known.insert((row.sender(), row.id())))
        .collect()
}

/// The keys and the rows that a former process handed over.
fn parted(bytes: &[u8], agent: &Identity) -> Option<(Keyring, Vec<OpenedRow>)> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = u32::from_be_bytes(*length).try_into().ok()?;
    let (keyring, mut rest) = rest.split_at_checked(length)?;
    let agent = agent.agent_name()?;
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let (row, after) = OpenedRow::decode(rest, &agent)?;
        rows.push(row);
        rest = after;
    }
    Some((Keyring::from_bytes(keyring).ok()?, rows))
}

impl Shared {
    /// Hands the keys for sealed messages over to the process in which the agents at rest go on.
    pub(crate) fn former_keys(&self, stated: &[u8]) -> Result<SealedKeys, Fault> {
        let resting = self.resting.lock();
        let is_none = || Fault::new(FaultCode::NotPermitted, "no agent of this process moves");
        let sealing = self.sealing.as_ref().ok_or_else(is_none)?;
        let owner = CertifiedEncryptionKey::decode(stated).map_err(unusable)?;
        let owner = Certificate::parse(owner.chain().leaf()).map_err(unusable)?;
        let is_moving = |resting: &&Resting| owner.identity().is_agent_named(resting.name());
        match resting.iter().find(is_moving) {
            Some(resting) => sealing.hand_over(stated, owner.identity(), resting.unread()),
            None => Err(is_none()),
        }
    }

    /// Fetches the former keys of an agent that moved here. They open the messages that it brings along.
    pub(crate) async fn take_over_keys(&self, certified: &Certified) {
        let Some(sealing) = &self.sealing else { return };
        let agent = certified.certificate.identity();
        if let Err(fault) = sealing.take_over(agent, certified).await {
            tracing::warn!(%agent, %fault,
                "its former process did not hand over its keys: sealed messages that were on their way go back");
        }
    }
}
