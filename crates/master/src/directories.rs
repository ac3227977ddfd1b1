//! Access to the AMS and the DF in the Master's process.

use std::sync::Arc;
use std::time::SystemTime;

use sealbus_bus::{GATEWAY, Mailbox};
use sealbus_fipa::management::{AgentState as AmsState, ApService, DfAgentDescription};
use sealbus_fipa::{AclMessage, Aid};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use sealbus_control::{AgentState, Fault, FaultCode};
use sealbus_management::{Ams, Df, DirectoryLimits, LoadError, Requester};
use sealbus_management::{ChangeError, DirectoryService, Inbox, Outcome};
use sealbus_process::AgentHandle;
use sealbus_store::Store;

/// The most bytes of entries in a part of what a search finds, if there is more than one.
const LONGEST_PART: usize = 1 << 20;

/// A change that the directories must follow.
pub(crate) enum LifeChange {
    /// An agent of the platform is in this state, or is gone.
    State {
        /// Local name.
        agent: String,
        /// The state.
        state: Option<AgentState>,
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
    /// Reads both from the store and starts them.
    ///
    /// # Errors
    /// If their rows cannot be read.
    pub(crate) async fn start(
        ams_agent: AgentHandle,
        df_agent: AgentHandle,
        store: Arc<dyn Store>,
        trust_claims: bool,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, LoadError> {
        let limits = DirectoryLimits::default();
        let ams = Ams::load(ams_agent.aid().clone(), limits.clone(), &*store).await?;
        let df = Df::load(df_agent.aid().clone(), limits, &*store).await?;
        let platform = ams_agent.aid().platform().unwrap_or_default().into();
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
        Ok(Self { ams, df, platform })
    }

    /// Keeps both in line with the agents' lives, until the Master ends. The outcome of a change is awaited elsewhere,
    /// so that many are written at once.
    pub(crate) async fn follow(self, mut changes: mpsc::UnboundedReceiver<LifeChange>) {
        while let Some(change) = changes.recv().await {
            let (agent, state) = match change {
                LifeChange::State { agent, state } => (agent, state),
                LifeChange::Followed(told) => {
                    let entered = self.ams.submit(|_| Ok(Outcome::default())).await;
                    tokio::spawn(async move {
                        // A failed entry is in the log. The waiting task could do nothing about it.
                        let _ = entered.await;
                        let _ = told.send(());
                    });
                    continue;
                }
            };
            let Ok(aid) = Aid::new(format!("{agent}@{}", self.platform)) else {
                continue;
            };
            if state.is_none() && agent == GATEWAY {
                self.gateway_is_at(Vec::new()).await;
            }
            if state.is_none() {
                let name = aid.name.clone();
                let gone = self.df.submit(move |df| Ok(df.agent_gone(&name))).await;
                log_failure(gone, &agent);
            }
            let state = state.map(state_of);
            let followed = self.ams.submit(move |ams| ams.follow(&aid, state)).await;
            log_failure(followed, &agent);
        }
    }

    /// Ends both, once they have answered what they have begun.
    pub(crate) async fn finish(&self) {
        tokio::join!(self.ams.finish(), self.df.finish());
    }

    /// Has the AMS describe the platform with these addresses of its gateway.
    pub(crate) async fn gateway_is_at(&self, addresses: Vec<String>) {
        let services = transports_at(addresses);
        let entered = self.ams.submit(|ams| Ok(ams.set_services(services))).await;
        log_failure(entered, GATEWAY);
    }

    /// The state of an agent in the AMS, if it is there.
    #[cfg(test)]
    pub(crate) async fn ams_state(&self, agent: &Aid) -> Option<AmsState> {
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

/// Waits for a change in a task of its own, and logs a failure.
fn log_failure(
    change: impl Future<Output = Result<(), ChangeError>> + Send + 'static,
    agent: &str,
) {
    let agent = agent.to_owned();
    tokio::spawn(async move {
        if let Err(error) = change.await {
            tracing::warn!(%agent, %error, "not entered in the directories");
        }
    });
}

fn state_of(state: AgentState) -> AmsState {
    match state {
        AgentState::Initiated => AmsState::Initiated,
        AgentState::Active => AmsState::Active,
        AgentState::Suspended => AmsState::Suspended,
        AgentState::Waiting => AmsState::Waiting,
        AgentState::Transit => AmsState::Transit,
    }
}
