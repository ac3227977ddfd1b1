//! Puts a manifest in force on the running platform.

use std::collections::BTreeSet;
use std::time::Duration;

use sealbus_control::{Fault, FaultCode, Rules};
use sealbus_manifest::{AgentEntry, Difference, Manifest};

use super::Admin;
use super::programs::ENDING;
use crate::desk::Desk;
use crate::registry::GroupOrigin;

impl Admin {
    /// The changes that a manifest would bring if it were put in force.
    ///
    /// # Errors
    /// If no manifest is in force yet, or if the difference needs a new platform.
    pub(super) async fn compare(&self, wanted: &Manifest) -> Result<Difference, Fault> {
        match &*self.manifest.lock().await {
            Some(running) => possible(running, wanted),
            None => Err(
                Fault::new(FaultCode::Unavailable, "the platform is not up yet")
                    .advise("wait until `sealbus up` says that it is"),
            ),
        }
    }

    /// Starts, stops, restarts and changes everything that differs from the manifest in force.
    ///
    /// # Errors
    /// If the difference is not the one that was agreed to, if it needs a new platform, or if the name of a new agent is
    /// taken. Nothing was changed then.
    pub(super) async fn apply(
        &self,
        wanted: Box<Manifest>,
        agreed: Option<Difference>,
        grace: Duration,
        taken_over: bool,
    ) -> Result<(), Fault> {
        let mut in_force = self.manifest.lock().await;
        let difference = match &*in_force {
            Some(running) => Some(possible(running, &wanted)?),
            None => None,
        };
        if difference != agreed {
            let message = "another manifest has been put in force meanwhile";
            return Err(Fault::new(FaultCode::NotPermitted, message)
                .advise("look again: sealbus apply --dry-run"));
        }
        let difference = difference.unwrap_or_default();
        let agents = agents(&wanted)?;
        let ending: Vec<String> = difference.ending().cloned().collect();
        let (named, ends) = (agents.clone(), ending.clone());
        self.desk
            .run(move |desk, now| {
                desk.state.check_names(&named, &ends)?;
                for agent in first_agents(desk, &ends) {
                    desk.state.kill(&agent, grace, now)?;
                }
                Ok(())
            })
            .await?;
        self.desk
            .wait_until(grace + ENDING, move |desk| {
                let groups = desk.state.groups();
                let mut ending = ending.iter().filter_map(|name| groups.get(name));
                ending.all(|group| group.process.is_none())
            })
            .await;
        let rules = Rules {
            permission: wanted.permission.clone(),
            channels: wanted.channels.clone(),
            evidence: wanted.evidence.clone(),
            tap: wanted.tap.clone(),
            ..Rules::default()
        };
        let unnamed = self
            .desk
            .order(move |desk, now| {
                for process in &difference.stop {
                    desk.state.forget_program(process);
                }
                // The rules for the gateway are the operators', and no part of the manifest.
                let gateway = desk.state.directory().rules().gateway.clone();
                desk.state.set_rules(Rules { gateway, ..rules });
                match taken_over {
                    true => desk.state.start(&unknown(desk, &agents), now)?,
                    false => desk.state.start(&agents, now)?,
                }
                Ok(unnamed(desk, &agents))
            })
            .await?;
        for agent in unnamed {
            tracing::warn!(
                agent,
                "the manifest does not name this agent any more, and it goes on: `sealbus kill {agent}` ends it"
            );
        }
        *in_force = Some(wanted);
        Ok(())
    }
}

/// An agent of each process that may run and that these entries do not name. An earlier manifest started it, and the
/// manifest was changed while the Master was away.
fn unnamed(desk: &Desk, entries: &[AgentEntry]) -> Vec<String> {
    let named: BTreeSet<String> = entries
        .iter()
        .flat_map(AgentEntry::processes)
        .map(|(process, _)| process)
        .collect();
    let groups = desk.state.groups().iter();
    let left = groups.filter(|(process, group)| {
        matches!(group.origin, GroupOrigin::Program { .. })
            && !named.contains(*process)
            && (group.process.is_some() || group.start_at.is_some())
    });
    left.filter_map(|(_, group)| group.agents.first().cloned())
        .collect()
}

/// The entries with processes that nobody knows. Running processes are not compared with the manifest of this machine,
/// because programs lie elsewhere on another machine.
fn unknown(desk: &Desk, entries: &[AgentEntry]) -> Vec<AgentEntry> {
    let groups = desk.state.groups();
    let is_unknown = |(process, _): (String, _)| !groups.contains_key(&process);
    let entries = entries.iter();
    let unknown = entries.filter(|entry| entry.processes().into_iter().all(is_unknown));
    unknown.cloned().collect()
}

/// The difference between two manifests, if the running platform can follow it.
fn possible(running: &Manifest, wanted: &Manifest) -> Result<Difference, Fault> {
    let difference = Difference::between(running, wanted);
    if difference.new_platform.is_empty() {
        return Ok(difference);
    }
    let keys = difference.new_platform.join(", ");
    let message = format!("these cannot change while the platform runs: {keys}");
    Err(Fault::new(FaultCode::NotPermitted, message)
        .advise("end the platform and start it anew: sealbus down, then sealbus up"))
}

/// The manifest's agents, with the gateway. The gateway's program is the one that the Master runs in.
fn agents(manifest: &Manifest) -> Result<Vec<AgentEntry>, Fault> {
    let mut agents = manifest.agents.clone();
    if let Some(gateway) = &manifest.gateway {
        let program = std::env::current_exe().map_err(|error| {
            let message = format!("this program cannot be found: {error}");
            Fault::new(FaultCode::Internal, message)
        })?;
        agents.splice(0..0, gateway.agents(&program.display().to_string()));
    }
    Ok(agents)
}

/// One agent of each of these processes that the platform started.
fn first_agents(desk: &Desk, processes: &[String]) -> Vec<String> {
    let groups = desk.state.groups();
    let groups = processes.iter().filter_map(|name| groups.get(name));
    let agents = groups.filter_map(|group| group.agents.first().cloned());
    agents.collect()
}
