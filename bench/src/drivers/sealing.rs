//! Level `sealed` without a Master: the two processes find each other's stated keys in the run's folder, where a
//! platform's processes ask the Master. Statements are verified, and secrets are kept, as a process does.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bench_driver::Role;
use sealbus_bus::{
    BoxFuture, Moment, NotOpened, NotSealed, Opened, OpenedRows, SealedMessage, SealedRow, Sealer,
    SentRows,
};
use sealbus_fipa::{AclMessage, AclMessageRef};
use sealbus_seal::encryption::{CertifiedEncryptionKey, EncryptionKey, EncryptionPublicKey};
use sealbus_seal::{Credential, Identity, Timestamp, Trust};

use crate::drivers::stage::{DriverError, failed};

/// A sender and a receiver.
type Names = (String, String);

/// The [`Sealer`] of one process.
pub(crate) struct Keys {
    own: Arc<EncryptionKey>,
    trust: Arc<Trust>,
    /// Statements of the agents of the other process that were not needed yet.
    stated: Mutex<HashMap<String, CertifiedEncryptionKey>>,
    peers: Mutex<HashMap<String, EncryptionPublicKey>>,
    /// The rows of senders here, and those of senders there.
    rows: Mutex<HashMap<Names, SealedRow>>,
    sent: Mutex<SentRows>,
    opened: Mutex<OpenedRows>,
}

fn file(folder: &str, role: Role) -> PathBuf {
    let name = match role {
        Role::Send => "keys-of-senders",
        Role::Receive | Role::Both => "keys-of-receivers",
    };
    Path::new(folder).join(name)
}

impl Keys {
    pub(crate) fn new(trust: Arc<Trust>) -> Result<Self, DriverError> {
        Ok(Self {
            own: Arc::new(EncryptionKey::generate().map_err(failed)?),
            trust,
            stated: Mutex::default(),
            peers: Mutex::default(),
            rows: Mutex::default(),
            sent: Mutex::default(),
            opened: Mutex::default(),
        })
    }

    /// States the key for the agents of this process, for the other process.
    pub(crate) fn publish(
        &self,
        folder: &str,
        role: Role,
        agents: &[(String, Arc<Credential>)],
    ) -> Result<(), DriverError> {
        let mut all = Vec::new();
        for (name, credential) in agents {
            let stated =
                CertifiedEncryptionKey::sign(credential, self.own.public()).map_err(failed)?;
            let mut bytes = Vec::new();
            stated.encode(&mut bytes);
            all.push((name, bytes));
        }
        let text = serde_json::to_vec(&all).map_err(failed)?;
        Ok(std::fs::write(file(folder, role), text)?)
    }

    /// Reads the other process's statements. They are verified when they are needed.
    pub(crate) fn learn(&self, folder: &str, other: Role) -> Result<(), DriverError> {
        let text = std::fs::read(file(folder, other))?;
        let all: Vec<(String, Vec<u8>)> = serde_json::from_slice(&text).map_err(failed)?;
        let mut stated = self.stated.lock();
        for (name, bytes) in all {
            let statement = CertifiedEncryptionKey::decode(&bytes).map_err(failed)?;
            stated.insert(name, statement);
        }
        Ok(())
    }

    fn key_of(&self, agent: &str) -> Result<EncryptionPublicKey, NotSealed> {
        if let Some(key) = self.peers.lock().get(agent) {
            return Ok(key.clone());
        }
        let stated = self.stated.lock().remove(agent);
        let stated = stated.ok_or_else(|| NotSealed(format!("{agent} has stated no key")))?;
        let identity = Identity::from_agent_name(agent);
        let identity = identity.map_err(|error| NotSealed(error.to_string()))?;
        let now = Timestamp::from(std::time::SystemTime::now());
        let key = stated.verify(&identity, &self.trust, now)?.clone();
        self.peers.lock().insert(agent.to_owned(), key.clone());
        Ok(key)
    }

    fn seal_now(&self, message: &AclMessage, receiver: &str) -> Result<SealedMessage, NotSealed> {
        let now = Instant::now();
        let sender = message.sender.as_ref().map_or("", |sender| &sender.name);
        let names = (sender.to_owned(), receiver.to_owned());
        let mut rows = self.rows.lock();
        if let Some(row) = rows.get_mut(&names)
            && !row.is_over(now)
        {
            return row.seal(message);
        }
        let mut row = SealedRow::begin(&self.key_of(receiver)?, sender, receiver, now)?;
        self.sent.lock().note(&row);
        let sealed = row.seal(message);
        rows.insert(names, row);
        sealed
    }
}

impl Sealer for Keys {
    fn is_for_all(&self) -> bool {
        true
    }

    fn is_of_platform(&self, _agent: &str) -> bool {
        false
    }

    fn seal<'a>(
        &'a self,
        message: &'a AclMessage,
        receiver: &'a str,
        _kept: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<SealedMessage, NotSealed>> {
        Box::pin(async move { self.seal_now(message, receiver) })
    }

    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<SealedMessage>, NotSealed> {
        self.seal_now(message, receiver).map(Some)
    }

    fn came_back(&self, payload: Bytes) -> Result<Bytes, NotSealed> {
        self.sent.lock().whole(payload)
    }

    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, NotOpened> {
        let key = |id| match id == self.own.public().id() {
            true => Ok(self.own.clone()),
            false => Err(format!("this process does not have the key {id}")),
        };
        self.opened
            .lock()
            .open(outer, receiver, Instant::now(), key)
    }
}

#[cfg(test)]
mod tests {
    use sealbus_bus::SessionNumber;
    use sealbus_fipa::{Aid, Performative, bitefficient};

    use super::*;
    use crate::mesh::credentials::Authority;

    const SENDER: &str = "sender-0@bench";
    const RECEIVER: &str = "receiver-0@bench";

    /// The two processes of a run; the second one believes another authority if it is given.
    fn pair(folder: &Path, believed: Option<&Authority>) -> [Keys; 2] {
        let authority = Authority::create().unwrap();
        let trust = believed.unwrap_or(&authority).trust().unwrap();
        let senders = Keys::new(trust).unwrap();
        let receivers = Keys::new(authority.trust().unwrap()).unwrap();
        let folder = folder.to_str().unwrap();
        let identity = Identity::from_agent_name(RECEIVER).unwrap();
        let stating = [(RECEIVER.to_owned(), authority.credential(identity).unwrap())];
        receivers.publish(folder, Role::Receive, &stating).unwrap();
        senders.learn(folder, Role::Receive).unwrap();
        [senders, receivers]
    }

    fn message(content: &str) -> AclMessage {
        AclMessage::new(Performative::Inform)
            .with_sender(Aid::new(SENDER).unwrap())
            .with_receiver(Aid::new(RECEIVER).unwrap())
            .with_content(content)
    }

    fn opened(keys: &Keys, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let limits = sealbus_fipa::Limits::default();
        let outer = bitefficient::EncodedMessage::new(sealed, &limits);
        let outer = outer.map_err(|error| error.to_string())?;
        let opened = keys.open(&outer.message(), RECEIVER);
        let opened = opened.map_err(|error| error.to_string())?;
        let content = opened.message.message().content_bytes().unwrap().to_vec();
        Ok(content)
    }

    #[test]
    fn messages_share_a_secret_and_come_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let [senders, receivers] = pair(folder.path(), None);
        let lengths: Vec<usize> = (0..3)
            .map(|number| {
                let text = format!("the price is {number}");
                let sealed = senders.seal_now(&message(&text), RECEIVER).unwrap();
                let bytes = sealed.bytes();
                assert_eq!(opened(&receivers, bytes).unwrap(), text.as_bytes());
                assert!(!bytes.windows(text.len()).any(|it| it == text.as_bytes()));
                sealed.went_over(SessionNumber::next());
                bytes.len()
            })
            .collect();
        assert!(lengths[0] > lengths[1] + 1000 && lengths[1] == lengths[2]);
        assert_eq!(receivers.opened.lock().count(), 1);
    }

    #[test]
    fn each_changed_byte_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [senders, receivers] = pair(folder.path(), None);
        let sealed = senders
            .seal_now(&message("the price is seven"), RECEIVER)
            .unwrap();
        for at in 0..sealed.bytes().len() {
            let mut changed = sealed.bytes().to_vec();
            changed[at] ^= 1;
            assert!(opened(&receivers, &changed).is_err(), "byte {at}");
        }
        assert!(opened(&receivers, sealed.bytes()).is_ok());
    }

    #[test]
    fn nothing_is_sealed_to_a_key_that_another_authority_certified() {
        let folder = tempfile::tempdir().unwrap();
        let other = Authority::create().unwrap();
        let [senders, _] = pair(folder.path(), Some(&other));
        assert!(senders.seal_now(&message("one"), RECEIVER).is_err());
    }
}
