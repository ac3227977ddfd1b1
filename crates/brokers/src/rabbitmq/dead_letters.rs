//! Messages that were refused, expired or left unread. One queue keeps them for operators. The Master takes them from
//! another.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::management::{Management, ManagementError, read};
use super::names::{self, escape, exactly};
use super::notices::{DEAD_LETTERS_KEPT, Fate, TOGETHER, read_dead_letter, take};
use crate::administration::DeadLetter;
use crate::envelope::{Queue, Receiver};

/// The queue from which the Master learns of undelivered messages.
const NOTICES: &str = "sealbus.dead-notices";
/// The policy of this queue.
const NOTICES_POLICY: &str = "sealbus-notices";
/// How often the Master may look at a notice. Without this limit, older brokers put a message that was looked at behind
/// all others, and newer ones drop it after 20 times.
const LOOKS: u32 = 1_000_000;

impl Management {
    pub(super) async fn prepare_notices(&self) -> Result<(), ManagementError> {
        let arguments = json!({"x-queue-type": "quorum", "x-max-length": DEAD_LETTERS_KEPT, "x-overflow": "drop-head"});
        self.make_queue(NOTICES, arguments).await?;
        let policy = json!({
            "pattern": exactly([NOTICES]),
            "definition": {"delivery-limit": LOOKS},
            "apply-to": "queues",
        });
        let path = format!("policies/{}/{NOTICES_POLICY}", escape(&self.vhost));
        self.put("make the policy of a queue", &path, policy)
            .await?;
        self.bind(names::DEAD, NOTICES, NOTICES).await
    }

    /// Takes some messages that were not delivered, and removes those that the call before returned. Call it until
    /// nothing comes.
    pub(super) async fn take_notices(&self) -> Result<Vec<DeadLetter>, ManagementError> {
        let mut notices = self.notices.lock().await;
        let get = |count, longest, fate| self.get(NOTICES, count, longest, fate);
        let taken = take(&mut notices, get).await?;
        let read = |it: &Value| read_dead_letter(it, notices.is_left(it), &self.platform);
        Ok(taken.iter().map(read).collect())
    }

    /// Has the broker move messages from the queue of an agent to the dead letters, a part at a time. It moves them by the
    /// queue's policy, and none leaves the broker, so a broken connection or the end of the Master loses none. Call it
    /// until it returns that none were left.
    pub(super) async fn bury_left(&self, queue: &Queue) -> Result<usize, ManagementError> {
        if let Receiver::Process(_) = queue.owner {
            return Ok(0);
        }
        let name = names::queue(queue);
        let left = self.get(&name, TOGETHER, 0, Fate::Dead).await?;
        self.notices.lock().await.note_left(&name, &left);
        Ok(left.len())
    }

    /// Asks for some messages of a queue, with the first `longest` bytes of each. A queue that is not there has none.
    async fn get(
        &self,
        queue: &str,
        count: usize,
        longest: usize,
        fate: Fate,
    ) -> Result<Vec<Value>, ManagementError> {
        let what = "hand over what was not delivered";
        let path = format!("queues/{}/{}/get", escape(&self.vhost), escape(queue));
        let get = |ackmode| json!({"count": count, "ackmode": ackmode, "encoding": "base64", "truncate": longest});
        let (status, answer) = match fate {
            // A second request would remove others.
            Fate::Removed => {
                let body = Some(get("ack_requeue_false"));
                self.exchange(what, Method::POST, &path, body, true).await?
            }
            Fate::Stays => {
                let body = Some(get("reject_requeue_true"));
                self.ask(what, Method::POST, &path, body).await?
            }
            Fate::Dead => {
                let body = Some(get("reject_requeue_false"));
                self.ask(what, Method::POST, &path, body).await?
            }
        };
        if status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        read(what, status, &answer)
    }
}
