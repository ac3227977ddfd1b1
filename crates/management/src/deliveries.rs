use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_bus::text::excerpt;
use sealbus_bus::{LogShares, MESSAGE_OVERHEAD, Outbox, TrySendError};
use sealbus_fipa::{AclMessage, bitefficient};
use tokio::task::AbortHandle;

/// Most messages that wait for one receiver. Messages beyond this number are dropped.
const MOST_WAITING: usize = 256;
/// Most bytes of messages that wait for one receiver. One message may always wait.
const MOST_BYTES: usize = 8 << 20;
/// Most bytes of messages that wait for all receivers together. Beyond that, the receiver with the most of them loses its own.
const MOST_BYTES_IN_ALL: usize = 64 << 20;
/// Most receivers for which messages wait.
const MOST_RECEIVERS: usize = 4096;
/// Most characters of a receiver in the log.
const LONGEST_NAME: usize = 256;

/// Sends messages so that a receiver that does not read makes no other receiver wait, and fills no memory. Messages to
/// one receiver stay in order.
#[derive(Clone)]
pub(super) struct Deliveries {
    outbox: Arc<Outbox>,
    waiting: Arc<Mutex<WithoutRoom>>,
}

/// Receivers without room.
#[derive(Default)]
struct WithoutRoom {
    receivers: HashMap<String, Queue>,
    bytes: usize,
    /// The number of the next task.
    next: u64,
    /// The shares of the log for messages that are dropped, by receivers.
    log: LogShares,
}

/// The messages that wait for a receiver.
struct Queue {
    /// The messages behind the one that the task is sending, each with its length.
    messages: VecDeque<(usize, Arc<AclMessage>)>,
    /// The length of the message that the task is sending.
    in_hand: usize,
    /// The length of all these messages.
    bytes: usize,
    /// A queue that was given up may have a successor, with a task of its own.
    number: u64,
    task: AbortHandle,
}

impl Deliveries {
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            outbox,
            waiting: Arc::default(),
        }
    }

    /// Sends a message to its one receiver, now or when there is room. A directory writes no messages with several
    /// receivers.
    pub(super) fn send(&self, message: AclMessage) {
        let Some(receiver) = message.receivers.first().map(|it| it.name.clone()) else {
            return;
        };
        let message = Arc::new(message);
        let mut waiting = self.waiting.lock();
        if waiting.receivers.contains_key(&receiver) {
            waiting.push(&receiver, message);
            return;
        }
        match self.outbox.try_send(message.clone()) {
            Ok(()) => {}
            Err(TrySendError::Full(mut unsent)) => {
                let (this, number) = (self.clone(), waiting.next);
                let to = receiver.clone();
                let task = tokio::spawn(async move {
                    this.note(&to, this.outbox.finish(&mut unsent).await);
                    while let Some(message) = this.next(&to, number) {
                        this.note(&to, this.outbox.send(message).await);
                    }
                });
                waiting.begin(receiver, length(&message), task.abort_handle());
            }
            Err(TrySendError::Failed(error)) => self.note(&receiver, Err(error)),
        }
    }

    fn next(&self, receiver: &str, number: u64) -> Option<Arc<AclMessage>> {
        self.waiting.lock().pop(receiver, number)
    }

    fn note(&self, receiver: &str, result: Result<(), sealbus_bus::SendError>) {
        if let Err(error) = result {
            tracing::debug!(receiver, %error, "an answer of the directory cannot be sent");
        }
    }
}

impl WithoutRoom {
    /// A task waits until a receiver takes a message of this length.
    fn begin(&mut self, receiver: String, length: usize, task: AbortHandle) {
        let queue = Queue {
            messages: VecDeque::new(),
            in_hand: length,
            bytes: length,
            number: self.next,
            task,
        };
        self.next += 1;
        self.bytes += length;
        self.receivers.insert(receiver, queue);
        self.make_room();
    }

    fn push(&mut self, receiver: &str, message: Arc<AclMessage>) {
        let length = length(&message);
        let Some(queue) = self.receivers.get_mut(receiver) else {
            return;
        };
        if queue.messages.len() >= MOST_WAITING || queue.bytes + length > MOST_BYTES {
            if let Some(left_out) = self.log.admit(shown(receiver)) {
                tracing::warn!(
                    receiver = shown(receiver),
                    left_out,
                    "an agent does not read its mailbox: an answer or notification of the directory is dropped"
                );
            }
            return;
        }
        queue.bytes += length;
        queue.messages.push_back((length, message));
        self.bytes += length;
        self.make_room();
    }

    /// The next message for a receiver, whose task has sent the one before. Without one the receiver leaves the list.
    fn pop(&mut self, receiver: &str, number: u64) -> Option<Arc<AclMessage>> {
        let queue = self.receivers.get_mut(receiver);
        let queue = queue.filter(|queue| queue.number == number)?;
        self.bytes -= queue.in_hand;
        queue.bytes -= queue.in_hand;
        let Some((length, message)) = queue.messages.pop_front() else {
            self.receivers.remove(receiver);
            return None;
        };
        queue.in_hand = length;
        Some(message)
    }

    /// As long as too many bytes wait in all, gives up the receivers for which most bytes wait.
    fn make_room(&mut self) {
        while self.bytes > MOST_BYTES_IN_ALL || self.receivers.len() > MOST_RECEIVERS {
            let most = self.receivers.iter().max_by_key(|(_, queue)| queue.bytes);
            let Some(receiver) = most.map(|(receiver, _)| receiver.clone()) else {
                return;
            };
            if let Some(queue) = self.receivers.remove(&receiver) {
                queue.task.abort();
                self.bytes -= queue.bytes;
                if let Some(left_out) = self.log.admit(shown(&receiver)) {
                    tracing::warn!(
                        receiver = shown(&receiver),
                        dropped = queue.messages.len() + 1,
                        left_out,
                        "agents do not read their mailboxes: the answers and notifications of the directory that waited for this one are dropped"
                    );
                }
            }
        }
    }
}

/// A receiver in the log. An agent of another platform chooses its name.
fn shown(receiver: &str) -> String {
    excerpt(receiver, LONGEST_NAME)
}

/// The length of a message, with all that it repeats of its request.
fn length(message: &AclMessage) -> usize {
    let mut bytes = Vec::new();
    // A message that cannot be encoded is not sent either.
    let _ = bitefficient::encode(message, &mut bytes);
    MESSAGE_OVERHEAD + bytes.len()
}

#[cfg(test)]
mod tests {
    use sealbus_bus::{Bus, BusConfig, Mailbox, MailboxLimits};
    use sealbus_fipa::{Aid, Performative};

    use super::*;

    fn to(receiver: &str, number: usize, content: usize) -> AclMessage {
        AclMessage::new(Performative::Inform)
            .with_sender(Aid::new("df@factory").unwrap())
            .with_receiver(Aid::new(receiver).unwrap())
            .with_conversation_id(number.to_string())
            .with_content("x".repeat(content))
    }

    fn setting() -> (Bus, Deliveries, Mailbox) {
        let platform = sealbus_seal::PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
        let (outbox, mailbox) = bus.attach("df@factory", None, None).unwrap();
        (bus, Deliveries::new(Arc::new(outbox)), mailbox)
    }

    fn sleeper(bus: &Bus, name: &str) -> (Outbox, Mailbox) {
        let narrow = MailboxLimits {
            messages: 1,
            bytes: 1 << 20,
        };
        bus.attach(name, None, Some(narrow)).unwrap()
    }

    #[tokio::test]
    async fn receivers_that_do_not_read_fill_no_memory() {
        let (bus, deliveries, _own) = setting();
        let sleepers: Vec<String> = (0..20).map(|it| format!("sleeper-{it}@factory")).collect();
        let mailboxes: Vec<_> = sleepers.iter().map(|it| sleeper(&bus, it)).collect();
        let (_honest, mut honest) = sleeper(&bus, "honest@factory");
        for number in 0..4 {
            deliveries.send(to("honest@factory", number, 10));
        }
        for number in 0..20 {
            for sleeper in &sleepers {
                deliveries.send(to(sleeper, number, 1 << 20));
                let waiting = deliveries.waiting.lock();
                let found: usize = waiting.receivers.values().map(|it| it.bytes).sum();
                assert_eq!(waiting.bytes, found);
                assert!(waiting.bytes <= MOST_BYTES_IN_ALL, "{}", waiting.bytes);
                assert!(waiting.receivers.values().all(|it| it.bytes <= MOST_BYTES));
            }
            tokio::task::yield_now().await;
        }
        // A receiver that reads loses nothing.
        for number in 0..4 {
            let message = honest.recv().await.unwrap().into_message();
            let expected = sealbus_fipa::Expression::from(number.to_string());
            assert_eq!(message.conversation_id, Some(expected));
        }
        drop(mailboxes);
        for sleeper in &sleepers {
            bus.detach(sleeper);
        }
        while !deliveries.waiting.lock().receivers.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(deliveries.waiting.lock().bytes, 0);
    }

    #[tokio::test]
    async fn a_receiver_that_reads_nothing_has_a_share_of_the_log() {
        let (bus, deliveries, _own) = setting();
        let _sleeper = sleeper(&bus, "sleeper@factory");
        for number in 0..2 * MOST_WAITING {
            deliveries.send(to("sleeper@factory", number, 10));
        }
        let mut waiting = deliveries.waiting.lock();
        let log = &mut waiting.log;
        assert_eq!(log.admit("sleeper@factory".to_owned()), None);
        let left_out = log.admit("other@factory".to_owned());
        assert!(left_out.is_some_and(|count| count > 200), "{left_out:?}");
    }

    #[tokio::test]
    async fn what_an_answer_repeats_of_its_request_counts() {
        let (bus, deliveries, _own) = setting();
        let _sleeper = sleeper(&bus, "sleeper@factory");
        for _ in 0..20 {
            let mut answer = to("sleeper@factory", 0, 0);
            answer.in_reply_to = Some("x".repeat(1 << 20).into());
            deliveries.send(answer);
        }
        let waiting = deliveries.waiting.lock();
        assert!(
            waiting.bytes > 4 << 20 && waiting.bytes <= MOST_BYTES,
            "{}",
            waiting.bytes
        );
    }
}
