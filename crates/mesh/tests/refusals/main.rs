//! The refusals of the mesh: both sides report them, with the reason, and other agents are not disturbed.

#![allow(clippy::unwrap_used)]

mod strangers;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Mailbox, Outbox, RefusalReason, Returned, SendError, UndeliverableReason};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative, bitefficient};
use sealbus_seal::denylist::DenyList;
use sealbus_seal::permission::{Messages, Policy, Rule};
use sealbus_seal::{Identity, SecurityLevel};
use support::proxy::Proxy;
use support::{Authority, Platform, Process, inform, now, soon};

/// How long a process that refuses is tried. A handshake on a slow machine must reach the point of refusal in it.
const GIVE_UP: Duration = Duration::from_secs(2);

fn count(process: &Process, reason: RefusalReason) -> u64 {
    process
        .bus
        .refusals()
        .counts()
        .iter()
        .find(|(found, _)| *found == reason)
        .unwrap()
        .1
}

/// Tells a process that an agent is revoked.
fn deny(platform: &Platform, process: &Process, agent: &str) {
    let mut list = DenyList::new(platform.authority.issuing.identity().clone());
    let identity = Identity::from_agent_name(agent).unwrap();
    let denial = support::denial(now());
    list.deny_identity(identity, now().plus(support::DAY), denial)
        .unwrap();
    let signed = list.sign(&platform.authority.issuing).unwrap().whole();
    process.trust.apply_deny_list(&signed, now()).unwrap();
    process.endpoint.trust_changed();
}

async fn until_refused(process: &Process, reason: RefusalReason) {
    soon(async {
        while count(process, reason) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Sends until the outcome is as wanted, and returns the last notice. A link may be given up before its handshake has
/// reached the point of refusal.
async fn turned_away(
    sender: &Outbox,
    mailbox: &mut Mailbox,
    receiver: &str,
    wanted: impl Fn(&AclMessage) -> bool,
) -> Arc<AclMessage> {
    soon(async {
        loop {
            sender.send(inform(receiver, "let me in")).await.unwrap();
            let notice = mailbox.recv().await.unwrap().into_message();
            assert_eq!(notice.performative, Performative::Failure);
            if wanted(&notice) {
                return notice;
            }
        }
    })
    .await
}

/// Lets a pair of agents talk. A further call checks that they still can.
async fn still_talks(platform: &Platform, here: &Process, there: &Process, round: usize) {
    let names = (
        format!("ann-{round}@factory"),
        format!("ben-{round}@factory"),
    );
    let (ann, mut ann_mailbox) = platform.agent(here, &names.0);
    let (ben, mut ben_mailbox) = platform.agent(there, &names.1);
    ann.send(inform(&names.1, "hello")).await.unwrap();
    soon(ben_mailbox.recv()).await.unwrap();
    ben.send(inform(&names.0, "hello yourself")).await.unwrap();
    let answer = soon(ann_mailbox.recv()).await.unwrap();
    assert_eq!(answer.message().performative(), Performative::Inform);
}

#[tokio::test]
async fn a_forged_sender() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (_alice, _) = platform.agent(&there, "alice@factory");
    let (eve, mut eve_mailbox) = platform.agent(&here, "eve@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    // Her own bus refuses to send it.
    let forged = inform("bob@factory", "pay eve").with_sender(Aid::new("alice@factory").unwrap());
    assert!(matches!(
        eve.send(forged.clone()).await,
        Err(SendError::ForgedSender { .. })
    ));
    // Eve bypasses the bus, as a program can that speaks the protocol itself.
    let mut payload = Vec::new();
    bitefficient::encode(&forged, &mut payload).unwrap();
    let letter = Returned {
        sender: eve.agent().clone(),
        payload: payload.into(),
    };
    here.bus.returned("bob@factory", vec![letter], false, || {});
    until_refused(&there, RefusalReason::ForgedSender).await;
    let refusal = there.bus.refusals().last().pop().unwrap();
    assert_eq!(refusal.tried_by, "alice@factory");
    assert_eq!(
        refusal.proved.as_deref(),
        Some("spiffe://factory/agent/eve")
    );
    assert_eq!(refusal.receiver.as_deref(), Some("bob@factory"));
    // An honest message after it arrives. The forged message never does, and Eve was told.
    eve.send(inform("bob@factory", "it was me")).await.unwrap();
    let received = soon(bob_mailbox.recv()).await.unwrap();
    assert_eq!(received.message().content_text().unwrap(), "it was me");
    assert_eq!(here.bus.counters().undeliverable, 1);
    drop(eve_mailbox.try_recv());
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_at_once_under_open_connections() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (mallory, mut mallory_mailbox) = platform.agent(&here, "mallory@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    mallory.send(inform("bob@factory", "before")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();

    deny(&platform, &there, "mallory@factory");
    let after = inform("bob@factory", "after").with_conversation_id("scheme");
    mallory.send(after).await.unwrap();
    let notice = soon(mallory_mailbox.recv()).await.unwrap().into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert_eq!(notice.conversation_id, Some("scheme".into()));
    assert!(
        notice.content_text().unwrap().contains("revoked"),
        "{:?}",
        notice.content_text()
    );
    assert!(bob_mailbox.try_recv().is_none());
    assert!(count(&there, RefusalReason::Revoked) > 0);
    still_talks(&platform, &here, &there, 0).await;
}

#[tokio::test]
async fn a_receiver_that_is_revoked_while_the_link_is_down_gets_nothing_more() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let proxy = Proxy::to(there.endpoint.local_address()).await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent_behind(&there, "bob@factory", proxy.address);
    alice.send(inform("bob@factory", "before")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    let link = |process: &Process| process.endpoint.links().remove(0);
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    soon(async {
        while link(&here).unacknowledged + link(&there).unacknowledged > 0 {
            pause().await;
        }
        proxy.close();
        while link(&here).is_connected {
            pause().await;
        }
        deny(&platform, &here, "bob@factory");
        // The link should report it, and cannot yet.
        while link(&here).unacknowledged == 0 {
            pause().await;
        }
    })
    .await;

    proxy.open();
    alice.send(inform("bob@factory", "after")).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert!(bob_mailbox.try_recv().is_none());
    assert!(count(&here, RefusalReason::Revoked) > 0);
    still_talks(&platform, &here, &there, 0).await;
}

/// The sender's process knows the present certificate of the receiver, and not only the one that was shown first.
#[tokio::test]
async fn a_receiver_whose_renewed_certificate_is_revoked_gets_nothing_more() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    alice.send(inform("bob@factory", "before")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    let renewed = platform.authority.agent("bob@factory");
    let serial = renewed.certificate().unwrap().serial();
    there.bus.set_credential("bob@factory", renewed).unwrap();
    bob.send(inform("alice@factory", "renewed")).await.unwrap();
    soon(alice_mailbox.recv()).await.unwrap();

    let mut list = DenyList::new(platform.authority.issuing.identity().clone());
    let denial = support::denial(now());
    list.deny_serial(serial, now().plus(support::DAY), denial)
        .unwrap();
    let signed = list.sign(&platform.authority.issuing).unwrap().whole();
    here.trust.apply_deny_list(&signed, now()).unwrap();
    here.endpoint.trust_changed();
    until_refused(&here, RefusalReason::Revoked).await;
    alice.send(inform("bob@factory", "after")).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert!(bob_mailbox.try_recv().is_none());
}

/// The sender is told, and its room comes back. A bus of this version never sends such a message itself.
#[tokio::test]
async fn what_the_receiver_cannot_read() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    let word = Expression::from("x");
    let deep = (0..100).fold(word, |inner, _| Expression::List(vec![inner]));
    let message = inform("bob@factory", "x".repeat(60_000))
        .with_sender(alice.aid())
        .with_user_defined("X-deep", deep);
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload).unwrap();
    // All of them together exceed the amount that the other process may write at a time.
    for _ in 0..40 {
        let letter = Returned {
            sender: alice.agent().clone(),
            payload: payload.clone().into(),
        };
        here.bus.returned("bob@factory", vec![letter], false, || {});
        let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
        assert_eq!(notice.performative, Performative::Failure);
        assert!(notice.content_text().unwrap().contains("malformed"));
    }
    assert_eq!(count(&there, RefusalReason::Malformed), 40);
    alice.send(inform("bob@factory", "short")).await.unwrap();
    let received = soon(bob_mailbox.recv()).await.unwrap();
    assert_eq!(received.message().content_text().unwrap(), "short");
}

#[tokio::test]
async fn an_expired_certificate_delivers_nothing_more() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    // The certificate expired by more than the clock tolerance. A CA with a wrong clock makes such certificates.
    let name = "late@factory";
    let identity = Identity::from_agent_name(name).unwrap();
    let credential = platform
        .authority
        .certify_until(identity, now().minus(Duration::from_secs(20)));
    let (late, mut late_mailbox) = here.bus.attach(name, Some(credential), None).unwrap();
    late.send(inform("bob@factory", "too late")).await.unwrap();
    let notice = soon(late_mailbox.recv()).await.unwrap().into_message();
    assert!(
        notice.content_text().unwrap().contains("expired"),
        "{:?}",
        notice.content_text()
    );
    assert!(bob_mailbox.try_recv().is_none());
    // With a renewed certificate the agent goes on, on the same connection.
    here.bus
        .set_credential(name, platform.authority.agent(name))
        .unwrap();
    late.send(inform("bob@factory", "in time")).await.unwrap();
    assert!(soon(bob_mailbox.recv()).await.is_some());
    assert_eq!(here.endpoint.links()[0].connections, 1);
}

#[tokio::test]
async fn a_process_with_a_certificate_of_another_authority() {
    let platform = Platform::new(SecurityLevel::Auth);
    let there = platform.process("node-2").await;
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    // The foreign platform has the same platform and process names and its own authority. It trusts the real authority,
    // to get that far.
    let mut foreign = Platform::new(SecurityLevel::Auth);
    foreign.directory = platform.directory.clone();
    foreign.trusted = Some(platform.authority.trust());
    let here = foreign
        .process_with("node-1", |config| config.give_up = GIVE_UP)
        .await;
    let (eve, mut eve_mailbox) = foreign.agent(&here, "eve@factory");
    turned_away(&eve, &mut eve_mailbox, "bob@factory", |_| {
        count(&there, RefusalReason::UnknownIssuer) > 0
    })
    .await;
    assert!(there.endpoint.links().is_empty());
    assert!(bob_mailbox.try_recv().is_none());
}

#[tokio::test]
async fn a_process_at_another_level() {
    let pairs = [
        (SecurityLevel::None, SecurityLevel::Auth),
        (SecurityLevel::Auth, SecurityLevel::None),
        (SecurityLevel::Tls, SecurityLevel::Auth),
        (SecurityLevel::Auth, SecurityLevel::Tls),
        (SecurityLevel::None, SecurityLevel::Tls),
        (SecurityLevel::Tls, SecurityLevel::None),
    ]
    .map(|(ours, theirs)| async move {
        let mut platform = Platform::new(ours);
        let here = platform
            .process_with("node-1", |config| config.give_up = GIVE_UP)
            .await;
        let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
        platform.level = theirs;
        let there = platform.process("node-2").await;
        let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
        // Both sides report it.
        turned_away(&alice, &mut alice_mailbox, "bob@factory", |notice| {
            count(&there, RefusalReason::LevelMismatch) > 0
                && (count(&here, RefusalReason::LevelMismatch) > 0
                    || notice.content_text().unwrap().contains("level"))
        })
        .await;
        assert!(bob_mailbox.try_recv().is_none(), "{ours} to {theirs}");
    });
    futures_util::future::join_all(pairs).await;
}

#[tokio::test]
async fn what_the_policy_forbids() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform.process("node-1").await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    let messages = Messages {
        from: vec!["alice".into()],
        to: vec!["bob".into()],
        on_behalf_of: None,
    };
    let policy = Policy {
        rules: vec![Rule::Deny(messages)],
        ..Policy::default()
    };
    there.bus.set_permissions(Arc::new(
        policy.compile(&platform.authority.platform).unwrap(),
    ));
    alice.send(inform("bob@factory", "hello")).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
    assert!(notice.content_text().unwrap().contains("not-permitted"));
    assert!(bob_mailbox.try_recv().is_none());
    assert_eq!(count(&there, RefusalReason::NotPermitted), 1);
}

#[tokio::test]
async fn messages_over_the_limit_and_to_nobody() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| config.largest_message = 100_000)
        .await;
    let there = platform.process("node-2").await;
    let (alice, mut alice_mailbox) = platform.agent(&here, "alice@factory");
    let (_bob, mut bob_mailbox) = platform.agent(&there, "bob@factory");
    alice.send(inform("bob@factory", "short")).await.unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
    let error = alice
        .send(inform("bob@factory", "x".repeat(200_000)))
        .await
        .unwrap_err();
    let SendError::Impossible {
        reason: UndeliverableReason::TooLarge { size, limit },
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(size > 200_000 && limit == 100_000);
    alice.send(inform("nobody@factory", "hello")).await.unwrap();
    let notice = soon(alice_mailbox.recv()).await.unwrap().into_message();
    assert!(notice.content_text().unwrap().contains("nobody@factory"));
    // Running work goes on.
    alice
        .send(inform("bob@factory", "short again"))
        .await
        .unwrap();
    soon(bob_mailbox.recv()).await.unwrap();
}

#[test]
fn authorities_of_the_same_name_are_not_the_same() {
    assert_ne!(
        Authority::new("factory").root.fingerprint(),
        Authority::new("factory").root.fingerprint()
    );
}
