//! Hooks: the messages that they see, send and receive.

use std::time::Duration;

use sealbus::{
    AclMessage, Agent, AgentEnd, AgentResult, Content, Context, Filter, HandlerError, Message,
    Performative, Provenance, ReceiveError, RequestError, RunError, Supervision, agent, agents,
    run_agents,
};

use super::{LONG, Notes};

const SHORT: Duration = Duration::from_millis(50);

fn message(
    context: &Context,
    performative: Performative,
    to: &str,
    content: impl Into<Content>,
) -> AclMessage {
    AclMessage::new(performative)
        .with_receiver(context.peer(to).unwrap())
        .with_content(content)
}

/// Answers every request with its content, and ends when told to.
struct Echo;

impl Agent for Echo {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        if message.performative == Performative::Request {
            context
                .reply(&message, Performative::Inform, message.text()?)
                .await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn many_agents_each_get_their_own_answer() {
    struct Caller;
    impl Agent for Caller {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            for round in 0..5 {
                let question = format!("{} {round}", context.name());
                let request = message(context, Performative::Request, "echo", question.as_str());
                let answer = context.request(request, LONG).await?;
                assert_eq!(answer.text()?, question);
                assert_eq!(answer.sender_name(), "echo@home");
                assert!(matches!(answer.provenance(), Provenance::SameProcess));
            }
            let done = message(context, Performative::Inform, "counter", "done");
            context.send(done).await?;
            context.stop();
            Ok(())
        }
    }
    struct Counter(usize);
    impl Agent for Counter {
        async fn on_message(&mut self, context: &mut Context, _: Message) -> AgentResult {
            self.0 -= 1;
            if self.0 == 0 {
                context.stop_all();
            }
            Ok(())
        }
    }
    run_agents([
        agents("caller", 200, |_| Caller),
        agent("echo", Echo),
        agent("counter", Counter(200)),
    ])
    .await
    .unwrap();
}

#[tokio::test]
async fn a_request_may_wait_without_end() {
    struct Caller;
    impl Agent for Caller {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let request = message(context, Performative::Request, "echo", "hello");
            let answer = context.request(request, Duration::MAX).await?;
            assert_eq!(answer.text()?, "hello");
            context.stop_all();
            Ok(())
        }
    }
    let agents = [agent("echo", Echo), agent("caller", Caller)];
    run_agents(agents).await.unwrap();
}

#[tokio::test]
async fn a_request_without_answer_says_who_and_why() {
    struct Silent;
    impl Agent for Silent {
        async fn on_message(&mut self, _: &mut Context, _: Message) -> AgentResult {
            Ok(())
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let request = message(context, Performative::Request, "silent", "well?");
            match context.request(request, SHORT).await {
                Err(RequestError::Timeout {
                    agent, receiver, ..
                }) => {
                    assert_eq!(
                        (agent.as_str(), receiver.as_str()),
                        ("asker@home", "silent@home")
                    );
                }
                other => panic!("{other:?}"),
            }
            let request = message(context, Performative::Request, "nobody", "well?");
            match context.request(request, LONG).await {
                Err(RequestError::Undeliverable {
                    agent,
                    receiver,
                    reason,
                }) => {
                    assert_eq!(
                        (agent.as_str(), receiver.as_str()),
                        ("asker@home", "nobody@home")
                    );
                    assert!(reason.contains("no agent of that name"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
            let request = message(context, Performative::Request, "silent", "well?")
                .with_sender(context.peer("silent")?);
            let error = context.request(request, LONG).await.unwrap_err();
            assert!(matches!(error, RequestError::Send { .. }), "{error:?}");
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("silent", Silent), agent("asker", Asker)])
        .await
        .unwrap();
}

#[tokio::test]
async fn messages_that_have_come_are_taken_together_in_order() {
    struct Reader;
    impl Agent for Reader {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            for number in 0..5 {
                let note = message(context, Performative::Inform, "reader", number.to_string());
                context.send(note).await?;
            }
            for expected in [vec!["0", "1", "2"], vec!["3", "4"]] {
                let taken = context.receive_many(3).await?;
                let texts: Result<Vec<_>, _> = taken.iter().map(Message::text).collect();
                assert_eq!(texts?, expected);
            }
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("reader", Reader)]).await.unwrap();
}

#[tokio::test]
async fn filters_take_what_they_want_and_leave_the_rest_in_order() {
    struct Picker(Notes);
    impl Agent for Picker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let go = message(context, Performative::Inform, "writer", "go");
            context.send(go).await?;
            let third = context.receive(Filter::conversation("three")).await?;
            self.0.add(third.text()?);
            let proposal = context.receive(Performative::Propose).await?;
            self.0.add(proposal.text()?);
            let neither = Filter::from(Performative::Refuse) | Filter::conversation("nine");
            let error = context.receive_within(neither, SHORT).await.unwrap_err();
            assert!(
                matches!(&error, ReceiveError::Timeout { agent, .. } if agent == "picker@home"),
                "{error}"
            );
            let writer = context.peer("writer")?;
            let from_writer = Filter::sender(&writer) & !Filter::conversation("one");
            self.0.add(context.receive(from_writer).await?.text()?);
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            self.0.add(message.text()?);
            if message.text()? == "6" {
                context.stop_all();
            }
            Ok(())
        }
    }
    struct Writer;
    impl Agent for Writer {
        async fn on_message(&mut self, context: &mut Context, go: Message) -> AgentResult {
            let conversations = ["one", "two", "three", "four", "five", "six"];
            let messages: Vec<_> = (1..)
                .zip(conversations)
                .map(|(number, conversation)| {
                    let performative = if number == 5 {
                        Performative::Propose
                    } else {
                        Performative::Inform
                    };
                    go.create_reply(performative)
                        .with_conversation_id(conversation)
                        .with_content(number.to_string())
                })
                .collect();
            context.send_many(messages).await?;
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("picker", Picker(notes.clone())),
        agent("writer", Writer),
    ])
    .await
    .unwrap();
    assert_eq!(notes.all(), ["3", "5", "2", "1", "4", "6"]);
}

#[tokio::test]
async fn what_comes_during_a_request_waits_its_turn() {
    struct Asker(Notes);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let request = message(context, Performative::Request, "chatterbox", "and?");
            let answer = context.request(request, LONG).await?;
            self.0.add(answer.text()?);
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            self.0.add(message.text()?);
            if self.0.all().len() == 4 {
                context.stop_all();
            }
            Ok(())
        }
    }
    struct Chatterbox;
    impl Agent for Chatterbox {
        async fn on_message(&mut self, context: &mut Context, request: Message) -> AgentResult {
            for text in ["first", "second", "third"] {
                let chat = message(context, Performative::Inform, "asker", text);
                context.send(chat).await?;
            }
            // An `agree` only announces the answer.
            context
                .reply(&request, Performative::Agree, "I shall answer")
                .await?;
            context
                .reply(&request, Performative::Inform, "answer")
                .await?;
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("asker", Asker(notes.clone())),
        agent("chatterbox", Chatterbox),
    ])
    .await
    .unwrap();
    assert_eq!(notes.all(), ["answer", "first", "second", "third"]);
}

#[tokio::test]
async fn an_agent_that_panics_or_fails_takes_no_other_with_it() {
    struct Panics;
    impl Agent for Panics {
        async fn on_message(&mut self, _: &mut Context, _: Message) -> AgentResult {
            panic!("this was not foreseen");
        }
    }
    struct Fails(Notes);
    impl Agent for Fails {
        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            let _: u32 = message.text()?.parse()?;
            Ok(())
        }

        fn supervise(&mut self, _: &HandlerError) -> Supervision {
            Supervision::End
        }

        async fn teardown(&mut self, _: &mut Context) -> AgentResult {
            self.0.add("torn down");
            Ok(())
        }
    }
    struct Witness;
    impl Agent for Witness {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            for name in ["panics", "fails"] {
                let shock = message(context, Performative::Inform, name, "boo");
                context.send(shock).await?;
            }
            loop {
                // The loop ends when both agents are gone and nobody gets the messages.
                let mut gone = 0;
                for name in ["panics", "fails"] {
                    let question = message(context, Performative::QueryIf, name, "1");
                    let answer = context.request(question, SHORT).await;
                    gone += usize::from(matches!(answer, Err(RequestError::Undeliverable { .. })));
                }
                if gone == 2 {
                    break;
                }
            }
            let request = message(context, Performative::Request, "echo", "still there?");
            assert_eq!(
                context.request(request, LONG).await?.text()?,
                "still there?"
            );
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    let ended = run_agents([
        agent("panics", Panics),
        agent("fails", Fails(notes.clone())),
        agent("echo", Echo),
        agent("witness", Witness),
    ])
    .await;
    let Err(RunError::Agents(failures)) = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!(failures.len(), 2);
    assert!(failures.iter().any(|failure| failure.agent == "panics@home"
        && matches!(&failure.end, AgentEnd::Panicked(text) if text == "this was not foreseen")));
    assert!(failures.iter().any(|failure| failure.agent == "fails@home"
        && matches!(&failure.end, AgentEnd::Failed(error) if error.to_string().contains("invalid digit"))));
    assert_eq!(notes.all(), ["torn down"]);
    let text = ended.unwrap_err().to_string();
    assert!(
        text.contains("panics@home panicked: this was not foreseen"),
        "{text}"
    );
}

#[tokio::test]
async fn agents_leave_in_order_and_can_ask_until_the_end() {
    struct Orderly(Notes);
    impl Agent for Orderly {
        async fn setup(&mut self, _: &mut Context) -> AgentResult {
            self.0.add("setup");
            Ok(())
        }

        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            self.0.add(message.text()?);
            context.stop();
            self.0.add("the hook ends first");
            Ok(())
        }

        async fn teardown(&mut self, context: &mut Context) -> AgentResult {
            self.0.add("teardown");
            let request = message(context, Performative::Request, "echo", "goodbye");
            let answer = context.request(request, LONG).await?;
            self.0.add(answer.text()?);
            context.stop_all();
            Ok(())
        }
    }
    struct Starter;
    impl Agent for Starter {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let go = message(context, Performative::Inform, "orderly", "message");
            let never_read = message(context, Performative::Inform, "orderly", "too late");
            context.send_many([go, never_read]).await?;
            context.stop();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("orderly", Orderly(notes.clone())),
        agent("echo", Echo),
        agent("starter", Starter),
    ])
    .await
    .unwrap();
    assert_eq!(
        notes.all(),
        [
            "setup",
            "message",
            "the hook ends first",
            "teardown",
            "goodbye"
        ]
    );
}

#[tokio::test]
async fn hooks_that_wait_are_woken_to_leave() {
    struct Waiting(Notes);
    impl Agent for Waiting {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let error = context.receive(Filter::any()).await.unwrap_err();
            self.0.add(error.to_string());
            Err(error.into())
        }

        async fn teardown(&mut self, _: &mut Context) -> AgentResult {
            self.0.add("teardown");
            Ok(())
        }
    }
    struct Stopper;
    impl Agent for Stopper {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("waiting", Waiting(notes.clone())),
        agent("stopper", Stopper),
    ])
    .await
    .unwrap();
    assert_eq!(notes.all(), ["waiting@home is being stopped", "teardown"]);
}

#[tokio::test]
async fn what_is_not_understood_is_said_once() {
    struct Plain;
    impl Agent for Plain {}
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let request = message(context, Performative::Cfp, "plain", "?");
            let answer = context.request(request, LONG).await?;
            assert_eq!(answer.performative, Performative::NotUnderstood);
            // Two agents that do not understand each other do not exchange `not-understood` for ever.
            context
                .reply(&answer, Performative::NotUnderstood, "neither do I")
                .await?;
            // An answer to that would come before the next one.
            let request = message(context, Performative::Cfp, "plain", "?");
            context.request(request, LONG).await?;
            assert!(context.try_receive(Filter::any()).is_none());
            assert_eq!(context.handle().conversations().ignored(), 0);
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("plain", Plain), agent("asker", Asker)])
        .await
        .unwrap();
}

#[tokio::test]
async fn agents_start_agents() {
    struct Parent(Notes);
    impl Agent for Parent {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let child = context.spawn("child", Echo).await?;
            assert_eq!(child.name, "child@home");
            let request = message(context, Performative::Request, "child", "mama");
            self.0.add(context.request(request, LONG).await?.text()?);
            assert!(context.spawn("child", Echo).await.is_err());
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([agent("parent", Parent(notes.clone()))])
        .await
        .unwrap();
    assert_eq!(notes.all(), ["mama"]);
}

#[tokio::test]
async fn names_that_are_no_names_are_refused() {
    struct Plain;
    impl Agent for Plain {}
    let error = run_agents([agent("no blanks", Plain)]).await.unwrap_err();
    assert!(error.to_string().contains("no blanks"), "{error}");
    let error = run_agents([agent("twice", Plain), agent("twice", Plain)])
        .await
        .unwrap_err();
    assert!(matches!(error, RunError::Cast(_)), "{error}");
}
