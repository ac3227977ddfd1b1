//! Revocations that name something else too, or do not fit.

use sealbus_seal::denylist::{Denial, DenyList, MOST_ENTRIES, Reason};
use sealbus_seal::{Fingerprint, ProcessId, Serial};

use super::nodes::joined;
use super::*;
use crate::masters::note_each;

#[tokio::test]
async fn an_agent_whose_name_is_a_serial_number_is_denied_when_its_revocation_is_taken_in() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let denied = desk.run(|desk, now| {
        let name = "0123456789abcdef0123456789abcdef";
        let revoked = Unstored::Revoked {
            what: name.to_owned(),
            said: "stolen".to_owned(),
            at: timestamp(now),
        };
        desk.take_in(revoked, now)?;
        Ok(desk.ca.is_denied(&desk.agent(name)?))
    });
    assert!(denied.await.unwrap());
}

#[tokio::test]
async fn an_agent_is_barred_although_the_deny_list_takes_no_more_senders() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let process = expect(&desk, "guest").await.unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let found = desk.run(move |desk, now| {
        let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let (guest, time) = (desk.agent("guest")?, timestamp(now));
        desk.ca
            .certify_own(guest, here, Some(&process), &request, life, time)?;
        // Each of them takes 178 bytes of a mebibyte.
        for number in 0..5_900 {
            let sender = desk.agent(&format!("{number:0>128}"))?;
            desk.ca.revoke_unknown(sender, "", time)?;
        }
        let fault = desk.revoke_by_hand("guest", "stolen", now).unwrap_err();
        let denied = desk.ca.revoked_by_hand("guest", time).len();
        let is_barred = desk.state.is_barred(&process, "guest");
        Ok((fault.code, denied, is_barred))
    });
    assert_eq!(found.await.unwrap(), (FaultCode::Full, 1, true));
}

#[tokio::test]
async fn a_certificate_of_a_revoked_ca_that_could_not_be_denied_is_denied_once_there_is_room() {
    let root = root();
    let (issuing, trust) = authority(&root, "ca");
    let (other, _) = authority(&root, "ca-2");
    let (time, hour) = (timestamp(now()), Duration::from_secs(3600));
    let denial = Denial {
        at: time,
        reason: Reason::Killed,
    };
    // There is room for one more.
    let mut full = DenyList::new(issuing.identity().clone());
    for number in 1..MOST_ENTRIES as u128 {
        let serial = Serial::from_bytes(number.to_be_bytes());
        full.deny_serial(serial, time.plus(hour), denial).unwrap();
    }
    let (key, list) = (
        format!("{}1", CaService::DENY_LIST_ROW),
        full.sign(&issuing).unwrap().whole(),
    );
    let rows = [(key.as_str(), list.as_slice())];
    let ca = CaService::load(issuing, trust, hour, rows, None, time).unwrap();
    let parts = Parts {
        ca,
        ..parts_under(&root)
    };
    let (desk, _outward, _news) = open(parts, Arc::new(MemoryStore::new()));
    let mut noted = BTreeMap::new();
    let first = other.chain().leaf().to_vec();
    note_each(&desk, vec![first], &mut noted).await;
    let revoke = |desk: &mut Desk, now| {
        let revoked = desk.ca.revoke_authority("ca-2", "stolen", timestamp(now));
        revoked.map(drop)
    };
    desk.run(revoke).await.unwrap();

    // The holder of the stolen key gets its certificate renewed.
    let renewed = root.renew_authority(&other, Validity::starting(time, hour * 50));
    let renewed = renewed.unwrap().chain().leaf().to_vec();
    let no_certificate = b"no certificate".to_vec();
    let is_denied = async || {
        let renewed = renewed.clone();
        let verified = desk.run(move |desk, now| {
            let trust = desk.ca.trust();
            Ok(trust.verify_authority(&renewed, timestamp(now)).is_err())
        });
        verified.await.unwrap()
    };
    let present = || vec![renewed.clone(), no_certificate.clone()];
    for _ in 0..2 {
        note_each(&desk, present(), &mut noted).await;
        assert!(!is_denied().await);
        // A certificate that is not believed is not tried again.
        assert!(!noted[&Fingerprint::of(&renewed)] && noted[&Fingerprint::of(&no_certificate)]);
    }
    let make_room = move |desk: &mut Desk, now| {
        desk.ca.prune(timestamp(now).plus(hour * 2));
        Ok(())
    };
    desk.run(make_room).await.unwrap();
    note_each(&desk, present(), &mut noted).await;
    assert!(is_denied().await);
}

#[tokio::test]
async fn a_process_is_revoked_by_its_identity_and_barred_with_its_agents() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let process = expect(&desk, "guest").await.unwrap();
    let found = desk.run(move |desk, now| {
        let time = timestamp(now);
        let id: ProcessId = process.parse().unwrap();
        let identity = Identity::process(&desk.name, "node-1", id).unwrap();
        let named = identity.to_string();
        for identity in [identity, desk.agent("guest")?] {
            let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
            let request = KeyPair::generate().unwrap().signing_request().unwrap();
            desk.ca
                .certify_own(identity, here, Some(&process), &request, life, time)?;
        }
        let may_go_on = |desk: &Desk| {
            let guest = Subject::Agent {
                name: "guest".to_owned(),
            };
            [Subject::Process, guest]
                .map(|it| check_process(&desk.state, "node-1", &process, &it).is_ok())
        };
        let before = may_go_on(desk);
        let revoked = desk.revoke_by_hand(&named, "stolen", now)?;
        // The answer to the first order was lost.
        desk.revoke_by_hand(&named, "stolen", now)?;
        Ok((before, revoked.len(), may_go_on(desk)))
    });
    assert_eq!(found.await.unwrap(), ([true; 2], 2, [false; 2]));
}

#[tokio::test]
async fn a_nodes_own_process_is_not_revoked_without_its_node() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    joined(&desk).await;
    let guest = expect(&desk, "guest").await.unwrap();
    let checked = desk.run(move |desk, _| {
        let named = |id: &str| format!("spiffe://factory/node/node-1/process/{id}");
        let own = named(&desk.state.nodes()["node-1"].process);
        desk.check_revocable(&named(&guest))?;
        desk.check_revocable("node-1")?;
        desk.check_revocable("guest")?;
        let fault = desk.check_revocable(&own).unwrap_err();
        Ok((fault.code, fault.advice))
    });
    let (code, advice) = checked.await.unwrap();
    assert_eq!(code, FaultCode::NotPermitted);
    assert!(advice.unwrap().contains("sealbus ca revoke node-1"));
}

#[tokio::test]
async fn a_process_that_another_ca_revoked_is_denied_known_or_not() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let known = expect(&desk, "guest").await.unwrap();
    let found = desk.run(move |desk, now| {
        let named = |id: ProcessId| Identity::process(&desk.name, "node-1", id).unwrap();
        let placed = named(known.parse().unwrap());
        let unknown = named(ProcessId::from_bytes([9; 16]));
        for process in [&placed, &unknown] {
            let revoked = Unstored::Revoked {
                what: process.to_string(),
                said: "stolen".to_owned(),
                at: timestamp(now),
            };
            desk.take_in(revoked, now)?;
        }
        let denied = [&placed, &unknown].map(|process| desk.ca.is_denied(process));
        Ok((denied, desk.state.is_barred(&known, "guest")))
    });
    assert_eq!(found.await.unwrap(), ([true; 2], true));
}
