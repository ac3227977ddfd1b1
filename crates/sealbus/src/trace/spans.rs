//! Spans of sending and handling, made with the crate `opentelemetry`. Like the spans of Python's agents, they follow
//! its conventions for messaging.

use std::error::Error;
use std::sync::Arc;

use futures_util::future::Either;
use opentelemetry::trace::{
    FutureExt, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, Tracer,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, global};
use sealbus_bus::Provenance;
use sealbus_fipa::{AclMessage, Aid, Performative};

use super::{TraceContext, carried};
use crate::fault::AtFault;

/// The version of the semantic conventions that the spans follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The longest name of a span, in characters.
const LONGEST_NAME: usize = 128;

/// The span of a sending. It ends when the message is accepted.
pub(crate) struct Sending {
    _span: Option<Context>,
}

/// A message on its way to its receivers, with a span if one is current.
pub(crate) fn sending(agent: &Aid, message: Arc<AclMessage>) -> (Arc<AclMessage>, Sending) {
    let to = |message: &AclMessage| {
        let names = message.receivers.iter().map(|it| it.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    produced(&agent.name, "send", to, message)
}

/// A message on its way to a channel, with a span if one is current.
pub(crate) fn publishing(
    agent: &str,
    operation: &'static str,
    channel: &str,
    message: Arc<AclMessage>,
) -> (Arc<AclMessage>, Sending) {
    produced(agent, operation, |_| channel.to_owned(), message)
}

fn produced(
    agent: &str,
    operation: &'static str,
    to: impl FnOnce(&AclMessage) -> String,
    message: Arc<AclMessage>,
) -> (Arc<AclMessage>, Sending) {
    let current = Context::current();
    if !current.has_active_span() {
        return (carried(message), Sending { _span: None });
    }
    let to = to(&message);
    let about = about(&message, agent, operation, "send", &to);
    let span = begin(
        SpanKind::Producer,
        &format!("{operation} {to}"),
        about,
        &current,
    );
    let context = span.span().span_context().clone();
    let message = match written(&context) {
        Some(context) => context.put_into(message),
        None => message,
    };
    (message, Sending { _span: Some(span) })
}

/// The span of the handling of a message that belongs to a trace. It ends with this value.
pub(crate) struct Handling(Option<Context>);

impl Handling {
    pub(crate) fn of(
        agent: &Aid,
        message: &AclMessage,
        provenance: &Provenance,
        channel: Option<&str>,
    ) -> Self {
        let Some(context) = TraceContext::of(message) else {
            return Self(None);
        };
        let to = channel.unwrap_or(&agent.name);
        let mut about = about(message, &agent.name, "process", "process", to);
        let sender = message.sender.as_ref().map_or("", |it| &it.name);
        about.push(KeyValue::new("sealbus.sender", sender.to_owned()));
        about.push(KeyValue::new("sealbus.provenance", provenance.as_str()));
        let above = Context::new().with_remote_span_context(read(&context));
        let name = format!("process {to}");
        Self(Some(begin(SpanKind::Consumer, &name, about, &above)))
    }

    /// Makes the span current in this work.
    pub(crate) fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        match &self.0 {
            Some(span) => Either::Left(work.with_context(span.clone())),
            None => Either::Right(work),
        }
    }

    /// Makes the span current in this call.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _current = self.0.clone().map(Context::attach);
        work()
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        // Tasks of the handler may hold the span longer.
        if let Some(span) = &self.0 {
            span.span().end();
        }
    }
}

/// Notes in the current span that its handler returned an error. An intended refusal is no error.
pub(crate) fn failed(fault: AtFault, act: &Performative, error: &(dyn Error + 'static)) {
    let current = Context::current();
    let span = current.span();
    if fault == AtFault::Nobody {
        span.set_attribute(KeyValue::new("sealbus.answer", act.as_str().to_owned()));
    } else {
        span.record_error(error);
        span.set_status(Status::error(error.to_string()));
    }
}

fn begin(kind: SpanKind, name: &str, about: Vec<KeyValue>, above: &Context) -> Context {
    let scope = InstrumentationScope::builder("sealbus")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA)
        .build();
    let name: String = name.chars().take(LONGEST_NAME).collect();
    let builder = SpanBuilder::from_name(name)
        .with_kind(kind)
        .with_attributes(about);
    let span = global::tracer_with_scope(scope).build_with_context(builder, above);
    above.with_span(span)
}

fn about(
    message: &AclMessage,
    agent: &str,
    name: &'static str,
    kind: &'static str,
    to: &str,
) -> Vec<KeyValue> {
    let mut about = vec![
        KeyValue::new("messaging.system", "sealbus"),
        KeyValue::new("messaging.operation.name", name),
        KeyValue::new("messaging.operation.type", kind),
        KeyValue::new("messaging.destination.name", to.to_owned()),
        KeyValue::new("messaging.client.id", agent.to_owned()),
        KeyValue::new(
            "sealbus.acl.performative",
            message.performative.as_str().to_owned(),
        ),
    ];
    let conversation = message.conversation_id.as_ref().and_then(|it| it.as_str());
    if let Some(id) = conversation {
        about.push(KeyValue::new(
            "messaging.message.conversation_id",
            id.to_owned(),
        ));
    }
    if let Some(protocol) = &message.protocol {
        about.push(KeyValue::new("sealbus.acl.protocol", protocol.clone()));
    }
    about
}

/// The context of a span, for a message.
fn written(span: &SpanContext) -> Option<TraceContext> {
    let state = span.trace_state().header();
    span.is_valid().then(|| TraceContext {
        trace: u128::from_be_bytes(span.trace_id().to_bytes()),
        span: u64::from_be_bytes(span.span_id().to_bytes()),
        flags: span.trace_flags().to_u8(),
        state: Some(state).filter(|it| (1..=super::LONGEST_STATE).contains(&it.len())),
    })
}

/// The context of a message, as the parent of a span.
fn read(context: &TraceContext) -> SpanContext {
    let state = context.state.as_deref().and_then(|it| it.parse().ok());
    SpanContext::new(
        TraceId::from_bytes(context.trace.to_be_bytes()),
        SpanId::from_bytes(context.span.to_be_bytes()),
        TraceFlags::new(context.flags) & TraceFlags::SAMPLED,
        true,
        state.unwrap_or_default(),
    )
}
