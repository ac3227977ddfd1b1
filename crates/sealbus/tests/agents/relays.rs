//! A relay serves every request to its agent, agrees when it wants to, and says more than a typed tool.

use std::time::Duration;

use sealbus::body::WrittenBody;
use sealbus::protocol::ProtocolError;
use sealbus::testing::{Probe, TestBed};
use sealbus::tool::{Parts, Step, Tool};
use sealbus::{Agent, AgentResult, Context, Failure, Message, Performative, Refuse};

use super::act;

const SECOND: Duration = Duration::from_secs(1);

struct Envoy;

async fn relay(request: Message, parts: Parts<String>) -> AgentResult<Option<WrittenBody>> {
    parts.note("X-for", "somebody else");
    // A refusal is not too late as long as the relay has not agreed.
    tokio::task::yield_now().await;
    match request.text()? {
        "refuse" => return Err(Refuse::new("not there").into()),
        "fail" => {
            parts.begin().await?;
            return Err(Failure::new("it broke there").into());
        }
        _ => {}
    }
    if parts.are_taken() {
        parts.give(&"a part".to_owned()).await?;
    }
    Ok(Some("the end".into()))
}

impl Agent for Envoy {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        context.offer(Tool::relay("envoy", relay));
        assert!(context.services().is_empty());
        Ok(())
    }
}

async fn bed() -> (TestBed, Probe) {
    let bed = TestBed::open().await.unwrap();
    bed.start("envoy", Envoy).await.unwrap();
    bed.clock().settle().await;
    let asker = bed.probe("asker").await.unwrap();
    (bed, asker)
}

async fn reply(asker: &Probe, text: &str, tool: &str) -> Message {
    let envoy = asker.peer("envoy").unwrap();
    let mut request = act(Performative::Request, text).with_receiver(envoy);
    request.ontology = Some(tool.into());
    asker.request(request, 100 * SECOND).await.unwrap()
}

#[tokio::test]
async fn whatever_tool_is_named_the_relay_serves_it() {
    let (bed, asker) = bed().await;
    for (text, act, said) in [
        ("go", Performative::Inform, "the end"),
        ("refuse", Performative::Refuse, "not there"),
        ("fail", Performative::Failure, "it broke there"),
    ] {
        let reply = reply(&asker, text, text).await;
        assert_eq!((&reply.performative, reply.text()), (&act, Ok(said)));
        let note = reply.user_defined_value("X-for").unwrap();
        assert_eq!(note.as_str(), Some("somebody else"));
    }
    bed.close().await.unwrap();
}

#[tokio::test]
async fn parts_come_after_it_has_agreed() {
    let (bed, asker) = bed().await;
    let envoy = asker.peer("envoy").unwrap();
    let ask = async |text: &str| {
        let asking = asker.ask(envoy.clone(), &text.to_owned()).unwrap();
        asking
            .timeout(100 * SECOND)
            .stream::<String>()
            .await
            .unwrap()
    };
    let mut answer = ask("go").await;
    assert!(matches!(answer.step().await, Ok(Some(Step::Agreed))));
    assert!(matches!(answer.step().await, Ok(Some(Step::Part(part))) if part == "a part"));
    assert!(answer.step().await.unwrap().is_none());
    assert_eq!(answer.reply().unwrap().text(), Ok("the end"));
    let refused = ask("refuse").await.step().await;
    let Err(ProtocolError::TurnedDown { reply }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(reply.performative, Performative::Refuse);
    bed.close().await.unwrap();
}
