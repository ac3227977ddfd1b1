//! A deny list that has no room for all certificates that are denied together.

use sealbus_seal::denylist::MOST_ENTRIES;

use super::*;

/// Leaves room for one certificate.
fn fill(service: &mut CaService) {
    let denial = Denial {
        at: NOW,
        reason: Reason::Killed,
    };
    for number in 1..MOST_ENTRIES as u128 {
        let other = Serial::from_bytes(number.to_be_bytes());
        service.deny_list.deny_serial(other, NOW, denial).unwrap();
    }
}

/// A CA that has certified an agent in two processes.
fn with_two(root: &RootAuthority) -> CaService {
    let mut service = service(root);
    let node = node(&mut service);
    for process in ["p", "q"] {
        certified(&mut service, &node, process).unwrap();
    }
    service
}

/// How many certificates of the agent are denied by the list in force.
fn in_force(service: &CaService) -> usize {
    let list = service.trust().latest_deny_list().unwrap();
    let all = service.issued.of_subject("seller");
    all.filter(|found| list.denied_serial(found.record.serial).is_some())
        .count()
}

#[test]
fn what_there_is_room_for_is_in_force_although_the_rest_is_not() {
    let mut service = with_two(&root());
    fill(&mut service);
    let fault = service.revoke_by_hand("seller", "stolen", NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    service.publish(NOW).unwrap();
    assert_eq!(in_force(&service), 1);
}

#[test]
fn what_is_handed_back_is_in_force_as_far_as_there_is_room() {
    let root = root();
    let mut first = with_two(&root);
    let backup = stored(&mut first);
    for process in ["p", "q"] {
        first
            .revoke_process(process, None, Reason::Killed, NOW)
            .unwrap();
    }
    first.publish(NOW).unwrap();
    let handed = first.deny_list_since(0);

    let mut restored = loaded(first.authority, blind::trust(&root), &backup, NOW);
    fill(&mut restored);
    let fault = restored.take_back(&handed, NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    restored.publish(NOW).unwrap();
    assert_eq!(in_force(&restored), 1);
    // The holder of the list hands it back until all of it is in force. Nothing is published for that.
    let published = restored.published.version();
    let _ = restored.take_back(&handed, NOW);
    restored.publish(NOW).unwrap();
    assert_eq!(restored.published.version(), published);
}

/// The holder of a stolen key of a CA gets its certificate renewed while nothing more can be denied.
#[test]
fn another_certificate_of_a_revoked_ca_is_denied_as_soon_as_there_is_room() {
    let root = root();
    let mut service = service(&root);
    let validity = Validity::starting(NOW, HOUR * 100);
    let other = root.create_authority("ca-2", validity).unwrap();
    service.note_authority(other.chain().leaf(), NOW).unwrap();
    service.revoke_authority("ca-2", "stolen", NOW).unwrap();
    fill(&mut service);
    let renewed = root.renew_authority(&other, Validity::starting(NOW, HOUR * 50));
    let renewed = renewed.unwrap().chain().leaf().to_vec();
    for _ in 0..2 {
        let fault = service.note_authority(&renewed, NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::Full);
    }
    service.deny_list.prune(NOW.plus(HOUR));
    service.note_authority(&renewed, NOW).unwrap();
    service.publish(NOW).unwrap();
    assert!(service.trust().verify_authority(&renewed, NOW).is_err());
}
