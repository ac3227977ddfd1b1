//! The authors' side: messages of several agents of a process, signed together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_seal::{Credential, Fingerprint, IdentityKind, PlatformName, SecurityLevel, Serial};
use sealbus_transparency::{Hash, LogError, inclusion_proof, tree_root};

use crate::delegation::BatchKeyDelegation;
use crate::error::SignError;
use crate::key::{BatchKey, BatchPublicKey};
use crate::proof::{MOST_MESSAGES, Proof};
use crate::statement::{AuthorEntry, BatchStatement, Certified};

/// Numbers the messages of one agent under one certificate, and holds the agent's delegation to the key that signs them.
///
/// The signer numbers the messages from 0. A certificate and a number identify a message for ever, so make one signer
/// for each certificate.
#[derive(Debug)]
pub struct Signer {
    credential: Arc<Credential>,
    key: Arc<BatchKey>,
    delegation: BatchKeyDelegation,
    /// The entry of the author's next messages. Its count is 0.
    entry: AuthorEntry,
    next: AtomicU64,
}

impl Signer {
    /// A signer for an agent with this key and certificate. The agent delegates to the `key` of its process.
    ///
    /// # Errors
    /// [`SignError`] for certificates of others than agents, for levels below `signed`, and if a key cannot be made or
    /// cannot sign.
    pub fn new(credential: Arc<Credential>, key: Arc<BatchKey>) -> Result<Self, SignError> {
        if key.level() < SecurityLevel::Signed {
            return Err(SignError::Level(key.level()));
        }
        let certificate = credential.certificate()?;
        let identity = certificate.identity();
        let author = match (identity.kind(), identity.agent_name()) {
            (IdentityKind::Agent, Some(name)) => name,
            _ => return Err(SignError::NotAnAgent(identity.clone())),
        };
        let entry = AuthorEntry {
            serial: certificate.serial(),
            certificate: Fingerprint::of(credential.chain().leaf()),
            first: 0,
            count: 0,
        };
        let certified = Certified {
            platform: identity.platform(),
            author: &author,
            serial: entry.serial,
            certificate: entry.certificate,
        };
        Ok(Self {
            delegation: BatchKeyDelegation::make(&credential, &certified, &key)?,
            credential,
            key,
            entry,
            next: AtomicU64::new(0),
        })
    }

    /// The author's credential.
    pub fn credential(&self) -> &Arc<Credential> {
        &self.credential
    }

    /// The serial number of the author's certificate.
    pub fn serial(&self) -> Serial {
        self.entry.serial
    }

    /// The key that signs for the author.
    pub fn key(&self) -> &Arc<BatchKey> {
        &self.key
    }

    /// The author's delegation to this key.
    pub fn delegation(&self) -> &BatchKeyDelegation {
        &self.delegation
    }

    /// Signs one statement, given by its [hash](crate::Statement::hash). Returns its evidence in the form that
    /// [`Evidence::decode`](crate::Evidence::decode) reads. Use this for messages that are kept or wait. A message that
    /// goes at once is signed with others.
    ///
    /// # Errors
    /// [`SignError`] if the key cannot sign.
    pub fn sign_one(&self, statement: Hash, time: u64) -> Result<Vec<u8>, SignError> {
        let signed = sign_together(&[(self, &[statement])], time)?;
        signed.into_iter().next().ok_or(SignError::NoAuthor)
    }
}

/// Signs statements of authors of one process, given by their [hashes](crate::Statement::hash), with one signature. Returns
/// the evidence of each in the form that [`Evidence::decode`](crate::Evidence::decode) reads: author by author, in order.
///
/// `time` is the process's clock, in milliseconds since 1970-01-01T00:00:00Z.
///
/// # Errors
/// [`SignError`] if an author has no statement, if there are too many, or if the key cannot sign.
pub fn sign_together(authors: &[(&Signer, &[Hash])], time: u64) -> Result<Vec<Vec<u8>>, SignError> {
    let (first, _) = authors.first().ok_or(SignError::NoAuthor)?;
    let mut batch = Batch::new(first.key.clone());
    let mut entries = Vec::with_capacity(authors.len());
    for (signer, statements) in authors {
        entries.push(batch.add(signer, statements)?);
    }
    let batch = batch.sign(time)?;
    let mut evidence = Vec::with_capacity(batch.leaves.len());
    for (author, ((signer, statements), entry)) in authors.iter().zip(&entries).enumerate() {
        for place in 0..statements.len() {
            let proof = batch.proof(&signer.delegation, entry, author, statements, place)?;
            let mut out = Vec::new();
            signer.credential.chain().encode(&mut out);
            proof.encode(&mut out);
            evidence.push(out);
        }
    }
    Ok(evidence)
}

/// A batch to which authors add their messages.
#[derive(Debug)]
pub struct Batch {
    key: Arc<BatchKey>,
    leaves: Vec<Hash>,
    messages: usize,
}

/// A signed batch: the root of its tree, and the facts that all its messages share.
#[derive(Clone, Debug)]
pub struct SignedBatch {
    pub(crate) level: SecurityLevel,
    pub(crate) key: BatchPublicKey,
    pub(crate) time: u64,
    pub(crate) signature: Box<[u8]>,
    /// The hashes of the authors' entries.
    pub(crate) leaves: Vec<Hash>,
}

impl Batch {
    /// An empty batch, to be signed with this key.
    pub fn new(key: Arc<BatchKey>) -> Self {
        Self {
            key,
            leaves: Vec::new(),
            messages: 0,
        }
    }

    /// Adds statements of one author, given by their [hashes](crate::Statement::hash). Returns the author's entry, which
    /// numbers them.
    ///
    /// # Errors
    /// [`SignError::Count`] if there are none, or if the batch would have more than [`MOST_MESSAGES`] messages.
    pub fn add(&mut self, signer: &Signer, statements: &[Hash]) -> Result<AuthorEntry, SignError> {
        let all = self.messages + statements.len();
        let count = u16::try_from(statements.len())
            .ok()
            .filter(|count| *count > 0 && all <= MOST_MESSAGES)
            .ok_or(SignError::Count {
                count: all,
                most: MOST_MESSAGES,
            })?;
        let first = signer.next.fetch_add(u64::from(count), Ordering::Relaxed);
        let entry = AuthorEntry {
            first,
            count,
            ..signer.entry
        };
        self.messages = all;
        self.leaves.push(entry.leaf(statements));
        Ok(entry)
    }

    /// Signs all statements at once.
    ///
    /// `time` is the process's clock, in milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// [`SignError`] if the batch is empty, or if the key cannot sign.
    pub fn sign(self, time: u64) -> Result<SignedBatch, SignError> {
        if self.leaves.is_empty() {
            return Err(SignError::Count {
                count: 0,
                most: MOST_MESSAGES,
            });
        }
        let (level, leaves) = (self.key.level(), self.leaves);
        let (key, signature) = self.key.sign(|key| {
            let statement = BatchStatement {
                platform: self.key.platform(),
                level,
                key,
                time,
                authors: leaves.len() as u64,
                root: tree_root(&leaves),
            };
            statement.encode()
        })?;
        Ok(SignedBatch {
            level,
            key,
            time,
            signature,
            leaves,
        })
    }
}

impl SignedBatch {
    /// A batch of another process: nothing of it was checked. `leaves` are the hashes of its authors' entries.
    pub fn received(
        level: SecurityLevel,
        key: BatchPublicKey,
        time: u64,
        signature: &[u8],
        leaves: Vec<Hash>,
    ) -> Self {
        Self {
            level,
            key,
            time,
            signature: signature.into(),
            leaves,
        }
    }

    /// When the process says it signed, in milliseconds since 1970-01-01T00:00:00Z.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The key that signed.
    pub fn key(&self) -> &BatchPublicKey {
        &self.key
    }

    /// The signature. Its length follows from the key's algorithm.
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    pub(crate) fn statement(&self, platform: &PlatformName) -> Vec<u8> {
        let statement = BatchStatement {
            platform,
            level: self.level,
            key: &self.key,
            time: self.time,
            authors: self.leaves.len() as u64,
            root: tree_root(&self.leaves),
        };
        statement.encode()
    }

    /// The proof of the statement at `place` among the `statements` of one author. This author's entry is at the place
    /// `author` in the batch.
    ///
    /// # Errors
    /// [`SignError::NotInBatch`] if the batch has no such places.
    pub fn proof(
        &self,
        delegation: &BatchKeyDelegation,
        entry: &AuthorEntry,
        author: usize,
        statements: &[Hash],
        place: usize,
    ) -> Result<Proof, SignError> {
        let of = |hashes: &[Hash], place: usize| {
            let path = inclusion_proof(hashes, hashes.len() as u64, place as u64);
            path.map_err(SignError::NotInBatch)
        };
        let number = |number: usize| {
            u16::try_from(number).map_err(|_| {
                SignError::NotInBatch(LogError::Beyond {
                    wanted: number as u64,
                    size: MOST_MESSAGES as u64,
                })
            })
        };
        Ok(Proof {
            level: self.level,
            delegation: delegation.clone(),
            time: self.time,
            authors: number(self.leaves.len())?,
            author: number(author)?,
            serial: entry.serial,
            first: entry.first,
            count: number(statements.len())?,
            place: number(place)?,
            beside: of(statements, place)?,
            above: of(&self.leaves, author)?,
            signature: self.signature.clone(),
        })
    }
}
