use sealbus_seal::token::Secret;
use sealbus_seal::{CLOCK_SKEW, KeyPair, RootAuthority, Trust, Validity};

use super::super::cut_off::Hearing;
use super::super::state::Patience;
use super::*;
use crate::vouching::check_process;
use sealbus_control::node::NodeRequest;
use sealbus_control::{ProcessContact, Subject, TransportDescription};
use sealbus_manifest::isolation::Isolation;
use sealbus_store::{Fenced, MemoryStore};

fn parts() -> Parts {
    let name = PlatformName::new("factory").unwrap();
    let hour = Duration::from_secs(3600);
    let time = timestamp(now());
    let root = RootAuthority::create(&name, Validity::starting(time, hour * 1000)).unwrap();
    let issuing = root
        .create_authority("ca", Validity::starting(time, hour * 100))
        .unwrap();
    let roots = [root.certificate().clone()];
    let trust = Arc::new(Trust::new(name.clone(), &roots, CLOCK_SKEW).unwrap());
    let mut drawn = 0_u32;
    let draw_name = Box::new(move || {
        drawn += 1;
        Ok(format!("{drawn:032x}"))
    });
    Parts {
        state: MasterState::load([], now(), Patience::default(), draw_name, now()).unwrap(),
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
        let process = desk.state.processes_of(agent).remove(0);
        Ok(process)
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
    let description = sealbus_control::NodeDescription {
        address: [127, 0, 0, 1].into(),
        host: "here".to_owned(),
        processors: 2,
        version: "0".to_owned(),
        isolation: Some(Isolation::None),
    };
    let join = move |desk: &mut Desk, now| desk.state.join(None, description, now);
    let (node, _) = desk.run(join).await.unwrap();
    let before = desk.run(|_, now| Ok(now)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    desk.heard(&node);
    // The sign of life is noted before the first later job.
    let heard = desk.run(move |desk, _| Ok(desk.state.nodes()[&node].heard));
    assert!(heard.await.unwrap() > before);
}

#[tokio::test]
async fn alarms_count_of_nodes_that_are_not_heard_here() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let description = sealbus_control::NodeDescription {
        address: [127, 0, 0, 1].into(),
        host: "here".to_owned(),
        processors: 2,
        version: "0".to_owned(),
        isolation: Some(Isolation::None),
    };
    let mut alarmed: std::collections::BTreeSet<String> = ["stranger".to_owned()].into();
    for _ in 0..3 {
        let description = description.clone();
        let join = move |desk: &mut Desk, now| desk.state.join(None, description, now);
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
        let serial = desk.ca.certificates(true, time).remove(0).serial;
        let guest = Subject::Agent {
            name: "guest".to_owned(),
        };
        check_process(&desk.state, "node-1", &process, &guest)?;
        let revoked = desk.revoke_by_hand(&serial, "seen elsewhere", now)?;
        assert_eq!(revoked.len(), 1);
        let refused = check_process(&desk.state, "node-1", &process, &guest);
        Ok(refused.unwrap_err())
    });
    assert_eq!(refused.await.unwrap().code, FaultCode::NotPermitted);
}
