//! A whole platform inside one process: Master, CA service, AMS, DF and the program's own agents, on one bus. It needs
//! no socket and no file, and every agent is certified. A program may let watchers in, through the operators' socket.

mod watched;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use sealbus_bus::{Bus, BusConfig};
use sealbus_seal::{Fingerprint, PlatformName};
use tokio::runtime::Handle;

pub use watched::{Watched, WatchedError};

use crate::desk::{Desk, DeskHandle};
use crate::{
    Authorities, AuthoritiesError, FoundationError, HostedProcess, OwnHost, PlatformSettings,
    SystemAgents, SystemError, lay, timestamp_now,
};
use sealbus_control::Fault;
use sealbus_control::host::Host;
use sealbus_keeping::post::PostPlace;
use sealbus_process::{OpenError, Process};
use sealbus_store::{MemoryStore, Store};

/// Name of the group of the program's own agents.
const PROGRAM: &str = "program";

/// An embedded platform. It ends when it is dropped.
pub struct EmbeddedPlatform {
    host: Arc<dyn Host>,
    bus: Bus,
    system: Arc<SystemAgents>,
    desk: DeskHandle,
    store: Arc<dyn Store>,
    root: Fingerprint,
}

/// The reason why an embedded platform could not be started.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The platform's authorities could not be made.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The platform's state could not be begun.
    #[error(transparent)]
    Foundation(#[from] FoundationError),
    /// A process could not be adopted.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The system agents' process could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A system agent could not be started.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl EmbeddedPlatform {
    /// Starts a platform of this name. Its tasks run on the current tokio runtime. Persistent messages are kept as long
    /// as the platform exists, in a temporary folder that is made with the first of them.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn start(name: PlatformName) -> Result<Self, EmbeddedError> {
        Self::start_in(name, None).await
    }

    /// From now on agents get workload tokens, which name their issuer by this URL.
    ///
    /// # Errors
    /// If the platform ends meanwhile.
    pub async fn issue_workload_tokens(&self, issuer: String) -> Result<(), EmbeddedError> {
        let issuing = move |desk: &mut Desk, _| {
            desk.ca.issue_workload_tokens(Some(issuer));
            Ok(())
        };
        Ok(self.desk.run(issuing).await?)
    }

    /// Like [`start`](Self::start), but persistent messages are kept in this folder, which later runs of the program
    /// can use too.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn start_in(
        name: PlatformName,
        folder: Option<PathBuf>,
    ) -> Result<Self, EmbeddedError> {
        let settings = PlatformSettings::new(name.clone());
        let authorities = Authorities::fresh(&name, timestamp_now())?;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let foundation = lay(&settings, authorities, store.clone(), None, nowhere).await?;
        let bus = Bus::new(BusConfig::new(name), Handle::current());
        let (system, _) = OwnHost::adopt(
            foundation.desk.clone(),
            HostedProcess::system(None),
            foundation.news.clone(),
        )
        .await?;
        let process = Process::open(system, Some(bus.clone())).await?;
        let (desk, news) = (foundation.desk.clone(), foundation.news.clone());
        let root = Fingerprint::of(&foundation.root);
        let system =
            SystemAgents::start(process.clone(), process, foundation, store.clone(), None).await?;
        let place = HostedProcess {
            group: PROGRAM.to_owned(),
            agents: Vec::new(),
            open: true,
            listen: None,
            controls: false,
            post: Some(folder.map_or(PostPlace::Temporary, PostPlace::Folder)),
        };
        let (host, _) = OwnHost::adopt(desk.clone(), place, news).await?;
        Ok(Self {
            host,
            bus,
            system: Arc::new(system),
            desk,
            store,
            root,
        })
    }

    /// The platform, for the program's process.
    pub fn host(&self) -> Arc<dyn Host> {
        self.host.clone()
    }

    /// The bus with the system agents on it. The program's agents must use the same bus.
    pub fn bus(&self) -> Bus {
        self.bus.clone()
    }
}

#[cfg(test)]
mod tests {
    use sealbus_bus::Delivery;
    use sealbus_fipa::management::AgentState;
    use sealbus_fipa::{AclMessage, Performative};

    use super::*;

    #[tokio::test]
    async fn agents_of_one_program_are_certified_and_talk() {
        let name = PlatformName::new("home").unwrap();
        let platform = EmbeddedPlatform::start(name).await.unwrap();
        let process = Process::open(platform.host(), Some(platform.bus()))
            .await
            .unwrap();
        let alice = process.agent("alice").await.unwrap();
        let mut bob = process.agent("bob").await.unwrap();
        let hello = AclMessage::new(Performative::Inform)
            .with_receiver(bob.aid().clone())
            .with_content("hello");
        alice.send(hello).await.unwrap();
        let received = bob.receive().await.unwrap();
        assert_eq!(received.message().content_text().as_deref(), Some("hello"));
        let credential = process
            .bus()
            .agent("alice@home")
            .unwrap()
            .credential()
            .unwrap();
        let certificate = credential.certificate().unwrap();
        assert_eq!(
            certificate.identity().to_string(),
            "spiffe://home/agent/alice"
        );
    }

    async fn open(folder: Option<PathBuf>) -> (EmbeddedPlatform, Process) {
        let name = PlatformName::new("home").unwrap();
        let platform = EmbeddedPlatform::start_in(name, folder).await.unwrap();
        let process = Process::open(platform.host(), Some(platform.bus()))
            .await
            .unwrap();
        (platform, process)
    }

    async fn post(process: &Process, count: u32) {
        let alice = process.agent("alice").await.unwrap();
        for number in 0..count {
            let message = AclMessage::new(Performative::Inform)
                .with_receiver(process.peer("bob").unwrap())
                .with_content(number.to_string());
            let kept = Delivery::persistent();
            alice.send_with(message, kept).await.unwrap();
        }
    }

    async fn read(process: &Process, count: u32) {
        let mut bob = process.agent("bob").await.unwrap();
        for number in 0..count {
            let received = bob.receive().await.unwrap();
            assert!(received.kept().is_some());
            let message = received.into_message();
            assert_eq!(message.content_text().unwrap(), number.to_string());
        }
        assert!(bob.mailbox().try_recv().is_none());
    }

    #[tokio::test]
    async fn messages_wait_for_agents_that_come_later_in_this_run_or_a_later_one() {
        let (_platform, process) = open(None).await;
        post(&process, 5).await;
        read(&process, 5).await;

        let folder = tempfile::tempdir().unwrap();
        let (platform, process) = open(Some(folder.path().to_owned())).await;
        post(&process, 5).await;
        process.close().await;
        drop((process, platform));
        let (_platform, process) = again(folder.path()).await;
        read(&process, 5).await;
    }

    /// Starts a later run, once the former one has released the folder. Until then the former run uses the journal.
    async fn again(folder: &std::path::Path) -> (EmbeddedPlatform, Process) {
        loop {
            let (platform, process) = open(Some(folder.to_owned())).await;
            let probe = process.agent("probe").await.unwrap();
            let message = AclMessage::new(Performative::Inform)
                .with_receiver(process.peer("nobody").unwrap())
                .with_content("is anybody here?");
            let kept = Delivery::persistent();
            match probe.send_with(message, kept).await {
                Ok(()) => {
                    drop(probe);
                    return (platform, process);
                }
                Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
            }
            drop(probe);
            process.close().await;
            drop((process, platform));
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    #[tokio::test]
    async fn an_agent_is_active_in_the_ams_once_it_is_let_in() {
        let name = PlatformName::new("home").unwrap();
        let platform = EmbeddedPlatform::start(name).await.unwrap();
        let process = Process::open(platform.host(), Some(platform.bus()))
            .await
            .unwrap();
        let opening = (0..50).map(|number| {
            let (process, directories) = (&process, &platform.system.directories);
            async move {
                let agent = process.agent(&format!("agent-{number}")).await.unwrap();
                assert_eq!(
                    directories.ams_state(agent.aid()).await,
                    Some(AgentState::Active)
                );
            }
        });
        futures_util::future::join_all(opening).await;
    }

    #[tokio::test]
    async fn what_is_said_of_one_that_left_is_not_said_of_the_next_of_its_name() {
        let name = PlatformName::new("home").unwrap();
        let platform = EmbeddedPlatform::start(name).await.unwrap();
        let process = Process::open(platform.host(), Some(platform.bus()))
            .await
            .unwrap();
        for _ in 0..20 {
            let alice = process.agent("alice").await.unwrap();
            alice.leave(sealbus_process::Parting::Ended);
            let alice = process.agent("alice").await.unwrap();
            // By now all queued reports have arrived.
            let other = process.agent("other").await.unwrap();
            let ams = &platform.system.directories;
            assert_eq!(ams.ams_state(alice.aid()).await, Some(AgentState::Active));
            assert_eq!(alice.wishes().current(), None, "it was cut off");
            drop((alice, other));
        }
    }

    #[tokio::test]
    async fn an_agent_that_reads_no_answers_gets_few_at_a_time() {
        let (_platform, process) = open(None).await;
        let alive = || Handle::current().metrics().num_alive_tasks();
        for service in [sealbus_control::names::CA, sealbus_control::names::MASTER] {
            let mallory = process.agent("mallory").await.unwrap();
            let mut alice = process.agent("alice").await.unwrap();
            let request = |number: u32| {
                AclMessage::new(Performative::Request)
                    .with_receiver(process.peer(service).unwrap())
                    .with_ontology(sealbus_control::node::ONTOLOGY)
                    .with_reply_with(number.to_string())
                    .with_content("{}")
            };
            // Few answers find room beside these.
            for _ in 0..8 {
                let message = AclMessage::new(Performative::Inform)
                    .with_receiver(mallory.aid().clone())
                    .with_content("x".repeat((1 << 20) - 500));
                alice.send(message).await.unwrap();
            }
            let before = alive();
            for number in 0..100 {
                mallory.send(request(number)).await.unwrap();
                alice.send(request(number)).await.unwrap();
                let answer = alice.receive().await.unwrap().into_message();
                assert_eq!(answer.performative, Performative::Failure);
            }
            let more = alive().saturating_sub(before);
            assert!(more < 50, "{service} works on {more} requests");
        }
    }

    #[tokio::test]
    async fn a_system_agents_name_is_taken() {
        let name = PlatformName::new("home").unwrap();
        let platform = EmbeddedPlatform::start(name).await.unwrap();
        let process = Process::open(platform.host(), Some(platform.bus()))
            .await
            .unwrap();
        assert!(process.agent("master").await.is_err());
        process
            .agent("alice")
            .await
            .unwrap()
            .leave(sealbus_process::Parting::Ended);
        // Once the agent has left, its name is free again.
        process.agent("alice").await.unwrap();
    }
}
