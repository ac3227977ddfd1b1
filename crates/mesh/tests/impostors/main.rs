//! Agents that are not who they claim to be, at level `auth`. Nothing from them is delivered, and nothing is sent to
//! them. They are told why. Each attempt is counted and logged under the name that tried.
#![allow(clippy::unwrap_used)]

mod alike;
mod called;
#[path = "../intruder/mod.rs"]
mod intruder;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;

use intruder::scene::{Scene, deny, expired, from, is_refused, is_returned};
use intruder::{Seen, handshake};
use sealbus_bus::{Provenance, RefusalReason};
use sealbus_mesh::frame::Frame;
use sealbus_seal::binding::{Binding, Role};
use sealbus_seal::permission::{Messages, Permissions, Policy, Rule};
use sealbus_seal::{Identity, SecurityLevel};
use support::{Authority, soon};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn the_intruders_program_works_when_it_is_honest() {
    let mut scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder
        .message(0, 0, &from("mallory@factory"))
        .await
        .unwrap();
    let received = soon(scene.mailbox.recv()).await.unwrap();
    assert_eq!(
        received.message().sender().unwrap().name(),
        "mallory@factory"
    );
    assert!(matches!(
        received.provenance(),
        Provenance::Proved(proved) if proved.identity().is_agent_named("mallory@factory")
    ));
    assert_eq!(scene.process.bus.refusals().total(), 0);
    scene.unharmed().await;
}

#[tokio::test]
async fn a_forged_sender_is_refused() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    for name in [
        "ams@factory",
        "victim@factory",
        "mallory@elsewhere",
        "mallory",
    ] {
        intruder.message(0, 0, &from(name)).await.unwrap();
        intruder
            .until(is_returned(RefusalReason::ForgedSender))
            .await;
    }
    let mut nameless = from("mallory@factory");
    nameless.sender = None;
    intruder.message(0, 0, &nameless).await.unwrap();
    intruder
        .until(is_returned(RefusalReason::ForgedSender))
        .await;
    assert_eq!(scene.count(RefusalReason::ForgedSender), 5);
    let last = scene.process.bus.refusals().last();
    assert_eq!(last[0].tried_by, "ams@factory");
    assert!(
        last[0].proved.as_deref().unwrap().contains("mallory"),
        "{:?}",
        last[0]
    );
    scene.unharmed().await;
}

#[tokio::test]
async fn a_message_of_nobody_is_refused() {
    let scene = Scene::new().await;
    let mut intruder = scene.dial().await;
    intruder.target(0, "victim@factory").await;
    intruder
        .message(5, 0, &from("mallory@factory"))
        .await
        .unwrap();
    intruder.until(is_returned(RefusalReason::NotProved)).await;
    scene
        .refused(RefusalReason::NotProved, "mallory@factory")
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn an_agent_that_was_unbound_is_nobody() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder.send(&Frame::Unbind { handle: 0 }).await.unwrap();
    intruder
        .message(0, 0, &from("mallory@factory"))
        .await
        .unwrap();
    intruder.until(is_returned(RefusalReason::NotProved)).await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_proof_is_not_good_on_another_connection() {
    let scene = Scene::new().await;
    // Mallory gets hold of a valid proof for another connection, from an agent whose key she does not have.
    let proof = {
        let mut first = scene.dial().await;
        first
            .bind(0, &scene.platform.authority.agent("alice@factory"))
            .await
            .unwrap()
    };
    let mut intruder = scene.dial().await;
    intruder
        .send(&Frame::Bind {
            handle: 0,
            proof: &proof,
        })
        .await
        .unwrap();
    let seen = intruder.until(is_refused(RefusalReason::NotProved)).await;
    assert!(
        matches!(&seen, Seen::Refused { handle: 0, text, .. } if text.contains("alice")),
        "{seen:?}"
    );
    intruder.target(0, "victim@factory").await;
    intruder
        .message(0, 0, &from("alice@factory"))
        .await
        .unwrap();
    intruder.until(is_returned(RefusalReason::NotProved)).await;
    scene.refused(RefusalReason::NotProved, "alice").await;
    scene.unharmed().await;
}

#[tokio::test]
async fn the_receivers_own_proof_is_not_good_when_sent_back() {
    let scene = Scene::new().await;
    let mut intruder = scene.dial().await;
    intruder
        .send(&Frame::Target {
            handle: 0,
            name: "victim@factory",
        })
        .await
        .unwrap();
    let Seen::Prove { proof } = intruder
        .until(|seen| matches!(seen, Seen::Prove { .. }))
        .await
    else {
        unreachable!()
    };
    intruder
        .send(&Frame::Bind {
            handle: 0,
            proof: &proof,
        })
        .await
        .unwrap();
    intruder.until(is_refused(RefusalReason::NotProved)).await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_certificate_without_its_key_proves_nothing() {
    let scene = Scene::new().await;
    let mut intruder = scene.dial().await;
    let alice = scene.platform.authority.agent("alice@factory");
    let mut proof = Vec::new();
    alice.chain().encode(&mut proof);
    let mut own = Vec::new();
    Binding::prove(&scene.mallory(), &intruder.channel, Role::Client)
        .unwrap()
        .encode(&mut own);
    proof.extend_from_slice(&own[own.len() - 64..]);
    intruder
        .send(&Frame::Bind {
            handle: 0,
            proof: &proof,
        })
        .await
        .unwrap();
    intruder.until(is_refused(RefusalReason::NotProved)).await;
    scene.unharmed().await;
}

#[tokio::test]
async fn agents_of_another_authority_are_refused() {
    let scene = Scene::new().await;
    let impostor = Authority::new("factory");
    let mut intruder = scene.dial().await;
    intruder
        .bind(0, &impostor.agent("alice@factory"))
        .await
        .unwrap();
    intruder
        .until(is_refused(RefusalReason::UnknownIssuer))
        .await;
    scene
        .refused(RefusalReason::UnknownIssuer, "alice@factory")
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn expired_agents_are_refused() {
    let scene = Scene::new().await;
    let identity = Identity::from_agent_name("mallory@factory").unwrap();
    let expired = expired(&scene.platform.authority, identity);
    let mut intruder = scene.dial().await;
    intruder.bind(0, &expired).await.unwrap();
    let seen = intruder.until(is_refused(RefusalReason::Expired)).await;
    assert!(
        matches!(&seen, Seen::Refused { text, .. } if text.contains("clock")),
        "{seen:?}"
    );
    scene.unharmed().await;
}

#[tokio::test]
async fn a_process_is_no_agent() {
    let scene = Scene::new().await;
    let mut intruder = scene.dial().await;
    intruder.bind(0, &scene.credential.clone()).await.unwrap();
    intruder
        .until(is_refused(RefusalReason::WrongIdentity))
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_handle_stays_with_its_agent() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder
        .bind(0, &scene.platform.authority.agent("other@factory"))
        .await
        .unwrap();
    intruder.until_end().await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_in_the_middle_of_its_sending() {
    let mut scene = Scene::new().await;
    let mallory = scene.mallory();
    let mut intruder = scene.ready(&mallory).await;
    intruder
        .message(0, 0, &from("mallory@factory"))
        .await
        .unwrap();
    soon(scene.mailbox.recv()).await.unwrap();

    deny(&scene, mallory.certificate().unwrap().serial());
    let seen = intruder.until(is_refused(RefusalReason::Revoked)).await;
    assert!(
        matches!(&seen, Seen::Refused { handle: 0, text, .. } if text.starts_with("revoked")),
        "{seen:?}"
    );
    intruder
        .message(0, 0, &from("mallory@factory"))
        .await
        .unwrap();
    intruder.until(is_returned(RefusalReason::Revoked)).await;
    scene
        .refused(RefusalReason::Revoked, "mallory@factory")
        .await;

    // The agent is not let in again either.
    intruder.bind(0, &mallory).await.unwrap();
    intruder.until(is_refused(RefusalReason::Revoked)).await;
    let mut again = scene.dial().await;
    again.bind(0, &mallory).await.unwrap();
    again.until(is_refused(RefusalReason::Revoked)).await;
    scene.unharmed().await;
}

#[tokio::test]
async fn a_revoked_process_loses_its_connection() {
    let scene = Scene::new().await;
    let mut intruder = scene.ready(&scene.mallory()).await;
    deny(&scene, scene.credential.certificate().unwrap().serial());
    // The connection ends at the agent's next message of any kind, and nothing is delivered.
    let _ = intruder.message(0, 0, &from("mallory@factory")).await;
    intruder.until_end().await;
    let mut scene = scene;
    while scene.mailbox.try_recv().is_some() {} // what was under way before the list came
    let address = scene.process.endpoint.local_address();
    let trust = scene.platform.authority.trust();
    let mut refused = soon(handshake(
        address,
        SecurityLevel::Auth,
        &scene.credential,
        trust,
    ))
    .await;
    if let Ok(stream) = &mut refused {
        let read = soon(stream.read(&mut [0; 64])).await;
        assert!(
            matches!(read, Ok(0) | Err(_)),
            "a revoked process was let in"
        );
    }
    scene.unharmed().await;
}

#[tokio::test]
async fn what_the_policy_denies_is_refused() {
    let scene = Scene::new().await;
    let rule = Rule::Deny(Messages {
        from: vec!["mallory".into()],
        to: vec!["*".into()],
        on_behalf_of: None,
    });
    let policy = Policy {
        rules: vec![rule],
        ..Policy::default()
    };
    let permissions: Permissions = policy.compile(&scene.platform.authority.platform).unwrap();
    scene.process.bus.set_permissions(Arc::new(permissions));
    let mut intruder = scene.ready(&scene.mallory()).await;
    intruder
        .message(0, 0, &from("mallory@factory"))
        .await
        .unwrap();
    intruder
        .until(is_returned(RefusalReason::NotPermitted))
        .await;
    scene
        .refused(RefusalReason::NotPermitted, "mallory@factory")
        .await;
    scene.unharmed().await;
}
