//! A hostile process tries sealed messages: the one that arrives sealed, whole and signed is delivered alone.

use std::sync::Arc;

use sealbus_bus::{
    BoxFuture, Envelope, LEVEL_PARAMETER, Moment, NotSealed, Opened, RefusalReason, SealedRow,
    Sealer, open_sealed,
};
use sealbus_fipa::{AclMessage, AclMessageRef, Content, Expression, bitefficient};
use sealbus_mesh::frame::Frame;
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::EncryptionKey;

use super::intruder::scene::{Scene, from, is_returned};
use super::support::soon;
use super::{Signature, delegate, proof, signer};

const VICTIM: &str = "victim@factory";

/// Opens with one key, and seals nothing.
struct OneKey {
    key: EncryptionKey,
    is_for_all: bool,
    of_platform: &'static str,
}

impl Sealer for OneKey {
    fn is_for_all(&self) -> bool {
        self.is_for_all
    }

    fn is_of_platform(&self, agent: &str) -> bool {
        agent == self.of_platform
    }

    fn seal<'a>(
        &'a self,
        _: &'a AclMessage,
        _: &'a str,
        _: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<AclMessage, NotSealed>> {
        Box::pin(async { Err(NotSealed("it only opens".to_owned())) })
    }

    fn try_seal(&self, _: &AclMessage, _: &str) -> Result<Option<AclMessage>, NotSealed> {
        Ok(None)
    }

    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, String> {
        let secret = |envelope: &Envelope<'_>, sender: &str| {
            let opening = envelope.opening(&self.key, sender, receiver);
            opening.map_err(|error| error.to_string())
        };
        open_sealed(outer, secret).map(|(opened, _)| opened)
    }
}

#[tokio::test]
async fn only_what_is_sealed_whole_and_signed_is_delivered() {
    let mut scene = Scene::at(SecurityLevel::Auth).await;
    let key = EncryptionKey::generate().unwrap();
    let public = key.public().clone();
    let sealer = OneKey {
        key,
        is_for_all: false,
        of_platform: "ams@factory",
    };
    scene.process.bus.set_sealer(Arc::new(sealer));
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let message = from("mallory@factory").with_content("the price is seven");
    let mut row = SealedRow::begin(&public, "mallory@factory", VICTIM).unwrap();
    let good = row.seal(&message).unwrap();

    let level = Expression::Word("sealed".to_owned());
    let clear = message.clone().with_user_defined(LEVEL_PARAMETER, level);
    let mut changed = good.clone();
    if let Some(Content::Bytes(content)) = &mut changed.content {
        *content.last_mut().unwrap() ^= 1;
    }
    let mut short = good.clone();
    short.content = Some(Content::Bytes(vec![1; 40]));
    // Another agent sealed it to the victim.
    let mut others = SealedRow::begin(&public, "alice@factory", VICTIM).unwrap();
    let others = others.seal(&message).unwrap();
    // It is sealed to another agent of the same process.
    let mut elsewhere = SealedRow::begin(&public, "mallory@factory", "alice@factory").unwrap();
    let elsewhere = elsewhere.seal(&message).unwrap();

    let mut intruder = scene.ready(&mallory).await;
    delegate(&mut intruder, 0, &own).await;
    for (what, message, is_signed, reason) in [
        ("in the clear", &clear, true, RefusalReason::NotSealed),
        (
            "in the clear, unsigned",
            &clear,
            false,
            RefusalReason::NotSealed,
        ),
        ("unsigned", &good, false, RefusalReason::NotProved),
        ("changed", &changed, true, RefusalReason::NotOpened),
        ("of no form", &short, true, RefusalReason::NotOpened),
        ("by another", &others, true, RefusalReason::NotOpened),
        ("to another", &elsewhere, true, RefusalReason::NotOpened),
    ] {
        let before = scene.count(reason);
        say(&mut intruder, message, is_signed, &proof(&own, message)).await;
        intruder.until(is_returned(reason)).await;
        assert_eq!(scene.count(reason), before + 1, "{what}");
    }
    say(&mut intruder, &good, true, &proof(&own, &good)).await;
    let received = soon(scene.mailbox.recv()).await.unwrap();
    assert!(received.is_sealed());
    assert_eq!(received.provenance().as_str(), "signed");
    assert_eq!(
        received.message().content_text().unwrap(),
        "the price is seven"
    );
    scene.unharmed().await;
}

#[tokio::test]
async fn where_all_is_sealed_only_the_platform_writes_in_the_clear() {
    for of_platform in ["ams@factory", "mallory@factory", VICTIM] {
        let mut scene = Scene::at(SecurityLevel::Signed).await;
        let key = EncryptionKey::generate().unwrap();
        let mut row = SealedRow::begin(key.public(), "mallory@factory", VICTIM).unwrap();
        let sealer = OneKey {
            key,
            is_for_all: true,
            of_platform,
        };
        scene.process.bus.set_sealer(Arc::new(sealer));
        assert_eq!(scene.process.bus.level(), Some(SecurityLevel::Sealed));
        let mallory = scene.mallory();
        let own = signer(&mallory);
        let clear = from("mallory@factory").with_content("in the clear");
        let sealed = row.seal(&clear).unwrap();
        let mut intruder = scene.ready(&mallory).await;
        delegate(&mut intruder, 0, &own).await;
        say(&mut intruder, &clear, true, &proof(&own, &clear)).await;
        if of_platform == "ams@factory" {
            intruder.until(is_returned(RefusalReason::NotSealed)).await;
            assert_eq!(scene.count(RefusalReason::NotSealed), 1);
        } else {
            let received = soon(scene.mailbox.recv()).await.unwrap();
            assert!(!received.is_sealed());
        }
        say(&mut intruder, &sealed, true, &proof(&own, &sealed)).await;
        let received = soon(scene.mailbox.recv()).await.unwrap();
        assert!(received.is_sealed());
    }
}

/// Sends a message, with a proof behind it if the message is marked as signed.
async fn say(
    intruder: &mut super::intruder::Intruder,
    message: &AclMessage,
    is_signed: bool,
    proof: &Signature,
) {
    let mut payload = Vec::new();
    bitefficient::encode(message, &mut payload).unwrap();
    let says = Frame::Message {
        sender: 0,
        target: 0,
        is_signed,
        payload: &payload,
    };
    intruder.send(&says).await.unwrap();
    if is_signed {
        intruder.send(&proof.frame()).await.unwrap();
    }
}
