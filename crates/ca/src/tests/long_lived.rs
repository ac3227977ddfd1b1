//! Long-lived identities of agents.

use sealbus_seal::LongLivedIdentity;

use super::blind::{Asked, two};
use super::*;

fn seller() -> Identity {
    Identity::agent(&platform(), "seller").unwrap()
}

/// A request for a new key of `agent`, which `owner` has signed for.
fn stated(owner: &KeyPair, agent: &Identity) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let stated = LongLivedIdentity::state(owner, agent, key.public_key(), None).unwrap();
    key.signing_request_with(None, Some(&stated)).unwrap()
}

fn unstated() -> Vec<u8> {
    KeyPair::generate().unwrap().signing_request().unwrap()
}

fn ask(
    service: &mut CaService,
    node: &VerifiedIdentity,
    request: &[u8],
    now: Timestamp,
) -> Result<CertificateChain, Fault> {
    let request = Request {
        node,
        wanted: &seller(),
        process: Some("p"),
        request,
    };
    service.certify(&request, &On("node-1"), now)
}

#[test]
fn a_certificate_names_the_identity_and_so_does_the_log() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let vouches = service.trust().verify(node.chain(), NOW).unwrap();
    let owner = KeyPair::generate().unwrap();
    let mut certified = Vec::new();
    for _ in 0..2 {
        let chain = ask(&mut service, &vouches, &stated(&owner, &seller()), NOW).unwrap();
        Inclusion::check_of(&chain, service.trust()).unwrap();
        let found = service.trust().verify(&chain, NOW).unwrap();
        assert_eq!(found.certificate().long_lived(), Some(owner.public_key()));
        certified.push(*found.public_key());
    }
    assert_ne!(certified[0], certified[1]);
    let named: Vec<_> = (service.issued.values())
        .filter_map(|found| found.record.long_lived_identity)
        .collect();
    assert_eq!(named, [owner.public_key().fingerprint(); 2]);
}

#[test]
fn what_the_owner_did_not_sign_for_is_refused_by_name() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let vouches = service.trust().verify(node.chain(), NOW).unwrap();
    let owner = KeyPair::generate().unwrap();
    let of_another = stated(&owner, &Identity::agent(&platform(), "buyer").unwrap());
    let [key, other] = [(); 2].map(|()| KeyPair::generate().unwrap());
    let said = LongLivedIdentity::state(&owner, &seller(), other.public_key(), None).unwrap();
    let for_another_key = key.signing_request_with(None, Some(&said)).unwrap();
    for request in [of_another, for_another_key] {
        let fault = ask(&mut service, &vouches, &request, NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::BadRequest);
        assert!(fault.message.contains("for seller names"), "{fault}");
        let last = service.events().since(0, 100).pop().unwrap();
        assert!(last.what.contains("long-lived identity"), "{}", last.what);
    }
}

#[test]
fn while_a_certificate_with_an_identity_is_in_force_no_other_one_is_certified() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let vouches = service.trust().verify(node.chain(), NOW).unwrap();
    let [owner, other] = [(); 2].map(|()| KeyPair::generate().unwrap());
    // An agent without an identity may get one.
    ask(&mut service, &vouches, &unstated(), NOW).unwrap();
    ask(&mut service, &vouches, &stated(&owner, &seller()), NOW).unwrap();
    for request in [unstated(), stated(&other, &seller())] {
        let fault = ask(&mut service, &vouches, &request, NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::NameTaken);
        let held = owner.public_key().fingerprint().to_string();
        assert!(fault.message.contains(&held), "{fault}");
    }
    ask(&mut service, &vouches, &stated(&owner, &seller()), NOW).unwrap();
    // Certificates of an agent that has ended are denied, and stand in nobody's way.
    service
        .revoke_process("p", None, Reason::Ended, NOW)
        .unwrap();
    ask(&mut service, &vouches, &stated(&other, &seller()), NOW).unwrap();
    let later = NOW.plus(HOUR + Duration::from_secs(1));
    let vouches = self::node(&mut service);
    let vouches = service.trust().verify(vouches.chain(), NOW).unwrap();
    ask(&mut service, &vouches, &unstated(), later).unwrap();
}

#[test]
fn a_ca_that_does_not_know_the_state_renews_with_the_same_identity_alone() {
    let mut two = two();
    let [owner, other] = [(); 2].map(|()| KeyPair::generate().unwrap());
    let node = two.node(0, NOW);
    let process = Asked::OWN.process();
    let request = Request {
        node: &node,
        wanted: &seller(),
        process: Some(&process),
        request: &stated(&owner, &seller()),
    };
    let held = two.leader.certify(&request, &On("node-1"), NOW).unwrap();
    let buyer = Identity::agent(&platform(), "buyer").unwrap();
    for request in [
        unstated(),
        stated(&other, &seller()),
        stated(&owner, &buyer),
    ] {
        two.renew(&Asked::OWN, &held, &request, NOW).unwrap_err();
    }
    let request = stated(&owner, &seller());
    let (chain, _) = two.renew(&Asked::OWN, &held, &request, NOW).unwrap();
    let renewed = chain.certificate().unwrap();
    assert_eq!(renewed.long_lived(), Some(owner.public_key()));
    assert!(renewed.renews().is_some());
}
