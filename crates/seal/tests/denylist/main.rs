//! The deny list: versions, signatures, limits.
#![allow(clippy::unwrap_used)]

mod graver;
mod restored;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashSet;

use proptest::prelude::*;
use sealbus_seal::denylist::{
    Denial, DenyList, DenyListError, DenyListUpdate, MOST_ENTRIES, Reason,
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
    let first = list.sign(&platform.authority).unwrap().whole();
    list.deny_serial(serial(2), now.plus(HOUR), denial(now))
        .unwrap();
    let second = list.sign(&platform.authority).unwrap().whole();

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
            .apply_deny_list(&list.sign(authority).unwrap().whole(), now)
            .unwrap();
    }
    let lists = platform.trust.deny_lists();
    assert_eq!(lists.len(), 2);
    // The list that came last is the first, even if it was held already.
    assert!(lists[1].denied_serial(serial(0)).is_some());
    assert!(lists[0].denied_serial(serial(1)).is_some());
    let again = lists[1].whole();
    let held = platform.trust.apply_deny_list(&again, now).unwrap();
    assert!(matches!(held, DenyListUpdate::AlreadyHeld { .. }));
    let latest = platform.trust.latest_deny_list().unwrap();
    assert_eq!(latest.authority(), platform.authority.identity());
    assert_eq!(platform.trust.deny_lists().len(), 2);

    let foreign = DenyList::new(second.identity().clone());
    assert!(matches!(
        foreign.sign(&platform.authority),
        Err(DenyListError::NotItsOwn { .. })
    ));
}

#[test]
fn a_successor_denies_the_same_and_is_told_what_it_does_not_know() {
    let platform = TestPlatform::new("factory");
    let (now, later) = (platform.now, platform.now.plus(HOUR));
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(now, YEAR))
        .unwrap();
    let mut first = DenyList::new(platform.authority.identity().clone());
    first.deny_serial(serial(1), later, denial(now)).unwrap();
    let kept = first.sign(&platform.authority).unwrap();
    let apply = |signed: &[u8]| platform.trust.apply_deny_list(signed, now);
    apply(&kept.whole()).unwrap();
    let list = kept.clone().into_list();
    let mut list = list.succeeded_by(second.identity().clone());
    assert!(list.version() > first.version());
    let signed = list.sign(&second).unwrap();
    // Nobody has an earlier list of the second authority, so changes are useless.
    assert_eq!(signed.since(first.version()), signed.whole());
    apply(&signed.whole()).unwrap();
    let lacking = || platform.trust.outlasting_deny_lists(|_| true);
    assert!(lacking().is_empty());

    // The first authority denied one more certificate before it was gone.
    first.deny_serial(serial(2), later, denial(now)).unwrap();
    first.raise_version(1000);
    apply(&first.sign(&platform.authority).unwrap().whole()).unwrap();
    list.deny_serial(serial(3), later, denial(now)).unwrap();
    apply(&list.sign(&second).unwrap().whole()).unwrap();
    let [lacks] = &lacking()[..] else {
        panic!("the second list lacks a denial");
    };
    let opened = platform.trust.open_kept_deny_list(&lacks.whole(), None);
    list.take_over(&opened.unwrap(), now).unwrap();
    assert!(list.version() > 1000 && list.len() == 3);
    apply(&list.sign(&second).unwrap().whole()).unwrap();
    assert!(lacking().is_empty());
}

#[test]
fn forged_lists_change_nothing() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    list.deny_identity(platform.agent("a"), now.plus(HOUR), denial(now))
        .unwrap();
    let signed = list.sign(&platform.authority).unwrap().whole();
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
        .unwrap()
        .whole();
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
    let signed = list.sign(&platform.authority).unwrap().whole();
    let mut opened = platform.trust.open_kept_deny_list(&signed, None).unwrap();
    assert_eq!(opened.digest(), list.digest());
    // From here on, only changes are stored.
    for number in 100..200 {
        let held = list.version();
        list.deny_serial(serial(number), now.plus(HOUR), denial(now))
            .unwrap();
        let changes = list.sign(&platform.authority).unwrap().since(held);
        let open = |held| platform.trust.open_kept_deny_list(&changes, held);
        opened = open(Some(&opened)).unwrap();
    }
    assert_eq!(opened.digest(), list.digest());
    assert_eq!(opened.version(), list.version());
}

/// Changes are believed only if they lead to the list that the authority signed.
#[test]
fn changes_fit_the_list_that_they_continue_or_change_nothing() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let mut list = DenyList::new(platform.authority.identity().clone());
    let deny = |list: &mut DenyList, numbers: std::ops::Range<u64>| {
        for number in numbers {
            list.deny_serial(serial(number), now.plus(HOUR), denial(now))
                .unwrap();
        }
        list.sign(&platform.authority).unwrap()
    };
    let first = deny(&mut list, 0..1000);
    let mut fork = list.clone();
    let second = deny(&mut list, 1000..1001);
    let third = deny(&mut list, 1001..1002);
    let forked = deny(&mut fork, 2000..2001);
    let changes = third.since(second.version());
    assert!(changes.len() < 2000, "{}", changes.len());

    let trust = || {
        let root = [platform.root.certificate().clone()];
        Trust::new(platform.name.clone(), &root, SKEW).unwrap()
    };
    let unknown = trust();
    let error = unknown.apply_deny_list(&changes, now).unwrap_err();
    assert!(matches!(error, DenyListError::Gap { held: 0, .. }));
    assert!(error.needs_whole_list());
    assert!(unknown.deny_lists().is_empty());

    let behind = trust();
    behind.apply_deny_list(&first.whole(), now).unwrap();
    let error = behind.apply_deny_list(&changes, now).unwrap_err();
    assert!(matches!(error, DenyListError::Gap { .. }), "{error}");
    assert_eq!(behind.deny_lists()[0].version(), first.version());

    // This receiver has another history.
    let other = trust();
    other.apply_deny_list(&forked.whole(), now).unwrap();
    let error = other.apply_deny_list(&changes, now).unwrap_err();
    assert!(matches!(error, DenyListError::Diverged { .. }), "{error}");
    let error = other
        .apply_deny_list(&second.since(first.version()), now)
        .unwrap_err();
    assert!(matches!(error, DenyListError::Diverged { .. }), "{error}");
    assert!(other.deny_lists()[0].denied_serial(serial(2000)).is_some());

    for needy in [&unknown, &behind, &other] {
        needy.apply_deny_list(&third.whole(), now).unwrap();
        assert_eq!(needy.deny_lists()[0].digest(), list.digest());
    }

    // Altered changes, and changes with too few or too many entries.
    let held = trust();
    held.apply_deny_list(&second.whole(), now).unwrap();
    for position in 0..changes.len() {
        let mut altered = changes.clone();
        altered[position] ^= 1;
        // Changes since an older version also fit.
        if held.apply_deny_list(&altered, now).is_ok() {
            assert_eq!(held.deny_lists()[0].digest(), list.digest());
        } else {
            assert!(held.deny_lists()[0].version() >= second.version());
        }
    }
    assert!(held.apply_deny_list(&changes, now).is_ok());
    assert!(matches!(
        held.apply_deny_list(&second.since(first.version()), now),
        Err(DenyListError::Stale { .. })
    ));
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
    for number in 0..MOST_ENTRIES as u64 {
        list.deny_serial(serial(number), now.plus(HOUR), denial(now))
            .unwrap();
    }
    let full = Err(DenyListError::Full {
        entries: MOST_ENTRIES,
    });
    let another = list.deny_serial(serial(u64::MAX), now.plus(HOUR), denial(now));
    assert_eq!(another, full);
    let another = list.deny_identity(platform.agent("a"), now.plus(HOUR), denial(now));
    assert_eq!(another, full);
    // An entry that is on the list already is not new.
    list.deny_serial(serial(7), now.plus(HOUR), denial(now))
        .unwrap();
    let signed = list.sign(&platform.authority).unwrap().whole();
    let opened = platform.trust.open_kept_deny_list(&signed, None).unwrap();
    assert_eq!(opened.len(), MOST_ENTRIES);
    // Room becomes free by itself.
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
        let mut versions = vec![list.sign(&platform.authority).unwrap().whole()];
        let mut changes: Vec<(u64, Vec<u8>)> = Vec::new();
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
            let signed = list.sign(&platform.authority).unwrap();
            versions.push(signed.whole());
            prop_assert_eq!(signed.whole().len() - versions[0].len(), list.bytes());
            changes.push((list.version(), signed.since(before)));
            changes.push((list.version(), signed.since(before / 2)));
        }
        // A follower that gets all changes has the whole list, even if some come twice or overlap.
        let follower = Trust::new(
            platform.name.clone(), &[platform.root.certificate().clone()], SKEW,
        ).unwrap();
        follower.apply_deny_list(&versions[0], now).unwrap();
        for (version, changes) in &changes {
            prop_assert!(follower.apply_deny_list(changes, now).is_ok());
            prop_assert_eq!(follower.deny_lists()[0].version(), *version);
        }
        prop_assert_eq!(follower.deny_lists()[0].digest(), list.digest());
        let root = [platform.root.certificate().clone()];
        let trust = Trust::new(platform.name.clone(), &root, SKEW).unwrap();
        for pick in order {
            let signed = &versions[usize::from(pick) % versions.len()];
            let held = trust.deny_lists().first().map(|list| list.version());
            let result = trust.apply_deny_list(signed, now);
            let received = trust.open_kept_deny_list(signed, None).unwrap().version();
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

#[test]
fn a_denial_that_is_repeated_is_remembered_until_the_later_end() {
    let platform = TestPlatform::new("factory");
    let (now, authority) = (platform.now, &platform.authority);
    let mut list = DenyList::new(authority.identity().clone());
    list.deny_serial(serial(1), now.plus(HOUR), denial(now))
        .unwrap();
    let early = list.clone();
    let again = Denial {
        at: now.plus(HOUR),
        reason: Reason::ByOperator,
    };
    list.deny_serial(serial(1), now.plus(HOUR * 5), again)
        .unwrap();
    assert!(list.version() > early.version() && list.len() == 1);
    let version = list.version();
    list.deny_serial(serial(1), now.plus(HOUR * 2), again)
        .unwrap();
    assert_eq!(list.version(), version);

    // An authority that went on from an older copy takes over the later end.
    let mut older = early.clone();
    assert!(list.outlasts(&older) && !early.outlasts(&list));
    older.take_over(&list, now).unwrap();
    assert!(!list.outlasts(&older));
    for mut list in [list, older] {
        list.prune(now.plus(HOUR * 4));
        assert_eq!(list.denied_serial(serial(1)), Some(denial(now)));
        list.prune(now.plus(HOUR * 7));
        assert!(list.is_empty());
    }
}
