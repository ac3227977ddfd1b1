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
