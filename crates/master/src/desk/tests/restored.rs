//! States that were restored from an older copy.

use std::path::Path;

use sealbus_control::authority::CertificatePage;
use sealbus_control::enrolment::{EnrolmentAnswer, EnrolmentRequest};
use sealbus_control::node::RunningProcess;
use sealbus_control::statement::{Returning, Signed};
use sealbus_control::{Blob, PlacedState};
use sealbus_process::attachment::secret_text;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{CertificateChain, Credential, Fingerprint, Serial};

use super::super::super::state::RESTORED_ROW;
use super::*;
use crate::enrolment::enrol;

/// A process on `node-1` that the state does not know.
const PROCESS: &str = "0123456789abcdef0123456789abcdef";
/// A process that runs elsewhere.
const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// A desk whose state was restored, with the node `node-1`, on which a process runs that the state does not know, and in it
/// these agents.
fn restored(root: &RootAuthority, agents: &[&str]) -> DeskHandle {
    let mut parts = parts_under(root);
    let rows = [(RESTORED_ROW, b"1".as_slice())];
    let draw = Box::new(|| Ok("00000000000000000000000000000001".to_owned()));
    parts.state = MasterState::load(rows, now(), TimeLimits::default(), draw, now()).unwrap();
    let (_, process) = parts
        .state
        .join(Some("node-1"), description(), now())
        .unwrap();
    let contact = ProcessContact {
        node: "node-1".to_owned(),
        process,
        address: ([127, 0, 0, 1], 9).into(),
    };
    let agents = agents.iter();
    let running = [RunningProcess {
        process: PROCESS.to_owned(),
        pid: None,
        address: None,
        channels: false,
        agents: agents
            .map(|agent| ((*agent).to_owned(), PlacedState::Active))
            .collect(),
    }];
    let registered = parts
        .state
        .register("node-1", description(), contact, None, &running, now());
    registered.unwrap();
    open(parts, Arc::new(MemoryStore::new())).0
}

/// A chain of a CA that certified before, for the process with this id on this node, if it names one.
fn chain(former: &IssuingAuthority, identity: Identity, holder: Option<(&str, &str)>) -> Blob {
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let mut grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
    if let Some((process, node)) = holder {
        let node = Name::new("node", node).unwrap();
        grant = grant.to_process(process.parse().unwrap(), node);
    }
    let validity = Validity::starting(timestamp(now()), Duration::from_secs(3600));
    let mut encoded = Vec::new();
    let issued = former.issue(&grant, &request, validity).unwrap();
    issued.chain.encode(&mut encoded);
    Blob(encoded)
}

/// The chain of an agent in a process.
fn agent(former: &IssuingAuthority, name: &str, holder: Option<(&str, &str)>) -> Blob {
    let platform = PlatformName::new("factory").unwrap();
    let identity = Identity::agent(&platform, name).unwrap();
    chain(former, identity, holder)
}

/// The chain of a process on `node-1`.
fn own(former: &IssuingAuthority, process: &str) -> Blob {
    let platform = PlatformName::new("factory").unwrap();
    let identity = Identity::process(&platform, "node-1", process.parse().unwrap());
    chain(former, identity.unwrap(), Some((process, "node-1")))
}

fn part(chains: Vec<Blob>, next: Option<&str>) -> CertificatePage {
    CertificatePage {
        chains,
        next: next.map(str::to_owned),
    }
}

/// The number of certificates that the CA knows.
fn known(desk: &Desk, now: UnixMillis) -> usize {
    let page = desk
        .ca
        .certificates(true, None, &Page::default(), timestamp(now));
    page.unwrap().certificates.len()
}

#[tokio::test]
async fn a_restored_state_takes_the_certificates_of_a_process_back_in_parts() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    let agent = |name: &str| agent(&former, name, Some((PROCESS, "node-1")));
    let first = part(vec![own(&former, PROCESS), agent("a")], Some("a"));
    let second = part(vec![agent("b")], Some("b"));
    let last = part(vec![agent("c")], None);
    let root = &root;
    let taken = |parts: Vec<CertificatePage>, doubted: usize| async move {
        let desk = restored(root, &[]);
        let taking = desk.run(move |desk, now| {
            let mut next = Vec::new();
            for (index, part) in parts.into_iter().enumerate() {
                if index == doubted {
                    desk.state.doubt_certificates();
                }
                let is_first = index == 0;
                next.push(desk.take_back_process("node-1", PROCESS, part, is_first, now));
            }
            Ok((next, known(desk, now)))
        });
        taking.await.unwrap()
    };
    let whole = vec![first.clone(), second.clone(), last.clone()];
    let next = |name: &str| Some(name.to_owned());
    assert_eq!(
        taken(whole.clone(), 9).await,
        (vec![next("a"), next("b"), None], 4)
    );
    // Certificates that were shown before more was denied are shown anew.
    assert_eq!(taken(whole, 1).await, (vec![next("a"), None, None], 2));
    // A process that the CA did not certify on this node has no agents.
    assert_eq!(taken(vec![second, last], 9).await, (vec![None, None], 0));
}

#[tokio::test]
async fn a_part_that_is_too_long_is_not_read_to_its_end_and_is_the_last_one() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    let agent = |name: &str| agent(&former, name, Some((PROCESS, "node-1")));
    let mut chains = vec![own(&former, PROCESS)];
    chains.extend(vec![agent("a"); 1000]);
    chains.push(agent("b"));
    let shown = part(chains, Some("b"));
    let desk = restored(&root, &[]);
    let taking = desk.run(move |desk, now| {
        let next = desk.take_back_process("node-1", PROCESS, shown, true, now);
        Ok((next, known(desk, now)))
    });
    assert_eq!(taking.await.unwrap(), (None, 2));
}

/// Chains are public. A node that shows those of others would have an agent of its choice run in its process.
#[tokio::test]
async fn a_node_proves_nothing_with_the_certificates_of_other_processes() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    for (holder, is_its) in [
        (Some((PROCESS, "node-1")), true),
        (Some((OTHER, "node-1")), false),
        (Some((PROCESS, "node-2")), false),
        (None, false),
    ] {
        let chains = vec![
            own(&former, PROCESS),
            own(&former, OTHER),
            agent(&former, "seller", holder),
        ];
        let shown = part(chains, None);
        let desk = restored(&root, &["seller"]);
        let taking = desk.run(move |desk, now| {
            desk.take_back_process("node-1", PROCESS, shown, true, now);
            let known = known(desk, now);
            // The Master has listened for long enough.
            desk.state.tick(now + 61_000);
            Ok((known, desk.state.group_of("seller").is_some()))
        });
        let expected = (1 + usize::from(is_its), is_its);
        assert_eq!(taking.await.unwrap(), expected, "{holder:?}");
    }
}

#[tokio::test]
async fn only_a_list_that_denies_more_casts_doubt_on_what_was_shown() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    let agent = |name: &str| agent(&former, name, Some((PROCESS, "node-1")));
    let first = part(vec![own(&former, PROCESS), agent("a")], Some("a"));
    let second = part(vec![agent("b")], Some("b"));
    let time = timestamp(now());
    let denial = Denial {
        at: time,
        reason: Reason::Killed,
    };
    let mut list = DenyList::new(former.identity().clone());
    let last = time.plus(Duration::from_secs(3600));
    list.deny_serial(Serial::random().unwrap(), last, denial)
        .unwrap();
    let newer = list.sign(&former).unwrap().whole();
    for (newer, expected) in [(None, Some("b")), (Some(newer), None)] {
        let desk = restored(&root, &[]);
        let (first, second) = (first.clone(), second.clone());
        let taking = desk.run(move |desk, now| {
            desk.take_back_process("node-1", PROCESS, first, true, now);
            let list = newer.unwrap_or_else(|| desk.ca.deny_list_since(0));
            desk.take_back(&list, now)?;
            Ok(desk.take_back_process("node-1", PROCESS, second, false, now))
        });
        assert_eq!(taking.await.unwrap().as_deref(), expected);
    }
}

/// A node's credential of a CA that certified before.
fn node(former: &IssuingAuthority, name: &str) -> Credential {
    let key = KeyPair::generate().unwrap();
    let request = key.signing_request().unwrap();
    let request = SigningRequest::parse(&request).unwrap();
    let platform = PlatformName::new("factory").unwrap();
    let identity = Identity::node(&platform, name).unwrap();
    let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
    let validity = Validity::starting(timestamp(now()), Duration::from_secs(3600));
    let issued = former.issue(&grant, &request, validity).unwrap();
    Credential::new(key, issued.chain).unwrap()
}

/// Whether the node with this credential may come back, or the reason why not.
fn comes_back(desk: &mut Desk, node: &Credential, now: UnixMillis) -> Result<(), FaultCode> {
    let returning = Returning {
        node: description(),
        request: Blob(KeyPair::generate().unwrap().signing_request().unwrap()),
        at: now,
    };
    let statement = Signed::sign(&returning, node).unwrap();
    let request = EnrolmentRequest::Return { statement };
    let back = enrol(desk, request, Path::new("nowhere"), now);
    back.map(drop).map_err(|fault| fault.code)
}

#[tokio::test]
async fn what_the_backup_does_not_know_is_revoked_by_its_name_and_by_its_serial_number() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    let desk = restored(&root, &[]);
    let callers = ["clerk", "buyer"].map(|name| agent(&former, name, None));
    let callers = callers.map(|chain| CertificateChain::decode(&chain.0).unwrap());
    let believed = async || {
        let callers = callers.clone();
        let looking = desk.run(move |desk, now| {
            let trust = desk.ca.trust();
            Ok(callers.map(|chain| trust.verify(&chain, timestamp(now)).is_ok()))
        });
        looking.await.unwrap()
    };
    assert_eq!(believed().await, [true, true]);
    // An earlier certificate of the clerk is known.
    let certifying = desk.run(|desk, now| {
        let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let request = KeyPair::generate().unwrap().signing_request().unwrap();
        let clerk = desk.agent("clerk")?;
        desk.ca
            .certify_own(clerk, here, None, &request, life, timestamp(now))
    });
    certifying.await.unwrap();
    let serial = callers[1].certificate().unwrap().serial().to_string();
    let process = "spiffe://factory/node/node-9/process/09090909090909090909090909090909";
    for (what, known) in [
        ("node-9", 0),
        ("clerk", 1),
        (serial.as_str(), 0),
        (process, 0),
    ] {
        let order = what.to_owned();
        let revoking = desk.order(move |desk, now| desk.revoke_by_hand(&order, "stolen", now));
        assert_eq!(revoking.await.unwrap().len(), known, "{what}");
    }
    assert_eq!(believed().await, [false, false]);
    let thief = node(&former, "node-9");
    let back = desk.run(move |desk, now| Ok(comes_back(desk, &thief, now)));
    assert_eq!(back.await.unwrap(), Err(FaultCode::NotPermitted));
}

#[tokio::test]
async fn a_name_that_a_new_machine_has_is_no_longer_that_of_a_former_one() {
    let root = root();
    let (former, _) = authority(&root, "ca-2");
    // The backup knows one of them.
    for name in ["node-2", "node-9"] {
        let former = node(&former, name);
        let desk = restored(&root, &[]);
        let found = desk.run(move |desk, now| {
            if name == "node-2" {
                desk.state.join(Some(name), description(), now)?;
            }
            let addresses = vec!["127.0.0.1:9".to_owned()];
            let root = Fingerprint::from_bytes([0; 32]);
            let platform = desk.name.clone();
            let token = Token::new(Purpose::Join, platform, None, addresses, root).unwrap();
            let (life, time) = (Duration::from_secs(60), timestamp(now));
            desk.tokens.enter(&token, life, time).unwrap();
            let join = EnrolmentRequest::Join {
                secret: secret_text(token.secret()),
                name: Some(name.to_owned()),
                now,
                node: description(),
                request: Blob(KeyPair::generate().unwrap().signing_request().unwrap()),
            };
            let (answer, _) = enrol(desk, join, Path::new("nowhere"), now)?;
            let EnrolmentAnswer::Joined(joined) = answer else {
                panic!("{name} has not joined");
            };
            let ders = joined.chain.iter().map(|der| der.0.clone().into());
            let chain = CertificateChain::new(ders.collect()).unwrap();
            let is_believed = desk.ca.trust().verify(&chain, time).is_ok();
            Ok((comes_back(desk, &former, now), is_believed))
        });
        let expected = (Err(FaultCode::NotPermitted), true);
        assert_eq!(found.await.unwrap(), expected, "{name}");
    }
}
