//! The test kit.

use std::time::Duration;

use sealbus::body::{Json, WithBody};
use sealbus::testing::{Fault, TestBed};
use sealbus::{Agent, AgentResult, Context, Filter, Message, Performative, RequestError};

use super::{Notes, act};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Brings an order after a while, and says when it leaves.
struct Waiter {
    time: Duration,
    notes: Notes,
}

impl Waiter {
    fn who_needs(time: Duration) -> Waiter {
        let notes = Notes::default();
        Waiter { time, notes }
    }
}

impl Agent for Waiter {
    async fn on_message(&mut self, context: &mut Context, order: Message) -> AgentResult {
        context.clock().sleep(self.time).await;
        let brought = format!("your {}", order.text()?);
        context.reply(&order, Performative::Inform, brought).await?;
        Ok(())
    }

    async fn teardown(&mut self, _: &mut Context) -> AgentResult {
        self.notes.add("torn down");
        Ok(())
    }
}

fn order(guest: &sealbus::testing::Probe, what: &str) -> sealbus::AclMessage {
    act(Performative::Request, what).with_receiver(guest.peer("waiter").unwrap())
}

#[tokio::test]
async fn time_stands_still_until_the_test_moves_it() {
    let bed = TestBed::open().await.unwrap();
    let began = bed.time();
    bed.start("waiter", Waiter::who_needs(HOUR)).await.unwrap();
    let mut guest = bed.probe("guest").await.unwrap();
    guest.send(order(&guest, "tea")).await.unwrap();
    guest.expect_nothing(HOUR - SECOND).await;
    guest
        .expect(Performative::Inform)
        .text("your tea")
        .within(SECOND)
        .await;
    assert_eq!(bed.clock().elapsed(), HOUR);
    assert_eq!(bed.time().duration_since(began).unwrap(), HOUR);

    // A time-out goes by the same clock. The waiter does not learn of it.
    let asked = guest.request(order(&guest, "coffee"), HOUR / 2);
    let error = bed.clock().run(asked).await.unwrap_err();
    assert!(matches!(error, RequestError::Timeout { .. }), "{error}");
    assert_eq!(bed.clock().elapsed(), HOUR + HOUR / 2);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_probe_checks_the_act_and_the_body() {
    let bed = TestBed::open().await.unwrap();
    let mut ear = bed.probe("ear").await.unwrap();
    let mouth = bed.probe("mouth").await.unwrap();
    let message = act(Performative::Inform, "").with_body(&Json(7)).unwrap();
    let message = message.with_receiver(ear.aid().clone());
    mouth.send(message.clone()).await.unwrap();
    let from_mouth = Filter::from(Performative::Inform) & Filter::sender(mouth.aid());
    ear.expect(from_mouth).body(Json(7)).await;
    mouth.send(message).await.unwrap();
    let wrong = tokio::spawn(async move {
        ear.expect(Performative::Inform).body(Json(8)).await;
    });
    let panic = wrong.await.unwrap_err().into_panic();
    let text = panic.downcast_ref::<String>().unwrap();
    assert_eq!(
        text,
        "ear expected Json(8), not Json(7), and got inform from mouth@home: 7"
    );
    bed.close().await.unwrap();
}

#[tokio::test]
async fn messages_are_lost_and_delayed_on_request() {
    let bed = TestBed::open().await.unwrap();
    bed.start("waiter", Waiter::who_needs(Duration::ZERO))
        .await
        .unwrap();
    let mut guest = bed.probe("guest").await.unwrap();
    let lost = bed.faults().add(Fault::drop().from("waiter").times(1));
    let late = Fault::delay(10 * SECOND)
        .to("waiter")
        .performing(Performative::Request);
    let late = bed.faults().add(late);
    for what in ["tea", "coffee"] {
        guest.send(order(&guest, what)).await.unwrap();
    }
    guest.expect_nothing(9 * SECOND).await;
    guest.expect(Performative::Inform).text("your coffee").await;
    assert_eq!((lost.count(), late.count()), (1, 2));
    late.stop();
    guest.send(order(&guest, "milk")).await.unwrap();
    guest
        .expect(Performative::Inform)
        .text("your milk")
        .within(Duration::ZERO)
        .await;
    assert_eq!(late.count(), 2);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_delayed_message_waits_for_room() {
    let bed = TestBed::open().await.unwrap();
    let mut ear = bed.probe("ear").await.unwrap();
    let mouth = bed.probe("mouth").await.unwrap();
    let late = act(Performative::Request, "late").with_receiver(ear.aid().clone());
    let large = act(Performative::Inform, &"x".repeat(100_000)).with_receiver(ear.aid().clone());
    let fault = Fault::delay(SECOND).performing(Performative::Request);
    let fault = bed.faults().add(fault);
    mouth.send(late).await.unwrap();
    let mut sent = 0;
    while mouth.try_send(large.clone()).is_ok() {
        sent += 1;
    }
    bed.clock().advance(2 * SECOND).await;
    for _ in 0..sent {
        ear.expect(Performative::Inform).await;
    }
    ear.expect(Performative::Request).text("late").await;
    assert_eq!(fault.count(), 1);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    async fn survivors(seed: u64) -> Vec<String> {
        let bed = TestBed::with_seed(seed).await.unwrap();
        let fault = Fault::drop().from("mouth").with_probability(0.5);
        let fault = bed.faults().add(fault);
        let mut ear = bed.probe("ear").await.unwrap();
        let mouth = bed.probe("mouth").await.unwrap();
        for number in 0..64 {
            let message = act(Performative::Inform, &number.to_string());
            mouth
                .send(message.with_receiver(ear.aid().clone()))
                .await
                .unwrap();
        }
        let mut heard = Vec::new();
        for _ in fault.count()..64 {
            let message = ear.expect(Filter::any()).await;
            heard.push(message.text().unwrap().to_owned());
        }
        bed.close().await.unwrap();
        heard
    }
    let one = survivors(1).await;
    assert!((10..54).contains(&one.len()), "{one:?}");
    assert_eq!(one, survivors(1).await);
    assert_ne!(one, survivors(2).await);
}

#[tokio::test]
async fn a_killed_agent_says_nothing_more_and_may_come_again() {
    let bed = TestBed::open().await.unwrap();
    let waiter = Waiter::who_needs(SECOND);
    let notes = waiter.notes.clone();
    bed.start("waiter", waiter).await.unwrap();
    let mut guest = bed.probe("guest").await.unwrap();
    guest.send(order(&guest, "tea")).await.unwrap();
    bed.clock().advance(SECOND / 2).await;
    assert!(bed.kill("waiter").await);
    assert!(!bed.kill("waiter").await);
    guest.expect_nothing(HOUR).await;
    assert!(notes.all().is_empty());
    bed.start("waiter", Waiter::who_needs(SECOND))
        .await
        .unwrap();
    guest.send(order(&guest, "coffee")).await.unwrap();
    guest.expect(Performative::Inform).text("your coffee").await;
    bed.close().await.unwrap();
}

#[tokio::test]
async fn agents_ask_the_directory_while_the_time_stands_still() {
    struct Seeker;
    impl Agent for Seeker {
        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            let found = context.ams().search(Default::default()).await?;
            let found = found.len().to_string();
            context.reply(&message, Performative::Inform, found).await?;
            Ok(())
        }
    }
    let bed = TestBed::open().await.unwrap();
    bed.start("waiter", Seeker).await.unwrap();
    let mut guest = bed.probe("guest").await.unwrap();
    let began = bed.clock().elapsed();
    guest.send(order(&guest, "how many?")).await.unwrap();
    let answer = guest.expect(Performative::Inform).await;
    assert!(answer.text().unwrap().parse::<u32>().unwrap() >= 2);
    assert_eq!(bed.clock().elapsed(), began);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_fails_is_reported_at_the_end() {
    struct Fails;
    impl Agent for Fails {
        async fn setup(&mut self, _: &mut Context) -> AgentResult {
            Err("no".into())
        }
    }
    let bed = TestBed::open().await.unwrap();
    bed.start("fails", Fails).await.unwrap();
    let error = bed.close().await.unwrap_err();
    assert_eq!(error.to_string(), "fails failed: no");
}
