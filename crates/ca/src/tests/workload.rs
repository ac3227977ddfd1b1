use super::*;
use sealbus_seal::denylist::Reason;

const URL: &str = "https://tea.example";

fn certified(service: &mut CaService, name: &str, lifetime: Duration, now: Timestamp) {
    let key = KeyPair::generate().unwrap();
    let identity = Identity::agent(&platform(), name).unwrap();
    let request = key.signing_request().unwrap();
    service
        .certify_own(identity, HERE, Some("p"), &request, lifetime, now)
        .unwrap();
}

fn issuing() -> CaService {
    let mut service = service(&root());
    service.issue_workload_tokens(Some(URL.to_owned()));
    service
}

fn seconds(time: Timestamp) -> u64 {
    time.as_unix_seconds() * 1000
}

#[test]
fn a_token_ends_with_the_certificate_at_the_latest() {
    let mut service = issuing();
    certified(&mut service, "seller", Duration::from_secs(100), NOW);
    let token = |service: &mut CaService, now| service.workload_token("seller", None, "a", now);
    let first = token(&mut service, NOW).unwrap();
    assert_eq!(first.expires, seconds(NOW.plus(Duration::from_secs(100))));
    let over = NOW.plus(Duration::from_secs(100));
    let fault = token(&mut service, over).unwrap_err();
    assert_eq!(fault.code, FaultCode::NotPermitted, "{fault}");
    certified(&mut service, "seller", HOUR, over);
    let renewed = token(&mut service, over).unwrap();
    assert_eq!(
        renewed.expires,
        seconds(over.plus(Duration::from_secs(300)))
    );
}

#[test]
fn a_revoked_agent_a_stranger_and_a_node_get_none() {
    let mut service = issuing();
    certified(&mut service, "seller", HOUR, NOW);
    certified(&mut service, "buyer", HOUR, NOW);
    node(&mut service);
    service.workload_token("seller", None, "a", NOW).unwrap();
    service.revoke_by_hand("seller", "stolen", NOW).unwrap();
    for name in ["seller", "nobody", "node-1", "", "seller@factory"] {
        let fault = service.workload_token(name, None, "a", NOW).unwrap_err();
        assert_eq!(fault.code, FaultCode::NotPermitted, "{name}: {fault}");
    }
    service.workload_token("buyer", None, "a", NOW).unwrap();
    service
        .revoke_process("p", None, Reason::Superseded, NOW)
        .unwrap();
    service.workload_token("buyer", None, "a", NOW).unwrap_err();
}

#[test]
fn audiences_are_bounded_and_a_platform_without_an_issuer_makes_none() {
    let mut service = issuing();
    certified(&mut service, "seller", HOUR, NOW);
    let long = "a".repeat(1025);
    for audience in ["", "a\n", &long] {
        let fault = service
            .workload_token("seller", None, audience, NOW)
            .unwrap_err();
        assert_eq!(fault.code, FaultCode::BadRequest, "{audience}");
    }
    service
        .workload_token("seller", None, &long[1..], NOW)
        .unwrap();
    service.issue_workload_tokens(None);
    let fault = service
        .workload_token("seller", None, "a", NOW)
        .unwrap_err();
    assert_eq!(fault.code, FaultCode::NotPermitted);
    assert!(service.workload_issuer(NOW).is_err());
}

#[test]
fn keys_change_each_day_and_stay_published_for_their_last_token() {
    let root = root();
    let mut service = issuing();
    let keys = |service: &mut CaService, hours: u32| {
        let told = service.workload_issuer(NOW.plus(HOUR * hours)).unwrap();
        assert_eq!(told.issuer, URL);
        let keys = told.keys.into_iter().map(|key| key.kid);
        keys.collect::<Vec<_>>()
    };
    let first = keys(&mut service, 0);
    assert_eq!(first.len(), 1);
    assert_eq!(keys(&mut service, 23), first);
    let second = keys(&mut service, 24);
    assert!(second.len() == 2 && second.contains(&first[0]));
    let third = keys(&mut service, 48);
    assert!(third.len() == 2 && !third.contains(&first[0]));
    // A service that begins anew has a key of its own, and publishes those of the one before.
    let rows = service.take_rows();
    let mut kept: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (key, value) in rows
        .into_iter()
        .filter(|(key, _)| key.starts_with("workload-key/"))
    {
        match value {
            Some(value) => kept.insert(key, value),
            None => kept.remove(&key),
        };
    }
    assert_eq!(kept.len(), 2);
    let trust = Trust::new(platform(), &[root.certificate().clone()], HOUR).unwrap();
    let authority = root.create_authority("ca", Validity::starting(NOW, HOUR * 100));
    let rows = kept
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()));
    let load = CaService::load(authority.unwrap(), Arc::new(trust), HOUR, rows, None, NOW);
    let mut service = load.unwrap();
    service.issue_workload_tokens(Some(URL.to_owned()));
    let newest = third.iter().find(|key| !second.contains(key)).unwrap();
    let fourth = keys(&mut service, 49);
    assert!(fourth.len() == 2 && fourth.contains(newest), "{fourth:?}");
}

#[test]
fn a_token_for_another_names_both_and_needs_both() {
    let mut service = issuing();
    certified(&mut service, "seller", HOUR, NOW);
    certified(&mut service, "clerk", Duration::from_secs(100), NOW);
    let token = |service: &mut CaService| service.workload_token("seller", Some("clerk"), "a", NOW);
    let made = token(&mut service).unwrap();
    assert_eq!(made.expires, seconds(NOW.plus(Duration::from_secs(100))));
    service.revoke_by_hand("clerk", "stolen", NOW).unwrap();
    let fault = token(&mut service).unwrap_err();
    assert!(fault.message.contains("clerk"), "{fault}");
    service.workload_token("seller", None, "a", NOW).unwrap();
}

#[test]
fn an_agent_that_asks_without_end_has_a_share_of_the_log() {
    let mut service = issuing();
    certified(&mut service, "seller", HOUR, NOW);
    certified(&mut service, "clerk", HOUR, NOW);
    for _ in 0..100 {
        service
            .workload_token("seller", Some("clerk"), "a", NOW)
            .unwrap();
    }
    let log = &mut service.workload.log;
    assert_eq!(log.admit("spiffe://factory/agent/clerk".to_owned()), None);
    let others = log.admit("spiffe://factory/agent/seller".to_owned());
    assert!(others.is_some_and(|left_out| left_out > 90), "{others:?}");
}
