//! Other Masters with the name or the CA of this one: they run on a copy of its state directory, or this one on a copy of theirs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sealbus_seal::VerifyingKey;
use sealbus_store::etcd::EtcdStore;
use sealbus_store::{Revision, StoreError};

use super::super::authorities::own_authority;
use super::super::master_error::MasterError;
use super::super::standby::{InstanceFacts, instances, key_of};

/// How often it looks whether another Master renews its row.
const LOOK: Duration = Duration::from_millis(500);
/// How often the store is asked before it counts as away: each time by another member.
const READS: usize = 4;
/// A Master that renews its row so often runs. The last renewal of one that was killed may come late.
const RENEWALS: usize = 2;
/// After so many looks, two minutes, the lease of one that was killed is over.
const LOOKS: usize = 240;

/// The instances that are there, with the revisions of their rows, and what they say.
type Rows = Vec<(String, Revision, InstanceFacts)>;

/// The twins that were seen.
struct Twins<'m> {
    /// The name of this Master's instance.
    name: &'m str,
    /// The key of its CA, if it has one.
    key: Option<VerifyingKey>,
    /// Their last revisions, and how often these changed.
    seen: BTreeMap<String, (Revision, usize)>,
    /// How often it looked.
    looks: usize,
}

/// The outcome of a look for twins.
enum TwinsFound {
    Nobody,
    /// There is a row. Its Master may have been killed.
    Row,
    /// A Master that runs, and what it has in common with this one.
    Runs(Box<InstanceFacts>, &'static str),
}

impl Twins<'_> {
    fn note(&mut self, rows: Rows) -> TwinsFound {
        self.looks += 1;
        let mut found = TwinsFound::Nobody;
        for (name, revision, facts) in rows {
            let common = match name == self.name {
                true => "the name",
                false if self.key.is_some() && key_of(&facts.certificate.0) == self.key => "the CA",
                false => continue,
            };
            let (last, renewals) = self.seen.entry(name).or_insert((revision, 0));
            *renewals += usize::from(*last != revision);
            *last = revision;
            // One that cannot write renews its lease all the same.
            if *renewals >= RENEWALS || self.looks > LOOKS {
                return TwinsFound::Runs(Box::new(facts), common);
            }
            found = TwinsFound::Row;
        }
        found
    }
}

/// The error about a twin.
pub(super) fn copied(twin: InstanceFacts, common: &'static str, directory: &Path) -> MasterError {
    MasterError::Copied {
        host: twin.host,
        enrolment: twin.enrolment,
        common,
        directory: directory.to_owned(),
    }
}

/// Returns once no twin is there. The row of one that was killed stays until its lease ends.
///
/// # Errors
/// [`MasterError::Copied`] if one runs, or an error of the store.
pub(super) async fn await_none(store: &EtcdStore, directory: &Path) -> Result<(), MasterError> {
    let own = own_authority(directory)?;
    let mut twins = Twins {
        name: store.instance(),
        key: own.and_then(|(_, certificate)| key_of(&certificate)),
        seen: BTreeMap::new(),
        looks: 0,
    };
    loop {
        match twins.note(read(store).await?) {
            TwinsFound::Nobody => return Ok(()),
            TwinsFound::Row => {
                if twins.looks == 1 {
                    tracing::info!(
                        "a Master with the name or the CA of this one is there, or was killed: this one waits until that is known"
                    );
                }
                tokio::time::sleep(LOOK).await;
            }
            TwinsFound::Runs(facts, common) => {
                return Err(copied(*facts, common, directory));
            }
        }
    }
}

async fn read(store: &EtcdStore) -> Result<Rows, StoreError> {
    let mut read = instances(store).await;
    for _ in 1..READS {
        if !matches!(&read, Err(StoreError::Away { .. })) {
            break;
        }
        read = instances(store).await;
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

    fn row(name: &str, revision: Revision, certificate: &[u8]) -> Rows {
        let facts = json!({
            "host": "mill",
            "enrolment": "10.0.0.1:7700",
            "since": 0,
            "beat": 1,
            "authority": "ca",
            "certificate": Blob(certificate.to_vec()),
        });
        let facts = serde_json::from_value(facts).unwrap();
        vec![(name.to_owned(), revision, facts)]
    }

    #[test]
    fn a_twin_that_runs_is_named_and_one_that_was_killed_is_waited_for() {
        let (own, other) = (certificate(), certificate());
        for (name, certificate, shared) in [("one", &other, "the name"), ("two", &own, "the CA")] {
            let mut twins = Twins {
                name: "one",
                key: key_of(&own),
                seen: BTreeMap::new(),
                looks: 0,
            };
            // The last renewal of a Master that was killed comes late.
            for revision in [7, 7, 8, 8] {
                let found = twins.note(row(name, revision, certificate));
                assert!(matches!(found, TwinsFound::Row), "{name} {revision}");
            }
            assert!(matches!(twins.note(Vec::new()), TwinsFound::Nobody));
            let TwinsFound::Runs(facts, common) = twins.note(row(name, 9, certificate)) else {
                panic!("{name} is not found");
            };
            assert_eq!((facts.host.as_str(), common), ("mill", shared));
        }
        let mut twins = Twins {
            name: "one",
            key: key_of(&own),
            seen: BTreeMap::new(),
            looks: 0,
        };
        // Other Masters, also of a platform that begins, are none.
        for revision in 7..10 {
            for certificate in [other.as_slice(), b"".as_slice()] {
                let found = twins.note(row("two", revision, certificate));
                assert!(matches!(found, TwinsFound::Nobody));
            }
        }
    }

    #[test]
    fn a_row_that_stays_is_not_waited_for_without_end() {
        let mut twins = Twins {
            name: "one",
            key: None,
            seen: BTreeMap::new(),
            looks: 0,
        };
        for _ in 0..LOOKS {
            let found = twins.note(row("one", 7, b""));
            assert!(matches!(found, TwinsFound::Row));
        }
        let found = twins.note(row("one", 7, b""));
        assert!(matches!(found, TwinsFound::Runs(_, "the name")));
    }
}
