//! CAs that do not know the platform's state.

use proptest::prelude::*;
use sealbus_seal::{GRANT, ProcessId, VerifiedIdentity};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
pub(super) const PROCESS: ProcessId = ProcessId::from_bytes([7; 16]);

/// Two Masters: the CA of the first one knows the state, and that of the second one does not.
pub(super) struct Two {
    pub(super) root: RootAuthority,
    pub(super) leader: CaService,
    pub(super) blind: Blind,
    /// The clock of the nodes. Each request comes later than the one before.
    pub(super) clock: u64,
    /// The node's credential, and others that no agent is placed on.
    pub(super) nodes: Vec<Credential>,
}

/// A request by one of the nodes for one of the agents, in one of the processes.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    node: usize,
    agent: usize,
    process: usize,
}

impl Asked {
    pub(super) const OWN: Self = Self {
        node: 0,
        agent: 0,
        process: 0,
    };

    /// Whether the certificate was issued to just this holder.
    fn is_holder(&self) -> bool {
        (self.node, self.agent, self.process) == (0, 0, 0)
    }

    pub(super) fn wanted(&self) -> Identity {
        match self.agent {
            2 => Identity::node(&platform(), "node-1").unwrap(),
            3 => Identity::process(&platform(), "node-1", PROCESS).unwrap(),
            number => Identity::agent(&platform(), ["seller", "buyer"][number]).unwrap(),
        }
    }

    pub(super) fn process(&self) -> String {
        [PROCESS, ProcessId::from_bytes([8; 16])][self.process].to_string()
    }
}

pub(super) fn trust(root: &RootAuthority) -> Arc<Trust> {
    let roots = [root.certificate().clone()];
    Arc::new(Trust::new(platform(), &roots, Duration::ZERO).unwrap())
}

pub(super) fn two() -> Two {
    let root = root();
    let mut leader = service(&root);
    let second = root
        .create_authority("ca-2", Validity::starting(NOW, HOUR * 100))
        .unwrap();
    let blind = Blind::new(second, trust(&root), HOUR);
    let mut node = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let identity = Identity::node(&platform(), name).unwrap();
        let request = key.signing_request().unwrap();
        let lifetime = HOUR * 99;
        let chain = leader.certify_own(identity, HERE, None, &request, lifetime, NOW);
        Credential::new(key, chain.unwrap()).unwrap()
    };
    let nodes = vec![node("node-1"), node("node-2")];
    Two {
        root,
        leader,
        blind,
        clock: 0,
        nodes,
    }
}

pub(super) fn signing_request() -> Vec<u8> {
    KeyPair::generate().unwrap().signing_request().unwrap()
}

impl Two {
    pub(super) fn node(&self, number: usize, now: Timestamp) -> VerifiedIdentity {
        let chain = self.nodes[number].chain();
        self.leader.trust().verify(chain, now).unwrap()
    }

    /// The first certificate, by the CA that knows the state.
    pub(super) fn first(&mut self, now: Timestamp) -> CertificateChain {
        let node = self.node(0, now);
        let request = Request {
            node: &node,
            wanted: &Asked::OWN.wanted(),
            process: Some(&Asked::OWN.process()),
            request: &signing_request(),
        };
        self.leader.certify(&request, &On("node-1"), now).unwrap()
    }

    pub(super) fn renew(
        &mut self,
        asked: &Asked,
        held: &CertificateChain,
        request: &[u8],
        now: Timestamp,
    ) -> Result<(CertificateChain, Option<Unstored>), Fault> {
        let node = self.node(asked.node, now);
        let renewal = Renewal {
            request: Request {
                node: &node,
                wanted: &asked.wanted(),
                process: Some(&asked.process()),
                request,
            },
            held,
        };
        self.clock += 1;
        self.blind.renew(&renewal, self.clock, now)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_the_holder_is_certified_again_and_no_longer_than_a_day(
        steps in proptest::collection::vec(
            (1..4000_u64, 0..2_usize, 0..4_usize, 0..2_usize, any::<bool>(), 0..60_u8), 1..80),
    ) {
        let mut two = two();
        let began = NOW;
        let mut now = NOW;
        let mut held = two.first(now);
        let mut is_revoked = false;
        for (pause, node, agent, process, is_own, revokes) in steps {
            now = now.plus(SECOND * u32::try_from(pause).unwrap());
            let asked = match is_own {
                true => Asked::OWN,
                false => Asked { node, agent, process },
            };
            if revokes == 0 {
                two.blind.revoke("seller@factory", "stolen", now).unwrap();
                is_revoked = true;
            }
            let certificate = held.certificate().unwrap();
            let over = certificate.renews().map_or(certificate.not_before(), |it| it.not_before);
            let may = asked.is_holder()
                && !is_revoked
                && now <= certificate.not_after()
                && now < over.plus(GRANT);
            let renewed = two.renew(&asked, &held, &signing_request(), now);
            prop_assert_eq!(renewed.is_ok(), may, "{:?} at {}", asked, now.since(began).as_secs());
            if let Ok((chain, act)) = renewed {
                let found = two.leader.trust().verify(&chain, now).unwrap();
                prop_assert_eq!(found.identity(), &asked.wanted());
                prop_assert!(found.not_after() <= began.plus(GRANT));
                prop_assert!(matches!(act, Some(Unstored::Renewed { .. })), "{:?}", act);
                held = chain;
            }
            if is_revoked {
                prop_assert!(two.blind.trust().verify(&held, now).is_err());
            }
        }
    }
}

#[test]
fn a_certificate_that_names_no_process_is_not_renewed() {
    let mut two = two();
    let request = signing_request();
    let seller = Asked::OWN.wanted();
    let unnamed = two
        .leader
        .certify_own(seller, HERE, None, &request, HOUR, NOW)
        .unwrap();
    let fault = two.renew(&Asked::OWN, &unnamed, &request, NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    // Nor for a node's word about itself.
    let node = two.nodes[0].chain().clone();
    let itself = Asked {
        agent: 2,
        ..Asked::OWN
    };
    assert!(two.renew(&itself, &node, &request, NOW).is_err());
}

#[test]
fn a_denial_that_a_ca_does_not_know_holds_for_what_it_renews() {
    let mut two = two();
    let held = two.first(NOW);
    two.leader
        .revoke_process(&Asked::OWN.process(), None, Reason::Moved, NOW)
        .unwrap();
    two.leader.publish(NOW).unwrap();
    let (renewed, act) = two
        .renew(&Asked::OWN, &held, &signing_request(), NOW)
        .unwrap();
    let (again, _) = two
        .renew(&Asked::OWN, &renewed, &signing_request(), NOW)
        .unwrap();
    for chain in [&renewed, &again] {
        let refused = two.leader.trust().verify(chain, NOW).unwrap_err();
        assert!(refused.to_string().contains("revoked"), "{refused}");
    }
    // As soon as it knows, it does so no more.
    let list = two.leader.deny_list_since(0);
    two.blind.trust().apply_deny_list(&list, NOW).unwrap();
    assert!(
        two.renew(&Asked::OWN, &again, &signing_request(), NOW)
            .is_err()
    );
    let Some(Unstored::Renewed {
        chain,
        node,
        process,
        at,
    }) = act
    else {
        panic!("{act:?}");
    };
    let chain = CertificateChain::decode(&chain.0).unwrap();
    let earlier = held.certificate().unwrap().serial();
    assert!(two.leader.denial(earlier).is_some());
    let certificate = two
        .leader
        .take_in(&chain, &node, &process, at, NOW)
        .unwrap();
    assert_eq!(certificate.renews().unwrap().serial, earlier);
}

#[test]
fn a_request_that_comes_twice_gets_one_certificate_and_many_are_refused() {
    let mut two = two();
    let held = two.first(NOW);
    let request = signing_request();
    let (first, act) = two.renew(&Asked::OWN, &held, &request, NOW).unwrap();
    assert!(act.is_some());
    let (second, act) = two.renew(&Asked::OWN, &held, &request, NOW).unwrap();
    assert_eq!((second, act), (first, None));
    let refused = (0..100).find_map(|_| {
        let renewed = two.renew(&Asked::OWN, &held, &signing_request(), NOW);
        renewed.err()
    });
    assert_eq!(refused.unwrap().code, FaultCode::Full);
}

#[test]
fn what_a_ca_revoked_is_denied_after_its_restart_and_by_others() {
    let mut two = two();
    let held = two.first(NOW);
    let serial = held.certificate().unwrap().serial();
    let acts = [
        two.blind.revoke("buyer", " stolen ", NOW).unwrap(),
        two.blind.revoke(&serial.to_string(), "", NOW).unwrap(),
    ];
    let illegal = two.blind.revoke("no such name", "", NOW).unwrap_err();
    assert_eq!(illegal.code, FaultCode::IllegalName);
    let list = two.blind.deny_list_after(0).unwrap();
    two.leader
        .trust()
        .apply_deny_list_beside(&list, NOW)
        .unwrap();
    assert!(two.leader.trust().verify(&held, NOW).is_err());
    // The list of the CA that certifies stays the one whose changes are asked for.
    let latest = two.leader.trust().latest_deny_list().unwrap();
    assert_eq!(latest.authority(), two.leader.authority().identity());

    let root = root();
    let second = root
        .create_authority("ca-2", Validity::starting(NOW, HOUR * 100))
        .unwrap();
    let mut again = Blind::new(second, trust(&root), HOUR);
    assert_eq!(again.deny_list_after(0), None);
    again.restore(&acts, NOW.plus(SECOND)).unwrap();
    let restored = again.deny_list_after(0).unwrap();
    let restored = again.trust().open_kept_deny_list(&restored, None).unwrap();
    assert!(restored.denied_serial(serial).is_some());
    let buyer = Identity::agent(&platform(), "buyer").unwrap();
    assert_eq!(restored.denied_before(&buyer), Some(NOW.plus(SECOND)));
    assert_eq!(again.deny_list_after(restored.version()), None);
}

#[test]
fn what_was_renewed_is_taken_in_once_and_can_be_revoked() {
    let mut two = two();
    let held = two.first(NOW);
    let later = NOW.plus(HOUR / 2);
    let (chain, _) = two
        .renew(&Asked::OWN, &held, &signing_request(), later)
        .unwrap();
    let process = Asked::OWN.process();
    let size = two.leader.issued_in_all();
    // It may have ended before the store was back.
    let back = NOW.plus(HOUR * 3);
    for _ in 0..2 {
        let taken = two.leader.take_in(&chain, "node-1", &process, later, back);
        taken.unwrap();
        assert_eq!(two.leader.issued_in_all(), size + 1);
    }
    let own = two.leader.take_in(&held, "node-1", &process, later, back);
    assert_eq!(
        own.unwrap_err().code,
        FaultCode::BadRequest,
        "it renews nothing"
    );
    let serial = chain.certificate().unwrap().serial();
    let listed = two
        .leader
        .certificates(true, None, &Page::default(), back)
        .unwrap()
        .certificates;
    let found = listed
        .iter()
        .find(|found| found.serial == serial.to_string())
        .unwrap();
    assert_eq!(
        (found.log.as_str(), found.node.as_deref()),
        ("ca", Some("node-1"))
    );
    let stranger = self::two();
    let strange = stranger.leader.trust().clone();
    assert!(strange.verify(&chain, later).is_err());
    two.leader.revoke_renewed(serial, later).unwrap();
    two.leader.publish(later).unwrap();
    assert!(two.leader.trust().verify(&chain, later).is_err());
}

#[test]
fn the_ca_that_leads_renews_while_the_store_is_away() {
    let mut two = two();
    let held = two.first(NOW);
    let later = NOW.plus(HOUR / 2);
    let node = two.node(0, later);
    let wanted = Asked::OWN.wanted();
    let renewal = Renewal {
        request: Request {
            node: &node,
            wanted: &wanted,
            process: Some(&Asked::OWN.process()),
            request: &signing_request(),
        },
        held: &held,
    };
    let (chain, _) = two.leader.renew(&renewal, later).unwrap();
    let certificate = chain.certificate().unwrap();
    let earlier = held.certificate().unwrap();
    assert_eq!(certificate.renews().unwrap().serial, earlier.serial());
    // The Master's own process goes on, too, and no process begins.
    let (process, other) = (
        PROCESS.to_string(),
        ProcessId::from_bytes([9; 16]).to_string(),
    );
    let own = Identity::process(&platform(), "master", PROCESS).unwrap();
    let request = signing_request();
    let service = &mut two.leader;
    service
        .certify_own(own.clone(), HERE, Some(&process), &request, HOUR, NOW)
        .unwrap();
    let mut latest = later;
    while let Ok((chain, _)) = service.renew_own(own.clone(), HERE, &process, &request, latest) {
        assert!(chain.certificate().unwrap().not_after() <= NOW.plus(GRANT));
        latest = latest.plus(HOUR / 2);
    }
    assert!(latest >= NOW.plus(GRANT - HOUR));
    let never = service.renew_own(own, HERE, &other, &request, later);
    assert_eq!(never.unwrap_err().code, FaultCode::Unavailable);
}

#[test]
fn denials_are_remembered_as_long_as_a_ca_that_is_away_may_renew_what_they_name() {
    for is_away in [false, true] {
        let mut two = two();
        let second = two
            .root
            .create_authority("ca-2", Validity::starting(NOW, HOUR * 100));
        let der = second.unwrap().chain().leaf().to_vec();
        two.leader.note_authority(&der, NOW).unwrap();
        let present: &[String] = match is_away {
            true => &[],
            false => &["ca-2".to_owned()],
        };
        two.leader.are_present(present, NOW);
        let held = two.first(NOW);
        let process = Asked::OWN.process();
        two.leader
            .revoke_process(&process, None, Reason::Moved, NOW)
            .unwrap();
        two.leader.publish(NOW).unwrap();
        let (mut chain, _) = two
            .renew(&Asked::OWN, &held, &signing_request(), NOW)
            .unwrap();
        let mut now = NOW;
        while let Ok((renewed, _)) = two.renew(&Asked::OWN, &chain, &signing_request(), now) {
            chain = renewed;
            now = now.plus(HOUR / 2);
            two.leader.prune(now);
            two.leader.publish_whole(now).unwrap();
        }
        assert!(now.since(NOW) >= GRANT - HOUR);
        let last = now.minus(HOUR / 2);
        assert_eq!(two.leader.trust().verify(&chain, last).is_err(), is_away);
        let serial = held.certificate().unwrap().serial();
        let end = now.plus(HOUR * 3);
        two.leader.prune(end);
        two.leader.publish_whole(end).unwrap();
        let latest = two.leader.trust().latest_deny_list().unwrap();
        assert!(latest.denied_serial(serial).is_none());
    }
}
