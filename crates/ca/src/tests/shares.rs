use super::*;

#[test]
fn a_process_that_asks_without_end_is_refused_and_keeps_nobody_else_out() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let mut asked = 0;
    let fault = loop {
        match certified_at(&mut service, &node, "greedy", NOW) {
            Ok(()) => asked += 1,
            Err(fault) => break fault,
        }
        assert!(asked < 1000, "there is no end");
    };
    assert_eq!(fault.code, FaultCode::Full);
    assert!(fault.to_string().contains("seller"), "{fault}");
    let issued = service.issued_in_all();
    let events = service.events().next();
    for _ in 0..100 {
        certified_at(&mut service, &node, "greedy", NOW).unwrap_err();
    }
    assert_eq!(service.issued_in_all(), issued);
    assert_eq!(service.events().next(), events, "each refusal is an event");
    let told = service.events().since(events - 1, 1);
    assert!(told[0].what.contains("in a row"), "{}", told[0].what);
    // The Master has the same agent run in another process.
    certified_at(&mut service, &node, "its next", NOW).unwrap();
    // A process that renews in time is never refused, and the greedy one gets a few certificates in each lifetime.
    let mut later = NOW;
    for _ in 0..20 {
        later = later.plus(HOUR / 4);
        service.prune(later);
        certified_at(&mut service, &node, "its next", later).unwrap();
        certified_at(&mut service, &node, "greedy", later).unwrap();
    }
    service.prune(later.plus(HOUR * 2));
    assert!(service.shares.is_empty());
}

#[test]
fn a_node_that_comes_back_without_end_waits_and_keeps_no_other_node_out() {
    let root = root();
    let mut service = service(&root);
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let certified = |service: &mut CaService, name: &str, now: Timestamp| {
        let node = Identity::node(&platform(), name).unwrap();
        service.certify_node(node, HERE, &request, now).map(drop)
    };
    let mut taken = 0;
    while service.shares.take_of_node("node-1", NOW).is_ok() {
        taken += 1;
        assert!(taken < 100_000, "there is no end");
    }
    let (issued, events) = (service.issued_in_all(), service.events().next());
    service.check_node("node-1", NOW).unwrap_err();
    let fault = certified(&mut service, "node-1", NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.to_string().contains("node-1"), "{fault}");
    assert_eq!(service.issued_in_all(), issued);
    assert_eq!(service.events().next(), events, "each refusal is an event");
    service.check_node("node-2", NOW).unwrap();
    certified(&mut service, "node-2", NOW).unwrap();
    // The node's own agent has its name, and a share of its own.
    service.shares.take("p", "node-1", HOUR, NOW).unwrap();
    // The node gets another one soon.
    let later = NOW.plus(HOUR / 4);
    service.prune(later);
    certified(&mut service, "node-1", later).unwrap();
    certified(&mut service, "node-1", NOW).unwrap_err();
}

#[test]
fn no_node_that_starts_for_long_or_is_started_often_uses_up_its_share() {
    let mut shares = Shares::default();
    let second = Duration::from_secs(1);
    // It takes 50 minutes to open its journal on a slow disk, and comes back each 3 s.
    let mut now = NOW;
    for _ in 0..1000 {
        now = now.plus(second * 3);
        shares.take_of_node("slow", now).unwrap();
    }
    // It fails at its start, and is started again each 5 minutes for a year.
    for _ in 0..105_120 {
        now = now.plus(second * 300);
        shares.take_of_node("slow", now).unwrap();
    }
    // It renews its certificate when half of its life is over.
    for _ in 0..20 {
        now = now.plus(NODE_CERTIFICATE / 2);
        shares.prune(now);
        assert!(shares.is_empty());
        shares.take_of_node("slow", now).unwrap();
    }
}

#[test]
fn a_clock_that_was_ahead_for_a_while_keeps_nobody_out() {
    let mut shares = Shares::default();
    let ahead = NOW.plus(HOUR * 24);
    shares.take("p", "seller", HOUR, ahead).unwrap();
    shares.take_of_node("node-1", ahead).unwrap();
    // The clock is set right, and they ask at once. They may wait as if their shares were used up, and no longer.
    let _ = shares.take("p", "seller", HOUR, NOW);
    let _ = shares.check_node("node-1", NOW);
    shares.prune(NOW);
    let soon = NOW.plus(Duration::from_secs(61));
    shares.take("p", "seller", HOUR, soon).unwrap();
    let soon = NOW.plus(Duration::from_secs(301));
    shares.check_node("node-1", soon).unwrap();
    shares.take_of_node("node-1", soon).unwrap();
}
