use sealbus_control::admin::CertificationEvent;

use super::*;

#[test]
fn a_ca_that_was_restored_takes_back_what_it_had_denied() {
    let root = root();
    let mut service = service(&root);
    let agent = Identity::agent(&platform(), "seller").unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let certified = service.certify_own(agent.clone(), HERE, Some("p"), &request, HOUR, NOW);
    let chain = certified.unwrap();
    let rows = stored(&mut service);
    service.revoke_by_hand("seller", "stolen", NOW).unwrap();
    service.publish(NOW).unwrap();
    let in_force = service.deny_list_since(0);

    let view = rows
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    let authority = root.renew_authority(service.authority(), Validity::starting(NOW, HOUR * 100));
    let trust = Trust::new(platform(), &[root.certificate().clone()], Duration::ZERO).unwrap();
    let trust = Arc::new(trust);
    let mut restored = CaService::load(authority.unwrap(), trust, HOUR, view, None, NOW).unwrap();
    restored.trust().verify(&chain, NOW).unwrap();
    let version = restored.deny_list_version();
    let taken = TakenBack {
        is_new: true,
        by_operator: vec![(agent, NOW)],
    };
    assert_eq!(restored.take_back(&in_force, NOW).unwrap(), taken);
    restored.publish(NOW).unwrap();
    assert!(restored.deny_list_version() > version);
    assert!(restored.trust().verify(&chain, NOW).is_err());
    assert!(
        restored
            .certificates(true, None, &Page::default(), NOW)
            .unwrap()
            .certificates[0]
            .revoked
            .is_some()
    );
    // A second call changes nothing.
    let again = restored.take_back(&in_force, NOW);
    assert_eq!(again.unwrap(), TakenBack::default());
    let fault = restored.take_back(b"no list", NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::BadRequest);
    let mut other = super::service(&super::root());
    other.publish(NOW).unwrap();
    let strange = restored.take_back(&other.deny_list_since(0), NOW);
    assert_eq!(strange.unwrap_err().code, FaultCode::BadRequest);
}

#[test]
fn a_ca_that_goes_on_from_an_older_copy_is_obeyed() {
    let root = root();
    let mut first = service(&root);
    let node = node(&mut first);
    certified(&mut first, &node, "p").unwrap();
    let backup = stored(&mut first);
    certified(&mut first, &node, "q").unwrap();
    for process in ["p", "q"] {
        first
            .revoke_process(process, None, Reason::Killed, NOW)
            .unwrap();
        first.publish(NOW).unwrap();
    }
    // The roots that the nodes hold.
    let roots = [root.certificate().clone()];
    let trust = || Trust::new(platform(), &roots, Duration::from_secs(10)).unwrap();
    let held = trust();
    held.apply_deny_list(&first.deny_list_since(0), NOW)
        .unwrap();
    let later = NOW.plus(Duration::from_secs(60));
    let mut restored = loaded(first.authority, Arc::new(trust()), &backup, later);
    restored
        .revoke_process("p", None, Reason::Killed, later)
        .unwrap();
    restored.publish(later).unwrap();
    let taken = held.apply_deny_list(&restored.deny_list_since(0), later);
    assert!(taken.is_ok(), "{taken:?}");
}

/// A CA that goes on from an older copy within the second of its last list, or after very many denials, does not pass the version
/// of that list by itself.
#[test]
fn a_list_that_is_handed_back_is_passed_in_its_version() {
    let root = root();
    let mut first = service(&root);
    let node = node(&mut first);
    for process in ["p", "q", "r"] {
        certified(&mut first, &node, process).unwrap();
    }
    let backup = stored(&mut first);
    for process in ["p", "q"] {
        first
            .revoke_process(process, None, Reason::Killed, NOW)
            .unwrap();
    }
    first.publish(NOW).unwrap();
    let handed = first.deny_list_since(0);
    let (lost, mut authority) = (first.deny_list_version(), first.authority);
    for revoked in [&["r"][..], &["r", "p"], &["r", "p", "q"]] {
        let roots = [root.certificate().clone()];
        let trust = || Trust::new(platform(), &roots, Duration::from_secs(10)).unwrap();
        let holder = trust();
        holder.apply_deny_list(&handed, NOW).unwrap();
        let mut restored = loaded(authority, Arc::new(trust()), &backup, NOW);
        for process in revoked {
            restored
                .revoke_process(process, None, Reason::Killed, NOW)
                .unwrap();
        }
        restored.publish(NOW).unwrap();
        restored.take_back(&handed, NOW).unwrap();
        restored.publish(NOW).unwrap();
        let version = restored.deny_list_version();
        assert!(version > lost);
        holder
            .apply_deny_list(&restored.deny_list_since(0), NOW)
            .unwrap();
        assert_eq!(holder.deny_lists()[0].serials().count(), 3);
        assert!(holder.outlasting_deny_lists(|_| true).is_empty());
        // Again, it changes nothing.
        restored.take_back(&handed, NOW).unwrap();
        restored.publish(NOW).unwrap();
        assert_eq!(restored.deny_list_version(), version);
        authority = restored.authority;
    }
}

#[test]
fn rows_with_the_highest_numbers_are_read_or_named() {
    let root = root();
    let load = |key: &str, value: &[u8]| {
        let trust = Trust::new(platform(), &[root.certificate().clone()], Duration::ZERO);
        let authority = root.create_authority("ca", Validity::starting(NOW, HOUR * 100));
        let rows = [(key, value)];
        CaService::load(
            authority.unwrap(),
            Arc::new(trust.unwrap()),
            HOUR,
            rows,
            None,
            NOW,
        )
    };
    let event = CertificationEvent {
        sequence: u64::MAX,
        at: 0,
        step: 0,
        subject: "seller".to_owned(),
        node: None,
        serial: None,
        what: "refused".to_owned(),
    };
    let event = serde_json::to_vec(&event).unwrap();
    let mut service = load("event/ffffffffffffffff", &event).unwrap();
    let what = "refused again".to_owned();
    service.events().enter(0, "seller", None, None, what, NOW);
    let events = service.events().since(u64::MAX, 9);
    assert_eq!(events.last().unwrap().what, "refused again");

    node(&mut service);
    let rows = stored(&mut service);
    let (_, leaf) = rows
        .iter()
        .find(|(key, _)| key.starts_with(LEAF_ROW))
        .unwrap();
    let key = "leaf/other/ffffffffffffffff";
    let error = load(key, leaf).err().unwrap();
    assert!(error.to_string().contains(key), "{error}");
}
