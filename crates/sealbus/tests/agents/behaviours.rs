//! Agents' work of their own, by the clock of a test bed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sealbus::behaviour::{
    Behaviour, Schedule, Step, at, cyclic, daily, every, first_of, machine, once, parallel,
    sequence,
};
use sealbus::testing::TestBed;
use sealbus::{Agent, AgentResult, Context, HandlerError, Performative, Supervision, Voice};

use super::{Notes, act};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// An agent with one behaviour, which the test sees.
struct Worker {
    schedule: Schedule,
    step: Step,
    begun: Arc<Mutex<Option<Behaviour>>>,
}

impl Agent for Worker {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let behaviour = context.begin("work", self.schedule.clone(), self.step.clone());
        *self.begun.lock() = Some(behaviour);
        Ok(())
    }
}

async fn begin(bed: &TestBed, schedule: Schedule, step: impl Into<Step>) -> Behaviour {
    let begun = Arc::default();
    let worker = Worker {
        schedule,
        step: step.into(),
        begun: Arc::clone(&begun),
    };
    bed.start("worker", worker).await.unwrap();
    bed.clock().settle().await;
    let behaviour = begun.lock().take();
    behaviour.unwrap()
}

/// A step that notes the time and takes this long.
fn noting(notes: &Notes, note: &'static str, time: Duration) -> Step {
    let (notes, began) = (notes.clone(), Arc::new(Mutex::new(None)));
    Step::new(move |voice: Voice| {
        let (notes, began) = (notes.clone(), began.clone());
        async move {
            let now = voice.clock().now();
            let since = now - *began.lock().get_or_insert(now);
            notes.add(format!("{note} {}", since.as_secs_f64()));
            voice.clock().sleep(time).await;
            Ok(())
        }
    })
}

#[tokio::test]
async fn periods_do_not_drift_and_those_that_are_missed_count() {
    let bed = TestBed::open().await.unwrap();
    let (notes, runs) = (Notes::default(), Arc::new(AtomicU64::new(0)));
    let (noted, counted, began) = (notes.clone(), runs.clone(), bed.time());
    let work = move |voice: Voice| {
        let (notes, runs) = (noted.clone(), counted.clone());
        async move {
            let since = voice.clock().time().duration_since(began)?;
            notes.add(since.as_secs_f64().to_string());
            // The third run takes longer than three periods.
            let third = runs.fetch_add(1, Ordering::Relaxed) == 2;
            let time = if third { 3_200 } else { 300 };
            voice.clock().sleep(Duration::from_millis(time)).await;
            Ok(())
        }
    };
    let behaviour = begin(&bed, every(SECOND).after(SECOND / 2), work).await;
    assert_eq!(behaviour.runs(), 0);
    bed.clock().advance(8 * SECOND).await;
    // The run at 5.5 is late, and begins as soon as it can.
    assert_eq!(notes.all(), ["0.5", "1.5", "2.5", "5.7", "6.5", "7.5"]);
    assert_eq!((behaviour.runs(), behaviour.missed()), (6, 2));
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_day_passes_in_no_time() {
    let bed = TestBed::open().await.unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let behaviour = begin(&bed, every(60 * SECOND), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }
    })
    .await;
    bed.clock().advance(DAY).await;
    assert_eq!(runs.load(Ordering::Relaxed), 24 * 60 + 1);
    assert_eq!(behaviour.missed(), 0);
    behaviour.cancel();
    behaviour.wait().await;
    bed.clock().advance(DAY).await;
    assert_eq!(behaviour.runs(), 24 * 60 + 1);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_period_may_be_longer_than_every_life() {
    let schedules = [every(Duration::MAX), every(SECOND).after(Duration::MAX)];
    for (schedule, runs) in schedules.into_iter().zip([1, 0]) {
        let bed = TestBed::open().await.unwrap();
        let behaviour = begin(&bed, schedule, |_| async { Ok(()) }).await;
        bed.clock().advance(DAY).await;
        assert_eq!((behaviour.runs(), behaviour.is_done()), (runs, false));
        bed.close().await.unwrap();
    }
}

#[tokio::test]
async fn points_of_time_and_times_of_day() {
    for (schedule, runs) in [
        (once as fn() -> Schedule, 1),
        (|| daily(6 * 3600 * SECOND), 3),
    ] {
        let bed = TestBed::open().await.unwrap();
        let behaviour = begin(&bed, schedule(), |_| async { Ok(()) }).await;
        bed.clock().advance(3 * DAY).await;
        assert_eq!(behaviour.runs(), runs);
        bed.close().await.unwrap();
    }
    let bed = TestBed::open().await.unwrap();
    let behaviour = begin(&bed, at(bed.time() + DAY), |_| async { Ok(()) }).await;
    bed.clock().advance(DAY - SECOND).await;
    assert_eq!((behaviour.runs(), behaviour.is_done()), (0, false));
    bed.clock().advance(SECOND).await;
    assert_eq!((behaviour.runs(), behaviour.is_done()), (1, true));
    bed.close().await.unwrap();
}

#[tokio::test]
async fn steps_in_sequence_and_side_by_side() {
    let bed = TestBed::open().await.unwrap();
    let notes = Notes::default();
    let two = |one, other| {
        [
            noting(&notes, one, SECOND),
            noting(&notes, other, 2 * SECOND),
        ]
    };
    let noted = notes.clone();
    let end = Step::new(move |voice: Voice| {
        let notes = noted.clone();
        async move {
            notes.add(format!("end of {}", voice.name()));
            Ok(())
        }
    });
    let step = sequence([parallel(two("a", "b")), first_of(two("c", "d")), end]);
    let behaviour = begin(&bed, once(), step).await;
    let began = bed.clock().elapsed();
    bed.clock().run(behaviour.wait()).await;
    // Both steps of the first pair took their time, and only the shorter one of the second.
    assert_eq!(bed.clock().elapsed() - began, 3 * SECOND);
    assert_eq!(notes.all(), ["a 0", "b 0", "c 0", "d 0", "end of worker"]);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_state_machine_goes_through_its_states() {
    #[derive(Clone, Debug)]
    enum Door {
        Shut,
        Open { until: u64 },
        Locked,
    }
    async fn door(voice: Voice, state: Door) -> AgentResult<Option<Door>> {
        Ok(match state {
            Door::Shut => Some(Door::Open { until: 5 }),
            Door::Open { until } => {
                voice.clock().sleep(until as u32 * SECOND).await;
                Some(Door::Locked)
            }
            Door::Locked => None,
        })
    }
    let bed = TestBed::open().await.unwrap();
    let behaviour = begin(&bed, once(), machine(Door::Shut, door)).await;
    assert_eq!(behaviour.state().unwrap(), "Open { until: 5 }");
    bed.clock().advance(5 * SECOND).await;
    assert_eq!(behaviour.state().unwrap(), "Locked");
    assert!(behaviour.is_done());
    bed.close().await.unwrap();
}

#[tokio::test]
async fn an_error_is_a_matter_of_the_agent_and_the_behaviour_goes_on() {
    struct Careless(Notes);
    impl Agent for Careless {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            self.0.add("setup");
            context.begin("fail", every(SECOND).after(SECOND), |_| async {
                Err("a mistake".into())
            });
            context.begin("panic", cyclic(), |voice: Voice| async move {
                voice.clock().sleep(10 * SECOND).await;
                panic!("not foreseen")
            });
            Ok(())
        }

        fn supervise(&mut self, failed: &HandlerError) -> Supervision {
            self.0.add(failed.to_string());
            match failed.error.to_string().as_str() {
                "a mistake" => Supervision::Ignore,
                _ => Supervision::Restart,
            }
        }
    }
    let bed = TestBed::open().await.unwrap();
    let notes = Notes::default();
    bed.start("careless", Careless(notes.clone()))
        .await
        .unwrap();
    bed.clock().advance(2 * SECOND + SECOND / 2).await;
    let mistake = "on the behaviour fail: a mistake";
    assert_eq!(notes.all(), ["setup", mistake, mistake]);
    // The panic at 10 s restarts the agent, whose behaviours begin again: at 11 s the first one fails once.
    bed.clock().advance(9 * SECOND).await;
    let all = notes.all();
    assert_eq!(
        all[all.len() - 3..],
        [
            "on the behaviour panic: panicked: not foreseen",
            "setup",
            mistake
        ]
    );
    bed.close().await.unwrap();
}

#[tokio::test]
async fn behaviours_talk_beside_the_hooks_and_end_with_their_agent() {
    struct Talker;
    impl Agent for Talker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            context.begin(
                "talk",
                every(SECOND).after(SECOND),
                |voice: Voice| async move {
                    let question = act(Performative::QueryRef, "how is it?")
                        .with_receiver(voice.peer("probe")?);
                    let answer = voice.request(question, 100 * SECOND).await?;
                    let thanks = answer
                        .create_reply(Performative::Confirm)
                        .with_content(answer.text()?);
                    voice.send(thanks).await?;
                    Ok(())
                },
            );
            // The hook waits much longer than the behaviour.
            context.clock().clone().sleep(DAY).await;
            Ok(())
        }
    }
    let bed = TestBed::open().await.unwrap();
    let mut probe = bed.probe("probe").await.unwrap();
    bed.start("talker", Talker).await.unwrap();
    for number in ["one", "two"] {
        let question = probe.expect(Performative::QueryRef).await;
        probe
            .reply(&question, Performative::Inform, number)
            .await
            .unwrap();
        probe.expect(Performative::Confirm).text(number).await;
    }
    assert!(bed.kill("talker").await);
    probe.expect_nothing(DAY).await;
    bed.close().await.unwrap();
}
