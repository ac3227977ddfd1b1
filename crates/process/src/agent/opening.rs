//! Putting an agent on the platform.

use sealbus_bus::{AttachError, GATEWAY};
use sealbus_control::attachment::AgentReport;
use sealbus_control::{PlacedState, Subject};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{AgentHandle, Parting, Process};
use crate::Shared;
use crate::error::OpenAgentError;
use crate::long_lived::LongLivedKey;

/// A start that somebody waits for.
struct Start<'a> {
    shared: &'a Shared,
    name: &'a str,
    task: Option<JoinHandle<()>>,
}

impl Drop for Start<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take().filter(|task| !task.is_finished()) {
            let mut given_up = self.shared.given_up.lock();
            given_up.retain(|_, task| !task.is_finished());
            given_up.insert(self.name.to_owned(), task);
        }
    }
}

impl Process {
    /// Gives the agent with this local name a long-lived identity, whenever it is opened from now on. All its
    /// certificates name the identity. The key is used only in this process.
    pub fn identify(&self, name: &str, key: LongLivedKey) {
        self.shared.certifier.identify(name, key);
    }

    /// Puts an agent on the platform: makes its key here, has it certified, attaches it to the bus, and reports it as
    /// active. When this returns, the AMS of an embedded platform knows about the agent. Elsewhere the node knows, and
    /// tells the AMS.
    ///
    /// Others find the agent once the process has [announced](Self::announce) itself. The process does so when all
    /// agents placed in it are open.
    pub async fn agent(&self, name: &str) -> Result<AgentHandle, OpenAgentError> {
        self.agent_with(name, None).await
    }

    /// Like [`agent`](Self::agent), with this long-lived identity until the agent leaves. With `None`, the identity
    /// that [`identify`](Self::identify) gave stays.
    pub async fn agent_with(
        &self,
        name: &str,
        identity: Option<LongLivedKey>,
    ) -> Result<AgentHandle, OpenAgentError> {
        if name == GATEWAY {
            return Err(OpenAgentError::Reserved(name.to_owned()));
        }
        self.open_with(name, identity).await
    }

    /// Like [`agent`](Self::agent), but also for the gateway.
    pub async fn open_agent(&self, name: &str) -> Result<AgentHandle, OpenAgentError> {
        self.open_with(name, None).await
    }

    /// If the caller gives up half-way, the start goes on and the agent then leaves, because the platform may know of
    /// it already.
    async fn open_with(
        &self,
        name: &str,
        identity: Option<LongLivedKey>,
    ) -> Result<AgentHandle, OpenAgentError> {
        let former = self.shared.given_up.lock().remove(name);
        let (opened, outcome) = oneshot::channel();
        let (process, agent) = (self.clone(), name.to_owned());
        let task = tokio::spawn(async move {
            if let Some(former) = former {
                // The former agent must leave before this one comes.
                let _ = former.await;
            }
            // If nobody waits any more, the agent leaves here.
            drop(opened.send(process.open_whole(&agent, identity).await));
        });
        let _start = Start {
            shared: &self.shared,
            name,
            task: Some(task),
        };
        outcome.await.unwrap_or_else(|_| {
            Err(OpenAgentError::Ending {
                agent: name.to_owned(),
                reason: "its runtime has ended".to_owned(),
            })
        })
    }

    async fn open_whole(
        &self,
        name: &str,
        identity: Option<LongLivedKey>,
    ) -> Result<AgentHandle, OpenAgentError> {
        let shared = &self.shared;
        let whole = format!("{name}@{}", shared.platform);
        shared.check_running(&whole)?;
        if shared.bus.agent(&whole).is_some() {
            return Err(AttachError::NameTaken(whole).into());
        }
        shared.reports.departures_told().await;
        let subject = Subject::Agent {
            name: name.to_owned(),
        };
        let identity = identity.or_else(|| shared.certifier.identity_of(name));
        let certified = shared
            .certifier
            .request_certificate(subject, &whole, identity, false)
            .await
            .map_err(|source| OpenAgentError::Certification {
                agent: whole.clone(),
                source,
            })?;
        // This comes before others hear of the agent.
        shared.publish_key(name, &certified).await;
        let inherited = shared.inherited.lock().remove(name);
        let (messages, state) = match inherited {
            Some(frozen) => {
                shared.take_over_keys(&certified).await;
                let revived = shared.revive(frozen.mailbox, &whole);
                let messages = revived.map_err(|what| OpenAgentError::Inheritance {
                    agent: whole.clone(),
                    what: what.to_string(),
                })?;
                (messages, Some(frozen.state.0))
            }
            None => (Vec::new(), None),
        };
        let credential = Some(certified.credential.clone());
        // This comes before others can write to the agent, so that no newer message comes first.
        let (outbox, mailbox) = shared
            .bus
            .attach_moved(&whole, credential, None, messages)?;
        let entry = shared.enter(outbox, &certified);
        // The wish to stop may have come in the meantime.
        if let Err(error) = shared.check_running(&whole) {
            shared.remove(&entry, &Parting::Ended);
            return Err(error);
        }
        // From here on, the agent is removed again if the caller does not wait until the end.
        let handle = AgentHandle::new(self.clone(), entry, mailbox, state);
        // This comes first: an agent must not count as active before others can reach it.
        if shared.was_last_to_open(name)
            && let Err(error) = self.announce().await
        {
            tracing::warn!(%error, "others cannot reach this process yet");
        }
        let active = AgentReport::State {
            state: PlacedState::Active,
        };
        let mut ended = shared.ended.subscribe();
        tokio::select! {
            () = shared.reports.tell(name, active) => {}
            _ = ended.wait_for(Option::is_some) => {}
        }
        Ok(handle)
    }
}
