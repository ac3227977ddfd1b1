//! The deny list: certificates revoked before their time, signed and pushed to every process.
//!
//! A list names certificates by serial number, and identities by a date: every certificate of the identity that starts
//! before that date is denied. The version of a list only ever grows. An entry is forgotten once the certificates that
//! it denies have expired anyway. A list thus stays as short as lifetimes are.

use std::collections::HashMap;
use std::time::Duration;

use thiserror::Error;

use crate::authority::IssuingAuthority;
use crate::certificate::{Certificate, CertificateChain, CertificateError, Serial};
use crate::identity::{Identity, IdentityError};
use crate::key::{KeyError, Signature};
use crate::timestamp::Timestamp;
use crate::verify_error::VerifyError;

pub use crate::denial::{Denial, Reason};

/// The most entries a list may hold.
pub const MAX_ENTRIES: usize = 100_000;

/// The longest signed list that is read, in bytes.
pub const MAX_SIGNED_LENGTH: usize = 16 * 1024 * 1024;

/// Denials outlive the certificates that they deny by this much, for clocks that are slow.
const AFTERLIFE: Duration = Duration::from_secs(600);
const ONE_SECOND: Duration = Duration::from_secs(1);

const CONTEXT: &[u8] = b"sealbus deny list v1\0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    denial: Denial,
    forget_after: Timestamp,
}

/// The entries that one authority denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyList {
    authority: Identity,
    version: u64,
    serials: HashMap<Serial, Entry>,
    /// The identities whose certificates are denied if they start before the time.
    identities: HashMap<Identity, (Timestamp, Entry)>,
}

/// The outcome of a received list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyListUpdate {
    /// The list is in force now.
    Applied {
        /// The list's version.
        version: u64,
    },
    /// The list was in force already.
    AlreadyHeld {
        /// The list's version.
        version: u64,
    },
}

/// Why a deny list was not changed or not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DenyListError {
    /// The list holds [`MAX_ENTRIES`] already.
    #[error(
        "the deny list is full with {MAX_ENTRIES} entries: shorten certificate lifetimes, so that entries expire, or replace the issuing CA"
    )]
    Full,
    /// Only the authority itself signs its list.
    #[error("{signer} cannot sign the deny list of {authority}")]
    NotItsOwn {
        /// The authority of the list.
        authority: Identity,
        /// The expected signer.
        signer: Identity,
    },
    /// The key could not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The bytes are not a signed deny list.
    #[error("not a deny list: {0}")]
    Malformed(&'static str),
    /// The chain in it is unreadable.
    #[error("not a deny list: {0}")]
    Chain(#[from] CertificateError),
    /// A name in it is not legal.
    #[error("not a deny list: {0}")]
    Name(#[from] IdentityError),
    /// The list's authority is not trusted.
    #[error("the authority of this deny list is not trusted: {0}")]
    NotTrusted(#[from] VerifyError),
    /// The list is not signed by the authority that it names.
    #[error("the deny list of {0} is not signed by it")]
    NotSigned(Identity),
    /// A newer list is in force.
    #[error(
        "the deny list of {authority} has version {received}, which is older than version {held} held here"
    )]
    Stale {
        /// The authority of the list.
        authority: Identity,
        /// The version in force.
        held: u64,
        /// The version received.
        received: u64,
    },
}

impl DenyList {
    /// An empty list of an authority, version 0.
    pub fn new(authority: Identity) -> Self {
        Self {
            authority,
            version: 0,
            serials: HashMap::new(),
            identities: HashMap::new(),
        }
    }

    /// The authority of the list.
    pub fn authority(&self) -> &Identity {
        &self.authority
    }

    /// The list's version, which grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Makes the version at least this. An authority may continue from an older copy of its list. If it counts versions
    /// from the time, it passes the versions that it has given out since.
    pub fn raise_version(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.serials.len() + self.identities.len()
    }

    /// Whether nothing is denied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Denies one certificate, which expires at `not_after`.
    pub fn deny_serial(
        &mut self,
        serial: Serial,
        not_after: Timestamp,
        denial: Denial,
    ) -> Result<(), DenyListError> {
        if self.serials.contains_key(&serial) {
            return Ok(());
        }
        self.make_room(denial.at)?;
        self.serials.insert(
            serial,
            Entry {
                denial,
                forget_after: not_after.plus(AFTERLIFE),
            },
        );
        self.version += 1;
        Ok(())
    }

    /// Denies an identity. Its actions until `denial.at` are denied, such as messages that still wait, and its
    /// certificates that start before `before`. The denial is remembered until `not_after`, and a while longer.
    pub fn deny_identity_before(
        &mut self,
        identity: Identity,
        before: Timestamp,
        not_after: Timestamp,
        denial: Denial,
    ) -> Result<(), DenyListError> {
        let forget_after = not_after.plus(AFTERLIFE);
        let (before, forget_after) = match self.identities.get(&identity) {
            Some((held, entry)) => (before.max(*held), forget_after.max(entry.forget_after)),
            None => {
                self.make_room(denial.at)?;
                (before, forget_after)
            }
        };
        let entry = Entry {
            denial,
            forget_after,
        };
        self.identities.insert(identity, (before, entry));
        self.version += 1;
        Ok(())
    }

    /// Denies every certificate of an identity that exists at the moment of the denial. The last of them expires at
    /// `not_after`.
    ///
    /// A later certificate must not start before `denial.at`: see [`DenyList::denied_before`] and
    /// [`Validity::not_before_at_least`](crate::Validity::not_before_at_least).
    pub fn deny_identity(
        &mut self,
        identity: Identity,
        not_after: Timestamp,
        denial: Denial,
    ) -> Result<(), DenyListError> {
        // This lies beyond the start of certificates issued after an earlier denial in the same second.
        let before = match self.denied_before(&identity) {
            Some(held) => denial.at.max(held.plus(ONE_SECOND)),
            None => denial.at,
        };
        self.deny_identity_before(identity, before, not_after, denial)
    }

    fn make_room(&mut self, now: Timestamp) -> Result<(), DenyListError> {
        if self.len() >= MAX_ENTRIES {
            self.prune(now);
        }
        if self.len() >= MAX_ENTRIES {
            Err(DenyListError::Full)
        } else {
            Ok(())
        }
    }

    /// Forgets entries whose certificates have expired. Returns whether any did.
    pub fn prune(&mut self, now: Timestamp) -> bool {
        let before = self.len();
        self.serials.retain(|_, entry| entry.forget_after >= now);
        self.identities
            .retain(|_, (_, entry)| entry.forget_after >= now);
        let pruned = self.len() < before;
        self.version += u64::from(pruned);
        pruned
    }

    /// Whether a certificate is denied, by its serial number or by its owner and start. O(1).
    pub fn denied(
        &self,
        identity: &Identity,
        serial: Serial,
        not_before: Timestamp,
    ) -> Option<Denial> {
        self.denied_serial(serial).or_else(|| {
            let (before, entry) = self.identities.get(identity)?;
            (not_before < *before).then_some(entry.denial)
        })
    }

    /// Whether a certificate is denied by its serial number. O(1).
    pub fn denied_serial(&self, serial: Serial) -> Option<Denial> {
        self.serials.get(&serial).map(|entry| entry.denial)
    }

    /// The time before which certificates of `identity` may not start.
    pub fn denied_before(&self, identity: &Identity) -> Option<Timestamp> {
        self.identities.get(identity).map(|(before, _)| *before)
    }

    /// The last denial of an identity as a whole. O(1).
    pub fn denied_identity(&self, identity: &Identity) -> Option<Denial> {
        self.identities.get(identity).map(|(_, entry)| entry.denial)
    }

    /// All denied serial numbers, in no order.
    pub fn serials(&self) -> impl Iterator<Item = (Serial, Denial)> + '_ {
        self.serials
            .iter()
            .map(|(serial, entry)| (*serial, entry.denial))
    }

    /// All denied identities with the start that their certificates need, in no order.
    pub fn identities(&self) -> impl Iterator<Item = (&Identity, Timestamp, Denial)> + '_ {
        self.identities
            .iter()
            .map(|(identity, (before, entry))| (identity, *before, entry.denial))
    }

    /// The list with its authority's certificate and signature. This form is pushed to processes. The CA also keeps it,
    /// to continue from after a restart.
    pub fn sign(&self, authority: &IssuingAuthority) -> Result<Vec<u8>, DenyListError> {
        if *authority.identity() != self.authority {
            return Err(DenyListError::NotItsOwn {
                authority: self.authority.clone(),
                signer: authority.identity().clone(),
            });
        }
        let mut out = Vec::with_capacity(1024 + self.serials.len() * 33);
        out.extend_from_slice(CONTEXT);
        authority.chain().encode(&mut out);
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&(self.serials.len() as u32).to_be_bytes());
        for (serial, entry) in &self.serials {
            out.extend_from_slice(serial.as_bytes());
            entry.encode(&mut out);
        }
        out.extend_from_slice(&(self.identities.len() as u32).to_be_bytes());
        for (identity, (before, entry)) in &self.identities {
            let identity = identity.to_string();
            out.extend_from_slice(&(identity.len() as u16).to_be_bytes());
            out.extend_from_slice(identity.as_bytes());
            out.extend_from_slice(&before.as_unix_seconds().to_be_bytes());
            entry.encode(&mut out);
        }
        let signature = authority.key().sign(&out)?;
        out.extend_from_slice(signature.as_bytes());
        Ok(out)
    }

    /// Reads a signed list. `verify` says whether the chain in it leads to a trusted authority, and gives that authority's
    /// certificate: see [`Trust::open_deny_list`](crate::Trust::open_deny_list).
    pub(crate) fn open(
        signed: &[u8],
        verify: impl FnOnce(&[u8]) -> Result<Certificate, VerifyError>,
    ) -> Result<Self, DenyListError> {
        let (list, chain, content, signature) = Self::decode(signed)?;
        let authority = verify(chain.leaf())?;
        if !authority.public_key().verifies(content, &signature) {
            return Err(DenyListError::NotSigned(list.authority));
        }
        Ok(list)
    }

    /// Reads a signed list without believing it.
    fn decode(signed: &[u8]) -> Result<(Self, CertificateChain, &[u8], Signature), DenyListError> {
        const SHORT: DenyListError = DenyListError::Malformed("it is cut short");
        if signed.len() > MAX_SIGNED_LENGTH {
            return Err(DenyListError::Malformed("it is longer than 16 MiB"));
        }
        let (content, signature) = signed.split_last_chunk::<64>().ok_or(SHORT)?;
        let rest = content
            .strip_prefix(CONTEXT)
            .ok_or(DenyListError::Malformed("it does not begin as one"))?;
        let (chain, rest) = CertificateChain::decode_prefix(rest)?;
        let mut list = Self::new(chain.certificate()?.identity().clone());
        let mut reader = Reader(rest);
        list.version = reader.u64()?;
        for _ in 0..reader.count()? {
            let serial = Serial::from_bytes(reader.take()?);
            let entry = reader.entry()?;
            if list.serials.insert(serial, entry).is_some() {
                return Err(DenyListError::Malformed(
                    "a serial number stands in it twice",
                ));
            }
        }
        for _ in 0..reader.count()? {
            let length = usize::from(u16::from_be_bytes(reader.take()?));
            let (identity, rest) = reader.0.split_at_checked(length).ok_or(SHORT)?;
            reader.0 = rest;
            let identity: Identity = std::str::from_utf8(identity)
                .map_err(|_| DenyListError::Malformed("an identity in it is not UTF-8"))?
                .parse()?;
            let before = Timestamp::from_unix_seconds(reader.u64()?);
            let entry = reader.entry()?;
            if list.identities.insert(identity, (before, entry)).is_some() {
                return Err(DenyListError::Malformed("an identity stands in it twice"));
            }
        }
        if !reader.0.is_empty() {
            return Err(DenyListError::Malformed("other bytes follow it"));
        }
        Ok((list, chain, content, Signature::from_bytes(*signature)))
    }
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.denial.at.as_unix_seconds().to_be_bytes());
        out.push(self.denial.reason as u8);
        out.extend_from_slice(&self.forget_after.as_unix_seconds().to_be_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DenyListError> {
        let (taken, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DenyListError::Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, DenyListError> {
        self.take().map(u64::from_be_bytes)
    }

    fn count(&mut self) -> Result<usize, DenyListError> {
        let count = u32::from_be_bytes(self.take()?) as usize;
        if count > MAX_ENTRIES {
            return Err(DenyListError::Malformed("it has too many entries"));
        }
        Ok(count)
    }

    fn entry(&mut self) -> Result<Entry, DenyListError> {
        let at = Timestamp::from_unix_seconds(self.u64()?);
        let [reason] = self.take()?;
        let reason = *Reason::ALL
            .get(usize::from(reason))
            .ok_or(DenyListError::Malformed("it gives an unknown reason"))?;
        let forget_after = Timestamp::from_unix_seconds(self.u64()?);
        Ok(Entry {
            denial: Denial { at, reason },
            forget_after,
        })
    }
}
