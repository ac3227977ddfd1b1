//! The desk: orders, signs of life, turns and revocations. Each module below has a subject of its own.

mod nodes;
mod orders;
mod reports;
mod restored;
mod revoked;
mod strangers;
mod taken_in;
mod undelivered;

use sealbus_ca::{Blind, Renewal, Request, Unstored};
use sealbus_seal::issuance::{Grant, Placements};
use sealbus_seal::token::Secret;
use sealbus_seal::{
    CLOCK_SKEW, IssuingAuthority, KeyPair, Name, RootAuthority, SigningRequest, Trust, Validity,
};

use super::super::cut_off::Hearing;
use super::super::state::TimeLimits;
use super::*;
use crate::vouching::check_process;
use sealbus_control::admin::Page;
use sealbus_control::node::NodeRequest;
use sealbus_control::{NodeDescription, ProcessContact, Subject, TransportDescription};
use sealbus_manifest::isolation::Isolation;
use sealbus_store::{Fenced, MemoryStore};

fn root() -> RootAuthority {
    let name = PlatformName::new("factory").unwrap();
    let life = Duration::from_secs(3_600_000);
    RootAuthority::create(&name, Validity::starting(timestamp(now()), life)).unwrap()
}

/// A CA that the root certified, and the trust in the root.
fn authority(root: &RootAuthority, name: &str) -> (IssuingAuthority, Arc<Trust>) {
    let life = Duration::from_secs(360_000);
    let validity = Validity::starting(timestamp(now()), life);
    let roots = [root.certificate().clone()];
    let platform = PlatformName::new("factory").unwrap();
    let trust = Trust::new(platform, &roots, CLOCK_SKEW).unwrap();
    let authority = root.create_authority(name, validity).unwrap();
    (authority, Arc::new(trust))
}

fn parts() -> Parts {
    parts_under(&root())
}

fn parts_under(root: &RootAuthority) -> Parts {
    let name = PlatformName::new("factory").unwrap();
    let hour = Duration::from_secs(3600);
    let time = timestamp(now());
    let (issuing, trust) = authority(root, "ca");
    let mut drawn = 0_u32;
    let draw_name = Box::new(move || {
        drawn += 1;
        Ok(format!("{drawn:032x}"))
    });
    Parts {
        state: MasterState::load([], now(), TimeLimits::default(), draw_name, now()).unwrap(),
        ca: CaService::load(issuing, trust, hour, [], None, time).unwrap(),
        tokens: Tokens::default(),
        keys: Keys::default(),
        platform: PlatformDescription {
            name: name.to_string(),
            level: "auth".to_owned(),
            roots: Vec::new(),
            certificate_lifetime: 3600,
            max_message: 1 << 20,
            master: ProcessContact {
                node: "master".to_owned(),
                process: String::new(),
                address: ([127, 0, 0, 1], 9).into(),
            },
            control: ProcessContact {
                node: "master".to_owned(),
                process: String::new(),
                address: ([127, 0, 0, 1], 9).into(),
            },
            transport: TransportDescription::Mesh,
        },
        name,
    }
}

fn description() -> NodeDescription {
    NodeDescription {
        address: [127, 0, 0, 1].into(),
        host: "here".to_owned(),
        processors: 2,
        version: "0".to_owned(),
        isolation: Some(Isolation::None),
    }
}

/// Allows a program with a ticket.
async fn expect(desk: &DeskHandle, agent: &'static str) -> Result<String, Fault> {
    let secret = Secret::random().unwrap();
    let expect = move |desk: &mut Desk, now| {
        desk.state.expect(
            vec![agent.to_owned()],
            "node-1",
            secret.hash(),
            now + 60_000,
            now,
        )?;
        Ok(desk.state.processes_of(agent).remove(0))
    };
    desk.run(expect).await
}

#[tokio::test]
async fn a_full_disk_withholds_neither_revocations_nor_ends() {
    let disk = Arc::new(MemoryStore::new());
    let (desk, mut outward, mut news) = open(parts(), disk.clone());
    let process = expect(&desk, "guest").await.unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let certify = move |desk: &mut Desk, now| {
        let (address, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let (identity, now) = (desk.agent("guest")?, timestamp(now));
        desk.ca
            .certify_own(identity, address, Some(&process), &request, life, now)
    };
    desk.run(certify).await.unwrap();
    while outward.try_recv().is_ok() {}

    disk.set_full(true);
    let before = news.borrow_and_update().clone();
    let fault = expect(&desk, "other").await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Storage);
    assert!(fault.to_string().contains("once there is room"), "{fault}");
    let killed = desk.run(|desk, now| desk.state.kill("guest", Duration::ZERO, now));
    assert_eq!(killed.await.unwrap_err().code, FaultCode::Storage);
    news.changed().await.unwrap();
    assert!(news.borrow().deny_list > before.deny_list);
    assert_eq!(news.borrow().directory, before.directory);
    let first = outward.recv().await.unwrap();
    assert!(first.is_an_end(), "{first:?}");

    // All other effects leave when the changes are written.
    assert!(outward.try_recv().is_err());
    disk.set_full(false);
    while news.borrow_and_update().directory == before.directory {
        news.changed().await.unwrap();
    }
    let asked = async {
        loop {
            if let Outward::Ask { request, .. } = outward.recv().await.unwrap() {
                return request;
            }
        }
    };
    assert!(matches!(*asked.await, NodeRequest::Expect { .. }));
}

#[tokio::test]
async fn a_master_whose_term_is_over_changes_nothing_and_asks_nobody() {
    let disk = Arc::new(MemoryStore::new());
    let ours = Fenced::claim(disk.clone()).await.unwrap();
    let leadership = ours.leadership();
    let (desk, mut outward, mut news) = open(parts(), Arc::new(ours));
    expect(&desk, "guest").await.unwrap();
    while !matches!(outward.recv().await, Some(Outward::Ask { .. })) {}
    Fenced::claim(disk.clone()).await.unwrap();
    let before = disk.scan("", None, 1000).await.unwrap();
    news.borrow_and_update();

    let killed = desk.run(|desk, now| desk.state.kill("guest", Duration::ZERO, now));
    let fault = killed.await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(
        fault.to_string().contains("another Master has taken over"),
        "{fault}"
    );
    let ended = leadership.ended().await;
    assert!(matches!(ended, StoreError::Superseded { .. }), "{ended}");
    // The desk closes by itself, without having told anyone to stop the guest.
    desk.jobs.closed().await;
    while let Some(effect) = outward.recv().await {
        assert!(!effect.is_an_end(), "{effect:?}");
    }
    assert!(news.changed().await.is_err());
    assert_eq!(disk.scan("", None, 1000).await.unwrap(), before);
    assert!(expect(&desk, "other").await.is_err());
}

#[tokio::test]
async fn a_sign_of_life_waits_behind_no_job() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let join = |desk: &mut Desk, now| desk.state.join(None, description(), now);
    let (node, _) = desk.run(join).await.unwrap();
    let before = desk.run(|_, now| Ok(now)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    desk.heard(&node);
    // The sign of life is noted before the first later job.
    let heard = desk.run(move |desk, _| Ok(desk.state.nodes()[&node].heard));
    assert!(heard.await.unwrap() > before);
}

#[tokio::test]
async fn other_tasks_get_their_turns_while_signing_takes_long() {
    const JOBS: usize = 40;
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let (sign, mut signed) = watch::channel(0);
    let witness = tokio::spawn(async move {
        let halfway = signed.wait_for(|number| (1..JOBS).contains(number)).await;
        halfway.is_ok()
    });
    let jobs = (0..JOBS).map(|_| {
        let sign = sign.clone();
        desk.run(move |_, _| {
            std::thread::sleep(LONGEST_TURN / 10);
            sign.send_modify(|number| *number += 1);
            Ok(())
        })
    });
    for done in futures_util::future::join_all(jobs).await {
        done.unwrap();
    }
    drop(sign);
    assert!(witness.await.unwrap());
}

#[tokio::test]
async fn alarms_count_of_nodes_that_are_not_heard_here() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let mut alarmed: std::collections::BTreeSet<String> = ["stranger".to_owned()].into();
    for _ in 0..3 {
        let join = |desk: &mut Desk, now| desk.state.join(None, description(), now);
        alarmed.insert(desk.run(join).await.unwrap().0);
    }
    desk.heard("node-1");
    let hear = |later: UnixMillis| {
        let alarmed = alarmed.clone();
        desk.run(move |desk, now| Ok(Hearing::of(desk, &alarmed, now + later)))
    };
    let (heard, missed) = (1, 2);
    assert_eq!(hear(0).await.unwrap(), Hearing { heard, missed });
    let (heard, missed) = (0, 3);
    assert_eq!(hear(60_000).await.unwrap(), Hearing { heard, missed });
}

#[tokio::test]
async fn what_is_revoked_by_its_serial_number_is_barred_in_the_process_that_held_it() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let process = expect(&desk, "guest").await.unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let refused = desk.run(move |desk, now| {
        let (address, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let (identity, time) = (desk.agent("guest")?, timestamp(now));
        desk.ca
            .certify_own(identity, address, Some(&process), &request, life, time)?;
        let serial = desk
            .ca
            .certificates(true, None, &Page::default(), time)?
            .certificates
            .remove(0)
            .serial;
        let guest = Subject::Agent {
            name: "guest".to_owned(),
        };
        check_process(&desk.state, "node-1", &process, &guest)?;
        let revoked = desk.revoke_by_hand(&serial, "seen elsewhere", now)?;
        assert_eq!(revoked.len(), 1);
        let refused = check_process(&desk.state, "node-1", &process, &guest);
        // An operator that did not read the answer repeats the order.
        let again = desk.revoke_by_hand(&serial, "seen elsewhere", now)?;
        assert_eq!(again.len(), 1);
        Ok(refused.unwrap_err())
    });
    assert_eq!(refused.await.unwrap().code, FaultCode::NotPermitted);
}

struct OnNode1;

impl Placements for OnNode1 {
    fn is_member(&self, _: &Name) -> bool {
        true
    }

    fn node_of(&self, _: &Name) -> Option<Name> {
        Name::new("node", "node-1").ok()
    }
}

#[tokio::test]
async fn a_certificate_without_a_right_is_revoked_also_if_taking_it_in_begins_anew() {
    let root = root();
    let (second, trust) = authority(&root, "ca-2");
    let hour = Duration::from_secs(3600);
    let mut blind = Blind::new(second, trust, hour);
    let (desk, _outward, _news) = open(parts_under(&root), Arc::new(MemoryStore::new()));
    let process = expect(&desk, "guest").await.unwrap();
    let denied = desk.run(move |desk, now| {
        let time = timestamp(now);
        let signing_request = || KeyPair::generate().unwrap().signing_request().unwrap();
        let node = Identity::node(&desk.name, "node-1").unwrap();
        let here = [127, 0, 0, 1].into();
        let request = signing_request();
        let node = desk
            .ca
            .certify_own(node, here, None, &request, hour, time)?;
        let node = desk.ca.trust().verify(&node, time).unwrap();
        let guest = desk.agent("guest")?;
        let request = signing_request();
        let request = Request {
            node: &node,
            wanted: &guest,
            process: Some(&process),
            request: &request,
        };
        let held = desk.ca.certify(&request, &OnNode1, time)?;
        let renewal = Renewal {
            request,
            held: &held,
        };
        let (chain, act) = blind.renew(&renewal, now, time)?;
        let (serial, act) = (chain.certificate().unwrap().serial(), act.unwrap());
        desk.take_in(act.clone(), now)?;
        let with_right = desk.ca.denial(serial);
        desk.state.kill("guest", Duration::ZERO, now)?;
        desk.take_in(act, now)?;
        Ok((with_right, desk.ca.denial(serial)))
    });
    let (with_right, without) = denied.await.unwrap();
    assert!(with_right.is_none() && without.is_some(), "{without:?}");
}

#[tokio::test]
async fn a_placed_agent_is_revoked_although_no_certificate_of_it_is_known() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let process = expect(&desk, "guest").await.unwrap();
    let revoke =
        |name: &'static str| desk.run(move |desk, now| desk.revoke_by_hand(name, "stolen", now));
    assert_eq!(revoke("nobody").await.unwrap_err().code, FaultCode::Unknown);
    assert!(revoke("guest@factory").await.unwrap().is_empty());
    let found = desk.run(move |desk, _| {
        let floor = desk.ca.trust().denied_before(&desk.agent("guest")?);
        Ok((floor.is_some(), desk.state.is_barred(&process, "guest")))
    });
    assert_eq!(found.await.unwrap(), (true, true));
    // A Master that stood by carried out a revocation, and the leading Master is asked for it again.
    let again = desk.run(|desk, now| {
        let known = desk.revoke_by_hand("gone", "stolen", now);
        desk.take_in(
            Unstored::Revoked {
                what: "gone".to_owned(),
                said: "stolen".to_owned(),
                at: timestamp(now),
            },
            now,
        )?;
        Ok((known.is_err(), desk.revoke_by_hand("gone", "stolen", now)?))
    });
    assert_eq!(again.await.unwrap(), (true, Vec::new()));
}

#[tokio::test]
async fn a_desk_that_closes_tries_a_store_that_was_away() {
    let disk = Arc::new(MemoryStore::new());
    let (desk, _outward, _news) = open(parts(), disk.clone());
    desk.store_answers(&Err(StoreError::Away {
        members: "etcd".to_owned(),
        detail: "it was stopped".to_owned(),
    }));
    let fault = expect(&desk, "guest").await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Storage);
    let before = disk.scan("", None, 1000).await.unwrap();
    desk.close().await;
    let after = disk.scan("", None, 1000).await.unwrap();
    assert!(after.len() > before.len(), "{before:?}");
}

#[tokio::test]
async fn a_node_that_another_master_revoked_is_refused_with_what_is_not_known_of_it() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    let (desk, _outward, _news) = open(parts_under(&root), Arc::new(MemoryStore::new()));
    let found = desk.run(move |desk, now| {
        let (time, life) = (timestamp(now), Duration::from_secs(3600));
        let here = std::net::IpAddr::from([127, 0, 0, 1]);
        let identity = Identity::node(&desk.name, "node-1").unwrap();
        let joined = |desk: &mut Desk| {
            let request = KeyPair::generate().unwrap().signing_request().unwrap();
            let (identity, life) = (identity.clone(), life);
            desk.ca
                .certify_own(identity, here, None, &request, life, time)
        };
        desk.state.join(Some("node-1"), description(), now)?;
        let known = joined(desk)?;
        // An older copy of the state lacks this certificate.
        let request = KeyPair::generate().unwrap().signing_request().unwrap();
        let request = SigningRequest::parse(&request).unwrap();
        let grant = Grant::by_operator(identity.clone(), here);
        let validity = Validity::starting(time, life);
        let unknown = former.issue(&grant, &request, validity).unwrap().chain;
        let is_believed = |desk: &Desk, chain| desk.ca.trust().verify(chain, time).is_ok();
        assert!(is_believed(desk, &known) && is_believed(desk, &unknown));
        let revoked = Unstored::Revoked {
            what: "node-1".to_owned(),
            said: "stolen".to_owned(),
            at: time,
        };
        desk.take_in(revoked, now)?;
        desk.ca.publish(time).unwrap();
        let former = [&known, &unknown].map(|chain| is_believed(desk, chain));
        // With a new token it may come back at once.
        let again = joined(desk)?;
        Ok((former, is_believed(desk, &again)))
    });
    assert_eq!(found.await.unwrap(), ([false, false], true));
}
