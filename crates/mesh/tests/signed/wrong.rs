//! Signatures and delegations with faults.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::RefusalReason;
use sealbus_mesh::frame::{Frame, PROTOCOL_VERSION, SignedMessages, parse};
use sealbus_proof::{BatchKeyDelegation, Signer};
use sealbus_seal::binding::{BoundConnection, Role};
use sealbus_seal::{Credential, SecurityLevel};

use super::intruder::scene::{Scene, deny, from, is_returned};
use super::intruder::{Intruder, Seen, handshake};
use super::support::{Authority, soon};
use super::{
    LEVEL, Signature, check_elsewhere, delegate, key, proof, say, signer, signer_with, statement,
};

/// Changes bits of the signature, of the time, and of an author's entry.
#[tokio::test]
async fn a_proof_in_which_a_bit_was_changed_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let signer = signer(&mallory);
    let message = from("mallory@factory");
    let good = proof(&signer, &message);
    let mut bytes = Vec::new();
    good.frame().encode(0, &mut bytes);
    // The header is 12 bytes; its sequence number is the session's.
    for bit in (12 * 8..bytes.len() * 8).step_by(37) {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let before = scene.process.bus.refusals().total();
        // A frame that does not fit the messages before it ends its connection.
        let mut intruder = scene.ready(&mallory).await;
        delegate(&mut intruder, 0, &signer).await;
        intruder.message(0, 0, &message).await.unwrap();
        match parse(&changed, changed.len()) {
            Ok(Some(parsed)) => intruder.send(&parsed.frame).await.unwrap(),
            _ => intruder.send_bytes(&changed).await.unwrap(),
        }
        soon(async {
            while scene.process.bus.refusals().total() == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
    scene.unharmed().await;
}

#[tokio::test]
async fn a_proof_of_something_else_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let mut intruder = scene.ready(&mallory).await;
    delegate(&mut intruder, 0, &own).await;
    let message = from("mallory@factory");
    let other = from("mallory@factory").with_content("something else");
    let said = statement("victim@factory", &message);
    let two = [statement("victim@factory", &other), said];
    let mut first_of_two = Signature::of(&[(0, &own, &two)]);
    let entry = |signature: &Signature, signer: &Signer| {
        let author = signature.authors[0];
        sealbus_proof::AuthorEntry {
            serial: signer.serial(),
            certificate: sealbus_seal::Fingerprint::from_bytes([0; 32]),
            first: author.first(),
            count: 1,
        }
    };
    first_of_two.authors = vec![SignedMessages::new(0, &entry(&first_of_two, &own))];
    let mut other_number = Signature::alone(&own, said);
    let mut number = entry(&other_number, &own);
    number.first += 1;
    other_number.authors = vec![SignedMessages::new(0, &number)];
    let mut other_time = Signature::alone(&own, said);
    other_time.time -= 1;
    let with =
        |credential: &Arc<Credential>, key| Signature::alone(&signer_with(credential, key), said);
    let alice = scene.platform.authority.agent("alice@factory");
    let elsewhere = Authority::new("elsewhere").agent("mallory@elsewhere");
    let impostor = Authority::new("factory").agent("mallory@factory");
    let renewed = scene.mallory();
    let wrong = [
        (
            "another message",
            Signature::alone(&own, statement("victim@factory", &other)),
        ),
        (
            "another receiver",
            Signature::alone(&own, statement("alice@factory", &message)),
        ),
        ("another place of the batch", first_of_two),
        ("another number", other_number),
        ("another time", other_time),
        ("another level", with(&mallory, &key(SecurityLevel::Sealed))),
        (
            "a key that was not delegated to",
            with(&mallory, &key(LEVEL)),
        ),
        ("another agent", with(&alice, own.key())),
        ("another platform", with(&elsewhere, own.key())),
        ("another authority", with(&impostor, own.key())),
        (
            "a certificate that was not shown",
            with(&renewed, own.key()),
        ),
    ];
    for (number, (what, proof)) in wrong.into_iter().enumerate() {
        say(&mut intruder, &message, &proof).await;
        intruder.until(is_returned(RefusalReason::NotProved)).await;
        assert_eq!(
            scene.count(RefusalReason::NotProved),
            number as u64 + 1,
            "{what}"
        );
    }
    scene
        .refused(RefusalReason::NotProved, "mallory@factory")
        .await;
    scene.unharmed().await;
}

/// A signature covers the messages before it that have none, in order, and no others.
#[tokio::test]
async fn a_proof_of_other_messages_than_came_ends_the_connection() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let message = from("mallory@factory");
    let said = statement("victim@factory", &message);
    let of = |senders: &[(u32, usize)]| {
        let said = vec![said; 9];
        let parts: Vec<_> = senders
            .iter()
            .map(|(sender, count)| (*sender, &own, &said[..*count]))
            .collect();
        Signature::of(&parts)
    };
    let mut too_high = of(&[(0, 1)]);
    let entry = sealbus_proof::AuthorEntry {
        serial: own.serial(),
        certificate: sealbus_seal::Fingerprint::from_bytes([0; 32]),
        first: u64::MAX,
        count: 1,
    };
    too_high.authors = vec![SignedMessages::new(0, &entry)];
    let mut none = of(&[(0, 1)]);
    none.authors = vec![SignedMessages::unsigned(0, 0)];
    for wrong in [
        of(&[(0, 2)]),
        of(&[(1, 1)]),
        of(&[(0, 1), (1, 1)]),
        of(&[(0, 1), (0, 1)]),
        too_high,
        none,
    ] {
        let mut intruder = scene.ready(&mallory).await;
        delegate(&mut intruder, 0, &own).await;
        say(&mut intruder, &message, &wrong).await;
        intruder.until_end().await;
    }
    scene.unharmed().await;
}

/// Shows a delegation as that of the certificate with this serial number.
async fn show(
    intruder: &mut Intruder,
    serial: sealbus_seal::Serial,
    delegation: &BatchKeyDelegation,
) {
    let mut wire = Vec::new();
    delegation.encode(&mut wire);
    let frame = Frame::Delegate {
        handle: 0,
        serial: *serial.as_bytes(),
        delegation: &wire,
    };
    intruder.send(&frame).await.unwrap();
}

#[tokio::test]
async fn a_delegation_of_something_else_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    // A process that runs one agent has batches signed for others.
    let own = signer(&mallory);
    let authority = &scene.platform.authority;
    let alice = signer_with(&authority.agent("alice@factory"), own.key());
    let renewed = signer_with(&scene.mallory(), own.key());
    let elsewhere = Authority::new("elsewhere").agent("mallory@elsewhere");
    let elsewhere = signer_with(&elsewhere, own.key());
    let other_key = signer(&mallory);
    let message = from("mallory@factory");
    for (what, delegation) in [
        ("another agent", Some(&alice)),
        ("another certificate", Some(&renewed)),
        ("another platform", Some(&elsewhere)),
        ("another key", Some(&other_key)),
        ("none", None),
    ] {
        let before = scene.count(RefusalReason::NotProved);
        let mut intruder = scene.ready(&mallory).await;
        if let Some(signer) = delegation {
            show(&mut intruder, own.serial(), signer.delegation()).await;
        }
        say(&mut intruder, &message, &proof(&own, &message)).await;
        intruder.until(is_returned(RefusalReason::NotProved)).await;
        // The wrong delegation itself is counted, and so is the message.
        assert!(scene.count(RefusalReason::NotProved) > before, "{what}");
    }
    // Bytes that are not a delegation end the connection.
    let mut intruder = scene.ready(&mallory).await;
    let frame = Frame::Delegate {
        handle: 0,
        serial: *own.serial().as_bytes(),
        delegation: &[1; 40],
    };
    intruder.send(&frame).await.unwrap();
    intruder.until_end().await;
    scene.unharmed().await;
}

#[tokio::test]
async fn what_a_revoked_author_signed_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    let message = from("mallory@factory");
    let own = signer(&mallory);
    delegate(&mut intruder, 0, &own).await;
    let proof = proof(&own, &message);
    intruder.message(0, 0, &message).await.unwrap();
    deny(&scene, own.serial());
    intruder.send(&proof.frame()).await.unwrap();
    intruder.until(is_returned(RefusalReason::Revoked)).await;
    scene.unharmed().await;
}

/// Two agents of one process sign in one batch. One of them is not believed: it was revoked before or after it was
/// bound, or has no delegation, or one to another key.
#[tokio::test]
async fn an_author_that_is_not_believed_harms_nobody_else_in_its_batch() {
    for (what, reason) in [
        ("revoked before", RefusalReason::Revoked),
        ("revoked after", RefusalReason::Revoked),
        ("not delegated", RefusalReason::NotProved),
        ("delegated to another key", RefusalReason::NotProved),
    ] {
        let mut scene = Scene::at(LEVEL).await;
        let steady = scene.platform.authority.agent("steady@factory");
        let mallory = scene.mallory();
        let process = key(LEVEL);
        let (good, bad) = (
            signer_with(&steady, &process),
            signer_with(&mallory, &process),
        );
        if what == "revoked before" {
            deny(&scene, bad.serial());
        }
        // The handle 0 is the first in the batch.
        let mut intruder = match what {
            "revoked before" | "delegated to another key" => {
                let mut intruder = scene.ready(&steady).await;
                intruder.bind(1, &mallory).await.unwrap();
                intruder
            }
            _ => {
                let mut intruder = scene.ready(&mallory).await;
                intruder.bind(1, &steady).await.unwrap();
                intruder
            }
        };
        let (good_at, bad_at) = match what {
            "revoked before" | "delegated to another key" => (0, 1),
            _ => (1, 0),
        };
        delegate(&mut intruder, good_at, &good).await;
        match what {
            "not delegated" => {}
            "delegated to another key" => {
                delegate(&mut intruder, bad_at, &signer(&mallory)).await;
            }
            _ => delegate(&mut intruder, bad_at, &bad).await,
        }
        let (right, wrong) = (from("steady@factory"), from("mallory@factory"));
        intruder.message(bad_at, 0, &wrong).await.unwrap();
        intruder.message(good_at, 0, &right).await.unwrap();
        if what == "revoked after" {
            deny(&scene, bad.serial());
        }
        let said = |message| [statement("victim@factory", message)];
        let (right, wrong) = (said(&right), said(&wrong));
        let mut parts = [(good_at, &good, &right[..]), (bad_at, &bad, &wrong[..])];
        parts.sort_by_key(|part| part.0);
        let signature = Signature::of(&parts);
        intruder.send(&signature.frame()).await.unwrap();
        intruder.until(is_returned(reason)).await;
        let received = soon(scene.mailbox.recv()).await.unwrap();
        let sender = received.message().sender().unwrap().name().to_owned();
        assert_eq!(sender, "steady@factory", "{what}");
        check_elsewhere(&scene.platform.authority, "victim@factory", &received);
        scene.unharmed().await;
    }
}

/// Nobody can tell what was signed in a batch if one of its certificates is unknown.
#[tokio::test]
async fn a_batch_with_a_certificate_that_was_not_shown_is_refused() {
    let scene = Scene::at(LEVEL).await;
    let steady = scene.platform.authority.agent("steady@factory");
    let process = key(LEVEL);
    let good = signer_with(&steady, &process);
    let unknown = signer_with(&scene.mallory(), &process);
    let mut intruder = scene.ready(&steady).await;
    intruder.bind(1, &scene.mallory()).await.unwrap();
    delegate(&mut intruder, 0, &good).await;
    delegate(&mut intruder, 1, &unknown).await;
    let messages = [from("steady@factory"), from("mallory@factory")];
    intruder.message(0, 0, &messages[0]).await.unwrap();
    intruder.message(1, 0, &messages[1]).await.unwrap();
    let said = messages.map(|message| [statement("victim@factory", &message)]);
    let signature = Signature::of(&[(0, &good, &said[0]), (1, &unknown, &said[1])]);
    intruder.send(&signature.frame()).await.unwrap();
    for _ in 0..2 {
        intruder.until(is_returned(RefusalReason::NotProved)).await;
    }
    scene.unharmed().await;
}

/// A signature belongs to the messages of one connection: a batch that is sent again on another one proves nothing new.
#[tokio::test]
async fn a_batch_of_a_former_process_is_refused() {
    let mut scene = Scene::at(LEVEL).await;
    let former = scene.mallory();
    let message = from("mallory@factory");
    let old = signer(&former);
    let batch = proof(&old, &message);
    let mut intruder = scene.ready(&former).await;
    delegate(&mut intruder, 0, &old).await;
    say(&mut intruder, &message, &batch).await;
    soon(scene.mailbox.recv()).await.unwrap();
    drop(intruder);
    // The agent lives in a new process, with a new certificate. The old one was denied when it ended.
    deny(&scene, old.serial());
    let present = scene.mallory();
    let own = signer(&present);
    let mut intruder = scene.ready(&present).await;
    delegate(&mut intruder, 0, &own).await;
    show(&mut intruder, own.serial(), old.delegation()).await;
    say(&mut intruder, &message, &batch).await;
    intruder.until(is_returned(RefusalReason::NotProved)).await;
    scene.unharmed().await;
}

/// A certificate may have ended, or be refused for another reason, when it is shown again. It still counts for messages
/// that were signed under it.
#[tokio::test]
async fn a_certificate_that_was_believed_counts_after_it_is_refused() {
    let mut scene = Scene::at(LEVEL).await;
    let (former, present) = (scene.mallory(), scene.mallory());
    let own = signer(&former);
    let mut intruder = scene.ready(&former).await;
    delegate(&mut intruder, 0, &own).await;
    let mut shown = intruder.bind(0, &former).await.unwrap();
    *shown.last_mut().unwrap() ^= 1;
    let frame = Frame::Bind {
        handle: 0,
        proof: &shown,
    };
    intruder.send(&frame).await.unwrap();
    let refused = |seen: &Seen| matches!(seen, Seen::Refused { handle: 0, .. });
    intruder.until(refused).await;
    intruder.bind(0, &present).await.unwrap();
    let message = from("mallory@factory");
    say(&mut intruder, &message, &proof(&own, &message)).await;
    let received = soon(scene.mailbox.recv()).await.unwrap();
    let proof = check_elsewhere(&scene.platform.authority, "victim@factory", &received);
    assert_eq!(proof.serial(), own.serial());
    scene.unharmed().await;
}

/// Peers of an older version are refused, with the reason.
#[tokio::test]
async fn an_older_protocol_is_refused_by_name() {
    let scene = Scene::at(LEVEL).await;
    let address = scene.process.endpoint.local_address();
    let trust = scene.platform.authority.trust();
    let stream = handshake(address, LEVEL, &scene.credential, trust).await;
    let stream = stream.unwrap();
    let channel = BoundConnection::of(stream.get_ref().1, LEVEL, 1).unwrap();
    let mut intruder = Intruder::over(Box::new(stream), channel, Role::Client);
    let name = scene.credential.certificate().unwrap().identity().clone();
    let hello = intruder.hello_in(PROTOCOL_VERSION - 1, &name, LEVEL.code());
    hello.await.unwrap();
    intruder.until_end().await;
    scene.refused(RefusalReason::LevelMismatch, "").await;
    let last = scene.process.bus.refusals().last();
    let why = &last.last().unwrap().explanation;
    assert!(
        why.contains("version 2 of the mesh, this process 3"),
        "{why}"
    );
    scene.unharmed().await;
}
