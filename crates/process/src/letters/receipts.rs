//! Receipts that the receivers of signed letters sign themselves.

use std::collections::HashMap;

use parking_lot::Mutex;
use sealbus_bus::{
    Bus, Delivery, Outbox, ReceivedMessage, SendError, aid_of, level_of, receiver_receipt,
};
use sealbus_control::post::LetterOutcome;
use sealbus_fipa::AclMessage;

/// The receipts for letters that are not taken yet, by local name and number.
#[derive(Default)]
pub(super) struct Receipts(Mutex<HashMap<(String, u64), Owed>>);

/// A receipt, and how it is sent.
struct Owed {
    receiver: String,
    receipt: AclMessage,
    delivery: Delivery,
}

impl Receipts {
    /// Makes the receipt for a letter to `receiver`, an AID name, to be sent when it is taken. A letter that its author has
    /// not signed gets none: the AMS writes to its sender.
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
        self.0.lock().insert((agent.to_owned(), number), owed);
    }

    /// Sends the receipt for a letter that its agent has taken, if it owes one. Nothing is owed for a letter that leaves the
    /// mailbox in another way.
    pub(super) async fn settle(
        &self,
        bus: Option<Bus>,
        agent: &str,
        number: u64,
        outcome: LetterOutcome,
    ) -> LetterOutcome {
        if outcome == LetterOutcome::Arrived {
            return outcome;
        }
        let owed = self.0.lock().remove(&(agent.to_owned(), number));
        let (Some(owed), LetterOutcome::Taken, Some(bus)) = (owed, outcome, bus) else {
            return outcome;
        };
        match owed.send(&bus).await {
            Ok(true) => LetterOutcome::Acknowledged,
            Ok(false) => outcome,
            Err(error) => {
                tracing::warn!(agent, number, %error, "a receipt was not signed: the AMS writes to the sender of the message");
                outcome
            }
        }
    }
}

impl Owed {
    /// False if the agent has left.
    async fn send(self, bus: &Bus) -> Result<bool, SendError> {
        let Some(outbox) = Outbox::of(bus, &self.receiver) else {
            return Ok(false);
        };
        outbox.send_with(self.receipt, self.delivery).await?;
        Ok(true)
    }
}
