//! The facts for a caller about the agent that answered, and about traces: W3C's context, with the same names in HTTP and
//! in JSON.

use hyper::HeaderMap;
use sealbus::Message;
use sealbus::trace::TraceContext;
use serde_json::{Map, Value};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The trace that a request belongs to, by the caller's word: what the members of an object say, or else the head of the HTTP
/// request.
pub fn trace(
    members: Option<&Map<String, Value>>,
    head: Option<&HeaderMap>,
) -> Option<TraceContext> {
    let told = |name: &str| members?.get(name)?.as_str();
    let by_members = || TraceContext::new(told(TRACEPARENT)?, told(TRACESTATE));
    let field = |name: &str| head?.get(name)?.to_str().ok();
    by_members().or_else(|| TraceContext::new(field(TRACEPARENT)?, field(TRACESTATE)))
}

/// The name of the agent that answered, how the platform knows it, and the trace that its answer belongs to.
pub fn about(reply: &Message) -> Map<String, Value> {
    let mut about = Map::new();
    let mut say = |name: &str, value: &str| about.insert(format!("sealbus/{name}"), value.into());
    say("sender", reply.sender_name());
    say("provenance", reply.provenance().as_str());
    if let Some(conversation) = reply.conversation_id.as_ref().and_then(|it| it.as_str()) {
        say("conversation", conversation);
    }
    if let Some(trace) = TraceContext::of(reply) {
        about.insert(TRACEPARENT.to_owned(), trace.traceparent().into());
        if let Some(state) = trace.tracestate() {
            about.insert(TRACESTATE.to_owned(), state.into());
        }
    }
    about
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_request_itself_says_counts_more_than_its_head() {
        let context =
            |digit: char| format!("00-{}-{}-01", "a".repeat(32), digit.to_string().repeat(16));
        let mut head = HeaderMap::new();
        head.insert(TRACEPARENT, HeaderValue::from_str(&context('1')).unwrap());
        let said = |parent: &str| json!({ TRACEPARENT: parent }).as_object().unwrap().clone();
        let read = |members: Option<&Map<String, Value>>, head| {
            trace(members, head).map(|it| it.traceparent())
        };
        assert_eq!(
            read(Some(&said(&context('2'))), Some(&head)),
            Some(context('2'))
        );
        assert_eq!(
            read(Some(&said("nonsense")), Some(&head)),
            Some(context('1'))
        );
        assert_eq!(read(None, Some(&head)), Some(context('1')));
        assert_eq!(read(Some(&said("nonsense")), None), None);
    }
}
