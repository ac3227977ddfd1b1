//! The AMS knows which agents exist and where each is in its life cycle, and tells subscribers about them.

use std::time::SystemTime;

use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, AmsFunction, ApDescription, ApService, Exception,
};
use sealbus_fipa::sl::{Content, Term, Wff};
use sealbus_fipa::{AclMessage, Aid, Limits, Performative};

use super::catalogue::{Catalogue, Former};
use super::dialogue::{action, answer, name_limit, read, turn_down};
use super::subscribers::{self, Subscribers, TurnedDown};
use super::{DirectoryLimits, LoadError, Requester};
use sealbus_store::{Store, StoreError, read_all};

/// The consequences of a message or a change for the AMS.
pub type Outcome = super::Outcome<Undo>;

/// A change that can be taken back.
#[derive(Debug)]
pub struct Undo(Change);

#[derive(Debug)]
enum Change {
    Entry(Box<Former<AmsAgentDescription>>),
    Services(Vec<ApService>),
    Subscription(subscribers::Change<AmsAgentDescription>),
}

impl From<subscribers::Change<AmsAgentDescription>> for Undo {
    fn from(change: subscribers::Change<AmsAgentDescription>) -> Self {
        Self(Change::Subscription(change))
    }
}

const PREFIX: &str = "ams/agent/";
const SUBSCRIPTION_PREFIX: &str = "ams/subscription/";
/// The key of the row with the platform's description.
const DESCRIPTION_ROW: &str = "ams/description";

/// The result of a request.
#[derive(Default)]
struct Done {
    outcome: Outcome,
    /// The result, for functions that have one.
    result: Option<Term<'static>>,
    /// The limit that cut the result short.
    limit: Option<String>,
}

/// The AMS of a platform, `ams@hap`.
///
/// The platform files its own agents with [`follow`](Self::follow), [`place`](Self::place) and
/// [`remove`](Self::remove), and its services with [`set_services`](Self::set_services). With a message, an agent can change only its own entry.
/// The Master's agent, `master@hap`, may change every entry.
#[derive(Debug)]
pub struct Ams {
    own: Aid,
    platform: ApDescription,
    limits: DirectoryLimits,
    agents: Catalogue<AmsAgentDescription>,
    subscribers: Subscribers<AmsAgentDescription>,
}

impl Ams {
    /// An AMS that knows no agents yet. `own` is its AID, `ams@hap`.
    pub fn new(own: Aid, limits: DirectoryLimits) -> Self {
        let name = own.platform().unwrap_or_default().to_owned();
        let platform = ApDescription {
            name,
            services: Vec::new(),
        };
        let subscribers = Subscribers::new(own.clone(), SUBSCRIPTION_PREFIX);
        Self {
            own,
            platform,
            limits,
            agents: Catalogue::new(PREFIX),
            subscribers,
        }
    }

    /// Loads the AMS as it last wrote itself to the store.
    ///
    /// # Errors
    /// The store fails, or has a row that cannot be read.
    pub async fn load(
        own: Aid,
        limits: DirectoryLimits,
        store: &dyn Store,
    ) -> Result<Self, LoadError> {
        let mut ams = Self::new(own, limits);
        let mut result = Ok(());
        read_all(store, PREFIX, |key, entry| {
            if result.is_ok() {
                result = ams.agents.load(&key, &entry.value).map(drop);
            }
        })
        .await?;
        result?;
        if let Some(row) = store.get(DESCRIPTION_ROW).await? {
            let unreadable = |detail: String| LoadError::Row {
                key: DESCRIPTION_ROW.to_owned(),
                detail,
            };
            let term = Term::parse(&row.value, &Limits::DEFAULT);
            let term = term.map_err(|error| unreadable(error.to_string()))?;
            let read = ApDescription::from_term(&term);
            ams.platform.services = read
                .map_err(|error| unreadable(error.to_string()))?
                .services;
        }
        ams.subscribers.load(&ams.agents, store).await?;
        Ok(ams)
    }

    /// Sets the services of the platform that `get-description` reports, such as its message transports (FIPA00023,
    /// `ap-description`).
    pub fn set_services(&mut self, services: Vec<ApService>) -> Outcome {
        let mut outcome = Outcome::default();
        if services != self.platform.services {
            let former = std::mem::replace(&mut self.platform.services, services);
            let description = self.platform.to_term().to_bytes();
            outcome.batch.put(DESCRIPTION_ROW, description);
            outcome.undo.push(Undo(Change::Services(former)));
        }
        outcome
    }

    /// The entry of the agent with this AID name.
    pub fn get(&self, name: &str) -> Option<&AmsAgentDescription> {
        self.agents.get(name)
    }

    /// The AID names of the agents that have an entry or a subscription here. An agent that has both comes twice.
    pub fn known_agents(&self) -> impl Iterator<Item = &str> {
        self.agents.names().chain(self.subscribers.agents())
    }

    /// How many agents are registered.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Whether no agent is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries that match a template, in the order of registration: at most `most`.
    pub fn search(&self, template: &AmsAgentDescription, most: usize) -> Vec<&AmsAgentDescription> {
        self.agents.search(template, most)
    }

    /// Files an agent of the platform. The life of an agent that was there before begins again. An agent without a
    /// state is `initiated`.
    ///
    /// # Errors
    /// The description has no name, or a limit is reached.
    pub fn place(&mut self, mut description: AmsAgentDescription) -> Result<Outcome, Exception> {
        let name = description.check_entry()?.name.clone();
        description.state.get_or_insert(AgentState::Initiated);
        self.check(&description)?;
        if self.get(&name).is_none() {
            self.limits.check_entries(self.agents.len())?;
        }
        Ok(self.put(&name, description))
    }

    /// Enters the Master's knowledge of an agent: its state, or that it is gone. The Master is right even if the entry
    /// disagrees, so the life cycle is not checked. An agent that crashed begins again.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn follow(&mut self, agent: &Aid, state: Option<AgentState>) -> Result<Outcome, Exception> {
        let Some(state) = state else {
            let mut outcome = self.remove(&agent.name);
            self.subscribers.forget(&agent.name, &mut outcome);
            return Ok(outcome);
        };
        let known = self.get(&agent.name).cloned();
        let mut description = known.unwrap_or_else(|| AmsAgentDescription::of(agent.clone()));
        description.state = Some(state);
        self.place(description)
    }

    /// Removes an agent in any state.
    pub fn remove(&mut self, name: &str) -> Outcome {
        let mut outcome = Outcome::default();
        if self.get(name).is_some() {
            let former = self.agents.remove(name, &mut outcome.batch);
            self.subscribers
                .tell(former.description(), None, &self.agents, &mut outcome);
            outcome.undo.push(Undo(Change::Entry(Box::new(former))));
        }
        outcome
    }

    /// Handles a message. `now` is the time of its reception; nothing in the AMS depends on it so far.
    pub fn handle(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        _now: SystemTime,
    ) -> Outcome {
        let requester = &self.in_person(requester);
        let mut outcome = Outcome::default();
        // Without a sender there is nobody to answer.
        if message.sender.is_none() {
            return outcome;
        }
        let result = match &message.performative {
            Performative::Request => self.on_request(message, requester, &mut outcome),
            _ => self.subscribers.handle(
                message,
                requester,
                &self.agents,
                &self.limits,
                &mut outcome,
            ),
        };
        if let Err((asked, exception)) = result {
            outcome
                .messages
                .push(turn_down(&self.own, message, asked, &exception));
        }
        outcome
    }

    fn on_request(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        outcome: &mut Outcome,
    ) -> Result<(), TurnedDown> {
        let content = read(message).map_err(|exception| (None, exception))?;
        let (asked, act) = action(&content, &self.own).map_err(|exception| (None, exception))?;
        let turned_down = |exception| (Some(asked.clone().into_owned()), exception);
        let done = self.perform(act, requester).map_err(turned_down)?;
        *outcome = done.outcome;
        let proposition = match &done.result {
            None => Wff::done(asked.clone()),
            Some(result) => Wff::result(asked.clone(), result.clone()),
        };
        let content = Content::of(proposition);
        let mut answer = answer(&self.own, message, Performative::Inform, content);
        name_limit(&mut answer, done.limit);
        // The requester is answered first, then the subscribers are notified.
        outcome.messages.insert(0, answer);
        Ok(())
    }

    /// Takes back an outcome that could not be committed. Returns the messages to send instead. Merged outcomes are
    /// taken back together; separate outcomes are taken back latest first.
    pub(crate) fn revert(&mut self, mut outcome: Outcome, error: &StoreError) -> Vec<AclMessage> {
        while let Some(Undo(change)) = outcome.undo.pop() {
            match change {
                Change::Entry(former) => self.agents.restore(*former),
                Change::Services(former) => self.platform.services = former,
                Change::Subscription(change) => self.subscribers.revert(change, &self.agents),
            }
        }
        outcome.into_failures(error)
    }

    /// Performs the requested action.
    fn perform(&mut self, act: &Term<'_>, requester: &Requester) -> Result<Done, Exception> {
        let outcome = match AmsFunction::from_term(act)? {
            AmsFunction::Register(mut description) => {
                let name = description.check_entry()?.name.clone();
                authorise(requester, &name)?;
                if self.get(&name).is_some() {
                    return Err(Exception::AlreadyRegistered);
                }
                check_possible(*description.state.get_or_insert(AgentState::Active))?;
                self.limits.check_entries(self.agents.len())?;
                self.check(&description)?;
                self.put(&name, description)
            }
            AmsFunction::Modify(mut description) => {
                let name = description.check_entry()?.name.clone();
                authorise(requester, &name)?;
                let former = self.get(&name).ok_or(Exception::NotRegistered)?;
                match description.state {
                    // An agent always has a state.
                    None => description.state = former.state,
                    Some(state) => check_transition(former.state, state, requester)?,
                }
                self.check(&description)?;
                self.put(&name, description)
            }
            AmsFunction::Deregister(description) => {
                let name = &description.check_entry()?.name;
                authorise(requester, name)?;
                self.get(name).ok_or(Exception::NotRegistered)?;
                self.remove(name)
            }
            AmsFunction::Search(template, constraints) => {
                let found = self.limits.search(&self.agents, &template, &constraints);
                let entries = found.entries.into_iter();
                let entries = entries.map(|it| it.to_term().into_owned()).collect();
                return Ok(Done {
                    result: Some(Term::Sequence(entries)),
                    limit: found.limit,
                    ..Done::default()
                });
            }
            AmsFunction::GetDescription => {
                let description = self.platform.to_term().into_owned();
                return Ok(Done {
                    result: Some(Term::Sequence(vec![description])),
                    ..Done::default()
                });
            }
        };
        Ok(Done {
            outcome,
            ..Done::default()
        })
    }

    /// The Master's agent speaks for the platform.
    fn in_person(&self, requester: &Requester) -> Requester {
        let master = |name: &str| name.rsplit_once('@') == Some(("master", &self.platform.name));
        match requester {
            Requester::Agent(name) if master(name) => Requester::Platform,
            other => other.clone(),
        }
    }

    fn check(&self, description: &AmsAgentDescription) -> Result<(), Exception> {
        self.limits
            .check_entry_length(description.to_term().to_bytes().len())
    }

    fn put(&mut self, name: &str, description: AmsAgentDescription) -> Outcome {
        let mut outcome = Outcome::default();
        let former = self
            .agents
            .put(name, description.clone(), &mut outcome.batch);
        let before = former.description();
        if before != Some(&description) {
            self.subscribers
                .tell(before, Some(&description), &self.agents, &mut outcome);
        }
        outcome.undo.push(Undo(Change::Entry(Box::new(former))));
        outcome
    }
}

fn impossible_state() -> Exception {
    Exception::UnrecognisedParameterValue {
        object: "ams-agent-description".into(),
        slot: "state".into(),
    }
}

/// The state `latent` of JADE is read from other platforms, but no agent of this platform is ever in it.
fn check_possible(state: AgentState) -> Result<(), Exception> {
    if state == AgentState::Latent {
        Err(impossible_state())
    } else {
        Ok(())
    }
}

/// The life cycle of FIPA00023: which steps it has, and which of them an agent may take by itself. The platform may
/// take every step, including those that agents ask for, because the platform carries them out.
fn check_transition(
    from: Option<AgentState>,
    to: AgentState,
    requester: &Requester,
) -> Result<(), Exception> {
    use AgentState::*;
    let by_agent = match (from.unwrap_or(Active), to) {
        (from, to) if from == to => true,
        (Active, Suspended | Waiting | Transit) => true,
        // An agent that sends a request is awake.
        (Suspended | Waiting | Transit, Active) => true,
        (Initiated, Active) => false,
        _ => return Err(impossible_state()),
    };
    if by_agent || *requester == Requester::Platform {
        Ok(())
    } else {
        Err(Exception::Unauthorised)
    }
}

/// The rule is the DF's, except that no agent of another platform may change an entry: the AMS lists this platform's
/// agents only.
fn authorise(requester: &Requester, name: &str) -> Result<(), Exception> {
    match requester {
        Requester::Foreign { .. } => Err(Exception::Unauthorised),
        _ => requester.authorise(name),
    }
}
