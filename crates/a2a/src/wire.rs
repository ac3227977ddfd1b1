//! Requests on the wire: the objects of the specification's section 3.2, in ProtoJSON. Readers pass over unknown
//! members.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Fault;
use crate::proto::MOST_VALUES;
use crate::push::PushConfig;

/// Longest text of an error or a state, in bytes.
pub(crate) const LONGEST_TEXT: usize = 4_096;
/// Longest identifier that a caller may choose, in bytes.
const LONGEST_ID: usize = 1_024;
/// Most parts of a message.
const MOST_PARTS: usize = 256;
/// Tasks on one page of a list, by default and at most.
const PAGE: i64 = 50;
const LONGEST_PAGE: i64 = 100;

/// A request of JSON-RPC.
#[derive(Clone, Debug)]
pub struct Call {
    /// Returned with each answer.
    pub id: Value,
    /// The operation.
    pub method: String,
    /// Its parameters: an object.
    pub params: Value,
}

impl Call {
    /// Reads a body.
    ///
    /// # Errors
    /// The fault, and the id for its answer: null if no id could be read.
    pub fn read(body: &[u8]) -> Result<Self, (Value, Fault)> {
        let body = parse(body).map_err(|fault| (Value::Null, fault))?;
        let Value::Object(mut body) = body else {
            return Err((Value::Null, Fault::NoRequest("it is one object")));
        };
        let id = match body.remove("id") {
            Some(Value::String(id)) if id.len() <= LONGEST_ID => Value::String(id),
            Some(Value::Number(id)) => Value::Number(id),
            _ => {
                let why = "`id` is a number, or a text of at most 1024 bytes";
                return Err((Value::Null, Fault::NoRequest(why)));
            }
        };
        if body.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err((id, Fault::NoRequest("`jsonrpc` is \"2.0\"")));
        }
        let Some(Value::String(method)) = body.remove("method") else {
            return Err((id, Fault::NoRequest("`method` is a text")));
        };
        let params = match body.remove("params") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(params @ Value::Object(_)) => params,
            Some(_) => return Err((id, Fault::member("params", "it is an object"))),
        };
        Ok(Self { id, method, params })
    }
}

/// Reads JSON from outside.
///
/// # Errors
/// If the text is not JSON, or has more than 65,536 values.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Fault> {
    let (mut in_text, mut is_escaped, mut values) = (false, false, 1);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    if values > MOST_VALUES {
        return Err(Fault::NoRequest("it has at most 65536 values"));
    }
    serde_json::from_slice(body).map_err(|_| Fault::NoJson)
}

/// Reads the parameters of an operation.
///
/// # Errors
/// [`Fault::BadMember`] with the place.
pub fn read<T: DeserializeOwned>(params: Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(params).map_err(|error| {
        let mut problem = error.inner().to_string();
        let mut field = match error.path().to_string() {
            root if root == "." => String::new(),
            path => path,
        };
        // The path leads to the object that lacks a member.
        let missing = problem.strip_prefix("missing field `");
        if let Some(missing) = missing.and_then(|it| it.strip_suffix('`')) {
            let dot = if field.is_empty() { "" } else { "." };
            field = format!("{field}{dot}{missing}");
            problem = "it is missing".to_owned();
        }
        problem.truncate(problem.floor_char_boundary(256));
        field.truncate(field.floor_char_boundary(256));
        Fault::member(field, problem)
    })
}

/// `SendMessageRequest`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendMessageRequest {
    /// The message.
    pub message: Message,
    /// The form of the answer.
    pub configuration: Option<Configuration>,
    /// Of no object of the protocol.
    pub metadata: Option<Map<String, Value>>,
}

/// `SendMessageConfiguration`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// A webhook.
    pub task_push_notification_config: Option<PushConfig>,
    /// Most messages of the history that are told.
    pub history_length: Option<i64>,
    /// Whether to answer before the task has ended.
    pub return_immediately: Option<bool>,
}

/// `Message`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// The caller's name for it.
    pub message_id: String,
    /// The group of tasks.
    pub context_id: Option<String>,
    /// The task that the message continues.
    pub task_id: Option<String>,
    /// The writer of the message.
    pub role: Role,
    /// The content of the message.
    pub parts: Vec<Part>,
    /// Of no object of the protocol.
    pub metadata: Option<Map<String, Value>>,
}

/// `Role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Role {
    /// The caller.
    #[serde(rename = "ROLE_USER")]
    User,
    /// The agent.
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// `Part`: has exactly one of the first four members.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Text.
    pub text: Option<String>,
    /// Bytes in base64.
    pub raw: Option<String>,
    /// The place of the bytes.
    pub url: Option<String>,
    /// Any JSON; also null, which is a value.
    #[serde(default, deserialize_with = "present")]
    pub data: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl SendMessageRequest {
    /// Checks everything that the types do not.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn check(&self) -> Result<(), Fault> {
        let Message {
            message_id,
            context_id,
            role,
            parts,
            ..
        } = &self.message;
        if message_id.is_empty() || message_id.len() > LONGEST_ID {
            let problem = "it has 1 to 1024 bytes";
            return Err(Fault::member("message.messageId", problem));
        }
        if context_id.as_ref().is_some_and(|it| it.len() > LONGEST_ID) {
            let problem = "it has at most 1024 bytes";
            return Err(Fault::member("message.contextId", problem));
        }
        if *role != Role::User {
            return Err(Fault::member("message.role", "a caller is ROLE_USER"));
        }
        if parts.is_empty() || parts.len() > MOST_PARTS {
            let problem = format!("it has 1 to {MOST_PARTS} parts");
            return Err(Fault::member("message.parts", problem));
        }
        for (place, part) in parts.iter().enumerate() {
            let Part {
                text,
                raw,
                url,
                data,
            } = part;
            let said = [text.is_some(), raw.is_some(), url.is_some(), data.is_some()];
            if said.into_iter().filter(|it| *it).count() != 1 {
                let problem = "a part has one of text, raw, url, data";
                return Err(Fault::member(format!("message.parts[{place}]"), problem));
            }
        }
        let configuration = self.configuration.as_ref();
        let webhook = configuration.and_then(|it| it.task_push_notification_config.as_ref());
        webhook.map_or(Ok(()), |it| {
            it.check("configuration.taskPushNotificationConfig.")
        })?;
        history(self.history_length())?;
        Ok(())
    }

    /// Most messages of the history that are told.
    pub(crate) fn history_length(&self) -> Option<i64> {
        self.configuration.as_ref()?.history_length
    }
}

/// How many messages of a history an answer contains. None: all.
///
/// # Errors
/// If the number is negative.
pub(crate) fn history(length: Option<i64>) -> Result<Option<usize>, Fault> {
    let wrong = |_| Fault::member("historyLength", "it is not negative");
    length.map(usize::try_from).transpose().map_err(wrong)
}

/// `GetTaskRequest`, `CancelTaskRequest`, `SubscribeToTaskRequest`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OneTask {
    /// The task.
    pub id: String,
    /// Most messages of the history that are told.
    pub history_length: Option<i64>,
}

/// `GetTaskPushNotificationConfigRequest`, and those to list and to delete.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OneConfig {
    /// The task.
    pub task_id: String,
    /// The webhook; none in a list.
    #[serde(default)]
    pub id: String,
}

/// `ListTasksRequest`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListTasks {
    /// Only tasks of this context.
    pub context_id: Option<String>,
    /// Only tasks in this state.
    pub status: Option<String>,
    /// Tasks on one page.
    pub page_size: Option<i64>,
    /// The token of the end of the previous page.
    pub page_token: Option<String>,
    /// Most messages of each history that are told.
    pub history_length: Option<i64>,
    /// Only tasks whose state changed then or later.
    pub status_timestamp_after: Option<String>,
    /// Whether the answer contains results.
    pub include_artifacts: Option<bool>,
}

impl ListTasks {
    /// Reads the parameters of a query.
    ///
    /// # Errors
    /// [`Fault::BadMember`].
    pub fn from_query(query: &str) -> Result<Self, Fault> {
        let mut list = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "contextId" => list.context_id = Some(value),
                "status" => list.status = Some(value),
                "pageSize" => list.page_size = Some(number("pageSize", &value)?),
                "pageToken" => list.page_token = Some(value),
                "historyLength" => list.history_length = Some(number("historyLength", &value)?),
                "statusTimestampAfter" => list.status_timestamp_after = Some(value),
                "includeArtifacts" => {
                    let wrong = |_| Fault::member("includeArtifacts", "it is true or false");
                    list.include_artifacts = Some(value.parse().map_err(wrong)?);
                }
                _ => {}
            }
        }
        Ok(list)
    }

    /// Tasks on one page.
    ///
    /// # Errors
    /// If the number is not from 1 to 100.
    pub fn page(&self) -> Result<usize, Fault> {
        let size = self.page_size.unwrap_or(PAGE);
        let size = usize::try_from(size).ok();
        size.filter(|size| (1..=LONGEST_PAGE as usize).contains(size))
            .ok_or_else(|| Fault::member("pageSize", "it is from 1 to 100"))
    }

    /// The number after which the page begins.
    ///
    /// # Errors
    /// If the token does not come from a list.
    pub fn token(&self) -> Result<Option<u64>, Fault> {
        let token = self.page_token.as_deref().filter(|token| !token.is_empty());
        let wrong = |_| Fault::member("pageToken", "it is of no list");
        token.map(str::parse).transpose().map_err(wrong)
    }

    /// The earliest time.
    ///
    /// # Errors
    /// If the text is no time.
    pub fn after(&self) -> Result<Option<OffsetDateTime>, Fault> {
        let wrong = |_| Fault::member("statusTimestampAfter", "it is a time as in RFC 3339");
        let after = self.status_timestamp_after.as_deref();
        after
            .map(|text| OffsetDateTime::parse(text, &Rfc3339))
            .transpose()
            .map_err(wrong)
    }
}

/// A number in a query.
///
/// # Errors
/// If the text is no number.
pub(crate) fn number(name: &str, value: &str) -> Result<i64, Fault> {
    let wrong = |_| Fault::member(name, "it is a number");
    value.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_request_is_told() {
        for (body, code) in [
            ("", -32700),
            ("{", -32700),
            ("[]", -32600),
            ("{}", -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"GetTask"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}"#,
                -32602,
            ),
        ] {
            let (_, fault) = Call::read(body.as_bytes()).unwrap_err();
            assert_eq!(fault.to_rpc()["code"], code, "{body}");
        }
        let deep = "[".repeat(50_000);
        assert!(Call::read(deep.as_bytes()).is_err());
        let many = |count: usize| format!("[{}1]", "1,".repeat(count));
        assert!(parse(many(1_000).as_bytes()).is_ok());
        let told = parse(many(MOST_VALUES).as_bytes()).unwrap_err().to_rpc();
        assert_eq!(told["code"], -32600);
        let text = format!(r#""{}""#, r#"\\\",[{"#.repeat(MOST_VALUES));
        assert!(parse(text.as_bytes()).is_ok());
        let call = Call::read(br#"{"jsonrpc":"2.0","id":"a","method":"M","x":1}"#).unwrap();
        assert_eq!((call.id, call.method.as_str()), (json!("a"), "M"));
    }

    fn message(change: impl FnOnce(&mut Value)) -> Result<(), Fault> {
        let mut params = json!({"message": {
            "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "unknown": 1,
        }});
        change(&mut params);
        read::<SendMessageRequest>(params)?.check()
    }

    #[test]
    fn the_place_of_a_mistake_is_told() {
        assert_eq!(message(|_| ()), Ok(()));
        assert_eq!(
            message(|it| it["message"]["parts"][0] = json!({"data": null})),
            Ok(())
        );
        type Change<'a> = (&'a str, &'a dyn Fn(&mut Value));
        let changes: [Change<'_>; 12] = [
            ("configuration.taskPushNotificationConfig.url", &|it| {
                it["configuration"] = json!({"taskPushNotificationConfig": {"url": "u"}})
            }),
            ("message", &|it| *it = json!({})),
            ("message.parts", &|it| {
                it["message"] = json!({"messageId": "m", "role": "ROLE_USER"})
            }),
            ("message.messageId", &|it| {
                it["message"]["messageId"] = "".into()
            }),
            ("message.messageId", &|it| {
                it["message"]["messageId"] = "x".repeat(2000).into()
            }),
            ("message.role", &|it| {
                it["message"]["role"] = "ROLE_AGENT".into()
            }),
            ("message.role", &|it| it["message"]["role"] = 7.into()),
            ("message.parts", &|it| it["message"]["parts"] = json!([])),
            ("message.parts[0]", &|it| {
                it["message"]["parts"][0] = json!({})
            }),
            ("message.parts[0]", &|it| {
                it["message"]["parts"][0]["url"] = "u".into()
            }),
            ("message.parts[0].text", &|it| {
                it["message"]["parts"][0]["text"] = 1.into()
            }),
            ("historyLength", &|it| {
                it["configuration"] = json!({"historyLength": -1})
            }),
        ];
        for (place, change) in changes {
            match message(|it| change(it)) {
                Err(Fault::BadMember { field, .. }) => assert_eq!(field, place),
                other => panic!("{place}: {other:?}"),
            }
        }
    }

    #[test]
    fn lists_have_pages() {
        let list =
            ListTasks::from_query("pageSize=7&status=x&contextId=a%20b&includeArtifacts=true");
        let list = list.unwrap();
        assert_eq!(
            (list.page(), list.context_id.as_deref()),
            (Ok(7), Some("a b"))
        );
        assert_eq!(list.include_artifacts, Some(true));
        for query in ["pageSize=0", "pageSize=101", "pageSize=-1"] {
            assert!(ListTasks::from_query(query).unwrap().page().is_err());
        }
        assert!(ListTasks::from_query("pageSize=x").is_err());
        assert!(
            ListTasks::from_query("pageToken=x")
                .unwrap()
                .token()
                .is_err()
        );
        assert!(
            ListTasks::from_query("statusTimestampAfter=x")
                .unwrap()
                .after()
                .is_err()
        );
        assert_eq!(ListTasks::default().page(), Ok(50));
    }
}
