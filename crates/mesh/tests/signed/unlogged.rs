//! An attacker that holds the CA's key, and enters nothing into the issuance log.

use std::time::Duration;

use sealbus_bus::{Location, ProcessEndpoint, RefusalReason};
use sealbus_fipa::bitefficient;
use sealbus_mesh::frame::Frame;
use sealbus_seal::SecurityLevel;

use super::intruder::Seen;
use super::intruder::scene::{Scene, from, is_returned};
use super::support::{Platform, inform, soon};
use super::{LEVEL, delegate, proof, signer};

#[tokio::test]
async fn a_certificate_that_the_log_lacks_is_not_believed() {
    let scene = Scene::at(LEVEL).await;
    let authority = &scene.platform.authority;
    let honest = authority.agent("honest@factory");
    for (what, secret) in [
        ("no proof", authority.secretly("mallory@factory", None)),
        (
            "the proof of another certificate",
            authority.secretly("mallory@factory", honest.chain().inclusion()),
        ),
    ] {
        let before = scene.count(RefusalReason::NotLogged);
        let mut intruder = scene.dial().await;
        intruder.bind(0, &secret).await.unwrap();
        let refused = |seen: &Seen| {
            matches!(seen, Seen::Refused { handle: 0, reason: RefusalReason::NotLogged, text }
                if text.contains("agent/mallory") && text.contains("issuance log"))
        };
        intruder.until(refused).await;
        assert_eq!(scene.count(RefusalReason::NotLogged), before + 1, "{what}");
        scene
            .refused(RefusalReason::NotLogged, "mallory@factory")
            .await;
    }
    scene.unharmed().await;
}

#[tokio::test]
async fn at_auth_it_signs_nothing_that_is_believed() {
    let scene = Scene::at(SecurityLevel::Auth).await;
    let secret = scene.platform.authority.secretly("mallory@factory", None);
    let mut intruder = scene.ready(&secret).await;
    let message = from("mallory@factory");
    let own = signer(&secret);
    delegate(&mut intruder, 0, &own).await;
    let signed = proof(&own, &message);
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload).unwrap();
    let says = Frame::Message {
        sender: 0,
        target: 0,
        is_signed: true,
        payload: &payload,
    };
    intruder.send(&says).await.unwrap();
    intruder.send(&signed.frame()).await.unwrap();
    intruder.until(is_returned(RefusalReason::NotLogged)).await;
    scene
        .refused(RefusalReason::NotLogged, "mallory@factory")
        .await;
    scene.unharmed().await;
}

#[tokio::test]
async fn nothing_goes_to_a_receiver_whose_certificate_the_log_lacks() {
    let platform = Platform::new(LEVEL);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (sender, _mailbox) = platform.agent(&here, "sender@factory");
    let secret = platform.authority.secretly("sink@factory", None);
    let (_sink, mut heard) = there
        .bus
        .attach("sink@factory", Some(secret), None)
        .unwrap();
    let place = ProcessEndpoint {
        identity: there.identity.clone(),
        address: there.endpoint.local_address(),
    };
    platform
        .directory
        .put("sink@factory", Location::Process(place));
    let sending = tokio::spawn(async move { sender.send(inform("sink@factory", 1)).await });
    let refused = || {
        let refusals = here.bus.refusals().last();
        let mut refusals = refusals.iter();
        refusals.any(|it| {
            it.reason == RefusalReason::NotLogged && it.explanation.contains("agent/sink")
        })
    };
    soon(async {
        while !refused() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(heard.try_recv().is_none());
    sending.abort();
}
