//! Others cannot make an agent hold more than it has set itself as a limit.

use std::time::Duration;

use sealbus::testing::{Probe, TestBed};
use sealbus::tool::Tool;
use sealbus::{Agent, AgentResult, Context, Performative};
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

/// Leaves no room in the mailbox of an agent that reads nothing.
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
    // There is nothing to cancel, and each cancel is answered.
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
