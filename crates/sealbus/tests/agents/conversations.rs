//! Conversations of agents: each gets its own messages.

use std::time::Duration;

use sealbus::{
    AclMessage, Agent, AgentResult, ContentError, Context, Failure, Filter, HandlerError, Late,
    Message, NotUnderstood, Performative, Refuse, RequestError, RunError, Supervision, Undelivered,
    agent, run_agents,
};

use super::{LONG, Notes, run_by_the_clock};

const SHORT: Duration = Duration::from_millis(50);

fn ask(context: &Context, to: &str, what: &str) -> AclMessage {
    AclMessage::new(Performative::Request)
        .with_receiver(context.peer(to).unwrap())
        .with_content(what)
}

/// Answers requests in pairs, the second first, so that answers come in another order than the questions.
struct Backwards(Option<Message>);

impl Agent for Backwards {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        match self.0.take() {
            None => self.0 = Some(message),
            Some(first) => {
                for message in [message, first] {
                    let text = message.text()?;
                    context.reply(&message, Performative::Inform, text).await?;
                }
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn requests_at_once_each_get_their_own_reply() {
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let (one, two) = tokio::join!(
                context.request(ask(context, "backwards", "one"), LONG),
                context.request(ask(context, "backwards", "two"), LONG),
            );
            assert_eq!((one?.text()?, two?.text()?), ("one", "two"));
            // The same holds in a conversation that the agent has named itself.
            let named = |what| ask(context, "backwards", what).with_conversation_id("sale-7");
            let (one, two) = tokio::join!(
                context.request(named("one"), LONG),
                context.request(named("two"), LONG),
            );
            assert_eq!((one?.text()?, two?.text()?), ("one", "two"));
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("backwards", Backwards(None)), agent("asker", Asker)])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_conversation_gets_what_belongs_to_it_and_the_agent_the_rest() {
    struct Seller;
    impl Agent for Seller {
        async fn on_message(&mut self, context: &mut Context, call: Message) -> AgentResult {
            for number in 0..3 {
                context
                    .reply(&call, Performative::Propose, format!("offer {number}"))
                    .await?;
                let aside = AclMessage::new(Performative::Inform)
                    .with_receiver(context.peer("buyer")?)
                    .with_content(format!("aside {number}"));
                context.send(aside).await?;
            }
            Ok(())
        }
    }
    struct Buyer(Notes);
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let call = AclMessage::new(Performative::Cfp).with_receiver(context.peer("seller")?);
            let sale = context.converse(call).await?;
            // While the agent waits for another message, the offers wait in their conversation.
            let aside = context.receive(Performative::Inform).await?;
            self.0.add(aside.text()?);
            for _ in 0..3 {
                self.0.add(sale.receive().await?.text()?);
            }
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            self.0.add(message.text()?);
            if self.0.all().len() == 6 {
                context.stop_all();
            }
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("seller", Seller),
        agent("buyer", Buyer(notes.clone())),
    ])
    .await
    .unwrap();
    let said = [
        "aside 0", "offer 0", "offer 1", "offer 2", "aside 1", "aside 2",
    ];
    assert_eq!(notes.all(), said);
}

#[tokio::test]
async fn a_conversation_goes_on_in_a_task() {
    struct Counter;
    impl Agent for Counter {
        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            let next: u32 = message.text()?.parse::<u32>()? + 1;
            let reply = message.create_reply(Performative::Inform);
            context.send(reply.with_content(next.to_string())).await?;
            Ok(())
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let mut tasks = Vec::new();
            for start in [0, 100, 200] {
                let talk = context
                    .converse(ask(context, "counter", &start.to_string()))
                    .await?;
                tasks.push(tokio::spawn(async move {
                    for _ in 0..20 {
                        let reply = talk.receive().await?;
                        let text = reply.text()?.to_owned();
                        talk.reply(&reply, Performative::Request, text).await?;
                    }
                    let last = talk.receive().await?;
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(last.text()?.to_owned())
                }));
            }
            for (start, task) in [0, 100, 200].into_iter().zip(tasks) {
                assert_eq!(task.await??, (start + 21).to_string());
            }
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("counter", Counter), agent("asker", Asker)])
        .await
        .unwrap();
}

/// Agrees to everything, and notes who cancels.
struct Worker(Notes);

impl Agent for Worker {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        match message.performative {
            Performative::Request => context.reply(&message, Performative::Agree, "soon").await?,
            Performative::Cancel => {
                self.0
                    .add(format!("cancelled by {}", message.sender_name()));
                // These come when nobody waits for them.
                context
                    .reply(&message, Performative::Inform, "stopped")
                    .await?;
                let done = AclMessage::new(Performative::Inform)
                    .with_receiver(context.peer("asker")?)
                    .with_content("all told");
                context.send(done).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[tokio::test]
async fn whoever_agreed_is_told_when_nobody_waits_any_more() {
    struct Asker(usize);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let request = context.request(ask(context, "worker", "by deadline"), SHORT);
            assert!(matches!(request.await, Err(RequestError::Timeout { .. })));
            // Here the wait is cancelled, before its time is over.
            let request = context.request(ask(context, "worker", "by drop"), LONG);
            assert!(context.clock().timeout(SHORT, request).await.is_err());
            let talk = context.converse(ask(context, "worker", "by end")).await?;
            assert_eq!(talk.receive().await?.performative, Performative::Agree);
            drop(talk);
            let talk = context.converse(ask(context, "worker", "in order")).await?;
            assert_eq!(talk.receive().await?.performative, Performative::Agree);
            talk.cancel().await?;
            assert_eq!(talk.receive().await?.text()?, "stopped");
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            assert_eq!(message.text()?, "all told", "{message}");
            self.0 += 1;
            if self.0 == 4 {
                context.stop_all();
            }
            Ok(())
        }
    }
    let notes = Notes::default();
    run_by_the_clock([
        agent("worker", Worker(notes.clone())),
        agent("asker", Asker(0)),
    ])
    .await;
    assert_eq!(notes.all(), ["cancelled by asker@home"; 4]);
}

#[tokio::test]
async fn late_messages_follow_the_rule_of_their_conversation() {
    struct Echo;
    impl Agent for Echo {
        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            for text in ["first", "second"] {
                context.reply(&message, Performative::Inform, text).await?;
            }
            Ok(())
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let talk = context.converse(ask(context, "echo", "ignored")).await?;
            assert_eq!(talk.receive().await?.text()?, "first");
            drop(talk);
            let mut talk = context.converse(ask(context, "echo", "received")).await?;
            talk.set_late(Late::Received);
            assert_eq!(talk.receive().await?.text()?, "first");
            let id = talk.id().to_owned();
            drop(talk);
            let late = context.receive(Filter::any()).await?;
            assert_eq!(late.text()?, "second");
            assert_eq!(late.conversation_id, Some(id.as_str().into()));
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("echo", Echo), agent("asker", Asker)])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_conversation_hears_of_what_was_not_delivered() {
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let talk = context.converse(ask(context, "nobody", "there?")).await?;
            let notice = Undelivered::read(&talk.receive().await?).unwrap();
            assert_eq!(notice.receiver, "nobody@home");
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("asker", Asker)]).await.unwrap();
}

#[tokio::test]
async fn a_handlers_error_is_an_answer() {
    struct Careless;
    impl Agent for Careless {
        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            match message.text()? {
                "busy" => Err(Refuse::new("too much to do").into()),
                "Greek" => Err(NotUnderstood::new("no Greek").into()),
                "paint" => Err(Failure::new("the ladder broke").into()),
                number => {
                    let _: u32 = number.parse()?;
                    Ok(())
                }
            }
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let careless = context.peer("careless")?;
            let mut empty = ask(context, "careless", "");
            empty.content = None;
            let reply = context.request(empty, LONG).await?;
            assert_eq!(reply.performative, Performative::NotUnderstood);
            let missing = ContentError::Missing {
                performative: "request".to_owned(),
                sender: "asker@home".to_owned(),
            };
            assert_eq!(reply.text()?, missing.to_string());
            for (text, act, reason) in [
                ("busy", Performative::Refuse, "too much to do"),
                ("Greek", Performative::NotUnderstood, "no Greek"),
                ("paint", Performative::Failure, "the ladder broke"),
                (
                    "three",
                    Performative::Failure,
                    "the agent failed at this; its log says why",
                ),
            ] {
                let reply = context
                    .request(ask(context, "careless", text), LONG)
                    .await?;
                assert_eq!((&reply.performative, reply.text()?), (&act, reason));
                assert_eq!(reply.sender, Some(careless.clone()));
            }
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("careless", Careless), agent("asker", Asker)])
        .await
        .unwrap();
}

#[tokio::test]
async fn an_agent_says_what_follows_an_error() {
    struct Fails(Notes);
    impl Agent for Fails {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            self.0.add(format!("setup after {}", context.failed()));
            Ok(())
        }

        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            Err(message.text()?.into())
        }

        fn supervise(&mut self, failed: &HandlerError) -> Supervision {
            self.0.add(failed.to_string());
            match failed.error.to_string().as_str() {
                "restart" => Supervision::Restart,
                "end" => Supervision::End,
                _ => Supervision::Ignore,
            }
        }

        async fn teardown(&mut self, _: &mut Context) -> AgentResult {
            self.0.add("teardown");
            Ok(())
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            for text in ["ignore", "restart", "end"] {
                let reply = context.request(ask(context, "fails", text), LONG).await?;
                assert_eq!(reply.performative, Performative::Failure);
            }
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    let ended = run_agents([agent("fails", Fails(notes.clone())), agent("asker", Asker)]).await;
    let Err(RunError::Agents(failures)) = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!(failures[0].to_string(), "fails@home failed: end");
    assert_eq!(
        notes.all(),
        [
            "setup after 0",
            "on request from asker@home: ignore",
            "on request from asker@home: restart",
            "teardown",
            "setup after 2",
            "on request from asker@home: end",
            "teardown",
        ]
    );
}
