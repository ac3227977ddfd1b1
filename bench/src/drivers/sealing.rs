//! Level `sealed` without a Master: the two processes find each other's stated keys in the run's folder, where a
//! platform's processes ask the Master. Statements are verified, and secrets are kept, as a process does.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_bench_driver::Role;
use sealbus_bus::{BoxFuture, Envelope, Moment, NotSealed, Opened, SealedRow, Sealer, open_sealed};
use sealbus_fipa::{AclMessage, AclMessageRef};
use sealbus_seal::encryption::{
    CertifiedEncryptionKey, EncryptionKey, EncryptionPublicKey, Opening,
};
use sealbus_seal::{Credential, Identity, Timestamp, Trust};

use crate::drivers::stage::{DriverError, failed};

/// Most messages under one secret, as in a process of a platform.
const ROW: u64 = 1024;

/// A sender and a receiver.
type Names = (String, String);

/// A secret of a sender, with the encapsulation that it came from.
type Secret = (Vec<u8>, Opening);

/// The [`Sealer`] of one process.
pub(crate) struct Keys {
    own: EncryptionKey,
    trust: Arc<Trust>,
    /// Statements of the agents of the other process that were not needed yet.
    stated: Mutex<HashMap<String, CertifiedEncryptionKey>>,
    peers: Mutex<HashMap<String, EncryptionPublicKey>>,
    /// The secrets of senders here, and those of senders there, by sender and receiver.
    rows: Mutex<HashMap<Names, SealedRow>>,
    openings: Mutex<HashMap<Names, Secret>>,
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
            own: EncryptionKey::generate().map_err(failed)?,
            trust,
            stated: Mutex::default(),
            peers: Mutex::default(),
            rows: Mutex::default(),
            openings: Mutex::default(),
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

    fn seal_now(&self, message: &AclMessage, receiver: &str) -> Result<AclMessage, NotSealed> {
        let sender = message.sender.as_ref().map_or("", |sender| &sender.name);
        let names = (sender.to_owned(), receiver.to_owned());
        let mut rows = self.rows.lock();
        if let Some(row) = rows.get_mut(&names)
            && row.length() < ROW
        {
            return row.seal(message);
        }
        let mut row = SealedRow::begin(&self.key_of(receiver)?, sender, receiver)?;
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
    ) -> BoxFuture<'a, Result<AclMessage, NotSealed>> {
        Box::pin(async move { self.seal_now(message, receiver) })
    }

    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<AclMessage>, NotSealed> {
        self.seal_now(message, receiver).map(Some)
    }

    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, String> {
        let mut openings = self.openings.lock();
        let mut used = None;
        let secret = |envelope: &Envelope<'_>, sender: &str| {
            let names = (sender.to_owned(), receiver.to_owned());
            let known = openings.remove(&names);
            used = Some((names, envelope.encapsulation.to_vec()));
            match known {
                Some((encapsulation, opening)) if encapsulation == envelope.encapsulation => {
                    Ok(opening)
                }
                _ => envelope
                    .opening(&self.own, sender, receiver)
                    .map_err(|error| error.to_string()),
            }
        };
        let (opened, opening) = open_sealed(outer, secret)?;
        if let Some((names, encapsulation)) = used {
            openings.insert(names, (encapsulation, opening));
        }
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use sealbus_fipa::{Aid, Content, Performative, bitefficient};

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

    fn opened(keys: &Keys, sealed: &AclMessage) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        bitefficient::encode(sealed, &mut bytes).unwrap();
        let limits = sealbus_fipa::Limits::default();
        let outer = bitefficient::EncodedMessage::new(bytes, &limits).unwrap();
        let opened = keys.open(&outer.message(), RECEIVER)?;
        let content = opened.message.message().content_bytes().unwrap().to_vec();
        Ok(content)
    }

    fn content(message: &AclMessage) -> &[u8] {
        match &message.content {
            Some(Content::Bytes(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_share_a_secret_and_come_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let [senders, receivers] = pair(folder.path(), None);
        let encapsulations: Vec<Vec<u8>> = (0..3)
            .map(|number| {
                let text = format!("the price is {number}");
                let sealed = senders.seal_now(&message(&text), RECEIVER).unwrap();
                assert_eq!(opened(&receivers, &sealed).unwrap(), text.as_bytes());
                let bytes = content(&sealed);
                assert!(!bytes.windows(text.len()).any(|it| it == text.as_bytes()));
                Envelope::parse(bytes).unwrap().encapsulation.to_vec()
            })
            .collect();
        assert!(encapsulations.windows(2).all(|it| it[0] == it[1]));
    }

    #[test]
    fn each_changed_byte_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [senders, receivers] = pair(folder.path(), None);
        let sealed = senders
            .seal_now(&message("the price is seven"), RECEIVER)
            .unwrap();
        for at in 0..content(&sealed).len() {
            let mut changed = sealed.clone();
            if let Some(Content::Bytes(bytes)) = &mut changed.content {
                bytes[at] ^= 1;
            }
            assert!(opened(&receivers, &changed).is_err(), "byte {at}");
        }
        assert!(opened(&receivers, &sealed).is_ok());
    }

    #[test]
    fn nothing_is_sealed_to_a_key_that_another_authority_certified() {
        let folder = tempfile::tempdir().unwrap();
        let other = Authority::create().unwrap();
        let [senders, _] = pair(folder.path(), Some(&other));
        assert!(senders.seal_now(&message("one"), RECEIVER).is_err());
    }
}
