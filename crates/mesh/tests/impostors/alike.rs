//! Forged messages among honest ones that are like them.

use std::convert::Infallible;

use sealbus_bus::{Provenance, RefusalReason};
use sealbus_fipa::bitefficient;
use sealbus_mesh::frame::{Frame, LONGEST_BODY, parse};
use sealbus_mesh::session::Session;

use crate::intruder::Seen;
use crate::intruder::scene::{Scene, from, is_returned};
use crate::support::soon;

/// A message that is like the one before it is not judged again. So it must be refused if that one was.
#[tokio::test]
async fn a_forged_sender_among_honest_messages_that_come_together_is_refused() {
    let mut scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    let encoded = |sender: &str, content: &str| {
        let message = from(sender).with_content(content);
        let mut payload = Vec::new();
        bitefficient::encode(&message, &mut payload).unwrap();
        payload
    };
    let honest = |content| (0, encoded("mallory@factory", content));
    let forged = |content| (0, encoded("ams@factory", content));
    let nobodys = |content| (5, encoded("mallory@factory", content));
    let alone = [
        honest("1"),
        forged("a"),
        forged("b"),
        honest("2"),
        honest("3"),
        nobodys("c"),
        nobodys("d"),
        honest("4"),
    ];
    let mut rows = Session::default();
    for (sender, payload) in [
        honest("5"),
        honest("6"),
        forged("e"),
        forged("f"),
        nobodys("g"),
        nobodys("h"),
        honest("7"),
        honest("8"),
    ] {
        let Ok(()) = rows.append_message(sender, 0, false, |out| {
            out.extend_from_slice(&payload);
            Ok::<_, Infallible>(payload.len() - 3)
        });
    }
    let mut slices = Vec::new();
    rows.gather(usize::MAX, &mut slices);
    let rows: Vec<u8> = slices.iter().flat_map(|it| it.to_vec()).collect();
    let mut frames: Vec<Frame<'_>> = alone
        .iter()
        .map(|(sender, payload)| Frame::Message {
            sender: *sender,
            target: 0,
            is_signed: false,
            payload,
        })
        .collect();
    let mut left = rows.as_slice();
    while let Some(parsed) = parse(left, LONGEST_BODY).unwrap() {
        assert!(matches!(parsed.frame, Frame::Row { .. }));
        left = &left[parsed.length..];
        frames.push(parsed.frame);
    }
    assert_eq!(frames.len(), alone.len() + 4);
    intruder.send_together(&frames).await.unwrap();
    for expected in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let received = soon(scene.mailbox.recv()).await.unwrap();
        let message = received.message().to_owned();
        assert_eq!(message.content, Some(expected.into()));
        assert!(matches!(received.provenance(), Provenance::Proved(_)));
    }
    for _ in 0..4 {
        intruder
            .until(|seen| matches!(seen, Seen::Returned { .. }))
            .await;
    }
    assert_eq!(scene.count(RefusalReason::ForgedSender), 4);
    assert_eq!(scene.count(RefusalReason::NotProved), 4);
    scene.unharmed().await;
}

/// A message with bytes behind its end comes back unread. The next one, which is like it, is judged all the same.
#[tokio::test]
async fn a_forged_sender_behind_the_same_in_a_malformed_message_is_refused() {
    let mut scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    let encoded = |sender: &str| {
        let mut payload = Vec::new();
        bitefficient::encode(&from(sender), &mut payload).unwrap();
        payload
    };
    let (honest, forged) = (encoded("mallory@factory"), encoded("ams@factory"));
    let longer = [forged.as_slice(), &b"x"[..]].concat();
    let frames = [&honest, &longer, &forged].map(|payload| Frame::Message {
        sender: 0,
        target: 0,
        is_signed: false,
        payload,
    });
    intruder.send_together(&frames).await.unwrap();
    intruder.until(is_returned(RefusalReason::Malformed)).await;
    intruder
        .until(is_returned(RefusalReason::ForgedSender))
        .await;
    let received = soon(scene.mailbox.recv()).await.unwrap();
    assert_eq!(
        received.message().sender().unwrap().name(),
        "mallory@factory"
    );
    scene.unharmed().await;
}
