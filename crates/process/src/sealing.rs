//! Sealed messages: the keys of this process, and the keys of the agents that it writes to.

mod events;
mod memberships;
mod moving;
mod owned;
mod publishing;
mod waits;

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::{
    BoxFuture, Moment, NotOpened, NotSealed, Opened, OpenedRows, Patience, SealedMessage,
    SealedRow, Sealer, SentRows, WeakBus,
};
use sealbus_fipa::{AclMessage, AclMessageRef, split_name};
use sealbus_proof::Inclusion;
use sealbus_seal::encryption::{
    CertifiedEncryptionKey, EncryptionError, EncryptionKey, EncryptionPublicKey,
};
use sealbus_seal::{
    Certificate, Identity, PlatformName, SecurityLevel, Trust, VerifiedIdentity, VerifyError,
};

use super::certification::Certified;
use super::keyring::{KEPT, Keyring};
use super::now;
use events::Events;
use sealbus_control::attachment::ask;
use sealbus_control::host::Host;
use sealbus_control::names::SYSTEM_AGENTS;
use sealbus_control::{AgentLocation, Fault, FaultCode};
use waits::Waits;

/// The file with the keys, in the program's own folder.
const FILE: &str = "encryption-keys";
/// The most agents whose keys are known, or were waited for; and the most agents here that write to one of them.
const MOST: usize = 4096;
/// How long a message waits for the key of an agent that is about to run.
const PATIENCE: Duration = Patience::MOST;
/// The pause before a key is looked up, or stated, again.
const PAUSE: Duration = Duration::from_millis(200);

/// The [`Sealer`] of a process.
pub(super) struct ProcessSealer {
    host: Arc<dyn Host>,
    trust: Arc<Trust>,
    platform: PlatformName,
    level: SecurityLevel,
    bus: WeakBus,
    keyring: Mutex<Keyring>,
    /// The file with the keys, if the program has a folder.
    file: Option<PathBuf>,
    peers: Mutex<HashMap<String, Peer>>,
    waits: Mutex<Waits>,
    /// The rows that agents here have begun.
    sent: Mutex<SentRows>,
    /// The rows that others have begun with agents here.
    opened: Mutex<OpenedRows>,
    events: Mutex<Events>,
}

/// An agent to which messages are sealed.
pub(super) struct Peer {
    key: EncryptionPublicKey,
    /// The owner of the certificate under which the key was stated; `None` for an agent of this process.
    stated: Option<VerifiedIdentity>,
    /// The row of each sender.
    rows: HashMap<String, SealedRow>,
}

/// Why an agent has no usable key.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoKey {
    /// It has not stated a key that is valid now.
    #[error(transparent)]
    ForNow(NotSealed),
    /// There will be none, or the offered key must not be believed.
    #[error(transparent)]
    Refused(NotSealed),
}

impl From<EncryptionError> for NoKey {
    fn from(error: EncryptionError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<NotSealed> for NoKey {
    fn from(refused: NotSealed) -> Self {
        Self::Refused(refused)
    }
}

impl ProcessSealer {
    /// Reads the keys of the program's former run from its folder, if it has one.
    pub(super) fn open(
        host: Arc<dyn Host>,
        trust: Arc<Trust>,
        platform: PlatformName,
        level: SecurityLevel,
        bus: WeakBus,
    ) -> Arc<Self> {
        let file = host.folder().map(|folder| folder.join(FILE));
        let mut keyring = Keyring::default();
        if let Some(file) = &file {
            match read(file) {
                Ok(former) => keyring.take_over(former, now()),
                Err(error) => tracing::error!(file = %file.display(), %error,
                    "the keys for sealed messages cannot be read: messages that were sealed to them go back"),
            }
        }
        Arc::new(Self {
            host,
            trust,
            platform,
            level,
            bus,
            keyring: Mutex::new(keyring),
            file,
            peers: Mutex::default(),
            waits: Mutex::default(),
            sent: Mutex::default(),
            opened: Mutex::default(),
            events: Mutex::default(),
        })
    }

    /// The key to state under this certificate. It is on disk before it is stated.
    fn key_for(
        &self,
        certificate: &Certificate,
        lifetime: Duration,
    ) -> Result<Arc<EncryptionKey>, EncryptionError> {
        let mut keyring = self.keyring.lock();
        let until = certificate.not_after();
        let (key, is_new) = keyring.for_certificate(until, lifetime, now())?;
        if is_new {
            self.write(&keyring);
        }
        Ok(key)
    }

    fn write(&self, keyring: &Keyring) {
        let Some(file) = &self.file else { return };
        let written = match keyring.to_bytes() {
            Ok(bytes) => sealbus_files::write_private(file, &bytes),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        if let Err(error) = written {
            tracing::error!(file = %file.display(), %error,
                "the keys for sealed messages cannot be written: messages that wait for this program will go back when it starts again");
        }
    }

    /// Forgets keys and secrets that are over. Returns whether the process has none that will be over soon.
    pub(super) fn forget(&self) -> bool {
        let mut is_idle = self.forget_groups();
        let present = Instant::now();
        for peer in self.peers.lock().values_mut() {
            peer.rows.retain(|_, row| !row.is_over(present));
            is_idle &= peer.rows.is_empty();
        }
        self.waits.lock().forget(present);
        self.sent.lock().forget(present);
        self.opened.lock().forget(present);
        let mut keyring = self.keyring.lock();
        if keyring.forget(now()) {
            self.write(&keyring);
        }
        is_idle
    }

    /// The latest key of this process.
    fn own_key(&self) -> Result<EncryptionPublicKey, NotSealed> {
        let keyring = self.keyring.lock();
        let latest = keyring.latest().map(|key| key.public().clone());
        latest.ok_or_else(|| NotSealed("it has no key for sealed messages yet".to_owned()))
    }

    fn is_here(&self, agent: &str) -> bool {
        self.bus
            .upgrade()
            .is_some_and(|bus| bus.agent(agent).is_some())
    }

    /// Seals a message with a key that is known and valid.
    fn seal_now(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<SealedMessage>, NotSealed> {
        let sender = message.sender.as_ref().map_or("", |sender| &sender.name);
        let mut peers = self.peers.lock();
        let is_here = self.is_here(receiver);
        if is_here {
            let key = self.own_key()?;
            let known = peers.get(receiver);
            if known.is_none_or(|known| known.key != key || known.stated.is_some()) {
                let stated = None;
                note(&mut peers, receiver, Peer::new(key, stated));
            }
        }
        let Some(peer) = peers.get_mut(receiver) else {
            return Ok(None);
        };
        let is_good = match &peer.stated {
            Some(stated) => self.trust.check(stated, now()).is_ok(),
            None => is_here,
        };
        if !is_good {
            return Ok(None);
        }
        peer.seal(message, sender, receiver, Some(&self.sent))
            .map(Some)
    }

    /// The latest statement of an agent: its key, and its key package for groups.
    async fn published(
        &self,
        receiver: &str,
    ) -> Result<(Identity, CertifiedEncryptionKey, Vec<u8>), NoKey> {
        let identity = Identity::from_agent_name(receiver)
            .ok()
            .filter(|identity| *identity.platform() == self.platform);
        let local = receiver.rsplit_once('@').map(|(local, _)| local);
        let (Some(identity), Some(local)) = (identity, local) else {
            let why = format!(
                "it is an agent of another platform, and only agents of {} open sealed messages",
                self.platform
            );
            return Err(NoKey::Refused(NotSealed(why)));
        };
        let asking = ask::EncryptionKey {
            agent: local.to_owned(),
        };
        let published = self.host.ask(asking).await;
        let published = published.map_err(|fault| NoKey::Refused(NotSealed(fault.to_string())))?;
        let Some(key) = published.key else {
            return Err(NoKey::ForNow(NotSealed(
                "it has stated no key for sealed messages: it has never run, or its program cannot open them"
                    .to_owned(),
            )));
        };
        let (stated, package) = CertifiedEncryptionKey::decode_with_package(&key.0)?;
        let logged = Inclusion::check_of(stated.chain(), &self.trust);
        logged.map_err(|error| NoKey::Refused(NotSealed(error.to_string())))?;
        Ok((identity, stated, package.to_vec()))
    }

    /// Looks up the key of an agent. `kept`: the message waits for its receiver, which may be absent.
    pub(super) async fn look_up(&self, receiver: &str, kept: bool) -> Result<Peer, NoKey> {
        let not_sealed = |why: String| NoKey::ForNow(NotSealed(why));
        let (identity, stated, _) = self.published(receiver).await?;
        let now = now();
        match stated.verify(&identity, &self.trust, now) {
            Ok(key) => {
                let key = key.clone();
                let verified = self.trust.verify(stated.chain(), now);
                let verified = verified.map_err(EncryptionError::from)?;
                self.check_age(receiver, &verified)?;
                Ok(Peer::new(key, Some(verified)))
            }
            Err(_) if kept => {
                let (key, verified) = stated.verify_for_waiting(&identity, &self.trust, now)?;
                self.check_age(receiver, &verified)?;
                Ok(Peer::new(key.clone(), None))
            }
            Err(EncryptionError::NotVerified(
                error @ (VerifyError::Expired { .. } | VerifyError::Revoked { .. }),
            )) => Err(not_sealed(format!(
                "{error}. Is the agent running? A persistent message waits for it"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks up with patience for an agent that is about to run, because the platform may not know its statement yet.
    /// [`Waits`] limits the time for each agent.
    async fn patiently<T, F>(
        &self,
        agent: &str,
        begun: Instant,
        patience: Duration,
        look_up: impl Fn() -> F,
    ) -> Result<T, NotSealed>
    where
        F: Future<Output = Result<T, NoKey>>,
    {
        let patience = patience.min(self.waits.lock().left(agent, begun));
        loop {
            let missing = match look_up().await {
                Ok(found) => return Ok(found),
                Err(NoKey::Refused(refused)) => return Err(refused),
                Err(NoKey::ForNow(missing)) => missing,
            };
            if begun.elapsed() >= patience || !self.is_expected(agent).await {
                if begun.elapsed() >= PAUSE {
                    // Waits for other agents at the same time count, too, because one process may have them all.
                    self.waits.lock().spend(agent, begun, Instant::now());
                }
                return Err(missing);
            }
            tokio::time::sleep(PAUSE).await;
            self.waits.lock().spend(agent, begun, Instant::now());
        }
    }

    /// Whether the platform knows where the agent is, or that it is about to run.
    async fn is_expected(&self, receiver: &str) -> bool {
        let agent = split_name(receiver).0.to_owned();
        let location = self.host.ask(ask::Resolve { agent }).await;
        location.is_ok_and(|location| location != AgentLocation::Unknown)
    }

    /// Refuses a key that is older than the one known so far.
    fn check_age(&self, receiver: &str, verified: &VerifiedIdentity) -> Result<(), NotSealed> {
        let peers = self.peers.lock();
        let known = peers.get(receiver).and_then(|peer| peer.stated.as_ref());
        match known {
            Some(known) if verified.not_before() < known.not_before() => Err(NotSealed(format!(
                "the platform offers a key that {receiver} stated before the one that is known: its directory is not up to date, or dishonest"
            ))),
            _ => Ok(()),
        }
    }

    async fn seal(
        &self,
        message: &AclMessage,
        receiver: &str,
        kept: Option<Option<Moment>>,
    ) -> Result<SealedMessage, NotSealed> {
        if let Some(Some(from)) = kept {
            let latest = now().plus(KEPT).as_unix_seconds();
            if from.unix_ms() / 1000 > latest {
                return Err(NotSealed(format!(
                    "a sealed message can be valid from a moment within {} hours: its receiver forgets the key after that",
                    KEPT.as_secs() / 3600
                )));
            }
        }
        if let Some(sealed) = self.seal_now(message, receiver)? {
            return Ok(sealed);
        }
        let look_up = || self.look_up(receiver, kept.is_some());
        let found = self.patiently(receiver, Instant::now(), PATIENCE, look_up);
        let mut peer = found.await?;
        let sender = message.sender.as_ref().map_or("", |sender| &sender.name);
        // A letter to an absent agent always contains its secret, and its row is used once.
        let sent = (kept.is_none() || peer.stated.is_some()).then_some(&self.sent);
        let sealed = peer.seal(message, sender, receiver, sent)?;
        // The key of an absent agent is looked up for each message, because the agent may come back.
        if peer.stated.is_some() {
            note(&mut self.peers.lock(), receiver, peer);
        }
        Ok(sealed)
    }
}

/// Adds a peer. If there are too many, all others must be looked up again.
fn note(peers: &mut HashMap<String, Peer>, name: &str, peer: Peer) {
    if peers.len() >= MOST {
        peers.clear();
    }
    peers.insert(name.to_owned(), peer);
}

impl Peer {
    fn new(key: EncryptionPublicKey, stated: Option<VerifiedIdentity>) -> Self {
        Self {
            key,
            stated,
            rows: HashMap::new(),
        }
    }

    fn seal(
        &mut self,
        message: &AclMessage,
        sender: &str,
        receiver: &str,
        sent: Option<&Mutex<SentRows>>,
    ) -> Result<SealedMessage, NotSealed> {
        let now = Instant::now();
        if let Some(row) = self.rows.get_mut(sender)
            && !row.is_over(now)
        {
            return row.seal(message);
        }
        self.rows.retain(|_, row| !row.is_over(now));
        if self.rows.len() >= MOST {
            self.rows.clear();
        }
        let mut row = SealedRow::begin(&self.key, sender, receiver, now)?;
        if let Some(sent) = sent {
            sent.lock().note(&row);
        }
        let sealed = row.seal(message);
        self.rows.insert(sender.to_owned(), row);
        sealed
    }
}

impl Sealer for ProcessSealer {
    fn is_for_all(&self) -> bool {
        self.level >= SecurityLevel::Sealed
    }

    fn is_of_platform(&self, agent: &str) -> bool {
        agent.rsplit_once('@').is_some_and(|(local, platform)| {
            SYSTEM_AGENTS.contains(&local) && platform == self.platform.as_str()
        })
    }

    fn seal<'a>(
        &'a self,
        message: &'a AclMessage,
        receiver: &'a str,
        kept: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<SealedMessage, NotSealed>> {
        Box::pin(self.seal(message, receiver, kept))
    }

    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<SealedMessage>, NotSealed> {
        self.seal_now(message, receiver)
    }

    fn came_back(&self, payload: Bytes) -> Result<Bytes, NotSealed> {
        self.sent.lock().whole(payload)
    }

    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, NotOpened> {
        let key = |id| {
            let key = self.keyring.lock().find(id);
            key.ok_or_else(|| format!("{receiver} does not have the key {id} any more"))
        };
        self.opened
            .lock()
            .open(outer, receiver, Instant::now(), key)
    }
}

/// The keys in a file; empty if there is no file.
fn read(file: &Path) -> Result<Keyring, String> {
    match fs::read(file) {
        Ok(bytes) => {
            let bytes = zeroize::Zeroizing::new(bytes);
            Keyring::from_bytes(&bytes).map_err(|error| error.to_string())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Keyring::default()),
        Err(error) => Err(error.to_string()),
    }
}

fn unusable(error: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::BadRequest, error.to_string())
}

/// The statement that `key` is the key of this agent.
fn stated(key: &EncryptionKey, certified: &Certified) -> Result<Vec<u8>, EncryptionError> {
    let mut bytes = Vec::new();
    CertifiedEncryptionKey::sign(&certified.credential, key.public())?.encode(&mut bytes);
    Ok(bytes)
}
