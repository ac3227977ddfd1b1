//! The traces that calls and their answers belong to: W3C's context, with the same names in HTTP and in `_meta`.

use hyper::http::request::Parts;
use rmcp::model::MetaObject;
use rmcp::service::{RequestContext, RoleServer};
use sealbus::Message;
use sealbus::trace::TraceContext;
use serde_json::Value;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The trace that a call belongs to, by the caller's word: in its `_meta`, or else in its HTTP request.
pub(crate) fn of_call(context: &RequestContext<RoleServer>) -> Option<TraceContext> {
    let told = |name: &str| context.meta.0.0.get(name).and_then(Value::as_str);
    let by_meta = || TraceContext::new(told(TRACEPARENT)?, told(TRACESTATE));
    let head = context.extensions.get::<Parts>();
    let field = |name: &str| head?.headers.get(name)?.to_str().ok();
    by_meta().or_else(|| TraceContext::new(field(TRACEPARENT)?, field(TRACESTATE)))
}

/// Tells the caller which trace an answer belongs to.
pub(crate) fn tell(about: &mut MetaObject, reply: &Message) {
    let Some(trace) = TraceContext::of(reply) else {
        return;
    };
    let told = &mut about.0;
    told.insert(TRACEPARENT.to_owned(), trace.traceparent().into());
    if let Some(state) = trace.tracestate() {
        told.insert(TRACESTATE.to_owned(), state.into());
    }
}
