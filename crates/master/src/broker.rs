//! The platform's broker: its logins, its queues, and, if the Master started it, its process.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::{Accounts, Administration, BrokerFailure, Member, Program, RunningBroker};
use sealbus_seal::{Certificate, Identity, PlatformName, SecurityLevel};
use tokio::sync::Mutex;

use super::broker_alarms::{BrokerAlarms, shown};
use super::dead_letters::DeadLetters;
use sealbus_control::admin::BrokerStatus;
use sealbus_control::{Blob, Fault, FaultCode};

/// How long a queue must be empty before it is removed. A broker may update its counts only every 5 s, and may learn
/// late that a reader died.
const SETTLING: Duration = Duration::from_secs(15);
/// The platform's broker.
pub(crate) struct Broker {
    pub(super) administration: Arc<dyn Administration>,
    pub(super) accounts: Accounts,
    pub(super) level: SecurityLevel,
    pub(super) platform: PlatformName,
    /// The address in the certificates of the Master's own agents.
    pub(super) address: IpAddr,
    /// The program, if the Master started it.
    program: Mutex<Option<Box<dyn Program>>>,
    addresses: Vec<String>,
    pub(super) dead_letters: DeadLetters,
    pub(super) alarms: BrokerAlarms,
}

impl Broker {
    /// The broker that was started or found. `address` is in the certificates of the Master's own agents.
    pub(super) fn new(
        found: RunningBroker,
        level: SecurityLevel,
        platform: PlatformName,
        address: IpAddr,
    ) -> Self {
        let promise = found.description.promise;
        Self {
            accounts: Accounts::new(found.administration.clone(), level, promise, SETTLING),
            administration: found.administration,
            level,
            platform,
            address,
            program: Mutex::new(found.program),
            addresses: found.description.addresses,
            dead_letters: DeadLetters::default(),
            alarms: BrokerAlarms::default(),
        }
    }

    /// Allows an agent to log in from `address`. From now on messages wait for the agent.
    pub(super) async fn admit(&self, agent: &str, address: IpAddr) -> Result<(), BrokerFailure> {
        let identity = Identity::agent(&self.platform, agent).map_err(BrokerFailure::new)?;
        self.accounts.admit(&identity, address).await
    }

    /// Allows a newly certified process to log in. From now on frames from other processes wait for it. Certificates of
    /// other identities are ignored.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`]. Asking again may help.
    pub(crate) async fn admit_certified(&self, chain: &[Blob]) -> Result<(), Fault> {
        let certificate = chain
            .first()
            .and_then(|leaf| Certificate::parse(&leaf.0).ok());
        let Some(certificate) = certificate else {
            return Ok(());
        };
        let (identity, address) = (certificate.identity(), certificate.address());
        let (Identity::Process { .. }, Some(address)) = (identity, address) else {
            return Ok(());
        };
        self.accounts
            .admit(identity, address)
            .await
            .map_err(unavailable)
    }

    /// Restarts a program that has died.
    pub(super) async fn keep_running(&self) {
        let mut program = self.program.lock().await;
        let Some(program) = program.as_mut() else {
            return;
        };
        match program.keep_running().await {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the broker had died and was started again"),
            Err(error) => tracing::error!(%error, "the broker has died"),
        }
    }

    /// The broker's state, its waiting messages, and its dead letters.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`]: its management interface does not answer.
    pub(crate) async fn status(&self) -> Result<BrokerStatus, Fault> {
        let members = self.administration.members().await.map_err(unavailable)?;
        let waiting = self.administration.waiting().await.map_err(unavailable)?;
        let (dead, dead_letters) = self.dead_letters.so_far();
        Ok(BrokerStatus {
            addresses: self.addresses.clone(),
            members: members.into_iter().map(shown).collect(),
            waiting: waiting.agents,
            kept: waiting.dead_letters,
            dead,
            dead_letters,
        })
    }

    /// Whether the broker takes and delivers messages: most of the brokers run, and none lacks a resource.
    pub(crate) async fn carries(&self) -> bool {
        let Ok(members) = self.administration.members().await else {
            return false;
        };
        let running = members.iter().filter(|member| member.running).count();
        let is_short = |member: &Member| member.memory_alarm || member.disk_alarm;
        2 * running > members.len() && !members.iter().any(is_short)
    }

    /// Ends the broker's program.
    pub(crate) async fn stop(&self) {
        if let Some(mut program) = self.program.lock().await.take() {
            program.stop().await;
        }
    }
}

pub(super) fn unavailable(error: BrokerFailure) -> Fault {
    Fault::new(FaultCode::Unavailable, error.to_string())
}
