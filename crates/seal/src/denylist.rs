//! The deny list: certificates revoked before their time, signed and pushed to every process.
//!
//! A list names certificates by serial number, and identities by a date: all certificates of the identity that start
//! before that date are denied. The version of a list only grows. An entry is forgotten once the certificates that it
//! denies have expired anyway. So short lifetimes keep a list short.
//!
//! An authority signs the version and a digest of all entries ([`SignedDenyList`]). A list is sent whole, or as the
//! changes since an older version. Both come with the signed digest, and the receiver computes the digest of the list
//! that it then has. The cost of a change depends on its entries, and not on the length of the list.

mod changes;
mod entries;
mod signed;
mod version;

use std::time::Duration;

use thiserror::Error;

use crate::Hash;
use crate::certificate::{CertificateError, Serial};
use crate::identity::{Identity, IdentityError};
use crate::key::KeyError;
use crate::timestamp::Timestamp;
use crate::verify_error::VerifyError;

use changes::{Changed, Changes};
use entries::{Entry, Paged, Pages, encode_serial};

pub use crate::denial::{Denial, Reason};
pub(crate) use signed::ReceivedDenyList;
pub use signed::SignedDenyList;
pub use version::{latest_version, version_at};

/// The longest signed list that is read, in bytes.
pub const LONGEST_SIGNED: usize = 16 * 1024 * 1024;
/// The bytes for the entries of a list. The rest is for the authority's chain and signature.
pub const ROOM: usize = LONGEST_SIGNED - 64 * 1024;
/// The length of an entry that denies one certificate, in bytes. No entry is shorter.
pub const SERIAL_ENTRY: usize = 33;
/// The most entries that a list can have, if none is longer than the shortest.
pub const MOST_ENTRIES: usize = ROOM / SERIAL_ENTRY;

/// Denials outlive the certificates that they deny by this much, in case clocks are slow.
const AFTERLIFE: Duration = Duration::from_secs(600);
const ONE_SECOND: Duration = Duration::from_secs(1);

/// The entries that one authority denies. A copy shares the entries with its original until one of the two changes.
#[derive(Clone, Debug)]
pub struct DenyList {
    authority: Identity,
    version: u64,
    /// Entries whose certificates had expired long before this time are forgotten.
    forgotten: Timestamp,
    serials: Pages<Serial, Entry>,
    identities: Pages<Identity, DeniedIdentity>,
    changes: Changes,
}

/// An identity whose certificates are denied if they start before a time.
#[derive(Clone, Copy, Debug)]
struct DeniedIdentity {
    before: Timestamp,
    entry: Entry,
}

impl DeniedIdentity {
    /// Whether this denies something that `known` does not.
    fn exceeds(&self, known: &Self) -> bool {
        self.before > known.before || self.entry.denial.at > known.entry.denial.at
    }

    /// Everything that both deny. If an earlier denial arrives late, the later one stays in force.
    fn and(self, held: &Self) -> Self {
        let denial = match held.entry.denial.at > self.entry.denial.at {
            true => held.entry.denial,
            false => self.entry.denial,
        };
        let forget_after = self.entry.forget_after.max(held.entry.forget_after);
        Self {
            before: self.before.max(held.before),
            entry: Entry {
                denial,
                forget_after,
            },
        }
    }
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

/// The reason why a deny list was not changed or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DenyListError {
    /// The entries already take all [`ROOM`].
    #[error(
        "the deny list is full with {entries} entries: shorten certificate lifetimes, so that entries expire, or replace the issuing CA"
    )]
    Full {
        /// The number of entries.
        entries: usize,
    },
    /// Only the authority itself can sign its list.
    #[error("{signer} cannot sign the deny list of {authority}")]
    NotItsOwn {
        /// The authority of the list.
        authority: Identity,
        /// The authority that was asked to sign.
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
    /// The changes follow a version that is not held here.
    #[error(
        "changes to the deny list of {authority} since version {since} cannot be applied to version {held} held here: the whole list is needed"
    )]
    Gap {
        /// The authority of the list.
        authority: Identity,
        /// The version in force; 0 if none.
        held: u64,
        /// The version that the changes follow.
        since: u64,
    },
    /// The entries differ from the signed ones.
    #[error(
        "the entries of the deny list of {authority} are not those that it signed as version {version}: the whole list is needed"
    )]
    Diverged {
        /// The authority of the list.
        authority: Identity,
        /// The version received.
        version: u64,
    },
}

impl DenyListError {
    /// Whether the receiver needs the whole list, because changes do not fit the list that it holds.
    pub fn needs_whole_list(&self) -> bool {
        matches!(self, Self::Gap { .. } | Self::Diverged { .. })
    }
}

impl DenyList {
    /// An empty list of an authority, version 0.
    pub fn new(authority: Identity) -> Self {
        Self {
            authority,
            version: 0,
            forgotten: Timestamp::default(),
            serials: Pages::default(),
            identities: Pages::default(),
            changes: Changes::default(),
        }
    }

    /// The list of the authority that replaces this one's. It denies the same, and its version is higher, so that a
    /// holder of this list does not take it for an older one.
    #[must_use]
    pub fn succeeded_by(self, authority: Identity) -> Self {
        let version = self.version.saturating_add(1);
        Self {
            authority,
            version,
            // Nobody has an earlier list of this authority that changes could follow.
            changes: Changes::after(version),
            ..self
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

    /// Forgets which changes were made, so that a holder of an earlier version gets the whole list. Needed if an
    /// authority continues from an older copy of its list, because it does not know the contents of that version.
    pub fn forget_changes(&mut self) {
        self.changes = Changes::after(self.version);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.serials.len() + self.identities.len()
    }

    /// The length of all entries, in bytes.
    pub fn bytes(&self) -> usize {
        self.serials.bytes() + self.identities.bytes()
    }

    /// Whether nothing is denied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Denies one certificate, which expires at `not_after`. If there is a denial already, it stays and is remembered
    /// until then.
    pub fn deny_serial(
        &mut self,
        serial: Serial,
        not_after: Timestamp,
        denial: Denial,
    ) -> Result<(), DenyListError> {
        let forget_after = not_after.plus(AFTERLIFE).max(self.forgotten);
        let denial = match self.serials.get(&serial) {
            Some(held) if held.forget_after >= forget_after => return Ok(()),
            Some(held) => held.denial,
            None => {
                self.make_room(serial.entry_length(), denial.at)?;
                denial
            }
        };
        let entry = Entry {
            denial,
            forget_after,
        };
        self.serials.insert(serial, entry);
        self.changed(Changed::Serial(serial));
        Ok(())
    }

    /// Denies an identity: its actions until `denial.at`, such as messages that still wait, and its certificates that
    /// start before `before`. The denial is remembered until a while after `not_after`. It never shortens an existing
    /// denial.
    pub fn deny_identity_before(
        &mut self,
        identity: Identity,
        before: Timestamp,
        not_after: Timestamp,
        denial: Denial,
    ) -> Result<(), DenyListError> {
        let entry = Entry {
            denial,
            forget_after: not_after.plus(AFTERLIFE).max(self.forgotten),
        };
        self.deny_too(identity, DeniedIdentity { before, entry }, denial.at)
    }

    /// Adds a denial to what is denied of an identity already.
    fn deny_too(
        &mut self,
        identity: Identity,
        denied: DeniedIdentity,
        now: Timestamp,
    ) -> Result<(), DenyListError> {
        let denied = match self.identities.get(&identity) {
            Some(held) => denied.and(held),
            None => {
                self.make_room(identity.entry_length(), now)?;
                denied
            }
        };
        self.identities.insert(identity.clone(), denied);
        self.changed(Changed::Identity(identity));
        Ok(())
    }

    /// Denies all certificates of an identity that exist at the moment of the denial. The last of them expires at
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
        // This is later than the start of certificates issued after an earlier denial in the same second.
        let before = match self.denied_before(&identity) {
            Some(held) => denial.at.max(held.plus(ONE_SECOND)),
            None => denial.at,
        };
        self.deny_identity_before(identity, before, not_after, denial)
    }

    fn changed(&mut self, what: Changed) {
        self.version = self.version.saturating_add(1);
        self.changes.note(self.version, what);
    }

    fn make_room(&mut self, length: usize, now: Timestamp) -> Result<(), DenyListError> {
        let is_full = |list: &Self| list.bytes() + length > ROOM;
        if is_full(self) {
            self.prune(now);
        }
        if is_full(self) {
            let entries = self.len();
            return Err(DenyListError::Full { entries });
        }
        Ok(())
    }

    /// Forgets entries whose certificates have expired. Returns whether any did.
    pub fn prune(&mut self, now: Timestamp) -> bool {
        let pruned = self.forget(now.max(self.forgotten));
        self.version = self.version.saturating_add(u64::from(pruned));
        pruned
    }

    /// Forgets entries that are not needed at `time`.
    fn forget(&mut self, time: Timestamp) -> bool {
        let before = self.len();
        self.serials.forget(|entry| entry.forget_after < time);
        self.identities
            .forget(|denied| denied.entry.forget_after < time);
        let forgot = self.len() < before;
        if forgot {
            self.forgotten = time;
        }
        forgot
    }

    /// Whether this list has denials that a newer list of the same authority lacks and should have. If so, the authority went
    /// on from an older copy of its list. Entries that the newer list has forgotten for their age do not count.
    pub fn outlasts(&self, newer: &Self) -> bool {
        let lives = |entry: &Entry| entry.forget_after >= newer.forgotten;
        let mut serials = self.serials.iter();
        let mut identities = self.identities.iter();
        serials.any(|(serial, entry)| {
            let known = newer.serials.get(serial);
            lives(entry) && known.is_none_or(|known| known.forget_after < entry.forget_after)
        }) || identities.any(|(identity, denied)| {
            let known = newer.identities.get(identity);
            lives(&denied.entry) && known.is_none_or(|known| denied.exceeds(known))
        })
    }

    /// Takes over the denials that only another copy of this list has. The version then [passes](Self::pass) those of
    /// both. Returns the identities whose denials are new here.
    ///
    /// # Errors
    /// [`DenyListError::Full`]; entries that were taken over before it stay.
    pub fn take_over(
        &mut self,
        other: &Self,
        now: Timestamp,
    ) -> Result<Vec<(Identity, Denial)>, DenyListError> {
        // A list with other entries needs a version that nobody has seen.
        self.pass(other, now);
        for (serial, entry) in other.serials.iter() {
            let held = self.serials.get(serial);
            if entry.forget_after < self.forgotten
                || held.is_some_and(|held| held.forget_after >= entry.forget_after)
            {
                continue;
            }
            if held.is_none() {
                self.make_room(serial.entry_length(), now)?;
            }
            self.serials.insert(*serial, *entry);
            self.changed(Changed::Serial(*serial));
        }
        let mut denied_anew = Vec::new();
        for (identity, denied) in other.identities.iter() {
            let held = self.identities.get(identity);
            if denied.entry.forget_after < self.forgotten
                || held.is_some_and(|held| !denied.exceeds(held))
            {
                continue;
            }
            self.deny_too(identity.clone(), *denied, now)?;
            denied_anew.push((identity.clone(), denied.entry.denial));
        }
        Ok(denied_anew)
    }

    /// The digest of all entries, which an authority signs together with the version.
    pub fn digest(&self) -> Hash {
        let serials = self.serials.digests(encode_serial);
        let identities = self.identities.digests(encode_identity);
        let digests: Vec<u8> = serials.chain(identities).flatten().collect();
        crate::sha256(&[b"sealbus deny list entries v3\0", &digests])
    }

    /// Whether a certificate is denied, by its serial number or by its owner and start. If both deny it, an operator's
    /// denial counts. O(1).
    pub fn denied(
        &self,
        identity: &Identity,
        serial: Serial,
        not_before: Timestamp,
    ) -> Option<Denial> {
        let by_owner = self.identities.get(identity);
        let by_owner = by_owner.filter(|denied| not_before < denied.before);
        let by_owner = by_owner.map(|denied| denied.entry.denial);
        let denials = self.denied_serial(serial).into_iter().chain(by_owner);
        denials.reduce(Denial::or_graver)
    }

    /// Whether a certificate is denied by its serial number. O(1).
    pub fn denied_serial(&self, serial: Serial) -> Option<Denial> {
        self.serials.get(&serial).map(|entry| entry.denial)
    }

    /// The time before which certificates of `identity` are denied.
    pub fn denied_before(&self, identity: &Identity) -> Option<Timestamp> {
        let denied = self.identities.get(identity)?;
        Some(denied.before)
    }

    /// The last denial of an identity as a whole. O(1).
    pub fn denied_identity(&self, identity: &Identity) -> Option<Denial> {
        let denied = self.identities.get(identity)?;
        Some(denied.entry.denial)
    }

    /// All denied serial numbers, in no particular order.
    pub fn serials(&self) -> impl Iterator<Item = (Serial, Denial)> + '_ {
        self.serials
            .iter()
            .map(|(serial, entry)| (*serial, entry.denial))
    }

    /// The number of denied identities.
    pub fn identities(&self) -> usize {
        self.identities.len()
    }
}

fn encode_identity(identity: &Identity, denied: &DeniedIdentity, out: &mut Vec<u8>) {
    let identity = identity.to_string();
    out.extend_from_slice(&(identity.len() as u16).to_be_bytes());
    out.extend_from_slice(identity.as_bytes());
    out.extend_from_slice(&denied.before.as_unix_seconds().to_be_bytes());
    denied.entry.encode(out);
}
