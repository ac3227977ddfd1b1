//! Twins that begin in the same moment.

use sealbus_control::clock::timestamp;
use sealbus_seal::PlatformName;

use super::super::authorities::Authorities;
use super::*;

/// The certificate of a new CA.
fn certificate() -> Vec<u8> {
    let platform = PlatformName::new("factory").unwrap();
    let authorities = Authorities::fresh(&platform, timestamp(now())).unwrap();
    authorities.issuing.chain().leaf().to_vec()
}

fn row(name: &str, created: Revision, lease: i64, certificate: &[u8]) -> InstanceRow {
    let facts = InstanceFacts {
        host: format!("host-{lease}"),
        enrolment: SocketAddr::from(([10, 0, 0, 1], 7700)),
        since: 0,
        authority: "ca".to_owned(),
        certificate: Blob(certificate.to_vec()),
        alarms: Vec::new(),
        beat: 1,
    };
    InstanceRow {
        instance: name.to_owned(),
        value: as_row(&facts),
        // Rows are renewed in any order.
        revision: 100 - created,
        created,
        lease: Lease(lease),
    }
}

#[test]
fn of_twins_that_begin_in_the_same_moment_the_later_one_is_refused() {
    let (own, other) = (certificate(), certificate());
    let refused = |rows: &[InstanceRow], name: &str, lease: i64, certificate: &[u8]| {
        let found = earlier_twin(rows, name, Lease(lease), certificate);
        found.map(|twin| twin.map(|(facts, common)| (facts.host, common)))
    };
    // Both have the CA.
    let rows = [row("one", 8, 1, &own), row("two", 7, 2, &own)];
    let first = Some(Some(("host-2".to_owned(), "the CA")));
    assert_eq!(refused(&rows, "one", 1, &own), first);
    assert_eq!(refused(&rows, "two", 2, &own), Some(None));
    // Both have the name, and there is one row.
    let rows = [row("one", 7, 1, &own)];
    let first = Some(Some(("host-1".to_owned(), "the name")));
    assert_eq!(refused(&rows, "one", 1, &own), Some(None));
    assert_eq!(refused(&rows, "one", 2, &own), first);
    // Other Masters, also of a platform that begins, are none.
    for (one, two) in [(own.as_slice(), other.as_slice()), (&[], &[])] {
        let rows = [row("one", 8, 1, one), row("two", 7, 2, two)];
        assert_eq!(refused(&rows, "one", 1, one), Some(None));
    }
    // Its own row must be there before that is known.
    assert_eq!(refused(&rows, "three", 3, &own), None);
}
