//! An authority that goes on from an older copy of its list.

use sealbus_seal::denylist::latest_version;

use super::*;

#[test]
fn what_an_authority_forgot_with_an_older_copy_stays_denied_until_it_has_it_back() {
    let platform = TestPlatform::new("factory");
    let (now, authority) = (platform.now, &platform.authority);
    let later = now.plus(HOUR);
    let guest = Identity::agent(platform.trust.platform(), "guest").unwrap();
    let mut list = DenyList::new(authority.identity().clone());
    list.deny_serial(serial(1), later, denial(now)).unwrap();
    let backup = list.clone();
    list.deny_serial(serial(2), later, denial(now)).unwrap();
    list.deny_identity(guest.clone(), later, denial(now))
        .unwrap();
    let in_force = list.sign(authority).unwrap().whole();
    platform.trust.apply_deny_list(&in_force, now).unwrap();
    assert!(platform.trust.outlasting_deny_lists(|_| true).is_empty());

    // The authority goes on from the backup. Its versions derive from the time, so its list counts as newer.
    let mut restored = backup;
    restored.raise_version(1000);
    let is_denied = |number| {
        let lists = platform.trust.deny_lists();
        lists
            .iter()
            .any(|list| list.denied_serial(serial(number)).is_some())
    };
    for number in [3, 4] {
        restored
            .deny_serial(serial(number), later, denial(now))
            .unwrap();
        let whole = restored.sign(authority).unwrap().whole();
        platform.trust.apply_deny_list(&whole, now).unwrap();
        assert!((1..=number).all(is_denied));
        assert!(platform.trust.denied_before(&guest).is_some());
        assert_eq!(
            platform.trust.latest_deny_list().unwrap().version(),
            restored.version()
        );
    }
    let [outlasting] = &platform.trust.outlasting_deny_lists(|_| true)[..] else {
        panic!("one list outlasts the newest");
    };
    let handed_back = outlasting.whole();
    assert_eq!(handed_back, in_force);

    // It is believed even after the authority's certificate has ended.
    let opened = platform
        .trust
        .open_kept_deny_list(&handed_back, None)
        .unwrap();
    let returned = restored.take_over(&opened, now).unwrap();
    assert_eq!(returned, [(guest, denial(now))]);
    assert_eq!(restored.len(), 5);
    assert!(restored.take_over(&opened, now).unwrap().is_empty());
    let whole = restored.sign(authority).unwrap().whole();
    platform.trust.apply_deny_list(&whole, now).unwrap();
    assert!((1..=4).all(is_denied));
    assert!(platform.trust.outlasting_deny_lists(|_| true).is_empty());
}

#[test]
fn an_authority_that_reaches_a_version_again_is_obeyed_and_so_is_its_former_list() {
    let platform = TestPlatform::new("factory");
    let (now, authority) = (platform.now, &platform.authority);
    let later = now.plus(HOUR);
    let signed = |number| {
        let mut list = DenyList::new(authority.identity().clone());
        list.deny_serial(serial(number), later, denial(now))
            .unwrap();
        list.sign(authority).unwrap()
    };
    let (former, restored) = (signed(1), signed(2));
    assert_eq!(former.version(), restored.version());
    let trust = &platform.trust;
    trust.apply_deny_list(&former.whole(), now).unwrap();
    for _ in 0..2 {
        trust.apply_deny_list(&restored.whole(), now).unwrap();
        let latest = trust.latest_deny_list().unwrap();
        assert!(latest.denied_serial(serial(2)).is_some());
        let outlasting = trust.outlasting_deny_lists(|_| true);
        assert_eq!(outlasting.len(), 1);
        assert_eq!(outlasting[0].whole(), former.whole());
    }
    // When replayed, they take turns and grow no further.
    for _ in 0..4 {
        trust.apply_deny_list(&former.whole(), now).unwrap();
        trust.apply_deny_list(&restored.whole(), now).unwrap();
        assert_eq!(trust.deny_lists().len(), 2);
    }
}

#[test]
fn a_late_denial_of_an_identity_lowers_none_that_is_in_force() {
    let platform = TestPlatform::new("factory");
    let (now, guest) = (platform.now, platform.agent("guest"));
    let (early, late) = (now.plus(seconds(10)), now.plus(seconds(20)));
    let deny = |list: &mut DenyList, before: Timestamp, at: Timestamp| {
        list.deny_identity_before(guest.clone(), before, now.plus(HOUR), denial(at))
            .unwrap();
    };
    let mut list = DenyList::new(platform.authority.identity().clone());
    let mut other = list.clone();
    deny(&mut list, now, late);
    deny(&mut other, early, early);
    let in_force = list.clone();
    deny(&mut list, early, early);

    // Two copies of the list, each with one of the two denials.
    assert!(in_force.outlasts(&other) && other.outlasts(&in_force));
    let mut again = in_force.clone();
    let returned = again.take_over(&other, now).unwrap();
    assert_eq!(returned, [(guest.clone(), denial(early))]);
    let returned = other.take_over(&in_force, now).unwrap();
    assert_eq!(returned, [(guest.clone(), denial(late))]);
    for whole in [&list, &again, &other] {
        assert_eq!(whole.denied_identity(&guest), Some(denial(late)));
        assert_eq!(whole.denied_before(&guest), Some(early));
        assert!(!in_force.outlasts(whole));
        assert_eq!(whole.digest(), list.digest());
    }
}

#[test]
fn a_version_of_another_authority_that_is_not_of_this_time_is_not_passed() {
    let platform = TestPlatform::new("factory");
    let (now, later) = (platform.now, platform.now.plus(HOUR));
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(now, YEAR))
        .unwrap();
    let mut list = DenyList::new(platform.authority.identity().clone());
    let mut other = DenyList::new(second.identity().clone());
    other.deny_serial(serial(1), later, denial(now)).unwrap();
    other.raise_version(latest_version(now));
    list.take_over(&other, now).unwrap();
    assert!(list.version() > other.version());

    other.deny_serial(serial(2), later, denial(now)).unwrap();
    other.raise_version(u64::MAX);
    let version = list.version();
    list.take_over(&other, now).unwrap();
    assert_eq!(list.version(), version + 1);
    assert!(list.denied_serial(serial(2)).is_some());

    // Versions of an authority's own list are passed, as long as there are higher ones.
    let mut former = list.clone();
    former.deny_serial(serial(3), later, denial(now)).unwrap();
    former.raise_version(u64::MAX);
    list.take_over(&former, now).unwrap();
    list.deny_serial(serial(4), later, denial(now)).unwrap();
    assert_eq!((list.version(), list.len()), (u64::MAX, 4));
}
