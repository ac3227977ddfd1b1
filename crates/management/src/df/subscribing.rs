//! Subscriptions: agents name the entries they want to follow, and are notified.

use sealbus_fipa::management::{DfAgentDescription, Exception};
use sealbus_fipa::sl::{ActionExpression, Content, Wff};
use sealbus_fipa::{AclMessage, Limits, Performative};

use super::super::Requester;
use super::super::catalogue::Sequence;
use super::super::dialogue::{answer, apology, check_actor, read, unreached};
use super::subscriptions::{self, Subscription};
use super::{Change, Df, Outcome, TurnedDown, Undo};

impl Df {
    pub(super) fn on_subscribe(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        outcome: &mut Outcome,
    ) -> Result<(), TurnedDown> {
        let early = |exception| (None, exception);
        let content = read(message).map_err(early)?;
        let mut subscription = Subscription::read(message, &content).map_err(early)?;
        let asked = subscription.action().clone();
        let turned_down = |exception| (Some(asked.clone()), exception);
        if let ActionExpression::Action { agent, .. } = &asked {
            check_actor(agent, &self.own).map_err(turned_down)?;
        }
        self.limits
            .check_description(subscription.template())
            .map_err(turned_down)?;
        let Some(agent) = requester.subscriber() else {
            return Err(turned_down(Exception::Unauthorised));
        };
        // A second subscription in the same conversation replaces the first.
        if let Some(former) = self
            .subscriptions
            .find(agent, message.conversation_id.as_ref())
        {
            self.unsubscribe(former, outcome);
        }
        let row = subscription.row().map_err(turned_down)?;
        let admitted = self.subscriptions.admit(agent, row.len(), &self.limits);
        admitted.map_err(turned_down)?;

        let agreed = Content::of(asked.clone()).and(Wff::True);
        outcome
            .messages
            .push(answer(&self.own, message, Performative::Agree, agreed));
        outcome
            .apologies
            .push(apology(&self.own, message, asked.clone()));
        let found = self.limits.search(
            &self.entries,
            subscription.template(),
            subscription.constraints(),
        );
        let found = found.entries;
        if !found.is_empty() {
            outcome
                .messages
                .push(subscription.notification(&self.own, found));
        }
        let sequence = self.subscriptions.next();
        outcome.batch.put(subscriptions::key(sequence), row);
        outcome.undo.push(Undo(Change::Subscribed(sequence)));
        self.subscriptions
            .file(sequence, subscription, self.entries.words());
        Ok(())
    }

    pub(super) fn on_cancel(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        outcome: &mut Outcome,
    ) -> Result<(), TurnedDown> {
        let found = requester.subscriber().and_then(|agent| {
            self.subscriptions
                .find(agent, message.conversation_id.as_ref())
        });
        let Some((sequence, subscription)) =
            found.and_then(|found| Some((found, self.subscriptions.get(found)?)))
        else {
            return Err((None, Exception::UnexpectedAct("cancel".into())));
        };
        let cancelled = subscription.action().clone();
        let done = Content::of(Wff::done(cancelled.clone()));
        outcome
            .messages
            .push(answer(&self.own, message, Performative::Inform, done));
        outcome
            .apologies
            .push(apology(&self.own, message, cancelled));
        self.unsubscribe(sequence, outcome);
        Ok(())
    }

    /// Handles a notification that did not arrive: its subscriber is gone.
    pub(super) fn on_undelivered(&mut self, message: &AclMessage, outcome: &mut Outcome) {
        let content = message.content_bytes().unwrap_or_default();
        let Ok(content) = Content::parse(content, &Limits::DEFAULT) else {
            return;
        };
        let Some(receiver) = unreached(&content) else {
            return;
        };
        let conversation = message.conversation_id.as_ref();
        if let Some(sequence) = self.subscriptions.find(&receiver.name, conversation) {
            self.unsubscribe(sequence, outcome);
        }
    }

    pub(super) fn unsubscribe(&mut self, sequence: Sequence, outcome: &mut Outcome) {
        if let Some(subscription) = self.subscriptions.take(sequence) {
            outcome.batch.delete(subscriptions::key(sequence));
            outcome
                .undo
                .push(Undo(Change::Unsubscribed(sequence, Box::new(subscription))));
        }
    }

    /// Notifies subscribers of an entry that came, changed or went. An entry that went is sent with its name alone,
    /// whether it was removed or only no longer matches the subscriber's template.
    pub(super) fn tell(
        &self,
        before: Option<&DfAgentDescription>,
        after: Option<&DfAgentDescription>,
        outcome: &mut Outcome,
    ) {
        let mut concerned = self.subscriptions.concerned(before, self.entries.words());
        concerned.extend(self.subscriptions.concerned(after, self.entries.words()));
        for sequence in concerned {
            let Some(subscription) = self.subscriptions.get(sequence) else {
                continue;
            };
            let matches = |entry: Option<&'_ DfAgentDescription>| {
                entry.is_some_and(|entry| entry.matches(subscription.template()))
            };
            if let Some(entry) = after.filter(|after| matches(Some(after))) {
                outcome
                    .messages
                    .push(subscription.notification(&self.own, [entry]));
            } else if let Some(before) = before.filter(|before| matches(Some(before))) {
                let gone = DfAgentDescription {
                    name: before.name.clone(),
                    ..Default::default()
                };
                outcome
                    .messages
                    .push(subscription.notification(&self.own, [&gone]));
            }
        }
    }
}
