//! Tools: typed functions of an agent as services, which answer as a whole or in parts.
//!
//! ```
//! use sealbus::body::Json;
//! use sealbus::tool::{Parts, Tool};
//! use sealbus::{Agent, AgentResult, Context, agent, run};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Prompt {
//!     text: String,
//! }
//!
//! async fn write(Json(prompt): Json<Prompt>, parts: Parts<String>) -> AgentResult {
//!     for word in prompt.text.split(' ') {
//!         parts.give(&word.to_owned()).await?;
//!     }
//!     Ok(())
//! }
//!
//! struct Writer;
//!
//! impl Agent for Writer {
//!     async fn setup(&mut self, context: &mut Context) -> AgentResult {
//!         context.offer(Tool::streaming("write", write).about("Writes a text again, word by word."));
//!         context.df().register(context.services()).await?;
//!         Ok(())
//!     }
//! }
//!
//! struct Reader;
//!
//! impl Agent for Reader {
//!     async fn setup(&mut self, context: &mut Context) -> AgentResult {
//!         let prompt = Json(Prompt { text: "once upon a time".into() });
//!         let mut answer = context.ask(context.peer("writer")?, &prompt)?.stream::<String>().await?;
//!         while let Some(word) = answer.next().await? {
//!             println!("{word}");
//!         }
//!         context.stop_all();
//!         Ok(())
//!     }
//! }
//!
//! run([agent("writer", Writer), agent("reader", Reader)])?;
//! # Ok::<(), sealbus::RunError>(())
//! ```
//!
//! On the wire, a call of a tool is a conversation of `fipa-request`. The parts are messages of the same conversation
//! that carry user-defined parameters, so that no reader takes a part for the reply:
//!
//! | message | from | parameter |
//! |---|---|---|
//! | `request` | requester | `X-window: 16`: takes up to 16 partial results ahead. The ontology may name the tool |
//! | `agree` | tool | |
//! | `inform` | tool | `X-partial: 3`: the third partial result |
//! | `inform` | tool | `X-progress: 0.5`: the progress; the content is a text for people |
//! | `inform` | requester | `X-taken: 8`: the number of partial results taken |
//! | `cancel` | requester | nothing more is wanted; the answer is `inform` |
//! | `inform`, `failure`, `refuse` | tool | none of these: the final reply |
//!
//! A requester without `X-window` gets only the final reply, with all parts in a list.

mod answer;
mod requester;
mod serving;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, SchemaGenerator};
use sealbus_fipa::management::ServiceDescription;
use sealbus_fipa::sl::Term;
use sealbus_fipa::{AclMessage, AclMessageRef, Expression, Performative};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::body::{Body, JSON, Json, WrittenBody};
use crate::filter::Filter;
use crate::message::Message;
use crate::supervision::AgentResult;

pub use answer::{Answer, Asking, Step};
pub use requester::Parts;
use requester::Requester;
pub(crate) use serving::Tools;

const PROTOCOL: &str = "fipa-request";
const WINDOW: &str = "X-window";
const PARTIAL: &str = "X-partial";
const PROGRESS: &str = "X-progress";
const TAKEN: &str = "X-taken";

/// The most partial results that a tool gives ahead, even if the requester would take more.
pub const MOST_AHEAD: u64 = 4_096;

/// How long a tool waits for room in the requester's mailbox, and for the requester to take a partial result.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most partial results that a final reply holds, for a requester that takes none.
const MOST_PARTS: usize = 65_536;

/// The default number of requests that a tool serves side by side.
const CONCURRENCY: usize = 100;

/// The progress of a tool; see [`Answer::progress`].
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The part that is done, from 0 to 1.
    pub done: f64,
    /// The present work of the tool, for people.
    pub text: String,
}

/// A body that a tool can take or give. Its type shows others the expected form.
pub trait ToolBody: Body + Send + 'static {
    /// The JSON Schema of such bodies.
    fn schema(generator: &mut SchemaGenerator) -> Value;
}

impl<T: Serialize + DeserializeOwned + JsonSchema + Send + 'static> ToolBody for Json<T> {
    fn schema(generator: &mut SchemaGenerator) -> Value {
        generator.subschema_for::<T>().into()
    }
}

impl ToolBody for String {
    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({"type": "string"})
    }
}

impl ToolBody for Vec<u8> {
    fn schema(_: &mut SchemaGenerator) -> Value {
        json!({"type": "string", "contentEncoding": "base64"})
    }
}

/// The schema of a type, with those of the types that it names.
fn schema<B: ToolBody>() -> String {
    let mut generator = SchemaGenerator::default();
    let mut schema = B::schema(&mut generator);
    let named = generator.take_definitions(true);
    if !named.is_empty()
        && let Value::Object(schema) = &mut schema
    {
        schema.insert("$defs".to_owned(), Value::Object(named));
    }
    schema.to_string()
}

type Work = Pin<Box<dyn Future<Output = AgentResult<Option<WrittenBody>>> + Send>>;
type Serve = dyn Fn(&Message, &Arc<Requester>) -> AgentResult<Work> + Send + Sync;

/// A typed function as a service, once [`Context::offer`](crate::Context::offer) offers it.
#[derive(Clone)]
pub struct Tool {
    name: String,
    about: String,
    input: String,
    output: String,
    streams: bool,
    /// The tool takes every request, and its work decides when it agrees.
    is_relay: bool,
    /// The requests that the tool serves; `None` for all.
    when: Option<Filter>,
    places: Arc<Semaphore>,
    serve: Arc<Serve>,
}

impl Tool {
    /// A tool that answers as a whole. It serves requests whose ontology is `name`.
    ///
    /// The tool sends `agree` at once, unless the function returns [`Refuse`](crate::Refuse) before it first waits. The
    /// answer to any other error is `failure`, and the error goes to [`Agent::supervise`](crate::Agent::supervise).
    /// When the requester leaves, the function is cancelled at its next `.await`.
    pub fn new<T, R, F, W>(name: impl Into<String>, work: F) -> Tool
    where
        T: ToolBody,
        R: ToolBody,
        F: Fn(T) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult<R>> + Send + 'static,
    {
        let serve = move |request: &Message, _: &Arc<Requester>| {
            let work = work(request.body::<T>()?);
            let work: Work = Box::pin(async move { Ok(Some(work.await?.write()?)) });
            Ok(work)
        };
        Tool::of::<T, R>(name.into(), false, serve)
    }

    /// A tool that answers in parts, as they come. Otherwise it is like [`new`](Self::new).
    pub fn streaming<T, C, F, W>(name: impl Into<String>, work: F) -> Tool
    where
        T: ToolBody,
        C: ToolBody,
        F: Fn(T, Parts<C>) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult> + Send + 'static,
    {
        let serve = move |request: &Message, requester: &Arc<Requester>| {
            let requester = requester.clone();
            let work = work(request.body::<T>()?, Parts::new(requester.clone()));
            let work: Work = Box::pin(async move {
                work.await?;
                Ok(requester.kept())
            });
            Ok(work)
        };
        Tool::of::<T, C>(name.into(), true, serve)
    }

    /// A tool for an agent that stands for something outside the platform. It serves every request to its agent as it
    /// comes, whatever tool the request names. It has no entry in the DF: the agent registers the service that it
    /// stands for. It agrees when the work calls [`Parts::begin`] or gives a part, and may refuse until then. The work
    /// returns the final reply, which is all that a requester that takes no parts gets ([`Parts::are_taken`]).
    pub fn relay<C, F, W>(name: impl Into<String>, work: F) -> Tool
    where
        C: Body + Send + 'static,
        F: Fn(Message, Parts<C>) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult<Option<WrittenBody>>> + Send + 'static,
    {
        let serve = move |request: &Message, requester: &Arc<Requester>| {
            let work: Work = Box::pin(work(request.clone(), Parts::new(requester.clone())));
            Ok(work)
        };
        Tool {
            name: name.into(),
            about: String::new(),
            input: String::new(),
            output: String::new(),
            streams: true,
            is_relay: true,
            when: None,
            places: Arc::new(Semaphore::new(CONCURRENCY)),
            serve: Arc::new(serve),
        }
    }

    fn of<T: ToolBody, R: ToolBody>(
        name: String,
        streams: bool,
        serve: impl Fn(&Message, &Arc<Requester>) -> AgentResult<Work> + Send + Sync + 'static,
    ) -> Tool {
        Tool {
            name,
            about: String::new(),
            input: schema::<T>(),
            output: schema::<R>(),
            streams,
            is_relay: false,
            when: None,
            places: Arc::new(Semaphore::new(CONCURRENCY)),
            serve: Arc::new(serve),
        }
    }

    /// Describes the tool to others in one sentence.
    #[must_use]
    pub fn about(mut self, text: impl Into<String>) -> Tool {
        self.about = text.into();
        self
    }

    /// Serves this many requests side by side, and at least one. The default is 100. Further requests wait in the
    /// mailbox.
    #[must_use]
    pub fn concurrency(mut self, most: usize) -> Tool {
        self.places = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        self
    }

    /// Serves only the requests that `takes` describes. The others go to handlers, or to
    /// [`on_message`](crate::Agent::on_message).
    #[must_use]
    pub fn when(mut self, takes: impl Into<Filter>) -> Tool {
        self.when = Some(takes.into());
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its entry in the DF. The properties `input` and `output` have the JSON Schemas of the tool's input and output.
    pub fn service(&self) -> ServiceDescription {
        let mut service = ServiceDescription::new(self.name.as_str(), self.name.as_str());
        service.protocols.push(PROTOCOL.to_owned());
        service.ontologies.push(self.name.clone());
        service.languages.push(JSON.to_owned());
        let streams = if self.streams { "yes" } else { "no" };
        for (name, value) in [
            ("input", self.input.as_str()),
            ("output", &self.output),
            ("description", &self.about),
            ("streams", streams),
        ] {
            if !value.is_empty() {
                service = service.with_property(name, Term::Text(value.to_owned().into()));
            }
        }
        service
    }

    /// Whether a request is for this tool. A request to an agent with a single tool need not name the tool.
    fn is_asked(&self, request: &AclMessageRef<'_>, is_only: bool) -> bool {
        request.performative() == Performative::Request
            && self.when.as_ref().is_none_or(|it| it.takes(request))
            && match request.ontology() {
                _ if self.is_relay => true,
                Some(ontology) => ontology.text().is_some_and(|it| it == self.name),
                None => is_only,
            }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

/// A parameter that is a number. Some encodings write it as a text.
fn count(message: &AclMessage, name: &str) -> Option<u64> {
    match message.user_defined_value(name)? {
        Expression::Number(number) => number.as_i64()?.try_into().ok(),
        value => {
            let text = value.as_str()?;
            let is_number = text.len() < 19 && text.bytes().all(|it| it.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        }
    }
}

/// The number of partial results that the requester takes between two reports.
fn batch(window: u64) -> u64 {
    window.div_ceil(2)
}
