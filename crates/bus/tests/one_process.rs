//! Agents of one process.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{
    AttachError, Bus, BusConfig, MailboxLimits, Provenance, SendError, TrySendError,
};
use sealbus_fipa::{AclMessage, Aid, Expression, Performative};
use sealbus_seal::PlatformName;
use tokio::runtime::Handle;

fn bus() -> Bus {
    Bus::new(
        BusConfig::new(PlatformName::new("factory").unwrap()),
        Handle::current(),
    )
}

fn to(receiver: &str) -> AclMessage {
    AclMessage::new(Performative::Request)
        .with_receiver(Aid::new(receiver).unwrap())
        .with_content("hello")
}

#[tokio::test]
async fn messages_are_shared_and_not_copied() {
    let bus = bus();
    let (alice, _alice_mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let (_bob, mut bob_mailbox) = bus.attach("bob@factory", None, None).unwrap();
    let (_carol, mut carol_mailbox) = bus.attach("carol@factory", None, None).unwrap();
    let message = to("bob@factory")
        .with_receiver(Aid::new("carol@factory").unwrap())
        .with_sender(alice.aid());
    let message = Arc::new(message);
    alice.send(message.clone()).await.unwrap();
    for mailbox in [&mut bob_mailbox, &mut carol_mailbox] {
        let received = mailbox.recv().await.unwrap();
        assert!(matches!(received.provenance(), Provenance::SameProcess));
        assert!(Arc::ptr_eq(&received.into_message(), &message));
    }
    assert_eq!(bus.counters().accepted, 2);
}

#[tokio::test]
async fn a_sender_is_who_it_is() {
    let bus = bus();
    let (alice, _alice_mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let (_bob, mut bob_mailbox) = bus.attach("bob@factory", None, None).unwrap();
    alice.send(to("bob@factory")).await.unwrap();
    let received = bob_mailbox.recv().await.unwrap();
    assert_eq!(received.message().sender().unwrap().name(), "alice@factory");
    let forged = to("bob@factory").with_sender(Aid::new("carol@factory").unwrap());
    assert!(matches!(
        alice.send(forged).await,
        Err(SendError::ForgedSender { .. })
    ));
    let to_nobody = AclMessage::new(Performative::Inform);
    assert!(matches!(
        alice.send(to_nobody).await,
        Err(SendError::NoReceiver { .. })
    ));
    assert!(bob_mailbox.try_recv().is_none());
}

#[tokio::test]
async fn a_message_names_a_bounded_number_of_agents() {
    let bus = bus();
    let (alice, _alice_mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let (_bob, mut bob_mailbox) = bus.attach("bob@factory", None, None).unwrap();
    let many =
        |count: usize| (0..count).map(|number| Aid::new(format!("a{number}@factory")).unwrap());
    let mut answered_by_many = to("bob@factory");
    answered_by_many.reply_to.extend(many(4096));
    alice.send(answered_by_many.clone()).await.unwrap();
    bob_mailbox.recv().await.unwrap();
    answered_by_many.reply_to.extend(many(1));
    let refused = alice.send(answered_by_many).await.unwrap_err().to_string();
    assert!(
        refused.contains("4097 reply-to entries, and the limit is 4096"),
        "{refused}"
    );
    let mut to_many = to("bob@factory");
    to_many.receivers.extend(many(4096));
    let refused = alice.send(to_many).await.unwrap_err().to_string();
    assert!(
        refused.contains("4097 receivers, and the limit is 4096"),
        "{refused}"
    );
    assert!(bob_mailbox.try_recv().is_none());
}

#[tokio::test]
async fn what_receivers_would_refuse_is_refused_at_once() {
    let bus = bus();
    let (alice, _alice_mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let (_bob, mut bob_mailbox) = bus.attach("bob@factory", None, None).unwrap();
    let nested = |depth: usize| {
        let word = Expression::from("x");
        (0..depth).fold(word, |inner, _| Expression::List(vec![inner]))
    };
    let row = |length: usize| Expression::List(vec!["x".into(); length]);
    for (fits, too_much, why) in [
        (nested(32), nested(33), "more than 32 nested lists"),
        (row(65_000), row(66_000), "more than 65536 values"),
    ] {
        let taken = to("bob@factory").with_user_defined("X-list", fits.clone());
        alice.send(taken).await.unwrap();
        let taken = to("bob@factory").with_reply_with(fits);
        alice.send_many([taken]).await.unwrap();
        for _ in 0..2 {
            assert!(bob_mailbox.recv().await.is_some());
        }
        let refused = to("bob@factory").with_user_defined("X-list", too_much.clone());
        let error = alice.send(refused).await.unwrap_err();
        assert!(matches!(error, SendError::OverLimits { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        let refused = to("bob@factory").with_reply_with(too_much);
        let error = alice.send_many([refused]).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(bob_mailbox.try_recv().is_none());
}

#[tokio::test]
async fn names_are_checked_and_taken_once() {
    let bus = bus();
    let _alice = bus.attach("alice@factory", None, None).unwrap();
    assert!(matches!(
        bus.attach("alice@factory", None, None),
        Err(AttachError::NameTaken(_))
    ));
    for name in ["alice", "alice@mill", "a b@factory", "@factory", ""] {
        let error = bus.attach(name, None, None).unwrap_err();
        assert!(
            matches!(error, AttachError::IllegalName { .. }),
            "{name:?}: {error}"
        );
    }
    bus.detach("alice@factory");
    assert!(bus.attach("alice@factory", None, None).is_ok());
}

#[tokio::test]
async fn a_message_to_nobody_comes_back_as_a_failure() {
    let bus = bus();
    let (alice, mut mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let lost = to("nobody@factory")
        .with_protocol("fipa-request")
        .with_conversation_id("talk-1")
        .with_reply_with("q-1");
    alice.send(lost).await.unwrap();
    let notice = mailbox.recv().await.unwrap();
    assert!(matches!(notice.provenance(), Provenance::Platform));
    let notice = notice.into_message();
    assert_eq!(notice.performative, Performative::Failure);
    assert_eq!(notice.sender.as_ref().unwrap().name, "ams@factory");
    assert_eq!(notice.protocol.as_deref(), Some("fipa-request"));
    assert_eq!(notice.conversation_id, Some("talk-1".into()));
    assert_eq!(notice.in_reply_to, Some("q-1".into()));
    assert!(notice.content_text().unwrap().contains("nobody@factory"));
    assert_eq!(bus.counters().undeliverable, 1);
}

#[tokio::test]
async fn an_agent_that_never_reads_its_failures_may_not_go_on_for_ever() {
    let bus = bus();
    let (alice, mut mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let mut sent = 0;
    let error = loop {
        match alice.send(to("nobody@factory")).await {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        tokio::task::yield_now().await;
        assert!(sent < 100_000, "it goes on for ever");
    };
    assert!(matches!(error, SendError::UnreadFailures(_)), "{error}");
    // Every accepted message is answered. Once the answers are read, the agent may go on.
    for _ in 0..sent {
        let notice = tokio::time::timeout(Duration::from_secs(60), mailbox.recv())
            .await
            .unwrap();
        assert!(notice.is_some());
    }
    alice.send(to("nobody@factory")).await.unwrap();
}

#[tokio::test]
async fn a_full_mailbox_holds_back_its_writers_only() {
    let bus = bus();
    let limits = MailboxLimits {
        messages: 5,
        bytes: 1 << 20,
    };
    let (alice, _alice_mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let (_lazy, mut lazy_mailbox) = bus.attach("lazy@factory", None, Some(limits)).unwrap();
    let (_busy, mut busy_mailbox) = bus.attach("busy@factory", None, None).unwrap();
    for _ in 0..5 {
        alice.try_send(to("lazy@factory")).unwrap();
    }
    // The message goes to both. The first mailbox is full, so the second does not have the message yet.
    let both = to("lazy@factory").with_receiver(Aid::new("busy@factory").unwrap());
    let Err(TrySendError::Full(mut unsent)) = alice.try_send(both) else {
        panic!("taken")
    };
    assert_eq!(unsent.waiting_for(), "lazy@factory");
    assert!(busy_mailbox.try_recv().is_none());
    alice.try_send(to("busy@factory")).unwrap();
    assert!(busy_mailbox.try_recv().is_some());
    let finish = alice.finish(&mut unsent);
    tokio::pin!(finish);
    tokio::select! {
        biased;
        _ = &mut finish => panic!("there was no room"),
        () = tokio::task::yield_now() => {}
    }
    lazy_mailbox.recv().await.unwrap();
    finish.await.unwrap();
    assert!(busy_mailbox.try_recv().is_some());
    assert_eq!(lazy_mailbox.len(), 5);
}

#[tokio::test]
async fn a_cancelled_wait_for_room_sends_nothing_twice() {
    let bus = bus();
    let limits = MailboxLimits {
        messages: 1,
        bytes: 1 << 20,
    };
    let (alice, _alice_mailbox) = bus.attach("alice@factory", None, None).unwrap();
    let (_one, mut one) = bus.attach("one@factory", None, Some(limits)).unwrap();
    let (_two, mut two) = bus.attach("two@factory", None, None).unwrap();
    let (_three, mut three) = bus.attach("three@factory", None, Some(limits)).unwrap();
    alice.try_send(to("one@factory")).unwrap();
    alice.try_send(to("three@factory")).unwrap();
    let mut all = to("one@factory");
    for other in ["two@factory", "three@factory"] {
        all = all.with_receiver(Aid::new(other).unwrap());
    }
    let Err(TrySendError::Full(mut unsent)) = alice.try_send(all) else {
        panic!("taken")
    };
    one.recv().await.unwrap();
    tokio::select! {
        biased;
        _ = alice.finish(&mut unsent) => panic!("there was no room"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(unsent.waiting_for(), "three@factory");
    three.recv().await.unwrap();
    alice.finish(&mut unsent).await.unwrap();
    assert!(unsent.is_done());
    assert_eq!((one.len(), two.len(), three.len()), (1, 1, 1));
    assert!(two.try_recv().is_some());
}

#[tokio::test]
async fn a_detached_agent_cannot_send() {
    let bus = bus();
    let (alice, _mailbox) = bus.attach("alice@factory", None, None).unwrap();
    bus.detach("alice@factory");
    assert!(matches!(
        alice.send(to("bob@factory")).await,
        Err(SendError::Detached(_))
    ));
}

/// An asker reads none of its answers. The answering agent waits for it for a while, and then no longer.
#[tokio::test]
async fn an_asker_that_reads_no_answers_holds_up_nobody_for_long() {
    let bus = bus();
    let limits = MailboxLimits {
        messages: 2,
        bytes: 1 << 20,
    };
    let (service, _mail) = bus.attach("service@factory", None, None).unwrap();
    let (_asker, mut answers) = bus.attach("mallory@factory", None, Some(limits)).unwrap();
    let (_other, mut others) = bus.attach("alice@factory", None, None).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..1000 {
        match service.answer(to("mallory@factory")).await {
            Ok(()) => taken += 1,
            Err(SendError::AnswerNotTaken { receiver, .. }) => {
                assert_eq!(receiver, "mallory@factory");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        service.answer(to("alice@factory")).await.unwrap();
        others.try_recv().unwrap();
    }
    assert_eq!((taken, refused), (2, 998));
    // An asker that reads again gets answers again.
    answers.try_recv().unwrap();
    service.answer(to("mallory@factory")).await.unwrap();
}
