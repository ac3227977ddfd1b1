//! A hostile process tries sealed messages. Only the one that arrives sealed, whole and signed is delivered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_bus::{
    BoxFuture, LEVEL_PARAMETER, Location, Mailbox, Moment, NotOpened, NotSealed, Opened,
    OpenedRows, Outbox, RefusalReason, SealedMessage, SealedRow, Sealer, SentRows, SessionNumber,
};
use sealbus_fipa::{AclMessage, AclMessageRef, Content, Expression, Limits, bitefficient};
use sealbus_mesh::frame::{Frame, Why};
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::{EncryptionKey, EncryptionPublicKey};

use super::intruder::Seen;
use super::intruder::scene::{Scene, from, is_returned};
use super::support::{Platform, Process, inform, soon};
use super::{Signature, delegate, proof, signer};

const VICTIM: &str = "victim@factory";

/// Opens with one key, and seals to one.
struct OneKey {
    key: Arc<EncryptionKey>,
    to: Option<EncryptionPublicKey>,
    rows: Mutex<HashMap<String, SealedRow>>,
    sent: Mutex<SentRows>,
    opened: Mutex<OpenedRows>,
    is_for_all: bool,
    of_platform: &'static str,
}

impl OneKey {
    fn new(key: Arc<EncryptionKey>, is_for_all: bool, of_platform: &'static str) -> Self {
        Self {
            key,
            to: None,
            rows: Mutex::default(),
            sent: Mutex::default(),
            opened: Mutex::default(),
            is_for_all,
            of_platform,
        }
    }

    fn sealed(&self, message: &AclMessage, receiver: &str) -> Result<SealedMessage, NotSealed> {
        let to = self.to.as_ref();
        let to = to.ok_or_else(|| NotSealed("it only opens".to_owned()))?;
        let sender = &message.sender.as_ref().unwrap().name;
        let mut rows = self.rows.lock();
        let row = rows.entry(sender.clone()).or_insert_with(|| {
            let row = SealedRow::begin(to, sender, receiver, Instant::now()).unwrap();
            self.sent.lock().note(&row);
            row
        });
        row.seal(message)
    }
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
        message: &'a AclMessage,
        receiver: &'a str,
        _: Option<Option<Moment>>,
    ) -> BoxFuture<'a, Result<SealedMessage, NotSealed>> {
        Box::pin(async { self.sealed(message, receiver) })
    }

    fn try_seal(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<Option<SealedMessage>, NotSealed> {
        self.sealed(message, receiver).map(Some)
    }

    fn came_back(&self, payload: Bytes) -> Result<Bytes, NotSealed> {
        self.sent.lock().whole(payload)
    }

    fn open(&self, outer: &AclMessageRef<'_>, receiver: &str) -> Result<Opened, NotOpened> {
        let key = |_| Ok(self.key.clone());
        let mut opened = self.opened.lock();
        opened.open(outer, receiver, Instant::now(), key)
    }
}

fn begin(key: &EncryptionPublicKey, sender: &str, receiver: &str) -> SealedRow {
    SealedRow::begin(key, sender, receiver, Instant::now()).unwrap()
}

/// The next message of a row as it is sent. Only the first contains the row's secret.
fn sealed(row: &mut SealedRow, message: &AclMessage) -> AclMessage {
    let sealed = row.seal(message).unwrap();
    sealed.went_over(SessionNumber::next());
    let outer = bitefficient::decode_ref(sealed.bytes(), &Limits::default());
    outer.unwrap().to_owned()
}

#[tokio::test]
async fn only_what_is_sealed_whole_and_signed_is_delivered() {
    let mut scene = Scene::at(SecurityLevel::Auth).await;
    let key = Arc::new(EncryptionKey::generate().unwrap());
    let public = key.public().clone();
    let sealer = OneKey::new(key, false, "ams@factory");
    scene.process.bus.set_sealer(Arc::new(sealer));
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let message = from("mallory@factory").with_content("the price is seven");
    let mut row = begin(&public, "mallory@factory", VICTIM);
    let good = sealed(&mut row, &message);

    let level = Expression::Word("sealed".to_owned());
    let clear = message.clone().with_user_defined(LEVEL_PARAMETER, level);
    let mut changed = good.clone();
    if let Some(Content::Bytes(content)) = &mut changed.content {
        *content.last_mut().unwrap() ^= 1;
    }
    let mut short = good.clone();
    short.content = Some(Content::Bytes(vec![1; 40]));
    // Another agent sealed it to the victim.
    let others = sealed(&mut begin(&public, "alice@factory", VICTIM), &message);
    // It is sealed to another agent of the same process.
    let mut elsewhere = begin(&public, "mallory@factory", "alice@factory");
    let elsewhere = sealed(&mut elsewhere, &message);

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
        let key = Arc::new(EncryptionKey::generate().unwrap());
        let mut row = begin(key.public(), "mallory@factory", VICTIM);
        let sealer = OneKey::new(key, true, of_platform);
        scene.process.bus.set_sealer(Arc::new(sealer));
        assert_eq!(scene.process.bus.level(), Some(SecurityLevel::Sealed));
        let mallory = scene.mallory();
        let own = signer(&mallory);
        let clear = from("mallory@factory").with_content("in the clear");
        let sealed = sealed(&mut row, &clear);
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

/// A hostile process names rows that nobody knows, as often as it likes. It gets these messages and all later ones
/// back, as from an agent that moves: nothing is opened, and no other row is forgotten.
#[tokio::test]
async fn messages_of_an_unknown_row_go_back_in_their_order_and_come_again_with_its_secret() {
    let mut scene = Scene::at(SecurityLevel::Signed).await;
    let key = Arc::new(EncryptionKey::generate().unwrap());
    let public = key.public().clone();
    let sealer = Arc::new(OneKey::new(key, true, "ams@factory"));
    scene.process.bus.set_sealer(sealer.clone());
    let mallory = scene.mallory();
    let own = signer(&mallory);
    let message = from("mallory@factory").with_content("the price is seven");
    let mut known = begin(&public, "mallory@factory", VICTIM);
    let first = sealed(&mut known, &message);
    let mut intruder = scene.ready(&mallory).await;
    delegate(&mut intruder, 0, &own).await;
    say(&mut intruder, &first, true, &proof(&own, &first)).await;
    assert!(soon(scene.mailbox.recv()).await.unwrap().is_sealed());
    let close = Frame::CloseTarget { target: 0 };
    intruder.send(&close).await.unwrap();
    for target in 1..50 {
        let mut row = begin(&public, "mallory@factory", VICTIM);
        let [whole, short] = [0; 2].map(|_| sealed(&mut row, &message));
        assert!(intruder.opens_target(target, VICTIM).await);
        for message in [&short, &whole] {
            say_to(&mut intruder, target, message, true, &proof(&own, message)).await;
            let is_back = |seen: &Seen| matches!(seen, Seen::Returned { why: Why::Moving });
            intruder.until(is_back).await;
        }
    }
    assert_eq!(sealer.opened.lock().count(), 1);
    assert!(scene.mailbox.try_recv().is_none());
    assert_eq!(scene.process.bus.refusals().total(), 0);
    // The same over another target: the whole message, and the row that was known all along.
    assert!(intruder.opens_target(50, VICTIM).await);
    let mut row = begin(&public, "mallory@factory", VICTIM);
    let again = [
        sealed(&mut row, &message),
        sealed(&mut row, &message),
        sealed(&mut known, &message),
    ];
    for message in &again {
        say_to(&mut intruder, 50, message, true, &proof(&own, message)).await;
        assert!(soon(scene.mailbox.recv()).await.unwrap().is_sealed());
    }
}

/// Two honest processes: one forgets the secrets of what the other sends sealed.
#[tokio::test]
async fn what_a_receiver_has_forgotten_comes_again_and_nothing_is_lost_doubled_or_reordered() {
    let platform = Platform::new(SecurityLevel::Signed);
    let (one, two) = (
        platform.process("node-1").await,
        platform.process("node-2").await,
    );
    let key = Arc::new(EncryptionKey::generate().unwrap());
    let sender = OneKey {
        to: Some(key.public().clone()),
        ..OneKey::new(key.clone(), true, "ams@factory")
    };
    let receiver = Arc::new(OneKey::new(key, true, "ams@factory"));
    one.bus.set_sealer(Arc::new(sender));
    two.bus.set_sealer(receiver.clone());
    let (alice, mut failures): (Outbox, Mailbox) = platform.agent(&one, "alice@factory");
    let (_bob, mut mailbox) = platform.agent(&two, "bob@factory");
    let mut heard = Vec::new();
    let mut short = 0;
    for round in 0..40 {
        for number in 0..25 {
            let message = inform("bob@factory", round * 25 + number);
            alice.send(message).await.unwrap();
        }
        // Some of the messages are under way, or in the mailbox.
        *receiver.opened.lock() = OpenedRows::default();
        while heard.len() < round * 25 {
            let received = soon(mailbox.recv()).await.unwrap();
            short += usize::from(received.row().is_some());
            heard.push(received.message().content_text().unwrap().into_owned());
        }
    }
    while heard.len() < 1000 {
        let received = soon(mailbox.recv()).await.unwrap();
        short += usize::from(received.row().is_some());
        heard.push(received.message().content_text().unwrap().into_owned());
    }
    let said: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(heard, said);
    assert!(failures.try_recv().is_none() && mailbox.try_recv().is_none());
    assert!(short > 0 && one.bus.counters().returned > 0);
    let refused: fn(&Process) -> u64 = |process| process.bus.refusals().total();
    assert_eq!((refused(&one), refused(&two)), (0, 0));
}

/// A message that the former process gives back gets its secret again, and opens in the next one.
#[tokio::test]
async fn sealed_messages_follow_an_agent_that_moves_once_and_in_order() {
    const MESSAGES: usize = 12_000;
    let platform = Platform::new(SecurityLevel::Signed);
    let here = platform.process("node-0").await;
    let homes = [
        platform.process("node-1").await,
        platform.process("node-2").await,
    ];
    let key = Arc::new(EncryptionKey::generate().unwrap());
    let processes = || homes.iter().chain([&here]);
    for process in processes() {
        let sealer = OneKey {
            to: Some(key.public().clone()),
            ..OneKey::new(key.clone(), true, "ams@factory")
        };
        process.bus.set_sealer(Arc::new(sealer));
    }
    let (alice, mut failures) = platform.agent(&here, "alice@factory");
    let (local, mut local_failures) = platform.agent(&homes[0], "local@factory");
    let name = "nomad@factory";
    platform.directory.put(name, Location::InTransit);
    let send_all = |outbox: Outbox| async move {
        for number in 0..MESSAGES {
            outbox.send(inform("nomad@factory", number)).await.unwrap();
        }
        outbox
    };
    let senders = [tokio::spawn(send_all(alice)), tokio::spawn(send_all(local))];
    let mut next: HashMap<String, usize> = HashMap::new();
    let (mut carried, mut taken, mut moves, mut short) = (Vec::new(), 0, 0, 0);
    'life: loop {
        let home = &homes[moves % 2];
        let credential = Some(platform.authority.agent(name));
        let unread = std::mem::take(&mut carried);
        let attached = home.bus.attach_moved(name, credential, None, unread);
        let (_nomad, mut mailbox) = attached.unwrap();
        let place = Location::Process(home.endpoint.process());
        platform.directory.put(name, place);
        for process in processes() {
            process.bus.location_changed(name);
        }
        for _ in 0..2800 {
            let received = soon(mailbox.recv()).await.unwrap();
            assert!(received.is_sealed());
            short += usize::from(received.row().is_some());
            let message = received.message();
            let sender = message.sender().unwrap().name().to_owned();
            let next = next.entry(sender).or_default();
            assert_eq!(message.content_text().unwrap(), next.to_string(), "{moves}");
            *next += 1;
            taken += 1;
            if taken == 2 * MESSAGES {
                break 'life;
            }
        }
        platform.directory.put(name, Location::InTransit);
        carried = mailbox.drain();
        home.bus.detach(name);
        moves += 1;
    }
    assert!(
        moves > 5 && short > 0,
        "{moves} moves, {short} without a secret"
    );
    for sender in senders {
        soon(sender).await.unwrap();
    }
    assert!(failures.try_recv().is_none() && local_failures.try_recv().is_none());
}

/// Sends a message, and its proof if it is marked as signed.
async fn say(
    intruder: &mut super::intruder::Intruder,
    message: &AclMessage,
    is_signed: bool,
    proof: &Signature,
) {
    say_to(intruder, 0, message, is_signed, proof).await;
}

async fn say_to(
    intruder: &mut super::intruder::Intruder,
    target: u32,
    message: &AclMessage,
    is_signed: bool,
    proof: &Signature,
) {
    let mut payload = Vec::new();
    bitefficient::encode(message, &mut payload).unwrap();
    let says = Frame::Message {
        sender: 0,
        target,
        is_signed,
        payload: &payload,
    };
    intruder.send(&says).await.unwrap();
    if is_signed {
        intruder.send(&proof.frame()).await.unwrap();
    }
}
