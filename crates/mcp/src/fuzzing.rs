//! The readers of what a host says, for the fuzz target.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonObject};
use serde_json::Value;

use crate::http::may_be_initialize;
use crate::own_tools::{own_tools, takes};
use crate::resources::{Subject, channel_uri};

/// Reads any bytes as a message of a host: a line of the standard input, or the body of a request.
///
/// # Panics
/// If it would open a session that nobody counts, if one of the platform's own tools takes arguments that its schema does not
/// have, or if a channel's URI would be written as another one.
pub fn check_message(message: &[u8]) {
    let read = serde_json::from_slice::<ClientJsonRpcMessage>(message);
    let Ok(ClientJsonRpcMessage::Request(asked)) = read else {
        return;
    };
    match asked.request {
        ClientRequest::InitializeRequest(_) => assert!(may_be_initialize(message)),
        ClientRequest::CallToolRequest(call) => {
            let (name, given) = (call.params.name, call.params.arguments.unwrap_or_default());
            if takes(&name, given.clone()) {
                let tools = own_tools();
                let mut tools = tools.iter().filter(|tool| tool.name == name);
                assert!(
                    tools
                        .next()
                        .is_some_and(|tool| has(&tool.input_schema, &given))
                );
            }
        }
        ClientRequest::ReadResourceRequest(asked) => {
            if let Some(Subject::Channel(path)) = Subject::read(&asked.params.uri) {
                assert_eq!(channel_uri(&path), asked.params.uri);
            }
        }
        _ => {}
    }
}

/// Whether a schema has all these members, and they are all that it needs.
fn has(schema: &JsonObject, given: &JsonObject) -> bool {
    let known = schema.get("properties").and_then(Value::as_object);
    let needed = schema.get("required").and_then(Value::as_array);
    let mut needed = needed.into_iter().flatten().filter_map(Value::as_str);
    given
        .keys()
        .all(|name| known.is_some_and(|known| known.contains_key(name)))
        && needed.all(|name| given.contains_key(name))
}
