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
}
