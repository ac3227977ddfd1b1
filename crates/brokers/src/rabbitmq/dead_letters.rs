//! Messages that were refused, expired or left unread. One queue keeps them for operators. The Master takes them from
//! another.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use sealbus_seal::PlatformName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::management::{DEAD_LETTERS_KEPT, Management, ManagementError, read};
use super::names::{self, escape};
use crate::administration::{DeadLetter, Death};
use crate::envelope::{Queue, Receiver};

/// The queue from which the Master learns of undelivered messages.
const NOTICES: &str = "sealbus.dead-notices";
/// Messages fetched at a time.
const FETCHED: u32 = 50;
/// The header in which the operator names the agent in whose queue a message was left.
const RECEIVER: &str = "sealbus-receiver";
/// The header in which the operator names the user that had sent the message.
const USER: &str = "sealbus-user";

/// Reads one message of the queue from the management interface's answer. `operator` is the user whose word on left
/// messages is trusted.
///
/// No other part that an agent could have written about its message is trusted. The broker checks `user_id`, and puts
/// the latest death before any that a sender may have written into `x-death`.
pub fn read_dead_letter(message: &Value, operator: &str, platform: &PlatformName) -> DeadLetter {
    let properties = &message["properties"];
    let headers = &properties["headers"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let payload = message["payload"].as_str().unwrap_or_default();
    let payload = match message["payload_encoding"].as_str() {
        Some("base64") => BASE64_STANDARD.decode(payload).unwrap_or_default().into(),
        _ => Bytes::copy_from_slice(payload.as_bytes()),
    };
    let user = text(&properties["user_id"]);
    let sender = |user: String| {
        let identity = names::identity_of_user(&user, platform);
        let name = identity.and_then(|(identity, _)| identity.agent_name());
        name.unwrap_or(user)
    };
    if user.as_deref() == Some(operator) {
        return DeadLetter {
            from: text(&headers[USER]).map(sender),
            receiver: text(&headers[RECEIVER]),
            death: Death::Left,
            at: None,
            payload,
        };
    }
    let latest = &headers["x-death"][0];
    let queue = latest["queue"].as_str().unwrap_or_default();
    DeadLetter {
        from: user.map(sender),
        receiver: match names::queue_of_name(queue).map(|queue| queue.owner) {
            Some(Receiver::Agent(agent)) => Some(agent.to_string()),
            _ => None,
        },
        death: match latest["reason"].as_str() {
            Some("rejected") => Death::Refused,
            Some("expired") => Death::Expired,
            other => Death::Other(other.unwrap_or("unknown").to_owned()),
        },
        at: latest["time"].as_u64(),
        payload,
    }
}

#[derive(Deserialize)]
struct PublishAnswer {
    routed: bool,
}

impl Management {
    pub(super) async fn prepare_notices(&self) -> Result<(), ManagementError> {
        let arguments = json!({"x-queue-type": "quorum", "x-max-length": DEAD_LETTERS_KEPT, "x-overflow": "drop-head"});
        self.make_queue(NOTICES, arguments).await?;
        self.bind(names::DEAD, NOTICES, NOTICES).await
    }

    /// Takes messages that were not delivered since the last call, a part at a time. Call it until nothing comes.
    pub(super) async fn take_notices(&self) -> Result<Vec<DeadLetter>, ManagementError> {
        let taken = self
            .fetch(NOTICES, "hand over what was not delivered")
            .await?;
        let read = |message| read_dead_letter(message, &self.operator, &self.platform);
        Ok(taken.iter().map(read).collect())
    }

    /// Moves messages from the queue of an agent to the dead letters, a part at a time. Call it until it returns
    /// that none were left.
    pub(super) async fn bury_left(&self, queue: &Queue) -> Result<usize, ManagementError> {
        let agent = match &queue.owner {
            Receiver::Agent(name) => &**name,
            Receiver::Process(_) => return Ok(0),
        };
        let left = self
            .fetch(&names::queue(queue), "hand over what an agent left unread")
            .await?;
        for message in &left {
            let mut headers = json!({RECEIVER: agent});
            if let Some(user) = message["properties"]["user_id"].as_str() {
                headers[USER] = json!(user);
            }
            let copy = json!({
                "routing_key": agent,
                "payload": message["payload"],
                "payload_encoding": message["payload_encoding"],
                // The broker checks that the operator wrote this.
                "properties": {"delivery_mode": 2, "user_id": self.operator, "headers": headers},
            });
            let to = format!(
                "exchanges/{}/{}/publish",
                escape(&self.vhost),
                escape(names::DEAD)
            );
            let what = "keep a dead letter";
            let (status, answer) = self.ask(what, Method::POST, &to, Some(copy)).await?;
            let published: PublishAnswer = read(what, status, &answer)?;
            if !published.routed {
                tracing::warn!(agent, "a dead letter was not kept");
            }
        }
        Ok(left.len())
    }

    /// Takes some messages out of a queue.
    async fn fetch(&self, queue: &str, what: &str) -> Result<Vec<Value>, ManagementError> {
        let path = format!("queues/{}/{}/get", escape(&self.vhost), escape(queue));
        let body = json!({"count": FETCHED, "ackmode": "ack_requeue_false", "encoding": "base64"});
        let (status, answer) = self.ask(what, Method::POST, &path, Some(body)).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        read(what, status, &answer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use sealbus_seal::PlatformName;

    use super::read_dead_letter;
    use crate::administration::{DeadLetter, Death};

    fn read(message: &Value) -> DeadLetter {
        read_dead_letter(message, "operator", &PlatformName::new("f").unwrap())
    }

    #[test]
    fn the_latest_death_counts() {
        let message = json!({
            "payload": "AQI=", "payload_encoding": "base64",
            "properties": {
                "user_id": "UID=a,CN=127.0.0.1",
                "headers": {
                    "sealbus-user": "UID=somebody,CN=127.0.0.1", "sealbus-receiver": "else@f",
                    "x-death": [
                        {"queue": "Agent-b@f-MessageQueue", "reason": "expired", "time": 7},
                        {"queue": "Agent-forged@f-MessageQueue", "reason": "rejected", "time": 1},
                    ],
                },
            },
        });
        let letter = read(&message);
        assert_eq!(letter.from.as_deref(), Some("a@f"));
        assert_eq!(letter.receiver.as_deref(), Some("b@f"));
        assert_eq!((letter.death, letter.at), (Death::Expired, Some(7)));
        assert_eq!(&letter.payload[..], [1, 2]);
    }

    #[test]
    fn only_the_operator_says_who_left_what() {
        let message = |user: &str| {
            json!({"payload": "", "payload_encoding": "string", "properties": {"user_id": user,
                "headers": {"sealbus-user": "UID=a,CN=1.2.3.4", "sealbus-receiver": "b@f"}}})
        };
        let left = read(&message("operator"));
        assert_eq!(left.from.as_deref(), Some("a@f"));
        assert_eq!(
            (left.receiver.as_deref(), left.death),
            (Some("b@f"), Death::Left)
        );
        let forged = read(&message("UID=m,CN=1.2.3.4"));
        assert_eq!(forged.from.as_deref(), Some("m@f"));
        assert_eq!(forged.receiver, None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z=@-]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            let key = prop_oneof![
                Just("properties"),
                Just("headers"),
                Just("x-death"),
                Just("user_id"),
                Just("queue"),
                Just("payload"),
                Just("payload_encoding"),
                Just("reason"),
                Just("time"),
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((key, inner), 0..6).prop_map(|members| {
                    members
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_answer_is_read(message in any_json()) {
            let _ = read(&message);
        }
    }
}
