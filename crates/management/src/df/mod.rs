//! The DF: what agents offer, and who wants to know of it.

mod federation;
mod leases;
mod subscriptions;

use std::collections::VecDeque;
use std::time::SystemTime;

use sealbus_fipa::management::{
    DfAgentDescription, DfFunction, Exception, SearchConstraints, ServiceDescription,
};
use sealbus_fipa::sl::{ActionExpression, Content, Term, Wff};
use sealbus_fipa::{AclMessage, Aid, DateTime, Performative};

use super::catalogue::{Catalogue, Former, Sequence};
use super::dialogue::{
    action, answer, apology, asks, check_actor, read, replace_act, turn_down, unreached,
};
use super::{DirectoryLimits, LoadError, Requester, unix_ms};
use federation::{DF_SERVICE, Federation, Here, Waiting, is_of_same_platform};
use leases::Leases;
use sealbus_store::{Store, StoreError, read_all};
use subscriptions::{Subscription, Subscriptions};

/// What follows for the DF.
pub type Outcome = super::Outcome<Undo>;

/// A change that can be taken back.
#[derive(Debug)]
pub struct Undo(Change);

#[derive(Debug)]
enum Change {
    Entry(Box<Former<DfAgentDescription>>),
    Subscribed(Sequence),
    Unsubscribed(Sequence, Box<Subscription>),
}

const ENTRY_PREFIX: &str = "df/entry/";
const SUBSCRIPTION_PREFIX: &str = "df/subscription/";

/// Searches remembered so that one that comes back through other DFs is not done again.
const REMEMBERED_SEARCHES: usize = 256;
/// The longest search-id, in bytes.
const LONGEST_SEARCH_ID: usize = 1024;

/// The DF of a platform, `df@hap`.
#[derive(Debug)]
pub struct Df {
    own: Aid,
    limits: DirectoryLimits,
    entries: Catalogue<DfAgentDescription>,
    leases: Leases,
    subscriptions: Subscriptions,
    searches: VecDeque<String>,
    federation: Federation,
}

impl Df {
    /// A DF without entries. `own` is its AID, `df@hap`.
    pub fn new(own: Aid, limits: DirectoryLimits) -> Self {
        let subscriptions = Subscriptions::new(own.platform().unwrap_or_default());
        Self {
            own,
            limits,
            entries: Catalogue::new(ENTRY_PREFIX),
            leases: Leases::default(),
            subscriptions,
            searches: VecDeque::new(),
            federation: Federation::default(),
        }
    }

    /// The DF as it was when it last wrote to the store. Leases that ran out in the meantime end with
    /// the first [`tick`](Self::tick).
    ///
    /// # Errors
    /// The store fails, or holds a row that cannot be read.
    pub async fn load(
        own: Aid,
        limits: DirectoryLimits,
        store: &dyn Store,
    ) -> Result<Self, LoadError> {
        let mut df = Self::new(own, limits);
        let mut result = Ok(());
        read_all(store, ENTRY_PREFIX, |key, entry| {
            if result.is_ok() {
                result = df.load_entry(&key, &entry.value);
            }
        })
        .await?;
        read_all(store, SUBSCRIPTION_PREFIX, |key, entry| {
            if result.is_ok() {
                result = df
                    .subscriptions
                    .load(&key, &entry.value, df.entries.words());
            }
        })
        .await?;
        result.map(|()| df)
    }

    fn load_entry(&mut self, key: &str, row: &[u8]) -> Result<(), LoadError> {
        let description = self.entries.load(key, row)?;
        if let Some(lease_time) = &description.lease_time
            && let Some(name) = &description.name
            && let Ok(end) = lease_time.unix_ms(0)
        {
            self.leases.set(&name.name, Some(end));
        }
        Ok(())
    }

    /// The entry of the agent with this AID name.
    pub fn get(&self, name: &str) -> Option<&DfAgentDescription> {
        self.entries.get(name)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries that match a template, in the order of registration, at most so many.
    pub fn search(&self, template: &DfAgentDescription, most: usize) -> Vec<&DfAgentDescription> {
        self.entries.search(template, most, usize::MAX)
    }

    /// When [`tick`](Self::tick) is to be called next.
    pub fn deadline(&self) -> Option<SystemTime> {
        let lease = self.leases.first().and_then(|end| {
            let end = u64::try_from(end).unwrap_or(0);
            SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(end))
        });
        lease.into_iter().chain(self.federation.deadline()).min()
    }

    /// Ends the leases that have run out, and tells the subscribers; answers searches that other DFs were too slow for.
    pub fn tick(&mut self, now: SystemTime) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(name) = self.leases.ended(unix_ms(now)) {
            self.remove(&name, &mut outcome);
        }
        for waiting in self.federation.overdue(now) {
            outcome.messages.extend(self.found(&waiting));
        }
        outcome
    }

    /// Registers this DF with another, which from then on searches in it too. Its answer is logged.
    pub fn join(&mut self, df: &Aid, now: SystemTime) -> Outcome {
        let mut outcome = Outcome::default();
        outcome
            .messages
            .push(self.federation.join(&self.own, df, now));
        outcome
    }

    /// The answer to a search that went on in other DFs.
    fn found(&self, waiting: &Waiting) -> Option<AclMessage> {
        let content = read(&waiting.request).ok()?;
        let (asked, _) = action(&content, &self.own).ok()?;
        let found = waiting.found.iter().map(DfAgentDescription::to_term);
        let result = Wff::result(asked.clone(), Term::Sequence(found.collect()));
        Some(answer(
            &self.own,
            &waiting.request,
            Performative::Inform,
            Content::of(result),
        ))
    }

    /// Files an entry by the platform's authority, in place of the one there was.
    ///
    /// # Errors
    /// The description lacks something, its lease has ended already, or a limit is met.
    pub fn place(
        &mut self,
        description: &DfAgentDescription,
        now: SystemTime,
    ) -> Result<Outcome, Exception> {
        let known = description
            .name
            .as_ref()
            .is_some_and(|it| self.get(&it.name).is_some());
        let mut outcome = Outcome::default();
        self.put(description, known, &Requester::Platform, now, &mut outcome)?;
        Ok(outcome)
    }

    /// Removes the entry and the subscriptions of an agent that is no more.
    pub fn agent_gone(&mut self, name: &str) -> Outcome {
        let mut outcome = Outcome::default();
        self.remove(name, &mut outcome);
        for sequence in self.subscriptions.of_agent(name) {
            self.unsubscribe(sequence, &mut outcome);
        }
        outcome
    }

    /// Takes an outcome back that could not be committed; gives what to send instead of its messages.
    /// Outcomes that were merged are taken back together, otherwise the latest comes first.
    pub fn revert(&mut self, mut outcome: Outcome, error: &StoreError) -> Vec<AclMessage> {
        while let Some(Undo(change)) = outcome.undo.pop() {
            match change {
                Change::Entry(former) => {
                    let name = former.name().to_owned();
                    self.entries.restore(*former);
                    self.renew_lease(&name);
                }
                Change::Subscribed(sequence) => {
                    self.subscriptions.take(sequence);
                }
                Change::Unsubscribed(sequence, subscription) => {
                    self.subscriptions
                        .file(sequence, *subscription, self.entries.words());
                }
            }
        }
        outcome.into_apologies(error)
    }

    /// Takes a message. `now` is the time of its reception.
    pub fn handle(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        now: SystemTime,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        // Without sender there is nobody to answer.
        if message.sender.is_none() {
            return outcome;
        }
        if let Some(waiting) = self.federation.answer(message, requester, &self.limits) {
            outcome.messages.extend(self.found(&waiting));
            return outcome;
        }
        let result = match &message.performative {
            Performative::Request => self.on_request(message, requester, now, &mut outcome),
            Performative::Subscribe => self.on_subscribe(message, requester, &mut outcome),
            Performative::Cancel => self.on_cancel(message, requester, &mut outcome),
            Performative::Failure if *requester == Requester::Platform => {
                self.on_undelivered(message, &mut outcome);
                Ok(())
            }
            other if asks(other) => {
                Err((None, Exception::UnsupportedAct(other.as_str().to_owned())))
            }
            _ => Ok(()),
        };
        if let Err((action, exception)) = result {
            outcome
                .messages
                .push(turn_down(&self.own, message, action, &exception));
        }
        outcome
    }

    fn on_request(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        now: SystemTime,
        outcome: &mut Outcome,
    ) -> Result<(), TurnedDown> {
        let content = read(message).map_err(|exception| (None, exception))?;
        let (asked, act) = action(&content, &self.own).map_err(|exception| (None, exception))?;
        let turned_down = |exception| (Some(asked.clone().into_owned()), exception);
        let function = DfFunction::from_term(act).map_err(turned_down)?;
        let proposition = match &function {
            DfFunction::Register(description) | DfFunction::Modify(description) => {
                let modify = matches!(function, DfFunction::Modify(_));
                let granted = self.put(description, modify, requester, now, outcome);
                let granted = granted.map_err(turned_down)?;
                if granted.lease_time == description.lease_time {
                    Wff::done(asked.clone())
                } else {
                    // The answer tells the lease that was granted.
                    let function = match modify {
                        true => DfFunction::Modify(granted),
                        false => DfFunction::Register(granted),
                    };
                    Wff::done(replace_act(asked, function.to_term().into_owned()))
                }
            }
            DfFunction::Deregister(description) => {
                self.deregister(description, requester, outcome)
                    .map_err(turned_down)?;
                Wff::done(asked.clone())
            }
            DfFunction::Search(template, constraints) => {
                self.limits
                    .check_description(template)
                    .map_err(turned_down)?;
                self.remember(constraints).map_err(turned_down)?;
                let most = constraints.results(self.limits.results);
                let found = self.find(template, constraints);
                let found = found.into_iter().cloned().collect();
                let others = self.entries.search(&federated(), usize::MAX, usize::MAX);
                let others: Vec<Aid> = others
                    .into_iter()
                    .filter_map(|it| it.name.clone())
                    .filter(|df| !is_of_same_platform(&df.name, &self.own.name))
                    .collect();
                let questions = self.federation.search(
                    &self.own,
                    message,
                    template,
                    constraints,
                    Here {
                        found,
                        most,
                        room: self.limits.results_length,
                        others,
                    },
                    now,
                );
                if !questions.is_empty() {
                    outcome.messages.extend(questions);
                    return Ok(());
                }
                let found = self.find(template, constraints);
                let found = found.into_iter().map(DfAgentDescription::to_term).collect();
                Wff::result(asked.clone(), Term::Sequence(found))
            }
        };
        let done = answer(
            &self.own,
            message,
            Performative::Inform,
            Content::of(proposition),
        );
        // First to who asked, then to the subscribers.
        outcome.messages.insert(0, done);
        if !outcome.batch.is_empty() {
            outcome
                .apologies
                .push(apology(&self.own, message, asked.clone()));
        }
        Ok(())
    }

    /// Registers or modifies an entry; gives it as it stands then.
    fn put(
        &mut self,
        description: &DfAgentDescription,
        modify: bool,
        requester: &Requester,
        now: SystemTime,
        outcome: &mut Outcome,
    ) -> Result<DfAgentDescription, Exception> {
        let name = description.check_entry()?.name.clone();
        requester.authorise(&name)?;
        match (self.get(&name).is_some(), modify) {
            (true, false) => return Err(Exception::AlreadyRegistered),
            (false, true) => return Err(Exception::NotRegistered),
            (false, false) => self.limits.check_entries(self.entries.len())?,
            (true, true) => {}
        }
        let mut granted = description.clone();
        granted.lease_time = self.grant(description.lease_time, now)?;
        self.limits.check_description(&granted)?;

        let former = self.entries.put(&name, granted.clone(), &mut outcome.batch);
        self.renew_lease(&name);
        self.tell(former.description(), Some(&granted), outcome);
        outcome.undo.push(Undo(Change::Entry(Box::new(former))));
        Ok(granted)
    }

    /// The lease given when `asked` is asked for: a point in time, or `None` for ever.
    fn grant(
        &self,
        asked: Option<DateTime>,
        now: SystemTime,
    ) -> Result<Option<DateTime>, Exception> {
        let unrecognised = || Exception::UnrecognisedParameterValue {
            object: "df-agent-description".into(),
            slot: "lease-time".into(),
        };
        let now = unix_ms(now);
        let asked_end = asked.map(|asked| asked.unix_ms(now)).transpose();
        let asked_end = asked_end.map_err(|_| unrecognised())?;
        if asked_end.is_some_and(|end| end <= now) {
            return Err(unrecognised());
        }
        let longest = self.limits.longest_lease.map(|longest| {
            now.saturating_add(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX))
        });
        let end = match (asked_end, longest) {
            (Some(asked), Some(longest)) => asked.min(longest),
            (Some(end), None) | (None, Some(end)) => end,
            (None, None) => return Ok(None),
        };
        match asked {
            Some(asked) if !asked.is_relative() && asked_end == Some(end) => Ok(Some(asked)),
            _ => DateTime::from_unix_ms(end)
                .map(Some)
                .map_err(|_| unrecognised()),
        }
    }

    fn renew_lease(&mut self, name: &str) {
        let lease_time = self.entries.get(name).and_then(|entry| entry.lease_time);
        self.leases
            .set(name, lease_time.and_then(|end| end.unix_ms(0).ok()));
    }

    fn deregister(
        &mut self,
        description: &DfAgentDescription,
        requester: &Requester,
        outcome: &mut Outcome,
    ) -> Result<(), Exception> {
        // Only the name matters, so services may lack what an entry's must have.
        let name = DfAgentDescription {
            name: description.name.clone(),
            ..Default::default()
        };
        let name = &name.check_entry()?.name;
        requester.authorise(name)?;
        self.get(name).ok_or(Exception::NotRegistered)?;
        self.remove(name, outcome);
        Ok(())
    }

    fn remove(&mut self, name: &str, outcome: &mut Outcome) {
        self.leases.set(name, None);
        if self.get(name).is_some() {
            let former = self.entries.remove(name, &mut outcome.batch);
            self.tell(former.description(), None, outcome);
            outcome.undo.push(Undo(Change::Entry(Box::new(former))));
        }
    }

    fn find(
        &self,
        template: &DfAgentDescription,
        constraints: &SearchConstraints,
    ) -> Vec<&DfAgentDescription> {
        let most = constraints.results(self.limits.results);
        self.entries
            .search(template, most, self.limits.results_length)
    }

    /// Remembers a search that has a search-id; an error if it has been here before.
    fn remember(&mut self, constraints: &SearchConstraints) -> Result<(), Exception> {
        let Some(search_id) = &constraints.search_id else {
            return Ok(());
        };
        if search_id.len() > LONGEST_SEARCH_ID {
            return Err(Exception::UnrecognisedParameterValue {
                object: "search-constraints".into(),
                slot: "search-id".into(),
            });
        }
        if self.searches.contains(search_id) {
            let text = format!("the search '{}' has been here before", shorten(search_id));
            return Err(Exception::InternalError(text));
        }
        if self.searches.len() == REMEMBERED_SEARCHES {
            self.searches.pop_front();
        }
        self.searches.push_back(search_id.clone());
        Ok(())
    }

    fn on_subscribe(
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
        // The same conversation again means: this instead.
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
        let found = self.find(subscription.template(), subscription.constraints());
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

    fn on_cancel(
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

    /// A notification did not arrive: its subscriber is not there any more.
    fn on_undelivered(&mut self, message: &AclMessage, outcome: &mut Outcome) {
        let content = message.content_bytes().unwrap_or_default();
        let Ok(content) = Content::parse(content, &sealbus_fipa::Limits::DEFAULT) else {
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

    fn unsubscribe(&mut self, sequence: Sequence, outcome: &mut Outcome) {
        if let Some(subscription) = self.subscriptions.take(sequence) {
            outcome.batch.delete(subscriptions::key(sequence));
            outcome
                .undo
                .push(Undo(Change::Unsubscribed(sequence, Box::new(subscription))));
        }
    }

    /// Tells subscribers of an entry that came, changed or went. An entry that went, for all or just
    /// out of what a subscriber looks for, is told as one that has only its name.
    fn tell(
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

/// The template of DFs that are registered here.
fn federated() -> DfAgentDescription {
    DfAgentDescription::default().with_service(ServiceDescription {
        service_type: Some(DF_SERVICE.to_owned()),
        ..ServiceDescription::default()
    })
}

/// The action asked for, if it could be read, and why it is not done.
type TurnedDown = (Option<ActionExpression<'static>>, Exception);

fn shorten(text: &str) -> &str {
    text.char_indices()
        .nth(64)
        .map_or(text, |(end, _)| &text[..end])
}
