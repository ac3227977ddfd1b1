//! The Master's numbers for Prometheus.

use std::sync::Arc;

use sealbus_control::admin::{NodeState, Page};
use sealbus_control::clock::timestamp;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::{Fault, PlacedState, UnixMillis};
use sealbus_metrics::{
    AGENTS, CERTIFICATE_END, CERTIFICATES_ISSUED, DENY_LIST_VERSION, LEFT_OUT, LOG_ALARMS,
    MOST_PROCESSES, NODES, PLATFORM_REFUSALS, RESTARTS, START, Sample, TERM,
};
use tokio::net::TcpListener;

use super::Admin;
use crate::desk::Desk;
use crate::listing::known;
use crate::registry::GroupOrigin;

const NODE_STATES: [NodeState; 5] = [
    NodeState::Alive,
    NodeState::Expected,
    NodeState::Dead,
    NodeState::Leaving,
    NodeState::Left,
];
const AGENT_STATES: [PlacedState; 5] = [
    PlacedState::Initiated,
    PlacedState::Active,
    PlacedState::Suspended,
    PlacedState::Waiting,
    PlacedState::Transit,
];

impl Admin {
    /// Serves the Master's numbers for ever.
    pub(crate) async fn serve_metrics(self: Arc<Self>, listener: TcpListener) {
        let sample = move || {
            let admin = self.clone();
            Box::pin(async move { admin.sample().await.ok() }) as _
        };
        sealbus_metrics::serve(listener, sample).await;
    }

    async fn sample(&self) -> Result<Sample, Fault> {
        let mut sample = self.desk.run(|desk, now| Ok(of_desk(desk, now))).await?;
        sample.put_processes(&self.observe_own(None));
        sample.put(&TERM, [], self.term);
        Ok(sample)
    }
}

fn of_desk(desk: &Desk, now: UnixMillis) -> Sample {
    let mut sample = Sample::of(&desk.platform.name, MASTER_NODE);
    for state in NODE_STATES {
        let nodes = desk.state.nodes().values();
        let count = nodes.filter(|node| node.state == state).count();
        sample.put(&NODES, [state.as_str()], count as u64);
    }
    let all = Page::default();
    let agents: Vec<(&str, Option<PlacedState>)> = known(desk, all.places())
        .map(|(agent, ..)| (agent, desk.state.life(agent)))
        .collect();
    let count = |wanted: Option<PlacedState>| {
        let fitting = agents.iter().filter(|(_, state)| *state == wanted);
        fitting.count() as u64
    };
    for state in AGENT_STATES {
        sample.put(&AGENTS, [&state.to_string()], count(Some(state)));
    }
    sample.put(&AGENTS, ["ended"], count(None));
    let groups = desk.state.groups().iter();
    let groups = groups.filter(|(_, group)| group.origin != GroupOrigin::System);
    for (index, (name, group)) in groups.enumerate() {
        if index < MOST_PROCESSES {
            let restarts = group.starts.saturating_sub(1);
            sample.put(&RESTARTS, [name], u64::from(restarts));
        } else {
            sample.put(&LEFT_OUT, ["processes"], 1);
        }
    }
    for (reason, count) in desk.refusals.counts() {
        sample.put(&PLATFORM_REFUSALS, [reason], count);
    }
    sample.put(&CERTIFICATES_ISSUED, [], desk.ca.issued_in_all());
    sample.put(&DENY_LIST_VERSION, [], desk.ca.deny_list_version());
    let ca_ends = desk.ca.outlook(timestamp(now)).1.as_unix_seconds();
    sample.put(&CERTIFICATE_END, ["ca"], ca_ends);
    let living = agents.iter();
    let living = living.filter_map(|(agent, _)| desk.ca.living(agent, timestamp(now)));
    if let Some(first) = living.map(|found| found.not_after).min() {
        sample.put(&CERTIFICATE_END, ["agent"], first.as_unix_seconds());
    }
    sample.put(&START, [], desk.since / 1000);
    let objecting = desk.log_alarms.len() + desk.log_warnings.len();
    sample.put(&LOG_ALARMS, [], objecting as u64);
    sample
}
