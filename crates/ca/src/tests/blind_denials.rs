//! Denials of what other CAs renewed, or may have renewed.

use sealbus_seal::GRANT;
use sealbus_seal::denylist::{DenyList, MOST_ENTRIES, ROOM, SERIAL_ENTRY};

use super::blind::{Asked, PROCESS, Two, signing_request, trust, two};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Another CA of the platform is away, and renews until `end`. Returns what it renewed last.
fn renewed_elsewhere(two: &mut Two, end: Timestamp) -> CertificateChain {
    let second = two
        .root
        .create_authority("ca-2", Validity::starting(NOW, HOUR * 100));
    let der = second.unwrap().chain().leaf().to_vec();
    two.leader.note_authority(&der, NOW).unwrap();
    two.leader.are_present(&[], NOW);
    let mut held = two.first(NOW);
    let mut now = NOW;
    while now < end {
        now = now.plus(HOUR / 2);
        let renewed = two.renew(&Asked::OWN, &held, &signing_request(), now);
        held = renewed.unwrap().0;
        two.leader.prune(now);
    }
    held
}

#[test]
fn what_was_renewed_for_a_revoked_owner_is_taken_in_as_revoked() {
    let end = NOW.plus(HOUR * 5);
    let mut two = two();
    // Its renewals have ended, and are not known here.
    let last = renewed_elsewhere(&mut two, end);
    let certificate = last.certificate().unwrap();
    let owner = certificate.identity().clone();
    two.leader
        .take_in_denial(owner, "stolen", end, end)
        .unwrap();
    let process = Asked::OWN.process();
    let taken = two.leader.take_in(&last, "node-1", &process, end, end);
    let serial = taken.unwrap().serial();
    let known = two.leader.issued.get(&serial).unwrap();
    assert_eq!(known.revoked.unwrap().reason, Reason::ByOperator);
}

#[test]
fn a_sender_that_another_ca_revoked_is_denied_as_long_as_a_certificate_may_live() {
    let mut two = two();
    let owner = two.first(NOW).certificate().unwrap().identity().clone();
    let revoked = two.leader.take_in_denial(owner.clone(), "stolen", NOW, NOW);
    revoked.unwrap();
    two.leader.deny_list.prune(NOW.plus(NODE_CERTIFICATE));
    assert!(two.leader.is_denied(&owner));
    two.leader.deny_list.prune(NOW.plus(NODE_CERTIFICATE * 2));
    assert!(!two.leader.is_denied(&owner));
}

fn of_seller(service: &CaService) -> usize {
    service.issued.of_subject("seller").count()
}

#[test]
fn what_ended_long_ago_can_be_revoked_while_another_ca_may_renew_it() {
    let end = NOW.plus(HOUR * 5);
    for by_hand in [true, false] {
        let mut two = two();
        let last = renewed_elsewhere(&mut two, end);
        assert!(two.leader.trust().verify(&last, end).is_ok());
        let process = Asked::OWN.process();
        match by_hand {
            true => {
                let revoked = two.leader.revoke_by_hand("seller", "stolen", end);
                assert_eq!(revoked.unwrap().len(), 1);
            }
            false => {
                let lost = Reason::NodeLost;
                let revoked = two.leader.revoke_process(&process, None, lost, end);
                assert!(revoked.unwrap());
            }
        }
        two.leader.publish(end).unwrap();
        two.leader.prune(end.plus(HOUR));
        two.leader.publish_whole(end.plus(HOUR)).unwrap();
        let refused = two.leader.trust().verify(&last, end).unwrap_err();
        assert!(refused.to_string().contains("revoked"), "{refused}");
    }
}

#[test]
fn one_certificate_of_each_process_is_kept_until_nobody_can_renew_it() {
    let mut two = two();
    renewed_elsewhere(&mut two, NOW.plus(HOUR));
    // The leader renews, too, and only the latest is kept.
    for hours in 1..5 {
        let now = NOW.plus(HOUR * hours);
        two.first(now);
        two.leader.prune(now.plus(HOUR * 2));
        assert_eq!(of_seller(&two.leader), 1);
        assert_eq!(two.leader.revocable, 1);
    }
    let end = NOW.plus(HOUR * 3 + GRANT);
    two.leader.prune(end);
    assert_eq!(of_seller(&two.leader), 1);
    // It makes room when a certificate needs that.
    two.leader.room = SERIAL_ENTRY;
    two.leader.check_room(end.plus(SECOND)).unwrap();
    assert_eq!((of_seller(&two.leader), two.leader.revocable), (0, 0));
    // Nothing is kept if all CAs know the state.
    two.leader.room = 10 * SERIAL_ENTRY;
    two.first(NOW);
    two.leader.are_present(&["ca-2".to_owned()], NOW);
    two.leader.prune(NOW.plus(HOUR * 2));
    assert_eq!(of_seller(&two.leader), 0);
}

#[test]
fn with_a_renewed_certificate_what_it_goes_back_to_is_denied() {
    let mut two = two();
    let held = two.first(NOW);
    let later = NOW.plus(HOUR / 2);
    let mut renewed = || {
        let renewed = two.renew(&Asked::OWN, &held, &signing_request(), later);
        renewed.unwrap().0
    };
    let (first, second) = (renewed(), renewed());
    // The certificate that both go back to is forgotten.
    let now = later.plus(HOUR * 3 / 4);
    two.leader.prune(now);
    let process = Asked::OWN.process();
    let leader = &mut two.leader;
    let taken = leader.take_in(&first, "node-1", &process, later, now);
    let room = leader.deny_list.len() + leader.revocable;
    leader.revoke_renewed(taken.unwrap().serial(), now).unwrap();
    assert_eq!(leader.deny_list.len() + leader.revocable, room);
    leader.publish(now).unwrap();
    for chain in [&first, &second] {
        assert!(leader.trust().verify(chain, now).is_err());
    }
}

#[test]
fn a_certificate_that_is_denied_before_it_is_revoked_leaves_the_stored_list_whole() {
    let mut two = two();
    let held = two.first(NOW);
    let renewed = two.renew(&Asked::OWN, &held, &signing_request(), NOW);
    let process = Asked::OWN.process();
    let Two { root, leader, .. } = &mut two;
    leader.publish_whole(NOW).unwrap();
    let taken = leader.take_in(&renewed.unwrap().0, "node-1", &process, NOW, NOW);
    // The certificate that it renews is denied with it.
    leader.revoke_renewed(taken.unwrap().serial(), NOW).unwrap();
    leader.publish(NOW).unwrap();
    let killed = Reason::Killed;
    leader.revoke_process(&process, None, killed, NOW).unwrap();
    leader.publish(NOW).unwrap();
    let serial = held.certificate().unwrap().serial();
    assert!(leader.issued.get(&serial).unwrap().revoked.is_some());

    let mut rows: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (key, value) in leader.take_rows() {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
    let standby = root.create_authority("ca-2", Validity::starting(NOW, HOUR * 100));
    let led = loaded(standby.unwrap(), trust(root), &rows, NOW);
    assert!(led.trust().verify(&held, NOW).is_err());
}

#[test]
fn a_full_deny_list_says_so_and_later_the_same_is_denied() {
    let mut two = two();
    let held = two.first(NOW);
    let renewed = two.renew(&Asked::OWN, &held, &signing_request(), NOW);
    let (process, agent) = (Asked::OWN.process(), Asked::OWN.wanted());
    let leader = &mut two.leader;
    let taken = leader.take_in(&renewed.unwrap().0, "node-1", &process, NOW, NOW);
    let serial = taken.unwrap().serial();
    let denial = Denial {
        at: NOW,
        reason: Reason::Killed,
    };
    for number in 0..MOST_ENTRIES as u128 {
        let other = Serial::from_bytes(number.to_be_bytes());
        leader.deny_list.deny_serial(other, NOW, denial).unwrap();
    }
    let faults = [
        leader.take_in_denial(agent.clone(), "", NOW, NOW),
        leader.revoke_renewed(serial, NOW),
        leader.revoke_by_hand("seller", "", NOW).map(drop),
    ];
    for fault in faults {
        assert_eq!(fault.unwrap_err().code, FaultCode::Full);
    }
    assert!(leader.denial(serial).is_none());
    let later = NOW.plus(HOUR / 2);
    leader.revoke_renewed(serial, later).unwrap();
    assert!(leader.denial(serial).is_some());
    leader.take_in_denial(agent, "", NOW, later).unwrap();
}

#[test]
fn a_full_list_denies_as_much_of_the_stored_one_as_it_has_room_for() {
    let mut two = two();
    two.blind.revoke("thief", "stolen", NOW).unwrap();
    let mut stored = DenyList::new(two.blind.identity().clone());
    let denial = Denial {
        at: NOW,
        reason: Reason::Killed,
    };
    for number in 0..MOST_ENTRIES as u128 {
        let other = Serial::from_bytes(number.to_be_bytes());
        stored.deny_serial(other, NOW.plus(HOUR), denial).unwrap();
    }
    let full = two.blind.take_over(&stored, NOW).unwrap_err();
    assert_eq!(full.code, FaultCode::Full);
    // The denials of the thief take the room of a few others.
    let held = two.blind.trust().latest_deny_list().unwrap();
    assert!(held.len() > MOST_ENTRIES - 16, "{}", held.len());
}

#[test]
fn requests_that_others_recorded_use_up_nothing() {
    let mut two = two();
    let held = two.first(NOW);
    let (first, second) = (signing_request(), signing_request());
    two.renew(&Asked::OWN, &held, &first, NOW).unwrap();
    let early = two.clock;
    let (chain, _) = two.renew(&Asked::OWN, &held, &second, NOW).unwrap();
    let late = two.clock;
    for _ in 0..100 {
        two.clock = early - 1;
        let fault = two.renew(&Asked::OWN, &held, &first, NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::Unavailable);
        two.clock = late - 1;
        let again = two.renew(&Asked::OWN, &held, &second, NOW).unwrap();
        assert_eq!(again, (chain.clone(), None));
    }
    two.renew(&Asked::OWN, &held, &signing_request(), NOW)
        .unwrap();
}

#[test]
fn a_ca_without_the_state_revokes_a_node_of_the_name_too() {
    let mut two = two();
    let node = two.nodes[0].chain().clone();
    assert!(two.blind.trust().verify(&node, NOW).is_ok());
    two.blind.revoke("node-1", "stolen", NOW).unwrap();
    assert!(two.blind.trust().verify(&node, NOW).is_err());
    assert!(two.blind.trust().verify(two.nodes[1].chain(), NOW).is_ok());
}

#[test]
fn a_ca_without_the_state_revokes_an_agent_whose_name_is_a_serial_number_too() {
    let mut two = two();
    let name = "0123456789abcdef0123456789abcdef";
    two.blind.revoke(name, "stolen", NOW).unwrap();
    let trust = two.blind.trust();
    let agent = Identity::agent(&platform(), name).unwrap();
    assert!(trust.denied_before(&agent).is_some());
    let list = trust.latest_deny_list().unwrap();
    assert!(list.denied_serial(name.parse().unwrap()).is_some());
}

#[test]
fn what_others_revoked_is_denied_once_and_again_if_it_comes_later() {
    let mut two = two();
    let seller = Asked::OWN.wanted();
    let revoked = |at: Timestamp| {
        [Unstored::Revoked {
            what: "seller".to_owned(),
            said: String::new(),
            at,
        }]
    };
    two.blind.restore(&revoked(NOW), NOW).unwrap();
    let version = two.blind.trust().latest_deny_list().unwrap().version();
    two.blind.restore(&revoked(NOW), NOW.plus(SECOND)).unwrap();
    let latest = two.blind.trust().latest_deny_list().unwrap();
    assert_eq!(latest.version(), version);
    let later = NOW.plus(HOUR);
    two.blind.restore(&revoked(later), later).unwrap();
    let floor = two.blind.trust().denied_before(&seller);
    assert_eq!(floor, Some(later.plus(SECOND)));
}

/// A node takes the lists of a CA that was started anew, however fast it denied before.
#[test]
fn a_ca_that_does_not_know_the_state_denies_as_many_as_one_that_does() {
    let mut two = two();
    let revoked = |number: usize| Unstored::Revoked {
        what: format!("thief-{number:06}"),
        said: String::new(),
        at: NOW,
    };
    let revoke =
        |blind: &mut Blind, number: usize| blind.revoke(&format!("thief-{number:06}"), "", NOW);
    revoke(&mut two.blind, 0).unwrap();
    // All names have the same length.
    let most = ROOM / two.blind.trust().latest_deny_list().unwrap().bytes();
    let acts: Vec<_> = (0..most).map(revoked).collect();
    two.blind.restore(&acts[1..most - 1], NOW).unwrap();
    revoke(&mut two.blind, most - 1).unwrap();
    let full = revoke(&mut two.blind, most).unwrap_err();
    assert_eq!(full.code, FaultCode::Full);

    let node = two.leader.trust().clone();
    let list = two.blind.deny_list_after(0).unwrap();
    node.apply_deny_list_beside(&list, NOW).unwrap();
    let is_denied = |trust: &Trust, number: usize| {
        let agent = Identity::agent(&platform(), &format!("thief-{number:06}"));
        trust.denied_before(&agent.unwrap()).is_some()
    };
    for number in [0, 1023, 1024, most - 1] {
        assert!(is_denied(two.blind.trust(), number) && is_denied(&node, number));
    }
    let held = node.deny_lists();
    let held = held
        .iter()
        .find(|list| list.authority() == two.blind.identity());
    let held = held.unwrap().version();

    let second = two
        .root
        .create_authority("ca-2", Validity::starting(NOW, HOUR * 100));
    let mut again = Blind::new(second.unwrap(), trust(&two.root), HOUR);
    let later = NOW.plus(SECOND);
    again.restore(&acts[most - 1..], later).unwrap();
    again.revoke("other", "", later).unwrap();
    assert_eq!(again.deny_list_after(held), None);
    // A version that nobody can have changes nothing.
    again.is_held(u64::MAX, later).unwrap();
    assert_eq!(again.deny_list_after(held), None);
    again.is_held(held, later).unwrap();
    let list = again.deny_list_after(held).unwrap();
    node.apply_deny_list_beside(&list, later).unwrap();
    let other = Identity::agent(&platform(), "other").unwrap();
    assert!(node.denied_before(&other).is_some());
    // The former list has entries that this one lacks.
    assert!(is_denied(&node, 0));
    // Words that come in a row make it sign once a second.
    let signed = held + 1;
    again.is_held(signed + 1, later).unwrap();
    assert_eq!(again.deny_list_after(signed), None);
    again.is_held(signed + 1, later.plus(SECOND)).unwrap();
    assert!(again.deny_list_after(signed + 1).is_some());
}

/// A node that holds most of the list gets the rest, and one that holds a list of the CA's former life gets all of it.
#[test]
fn a_ca_that_does_not_know_the_state_tells_a_node_what_it_lacks() {
    let mut two = two();
    let revoked = |number: usize| Unstored::Revoked {
        what: format!("thief-{number}"),
        said: String::new(),
        at: NOW,
    };
    let acts: Vec<_> = (0..1000).map(revoked).collect();
    two.blind.restore(&acts, NOW).unwrap();
    let node = two.leader.trust().clone();
    let held = |ca: &Blind| {
        let lists = node.deny_lists();
        let mut lists = lists.iter();
        let list = lists.find(|list| list.authority() == ca.identity());
        list.map_or(0, |list| list.version())
    };
    let take = |ca: &Blind, now: Timestamp| {
        let list = ca.deny_list_after(held(ca)).unwrap();
        node.apply_deny_list_beside(&list, now).unwrap();
        list.len()
    };
    let is_denied = |name: &str| {
        let agent = Identity::agent(&platform(), name).unwrap();
        node.denied_before(&agent).is_some()
    };
    let whole = take(&two.blind, NOW);
    let mut now = NOW;
    for name in ["one", "another"] {
        now = now.plus(SECOND);
        two.blind.revoke(name, "", now).unwrap();
        let changes = take(&two.blind, now);
        assert!(changes < whole / 20, "{changes} of {whole} bytes");
        assert!(is_denied(name) && is_denied("thief-999"));
    }
    let second = two
        .root
        .create_authority("ca-2", Validity::starting(NOW, HOUR * 100));
    let mut again = Blind::new(second.unwrap(), trust(&two.root), HOUR);
    for name in ["thief-7", "third"] {
        now = now.plus(SECOND);
        again.revoke(name, "", now).unwrap();
    }
    take(&again, now);
    assert!(is_denied("third") && is_denied("thief-999"));
}

#[test]
fn a_ca_without_the_state_revokes_a_process_by_its_identity() {
    let mut two = two();
    let mut certify = |process: ProcessId| {
        let identity = Identity::process(&platform(), "node-1", process).unwrap();
        let (id, request) = (process.to_string(), signing_request());
        let leader = &mut two.leader;
        let issued = leader.certify_own(identity, HERE, Some(&id), &request, HOUR, NOW);
        issued.unwrap()
    };
    let thief = certify(PROCESS);
    let other = certify(ProcessId::from_bytes([8; 16]));
    let identity = thief.certificate().unwrap().identity().to_string();
    two.blind.revoke(&identity, "stolen", NOW).unwrap();
    let is_believed = |chain| two.blind.trust().verify(chain, NOW).is_ok();
    assert!(!is_believed(&thief) && is_believed(&other));
    assert!(is_believed(two.nodes[0].chain()));
}
