//! The other processes of the platform whose agents use channels, and the rules for all, as the platform reports them.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use sealbus_bus::ProcessEndpoint;
use sealbus_channels::{
    ChannelPattern, ChannelPermissions, ChannelRegistrar, Channels, DeclaredChannels, QosOverride,
};
use sealbus_seal::Identity;

use super::Shared;
use sealbus_control::attachment::ask;
use sealbus_control::host::Host;
use sealbus_control::names::SYSTEM_AGENTS;
use sealbus_control::{DirectoryChange, EndedProcess, ProcessContact, Rules};

/// The platform, to which the process reports that its agents use channels.
pub(super) struct Registrar(pub(super) Arc<dyn Host>);

impl ChannelRegistrar for Registrar {
    fn register(&self) -> BoxFuture<'_, Result<(), String>> {
        let asked = self.0.ask(ask::UseChannels);
        asked
            .map(|told| told.map_err(|fault| fault.to_string()))
            .boxed()
    }
}

impl Shared {
    /// Tells the bus of processes whose agents use channels.
    pub(super) fn processes_joined(&self, processes: &[ProcessContact]) {
        for contact in processes {
            if let Some(identity) = self.other_process(&contact.named()) {
                self.bus.process_joined(ProcessEndpoint {
                    identity,
                    address: contact.address,
                });
            }
        }
    }

    /// Tells the bus of all present processes whose agents use channels. Any other process that the bus knows has ended.
    pub(super) fn processes_are(&self, processes: Option<Vec<ProcessContact>>) {
        let channels = Channels::of(&self.bus);
        // A node that does not know the processes now cannot say that there are none. It may have forgotten that this
        // process wants to be told.
        let Some(processes) = processes else {
            return channels.register_again();
        };
        let there: HashSet<Identity> = processes
            .iter()
            .filter_map(|contact| self.other_process(&contact.named()))
            .collect();
        for known in self.bus.processes() {
            if !there.contains(&known.identity) {
                self.process_ended(&known.identity);
            }
        }
        self.processes_joined(&processes);
        channels.acquainted();
    }

    /// Looks again for agents that have moved.
    pub(super) fn directory_changed(&self, changes: &[DirectoryChange]) {
        for change in changes {
            if change.agent == sealbus_bus::GATEWAY {
                self.bus.gateway_changed();
            }
            let name = format!("{}@{}", change.agent, self.platform);
            self.bus.location_changed(&name);
        }
    }

    /// Drops the links to processes that have ended.
    pub(super) fn processes_ended(&self, processes: &[EndedProcess]) {
        for ended in processes {
            if let Some(identity) = self.other_process(ended) {
                self.process_ended(&identity);
            }
        }
    }

    fn process_ended(&self, identity: &Identity) {
        if let Some(transport) = &self.transport {
            transport.forget_process(identity);
        }
        self.bus.process_left(identity);
    }

    /// The identity of a process that is not this one.
    fn other_process(&self, named: &EndedProcess) -> Option<Identity> {
        let identity = named
            .process
            .parse()
            .and_then(|process| Identity::process(&self.platform, &named.node, process));
        match identity {
            Ok(identity) => {
                let own = self.own.lock();
                let is_own = own.as_ref().is_some_and(|(own, _)| *own == identity);
                (!is_own).then_some(identity)
            }
            Err(error) => {
                tracing::warn!(%error, process = named.process, node = named.node, "the platform told of a process under a name that is none");
                None
            }
        }
    }

    /// Obeys the rules for all processes. The manifest was checked. If a part still cannot be obeyed, the former one
    /// stays in force.
    pub(super) fn obey_rules(&self, rules: &Rules) {
        let channels = Channels::of(&self.bus);
        let mut services = SYSTEM_AGENTS.to_vec();
        // The node's own agent has the node's name.
        services.push(&self.host.membership().node);
        match rules.permission.compile_beside(&self.platform, &services) {
            Ok(permissions) => self.bus.set_permissions(Arc::new(permissions)),
            Err(error) => tracing::error!(%error, "the platform's policy cannot be obeyed"),
        }
        match ChannelPermissions::compile(&rules.permission, &self.platform) {
            Ok(permissions) => channels.set_permissions(Arc::new(permissions)),
            Err(error) => {
                tracing::error!(%error, "the platform's policy for channels cannot be obeyed");
            }
        }
        let declared = rules.channels.iter().filter_map(|channel| {
            let pattern: ChannelPattern = channel
                .path
                .parse()
                .inspect_err(|error| tracing::error!(%error, channel = channel.path, "declared"))
                .ok()?;
            let qos: QosOverride = channel
                .qos
                .parse()
                .inspect_err(|error| tracing::error!(%error, channel = channel.path, "declared"))
                .ok()?;
            Some((pattern, qos))
        });
        channels.declare(DeclaredChannels::new(declared));
        self.recorder.obey(&self.bus, &rules.evidence.agents);
        self.watches.obey(&rules.tap);
        self.rules.send_replace(rules.clone());
    }
}
