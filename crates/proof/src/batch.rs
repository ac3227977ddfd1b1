//! The author's side: messages signed together.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_seal::{Credential, Fingerprint, Identity, IdentityKind, SecurityLevel, Serial};
use sealbus_transparency::{Hash, WholeTree, range_proof};

use crate::error::SignError;
use crate::proof::{Head, MAX_BATCH, Proof};
use crate::statement::BatchStatement;

/// Signs the messages of one agent with one certificate.
///
/// The signer numbers the messages from 0. A certificate and a number identify a message for ever, so make one signer
/// for each certificate.
#[derive(Debug)]
pub struct Signer {
    credential: Arc<Credential>,
    identity: Identity,
    author: String,
    serial: Serial,
    certificate: Fingerprint,
    level: SecurityLevel,
    next: AtomicU64,
}

/// Messages signed together.
#[derive(Clone, Debug)]
pub struct Batch {
    head: Head,
    tree: WholeTree,
}

impl Signer {
    /// A signer with an agent's key and certificate, for messages at `level`.
    ///
    /// # Errors
    /// [`SignError`] for certificates of others than agents, and for levels below `signed`.
    pub fn new(credential: Arc<Credential>, level: SecurityLevel) -> Result<Self, SignError> {
        if level < SecurityLevel::Signed {
            return Err(SignError::Level(level));
        }
        let certificate = credential.certificate()?;
        let identity = certificate.identity().clone();
        let author = match (identity.kind(), identity.agent_name()) {
            (IdentityKind::Agent, Some(name)) => name,
            _ => return Err(SignError::NotAnAgent(identity)),
        };
        Ok(Self {
            identity,
            author,
            serial: certificate.serial(),
            certificate: Fingerprint::of(credential.chain().leaf()),
            credential,
            level,
            next: AtomicU64::new(0),
        })
    }

    /// The author's credential.
    pub fn credential(&self) -> &Arc<Credential> {
        &self.credential
    }

    /// Signs statements, given by their [hashes](crate::Statement::hash), all at once.
    ///
    /// `time` is the author's clock, in milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// [`SignError`] if there are none or more than [`MAX_BATCH`], or if the key cannot sign.
    pub fn sign(&self, statements: Vec<Hash>, time: u64) -> Result<Batch, SignError> {
        let count = statements.len();
        let size = u16::try_from(count)
            .ok()
            .filter(|_| (1..=MAX_BATCH).contains(&count))
            .ok_or(SignError::Count {
                count,
                most: MAX_BATCH,
            })?;
        let tree = WholeTree::new(statements);
        let first = self.next.fetch_add(u64::from(size), Ordering::Relaxed);
        let statement = BatchStatement {
            platform: self.identity.platform(),
            level: self.level,
            author: &self.author,
            serial: self.serial,
            certificate: self.certificate,
            time,
            first,
            size,
            root: tree.root(),
        };
        let signature = self.credential.key().sign(&statement.encode())?;
        let head = Head {
            level: self.level,
            serial: self.serial,
            time,
            first,
            size,
            signature,
        };
        Ok(Batch { head, tree })
    }
}

impl Signer {
    /// Signs one statement, given by its [hash](crate::Statement::hash). Returns its evidence in the form that
    /// [`Evidence::decode`](crate::Evidence::decode) reads. Meant for what is kept or waits: a message that goes at
    /// once is signed with others.
    ///
    /// # Errors
    /// [`SignError`] if the key cannot sign.
    pub fn sign_one(&self, statement: Hash, time: u64) -> Result<Vec<u8>, SignError> {
        let proof = self.sign(vec![statement], time)?.proof(&(0..1))?;
        let mut out = Vec::new();
        self.credential.chain().encode(&mut out);
        proof.encode(&mut out);
        Ok(out)
    }
}

impl Batch {
    /// The proof of the statements at these places of the batch, which go to one receiver together.
    ///
    /// # Errors
    /// [`SignError::NotInBatch`] if the batch has no such places.
    pub fn proof(&self, places: &Range<usize>) -> Result<Proof, SignError> {
        let range = places.start as u64..places.end as u64;
        let outside =
            range_proof(&self.tree, self.tree.size(), &range).map_err(SignError::NotInBatch)?;
        // Both are within the batch, whose size fits.
        let place = |place: usize| u16::try_from(place).unwrap_or(u16::MAX);
        Ok(Proof {
            head: self.head,
            start: place(places.start),
            count: place(places.end - places.start),
            outside,
        })
    }
}
