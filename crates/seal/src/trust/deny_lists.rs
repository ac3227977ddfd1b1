//! The deny lists that are in force.

use std::sync::{Arc, PoisonError};

use super::Trust;
use crate::certificate::Certificate;
use crate::denylist::{DenyList, DenyListError, DenyListUpdate, ReceivedDenyList, SignedDenyList};
use crate::identity::Identity;
use crate::timestamp::Timestamp;

/// The most older lists of one authority that stay in force because they [outlast](DenyList::outlasts) its newest one.
/// The authority gets them back within a second after it is heard.
const MOST_OUTLASTING: usize = 4;

impl Trust {
    /// Reads a stored signed deny list, or changes to the list `held`, and checks that a trusted authority signed the
    /// result. The certificate of the signer may have ended since.
    ///
    /// # Errors
    /// [`DenyListError`].
    pub fn open_kept_deny_list(
        &self,
        signed: &[u8],
        held: Option<&DenyList>,
    ) -> Result<SignedDenyList, DenyListError> {
        ReceivedDenyList::read(signed)?
            .verify(|der| {
                let last = Certificate::parse(der)?.not_after();
                self.verify_authority(der, last)
            })?
            .continue_from(held)
    }

    fn received_deny_list<'r>(
        &self,
        signed: &'r [u8],
        now: Timestamp,
    ) -> Result<ReceivedDenyList<'r>, DenyListError> {
        ReceivedDenyList::read(signed)?.verify(|authority| self.verify_authority(authority, now))
    }

    /// Takes a signed deny list, or changes to the list held from the same authority, if it is newer than that list.
    /// The list is in force when this returns. The caller must then [check](Trust::check) open bindings again.
    ///
    /// # Errors
    /// [`DenyListError`]. The list that was held stays in force. If changes do not fit it, the caller
    /// [needs the whole list](DenyListError::needs_whole_list).
    pub fn apply_deny_list(
        &self,
        signed: &[u8],
        now: Timestamp,
    ) -> Result<DenyListUpdate, DenyListError> {
        self.apply(signed, now, true)
    }

    /// As [`apply_deny_list`](Self::apply_deny_list), for the list of another CA than the one that certifies. The
    /// [latest](Self::latest_deny_list) list stays that of the certifying CA.
    ///
    /// # Errors
    /// As [`apply_deny_list`](Self::apply_deny_list).
    pub fn apply_deny_list_beside(
        &self,
        signed: &[u8],
        now: Timestamp,
    ) -> Result<DenyListUpdate, DenyListError> {
        self.apply(signed, now, false)
    }

    fn apply(
        &self,
        signed: &[u8],
        now: Timestamp,
        is_latest: bool,
    ) -> Result<DenyListUpdate, DenyListError> {
        let received = self.received_deny_list(signed, now)?;
        let version = received.version();
        let _applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lists = self.deny_lists.load().as_ref().clone();
        let authority = received.authority().clone();
        let held = lists.iter().position(|list| *list.authority() == authority);
        if let Some(index) = held {
            let held = &lists[index];
            if held.version() > version {
                return Err(DenyListError::Stale {
                    authority,
                    held: held.version(),
                    received: version,
                });
            }
            if held.version() == version {
                if received.holds(held) {
                    if index > 0 && is_latest {
                        lists[..=index].rotate_right(1);
                        self.deny_lists.store(Arc::new(lists));
                    }
                    return Ok(DenyListUpdate::AlreadyHeld { version });
                }
                // An authority that goes on from an older copy of its list can reach a version again. Then both lists
                // are obeyed.
                if !received.is_whole() {
                    return Err(DenyListError::Diverged { authority, version });
                }
            }
        }
        let list = held.map(|held| -> &DenyList { &lists[held] });
        // Changes to a list keep everything that it denies.
        let may_lose = received.is_whole();
        let new = Arc::new(received.continue_from(list)?);
        let (mut older, mut index) = (0, 0);
        lists.retain(|list| {
            let is_other = *list.authority() != authority;
            let may_outlast = may_lose || Some(index) != held;
            index += 1;
            let stays = is_other || may_outlast && older < MOST_OUTLASTING && list.outlasts(&new);
            older += usize::from(stays && !is_other);
            stays
        });
        // The list of the certifying CA stays in its place.
        let place = match held {
            Some(0) => 0,
            _ => usize::from(!is_latest && !lists.is_empty()),
        };
        lists.insert(place, new);
        self.deny_lists.store(Arc::new(lists));
        Ok(DenyListUpdate::Applied { version })
    }

    /// The deny lists in force, the one that came last first: the newest of each authority, and those that
    /// [outlast](DenyList::outlasts) it.
    pub fn deny_lists(&self) -> Arc<Vec<Arc<SignedDenyList>>> {
        self.deny_lists.load_full()
    }

    /// The lists in force with denials that the [latest](Self::latest_deny_list) one lacks. Its authority needs them:
    /// it went on from an older copy of the list, such as a backup, or replaced an authority whose last denials it does
    /// not know. `is_new` says whether to look at a list, which takes time in proportion to its length.
    pub fn outlasting_deny_lists(
        &self,
        mut is_new: impl FnMut(&DenyList) -> bool,
    ) -> Vec<Arc<SignedDenyList>> {
        let lists = self.deny_lists.load();
        let Some((latest, others)) = lists.split_first() else {
            return Vec::new();
        };
        let outlasting = |list: &&Arc<SignedDenyList>| is_new(list) && list.outlasts(latest);
        others.iter().filter(outlasting).cloned().collect()
    }

    /// The deny list that came last: that of the CA that certifies now.
    pub fn latest_deny_list(&self) -> Option<Arc<SignedDenyList>> {
        self.deny_lists.load().first().cloned()
    }

    /// The earliest start at which a new certificate of `identity` is not denied.
    pub fn denied_before(&self, identity: &Identity) -> Option<Timestamp> {
        self.deny_lists
            .load()
            .iter()
            .filter_map(|list| list.denied_before(identity))
            .max()
    }
}
