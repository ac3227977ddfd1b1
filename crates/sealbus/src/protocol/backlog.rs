//! The messages of an exchange that wait for room. A receiver that makes no room holds up no other receiver.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use sealbus_bus::{Outbox, SendError, Unsent};
use sealbus_fipa::AclMessage;
use sealbus_process::AgentSender;

/// The messages that wait for room, oldest first, each for one receiver.
#[derive(Default)]
pub(super) struct Backlog(Vec<Unsent>);

impl Backlog {
    /// Sends a message to the receivers that have room, and lets it wait for the others. A waiting message replaces an
    /// earlier message with the same act, so that few messages wait for a receiver that makes no room.
    pub(super) fn put(
        &mut self,
        sender: &AgentSender,
        message: impl Into<Arc<AclMessage>>,
    ) -> Result<(), SendError> {
        let Some(message) = sender.pass(message) else {
            return Ok(());
        };
        let outbox = sender.outbox();
        let mut unsent = outbox.unsent(message)?;
        self.0.retain(|it| !it.is_done());
        if self.0.is_empty() && outbox.try_finish(&mut unsent)? {
            return Ok(());
        }
        let mut sent = Ok(());
        for part in unsent.split() {
            sent = sent.and(self.put_part(&outbox, part));
        }
        sent
    }

    fn put_part(&mut self, outbox: &Outbox, mut part: Unsent) -> Result<(), SendError> {
        let act = &part.message().performative;
        let is_before = |it: &Unsent| it.waiting_for() == part.waiting_for();
        self.0
            .retain(|it| !is_before(it) || it.message().performative != *act);
        // Nothing overtakes a message to the same receiver.
        let must_wait = self.0.iter().any(is_before);
        if must_wait || !outbox.try_finish(&mut part)? {
            self.0.push(part);
        }
        Ok(())
    }

    /// Sends the waiting messages, as their receivers make room.
    ///
    /// Safe to cancel.
    pub(super) async fn flush(&mut self, outbox: &Outbox) -> Result<(), SendError> {
        self.0.retain(|it| !it.is_done());
        let mut lines: BTreeMap<String, Vec<&mut Unsent>> = BTreeMap::new();
        for unsent in &mut self.0 {
            let receiver = unsent.waiting_for().to_owned();
            lines.entry(receiver).or_default().push(unsent);
        }
        let sending: Vec<_> = lines
            .into_values()
            .map(|line| send_line(outbox, line))
            .collect();
        try_join_all(sending).await?;
        Ok(())
    }

    /// Lets the messages wait on without the exchange.
    pub(super) fn post(&mut self, sender: &AgentSender) {
        let mut lines: BTreeMap<String, Vec<Unsent>> = BTreeMap::new();
        for unsent in self.0.drain(..).filter(|it| !it.is_done()) {
            let receiver = unsent.waiting_for().to_owned();
            lines.entry(receiver).or_default().push(unsent);
        }
        for line in lines.into_values() {
            sender.post_rest(line);
        }
    }
}

/// Sends messages to one receiver, and leaves out a message that cannot be sent.
async fn send_line(outbox: &Outbox, line: Vec<&mut Unsent>) -> Result<(), SendError> {
    for unsent in line {
        let sent = outbox.finish(unsent).await;
        if sent.is_err() {
            unsent.give_up();
        }
        sent?;
    }
    Ok(())
}
