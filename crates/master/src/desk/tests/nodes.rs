//! Nodes that join, come back, and vouch for their processes.

use std::path::Path;

use sealbus_bus::{Bus, BusConfig};
use sealbus_control::Blob;
use sealbus_control::authority::AuthorityRequest;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::enrolment::EnrolmentRequest;
use sealbus_control::node::{MasterRequest, ONTOLOGY};
use sealbus_control::statement::{Returning, Signed, Vouching};
use sealbus_control::turns::Turns;
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_process::attachment::secret_text;
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{Credential, Fingerprint};

use super::*;
use crate::certify_vouched;
use crate::certifying::certified;
use crate::desk_shares::DeskShares;
use crate::enrolment::enrol;
use crate::system::{hear, hear_ca};

/// Has `node-1` join. Returns its credential.
pub(super) async fn joined(desk: &DeskHandle) -> Credential {
    let joining = |desk: &mut Desk, now| {
        desk.state.join(Some("node-1"), description(), now)?;
        let key = KeyPair::generate().unwrap();
        let request = key.signing_request().unwrap();
        let identity = Identity::node(&desk.name, "node-1").unwrap();
        let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let time = timestamp(now);
        let chain = desk
            .ca
            .certify_own(identity, here, None, &request, life, time)?;
        Ok(Credential::new(key, chain).unwrap())
    };
    desk.run(joining).await.unwrap()
}

fn request() -> Blob {
    Blob(KeyPair::generate().unwrap().signing_request().unwrap())
}

#[tokio::test]
async fn while_etcd_is_away_no_token_is_spent_and_a_node_that_comes_back_waits() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let node = joined(&desk).await;
    let entering = desk.run(|desk, now| {
        let addresses = vec!["127.0.0.1:9".to_owned()];
        let root = Fingerprint::from_bytes([0; 32]);
        let token = Token::new(Purpose::Join, desk.name.clone(), None, addresses, root).unwrap();
        let life = Duration::from_secs(60);
        desk.tokens.enter(&token, life, timestamp(now)).unwrap();
        Ok(token)
    });
    let token = entering.await.unwrap();
    let join = || EnrolmentRequest::Join {
        secret: secret_text(token.secret()),
        name: Some("node-2".to_owned()),
        now: now(),
        node: description(),
        request: request(),
    };
    let come_back = || {
        let returning = Returning {
            node: description(),
            request: request(),
            at: now(),
        };
        let statement = Signed::sign(&returning, &node).unwrap();
        EnrolmentRequest::Return { statement }
    };
    let ask = |request: EnrolmentRequest| {
        desk.run(move |desk, now| enrol(desk, request, Path::new("nowhere"), now).map(drop))
    };
    let known = || {
        desk.run(|desk, _| {
            let nodes = desk.state.nodes();
            Ok((nodes.len(), nodes["node-1"].heard))
        })
    };
    let (_, before) = known().await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    desk.store_answers(&Err(StoreError::Away {
        members: "etcd".to_owned(),
        detail: "it was stopped".to_owned(),
    }));
    for request in [join(), come_back()] {
        let fault = ask(request).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Unavailable, "{fault}");
    }
    let (nodes, heard) = known().await.unwrap();
    assert!(nodes == 1 && heard > before);
    desk.store_answers(&Ok(()));
    for request in [join(), come_back()] {
        ask(request).await.unwrap();
    }
    assert_eq!(known().await.unwrap().0, 2);
}

#[tokio::test]
async fn a_node_that_has_used_up_its_share_waits_and_is_heard() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let node = joined(&desk).await;
    let asked = desk.run(move |desk, now| {
        let (here, time) = ([127, 0, 0, 1].into(), timestamp(now));
        let identity = Identity::node(&desk.name, "node-1").unwrap();
        // A request that cannot be read takes from the share, too.
        while desk.ca.check_node("node-1", time).is_ok() {
            let certified = desk.ca.certify_node(identity.clone(), here, b"", time);
            assert!(certified.is_err());
        }
        let issued = desk.ca.issued_in_all();
        let returning = Returning {
            node: description(),
            request: request(),
            at: now,
        };
        let statement = Signed::sign(&returning, &node).unwrap();
        let come_back = EnrolmentRequest::Return { statement };
        let later = now + 1;
        let refused = enrol(desk, come_back, Path::new("nowhere"), later).map(drop);
        let is_heard = desk.state.nodes()["node-1"].heard == later;
        let is_issued = desk.ca.issued_in_all() > issued;
        Ok((refused.unwrap_err(), is_heard, is_issued))
    });
    let (fault, is_heard, is_issued) = asked.await.unwrap();
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.message.contains("in a row"), "{fault}");
    assert!(is_heard && !is_issued);
}

#[tokio::test]
async fn a_node_makes_no_event_of_names_that_are_not_legal_and_none_without_bounds() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let node = joined(&desk).await;
    let process = expect(&desk, "guest").await.unwrap();
    let long = "x".repeat(100_000);
    let agent = |name: &str| Subject::Agent {
        name: name.to_owned(),
    };
    let vouch = |process: &str, subject: Subject| {
        let vouching = Vouching {
            process: process.to_owned(),
            subject,
            request: Blob(Vec::new()),
            held: None,
            at: now(),
        };
        Signed::sign(&vouching, &node).unwrap()
    };
    let illegal = [
        vouch(&long, Subject::Process),
        vouch(&long, agent("guest")),
        vouch(&process, agent(&long)),
        vouch(&process, agent("not legal")),
    ];
    let elsewhere = vouch("0123456789abcdef0123456789abcdef", agent("guest"));
    let delivered = MasterRequest::Delivered {
        process,
        subject: agent(&long),
    };
    let heard = desk.run(move |desk, now| {
        let first = desk.ca.events().next();
        for voucher in &illegal {
            let refused = certify_vouched(desk, voucher, now).map(drop);
            let fault = refused.unwrap_err();
            assert_eq!(fault.code, FaultCode::IllegalName);
            assert!(fault.message.len() < 5000, "{fault}");
        }
        assert_eq!(desk.ca.events().next(), first);
        let refused = certify_vouched(desk, &elsewhere, now).map(drop);
        assert_eq!(refused.unwrap_err().code, FaultCode::NotPlaced);
        hear(desk, "node-1", delivered, now)?;
        let events = desk.ca.events().since(first, 9).into_iter();
        Ok(events.map(|event| event.subject).collect::<Vec<_>>())
    });
    let subjects = heard.await.unwrap();
    assert_eq!(subjects, ["guest"]);
}

#[tokio::test]
async fn a_node_that_delivers_or_registers_and_leaves_without_end_has_a_share_of_the_log() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    joined(&desk).await;
    let process = expect(&desk, "guest").await.unwrap();
    let heard = desk.run(move |desk, now| {
        let first = desk.ca.events().next();
        for number in 0..1000 {
            let guest = "guest".to_owned();
            let invented = format!("invented-{number}");
            let agents = [guest, invented].map(|name| Subject::Agent { name });
            for subject in agents.into_iter().chain([Subject::Process]) {
                let process = process.clone();
                hear(
                    desk,
                    "node-1",
                    MasterRequest::Delivered { process, subject },
                    now,
                )?;
            }
        }
        let contact = ProcessContact {
            node: "node-1".to_owned(),
            process: desk.state.nodes()["node-1"].process.clone(),
            address: ([127, 0, 0, 1], 9).into(),
        };
        for _ in 0..100 {
            let register = MasterRequest::Register {
                node: description(),
                contact: contact.clone(),
                attachment: None,
                processes: Vec::new(),
                ended: Vec::new(),
            };
            hear(desk, "node-1", register, now)?;
            hear(desk, "node-1", MasterRequest::Leaving, now)?;
        }
        let of_node = desk.log.admit("node-1".to_owned());
        let of_other = desk.log.admit("node-2".to_owned());
        Ok((desk.ca.events().next() - first, of_node, of_other))
    });
    let (events, of_node, of_other) = heard.await.unwrap();
    // 32 in a row for each name that the process has.
    assert_eq!((events, of_node), (64, None));
    assert!(
        of_other.is_some_and(|left_out| left_out > 90),
        "{of_other:?}"
    );
}

#[tokio::test]
async fn a_revoked_program_that_asks_without_end_takes_no_turns_from_its_node() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let node = joined(&desk).await;
    let process = expect(&desk, "guest").await.unwrap();
    let barred = process.clone();
    let barring = desk.run(move |desk, _| {
        desk.state.bar(&barred, Some("guest"));
        Ok(desk.ca.events().next())
    });
    let first = barring.await.unwrap();
    let vouching = Vouching {
        process,
        subject: Subject::Agent {
            name: "guest".to_owned(),
        },
        request: request(),
        held: None,
        at: now(),
    };
    let voucher = Signed::sign(&vouching, &node).unwrap();
    let (turns, mut shares) = (Turns::default(), DeskShares::default());
    let turn = turns.take("node-1", 100).unwrap();
    // The Master has heard the node.
    turn.is_members();
    for _ in 0..1000 {
        let share = shares.of("node-1");
        let asked = certified(&desk, &turn, share, "node-1".to_owned(), voucher.clone());
        let fault = asked.await.unwrap_err();
        assert_eq!(fault.code, FaultCode::NotPermitted, "{fault}");
    }
    let others: Vec<_> = (0..17).filter_map(|_| turns.take("node-1", 100)).collect();
    assert_eq!(others.len(), 17);
    let counting = desk.run(move |desk, _| Ok(desk.ca.events().next() - first));
    let events = counting.await.unwrap();
    assert!((1..10).contains(&events), "{events} events");
}

#[tokio::test]
async fn a_node_that_asks_the_ca_without_end_is_before_others_with_its_share_alone() {
    const ASKED: usize = 512;
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let node = joined(&desk).await;
    let vouching = Vouching {
        process: "no process".to_owned(),
        subject: Subject::Process,
        request: request(),
        held: None,
        at: now(),
    };
    let voucher = Signed::sign(&vouching, &node).unwrap();
    let certify = serde_json::to_string(&AuthorityRequest::Certify { voucher }).unwrap();
    let platform = PlatformName::new("factory").unwrap();
    let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
    let attach = |name: &str| bus.attach(name, None, None).unwrap();
    let (ca, mut requests) = attach("ca@factory");
    let (flooder, mut of_flooder) = attach("node-1@factory");
    let (other, mut of_other) = attach("node-2@factory");
    let mut received = Vec::new();
    for sender in std::iter::repeat_n(&flooder, ASKED).chain([&other]) {
        let request = AclMessage::new(Performative::Request)
            .with_receiver(Aid::new("ca@factory").unwrap())
            .with_ontology(ONTOLOGY)
            .with_reply_with("asked")
            .with_content(certify.clone());
        sender.send(request).await.unwrap();
        received.push(requests.recv().await.unwrap());
    }
    let (turns, mut shares) = (Turns::default(), DeskShares::default());
    // The Master has heard the node.
    turns.take("node-1", 100).unwrap().is_members();
    let ca = Correspondent::new(Arc::new(ca));
    for received in received {
        hear_ca(received, &ca, &desk, &turns, &mut shares);
    }
    of_other.recv().await.unwrap();
    let answered = std::iter::from_fn(|| of_flooder.try_recv()).count();
    // A few more may be answered before this task has its turn.
    assert!(answered < ASKED / 2, "{answered}");
    for _ in answered..ASKED {
        of_flooder.recv().await.unwrap();
    }
}
