//! The conversation with subscribers: they name the entries they want to follow, and are notified.

use sealbus_fipa::management::Exception;
use sealbus_fipa::sl::{ActionExpression, Content, Wff};
use sealbus_fipa::{AclMessage, Aid, Limits, Performative};

use super::catalogue::{Catalogue, Sequence};
use super::dialogue::{answer, asks, check_actor, read, unreached};
use super::subscriptions::{Followed, Subscription, Subscriptions};
use super::{DirectoryLimits, LoadError, Outcome, Requester};
use sealbus_store::{Store, read_all};

/// The requested action, if it could be read, and the reason for turning it down.
pub(super) type TurnedDown = (Option<ActionExpression<'static>>, Exception);

/// A change of the subscriptions, to take it back.
#[derive(Debug)]
pub(super) enum Change<D> {
    Subscribed(Sequence),
    Unsubscribed(Sequence, Box<Subscription<D>>),
}

/// The subscribers of a directory.
#[derive(Debug)]
pub(super) struct Subscribers<D> {
    /// The directory's AID.
    own: Aid,
    subscriptions: Subscriptions<D>,
}

impl<D: Followed> Subscribers<D> {
    /// No subscribers yet. Their rows in the store have this prefix.
    pub(super) fn new(own: Aid, prefix: &'static str) -> Self {
        let platform = own.platform().unwrap_or_default();
        let subscriptions = Subscriptions::new(prefix, platform);
        Self { own, subscriptions }
    }

    /// Reads the rows of the store.
    pub(super) async fn load(
        &mut self,
        entries: &Catalogue<D>,
        store: &dyn Store,
    ) -> Result<(), LoadError> {
        let mut result = Ok(());
        read_all(store, self.subscriptions.prefix(), |key, row| {
            if result.is_ok() {
                result = self.subscriptions.load(&key, &row.value, entries.words());
            }
        })
        .await?;
        result
    }

    /// Handles the messages to a directory, except for requests. A message that asks for anything but a subscription is
    /// turned down.
    pub(super) fn handle<U: From<Change<D>>>(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        entries: &Catalogue<D>,
        limits: &DirectoryLimits,
        outcome: &mut Outcome<U>,
    ) -> Result<(), TurnedDown> {
        match &message.performative {
            Performative::Subscribe => self.subscribe(message, requester, entries, limits, outcome),
            Performative::Cancel => self.cancel(message, requester, outcome),
            Performative::Failure if *requester == Requester::Platform => {
                self.undelivered(message, outcome);
                Ok(())
            }
            other if asks(other) => {
                Err((None, Exception::UnsupportedAct(other.as_str().to_owned())))
            }
            _ => Ok(()),
        }
    }

    /// Handles a `subscribe`.
    fn subscribe<U: From<Change<D>>>(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        entries: &Catalogue<D>,
        limits: &DirectoryLimits,
        outcome: &mut Outcome<U>,
    ) -> Result<(), TurnedDown> {
        let early = |exception| (None, exception);
        let content = read(message).map_err(early)?;
        let mut subscription: Subscription<D> =
            Subscription::read(message, &content).map_err(early)?;
        let asked = subscription.action().clone();
        let turned_down = |exception| (Some(asked.clone()), exception);
        if let ActionExpression::Action { agent, .. } = &asked {
            check_actor(agent, &self.own).map_err(turned_down)?;
        }
        subscription.template().check(limits).map_err(turned_down)?;
        let Some(agent) = requester.subscriber() else {
            return Err(turned_down(Exception::Unauthorised));
        };
        // A second subscription in the same conversation takes the place of the first, unless it is turned down.
        let conversation = message.conversation_id.as_ref();
        let former = self.subscriptions.find(agent, conversation);
        let replaced = former.and_then(|former| self.subscriptions.take(former));
        let row = subscription.row().and_then(|row| {
            let admitted = self.subscriptions.admit(agent, row.len(), limits);
            admitted.map(|()| row)
        });
        if let (Some(former), Some(replaced)) = (former, replaced) {
            let words = entries.words();
            self.subscriptions.file(former, replaced, words);
        }
        let row = row.map_err(turned_down)?;
        if let Some(former) = former {
            self.unsubscribe(former, outcome);
        }

        let agreed = Content::of(asked.clone()).and(Wff::True);
        outcome
            .messages
            .push(answer(&self.own, message, Performative::Agree, agreed));
        let found = limits.search(entries, subscription.template(), subscription.constraints());
        let found = found.entries;
        if !found.is_empty() {
            outcome
                .messages
                .push(subscription.notification(&self.own, found));
        }
        let sequence = self.subscriptions.next();
        outcome.batch.put(self.subscriptions.key(sequence), row);
        outcome.undo.push(Change::Subscribed(sequence).into());
        self.subscriptions
            .file(sequence, subscription, entries.words());
        Ok(())
    }

    /// Handles a `cancel`.
    fn cancel<U: From<Change<D>>>(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        outcome: &mut Outcome<U>,
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
        let done = Content::of(Wff::done(subscription.action().clone()));
        outcome
            .messages
            .push(answer(&self.own, message, Performative::Inform, done));
        self.unsubscribe(sequence, outcome);
        Ok(())
    }

    /// Handles a notification that did not arrive: its subscriber is gone.
    fn undelivered<U: From<Change<D>>>(&mut self, message: &AclMessage, outcome: &mut Outcome<U>) {
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

    /// The AID names of the subscribers.
    pub(super) fn agents(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.agents()
    }

    /// Forgets the subscriptions of an agent that is gone.
    pub(super) fn forget<U: From<Change<D>>>(&mut self, agent: &str, outcome: &mut Outcome<U>) {
        for sequence in self.subscriptions.of_agent(agent) {
            self.unsubscribe(sequence, outcome);
        }
    }

    fn unsubscribe<U: From<Change<D>>>(&mut self, sequence: Sequence, outcome: &mut Outcome<U>) {
        if let Some(subscription) = self.subscriptions.take(sequence) {
            outcome.batch.delete(self.subscriptions.key(sequence));
            let change = Change::Unsubscribed(sequence, Box::new(subscription));
            outcome.undo.push(change.into());
        }
    }

    /// Takes a change back.
    pub(super) fn revert(&mut self, change: Change<D>, entries: &Catalogue<D>) {
        match change {
            Change::Subscribed(sequence) => {
                self.subscriptions.take(sequence);
            }
            Change::Unsubscribed(sequence, subscription) => {
                self.subscriptions
                    .file(sequence, *subscription, entries.words());
            }
        }
    }

    /// Notifies subscribers of an entry that came, changed or went. An entry that went is sent with its name alone,
    /// whether it was removed or only no longer matches the subscriber's template.
    pub(super) fn tell<U>(
        &self,
        before: Option<&D>,
        after: Option<&D>,
        entries: &Catalogue<D>,
        outcome: &mut Outcome<U>,
    ) {
        let mut concerned = self.subscriptions.concerned(before, entries.words());
        concerned.extend(self.subscriptions.concerned(after, entries.words()));
        for sequence in concerned {
            let Some(subscription) = self.subscriptions.get(sequence) else {
                continue;
            };
            let matches =
                |entry: Option<&D>| entry.is_some_and(|it| it.matches(subscription.template()));
            if let Some(entry) = after.filter(|after| matches(Some(after))) {
                outcome
                    .messages
                    .push(subscription.notification(&self.own, [entry]));
            } else if let Some(before) = before.filter(|before| matches(Some(before))) {
                outcome
                    .messages
                    .push(subscription.notification(&self.own, [&before.gone()]));
            }
        }
    }
}
