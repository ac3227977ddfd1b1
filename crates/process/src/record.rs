//! The record of what agents of this process receive: messages with their authors' proofs go to the node, which keeps
//! them for people who need evidence later.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use sealbus_bus::{Arrival, Bus, ReceivedMessage, Watcher};
use sealbus_control::attachment::ask::ChannelLog;
use sealbus_control::channel_log::LogRequest;
use sealbus_control::evidence::RecordedMessage;
use sealbus_control::host::Host;
use sealbus_control::traffic::is_named;
use sealbus_control::{Blob, Fault};
use sealbus_fipa::split_name;
use tokio::sync::mpsc;

use super::again::again;

/// The most bytes of messages that wait for the node.
const MOST_WAITING: usize = 64 << 20;
/// The most messages, and the most bytes of them, in one request.
const MOST_AT_ONCE: (usize, usize) = (256, 4 << 20);
/// The longest pause before the node is asked again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Sees arriving messages, and sends them to the node.
pub(super) struct Recorder {
    /// The agents whose received messages are recorded.
    agents: RwLock<Vec<String>>,
    waiting: Arc<Unsent>,
    queue: mpsc::UnboundedSender<(Arc<str>, ReceivedMessage)>,
}

/// The messages that the node does not have yet.
#[derive(Default)]
struct Unsent {
    bytes: AtomicUsize,
    lost: AtomicUsize,
}

impl Recorder {
    /// A recorder that records nothing until it is told to.
    pub(super) fn start(host: Arc<dyn Host>) -> Arc<Self> {
        let (queue, messages) = mpsc::unbounded_channel();
        let waiting = Arc::new(Unsent::default());
        tokio::spawn(send(host, messages, waiting.clone()));
        Arc::new(Self {
            agents: RwLock::default(),
            waiting,
            queue,
        })
    }

    /// Records what these agents receive from now on.
    pub(super) fn obey(self: &Arc<Self>, bus: &Bus, agents: &[String]) {
        agents.clone_into(&mut self.agents.write());
        let this: Arc<dyn Watcher> = self.clone();
        match agents {
            [] => bus.tap().close(&this),
            _ => bus.tap().open(this),
        }
    }
}

impl Watcher for Recorder {
    fn arrived(&self, arrival: &Arrival<'_>) {
        // The log of a persistent channel keeps its messages anyway.
        if arrival.channel.is_some()
            || arrival.message.provenance().evidence().is_none()
            || !is_named(&self.agents.read(), arrival.receiver)
        {
            return;
        }
        let size = arrival.message.size();
        if self.waiting.bytes.load(Ordering::Relaxed) + size > MOST_WAITING {
            self.waiting.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.waiting.bytes.fetch_add(size, Ordering::Relaxed);
        // This fails only when the process ends.
        let _ = self
            .queue
            .send((arrival.receiver.into(), arrival.message.clone()));
    }
}

async fn send(
    host: Arc<dyn Host>,
    mut messages: mpsc::UnboundedReceiver<(Arc<str>, ReceivedMessage)>,
    waiting: Arc<Unsent>,
) {
    let node = host.membership().node.clone();
    while let Some(first) = messages.recv().await {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some((receiver, message)) = next.take() {
            bytes += message.size();
            batch.extend(recorded(&receiver, &message));
            if batch.len() < MOST_AT_ONCE.0 && bytes < MOST_AT_ONCE.1 {
                next = messages.try_recv().ok();
            }
        }
        let ask = ChannelLog {
            node: node.clone(),
            request: LogRequest::Record { messages: batch },
        };
        let record = || host.ask(ask.clone());
        if let Err(fault) = again(LONGEST_PAUSE, Fault::may_pass, record).await {
            tracing::error!(%fault, "the node does not record messages: they leave no evidence");
        }
        waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let lost = waiting.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::error!(
                lost,
                "messages were not recorded and leave no evidence: the node did not keep pace"
            );
        }
    }
}

fn recorded(receiver: &str, message: &ReceivedMessage) -> Option<RecordedMessage> {
    let mut evidence = Vec::new();
    message
        .provenance()
        .evidence()?
        .encode(&mut evidence)
        .ok()?;
    Some(RecordedMessage {
        receiver: split_name(receiver).0.to_owned(),
        message: Blob(message.to_bytes().ok()?.to_vec()),
        evidence: Blob(evidence),
    })
}
