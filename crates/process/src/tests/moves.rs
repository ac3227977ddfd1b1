//! Moves of processes that are joined by the mesh.

use super::meshed::{numbered, open, read_proved};
use super::*;
use sealbus_bus::UndeliverableReason;
use sealbus_control::WaitingMessage;
use sealbus_control::post::DeliveredLetter;

/// A process moves while another writes to its agent without pause. Every message arrives once and in order.
#[tokio::test]
async fn a_move_under_traffic_loses_nothing() {
    const MESSAGES: usize = 2000;
    let world = World::new();
    let (writing, _, _tell) = open(&world, &["alice"], HOUR).await;
    let (here, _, tell_here) = open(&world, &["bob"], HOUR).await;
    let alice = writing.agent("alice").await.unwrap();
    let mut bob = here.agent("bob").await.unwrap();

    let writer = writing.clone();
    let writing_on = tokio::spawn(async move {
        for number in 0..MESSAGES {
            alice.send(numbered(&writer, "bob", number)).await.unwrap();
            if number % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        alice
    });
    let mut read = 0;
    while read < MESSAGES / 4 {
        assert_eq!(
            read_proved(&mut bob, "alice@factory").await,
            read.to_string()
        );
        read += 1;
    }
    let frozen = ask_to_freeze(&tell_here).await;
    assert_eq!(bob.wishes().wished().await, Wish::Freeze);
    let handing_over =
        tokio::spawn(async move { bob.hand_over(read.to_string().into_bytes()).await });
    let frozen = frozen.await.unwrap().unwrap();
    world.place("bob", AgentLocation::InTransit).await;
    tell_here
        .send(Command::Stop {
            grace: HOUR,
            reason: "moved".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(handing_over.await.unwrap(), Thawed::Gone);
    here.close().await;

    let (host, _tell) = TestHost::new(&world, &["bob"], HOUR, frozen);
    let there = Process::open(host, None).await.unwrap();
    let mut bob = there.agent("bob").await.unwrap();
    let mut read: usize = String::from_utf8(bob.take_state().unwrap())
        .unwrap()
        .parse()
        .unwrap();
    while read < MESSAGES {
        let received = bob.receive().await.unwrap();
        let message = received.message();
        assert_eq!(message.content_text().unwrap(), read.to_string());
        assert!(matches!(
            received.provenance(),
            Provenance::Carried(_) | Provenance::Proved(_)
        ));
        read += 1;
    }
    let mut alice = writing_on.await.unwrap();
    assert!(
        alice.mailbox().try_recv().is_none(),
        "no failure was reported"
    );
    assert!(bob.mailbox().try_recv().is_none(), "nothing came twice");
}

/// An agent moves while nobody writes to it. An agent that wrote to it before finds it again, although the former
/// process is revoked and gone.
#[tokio::test]
async fn an_agent_that_moved_in_silence_is_found_again() {
    let world = World::new();
    let (writing, _, _tell) = open(&world, &["alice"], HOUR).await;
    let (here, host, tell_here) = open(&world, &["bob"], HOUR).await;
    let mut alice = writing.agent("alice").await.unwrap();
    let mut bob = here.agent("bob").await.unwrap();
    alice.send(numbered(&writing, "bob", 1)).await.unwrap();
    assert_eq!(read_proved(&mut bob, "alice@factory").await, "1");
    // By then the received messages are acknowledged, too.
    bob.send(numbered(&here, "alice", 1)).await.unwrap();
    assert_eq!(read_proved(&mut alice, "bob@factory").await, "1");

    let frozen = ask_to_freeze(&tell_here).await;
    assert_eq!(bob.wishes().wished().await, Wish::Freeze);
    let handing_over = tokio::spawn(async move { bob.hand_over(Vec::new()).await });
    let frozen = frozen.await.unwrap().unwrap();
    world.place("bob", AgentLocation::InTransit).await;
    world.deny_process(&host.membership.process).await;
    tell_here
        .send(Command::Stop {
            grace: HOUR,
            reason: "moved".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(handing_over.await.unwrap(), Thawed::Gone);
    here.close().await;

    let (host, _tell) = TestHost::new(&world, &["bob"], HOUR, frozen);
    let there = Process::open(host, None).await.unwrap();
    let mut bob = there.agent("bob").await.unwrap();
    alice.send(numbered(&writing, "bob", 2)).await.unwrap();
    tokio::select! {
        text = read_proved(&mut bob, "alice@factory") => assert_eq!(text, "2"),
        notice = alice.receive() => panic!("{notice:?}"),
    }
}

/// These messages fail when the agent is packed already.
#[tokio::test]
async fn what_failed_during_a_move_is_told_to_the_agent_in_its_new_place() {
    let world = World::new();
    let (here, node, tell_here) = open(&world, &["bob"], HOUR).await;
    let mut bob = here.agent("bob").await.unwrap();
    // Nobody finds carol.
    world.place("carol", AgentLocation::InTransit).await;
    let held = numbered(&here, "carol", 1).with_reply_with("held".to_owned());
    bob.send(held).await.unwrap();
    let lost = numbered(&here, "dave", 2)
        .with_sender(sealbus_bus::aid_of("bob@factory"))
        .with_reply_with("lost".to_owned());

    let frozen = ask_to_freeze(&tell_here).await;
    assert_eq!(bob.wishes().wished().await, Wish::Freeze);
    let handing_over = tokio::spawn(async move { bob.hand_over(Vec::new()).await });
    let frozen = frozen.await.unwrap().unwrap();
    assert!(frozen[0].mailbox.is_empty());
    let mut bytes = Vec::new();
    sealbus_fipa::bitefficient::encode(&lost, &mut bytes).unwrap();
    let reason = UndeliverableReason::ReceiverGone;
    let bus = here.bus();
    bus.undeliverable("bob@factory", "dave@factory", &bytes, &reason);
    tell_here
        .send(Command::Stop {
            grace: HOUR,
            reason: "moved".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(handing_over.await.unwrap(), Thawed::Gone);

    let (host, tell_there) = TestHost::new(&world, &["bob"], HOUR, frozen);
    let there = Process::open(host, None).await.unwrap();
    let mut bob = there.agent("bob").await.unwrap();
    let notices = std::mem::take(&mut *node.notices.lock());
    let letters = notices.into_iter().zip(1..).map(|(notice, number)| {
        assert_eq!(notice.cover.receiver, "bob");
        DeliveredLetter {
            number,
            hand_over: 1,
            again: false,
            posted: notice.cover.posted,
            expiry: notice.cover.expiry,
            receipt: None,
            waiting: WaitingMessage {
                message: notice.message,
                provenance: notice.cover.provenance,
            },
        }
    });
    let command = Command::Letters {
        agent: "bob".to_owned(),
        letters: letters.collect(),
    };
    tell_there.send(command).await.unwrap();
    for about in ["lost", "held"] {
        let notice = bob.receive().await.unwrap();
        assert!(matches!(notice.provenance(), Provenance::Platform));
        let message = notice.message();
        assert_eq!(message.performative(), Performative::Failure);
        let answered = message.in_reply_to().unwrap();
        assert_eq!(answered.text().unwrap(), about);
    }
    assert!(bob.mailbox().try_recv().is_none());
}

/// An agent in a frozen process, with three unread messages from an agent in another process.
struct Frozen {
    world: Arc<World>,
    writing: Process,
    alice: AgentHandle,
    here: Process,
    bob: tokio::task::JoinHandle<(Thawed, AgentHandle)>,
    agents: Vec<FrozenAgent>,
    tell: mpsc::Sender<Command>,
    _tell: mpsc::Sender<Command>,
}

const UNREAD: usize = 3;

impl Frozen {
    async fn new() -> Self {
        let world = World::new();
        let (writing, _, _tell) = open(&world, &["alice"], HOUR).await;
        let (here, _, tell) = open(&world, &["bob"], HOUR).await;
        let alice = writing.agent("alice").await.unwrap();
        let mut bob = here.agent("bob").await.unwrap();
        for number in 0..UNREAD {
            let message = numbered(&writing, "bob", number).with_reply_with(number.to_string());
            alice.send(message).await.unwrap();
        }
        while bob.mailbox().len() < UNREAD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let answer = ask_to_freeze(&tell).await;
        assert_eq!(bob.wishes().wished().await, Wish::Freeze);
        let bob = tokio::spawn(async move { (bob.hand_over(Vec::new()).await, bob) });
        let agents = answer.await.unwrap().unwrap();
        assert_eq!(agents[0].mailbox.len(), UNREAD);
        Self {
            world,
            writing,
            alice,
            here,
            bob,
            agents,
            tell,
            _tell,
        }
    }

    /// Lets the move fail.
    async fn thaw(&mut self) -> AgentHandle {
        self.tell.send(Command::Thaw).await.unwrap();
        let (thawed, bob) = (&mut self.bob).await.unwrap();
        assert_eq!(thawed, Thawed::GoOn);
        bob
    }

    /// Lets the move succeed: bob goes on in this process.
    async fn moved(&mut self) -> (Process, AgentHandle, mpsc::Sender<Command>) {
        self.world.place("bob", AgentLocation::InTransit).await;
        let agents = std::mem::take(&mut self.agents);
        let (host, tell) = TestHost::new(&self.world, &["bob"], HOUR, agents);
        let there = Process::open(host, None).await.unwrap();
        let bob = there.agent("bob").await.unwrap();
        let stop = Command::Stop {
            grace: HOUR,
            reason: "moved".to_owned(),
        };
        self.tell.send(stop).await.unwrap();
        assert_eq!((&mut self.bob).await.unwrap().0, Thawed::Gone);
        (there, bob, tell)
    }

    /// Checks that alice is told of each of these messages, once.
    async fn told_of(&mut self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let notice = self.alice.receive().await.unwrap();
            let message = notice.message();
            assert_eq!(message.performative(), Performative::Failure);
            let about = message.in_reply_to().unwrap();
            assert_eq!(about.text().unwrap(), number.to_string());
        }
        let more = self.alice.mailbox().try_recv();
        assert!(more.is_none(), "{more:?}");
    }
}

#[tokio::test]
async fn senders_elsewhere_are_told_of_what_an_agent_left_unread_whose_move_failed() {
    let mut frozen = Frozen::new().await;
    let mut bob = frozen.thaw().await;
    assert_eq!(read_proved(&mut bob, "alice@factory").await, "0");
    bob.leave(Parting::Ended);
    frozen.told_of(1..UNREAD).await;
}

/// Nobody knows the outcome of the move, because the node is gone.
#[tokio::test]
async fn senders_elsewhere_are_told_of_what_an_agent_at_rest_left_unread() {
    let mut frozen = Frozen::new().await;
    frozen.world.processes.lock().clear();
    frozen.tell = mpsc::channel(1).0;
    assert_eq!((&mut frozen.bob).await.unwrap().0, Thawed::Gone);
    frozen.told_of(0..UNREAD).await;
}

/// The program ends the process while it waits for the outcome of the move.
#[tokio::test]
async fn senders_are_told_of_what_an_agent_at_rest_left_unread_unless_its_node_has_it() {
    let mut frozen = Frozen::new().await;
    frozen.here.stop("the program ends");
    assert_eq!((&mut frozen.bob).await.unwrap().0, Thawed::Gone);
    frozen.told_of(0..UNREAD).await;

    let mut frozen = Frozen::new().await;
    frozen.world.has_frozen.store(true, Ordering::SeqCst);
    frozen.world.place("bob", AgentLocation::InTransit).await;
    frozen.here.stop("the program ends");
    assert_eq!((&mut frozen.bob).await.unwrap().0, Thawed::Gone);
    frozen.here.close().await;
    // The move goes on with the agents that were handed in.
    let agents = std::mem::take(&mut frozen.agents);
    let (host, _tell) = TestHost::new(&frozen.world, &["bob"], HOUR, agents);
    let there = Process::open(host, None).await.unwrap();
    let mut bob = there.agent("bob").await.unwrap();
    let last = numbered(&frozen.writing, "bob", UNREAD);
    frozen.alice.send(last).await.unwrap();
    for number in 0..=UNREAD {
        let received = bob.receive().await.unwrap();
        let message = received.message();
        assert_eq!(message.content_text().unwrap(), number.to_string());
    }
    frozen.told_of(0..0).await;
}

#[tokio::test]
async fn senders_elsewhere_are_told_of_what_an_agent_that_moved_left_unread() {
    let mut frozen = Frozen::new().await;
    let (_there, mut bob, _tell) = frozen.moved().await;
    let first = bob.receive().await.unwrap();
    assert_eq!(first.message().content_text().unwrap(), "0");
    frozen.here.close().await;
    bob.leave(Parting::Ended);
    frozen.told_of(1..UNREAD).await;
}

/// A node that is started again in the middle of a move knows nothing of the first attempt.
#[tokio::test]
async fn agents_at_rest_are_frozen_anew_when_the_node_asks_again() {
    let mut frozen = Frozen::new().await;
    let again = ask_to_freeze(&frozen.tell).await;
    let (thawed, mut bob) = (&mut frozen.bob).await.unwrap();
    assert_eq!(thawed, Thawed::GoOn);
    assert_eq!(bob.wishes().wished().await, Wish::Freeze);
    frozen.bob = tokio::spawn(async move { (bob.hand_over(b"later".to_vec()).await, bob) });
    frozen.agents = again.await.unwrap().unwrap();
    assert_eq!(frozen.agents[0].state.0, b"later");
    assert_eq!(frozen.agents[0].mailbox.len(), UNREAD);
    frozen.thaw().await;
}

/// A manifest may allow longer messages than the default.
#[tokio::test]
async fn a_long_message_that_was_not_read_moves() {
    let (process, _, _tell) = open(&World::new(), &["bob"], HOUR).await;
    let message = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_bus::aid_of("alice@factory"))
        .with_content("x".repeat(17 << 20));
    let mut bytes = Vec::new();
    sealbus_fipa::bitefficient::encode(&message, &mut bytes).unwrap();
    let waiting = WaitingMessage {
        message: Blob(bytes),
        provenance: WaitingProvenance::Claimed,
    };
    let received = process.shared.unpack(waiting, "bob@factory").unwrap();
    let length = received.message().content_bytes().unwrap().len();
    assert_eq!(length, 17 << 20);
}
