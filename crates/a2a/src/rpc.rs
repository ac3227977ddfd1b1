//! The binding to JSON-RPC (specification, section 9).

use bytes::Bytes;
use hyper::StatusCode;
use sealbus_callers::{Answer, typed_answer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Fault;
use crate::operations::{Desk, Operation, Outcome};
use crate::proto;
use crate::wire::{Call, read};

/// Answers a request, unless the check of its head failed.
pub(crate) async fn answer(desk: &Desk<'_>, body: &[u8], checked: Result<(), Fault>) -> Answer {
    let call = match Call::read(body) {
        Ok(call) => call,
        Err((id, fault)) => return refused(&id, &fault),
    };
    let Call { id, method, params } = call;
    let done = match checked.and_then(|()| operation(&method, params)) {
        Ok(operation) => desk.run(operation).await,
        Err(fault) => Err(fault),
    };
    let id_text = id.to_string();
    let wrap =
        move |result: &RawValue| format!(r#"{{"jsonrpc":"2.0","id":{id_text},"result":{result}}}"#);
    match done {
        Ok(Outcome::One(result)) => json_answer(wrap(&result)),
        Ok(Outcome::Stream(stream)) => stream.sse(wrap),
        Err(fault) => refused(&id, &fault),
    }
}

/// The operation of this name.
pub(crate) fn operation(method: &str, params: Value) -> Result<Operation, Fault> {
    let known = proto::ServiceMethod::named(method).ok_or(Fault::NoMethod)?;
    let params = known.known(params);
    Ok(match method {
        "SendMessage" => Operation::Send(params),
        "SendStreamingMessage" => Operation::SendStreaming(params),
        "GetTask" => Operation::Get(read(params)?),
        "ListTasks" => Operation::List(read(params)?),
        "CancelTask" => Operation::Cancel(read(params)?),
        "SubscribeToTask" => Operation::Subscribe(read(params)?),
        "CreateTaskPushNotificationConfig" => Operation::CreateWebhook(params),
        "GetTaskPushNotificationConfig" => Operation::GetWebhook(params),
        "ListTaskPushNotificationConfigs" => Operation::ListWebhooks(params),
        "DeleteTaskPushNotificationConfig" => Operation::DeleteWebhook(params),
        "GetExtendedAgentCard" => Operation::ExtendedCard,
        _ => return Err(Fault::NoMethod),
    })
}

/// An answer with an error.
pub(crate) fn refused(id: &Value, fault: &Fault) -> Answer {
    json_answer(json!({"jsonrpc": "2.0", "id": id, "error": fault.to_rpc()}).to_string())
}

fn json_answer(body: impl Into<Bytes>) -> Answer {
    typed_answer(StatusCode::OK, "application/json", body)
}
