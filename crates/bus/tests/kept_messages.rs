//! Kept messages in a mailbox: when a message is taken, its listener is told; an expired message is not delivered.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use sealbus_bus::Moment;
use sealbus_bus::{
    Bus, BusConfig, Delivery, Kept, KeptListener, KeptOutcome, Letter, MailboxLimits, NotKept,
    Post, Provenance, ReceivedMessage, SendError, mailbox,
};
use sealbus_fipa::{AclMessage, Performative};
use sealbus_seal::PlatformName;

#[derive(Default)]
struct Heard(Mutex<Vec<(u64, KeptOutcome)>>);

impl KeptListener for Heard {
    fn settled(&self, number: u64, outcome: KeptOutcome) {
        self.0.lock().unwrap().push((number, outcome));
    }
}

fn message(text: &str) -> ReceivedMessage {
    let message = AclMessage::new(Performative::Inform).with_content(text);
    ReceivedMessage::shared(Arc::new(message), Provenance::Platform)
}

fn kept(number: u64, expiry: Option<SystemTime>, listener: &Arc<Heard>) -> ReceivedMessage {
    message(&number.to_string()).with_kept(Kept {
        number,
        again: false,
        expiry: expiry.map(Moment::from),
        listener: listener.clone(),
    })
}

#[tokio::test]
async fn taking_is_told_and_what_expires_is_never_taken() {
    let heard = Arc::new(Heard::default());
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    let past = SystemTime::now() - Duration::from_secs(1);
    let future = SystemTime::now() + Duration::from_secs(3600);
    sender.push_accepted(kept(1, Some(future), &heard)).unwrap();
    sender.push_accepted(kept(2, Some(past), &heard)).unwrap();
    sender.push_accepted(message("ordinary")).unwrap();
    sender.push_accepted(kept(3, None, &heard)).unwrap();
    let mut taken = Vec::new();
    while let Some(message) = reader.try_recv() {
        taken.push(message.kept().map(|kept| kept.number));
    }
    assert_eq!(taken, [Some(1), None, Some(3)]);
    assert_eq!(
        *heard.0.lock().unwrap(),
        [
            (2, KeptOutcome::Expired),
            (1, KeptOutcome::Taken),
            (3, KeptOutcome::Taken)
        ]
    );
}

#[tokio::test]
async fn a_reader_that_waits_for_one_message_is_not_confused_by_what_expires() {
    let heard = Arc::new(Heard::default());
    let (sender, mut reader) = mailbox(MailboxLimits::default());
    let soon = SystemTime::now() + Duration::from_millis(30);
    sender.push_accepted(kept(1, Some(soon), &heard)).unwrap();
    sender.push_accepted(message("other")).unwrap();
    let waiting = tokio::spawn(async move {
        let wanted =
            |message: &ReceivedMessage| message.kept().is_some_and(|kept| kept.number == 2);
        reader.receive_matching(wanted).await.unwrap();
        reader.len()
    });
    while heard.0.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
        sender.sweep();
    }
    sender.push_accepted(kept(2, None, &heard)).unwrap();
    let left = tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap();
    assert_eq!(left.unwrap(), 1);
}

#[tokio::test]
async fn an_agent_that_moves_leaves_kept_messages_to_its_node() {
    let heard = Arc::new(Heard::default());
    let (sender, reader) = mailbox(MailboxLimits::default());
    sender.push_accepted(message("ordinary")).unwrap();
    sender.push_accepted(kept(1, None, &heard)).unwrap();
    assert_eq!(reader.drain().len(), 1);
    assert!(heard.0.lock().unwrap().is_empty());
}

#[derive(Default)]
struct Keeper(Mutex<Vec<Letter>>);

impl Post for Keeper {
    fn keep(&self, letter: Letter) -> sealbus_bus::BoxFuture<'_, Result<(), NotKept>> {
        let full = letter.receiver.starts_with("full");
        if !full {
            self.0.lock().unwrap().push(letter);
        }
        Box::pin(async move {
            if full {
                Err(NotKept("it is full".to_owned()))
            } else {
                Ok(())
            }
        })
    }
}

#[tokio::test]
async fn what_is_persistent_goes_to_the_post_and_nothing_else_does() {
    let platform = PlatformName::new("home").unwrap();
    let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
    let (alice, _mailbox) = bus.attach("alice@home", None, None).unwrap();
    let (_bob, mut bobs) = bus.attach("bob@home", None, None).unwrap();
    let to = |name: &str| {
        let receiver = sealbus_fipa::Aid::new(name).unwrap();
        AclMessage::new(Performative::Inform)
            .with_receiver(receiver)
            .with_content("x")
    };
    let nobody = alice
        .send_with(to("bob@home"), Delivery::persistent())
        .await;
    assert!(
        matches!(nobody, Err(SendError::NotKept { .. })),
        "{nobody:?}"
    );
    let keeper = Arc::new(Keeper::default());
    assert!(bus.set_post(keeper.clone()));
    alice
        .send_with(to("bob@home"), Delivery::persistent())
        .await
        .unwrap();
    assert!(bobs.try_recv().is_none());
    let letters = std::mem::take(&mut *keeper.0.lock().unwrap());
    assert_eq!(
        (&*letters[0].sender, letters[0].receiver.as_str()),
        ("alice@home", "bob@home")
    );
    alice
        .send_with(to("bob@home"), Delivery::default())
        .await
        .unwrap();
    assert!(bobs.try_recv().is_some());
    let expiring = Delivery::default().until(SystemTime::now() + Duration::from_secs(9));
    let refused = alice.send_with(to("bob@home"), expiring).await;
    assert!(
        matches!(refused, Err(SendError::NeedsPersistence { .. })),
        "{refused:?}"
    );
    let full = alice
        .send_with(to("full@home"), Delivery::persistent())
        .await
        .unwrap_err();
    assert!(full.to_string().contains("it is full"), "{full}");
}
