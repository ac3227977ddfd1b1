//! The registration of the kinds of brokers.

use crate::kind::BrokerKind;
#[cfg(feature = "rabbitmq")]
use crate::rabbitmq::RabbitKind;

/// The kinds of brokers that a platform can run on. A further one is a line here.
pub const BROKER_KINDS: &[&dyn BrokerKind] = &[
    #[cfg(feature = "rabbitmq")]
    &RabbitKind,
];

/// The kind of this name.
pub fn broker_kind(name: &str) -> Option<&'static dyn BrokerKind> {
    let mut kinds = BROKER_KINDS.iter().copied();
    kinds.find(|kind| kind.name() == name)
}

/// This filter of a log, which also leaves out what the libraries of brokers write there.
pub fn quiet_log(filter: &str) -> String {
    let libraries = BROKER_KINDS.iter().flat_map(|kind| kind.quiet());
    let quiet = libraries.map(|target| format!(",{target}=off"));
    std::iter::once(filter.to_owned()).chain(quiet).collect()
}

/// The transports that a platform of several processes can run on, in words.
pub fn transports() -> String {
    let brokers = BROKER_KINDS.iter().map(|kind| kind.title());
    let all: Vec<_> = std::iter::once("the mesh").chain(brokers).collect();
    all.join(" or ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_is_found_by_a_name_of_its_own() {
        // The name of the transport without a broker.
        let mut names = BTreeSet::from(["mesh"]);
        for kind in BROKER_KINDS {
            assert!(names.insert(kind.name()), "{} is taken", kind.name());
            let found = broker_kind(kind.name()).unwrap();
            assert_eq!(found.title(), kind.title());
        }
        assert!(broker_kind("mesh").is_none());
    }

    #[test]
    fn a_log_leaves_out_the_libraries_of_each_kind() {
        let filter = quiet_log("info");
        let parts: Vec<_> = filter.split(',').collect();
        assert_eq!(parts[0], "info");
        for kind in BROKER_KINDS {
            for target in kind.quiet() {
                let part = format!("{target}=off");
                assert!(parts.contains(&part.as_str()), "{part}: {filter}");
            }
        }
    }

    #[test]
    fn each_kind_is_named_among_the_transports() {
        let named = transports();
        assert!(named.starts_with("the mesh"));
        for kind in BROKER_KINDS {
            assert!(named.contains(kind.title()), "{named}");
        }
    }
}
