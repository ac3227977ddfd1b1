//! Protocol buffers for the binding to gRPC, as another form of the same ProtoJSON that the other bindings speak. Free of
//! I/O.
//!
//! There is one table of the messages (`schema`). So all three bindings have one reader of requests, one writer of answers,
//! and the same limits.

mod names;
mod reading;
mod schema;
mod writing;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub use reading::BadBytes;
pub(crate) use reading::MOST_VALUES;
pub(crate) use schema::{BAD_REQUEST, ERROR_INFO, Fields, RPC_STATUS};
pub(crate) use writing::write;

/// An operation of the service `lf.a2a.v1.A2AService`.
#[derive(Clone, Copy, Debug)]
pub struct ServiceMethod {
    /// Its name, which JSON-RPC's binding has, too.
    pub name: &'static str,
    asks: &'static Fields,
    answers: &'static Fields,
}

const fn operation(
    name: &'static str,
    asks: &'static Fields,
    answers: &'static Fields,
) -> ServiceMethod {
    ServiceMethod {
        name,
        asks,
        answers,
    }
}

use schema::{
    CARD, EMPTY, EXTENDED_CARD, GET_TASK, LIST_TASKS, LIST_WEBHOOKS, ONE_TASK, ONE_WEBHOOK, SEND,
    STREAM_RESPONSE, TASK, TASKS, WEBHOOK, WEBHOOKS,
};

/// The operations of the service.
pub const OPERATIONS: [ServiceMethod; 11] = [
    operation("SendMessage", SEND, STREAM_RESPONSE),
    operation("SendStreamingMessage", SEND, STREAM_RESPONSE),
    operation("GetTask", GET_TASK, TASK),
    operation("ListTasks", LIST_TASKS, TASKS),
    operation("CancelTask", ONE_TASK, TASK),
    operation("SubscribeToTask", ONE_TASK, STREAM_RESPONSE),
    operation("CreateTaskPushNotificationConfig", WEBHOOK, WEBHOOK),
    operation("GetTaskPushNotificationConfig", ONE_WEBHOOK, WEBHOOK),
    operation("ListTaskPushNotificationConfigs", LIST_WEBHOOKS, WEBHOOKS),
    operation("DeleteTaskPushNotificationConfig", ONE_WEBHOOK, EMPTY),
    operation("GetExtendedAgentCard", EXTENDED_CARD, CARD),
];

impl ServiceMethod {
    /// Reads a request.
    ///
    /// # Errors
    /// [`BadBytes`].
    pub fn read(&self, bytes: &[u8]) -> Result<Map<String, Value>, BadBytes> {
        reading::read(self.asks, bytes)
    }

    /// Writes a request.
    pub(crate) fn write_request(&self, params: &Value) -> Vec<u8> {
        writing::write(self.asks, params)
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`BadBytes`].
    pub fn read_answer(&self, bytes: &[u8]) -> Result<Map<String, Value>, BadBytes> {
        reading::read(self.answers, bytes)
    }

    /// The operation of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        OPERATIONS.into_iter().find(|it| it.name == name)
    }

    /// A request in ProtoJSON as its readers here want it: without unknown members, and with one name for each known one.
    pub(crate) fn known(&self, params: Value) -> Value {
        names::known(self.asks, params)
    }

    /// Writes an answer.
    pub(crate) fn write(&self, answer: &Value) -> Vec<u8> {
        writing::write(self.answers, answer)
    }
}

/// A2A's reason in the details of a status (`google.rpc.Status`), if they say one.
pub fn reason(details: &[u8]) -> Option<String> {
    let status = reading::read(RPC_STATUS, details).ok()?;
    let details = status.get("details")?.as_array()?;
    let mut reasons = details.iter().filter_map(|detail| {
        let bytes = STANDARD.decode(detail.get("value")?.as_str()?).ok()?;
        let is_info = detail
            .get("@type")?
            .as_str()?
            .ends_with("/google.rpc.ErrorInfo");
        let info = is_info.then(|| reading::read(ERROR_INFO, &bytes).ok())??;
        Some(info.get("reason")?.as_str()?.to_owned())
    });
    reasons.next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn named(name: &str) -> ServiceMethod {
        ServiceMethod::named(name).unwrap()
    }

    /// Any JSON whose numbers are of protocol buffers.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1.0e9..1.0e9).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(data in json(), text in ".{0,40}", raw in prop::collection::vec(any::<u8>(), 0..40)) {
            use base64::Engine;
            let raw = base64::engine::general_purpose::STANDARD.encode(raw);
            let params = json!({
                "tenant": "tea",
                "message": {
                    "messageId": "m", "role": "ROLE_USER", "metadata": {"skill": data},
                    "parts": [{"data": data}, {"text": text, "mediaType": "text/plain"}, {"raw": raw}],
                    "extensions": ["a", "b"],
                },
                "configuration": {"historyLength": -3, "returnImmediately": true},
            });
            let read = named("SendMessage").read(&writing::write(schema::SEND, &params)).unwrap();
            prop_assert_eq!(Value::Object(read), params);
        }

        #[test]
        fn an_answer_is_read_as_it_was_written(text in ".{0,40}", append in any::<bool>()) {
            let mut update = json!({"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": text}]}});
            if append {
                update["append"] = true.into();
            }
            let answer = json!({ "artifactUpdate": update });
            let operation = named("SendStreamingMessage");
            let read = operation.read_answer(&operation.write(&answer)).unwrap();
            prop_assert_eq!(Value::Object(read), answer);
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for operation in OPERATIONS {
                let _ = operation.read(&bytes);
                let _ = operation.read_answer(&bytes);
            }
            let _ = reason(&bytes);
        }
    }

    #[test]
    fn the_reason_of_a_fault_is_read() {
        let fault = crate::Fault::TaskNotFound.to_grpc();
        assert_eq!(reason(fault.details()).as_deref(), Some("TASK_NOT_FOUND"));
        let wrong = crate::Fault::member("message", "it is missing").to_grpc();
        assert_eq!(reason(wrong.details()), None);
    }

    #[test]
    fn times_and_states_are_read() {
        let params = json!({"status": "TASK_STATE_FAILED", "statusTimestampAfter": "2026-05-01T10:00:00.25Z", "pageSize": 7});
        let bytes = writing::write(schema::LIST_TASKS, &params);
        assert_eq!(
            Value::Object(named("ListTasks").read(&bytes).unwrap()),
            params
        );
        // A state of a later version has no name here.
        let later = [0x18, 99];
        assert_eq!(named("ListTasks").read(&later).unwrap()["status"], 99);
        // A time outside the calendar.
        let wrong = writing::write(schema::LIST_TASKS, &json!({}));
        assert!(wrong.is_empty());
        let far = [
            0x3a, 11, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0,
        ];
        assert!(named("ListTasks").read(&far).is_err());
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let deep = (0..200).fold(json!(1.0), |inner, _| json!([inner]));
        let bytes = writing::write(schema::SEND, &json!({"metadata": {"deep": deep}}));
        assert!(matches!(
            named("SendMessage").read(&bytes),
            Err(BadBytes::TooMuch)
        ));
        let parts: Vec<Value> = (0..70_000).map(|_| json!({})).collect();
        let bytes = writing::write(schema::SEND, &json!({"message": {"parts": parts}}));
        assert!(matches!(
            named("SendMessage").read(&bytes),
            Err(BadBytes::TooMuch)
        ));
        // A length beyond the end.
        assert!(
            named("GetTask")
                .read(&[0x12, 0xff, 0xff, 0xff, 0x7f, 1])
                .is_err()
        );
        // A field of another type.
        assert!(named("GetTask").read(&[0x10, 1]).is_err());
    }

    #[test]
    fn a_message_in_pieces_is_their_sum() {
        let one = writing::write(schema::SEND, &json!({"message": {"messageId": "m"}}));
        let two = writing::write(schema::SEND, &json!({"message": {"parts": [{"text": ""}]}}));
        let read = named("SendMessage").read(&[one, two].concat()).unwrap();
        assert_eq!(
            Value::Object(read),
            json!({"message": {"messageId": "m", "parts": [{"text": ""}]}})
        );
    }
}
