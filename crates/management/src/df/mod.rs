//! The Directory Facilitator (DF) knows the services that agents offer, and tells subscribers about them.

mod entries;
mod federation;
mod leases;
mod searching;

use std::collections::VecDeque;
use std::time::SystemTime;

use sealbus_fipa::management::{DfAgentDescription, DfFunction, Exception};
use sealbus_fipa::sl::{Content, Term, Wff};
use sealbus_fipa::{AclMessage, Aid, Performative};

use super::catalogue::{Catalogue, Former};
use super::dialogue::{action, answer, name_limit, read, replace_act, turn_down};
use super::subscribers::{self, Subscribers, TurnedDown};
use super::{DirectoryLimits, LoadError, Requester, unix_ms};
use federation::Federation;
use leases::Leases;
use sealbus_store::{Store, StoreError, read_all};

/// The consequences of a message or a change for the DF.
pub type Outcome = super::Outcome<Undo>;

/// A change that can be taken back.
#[derive(Debug)]
pub struct Undo(Change);

#[derive(Debug)]
enum Change {
    Entry(Box<Former<DfAgentDescription>>),
    Subscription(subscribers::Change<DfAgentDescription>),
}

impl From<subscribers::Change<DfAgentDescription>> for Undo {
    fn from(change: subscribers::Change<DfAgentDescription>) -> Self {
        Self(Change::Subscription(change))
    }
}

const ENTRY_PREFIX: &str = "df/entry/";
const SUBSCRIPTION_PREFIX: &str = "df/subscription/";

/// The DF of a platform, `df@hap`.
#[derive(Debug)]
pub struct Df {
    own: Aid,
    limits: DirectoryLimits,
    entries: Catalogue<DfAgentDescription>,
    leases: Leases,
    subscribers: Subscribers<DfAgentDescription>,
    searches: VecDeque<String>,
    federation: Federation,
}

impl Df {
    /// A DF without entries. `own` is its AID, `df@hap`.
    pub fn new(own: Aid, limits: DirectoryLimits) -> Self {
        let subscribers = Subscribers::new(own.clone(), SUBSCRIPTION_PREFIX);
        Self {
            own,
            limits,
            entries: Catalogue::new(ENTRY_PREFIX),
            leases: Leases::default(),
            subscribers,
            searches: VecDeque::new(),
            federation: Federation::default(),
        }
    }

    /// Loads the DF as it last wrote itself to the store. Leases that ran out in the meantime end with the first
    /// [`tick`](Self::tick).
    ///
    /// # Errors
    /// The store fails, or has a row that cannot be read.
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
        result?;
        df.subscribers.load(&df.entries, store).await?;
        Ok(df)
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

    /// The AID names of the agents that have an entry or a subscription here. An agent that has both comes twice.
    pub fn known_agents(&self) -> impl Iterator<Item = &str> {
        self.entries.names().chain(self.subscribers.agents())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries that match a template, in the order of registration: at most `most`.
    pub fn search(&self, template: &DfAgentDescription, most: usize) -> Vec<&DfAgentDescription> {
        self.entries.search(template, most)
    }

    /// A part of the entries that match a template, in the order of registration: at most `most`, and after the first one no
    /// more than fit into `length` bytes. It begins at the entry with the number `first`; 0 is before all. Returns also the
    /// number at which the next part begins, if there is one.
    pub fn search_part(
        &self,
        template: &DfAgentDescription,
        first: u64,
        most: usize,
        length: usize,
    ) -> (Vec<&DfAgentDescription>, Option<u64>) {
        let found = self.entries.search_from(first, template, most, length);
        (found.entries, found.rest)
    }

    /// When [`tick`](Self::tick) must be called next.
    pub fn deadline(&self) -> Option<SystemTime> {
        let lease = self.leases.first().and_then(|end| {
            let end = u64::try_from(end).unwrap_or(0);
            SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(end))
        });
        lease.into_iter().chain(self.federation.deadline()).min()
    }

    /// Ends the leases that have run out and notifies the subscribers. Answers searches that have waited too long for
    /// other DFs.
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

    /// Registers this DF with another, which from then on searches here too. The other DF's answer is logged.
    pub fn join(&mut self, df: &Aid, now: SystemTime) -> Outcome {
        let mut outcome = Outcome::default();
        outcome
            .messages
            .push(self.federation.join(&self.own, df, now));
        outcome
    }

    /// Files an entry by the platform's authority, and replaces an earlier one.
    ///
    /// # Errors
    /// The description is incomplete, its lease has already ended, or a limit is reached.
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

    /// Removes the entry and the subscriptions of an agent that is gone.
    pub fn agent_gone(&mut self, name: &str) -> Outcome {
        let mut outcome = Outcome::default();
        self.remove(name, &mut outcome);
        self.subscribers.forget(name, &mut outcome);
        outcome
    }

    /// Takes back an outcome that could not be committed. Returns the messages to send instead. Merged outcomes are
    /// taken back together; separate outcomes are taken back latest first.
    pub(crate) fn revert(&mut self, mut outcome: Outcome, error: &StoreError) -> Vec<AclMessage> {
        while let Some(Undo(change)) = outcome.undo.pop() {
            match change {
                Change::Entry(former) => {
                    let name = former.name().to_owned();
                    self.entries.restore(*former);
                    self.renew_lease(&name);
                }
                Change::Subscription(change) => self.subscribers.revert(change, &self.entries),
            }
        }
        outcome.into_failures(error)
    }

    /// Handles a message. `now` is the time of its reception.
    pub fn handle(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        now: SystemTime,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        // Without a sender there is nobody to answer.
        if message.sender.is_none() {
            return outcome;
        }
        if let Some(waiting) = self.federation.answer(message, requester, &self.limits) {
            outcome.messages.extend(self.found(&waiting));
            return outcome;
        }
        let result = match &message.performative {
            Performative::Request => self.on_request(message, requester, now, &mut outcome),
            _ => self.subscribers.handle(
                message,
                requester,
                &self.entries,
                &self.limits,
                &mut outcome,
            ),
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
        let mut limit = None;
        let proposition = match &function {
            DfFunction::Register(description) | DfFunction::Modify(description) => {
                let modify = matches!(function, DfFunction::Modify(_));
                let granted = self.put(description, modify, requester, now, outcome);
                let granted = granted.map_err(turned_down)?;
                if granted.lease_time == description.lease_time {
                    Wff::done(asked.clone())
                } else {
                    // The answer names the granted lease.
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
                let found =
                    self.search_for(message, requester, template, constraints, now, outcome);
                let Some(found) = found.map_err(turned_down)? else {
                    return Ok(());
                };
                limit = found.limit;
                Wff::result(asked.clone(), Term::Sequence(found.entries))
            }
        };
        let mut done = answer(
            &self.own,
            message,
            Performative::Inform,
            Content::of(proposition),
        );
        name_limit(&mut done, limit);
        // The requester is answered first, then the subscribers are notified.
        outcome.messages.insert(0, done);
        Ok(())
    }
}
