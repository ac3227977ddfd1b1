//! How a process takes its place on its platform.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_bus::{Bus, BusConfig};
use sealbus_channels::Channels;
use sealbus_control::Subject;
use sealbus_control::host::Host;
use sealbus_control::local::forbid_inspection;
use sealbus_seal::{CLOCK_SKEW, PlatformName, SecurityLevel, Trust};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::certification::Certifier;
use super::error::OpenError;
use super::record::Recorder;
use super::reports::Reports;
use super::resolver::DirectoryResolver;
use super::sealing::ProcessSealer;
use super::{
    Agents, Process, Shared, THE_PROCESS, carrier, channel_log, letters, neighbours, upkeep,
};

impl Process {
    /// Takes this process's place on the platform that `host` stands for.
    ///
    /// `bus` is the bus of an embedded platform, with the platform's own agents already on it. Without a bus the
    /// process makes its own, joined to the others by the mesh or a broker.
    pub async fn open(host: Arc<dyn Host>, bus: Option<Bus>) -> Result<Process, OpenError> {
        let commands = host.commands().ok_or(OpenError::HostInUse)?;
        let membership = host.membership();
        // An embedded platform is a single process, and its program may inspect it freely.
        if membership.reachable {
            forbid_inspection();
        }
        let description = &membership.platform;
        let unusable = |error: &dyn fmt::Display| OpenError::Description(error.to_string());
        let platform = PlatformName::new(&description.name).map_err(|error| unusable(&error))?;
        let level: SecurityLevel = description
            .level
            .parse()
            .map_err(|error| unusable(&error))?;
        // Messages between agents of one process are not signed.
        if level == SecurityLevel::Sealed && !membership.reachable {
            return Err(OpenError::Level(level));
        }
        let roots: Vec<_> = description
            .roots
            .iter()
            .map(|root| root.0.as_slice().into())
            .collect();
        let trust =
            Trust::new(platform.clone(), &roots, CLOCK_SKEW).map_err(|error| unusable(&error))?;
        let trust = Arc::new(trust);

        let inherited = if membership.inherits {
            host.inherit().await.map_err(OpenError::Inheritance)?
        } else {
            Vec::new()
        };
        let bus =
            bus.unwrap_or_else(|| Bus::new(BusConfig::new(platform.clone()), Handle::current()));
        let certifier = Certifier::new(host.clone(), platform.clone(), trust.signatures());
        let own = if membership.reachable {
            bus.set_resolver(Arc::new(DirectoryResolver::new(
                host.clone(),
                platform.clone(),
            )));
            let certified = certifier
                .request_certificate(
                    Subject::Process,
                    &format!("process {}", membership.process),
                    None,
                    false,
                )
                .await?;
            let identity = certified.certificate.identity().clone();
            let standing = certified.standing(Duration::ZERO);
            carrier::open(&bus, membership, level, &trust, certified).await?;
            Some((identity, standing))
        } else {
            None
        };
        // An embedded platform shares the bus of its Master, and needs no transport.
        let transport = own.as_ref().and_then(|_| bus.transport().cloned());
        let sealing = transport.as_ref().and_then(|transport| {
            let levels = transport.capabilities().levels;
            levels.contains(&SecurityLevel::Signed).then(|| {
                let (host, trust) = (host.clone(), trust.clone());
                let sealing =
                    ProcessSealer::open(host, trust, platform.clone(), level, bus.downgrade());
                bus.set_sealer(sealing.clone());
                Channels::of(&bus).set_sealer(sealing.clone());
                sealing
            })
        });
        if transport.is_some() {
            let registrar = Arc::new(neighbours::Registrar(host.clone()));
            Channels::of(&bus).set_registrar(registrar);
        }
        let mut agents = Agents::default();
        if let Some((_, standing)) = &own {
            agents.renewals.insert(standing.due, THE_PROCESS);
        }
        // On an embedded platform the system agents come first, and share the bus.
        let mut post = None;
        if host.keeps_letters() {
            let way = letters::NodePost::start(host.clone(), platform.to_string());
            bus.set_post(way.clone());
            post = Some(way);
            let logs =
                channel_log::NodeLogs::start(host.clone(), bus.downgrade(), trust.clone(), level);
            Channels::of(&bus).set_logs(logs);
        }
        let shared = Arc::new(Shared {
            sealing,
            inbox: letters::Inbox::start(host.clone(), bus.downgrade()),
            post,
            certifier,
            bus,
            trust,
            unfit_denials: AtomicUsize::new(0),
            platform,
            level,
            transport,
            agents: Mutex::new(agents),
            own: Mutex::new(own),
            awaited: Mutex::new(membership.agents.iter().cloned().collect()),
            given_up: Mutex::default(),
            inherited: Mutex::new(
                inherited
                    .into_iter()
                    .map(|agent| (agent.agent.clone(), agent))
                    .collect(),
            ),
            resting: Mutex::default(),
            ending_at_rest: tokio::sync::Mutex::default(),
            announced: tokio::sync::Mutex::new(false),
            reports: Reports::start(host.clone()),
            watches: Arc::default(),
            rules: watch::Sender::default(),
            recorder: Recorder::start(host.clone()),
            renewals_changed: Arc::new(Notify::new()),
            refusals_told: tokio::sync::Mutex::default(),
            started: Instant::now(),
            stopping: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            host,
        });
        let deny_list = shared.host.membership().deny_list.clone();
        shared.obey_deny_list(&deny_list.0).await;
        shared.obey_rules(&shared.host.membership().rules);
        shared.processes_are(shared.host.membership().processes.clone());
        tokio::spawn(upkeep::run(
            Arc::downgrade(&shared),
            shared.renewals_changed.clone(),
            commands,
        ));
        Ok(Process { shared })
    }
}
