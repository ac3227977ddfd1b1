//! Receipts that the receivers of signed letters sign themselves.

use std::collections::HashMap;

use parking_lot::Mutex;
use sealbus_bus::{Delivery, Outbox, ReceivedMessage, WeakBus, aid_of, level_of, receiver_receipt};
use sealbus_control::post::LetterOutcome;
use sealbus_fipa::AclMessage;

/// The receipts for letters that are not taken yet, by local name and number; `None` while the receipt is being sent.
#[derive(Default)]
pub(super) struct Receipts(Mutex<HashMap<(String, u64), Option<Owed>>>);

/// A receipt, and how it is sent.
pub(super) struct Owed {
    receiver: String,
    receipt: AclMessage,
    delivery: Delivery,
}

impl Receipts {
    /// Makes the receipt for a letter to `receiver`, an AID name, to be sent when the letter is taken. A letter that
    /// its author did not sign gets none, because the AMS writes to its sender.
    pub(super) fn owe(&self, agent: &str, number: u64, letter: &ReceivedMessage, receiver: &str) {
        let proof = letter.provenance().evidence().map(|it| it.proof());
        let Some(Ok(proof)) = proof else { return };
        let receipt = receiver_receipt(&aid_of(receiver), &letter.message(), &proof);
        let Some(receipt) = receipt else { return };
        let delivery = Delivery {
            level: level_of(&letter.seen()).ok().flatten(),
            ..Delivery::persistent()
        };
        let owed = Owed {
            receiver: receiver.to_owned(),
            receipt,
            delivery,
        };
        self.0.lock().insert((agent.to_owned(), number), Some(owed));
    }

    /// The next step for a letter with this outcome. If a letter leaves the mailbox in any other way than to its agent,
    /// no receipt is owed.
    pub(super) fn next(&self, agent: &str, number: u64, outcome: LetterOutcome) -> Next {
        if outcome == LetterOutcome::Arrived {
            return Next::Report;
        }
        let mut all = self.0.lock();
        let letter = (agent.to_owned(), number);
        if outcome != LetterOutcome::Taken {
            all.remove(&letter);
            return Next::Report;
        }
        match all.get_mut(&letter) {
            Some(owed) => (owed.take()).map_or(Next::Wait, |owed| Next::Send(Box::new(owed))),
            None => Next::Report,
        }
    }

    /// Notes that the receipt for a letter is no longer being sent.
    pub(super) fn settled(&self, agent: &str, number: u64) {
        self.0.lock().remove(&(agent.to_owned(), number));
    }
}

/// The next step after the outcome of a letter.
pub(super) enum Next {
    /// Tell the node.
    Report,
    /// First send this receipt.
    Send(Box<Owed>),
    /// The receipt is being sent. The node is told after that.
    Wait,
}

impl Owed {
    /// Sends the receipt. Returns the outcome of its letter.
    pub(super) async fn send(self, bus: WeakBus) -> LetterOutcome {
        let bus = bus.upgrade();
        // The agent may have left.
        let Some(outbox) = bus.and_then(|bus| Outbox::of(&bus, &self.receiver)) else {
            return LetterOutcome::Taken;
        };
        match outbox.send_with(self.receipt, self.delivery).await {
            Ok(()) => LetterOutcome::Acknowledged,
            Err(error) => {
                let agent = self.receiver;
                tracing::warn!(agent, %error, "a receipt was not signed: the AMS writes to the sender of the message");
                LetterOutcome::Taken
            }
        }
    }
}
