//! Tools answer in parts: as the parts come, only as far ahead as agreed, and only as long as somebody wants them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use sealbus::body::{Json, WithBody};
use sealbus::directory::ServiceDescription;
use sealbus::protocol::ProtocolError;
use sealbus::testing::{Probe, TestBed};
use sealbus::tool::{Parts, Tool};
use sealbus::{
    Agent, AgentResult, Context, Filter, HandlerError, Message, Performative, Refuse, Supervision,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Notes, act};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Prompt {
    text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Chunk {
    word: String,
}

/// An agent with two tools: one writes words, and one adds.
#[derive(Clone, Default)]
struct Writer {
    given: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
    gate: Arc<Notify>,
    notes: Notes,
}

/// Counts the ends of works, however they end.
struct Ended(Arc<AtomicU64>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Writer {
    async fn write(self, prompt: Prompt, parts: Parts<Json<Chunk>>) -> AgentResult {
        let _ended = Ended(self.ended.clone());
        if prompt.text == "nonsense" {
            return Err(Refuse::new("no nonsense").into());
        }
        let words: Vec<&str> = prompt.text.split(' ').collect();
        for (number, word) in words.iter().enumerate() {
            match *word {
                "wait" => self.gate.notified().await,
                "break" => return Err("the pen is broken".into()),
                "rest" => {
                    tokio::task::yield_now().await;
                    return Err(Refuse::new("too late to refuse").into());
                }
                _ => {}
            }
            parts
                .progress((number + 1) as f64 / words.len() as f64, *word)
                .await?;
            self.given.fetch_add(1, Ordering::Relaxed);
            let word = (*word).to_owned();
            parts.give(&Json(Chunk { word })).await?;
        }
        Ok(())
    }
}

async fn add(Json(numbers): Json<Vec<i64>>) -> AgentResult<Json<i64>> {
    if numbers.is_empty() {
        return Err(Refuse::new("nothing to add").into());
    }
    tokio::task::yield_now().await;
    Ok(Json(numbers.iter().sum()))
}

impl Agent for Writer {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let writer = self.clone();
        let write = move |Json(prompt): Json<Prompt>, parts| writer.clone().write(prompt, parts);
        let write = Tool::streaming("write", write).about("Writes the words of a text.");
        context.offer(write.concurrency(200));
        context.offer(Tool::new("add", add));
        context.df().register(context.services()).await?;
        Ok(())
    }

    async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
        self.notes.add(format!("stray {message}"));
        Ok(())
    }

    fn supervise(&mut self, failed: &HandlerError) -> Supervision {
        self.notes.add(failed.to_string());
        Supervision::Ignore
    }
}

async fn bed() -> (TestBed, Writer, Probe) {
    let bed = TestBed::open().await.unwrap();
    let writer = Writer::default();
    bed.start("writer", writer.clone()).await.unwrap();
    bed.clock().settle().await;
    let asker = bed.probe("asker").await.unwrap();
    (bed, writer, asker)
}

fn prompt(text: &str) -> Json<Prompt> {
    Json(Prompt {
        text: text.to_owned(),
    })
}

async fn ask(asker: &Probe, text: &str, window: u64) -> sealbus::tool::Answer<Json<Chunk>> {
    let asking = asker
        .ask(asker.peer("writer").unwrap(), &prompt(text))
        .unwrap();
    let asking = asking.tool("write").window(window).timeout(100 * SECOND);
    asking.stream().await.unwrap()
}

#[tokio::test]
async fn parts_come_with_progress_and_a_final_reply() {
    let (bed, _, asker) = bed().await;
    let mut answer = ask(&asker, "once upon a time", 16).await;
    let mut words = Vec::new();
    while let Some(Json(chunk)) = answer.next().await.unwrap() {
        words.push(chunk.word);
        let progress = answer.progress().unwrap();
        assert_eq!(progress.done, words.len() as f64 / 4.0);
        assert_eq!(progress.text, *words.last().unwrap());
    }
    assert_eq!(words, ["once", "upon", "a", "time"]);
    assert!(answer.reply().unwrap().content.is_none());
    drop(answer);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_tool_gets_no_further_ahead_than_its_parts_are_taken() {
    let (bed, writer, asker) = bed().await;
    let text = vec!["word"; 40].join(" ");
    let mut answer = ask(&asker, &text, 4).await;
    bed.clock().settle().await;
    // Four parts are on their way, and the fifth waits.
    assert_eq!(writer.given.load(Ordering::Relaxed), 5);
    for taken in 1..=40 {
        assert!(answer.next().await.unwrap().is_some());
        bed.clock().settle().await;
        assert!(writer.given.load(Ordering::Relaxed) <= taken + 5);
    }
    assert!(answer.next().await.unwrap().is_none());
    drop(answer);
    // The tool gives up a requester that takes nothing for a minute.
    let mut answer = ask(&asker, &text, 1).await;
    bed.clock().advance(59 * SECOND).await;
    assert_eq!(writer.ended.load(Ordering::Relaxed), 1);
    bed.clock().advance(2 * SECOND).await;
    assert_eq!(writer.ended.load(Ordering::Relaxed), 2);
    assert!(answer.next().await.unwrap().is_some());
    let silent = bed.clock().run(answer.next()).await.unwrap_err();
    assert!(matches!(silent, ProtocolError::Silent(_)), "{silent}");
    drop(answer);
    bed.clock().settle().await;
    assert!(writer.notes.all().is_empty(), "{:?}", writer.notes.all());
    bed.close().await.unwrap();
}

#[tokio::test]
async fn whoever_leaves_ends_the_work() {
    let (bed, writer, mut asker) = bed().await;
    let mut answer = ask(&asker, "one wait two", 16).await;
    assert!(answer.next().await.unwrap().is_some());
    drop(answer);
    bed.clock().settle().await;
    assert_eq!(writer.ended.load(Ordering::Relaxed), 1);
    // A requester that is gone also ends the work, because its parts cannot be delivered.
    let other = bed.probe("other").await.unwrap();
    let answer = ask(&other, "one wait two", 16).await;
    bed.clock().settle().await;
    std::mem::forget(answer);
    drop(other);
    writer.gate.notify_waiters();
    for _ in 0..10_000 {
        bed.clock().settle().await;
        if writer.ended.load(Ordering::Relaxed) == 2 {
            break;
        }
    }
    assert_eq!(writer.ended.load(Ordering::Relaxed), 2);
    asker.expect_nothing(100 * SECOND).await;
    assert!(writer.notes.all().is_empty(), "{:?}", writer.notes.all());
    bed.close().await.unwrap();
}

#[tokio::test]
async fn errors_are_answers() {
    let (bed, writer, asker) = bed().await;
    for (text, act, reason) in [
        ("nonsense", Performative::Refuse, "no nonsense"),
        ("one break", Performative::Failure, "its log says why"),
        ("one rest", Performative::Failure, "too late to refuse"),
    ] {
        let mut answer = ask(&asker, text, 16).await;
        let error = loop {
            match answer.next().await {
                Ok(part) => assert_eq!(part.unwrap().0.word, "one"),
                Err(error) => break error,
            }
        };
        let ProtocolError::TurnedDown { reply } = error else {
            panic!("{error}");
        };
        assert_eq!(reply.performative, act);
        assert!(reply.text().unwrap().contains(reason), "{reply:?}");
    }
    let peer = asker.peer("writer").unwrap();
    let request = act(Performative::Request, "").with_body(&Json(7)).unwrap();
    let mut request = request.with_receiver(peer);
    request.ontology = Some("write".into());
    let answer = asker.request(request, 100 * SECOND).await.unwrap();
    assert_eq!(answer.performative, Performative::NotUnderstood);
    bed.clock().settle().await;
    // The agent must deal only with the broken tool.
    assert_eq!(
        writer.notes.all(),
        ["on request from asker@home for the tool write: the pen is broken"]
    );
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_plain_request_gets_one_final_reply() {
    let (bed, _, asker) = bed().await;
    let peer = asker.peer("writer").unwrap();
    let message = |ontology: &str, message: sealbus::AclMessage| {
        let mut message = message.with_receiver(peer.clone());
        message.ontology = Some(ontology.into());
        message
    };
    let request = act(Performative::Request, "")
        .with_body(&prompt("a b"))
        .unwrap();
    let answer = asker
        .request(message("write", request), 100 * SECOND)
        .await
        .unwrap();
    let Json(chunks) = answer.body::<Json<Vec<Chunk>>>().unwrap();
    assert_eq!(
        chunks.iter().map(|it| it.word.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    let request = act(Performative::Request, "")
        .with_body(&Json([1, 2, 3]))
        .unwrap();
    let answer = asker
        .request(message("add", request), 100 * SECOND)
        .await
        .unwrap();
    assert_eq!(answer.body::<Json<i64>>().unwrap(), Json(6));
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_hundred_streams_at_once() {
    let (bed, writer, asker) = bed().await;
    let mut answers = Vec::new();
    for number in 0..100 {
        answers.push(ask(&asker, &format!("{number} wait last"), 2).await);
    }
    for (number, answer) in answers.iter_mut().enumerate() {
        let Json(first) = answer.next().await.unwrap().unwrap();
        assert_eq!(first.word, number.to_string());
    }
    writer.gate.notify_waiters();
    for answer in &mut answers {
        assert!(answer.next().await.unwrap().is_some());
        assert_eq!(answer.next().await.unwrap().unwrap().0.word, "last");
        assert!(answer.next().await.unwrap().is_none());
    }
    drop(answers);
    bed.close().await.unwrap();
}

/// Naps, at most twice at the same time.
struct Slow(Arc<AtomicU64>);

impl Agent for Slow {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let (clock, begun) = (context.clock().clone(), self.0.clone());
        let nap = move |_: String| {
            let (clock, begun) = (clock.clone(), begun.clone());
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                clock.sleep(SECOND).await;
                Ok("done".to_owned())
            }
        };
        context.offer(Tool::new("nap", nap).concurrency(2));
        Ok(())
    }

    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        context
            .reply(&message, Performative::Confirm, "awake")
            .await?;
        Ok(())
    }
}

#[tokio::test]
async fn further_requests_wait_while_a_tool_has_no_room() {
    let bed = TestBed::open().await.unwrap();
    let begun = Arc::new(AtomicU64::new(0));
    bed.start("slow", Slow(begun.clone())).await.unwrap();
    let mut asker = bed.probe("asker").await.unwrap();
    let slow = asker.peer("slow").unwrap();
    for _ in 0..5 {
        let request = act(Performative::Request, "nap").with_receiver(slow.clone());
        asker.send(request).await.unwrap();
    }
    let question = act(Performative::QueryIf, "awake?").with_receiver(slow);
    asker.send(question).await.unwrap();
    // Other messages do not wait for the naps.
    let mut acts = Vec::new();
    for _ in 0..3 {
        let message = asker.expect(Filter::any()).within(Duration::ZERO).await;
        acts.push(message.performative.to_string());
    }
    acts.sort();
    assert_eq!(acts, ["agree", "agree", "confirm"]);
    for (time, begun_then) in [(0, 2), (1, 4), (1, 5)] {
        bed.clock().advance(time * SECOND).await;
        assert_eq!(begun.load(Ordering::Relaxed), begun_then);
    }
    bed.close().await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_cancelled_while_it_waits_is_not_served() {
    let bed = TestBed::open().await.unwrap();
    let begun = Arc::new(AtomicU64::new(0));
    bed.start("slow", Slow(begun.clone())).await.unwrap();
    let mut asker = bed.probe("asker").await.unwrap();
    let mut stranger = bed.probe("stranger").await.unwrap();
    let slow = asker.peer("slow").unwrap();
    for name in ["one", "two", "three", "four"] {
        let request = act(Performative::Request, "nap").with_receiver(slow.clone());
        asker
            .send(request.with_conversation_id(name))
            .await
            .unwrap();
    }
    bed.clock().settle().await;
    let cancel = act(Performative::Cancel, "")
        .with_receiver(slow)
        .with_protocol("fipa-request")
        .with_conversation_id("three");
    // An agent cannot cancel the request of another.
    stranger.send(cancel.clone()).await.unwrap();
    let failure = stranger.expect(Filter::any()).within(SECOND / 2).await;
    assert_eq!(failure.performative, Performative::Failure);
    asker.send(cancel).await.unwrap();
    let mut acts = Vec::new();
    for _ in 0..3 {
        let message = asker.expect(Filter::any()).within(Duration::ZERO).await;
        let id = message
            .conversation_id
            .as_ref()
            .and_then(|it| it.as_str().map(str::to_owned));
        acts.push((message.performative.to_string(), id.unwrap()));
    }
    acts.sort();
    let expected = [("agree", "one"), ("agree", "two"), ("inform", "three")];
    assert_eq!(
        acts,
        expected.map(|(act, id)| (act.to_owned(), id.to_owned()))
    );
    bed.clock().advance(10 * SECOND).await;
    assert_eq!(begun.load(Ordering::Relaxed), 3);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn the_directory_has_the_schema_of_what_a_tool_takes_and_gives() {
    let (bed, _, asker) = bed().await;
    let service = ServiceDescription::of_type("write");
    let found = bed
        .clock()
        .run(asker.df().search(service.clone()))
        .await
        .unwrap();
    let entry = found[0]
        .services
        .iter()
        .find(|it| it.name.as_deref() == Some("write"))
        .unwrap();
    let property = |name: &str| {
        let property = entry.properties.iter().find(|it| it.name == name).unwrap();
        match property.value.as_ref().unwrap() {
            sealbus::acl::sl::Term::Text(text) => text.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let input: serde_json::Value = serde_json::from_str(&property("input")).unwrap();
    assert_eq!(
        input,
        serde_json::json!({
            "$ref": "#/$defs/Prompt",
            "$defs": {"Prompt": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
        })
    );
    assert_eq!(property("description"), "Writes the words of a text.");
    assert_eq!(property("streams"), "yes");
    assert_eq!(entry.languages, ["application/json"]);

    // A service can stand in place of the agent's name.
    let asking = asker
        .ask(sealbus::directory::Template::from(service), &prompt("a"))
        .unwrap();
    let answer = bed
        .clock()
        .run(asking.tool("write").stream::<Json<Chunk>>())
        .await;
    assert!(answer.unwrap().next().await.unwrap().is_some());
    bed.close().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_leaves_tells_those_who_asked() {
    let (bed, _, mut asker) = bed().await;
    let mut answer = ask(&asker, "one wait", 16).await;
    assert!(answer.next().await.unwrap().is_some());
    let stopping = tokio::spawn(async move { bed.close().await });
    let error = answer.next().await.unwrap_err();
    // The platform ends with its agents, so the reader may be told first.
    assert!(
        matches!(
            error,
            ProtocolError::TurnedDown { .. } | ProtocolError::Receive(_)
        ),
        "{error}"
    );
    drop(answer);
    let _ = &mut asker;
    stopping.await.unwrap().unwrap();
}
