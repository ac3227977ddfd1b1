//! Twins: Masters with the name or the CA of this one. They run on a copy of its state directory, or this one on a copy of theirs.
//!
//! A Master looks for them twice. Before that it changes nothing in the store but its own row. At the first look it has written
//! nothing at all. It waits, because the row of a killed Master stays until its lease ends. Masters that begin in the same moment
//! do not see each other in this way. Each therefore looks once more after it has written its row, and the Master whose row came
//! later is refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sealbus_seal::{Certificate, VerifyingKey};
use sealbus_store::etcd::{EtcdStore, InstanceRow, Lease};
use sealbus_store::{Revision, StoreError};

use super::super::authorities::own_authority;
use super::super::master_error::MasterError;
use super::{InstanceFacts, facts_of};

/// How often it looks whether another Master renews its row.
const LOOK: Duration = Duration::from_millis(500);
/// How often the store is asked before it counts as away. Each time another member is asked.
const READS: usize = 4;
/// A Master that renews its row this often runs. The last renewal of a killed Master may come late.
const RENEWALS: usize = 2;
/// After this many looks, two minutes, the lease of a killed Master has ended.
const LOOKS: usize = 240;

/// A Master with the name or the CA of this one.
pub(crate) struct Twin {
    facts: InstanceFacts,
    /// The name or the CA that both have.
    common: &'static str,
}

impl Twin {
    /// The error of this Master, whose state is in `directory`.
    pub(crate) fn refusal(self, directory: &Path) -> MasterError {
        MasterError::Copied {
            host: self.facts.host,
            enrolment: self.facts.enrolment,
            common: self.common,
            directory: directory.to_owned(),
        }
    }
}

/// The features of this Master that tell it apart from others.
pub(super) struct Itself<'m> {
    /// The name of its instance.
    name: &'m str,
    /// The key of its CA, if it has one.
    key: Option<VerifyingKey>,
}

impl<'m> Itself<'m> {
    /// The Master of this name, whose CA has this certificate. The certificate is empty if there is no CA yet.
    pub(super) fn new(name: &'m str, certificate: &[u8]) -> Self {
        Self {
            name,
            key: key_of(certificate),
        }
    }

    /// The twin that wrote a row, if one did.
    fn twin(&self, row: &InstanceRow) -> Option<Twin> {
        let facts = facts_of(row)?;
        let common = match row.instance == self.name {
            true => "the name",
            false if self.key.is_some() && key_of(&facts.certificate.0) == self.key => "the CA",
            false => return None,
        };
        Some(Twin { facts, common })
    }

    /// The twin that came before this Master, whose row hangs on `lease`; nothing if this Master's row is not there, or cannot be
    /// read. Of two Masters that begin in the same moment, one finds the other.
    pub(super) fn earlier_twin(&self, rows: &[InstanceRow], lease: Lease) -> Option<Option<Twin>> {
        let own = rows.iter().find(|row| row.instance == self.name)?;
        if own.lease != lease {
            return self.twin(own).map(Some);
        }
        let mut earlier = rows.iter().filter(|row| row.created < own.created);
        Some(earlier.find_map(|row| self.twin(row)))
    }
}

fn key_of(certificate: &[u8]) -> Option<VerifyingKey> {
    let certificate = Certificate::parse(certificate).ok()?;
    Some(certificate.public_key().clone())
}

/// The twins that were seen.
struct Twins<'m> {
    itself: Itself<'m>,
    /// The last revisions of their rows, and how often these changed.
    seen: BTreeMap<String, (Revision, usize)>,
    /// How often this Master looked.
    looks: usize,
}

/// The outcome of a look for twins.
enum TwinsFound {
    Nobody,
    /// There is a row of a twin, which may have been killed.
    Row,
    /// A Master that runs.
    Runs(Box<Twin>),
}

impl<'m> Twins<'m> {
    fn of(itself: Itself<'m>) -> Self {
        Self {
            itself,
            seen: BTreeMap::new(),
            looks: 0,
        }
    }

    fn note(&mut self, rows: &[InstanceRow]) -> TwinsFound {
        self.looks += 1;
        let mut found = TwinsFound::Nobody;
        for row in rows {
            let Some(twin) = self.itself.twin(row) else {
                continue;
            };
            let seen = self.seen.entry(row.instance.clone());
            let (last, renewals) = seen.or_insert((row.revision, 0));
            *renewals += usize::from(*last != row.revision);
            *last = row.revision;
            // A Master that cannot write renews its lease all the same.
            if *renewals >= RENEWALS || self.looks > LOOKS {
                return TwinsFound::Runs(Box::new(twin));
            }
            found = TwinsFound::Row;
        }
        found
    }
}

/// Returns once no twin is there. The row of a killed twin stays until its lease ends.
///
/// # Errors
/// [`MasterError::Copied`] if a twin runs, or an error of the store.
pub(crate) async fn await_none(store: &EtcdStore, directory: &Path) -> Result<(), MasterError> {
    let own = own_authority(directory)?;
    let certificate = own.map(|(_, certificate)| certificate).unwrap_or_default();
    let mut twins = Twins::of(Itself::new(store.instance(), &certificate));
    loop {
        match twins.note(&read(store).await?) {
            TwinsFound::Nobody => return Ok(()),
            TwinsFound::Row => {
                if twins.looks == 1 {
                    tracing::info!(
                        "a Master with the name or the CA of this one is there, or was killed: this one waits until that is known"
                    );
                }
                tokio::time::sleep(LOOK).await;
            }
            TwinsFound::Runs(twin) => return Err(twin.refusal(directory)),
        }
    }
}

async fn read(store: &EtcdStore) -> Result<Vec<InstanceRow>, StoreError> {
    let mut read = store.instances().await;
    for _ in 1..READS {
        if !matches!(&read, Err(StoreError::Away { .. })) {
            break;
        }
        read = store.instances().await;
    }
    read
}

#[cfg(test)]
mod tests {
    use sealbus_control::Blob;
    use sealbus_control::clock::{now, timestamp};
    use sealbus_seal::PlatformName;
    use serde_json::json;

    use super::super::super::authorities::Authorities;
    use super::*;

    /// The certificate of a new CA.
    fn certificate() -> Vec<u8> {
        let platform = PlatformName::new("factory").unwrap();
        let authorities = Authorities::fresh(&platform, timestamp(now())).unwrap();
        authorities.issuing.chain().leaf().to_vec()
    }

    /// The row that the revision `created` made.
    fn row(name: &str, created: Revision, lease: i64, certificate: &[u8]) -> InstanceRow {
        let facts = json!({
            "host": format!("host-{lease}"),
            "enrolment": "10.0.0.1:7700",
            "since": 0,
            "beat": 1,
            "authority": "ca",
            "certificate": Blob(certificate.to_vec()),
        });
        InstanceRow {
            instance: name.to_owned(),
            value: serde_json::to_vec(&facts).unwrap(),
            // Rows are renewed in any order.
            revision: 100 - created,
            created,
            lease: Lease(lease),
        }
    }

    /// The row of a Master that came before, last written by this revision.
    fn renewed(name: &str, revision: Revision, certificate: &[u8]) -> [InstanceRow; 1] {
        let row = row(name, 1, 1, certificate);
        [InstanceRow { revision, ..row }]
    }

    #[test]
    fn a_twin_that_runs_is_named_and_one_that_was_killed_is_waited_for() {
        let (own, other) = (certificate(), certificate());
        for (name, certificate, shared) in [("one", &other, "the name"), ("two", &own, "the CA")] {
            let mut twins = Twins::of(Itself::new("one", &own));
            // The last renewal of a Master that was killed comes late.
            for revision in [7, 7, 8, 8] {
                let found = twins.note(&renewed(name, revision, certificate));
                assert!(matches!(found, TwinsFound::Row), "{name} {revision}");
            }
            assert!(matches!(twins.note(&[]), TwinsFound::Nobody));
            let TwinsFound::Runs(twin) = twins.note(&renewed(name, 9, certificate)) else {
                panic!("{name} is not found");
            };
            assert_eq!((twin.facts.host.as_str(), twin.common), ("host-1", shared));
        }
        let mut twins = Twins::of(Itself::new("one", &own));
        // Other Masters are no twins, even on a platform that begins.
        for revision in 7..10 {
            for certificate in [other.as_slice(), b"".as_slice()] {
                let found = twins.note(&renewed("two", revision, certificate));
                assert!(matches!(found, TwinsFound::Nobody));
            }
        }
    }

    #[test]
    fn a_row_that_stays_is_not_waited_for_without_end() {
        let mut twins = Twins::of(Itself::new("one", b""));
        for _ in 0..LOOKS {
            let found = twins.note(&renewed("one", 7, b""));
            assert!(matches!(found, TwinsFound::Row));
        }
        let TwinsFound::Runs(twin) = twins.note(&renewed("one", 7, b"")) else {
            panic!("it waits on");
        };
        assert_eq!(twin.common, "the name");
    }

    #[test]
    fn of_twins_that_begin_in_the_same_moment_the_later_one_is_refused() {
        let (own, other) = (certificate(), certificate());
        let refused = |rows: &[InstanceRow], name: &str, lease: i64, certificate: &[u8]| {
            let found = Itself::new(name, certificate).earlier_twin(rows, Lease(lease));
            found.map(|twin| twin.map(|twin| (twin.facts.host, twin.common)))
        };
        // Both have the CA.
        let rows = [row("one", 8, 1, &own), row("two", 7, 2, &own)];
        let first = Some(Some(("host-2".to_owned(), "the CA")));
        assert_eq!(refused(&rows, "one", 1, &own), first);
        assert_eq!(refused(&rows, "two", 2, &own), Some(None));
        // Both have the name, and there is one row.
        let mut rows = [row("one", 7, 1, &own)];
        let first = Some(Some(("host-1".to_owned(), "the name")));
        assert_eq!(refused(&rows, "one", 1, &own), Some(None));
        assert_eq!(refused(&rows, "one", 2, &own), first);
        // The Master's own row must be there before the twins are known.
        assert_eq!(refused(&rows, "three", 3, &own), None);
        // A row that nobody can read is no twin's.
        rows[0].value = b"{}".to_vec();
        assert_eq!(refused(&rows, "one", 2, &own), None);
        // Other Masters are no twins, even on a platform that begins.
        for (one, two) in [(own.as_slice(), other.as_slice()), (&[], &[])] {
            let rows = [row("one", 8, 1, one), row("two", 7, 2, two)];
            assert_eq!(refused(&rows, "one", 1, one), Some(None));
        }
    }
}
