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
    // Its holder hands it back until all of it is in force. Nothing is published for that.
    let published = restored.published.version();
    let _ = restored.take_back(&handed, NOW);
    restored.publish(NOW).unwrap();
    assert_eq!(restored.published.version(), published);
}
