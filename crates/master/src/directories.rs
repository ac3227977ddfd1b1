//! Access to the AMS and the DF in the Master's process.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_bus::{GATEWAY, Mailbox};
use sealbus_fipa::management::{AgentState, ApService, DfAgentDescription};
use sealbus_fipa::{AclMessage, Aid};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

use super::desk::DeskHandle;
use sealbus_control::{Fault, FaultCode, PlacedState};
use sealbus_management::{Ams, Df, DirectoryLimits, LoadError, Requester};
use sealbus_management::{ChangeError, DirectoryService, Inbox, Outcome};
use sealbus_process::AgentHandle;
use sealbus_store::Store;

/// The most bytes of entries in a part of a search's result, if there is more than one entry.
const LONGEST_PART: usize = 1 << 20;
/// The pause before a change that the store did not keep is entered again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A change that the directories must follow.
pub(crate) enum LifeChange {
    /// An agent of the platform is in this state, or is gone.
    State {
        /// Local name.
        agent: String,
        /// The state.
        state: Option<PlacedState>,
    },
    /// Must be answered when the earlier changes are entered.
    Followed(oneshot::Sender<()>),
}

/// A system agent's mailbox. The agent exists as long as the directory that reads the mailbox.
struct AgentInbox(AgentHandle);

impl Inbox for AgentInbox {
    fn mailbox(&mut self) -> &mut Mailbox {
        self.0.mailbox()
    }
}

/// AMS and DF, running.
#[derive(Clone)]
pub(crate) struct Directories {
    ams: DirectoryService<Ams>,
    df: DirectoryService<Df>,
    platform: Arc<str>,
}

impl Directories {
    /// Reads both from the store and starts them. Also returns the agents of this platform that they know from before.
    ///
    /// # Errors
    /// If their rows cannot be read.
    pub(crate) async fn start(
        ams_agent: AgentHandle,
        df_agent: AgentHandle,
        store: Arc<dyn Store>,
        trust_claims: bool,
        tasks: &mut JoinSet<()>,
    ) -> Result<(Self, BTreeSet<String>), LoadError> {
        let limits = DirectoryLimits::default();
        let ams = Ams::load(ams_agent.aid().clone(), limits.clone(), &*store).await?;
        let df = Df::load(df_agent.aid().clone(), limits, &*store).await?;
        let platform: Arc<str> = ams_agent.aid().platform().unwrap_or_default().into();
        let own = |name: &str| -> Option<String> {
            let (agent, home) = name.rsplit_once('@')?;
            (*home == *platform).then(|| agent.to_owned())
        };
        let known: BTreeSet<String> = ams
            .known_agents()
            .chain(df.known_agents())
            .filter_map(own)
            .collect();
        let outbox = ams_agent.outbox().clone();
        let (ams, run) = DirectoryService::new(
            ams,
            AgentInbox(ams_agent),
            outbox,
            store.clone(),
            trust_claims,
        );
        tasks.spawn(run);
        let outbox = df_agent.outbox().clone();
        let (df, run) =
            DirectoryService::new(df, AgentInbox(df_agent), outbox, store, trust_claims);
        tasks.spawn(run);
        Ok((Self { ams, df, platform }, known))
    }

    /// Keeps both in line with the agents' lives, until the Master ends. Agents of `known` that have ended are removed first,
    /// because a Master that was killed may not have reported their end. Outcomes are awaited elsewhere, so that many changes
    /// are written at once.
    pub(crate) async fn follow(
        self,
        desk: DeskHandle,
        known: BTreeSet<String>,
        mut changes: mpsc::UnboundedReceiver<LifeChange>,
    ) {
        let ended = desk.run(move |desk, _| {
            let has_ended = |agent: &String| desk.state.life(agent).is_none();
            Ok(known.into_iter().filter(has_ended).collect::<Vec<_>>())
        });
        // If the store fails now, or this Master is ending, the next start removes them.
        let ended = ended.await.unwrap_or_default();
        let mut entering = Entering {
            directories: self,
            last: 0,
            latest: HashMap::new(),
            outcomes: JoinSet::new(),
        };
        for agent in ended {
            entering.begin(&agent, None).await;
        }
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Some(LifeChange::State { agent, state }) => entering.begin(&agent, state).await,
                    Some(LifeChange::Followed(told)) => entering.directories.tell(told).await,
                    None => return,
                },
                Some(outcome) = entering.outcomes.join_next() => entering.end(outcome).await,
            }
        }
    }

    /// Tells the waiting task when the earlier changes are entered.
    async fn tell(&self, told: oneshot::Sender<()>) {
        let entered = self.ams.submit(|_| Ok(Outcome::default())).await;
        tokio::spawn(async move {
            // A failed entry is in the log. The waiting task could do nothing about it.
            let _ = entered.await;
            let _ = told.send(());
        });
    }

    /// Ends both, once they have answered the requests that they have begun.
    pub(crate) async fn finish(&self) {
        tokio::join!(self.ams.finish(), self.df.finish());
    }

    /// Has the AMS describe the platform with these addresses of its gateway.
    pub(crate) async fn gateway_is_at(&self, addresses: Vec<String>) {
        let services = transports_at(addresses);
        let entered = self.ams.change(|ams| Ok(ams.set_services(services)));
        if let Err(error) = entered.await {
            tracing::warn!(%error, "the gateway's addresses are not entered in the AMS");
        }
    }

    /// The state of an agent in the AMS, if it is there.
    #[cfg(test)]
    pub(crate) async fn ams_state(&self, agent: &Aid) -> Option<AgentState> {
        let name = agent.name.clone();
        self.ams
            .read(move |ams| ams.get(&name).and_then(|entry| entry.state))
            .await
            .flatten()
    }

    /// A part of the entries of the DF that match, as [`sealbus_management::Df::search_part`] returns them.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if the Master is ending.
    pub(crate) async fn search(
        &self,
        template: DfAgentDescription,
        first: u64,
        most: usize,
    ) -> Result<(Vec<DfAgentDescription>, Option<u64>), Fault> {
        let length = match most {
            usize::MAX => usize::MAX,
            _ => LONGEST_PART,
        };
        self.df
            .read(move |df| {
                let (found, rest) = df.search_part(&template, first, most, length);
                (found.into_iter().cloned().collect(), rest)
            })
            .await
            .ok_or_else(ending)
    }

    /// Has the DF register with another one.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`] if the Master is ending.
    pub(crate) async fn join(&self, df: Aid) -> Result<(), Fault> {
        let joining = self
            .df
            .change(move |own| Ok(own.join(&df, SystemTime::now())));
        joining.await.map_err(|_| ending())
    }

    /// Makes the DF take a message in an agent's name, by the operator's authority. Returns the DF's answer.
    ///
    /// # Errors
    /// [`FaultCode::Storage`], or [`FaultCode::Unavailable`] if the Master is ending.
    pub(crate) async fn on_behalf(
        &self,
        agent: &str,
        message: AclMessage,
    ) -> Result<AclMessage, Fault> {
        let requester = Requester::Agent(agent.to_owned());
        let (answer, answered) = oneshot::channel();
        let change = self.df.change(move |df| {
            let mut outcome = df.handle(&message, &requester, SystemTime::now());
            // The operator gets this answer. The other messages notify subscribers.
            let _ = answer.send(outcome.take_answer());
            Ok(outcome)
        });
        change.await.map_err(|error| match error {
            ChangeError::NotKept(_) => Fault::new(FaultCode::Storage, error.to_string()),
            _ => ending(),
        })?;
        answered.await.ok().flatten().ok_or_else(ending)
    }
}

/// A change of an agent's life.
struct Entry {
    /// A later change has a higher number.
    number: u64,
    agent: Aid,
    state: Option<PlacedState>,
}

/// Enters changes in both, and enters those again that the store did not keep.
struct Entering {
    directories: Directories,
    /// The number of the last change.
    last: u64,
    /// The number of each agent's last change, until that is in the store.
    latest: HashMap<String, u64>,
    /// Changes on their way to the store. Each comes back, and says whether the store did not keep it.
    outcomes: JoinSet<(Entry, bool)>,
}

impl Entering {
    /// Enters the next change of an agent.
    async fn begin(&mut self, agent: &str, state: Option<PlacedState>) {
        let Ok(agent) = Aid::new(format!("{agent}@{}", self.directories.platform)) else {
            return;
        };
        self.last += 1;
        let number = self.last;
        self.latest.insert(agent.name.clone(), number);
        let entry = Entry {
            number,
            agent,
            state,
        };
        self.enter(entry).await;
    }

    async fn enter(&mut self, entry: Entry) {
        let Directories { ams, df, .. } = &self.directories;
        let (agent, state) = (entry.agent.clone(), entry.state.map(state_of));
        let has_no_gateway = state.is_none() && agent.local_name() == GATEWAY;
        let removed = if state.is_none() {
            let name = agent.name.clone();
            Some(df.submit(move |df| Ok(df.agent_gone(&name))).await)
        } else {
            None
        };
        let followed = ams.submit(move |ams| {
            let mut outcome = ams.follow(&agent, state)?;
            if has_no_gateway {
                outcome.append(ams.set_services(Vec::new()));
            }
            Ok(outcome)
        });
        let followed = followed.await;
        self.outcomes.spawn(async move {
            let mut result = followed.await;
            if let Some(removed) = removed {
                result = result.and(removed.await);
            }
            let is_lost = matches!(result, Err(ChangeError::NotKept(_)));
            if let Err(error) = result {
                let agent = entry.agent.local_name();
                tracing::warn!(%agent, %error, "not entered in the directories");
            }
            if is_lost {
                tokio::time::sleep(AFTER_FAILURE).await;
            }
            (entry, is_lost)
        });
    }

    /// Enters a change again if it was lost, unless the agent has changed since.
    async fn end(&mut self, outcome: Result<(Entry, bool), JoinError>) {
        // An error means that the Master is ending.
        let Ok((entry, is_lost)) = outcome else {
            return;
        };
        if self.latest.get(&entry.agent.name) != Some(&entry.number) {
            return;
        }
        if is_lost {
            self.enter(entry).await;
        } else {
            self.latest.remove(&entry.agent.name);
        }
    }
}

fn ending() -> Fault {
    Fault::new(FaultCode::Unavailable, "the Master is ending")
}

/// The message transports of a gateway with these addresses, by the names that FIPA gives them (FIPA00084, FIPA00075).
fn transports_at(addresses: Vec<String>) -> Vec<ApService> {
    let is_http = |address: &String| address.starts_with("http");
    let (http, iiop): (Vec<String>, Vec<String>) = addresses.into_iter().partition(is_http);
    let transports = [
        ("fipa.mts.mtp.http.std", http),
        ("fipa.mts.mtp.iiop.std", iiop),
    ];
    let offered = transports.into_iter().filter(|(_, at)| !at.is_empty());
    let service = |(name, addresses): (&str, Vec<String>)| ApService {
        name: name.to_owned(),
        service_type: name.to_owned(),
        addresses,
    };
    offered.map(service).collect()
}

fn state_of(state: PlacedState) -> AgentState {
    match state {
        PlacedState::Initiated => AgentState::Initiated,
        PlacedState::Active => AgentState::Active,
        PlacedState::Suspended => AgentState::Suspended,
        PlacedState::Waiting => AgentState::Waiting,
        PlacedState::Transit => AgentState::Transit,
    }
}

#[cfg(test)]
mod tests;
