//! Traffic through the platform.

use super::Admin;
use sealbus_control::Fault;
use sealbus_control::names::{CONTROL_AGENTS, MASTER_NODE};
use sealbus_control::node::ask_node;
use sealbus_control::traffic::{ProcessTraffic, Traffic, Watch};
use sealbus_process::Process;

impl Admin {
    /// Asks the nodes for their processes, and the Master's own processes.
    pub(super) async fn observe(&self, watch: Option<Watch>) -> Result<Traffic, Fault> {
        let asked = ask_node::Observe {
            watch: watch.clone(),
        };
        let (answers, silent) = self.ask_all_nodes(asked, Ok).await?;
        let mut processes = self.observe_own(watch);
        processes.extend(answers.into_iter().flat_map(|(_, found)| found));
        processes.sort_by(|one, two| (&one.node, &one.process).cmp(&(&two.node, &two.process)));
        Ok(Traffic { processes, silent })
    }

    /// The traffic through the Master's own processes.
    pub(super) fn observe_own(&self, watch: Option<Watch>) -> Vec<ProcessTraffic> {
        let (control, services) = (&self.system.control, &self.system.process);
        let mut own = vec![services];
        if control.membership().process != services.membership().process {
            own.push(control);
        }
        let own = own.into_iter();
        own.map(|process| of_own(process, watch.clone())).collect()
    }
}

fn of_own(process: &Process, watch: Option<Watch>) -> ProcessTraffic {
    let name = process.membership().process.clone();
    let group = name
        .rsplit_once('.')
        .map_or(name.as_str(), |(group, _)| group);
    let mut traffic = ProcessTraffic {
        node: MASTER_NODE.to_owned(),
        group: group.to_owned(),
        process: name.clone(),
        ..process.observe(watch)
    };
    // Nodes report every second. These reports are no messages of agents.
    let controls = |name: &str| {
        CONTROL_AGENTS
            .iter()
            .any(|it| name.split('@').next() == Some(*it))
    };
    traffic.heads.retain(|head| !controls(&head.to));
    traffic
}
