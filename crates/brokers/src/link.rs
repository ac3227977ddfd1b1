//! An agent's link to the broker: the part that senders use, shared with the two tasks that send and receive.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{LocalAgent, RefusalReason, Returned, UndeliverableReason};
use tokio::sync::Notify;

use crate::authorship::Written;
use crate::broker::Broker;
use crate::client::Owner;
use crate::envelope::{BrokerEnvelope, Kind, Receiver};
use crate::unconfirmed::{Outcome, Publication};
use crate::wire::{Sends, Wire};

/// One agent's link to the broker.
pub(crate) struct Link {
    pub(crate) agent: Arc<LocalAgent>,
    pub(crate) wire: Wire<Option<Written>>,
    /// Messages were taken out of the mailbox, by receipt.
    pub(crate) taken: Mutex<Vec<u64>>,
    pub(crate) taken_news: Notify,
    /// Why the agent sends nothing more, if it was revoked.
    pub(crate) revocation: OnceLock<UndeliverableReason>,
}

impl Link {
    pub(crate) fn new(agent: Arc<LocalAgent>, broker: Arc<Broker>, epoch: u64) -> Arc<Self> {
        Arc::new(Self {
            agent,
            wire: Wire::new(broker, epoch),
            taken: Mutex::default(),
            taken_news: Notify::new(),
            revocation: OnceLock::new(),
        })
    }

    /// Notes that the agent was revoked. Its messages that the broker does not have come back, and its connections end.
    pub(crate) fn revoked(&self, explanation: &str) {
        let reason = UndeliverableReason::Refused {
            reason: RefusalReason::Revoked,
            explanation: explanation.to_owned(),
        };
        if self.revocation.set(reason.clone()).is_err() {
            return;
        }
        let name = self.agent.name();
        if let Some(bus) = self.wire.bus().upgrade() {
            let text = explanation.to_owned();
            bus.refused(name, None, None, RefusalReason::Revoked, text);
        }
        let lost = {
            let mut unconfirmed = self.wire.unconfirmed.lock();
            // Nobody hears the broker's answers to published messages.
            unconfirmed.disconnected();
            unconfirmed.give_up(Duration::ZERO, Instant::now(), &reason)
        };
        self.tell(lost);
        self.wire.ending.send_replace(true);
        self.agent.gate().open_all();
    }
}

impl Sends for Link {
    type Note = Option<Written>;

    fn wire(&self) -> &Wire<Option<Written>> {
        &self.wire
    }

    fn owner(&self) -> Owner {
        Owner {
            name: self.agent.name().clone(),
            queue: Receiver::Agent(self.agent.name().clone()),
            credential: self.agent.credential(),
        }
    }

    fn written(note: &Option<Written>) -> Option<&Written> {
        note.as_ref()
    }

    fn envelope(&self, publication: Publication<Option<Written>>) -> BrokerEnvelope {
        BrokerEnvelope {
            to: Receiver::Agent(publication.receiver),
            stamp: publication.stamp,
            kind: Kind::Message,
            process: None,
            author: None,
            proof: None,
            evidence: publication.note.and_then(|written| written.evidence()),
            life: self.wire.config().message_life,
            payload: publication.payload,
        }
    }

    fn confirmed(&self, _: u64) {}

    fn tell(&self, outcomes: Vec<Outcome<Option<Written>>>) {
        let Some(bus) = self.wire.bus().upgrade() else {
            return;
        };
        for outcome in outcomes {
            match outcome {
                Outcome::Returned { receiver, messages } => {
                    let returned = |(_, payload)| Returned {
                        sender: self.agent.clone(),
                        payload,
                    };
                    let messages = messages.into_iter().map(returned).collect();
                    // The directory may know the agent's place while its queue is not there, or no longer.
                    bus.returned(&receiver, messages, true, || {
                        self.wire.unconfirmed.lock().settled(&receiver);
                    });
                }
                Outcome::Undeliverable {
                    receiver,
                    payload,
                    reason,
                    ..
                } => bus.undeliverable(self.agent.name(), &receiver, &payload, &reason),
            }
        }
    }

    fn open_gate(&self) {
        if self.wire.unconfirmed.lock().has_room() {
            self.agent.gate().open();
        }
    }
}
