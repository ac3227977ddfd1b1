//! The deny list: versions, signatures, limits.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;

use proptest::prelude::*;
use sealbus_seal::denylist::{
    Denial, DenyList, DenyListError, DenyListUpdate, MAX_ENTRIES, Reason,
};
use sealbus_seal::{Identity, Serial, Timestamp, Trust, Validity};
use support::{HOUR, SKEW, TestPlatform, YEAR, seconds};

fn serial(number: u64) -> Serial {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Serial::from_bytes(bytes)
}

fn denial(at: Timestamp) -> Denial {
    Denial {
        at,
        reason: Reason::Killed,
    }
}

#[test]
fn only_newer_versions_apply() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    list.deny_serial(serial(1), now.plus(HOUR), denial(now))
        .unwrap();
    let first = list.sign(&platform.authority).unwrap();
    list.deny_serial(serial(2), now.plus(HOUR), denial(now))
        .unwrap();
    let second = list.sign(&platform.authority).unwrap();

    let apply = |signed: &[u8]| platform.trust.apply_deny_list(signed, now);
    assert_eq!(apply(&second), Ok(DenyListUpdate::Applied { version: 2 }));
    assert_eq!(
        apply(&second),
        Ok(DenyListUpdate::AlreadyHeld { version: 2 })
    );
    assert!(matches!(
        apply(&first),
        Err(DenyListError::Stale {
            held: 2,
            received: 1,
            ..
        })
    ));
    assert_eq!(platform.trust.deny_lists()[0].len(), 2);
}

#[test]
fn each_authority_has_its_own_list() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(now, YEAR))
        .unwrap();
    for authority in [&platform.authority, &second] {
        let mut list = DenyList::new(authority.identity().clone());
        let number = u64::from(authority.identity() == second.identity());
        list.deny_serial(serial(number), now.plus(HOUR), denial(now))
            .unwrap();
        platform
            .trust
            .apply_deny_list(&list.sign(authority).unwrap(), now)
            .unwrap();
    }
    let lists = platform.trust.deny_lists();
    assert_eq!(lists.len(), 2);
    assert!(lists[0].denied_serial(serial(0)).is_some());
    assert!(lists[1].denied_serial(serial(1)).is_some());

    let foreign = DenyList::new(second.identity().clone());
    assert!(matches!(
        foreign.sign(&platform.authority),
        Err(DenyListError::NotItsOwn { .. })
    ));
}

#[test]
fn forged_lists_change_nothing() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    list.deny_identity(platform.agent("a"), now.plus(HOUR), denial(now))
        .unwrap();
    let signed = list.sign(&platform.authority).unwrap();
    for position in 0..signed.len() {
        let mut altered = signed.clone();
        altered[position] ^= 1;
        assert!(
            platform.trust.apply_deny_list(&altered, now).is_err(),
            "byte {position}"
        );
        assert!(
            platform
                .trust
                .apply_deny_list(&signed[..position], now)
                .is_err()
        );
    }
    let impostor = TestPlatform::new("factory");
    let forged = DenyList::new(impostor.authority.identity().clone())
        .sign(&impostor.authority)
        .unwrap();
    assert!(matches!(
        platform.trust.apply_deny_list(&forged, now),
        Err(DenyListError::NotTrusted(_))
    ));
    assert!(platform.trust.deny_lists().is_empty());
}

#[test]
fn a_restarted_authority_goes_on_from_its_own_list() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    for number in 0..100 {
        list.deny_serial(serial(number), now.plus(HOUR), denial(now))
            .unwrap();
    }
    list.deny_identity(platform.agent("a"), now.plus(HOUR), denial(now))
        .unwrap();
    let signed = list.sign(&platform.authority).unwrap();
    assert_eq!(platform.trust.open_deny_list(&signed, now).unwrap(), list);
}

#[test]
fn entries_are_forgotten_when_the_certificates_are_long_dead() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    list.deny_serial(serial(1), now.plus(seconds(10)), denial(now))
        .unwrap();
    list.deny_identity(platform.agent("a"), now.plus(HOUR), denial(now))
        .unwrap();
    let version = list.version();
    assert!(
        !list.prune(now.plus(seconds(20))),
        "a slow clock may still believe it"
    );
    assert_eq!(list.version(), version);
    assert!(list.prune(now.plus(seconds(1000))));
    assert!(list.version() > version);
    assert_eq!(list.len(), 1);
    assert!(list.denied_before(&platform.agent("a")).is_some());
    assert!(list.prune(now.plus(2 * HOUR)));
    assert!(list.is_empty());
}

#[test]
fn the_list_is_bounded() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    for number in 0..MAX_ENTRIES as u64 {
        list.deny_serial(serial(number), now.plus(HOUR), denial(now))
            .unwrap();
    }
    let full = list.deny_serial(serial(u64::MAX), now.plus(HOUR), denial(now));
    assert_eq!(full, Err(DenyListError::Full));
    let full = list.deny_identity(platform.agent("a"), now.plus(HOUR), denial(now));
    assert_eq!(full, Err(DenyListError::Full));
    // An entry that the list has already is not new.
    list.deny_serial(serial(7), now.plus(HOUR), denial(now))
        .unwrap();
    let signed = list.sign(&platform.authority).unwrap();
    assert_eq!(
        platform.trust.open_deny_list(&signed, now).unwrap().len(),
        MAX_ENTRIES
    );
    // Room comes back by itself.
    let later = denial(now.plus(2 * HOUR));
    list.deny_serial(serial(u64::MAX), now.plus(3 * HOUR), later)
        .unwrap();
    assert_eq!(list.len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Serial(u8),
    Identity(u8),
    Prune,
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..20u8).prop_map(Step::Serial),
        (0..5u8).prop_map(Step::Identity),
        Just(Step::Prune),
        any::<u8>().prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Versions may arrive in any order. The newest wins, and no denial is forgotten early.
    #[test]
    fn any_history_in_any_order(steps in steps(), order in prop::collection::vec(any::<u8>(), 40)) {
        let platform = TestPlatform::new("factory");
        let mut now = platform.now;
        let agent = |number: u8| Identity::agent(&platform.name, &format!("a{number}")).unwrap();
        let mut list = DenyList::new(platform.authority.identity().clone());
        let mut versions = vec![list.sign(&platform.authority).unwrap()];
        let mut denied: HashSet<u8> = HashSet::new();
        for step in steps {
            let before = list.version();
            match step {
                Step::Serial(number) => {
                    list.deny_serial(serial(number.into()), now.plus(YEAR), denial(now)).unwrap();
                    denied.insert(number);
                }
                Step::Identity(number) => {
                    let floor = list.denied_before(&agent(number));
                    list.deny_identity(agent(number), now.plus(YEAR), denial(now)).unwrap();
                    prop_assert!(list.denied_before(&agent(number)) > floor);
                }
                Step::Prune => { list.prune(now); }
                Step::Wait(time) => now = now.plus(seconds(time.into())),
            }
            prop_assert!(list.version() >= before);
            for number in &denied {
                prop_assert!(list.denied_serial(serial(u64::from(*number))).is_some());
            }
            versions.push(list.sign(&platform.authority).unwrap());
        }
        let root = [platform.root.certificate().clone()];
        let trust = Trust::new(platform.name.clone(), &root, SKEW).unwrap();
        for pick in order {
            let signed = &versions[usize::from(pick) % versions.len()];
            let held = trust.deny_lists().first().map(|list| list.version());
            let result = trust.apply_deny_list(signed, now);
            let received = trust.open_deny_list(signed, now).unwrap().version();
            match held {
                Some(held) if received < held => {
                    let stale = matches!(result, Err(DenyListError::Stale { .. }));
                    prop_assert!(stale);
                }
                _ => prop_assert!(result.is_ok()),
            }
            prop_assert_eq!(trust.deny_lists()[0].version(), received.max(held.unwrap_or(0)));
        }
    }
}
