//! Security levels of single channels and messages: an event that must be signed is not taken without a proof.

use super::*;

#[test]
fn what_must_be_signed_is_not_taken_without_a_proof() {
    let signed =
        || DeclaredChannels::new([("/dates".parse().unwrap(), "level=signed".parse().unwrap())]);
    for (qos, is_declared, is_taken) in [
        (Qos::default(), false, true),
        ("level=auth".parse().unwrap(), false, true),
        // The publisher asked for the level.
        ("level=signed".parse().unwrap(), false, false),
        // The platform demands the level, and the publisher does not mention it, or asks for less.
        (Qos::default(), true, false),
        ("level=auth".parse().unwrap(), true, false),
    ] {
        let mut scene = Scene::new(2);
        if is_declared {
            scene.exchanges[1].declare(Arc::new(signed()));
        }
        let consumer = scene.subscribe(1, "/dates");
        assert!(scene.waits());
        scene.carry(0, 1);
        let Attempt::Done(reach) = scene.publish_as(qos).unwrap() else {
            panic!("the publisher has to wait");
        };
        assert_eq!(reach.processes, 1);
        scene.carry(0, 1);
        assert_eq!(scene.take(1, &consumer, 10), usize::from(is_taken), "{qos}");
        let told: Vec<_> = scene.exchanges[0]
            .take_outcomes()
            .iter()
            .filter_map(why)
            .collect();
        assert_eq!(told.len(), usize::from(!is_taken), "{qos}: {told:?}");
        assert!(
            told.iter().all(|why| why.contains("did not sign it")),
            "{told:?}"
        );
    }
}

/// The reason that a publisher gets for its lost event.
fn why(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Failed { reason, .. } => Some(reason.to_string()),
        _ => None,
    }
}
