//! The parts in which a whole transfer comes.

use std::collections::BTreeSet;

use super::super::slices::Slices;
use super::super::update::{
    DirectoryPart, DirectoryStep, NODES, names_between, processes_between, section_of,
};
use super::{Changed, Replica};
use crate::{AgentLocation, EndedProcess};

impl Replica {
    /// Takes the next part of the transfer. Entries between its ends that are not in it are gone.
    pub(super) fn take_part(&mut self, part: DirectoryPart, changed: &mut Changed) {
        let DirectoryPart { of, until, entries } = part;
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        let are_alike = of.base == transfer.base && of.processes == transfer.processes;
        if of.after != transfer.after || !are_alike {
            return;
        }
        transfer.slices = transfer.slices & of.slices;
        let slices = transfer.slices;
        let mut named = BTreeSet::new();
        let mut processes = BTreeSet::new();
        for entry in &entries {
            match entry {
                DirectoryStep::Agent(change) => {
                    named.insert(change.agent.as_str());
                }
                DirectoryStep::Together { agents, .. } => {
                    named.extend(agents.iter().map(String::as_str));
                }
                DirectoryStep::Joined { joined } => {
                    processes.insert(joined.named());
                }
                DirectoryStep::Ended { .. } | DirectoryStep::Rules { .. } => {}
            }
        }
        let (after, until_here) = (of.after.as_ref(), until.as_ref());
        let mut gone = Vec::new();
        if of.base
            && let Some(range) = names_between(NODES, after, until_here)
        {
            let nodes = self.nodes.range::<str, _>(range).map(|(name, _)| name);
            gone.extend(nodes.filter(|name| !named.contains(name.as_str())).cloned());
        }
        for slice in slices.iter() {
            if let Some(range) = names_between(section_of(slice), after, until_here) {
                let agents = self.slices[slice].range::<str, _>(range);
                let agents = agents.map(|(name, _)| name);
                gone.extend(
                    agents
                        .filter(|name| !named.contains(name.as_str()))
                        .cloned(),
                );
            }
        }
        if of.processes
            && let Some(range) = processes_between(after, until_here)
        {
            let ended = self.processes.range(range).map(|(named, _)| named);
            let ended: Vec<EndedProcess> = ended
                .filter(|named| !processes.contains(named))
                .cloned()
                .collect();
            for named in ended {
                self.processes.remove(&named);
                changed.ended.push(named);
            }
        }
        drop(named);
        for agent in gone {
            self.set(agent, AgentLocation::Unknown, changed);
        }
        for entry in entries {
            match entry {
                DirectoryStep::Together { agents, at } => {
                    for agent in agents {
                        self.set(agent, at.clone(), changed);
                    }
                }
                entry => self.take_steps(vec![entry], changed),
            }
        }
        match (until, &mut self.transfer) {
            (Some(until), Some(transfer)) => transfer.after = Some(until),
            (_, transfer) => {
                self.held = self.held | slices;
                self.has_base |= of.base;
                self.has_processes |= of.processes;
                *transfer = None;
                // Entries of other slices may remain from before the replica began anew.
                self.drop_slices(Slices::ALL - self.held);
            }
        }
    }
}
