//! Notices of undelivered messages: which ones the Master has got, and what they say. No I/O.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sealbus_seal::{Fingerprint, PlatformName};
use serde_json::{Value, json};

use super::names;
use crate::administration::{DeadLetter, Death};
use crate::envelope::Receiver;

/// Dead letters kept; the oldest go first.
pub(super) const DEAD_LETTERS_KEPT: u32 = 10_000;
/// Messages asked for at a time. The headers of each may take more than a MiB of the answer.
pub(super) const TOGETHER: usize = 20;
/// The bytes of a payload that come together with other messages.
const SHORT: usize = 1 << 20;
/// The bytes of a payload that come alone. They and the headers fit into an answer.
const LONG: usize = 45 << 20;
/// Marks kept of either kind. The broker has no more notices.
const MARKS: usize = DEAD_LETTERS_KEPT as usize;

/// The fate of messages that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They stay in their places.
    Stays,
    /// They are removed.
    Removed,
    /// The broker moves them to the dead letters.
    Dead,
}

/// The marks of messages, in the order in which they were noted.
#[derive(Default)]
pub(super) struct Notices {
    /// Messages that the broker moved from the queues of ended agents.
    left: Vec<Fingerprint>,
    /// Notices that were handed out, and that the broker may still have.
    handed: Vec<Fingerprint>,
}

impl Notices {
    /// Notes that the broker has moved these messages from a queue whose agent has ended.
    pub(super) fn note_left(&mut self, queue: &str, messages: &[Value]) {
        let marks = messages.iter().map(|message| mark(queue, message));
        note(&mut self.left, marks);
    }

    /// Whether the agent that the message was for ended and left it unread.
    pub(super) fn is_left(&self, notice: &Value) -> bool {
        self.left.contains(&mark_of(notice))
    }

    /// How many of the first notices were handed out before.
    fn known(&self, waiting: &[Value]) -> usize {
        let mut handed = self.handed.clone();
        let known = waiting.iter().take_while(|it| strike(&mut handed, it));
        known.count()
    }

    /// Those that were not handed out before.
    fn unknown(&self, mut waiting: Vec<Value>) -> Vec<Value> {
        let mut handed = self.handed.clone();
        waiting.retain(|it| !strike(&mut handed, it));
        waiting
    }

    /// Notes that the broker has removed these notices. Returns those that were not handed out before.
    fn removed(&mut self, mut removed: Vec<Value>) -> Vec<Value> {
        removed.retain(|it| !strike(&mut self.handed, it));
        removed
    }
}

/// Takes some notices, and removes those that the call before returned. The caller has dealt with those. If this process
/// ends, another Master gets the notices that the broker still has. `get` asks for a number of notices with the first
/// bytes of each, and says their fate.
pub(super) async fn take<F, E>(
    notices: &mut Notices,
    get: impl Fn(usize, usize, Fate) -> F,
) -> Result<Vec<Value>, E>
where
    F: Future<Output = Result<Vec<Value>, E>>,
{
    loop {
        let waiting = get(TOGETHER, SHORT, Fate::Stays).await?;
        let known = notices.known(&waiting);
        if known == 0 {
            let mut news = notices.unknown(waiting);
            match news.iter().position(is_cut) {
                Some(0) => news = notices.unknown(get(1, LONG, Fate::Stays).await?),
                Some(first) => news.truncate(first),
                None => {}
            }
            note(&mut notices.handed, news.iter().map(mark_of));
            return Ok(news);
        }
        let removed = get(known, SHORT, Fate::Removed).await?;
        let is_over = removed.is_empty();
        // The broker drops the first notices of a full queue. Others were then removed in their places.
        let others = notices.removed(removed);
        if is_over || !others.is_empty() {
            return Ok(others);
        }
    }
}

/// Reads one message of the queue from the management interface's answer. `is_left` says whether its receiver ended.
///
/// No part that an agent could have written about its message is trusted. The broker checks `user_id`, and puts the
/// latest death before any that a sender may have written into `x-death`.
pub fn read_dead_letter(message: &Value, is_left: bool, platform: &PlatformName) -> DeadLetter {
    let properties = &message["properties"];
    let payload = message["payload"].as_str().unwrap_or_default();
    let payload = match message["payload_encoding"].as_str() {
        Some("base64") => BASE64_STANDARD.decode(payload).unwrap_or_default().into(),
        _ => Bytes::copy_from_slice(payload.as_bytes()),
    };
    let sender = |user: &str| {
        let identity = names::identity_of_user(user, platform);
        let name = identity.and_then(|(identity, _)| identity.agent_name());
        name.unwrap_or_else(|| user.to_owned())
    };
    let latest = &properties["headers"]["x-death"][0];
    DeadLetter {
        from: properties["user_id"].as_str().map(sender),
        receiver: match names::queue_of_name(queue_of(message)).map(|queue| queue.owner) {
            Some(Receiver::Agent(agent)) => Some(agent.to_string()),
            _ => None,
        },
        death: match latest["reason"].as_str() {
            Some("rejected") if is_left => Death::Left,
            Some("rejected") => Death::Refused,
            Some("expired") => Death::Expired,
            other => Death::Other(other.unwrap_or("unknown").to_owned()),
        },
        at: latest["time"].as_u64(),
        payload,
    }
}

/// The queue that a dead letter was in.
fn queue_of(notice: &Value) -> &str {
    let latest = &notice["properties"]["headers"]["x-death"][0];
    latest["queue"].as_str().unwrap_or_default()
}

/// Stands for a message that is, or was, in `queue`. A message that was published twice has one mark.
fn mark(queue: &str, message: &Value) -> Fingerprint {
    let properties = &message["properties"];
    let (user, id) = (&properties["user_id"], &properties["message_id"]);
    let parts = json!([queue, user, id, message["payload_bytes"]]);
    Fingerprint::of(parts.to_string().as_bytes())
}

fn mark_of(notice: &Value) -> Fingerprint {
    mark(queue_of(notice), notice)
}

/// Keeps the latest marks.
fn note(marks: &mut Vec<Fingerprint>, more: impl Iterator<Item = Fingerprint>) {
    marks.extend(more);
    let surplus = marks.len().saturating_sub(MARKS);
    marks.drain(..surplus);
}

/// Takes the mark of a notice out of `marks`. Returns whether it was there.
fn strike(marks: &mut Vec<Fingerprint>, notice: &Value) -> bool {
    let mark = mark_of(notice);
    let place = marks.iter().position(|it| *it == mark);
    place.map(|place| marks.remove(place)).is_some()
}

/// Whether a part of the payload is missing.
fn is_cut(notice: &Value) -> bool {
    let bytes = notice["payload_bytes"].as_u64();
    bytes.is_some_and(|bytes| bytes > SHORT as u64)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::future::ready;

    use futures_util::FutureExt;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use sealbus_seal::PlatformName;

    use super::{Fate, MARKS, Notices, SHORT, read_dead_letter, take};
    use crate::administration::{DeadLetter, Death};

    const QUEUE: &str = "Agent-b@f-MessageQueue";

    fn read(notices: &Notices, message: &Value) -> DeadLetter {
        let platform = PlatformName::new("f").unwrap();
        read_dead_letter(message, notices.is_left(message), &platform)
    }

    /// A message that was rejected.
    fn notice(number: usize, bytes: usize) -> Value {
        json!({
            "payload_bytes": bytes,
            "properties": {
                "user_id": "UID=a,CN=127.0.0.1", "message_id": number.to_string(),
                "headers": {"x-death": [{"queue": QUEUE, "reason": "rejected", "time": 7}]},
            },
        })
    }

    #[test]
    fn the_latest_death_counts() {
        let message = json!({
            "payload": "AQI=", "payload_encoding": "base64",
            "properties": {
                "user_id": "UID=a,CN=127.0.0.1",
                "headers": {
                    "x-death": [
                        {"queue": QUEUE, "reason": "expired", "time": 7},
                        {"queue": "Agent-forged@f-MessageQueue", "reason": "rejected", "time": 1},
                    ],
                },
            },
        });
        let mut notices = Notices::default();
        // An unread message may expire before the broker moves it.
        notices.note_left(QUEUE, std::slice::from_ref(&message));
        let letter = read(&notices, &message);
        assert_eq!(letter.from.as_deref(), Some("a@f"));
        assert_eq!(letter.receiver.as_deref(), Some("b@f"));
        assert_eq!((letter.death, letter.at), (Death::Expired, Some(7)));
        assert_eq!(&letter.payload[..], [1, 2]);
    }

    #[test]
    fn a_message_left_unread_is_no_refused_one() {
        let mut notices = Notices::default();
        notices.note_left(QUEUE, &[notice(1, 3)]);
        notices.note_left("Agent-c@f-MessageQueue", &[notice(2, 3)]);
        let death = |number| read(&notices, &notice(number, 3)).death;
        assert_eq!([1, 2].map(death), [Death::Left, Death::Refused]);
        let many: Vec<_> = (0..2 * MARKS).map(|number| notice(number, 4)).collect();
        notices.note_left(QUEUE, &many);
        assert_eq!(notices.left.len(), MARKS);
    }

    /// The broker's queue.
    struct Broker {
        waiting: VecDeque<Value>,
        faults: Vec<Fault>,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        None,
        RequestLost,
        AnswerLost,
    }

    impl Broker {
        fn answer(
            &mut self,
            count: usize,
            longest: usize,
            fate: Fate,
        ) -> Result<Vec<Value>, Fault> {
            let fault = self.faults.pop().unwrap_or(Fault::None);
            if fault == Fault::RequestLost {
                return Err(fault);
            }
            let count = count.min(self.waiting.len());
            let mut answer: Vec<Value> = self.waiting.iter().take(count).cloned().collect();
            for notice in &mut answer {
                let is_whole = notice["payload_bytes"].as_u64() <= Some(longest as u64);
                notice["is_whole"] = json!(is_whole);
            }
            if fate == Fate::Removed {
                self.waiting.drain(..count);
            }
            match fault {
                Fault::AnswerLost => Err(fault),
                _ => Ok(answer),
            }
        }
    }

    /// Takes notices until none comes, and returns them.
    fn take_all(notices: &mut Notices, broker: &RefCell<Broker>) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let get =
                |count, longest, fate| ready(broker.borrow_mut().answer(count, longest, fate));
            match take(notices, get).now_or_never().unwrap() {
                Ok(taken) if taken.is_empty() => return all,
                Ok(taken) => all.extend(taken),
                Err(_) => {}
            }
        }
    }

    fn numbers(notices: &[Value]) -> Vec<usize> {
        let ids = notices.iter().map(|it| &it["properties"]["message_id"]);
        ids.map(|id| id.as_str().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn what_a_master_that_ended_did_not_deal_with_comes_to_the_next_one() {
        let broker = RefCell::new(Broker {
            waiting: (0..3).map(|number| notice(number, 3)).collect(),
            faults: Vec::new(),
        });
        let mut ended = Notices::default();
        let get = |count, longest, fate| ready(broker.borrow_mut().answer(count, longest, fate));
        let taken = take(&mut ended, get).now_or_never().unwrap().unwrap();
        assert_eq!(numbers(&taken), [0, 1, 2]);
        let mut next = Notices::default();
        assert_eq!(numbers(&take_all(&mut next, &broker)), [0, 1, 2]);
        assert!(broker.borrow().waiting.is_empty());
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
        /// Whatever requests and answers get lost, also those that remove messages.
        #[test]
        fn every_notice_is_handed_out_whole_and_once(
            are_long in proptest::collection::vec(any::<bool>(), 0..60),
            faults in proptest::collection::vec(
                prop_oneof![Just(Fault::None), Just(Fault::RequestLost), Just(Fault::AnswerLost)],
                0..40,
            ),
        ) {
            let length = |is_long: &bool| if *is_long { SHORT + 1 } else { 3 };
            let sent = are_long.iter().enumerate();
            let waiting = sent.map(|(number, is_long)| notice(number, length(is_long))).collect();
            let broker = RefCell::new(Broker { waiting, faults });
            let taken = take_all(&mut Notices::default(), &broker);
            prop_assert!(taken.iter().all(|it| it["is_whole"] == true));
            prop_assert_eq!(numbers(&taken), (0..are_long.len()).collect::<Vec<_>>());
            prop_assert!(broker.borrow().waiting.is_empty());
        }

        #[test]
        fn any_answer_is_read(message in any_json()) {
            let _ = read(&Notices::default(), &message);
        }
    }
}
