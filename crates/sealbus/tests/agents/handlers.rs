//! Handlers that run beside the hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use sealbus::testing::TestBed;
use sealbus::tool::Tool;
use sealbus::{
    AclMessage, Agent, AgentResult, Context, Filter, HandlerError, LEAVING_PARAMETER, Message,
    Performative, Refuse, RunError, Supervision, Voice, agent, run_agents,
};
use tokio::sync::{Barrier, Notify};

use super::{LONG, Notes, act};

fn request(voice: &Voice, to: &str, content: &str) -> AclMessage {
    act(Performative::Request, content).with_receiver(voice.peer(to).unwrap())
}

#[tokio::test]
async fn handlers_run_side_by_side_within_a_bound() {
    /// Serves three requests at a time: each waits for the two others.
    struct Worker(Notes);
    impl Agent for Worker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let (three, running) = (Arc::new(Barrier::new(3)), Arc::new(AtomicUsize::new(0)));
            context.on(Performative::Request, 3, move |voice, message| {
                let (three, running) = (three.clone(), running.clone());
                async move {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= 3, "{now} at a time");
                    three.wait().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    let done = format!("done {}", message.text()?);
                    Ok(voice.reply(&message, Performative::Inform, done).await?)
                }
            });
            Ok(())
        }

        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            self.0.add(message.text()?);
            Ok(())
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let worker = context.peer("worker")?;
            let asked = (0..9).map(|number| {
                context.request(request(context, "worker", &number.to_string()), LONG)
            });
            let news = act(Performative::Inform, "the hook hears the rest").with_receiver(worker);
            let (answers, told) = tokio::join!(join_all(asked), context.send(news));
            told?;
            for (number, answer) in answers.into_iter().enumerate() {
                assert_eq!(answer?.text()?, format!("done {number}"));
            }
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("worker", Worker(notes.clone())),
        agent("asker", Asker),
    ])
    .await
    .unwrap();
    assert_eq!(notes.all(), ["the hook hears the rest"]);
}

#[tokio::test]
async fn an_error_beside_the_hooks_is_an_answer_and_a_matter_of_the_agent() {
    struct Careless(Notes);
    impl Agent for Careless {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            context.on(Performative::Request, 2, |_, message| async move {
                match message.text()? {
                    "busy" => Err(Refuse::new("too much to do").into()),
                    "panic" => panic!("this was not foreseen"),
                    other => Err(other.into()),
                }
            });
            Ok(())
        }

        fn supervise(&mut self, failed: &HandlerError) -> Supervision {
            self.0.add(failed.to_string());
            match failed.error.to_string().as_str() {
                "end" => Supervision::End,
                _ => Supervision::Ignore,
            }
        }
    }
    struct Asker(Notes);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let failed = "the agent failed at this; its log says why";
            for (text, act, reason) in [
                ("busy", Performative::Refuse, "too much to do"),
                ("panic", Performative::Failure, failed),
                ("end", Performative::Failure, failed),
            ] {
                let asked = request(context, "careless", text);
                let reply = context.request(asked, LONG).await?;
                assert_eq!((&reply.performative, reply.text()?), (&act, reason));
            }
            // The answer comes before the agent learns of the error.
            self.0.has(2).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    let ended = run_agents([
        agent("careless", Careless(notes.clone())),
        agent("asker", Asker(notes.clone())),
    ])
    .await;
    assert!(matches!(ended, Err(RunError::Agents(_))), "{ended:?}");
    assert_eq!(
        notes.all(),
        [
            "on request from asker@home: panicked: this was not foreseen",
            "on request from asker@home: end",
        ]
    );
}

#[tokio::test]
async fn an_error_that_still_waits_when_its_agent_is_to_stop_is_judged() {
    struct Careless {
        notes: Notes,
        fail: Arc<Notify>,
        failed: Arc<Notify>,
    }
    impl Agent for Careless {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let fail = self.fail.clone();
            context.on(Performative::Request, 2, move |_, message| {
                let fail = fail.clone();
                async move {
                    fail.notified().await;
                    Err(message.text()?.into())
                }
            });
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, _: Message) -> AgentResult {
            self.fail.notify_one();
            self.failed.notified().await;
            context.stop();
            Ok(())
        }

        fn supervise(&mut self, failed: &HandlerError) -> Supervision {
            self.notes.add(failed.to_string());
            Supervision::End
        }

        async fn teardown(&mut self, context: &mut Context) -> AgentResult {
            self.notes.add(format!("{} failed", context.failed()));
            Ok(())
        }
    }
    struct Asker(Arc<Notify>);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            context
                .send(request(context, "careless", "a mistake"))
                .await?;
            let careless = context.peer("careless")?;
            let other = act(Performative::Inform, "go on").with_receiver(careless);
            context.send(other).await?;
            context.receive(Performative::Failure).await?;
            self.0.notify_one();
            context.stop();
            Ok(())
        }
    }
    let (notes, failed) = (Notes::default(), Arc::new(Notify::new()));
    let careless = Careless {
        notes: notes.clone(),
        fail: Arc::default(),
        failed: failed.clone(),
    };
    let ended = run_agents([agent("careless", careless), agent("asker", Asker(failed))]).await;
    let Err(RunError::Agents(failures)) = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!(failures.len(), 1);
    let expected = ["on request from asker@home: a mistake", "1 failed"];
    assert_eq!(notes.all(), expected);
}

#[tokio::test]
async fn whoever_waits_for_a_handler_that_is_cut_off_is_told() {
    struct Sleeper(Notes);
    impl Agent for Sleeper {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let notes = self.0.clone();
            context.on(Performative::Request, 2, move |_, message| {
                notes.add(message.sender_name());
                std::future::pending()
            });
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, _: Message) -> AgentResult {
            context.stop();
            Ok(())
        }
    }
    struct Asker(Notes);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let asked = [1, 2].map(|_| context.request(request(context, "sleeper", "?"), LONG));
            let leave = act(Performative::Inform, "leave").with_receiver(context.peer("sleeper")?);
            let stopping = async {
                self.0.has(2).await;
                context.send(leave).await
            };
            let (answers, told) = tokio::join!(join_all(asked), stopping);
            told?;
            for answer in answers {
                let answer = answer?;
                assert_eq!(answer.performative, Performative::Failure);
                assert_eq!(answer.text()?, "it was cut off before it was done");
                // The sleeper left by its own decision, so the platform does not start it again.
                assert!(answer.user_defined_value(LEAVING_PARAMETER).is_none());
            }
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("sleeper", Sleeper(notes.clone())),
        agent("asker", Asker(notes)),
    ])
    .await
    .unwrap();
}

#[tokio::test]
async fn whoever_waits_for_a_handler_that_has_not_begun_is_told() {
    /// Finds in its mailbox a request and the message that tells it to leave.
    struct Sleeper(Arc<Notify>);
    impl Agent for Sleeper {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            context.on(Performative::Request, 2, |_, _| std::future::pending());
            self.0.notified().await;
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, _: Message) -> AgentResult {
            context.stop();
            Ok(())
        }
    }
    struct Asker(Arc<Notify>);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let asked = context.request(request(context, "sleeper", "?"), LONG);
            let leave = act(Performative::Inform, "leave").with_receiver(context.peer("sleeper")?);
            let stopping = async {
                context.send(leave).await?;
                self.0.notify_one();
                AgentResult::Ok(())
            };
            let (answer, told) = tokio::join!(asked, stopping);
            told?;
            let answer = answer?;
            assert_eq!(answer.performative, Performative::Failure);
            assert_eq!(answer.text()?, "it was cut off before it was done");
            context.stop_all();
            Ok(())
        }
    }
    let ready = Arc::new(Notify::new());
    run_agents([
        agent("sleeper", Sleeper(ready.clone())),
        agent("asker", Asker(ready)),
    ])
    .await
    .unwrap();
}

#[tokio::test]
async fn a_cancel_right_behind_its_message_comes_to_the_conversation() {
    /// Sells, and also naps on request, once its hook is done.
    struct Busy {
        hook: Arc<Notify>,
        naps: Arc<AtomicUsize>,
        notes: Notes,
    }
    impl Agent for Busy {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let naps = self.naps.clone();
            let nap = move |_: String| {
                naps.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<AgentResult<String>>()
            };
            context.offer(Tool::new("nap", nap));
            context.on(Performative::Cfp, 2, |voice, call| async move {
                let mut sale = voice.participate(&call)?;
                if sale.next().await?.is_some() {
                    sale.answer_cancel(Performative::Inform, "no sale").await?;
                }
                Ok(())
            });
            Ok(())
        }

        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            self.notes.add(message.performative.to_string());
            self.hook.notified().await;
            Ok(())
        }
    }
    let bed = TestBed::open().await.unwrap();
    let (hook, naps, notes) = (Arc::new(Notify::new()), Arc::default(), Notes::default());
    let busy = Busy {
        hook: hook.clone(),
        naps: Arc::clone(&naps),
        notes: notes.clone(),
    };
    bed.start("busy", busy).await.unwrap();
    let mut asker = bed.probe("asker").await.unwrap();
    let busy = asker.peer("busy").unwrap();
    for (opening, id, content) in [
        (Performative::Request, "one", ""),
        (Performative::Cfp, "two", "no sale"),
    ] {
        let in_it = |performative| {
            act(performative, "nap")
                .with_receiver(busy.clone())
                .with_conversation_id(id)
        };
        let mut cancel = in_it(Performative::Cancel);
        if opening == Performative::Request {
            cancel = cancel.with_protocol("fipa-request");
        }
        let hold = act(Performative::Inform, "hold").with_receiver(busy.clone());
        for message in [hold, in_it(opening), cancel] {
            asker.send(message).await.unwrap();
            bed.clock().settle().await;
        }
        hook.notify_one();
        let stopped = asker.expect(Performative::Inform).await;
        assert_eq!(stopped.text().unwrap_or_default(), content);
        bed.clock().settle().await;
    }
    assert_eq!(naps.load(Ordering::SeqCst), 0);
    assert_eq!(notes.all(), ["inform", "inform"]);
    drop(asker);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn to_open_a_conversation_twice_is_a_mistake_of_the_sender() {
    /// Takes part once it has two calls.
    struct Seller(Notes);
    impl Agent for Seller {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let two = Arc::new(Barrier::new(2));
            context.on(Performative::Cfp, 2, move |voice, call| {
                let two = two.clone();
                async move {
                    two.wait().await;
                    let mut sale = voice.participate(&call)?;
                    sale.answer(Performative::Propose, "7").await?;
                    sale.next().await?;
                    Ok(())
                }
            });
            Ok(())
        }

        fn supervise(&mut self, failed: &HandlerError) -> Supervision {
            self.0.add(failed.to_string());
            Supervision::End
        }
    }
    let (bed, notes) = (TestBed::open().await.unwrap(), Notes::default());
    bed.start("seller", Seller(notes.clone())).await.unwrap();
    let mut buyer = bed.probe("buyer").await.unwrap();
    let seller = buyer.peer("seller").unwrap();
    let in_it = |performative| {
        act(performative, "boxes")
            .with_receiver(seller.clone())
            .with_conversation_id("sale")
    };
    for _ in 0..2 {
        buyer.send(in_it(Performative::Cfp)).await.unwrap();
    }
    let mut heard = Vec::new();
    for _ in 0..2 {
        let answer = buyer.expect(Filter::any()).await;
        heard.push(answer.performative.to_string());
    }
    heard.sort();
    assert_eq!(heard, ["not-understood", "propose"]);
    let rejection = in_it(Performative::RejectProposal);
    buyer.send(rejection).await.unwrap();
    bed.clock().settle().await;
    assert!(notes.all().is_empty(), "{:?}", notes.all());
    drop(buyer);
    bed.close().await.unwrap();
}
