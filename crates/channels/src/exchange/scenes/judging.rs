//! Events that are like the event before them. The answer for that one holds only as long as they are.

use sealbus_seal::permission::Policy;

use super::*;

/// Two processes, a subscription of the second one, and the frames of this many events for it.
fn with_events(count: usize) -> (Scene, Arc<Consumer>, Vec<LostFrame>) {
    let mut scene = Scene::new(2);
    let consumer = scene.subscribe(1, "/dates");
    assert!(scene.waits());
    scene.carry(0, 1);
    for _ in 0..count {
        scene.reaches(1);
    }
    let frames = scene.send(0, 1);
    assert_eq!(frames.len(), count);
    (scene, consumer, frames)
}

/// The reasons for which the second process has refused events.
fn refusals(scene: &mut Scene) -> Vec<RefusalReason> {
    let reason = |outcome| match outcome {
        Outcome::Refused { reason, .. } => Some(reason),
        _ => None,
    };
    let outcomes = scene.exchanges[1].take_outcomes();
    outcomes.into_iter().filter_map(reason).collect()
}

#[test]
fn a_right_that_is_taken_away_ends_with_the_next_event() {
    let (mut scene, consumer, frames) = with_events(5);
    let policy: Policy = toml::from_str(
        r#"
        [[channel]]
        deny = { agents = ["publisher"], do = ["publish"], on = ["/dates"] }
        "#,
    )
    .unwrap();
    let platform = PlatformName::new("factory").unwrap();
    let rules = ChannelPermissions::compile(&policy, &platform).unwrap();
    for (place, frame) in frames.into_iter().enumerate() {
        match place {
            2 => scene.exchanges[1].set_permissions(Arc::new(rules.clone())),
            4 => scene.exchanges[1].set_permissions(Arc::default()),
            _ => {}
        }
        scene.arrive(0, 1, frame);
    }
    let denied = RefusalReason::NotPermitted;
    assert_eq!(refusals(&mut scene), [denied, denied]);
    assert_eq!(scene.take(1, &consumer, 10), 3);
}

/// The same frame with another sender in its message. The name has the same length.
fn forged(frame: &LostFrame) -> LostFrame {
    let mut payload = frame.payload.to_vec();
    let name = b"publisher@factory";
    let at = payload.windows(name.len()).position(|it| it == name);
    let at = at.expect("the sender's name");
    payload[at..at + name.len()].copy_from_slice(b"publishes@factory");
    LostFrame {
        payload: payload.into(),
        ..frame.clone()
    }
}

#[test]
fn a_forged_sender_among_events_that_are_alike_is_refused() {
    let (mut scene, consumer, frames) = with_events(8);
    for (place, frame) in frames.into_iter().enumerate() {
        let frame = match place {
            1 | 2 | 5 => forged(&frame),
            // The next message is like this one, whose sender nobody checked.
            4 => {
                let forged = forged(&frame);
                LostFrame {
                    payload: [&forged.payload[..], &b"x"[..]].concat().into(),
                    ..forged
                }
            }
            // Another agent sends exactly the bytes that the publisher sent.
            7 => LostFrame {
                sender: Some("mallory@factory".into()),
                ..frame
            },
            _ => frame,
        };
        scene.arrive(0, 1, frame);
    }
    let (forged, malformed) = (RefusalReason::ForgedSender, RefusalReason::Malformed);
    assert_eq!(
        refusals(&mut scene),
        [forged, forged, malformed, forged, forged]
    );
    assert_eq!(scene.take(1, &consumer, 10), 3);
}
