//! A signed deny list, whole or as changes, in the form in which it is sent and kept:
//!
//! ```text
//! context ‖ chain ‖ version ‖ forgotten ‖ number of serials ‖ of identities ‖ digest ‖ signature of all before it
//! ‖ the version that the following changes ‖ serials ‖ identities
//! ```
//!
//! The changes of version 0 are the whole list. The version that changes follow is not signed: if changes do not lead
//! to the signed digest, they are not believed, whatever version they claim to follow.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use super::changes::{Changed, Changes};
use super::entries::{Entry, encode_serial};
use super::{
    Denial, DeniedIdentity, DenyList, DenyListError, LONGEST_SIGNED, MOST_ENTRIES, Reason,
    encode_identity,
};
use crate::Hash;
use crate::authority::IssuingAuthority;
use crate::certificate::{Certificate, Serial};
use crate::chain::CertificateChain;
use crate::identity::Identity;
use crate::timestamp::Timestamp;
use crate::verify_error::VerifyError;

const CONTEXT: &[u8] = b"sealbus deny list v2\0";
const SHORT: DenyListError = DenyListError::Malformed("it is cut short");

/// A deny list with the certificate and the signature of its authority.
#[derive(Clone, Debug)]
pub struct SignedDenyList {
    list: DenyList,
    /// The signed part and its signature.
    head: Arc<[u8]>,
}

/// A signed list, or changes to one, as received.
pub(crate) struct ReceivedDenyList<'r> {
    authority: Identity,
    chain: CertificateChain,
    version: u64,
    forgotten: Timestamp,
    /// The numbers of serials and of identities on the list.
    counts: (usize, usize),
    digest: Hash,
    signed: &'r [u8],
    signature: &'r [u8],
    head: &'r [u8],
    since: u64,
    serials: Vec<(Serial, Entry)>,
    identities: Vec<(Identity, DeniedIdentity)>,
}

impl DenyList {
    /// Signs the present list.
    ///
    /// # Errors
    /// [`DenyListError::NotItsOwn`], or [`DenyListError::Key`].
    pub fn sign(&self, authority: &IssuingAuthority) -> Result<SignedDenyList, DenyListError> {
        if *authority.identity() != self.authority {
            return Err(DenyListError::NotItsOwn {
                authority: self.authority.clone(),
                signer: authority.identity().clone(),
            });
        }
        let mut head = CONTEXT.to_vec();
        authority.chain().encode(&mut head);
        head.extend_from_slice(&self.version.to_be_bytes());
        head.extend_from_slice(&self.forgotten.as_unix_seconds().to_be_bytes());
        for count in [self.serials.len(), self.identities.len()] {
            head.extend_from_slice(&(count as u32).to_be_bytes());
        }
        head.extend_from_slice(&self.digest());
        let signature = authority.key().sign(&head)?;
        head.extend_from_slice(&signature);
        Ok(SignedDenyList {
            list: self.clone(),
            head: head.into(),
        })
    }
}

impl SignedDenyList {
    /// The whole list.
    pub fn whole(&self) -> Vec<u8> {
        let list = &self.list;
        self.encode(0, list.serials.iter(), list.identities.iter())
    }

    /// The changes since an older version, or the whole list if not all of them are known. Only the authority's own
    /// list knows changes.
    pub fn since(&self, version: u64) -> Vec<u8> {
        let list = &self.list;
        let Some(changes) = list.changes.since(version) else {
            return self.whole();
        };
        let changed: BTreeSet<&Changed> = changes.collect();
        // Changed entries may have been forgotten since.
        let serials = changed.iter().filter_map(|changed| match changed {
            Changed::Serial(serial) => Some((serial, list.serials.get(serial)?)),
            Changed::Identity(_) => None,
        });
        let identities = changed.iter().filter_map(|changed| match changed {
            Changed::Identity(identity) => Some((identity, list.identities.get(identity)?)),
            Changed::Serial(_) => None,
        });
        self.encode(version, serials, identities)
    }

    /// The list itself, so that it can be changed and signed again.
    pub fn into_list(self) -> DenyList {
        self.list
    }

    fn encode<'e>(
        &self,
        since: u64,
        serials: impl Iterator<Item = (&'e Serial, &'e Entry)>,
        identities: impl Iterator<Item = (&'e Identity, &'e DeniedIdentity)>,
    ) -> Vec<u8> {
        let mut out = self.head.to_vec();
        out.extend_from_slice(&since.to_be_bytes());
        counted(&mut out, serials, |(serial, entry), out| {
            encode_serial(serial, entry, out);
        });
        counted(&mut out, identities, |(identity, denied), out| {
            encode_identity(identity, denied, out);
        });
        out
    }
}

/// Encodes the number of items, and the items.
fn counted<T>(out: &mut Vec<u8>, items: impl Iterator<Item = T>, encode: impl Fn(T, &mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0_u32;
    for item in items {
        encode(item, out);
        count += 1;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
}

impl Deref for SignedDenyList {
    type Target = DenyList;

    fn deref(&self) -> &DenyList {
        &self.list
    }
}

impl<'r> ReceivedDenyList<'r> {
    /// Reads a list or changes without checking the signature.
    pub(crate) fn read(received: &'r [u8]) -> Result<Self, DenyListError> {
        if received.len() > LONGEST_SIGNED {
            return Err(DenyListError::Malformed("it is longer than 16 MiB"));
        }
        let rest = received
            .strip_prefix(CONTEXT)
            .ok_or(DenyListError::Malformed("it does not begin as one"))?;
        let (chain, rest) = CertificateChain::decode_prefix(rest)?;
        let certificate = chain.certificate()?;
        let algorithm = certificate.public_key().algorithm();
        let authority = certificate.identity().clone();
        let mut reader = Reader(rest);
        let version = reader.u64()?;
        let forgotten = reader.timestamp()?;
        let counts = (reader.count()?, reader.count()?);
        let digest = reader.take()?;
        let signed = &received[..received.len() - reader.0.len()];
        let signature = reader.bytes(algorithm.signature_length())?;
        let head = &received[..received.len() - reader.0.len()];
        let since = reader.u64()?;
        let mut serials = Vec::new();
        for _ in 0..reader.count()? {
            serials.push((Serial::from_bytes(reader.take()?), reader.entry()?));
        }
        let mut identities = Vec::new();
        for _ in 0..reader.count()? {
            identities.push(reader.identity()?);
        }
        if !reader.0.is_empty() {
            return Err(DenyListError::Malformed("other bytes follow it"));
        }
        Ok(Self {
            authority,
            chain,
            version,
            forgotten,
            counts,
            digest,
            signed,
            signature,
            head,
            since,
            serials,
            identities,
        })
    }

    /// Checks that a trusted authority signed it. `verify` checks that a certificate is that of a trusted authority,
    /// and reads it.
    pub(crate) fn verify(
        self,
        verify: impl FnOnce(&[u8]) -> Result<Certificate, VerifyError>,
    ) -> Result<Self, DenyListError> {
        let authority = verify(self.chain.leaf())?;
        if !authority.public_key().verifies(self.signed, self.signature) {
            return Err(DenyListError::NotSigned(self.authority));
        }
        Ok(self)
    }

    pub(crate) fn authority(&self) -> &Identity {
        &self.authority
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether these are all entries, and not only changes to an older list.
    pub(crate) fn is_whole(&self) -> bool {
        self.since == 0
    }

    /// Whether `list` has exactly the signed entries.
    pub(crate) fn holds(&self, list: &DenyList) -> bool {
        let counts = (list.serials.len(), list.identities.len());
        counts == self.counts && list.digest() == self.digest
    }

    /// The list that was signed. If these are changes, they continue `held`, the list in force.
    pub(crate) fn continue_from(
        self,
        held: Option<&DenyList>,
    ) -> Result<SignedDenyList, DenyListError> {
        let mut list = match held {
            _ if self.since == 0 => DenyList::new(self.authority.clone()),
            Some(held) if held.authority == self.authority && held.version >= self.since => {
                held.clone()
            }
            held => {
                return Err(DenyListError::Gap {
                    authority: self.authority,
                    held: held.map_or(0, DenyList::version),
                    since: self.since,
                });
            }
        };
        for (serial, entry) in &self.serials {
            list.serials.insert(*serial, *entry);
        }
        for (identity, denied) in &self.identities {
            list.identities.insert(identity.clone(), *denied);
        }
        // An authority makes no entry that is over already. So all entries are searched only when it forgets some.
        if list.forgotten != self.forgotten {
            list.forget(self.forgotten);
            list.forgotten = self.forgotten;
        }
        list.version = self.version;
        list.changes = Changes::after(self.version);
        if !self.holds(&list) {
            return Err(DenyListError::Diverged {
                authority: self.authority,
                version: self.version,
            });
        }
        Ok(SignedDenyList {
            list,
            head: self.head.into(),
        })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], DenyListError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DenyListError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, DenyListError> {
        self.take().map(u64::from_be_bytes)
    }

    fn timestamp(&mut self) -> Result<Timestamp, DenyListError> {
        self.u64().map(Timestamp::from_unix_seconds)
    }

    fn count(&mut self) -> Result<usize, DenyListError> {
        let count = u32::from_be_bytes(self.take()?) as usize;
        if count > MOST_ENTRIES {
            return Err(DenyListError::Malformed("it has too many entries"));
        }
        Ok(count)
    }

    fn entry(&mut self) -> Result<Entry, DenyListError> {
        let at = self.timestamp()?;
        let [reason] = self.take()?;
        let reason = *Reason::ALL
            .get(usize::from(reason))
            .ok_or(DenyListError::Malformed("it gives an unknown reason"))?;
        Ok(Entry {
            denial: Denial { at, reason },
            forget_after: self.timestamp()?,
        })
    }

    fn identity(&mut self) -> Result<(Identity, DeniedIdentity), DenyListError> {
        let length = usize::from(u16::from_be_bytes(self.take()?));
        let identity = std::str::from_utf8(self.bytes(length)?)
            .map_err(|_| DenyListError::Malformed("an identity in it is not UTF-8"))?
            .parse()?;
        let before = self.timestamp()?;
        let entry = self.entry()?;
        Ok((identity, DeniedIdentity { before, entry }))
    }
}
