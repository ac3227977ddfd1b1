//! Agents in traces of OpenTelemetry, with an SDK that keeps the spans.

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry::trace::{FutureExt, SpanId, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context as Telemetry, Value, global};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use sealbus::channel::ChannelEvent;
use sealbus::tool::Tool;
use sealbus::trace::TraceContext;
use sealbus::{AclMessage, Agent, AgentResult, Context, Message, Performative, Refuse, Voice};
use sealbus::{agent, run};
use tracing::Instrument;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

/// A limit against endless waits.
const LONG: Duration = Duration::from_secs(120);

fn about(performative: Performative, what: &str) -> AclMessage {
    AclMessage::new(performative).with_content(what)
}

/// Asks the shop in traces of its own.
struct Buyer;

impl Agent for Buyer {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        // A message sent outside of any span belongs to no trace.
        let shop = context.peer("shop")?;
        for what in ["nothing", "tea", "gold", "a fall"] {
            let wish = about(Performative::Request, what).with_receiver(shop.clone());
            if what == "nothing" {
                context.request(wish, LONG).await?;
                continue;
            }
            let buying =
                Telemetry::current_with_span(global::tracer("buyer").start(format!("buy {what}")));
            context.request(wish, LONG).with_context(buying).await?;
        }
        let asking = Telemetry::current_with_span(global::tracer("buyer").start("ask a tool"));
        let brewed = async {
            let asking = context.ask(context.peer("kettle")?, &"tea".to_owned())?;
            let mut answer = asking.timeout(LONG).stream::<String>().await?;
            while answer.next().await?.is_some() {}
            AgentResult::Ok(())
        };
        brewed.with_context(asking).await?;
        let telling = Telemetry::current_with_span(global::tracer("buyer").start("tell"));
        let news = context.channel("/news")?;
        news.publish(about(Performative::Inform, "tea"))
            .with_context(telling)
            .await?;
        context.receive_within(Performative::Confirm, LONG).await?;
        let asking = Telemetry::current_with_span(global::tracer("buyer").start("ask all"));
        let mut answers = context
            .channel("/wanted")?
            .request(about(Performative::QueryRef, "tea"), LONG)
            .with_context(asking)
            .await?;
        let answer = answers.next().await.ok_or("no answer")?;
        assert!(TraceContext::of(answer.message()).is_some());
        context.stop_all();
        Ok(())
    }
}

/// Sells what the store has, beside its hooks.
struct Shop;

impl Agent for Shop {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        context.on(Performative::Request, 8, sell);
        Ok(())
    }
}

async fn sell(voice: Voice, wish: Message) -> AgentResult {
    match wish.text()? {
        "gold" => return Err(Refuse::new("there is none").into()),
        "a fall" => return Err("it fell".into()),
        _ => {}
    }
    let asked = about(Performative::Request, wish.text()?).with_receiver(voice.peer("store")?);
    let found = voice.request(asked, LONG).await?;
    Ok(voice
        .reply(&wish, Performative::Inform, found.text()?)
        .await?)
}

/// Fetches things in a hook, and listens to the news.
struct Store;

impl Agent for Store {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let news = context.subscribe("/news")?;
        context.listen(news)?;
        let wanted = context.subscribe("/wanted")?.answering();
        context.listen(wanted).map_err(Into::into)
    }

    async fn on_message(&mut self, context: &mut Context, wish: Message) -> AgentResult {
        let is_traced = TraceContext::of(&wish).is_some();
        assert_eq!(is_traced, wish.text()? != "nothing");
        let look = tracing::info_span!("look on the shelf");
        let answer = context.reply(&wish, Performative::Inform, "a box");
        Ok(answer.instrument(look).await?)
    }

    async fn on_event(&mut self, context: &mut Context, event: ChannelEvent) -> AgentResult {
        Ok(context
            .reply(&event, Performative::Confirm, "heard")
            .await?)
    }

    async fn on_question(&mut self, context: &mut Context, question: ChannelEvent) -> AgentResult {
        let answer = context.answer(&question, Performative::Propose, "12 EUR");
        Ok(answer.await?)
    }
}

/// Offers a tool.
struct Kettle;

impl Agent for Kettle {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        context.offer(Tool::new("brew", async |leaves: String| {
            Ok(format!("hot {leaves}"))
        }));
        Ok(())
    }
}

/// The same text, with each agent's name without its platform.
fn short(name: &str) -> String {
    let words = name.split(' ').map(|it| it.split('@').next().unwrap_or(it));
    words.collect::<Vec<_>>().join(" ")
}

/// The spans of the trace that begins with this name, and the pairs of each span and its parent.
fn trace<'a>(spans: &'a [SpanData], root: &str) -> (Vec<&'a SpanData>, BTreeSet<(String, String)>) {
    let Some(root) = spans.iter().find(|it| it.name == root) else {
        panic!("no span is called {root}");
    };
    let id = root.span_context.trace_id();
    let found: Vec<_> = (spans.iter().filter(|it| it.span_context.trace_id() == id)).collect();
    let above = |span: &SpanData| {
        let parent = found
            .iter()
            .find(|it| it.span_context.span_id() == span.parent_span_id);
        assert!(
            parent.is_some() || span.parent_span_id == SpanId::INVALID,
            "{span:?}"
        );
        parent.map_or(String::new(), |it| short(&it.name))
    };
    let parents = found.iter().map(|it| (short(&it.name), above(it)));
    let parents = parents.collect();
    (found, parents)
}

fn expect(spans: &[SpanData], root: &str, below: &[(&str, &str)]) {
    let (_, found) = trace(spans, root);
    let mut wanted: BTreeSet<_> = (below.iter())
        .map(|(name, above)| ((*name).to_owned(), (*above).to_owned()))
        .collect();
    wanted.insert((root.to_owned(), String::new()));
    assert_eq!(found, wanted);
}

#[test]
fn what_agents_send_and_handle_are_spans_of_one_trace() {
    let kept = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(kept.clone())
        .build();
    global::set_tracer_provider(provider.clone());
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("store"))
        .with_filter(filter_fn(|it| it.target() == module_path!()));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    run([
        agent("buyer", Buyer),
        agent("shop", Shop),
        agent("store", Store),
        agent("kettle", Kettle),
    ])
    .unwrap();
    let spans = kept.get_finished_spans().unwrap();

    expect(
        &spans,
        "buy tea",
        &[
            ("send shop", "buy tea"),
            ("process shop", "send shop"),
            ("send store", "process shop"),
            ("process store", "send store"),
            ("look on the shelf", "process store"),
            ("send shop", "look on the shelf"),
            ("send buyer", "process shop"),
        ],
    );
    let sold = [
        ("send shop", "buy gold"),
        ("process shop", "send shop"),
        ("send buyer", "process shop"),
    ];
    expect(&spans, "buy gold", &sold);
    expect(
        &spans,
        "buy a fall",
        &[("send shop", "buy a fall"), sold[1], sold[2]],
    );
    expect(
        &spans,
        "ask a tool",
        &[
            ("send kettle", "ask a tool"),
            ("process kettle", "send kettle"),
            ("send buyer", "process kettle"),
        ],
    );
    expect(
        &spans,
        "tell",
        &[
            ("publish /news", "tell"),
            ("process /news", "publish /news"),
            ("send buyer", "process /news"),
        ],
    );
    expect(
        &spans,
        "ask all",
        &[
            ("request /wanted", "ask all"),
            ("process /wanted", "request /wanted"),
            ("answer /wanted", "process /wanted"),
        ],
    );

    // The look at the shelf for the wish outside of any span is a trace of its own, because the program wants it so.
    let looks = spans.iter().filter(|it| it.name == "look on the shelf");
    assert_eq!(looks.count(), 2);
    let handled = |root: &str| {
        let (found, _) = trace(&spans, root);
        found
            .into_iter()
            .find(|it| it.name.starts_with("process shop"))
            .unwrap()
            .clone()
    };
    let attribute = |span: &SpanData, name: &str| {
        let found = span.attributes.iter().find(|it| it.key.as_str() == name);
        found.map(|it| it.value.clone())
    };
    let gold = handled("buy gold");
    assert_eq!(gold.status, Status::Unset);
    assert_eq!(
        attribute(&gold, "sealbus.answer"),
        Some(Value::from("refuse"))
    );
    assert_eq!(
        attribute(&gold, "sealbus.provenance"),
        Some(Value::from("same-process"))
    );
    assert_eq!(
        attribute(&gold, "messaging.system"),
        Some(Value::from("sealbus"))
    );
    assert_eq!(handled("buy a fall").status, Status::error("it fell"));
}
