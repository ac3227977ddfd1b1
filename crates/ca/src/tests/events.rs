//! The events of certification.

use sealbus_control::admin::CertificationEvent;

use super::*;

#[test]
fn an_event_has_bounded_texts_that_cannot_steer_a_terminal() {
    let mut service = service(&root());
    let first = service.events().next();
    let long = "\u{1b}[2J".to_owned() + &"x".repeat(100_000);
    let node = Some(long.as_str());
    service
        .events()
        .enter(0, &long, node, None, long.clone(), NOW);
    let what = "refused".to_owned();
    service
        .events()
        .enter(0, "seller", Some("node-1"), None, what, NOW);
    let events = service.events().since(first, 9);
    let length = |text: &str| {
        assert!(!text.contains('\u{1b}'), "{text}");
        text.chars().count()
    };
    assert!(length(&events[0].subject) < 300);
    assert!(length(events[0].node.as_deref().unwrap()) < 300);
    assert!(length(&events[0].what) < 1100);
    let (subject, node) = (events[1].subject.as_str(), events[1].node.as_deref());
    assert_eq!((subject, node), ("seller", Some("node-1")));
    assert_eq!(events[1].what, "refused");
    let bytes: usize = service
        .take_rows()
        .into_iter()
        .filter_map(|(_, value)| value)
        .map(|value| value.len())
        .sum();
    assert!(bytes < 100_000, "{bytes}");
}

#[test]
fn events_that_the_store_has_beyond_those_that_are_kept_are_deleted() {
    const KEPT: u64 = 50_000;
    let mut log = CertificationLog::default();
    for sequence in 0..KEPT + 5 {
        log.restore(CertificationEvent {
            sequence,
            at: 0,
            step: 0,
            subject: "guest".to_owned(),
            node: None,
            serial: None,
            what: "refused".to_owned(),
        });
    }
    log.enter(0, "guest", None, None, "refused".to_owned(), NOW);
    let rows = log.take_rows();
    let deleted = rows.iter().filter(|(_, value)| value.is_none());
    assert_eq!((rows.len(), deleted.count()), (7, 6));
    assert!(rows.iter().all(|(key, _)| CertificationLog::is_row(key)));
}
