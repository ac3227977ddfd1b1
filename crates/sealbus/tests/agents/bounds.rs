//! Others cannot make an agent hold more than it has set itself as a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealbus::testing::{Probe, TestBed};
use sealbus::tool::Tool;
use sealbus::{Agent, AgentResult, Context, Message, Performative};
use tokio::runtime::Handle;

use super::act;

struct Clerk;

impl Agent for Clerk {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let file = Tool::new("file", |paper: String| async move { Ok(paper) });
        context.offer(file.concurrency(1));
        Ok(())
    }
}

/// Works or bids at once, and counts its messages.
#[derive(Clone, Default)]
struct Bidder(Arc<AtomicU64>);

impl Agent for Bidder {
    async fn on_message(&mut self, context: &mut Context, call: Message) -> AgentResult {
        self.0.fetch_add(1, Ordering::Relaxed);
        let answer = match call.performative {
            Performative::Cfp => Performative::Propose,
            _ => Performative::Inform,
        };
        Ok(context.reply(&call, answer, "7").await?)
    }
}

/// Fills the mailbox of an agent that reads nothing.
fn fill(agent: &Probe) {
    let large = act(Performative::Inform, &"x".repeat(100_000)).with_receiver(agent.aid().clone());
    while agent.try_send(large.clone()).is_ok() {}
}

#[tokio::test]
async fn few_last_words_wait_for_a_peer_that_reads_none() {
    let bed = TestBed::open().await.unwrap();
    bed.start("clerk", Clerk).await.unwrap();
    let mallory = bed.probe("mallory").await.unwrap();
    let mut guest = bed.probe("guest").await.unwrap();
    bed.clock().settle().await;
    fill(&mallory);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    // There is nothing to cancel, but each cancel is answered.
    let cancel = act(Performative::Cancel, "")
        .with_receiver(guest.peer("clerk").unwrap())
        .with_protocol("fipa-request")
        .with_conversation_id("none");
    for _ in 0..1024 {
        mallory.send(cancel.clone()).await.unwrap();
    }
    guest.send(cancel).await.unwrap();
    let answer = guest.expect(Performative::Failure);
    answer.within(Duration::from_secs(1)).await;
    let waiting = tasks().saturating_sub(before);
    assert!((200..300).contains(&waiting), "{waiting} answers wait");
    drop(mallory);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_requester_that_reads_none_gives_its_place_back() {
    let bed = TestBed::open().await.unwrap();
    bed.start("clerk", Clerk).await.unwrap();
    let mallory = bed.probe("mallory").await.unwrap();
    let guest = bed.probe("guest").await.unwrap();
    bed.clock().settle().await;
    fill(&mallory);
    let request = act(Performative::Request, "paper").with_receiver(guest.peer("clerk").unwrap());
    mallory.send(request.clone()).await.unwrap();
    bed.clock().settle().await;
    let asked = guest.request(request, Duration::from_secs(3600));
    let answer = bed.clock().run(asked).await.unwrap();
    assert_eq!(answer.text().unwrap(), "paper");
    assert!(bed.clock().elapsed() < Duration::from_secs(100));
    drop(mallory);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn nobody_works_twice_because_another_has_no_room() {
    let bed = TestBed::open().await.unwrap();
    let anna = Bidder::default();
    bed.start("anna", anna.clone()).await.unwrap();
    let mallory = bed.probe("mallory").await.unwrap();
    let asker = bed.probe("asker").await.unwrap();
    bed.clock().settle().await;
    fill(&mallory);
    let agents = vec![asker.peer("anna").unwrap(), mallory.aid().clone()];
    let work = act(Performative::Request, "work");
    let asked = asker.ask_all(agents, work, Duration::from_secs(3600));
    // The wait for the answers is cancelled.
    let cancelled = bed.clock().run_within(Duration::ZERO, asked).await;
    assert!(cancelled.is_err(), "{cancelled:?}");
    bed.clock().settle().await;
    assert_eq!(anna.0.load(Ordering::Relaxed), 1);
    drop(mallory);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_bidder_without_room_holds_up_no_other_and_no_deadline() {
    let bed = TestBed::open().await.unwrap();
    for name in ["anna", "zoe"] {
        bed.start(name, Bidder::default()).await.unwrap();
    }
    let mallory = bed.probe("mallory").await.unwrap();
    let owner = bed.probe("owner").await.unwrap();
    bed.clock().settle().await;
    fill(&mallory);
    let bidders = vec![
        owner.peer("anna").unwrap(),
        mallory.aid().clone(),
        owner.peer("zoe").unwrap(),
    ];
    let called = owner.contract_net("boxes", bidders, Duration::from_secs(5));
    let net = bed.clock().run_within(Duration::from_secs(6), called).await;
    let mut net = net.unwrap().unwrap();
    assert_eq!(net.proposals().len(), 2);
    assert_eq!(net.silent(), [mallory.aid().clone()]);
    // The call to mallory still waits, and does not hold up the rest.
    let decided = net.reject_rest("no");
    let decided = bed.clock().run_within(Duration::ZERO, decided).await;
    decided.unwrap().unwrap();
    drop((net, mallory));
    bed.close().await.unwrap();
}

#[tokio::test]
async fn an_answer_to_nonsense_waits_for_nobody() {
    let bed = TestBed::open().await.unwrap();
    let mut mallory = bed.probe("mallory").await.unwrap();
    let owner = bed.probe("owner").await.unwrap();
    let (voice, bidder) = (owner.voice(), mallory.aid().clone());
    let called = tokio::spawn(async move {
        let within = Duration::from_secs(5);
        voice.contract_net("boxes", bidder, within).await
    });
    let call = mallory.expect(Performative::Cfp).await;
    fill(&mallory);
    // A contract net does not allow this answer.
    mallory.reply(&call, Performative::Agree, "").await.unwrap();
    let net = bed.clock().run_within(Duration::from_secs(6), called).await;
    assert!(net.unwrap().unwrap().unwrap().proposals().is_empty());
    drop((owner, mallory));
    bed.close().await.unwrap();
}
