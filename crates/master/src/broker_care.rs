//! The Master's care for the broker: it starts or finds the broker, keeps logins and queues as the desk says, and
//! returns dead letters.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::{BrokerFailure, BrokerSettings, Placed, Site};
use sealbus_bus::Outbox;
use sealbus_seal::{
    CertificateError, Credential, KeyError, KeyPair, PlatformName, SecurityLevel, Trust,
};
use tokio::sync::watch;

use super::broker::{Broker, unavailable};
use super::broker_certificate::certify_broker;
use super::desk::{Desk, DeskHandle, News};
use super::state::not_a_member;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::names::SYSTEM_AGENTS;
use sealbus_control::{Fault, RefusalRecord, TransportDescription};

/// The folder of a broker in the Master's state directory.
const FOLDER: &str = "broker";
/// The longest time between two looks at the broker, in case it was away during a change.
const LOOK: Duration = Duration::from_secs(5);
/// Changes within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(200);
/// Batches of dead letters that are taken before the queues are looked at again.
const PARTS: usize = 20;

/// The reason why the platform has no broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerStartError {
    /// The broker could not be started, found or prepared.
    #[error(transparent)]
    Broker(#[from] BrokerFailure),
    /// The broker could not be certified.
    #[error("the broker was not certified: {0}")]
    Fault(#[from] Fault),
    /// A key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate is not readable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl Broker {
    /// Starts or finds the broker, admits the system agents, and tells the desk.
    pub(crate) async fn start(
        settings: &dyn BrokerSettings,
        desk: &DeskHandle,
        root: &[u8],
        level: SecurityLevel,
        address: IpAddr,
        directory: &Path,
    ) -> Result<Arc<Self>, BrokerStartError> {
        let (credential, platform, trust) = broker_credential(desk, address).await?;
        let site = Site {
            platform: &platform,
            level,
            address,
            folder: &directory.join(FOLDER),
            root,
            credential: &credential,
            trust,
        };
        let found = settings.start(&site).await?;
        let description = found.description.clone();
        let broker = Arc::new(Self::new(found, level, platform, address));
        for agent in SYSTEM_AGENTS {
            if let Err(error) = broker.admit(agent, address).await {
                broker.stop().await;
                return Err(error.into());
            }
        }
        let own = broker.clone();
        desk.run(move |desk, _| {
            desk.platform.transport = TransportDescription::Broker(description);
            desk.broker = Some(own);
            Ok(())
        })
        .await?;
        Ok(broker)
    }

    /// Admits agents that are about to start on `node`.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`]. Asking again may help.
    pub(crate) async fn admit_to(
        &self,
        desk: &DeskHandle,
        node: &str,
        agents: &[String],
    ) -> Result<(), Fault> {
        let name = node.to_owned();
        let address = desk
            .run(move |desk, _| {
                Ok(desk
                    .state
                    .nodes()
                    .get(&name)
                    .map(|node| node.description.address))
            })
            .await?
            .ok_or_else(|| not_a_member(node))?;
        for agent in agents {
            self.admit(agent, address).await.map_err(unavailable)?;
        }
        Ok(())
    }

    /// Removes the logins of agents and processes that may no longer log in, until the Master ends. A flood of dead
    /// letters does not delay this.
    pub(crate) async fn follow_logins(
        self: Arc<Self>,
        desk: DeskHandle,
        mut news: watch::Receiver<News>,
    ) {
        let mut was_away = false;
        loop {
            let placed = || self.placed(&desk);
            match self.accounts.dismiss_others(placed).await {
                Ok(dismissed) => {
                    for account in dismissed {
                        let (identity, address) = (account.identity, account.address);
                        tracing::info!(%identity, %address, "may no longer log in to the broker");
                    }
                    if was_away {
                        tracing::info!("the broker can be administered again");
                    }
                    was_away = false;
                }
                Err(error) => {
                    if !was_away {
                        tracing::warn!(%error, "the logins at the broker are checked again later");
                    }
                    was_away = true;
                }
            }
            if !wait(&mut news).await {
                return;
            }
        }
    }

    /// Keeps the broker's program running, closes the queues of agents that have ended, and returns undelivered
    /// messages to their senders in the name of `ams`, until the Master ends.
    pub(crate) async fn follow_queues(
        self: Arc<Self>,
        desk: DeskHandle,
        mut news: watch::Receiver<News>,
        ams: Arc<Outbox>,
    ) {
        loop {
            self.keep_running().await;
            match self.look(&desk, &ams).await {
                // The checks of logins are as frequent, and report that the broker is away.
                Err(error) => tracing::debug!(%error, "queues are looked at again later"),
                Ok(true) => continue,
                Ok(false) => {}
            }
            if !wait(&mut news).await {
                return;
            }
        }
    }

    /// Looks at the queues. Returns whether there may be more to do at once.
    pub(super) async fn look(
        &self,
        desk: &DeskHandle,
        ams: &Outbox,
    ) -> Result<bool, BrokerFailure> {
        // A queue that cannot be closed keeps no sender from its notice.
        let closed = self.accounts.close_others(|| self.placed(desk)).await;
        let taken = self.take_dead(desk, ams).await;
        self.alarms.look(&self.administration.members().await?);
        Ok(closed? | taken?)
    }

    /// The places of all agents; `None` if the Master ends.
    async fn placed(&self, desk: &DeskHandle) -> Option<Placed> {
        let address = self.address;
        desk.run(move |desk, _| Ok(placed(desk, address)))
            .await
            .ok()
    }

    /// Counts some undelivered messages, and tells their senders. Returns whether there may be more.
    async fn take_dead(&self, desk: &DeskHandle, ams: &Outbox) -> Result<bool, BrokerFailure> {
        for _ in 0..PARTS {
            let dead = self.administration.take_dead().await?;
            if dead.is_empty() {
                return Ok(false);
            }
            let is_proved = self.level.authenticates();
            for letter in dead {
                let refusal = |receiver, from| latest_refusal(desk, receiver, from);
                self.dead_letters
                    .note(letter, is_proved, refusal, ams)
                    .await;
            }
        }
        Ok(true)
    }
}

/// The latest refusal of a message of `from` to `receiver`.
async fn latest_refusal(
    desk: &DeskHandle,
    receiver: String,
    from: Option<String>,
) -> Option<RefusalRecord> {
    let refusal = desk.run(move |desk, _| {
        let is_about = |record: &&RefusalRecord| {
            record.receiver.as_deref() == Some(&receiver)
                && from.as_ref().is_none_or(|from| record.who == *from)
        };
        let latest = desk.refusals.latest().into_iter();
        Ok(latest.rev().find(is_about).cloned())
    });
    refusal.await.ok().flatten()
}

/// Waits until something may have changed. Returns whether the Master goes on.
async fn wait(news: &mut watch::Receiver<News>) -> bool {
    tokio::select! {
        changed = news.changed() => if changed.is_err() { return false },
        () = tokio::time::sleep(LOOK) => {}
    }
    tokio::time::sleep(TOGETHER).await;
    news.borrow_and_update();
    true
}

/// The places of all agents. The Master's own agents are at `master`.
fn placed(desk: &Desk, master: IpAddr) -> Placed {
    let mut placed = Placed::default();
    let whole = |name: &str| format!("{name}@{}", desk.name);
    let nodes = desk.state.nodes();
    for (name, node) in nodes {
        if !node.state.is_gone() {
            placed.admit(whole(name), node.description.address);
            placed.processes.insert(node.process.clone());
        }
        placed.awaited.insert(whole(name));
    }
    for agent in SYSTEM_AGENTS {
        placed.admit(whole(agent), master);
    }
    for group in desk.state.groups().values() {
        if group.wanted {
            let agents = group.agents.iter();
            placed.awaited.extend(agents.map(|agent| whole(agent)));
        }
        for process in group.processes() {
            placed.processes.insert(process.id.clone());
            let address = match nodes.get(&process.node) {
                Some(node) => node.description.address,
                None if process.node == MASTER_NODE => master,
                None => continue,
            };
            for agent in process.agents.keys() {
                if !desk.state.is_barred(&process.id, agent) {
                    placed.admit(whole(agent), address);
                }
            }
        }
    }
    placed
}

/// The credential that the Master and the broker show to each other, with the platform and its trust.
async fn broker_credential(
    desk: &DeskHandle,
    address: IpAddr,
) -> Result<(Credential, PlatformName, Arc<Trust>), BrokerStartError> {
    let key = KeyPair::generate()?;
    let (_, chain) = certify_broker(desk, address, key.signing_request()?).await?;
    let (platform, trust) = desk
        .run(|desk, _| Ok((desk.name.clone(), desk.ca.trust().clone())))
        .await?;
    Ok((Credential::new(key, chain)?, platform, trust))
}
