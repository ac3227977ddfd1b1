//! Names that a shell completes: those of the agents, nodes and channels of the platform that runs here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use sealbus_control::admin::ask;

use crate::arguments::General;
use crate::connection::Connection;
use crate::error::CliError;
use crate::runtime;

/// How long the Master may take: the shell waits meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// The agents' local names.
pub(crate) fn agents() -> Vec<CompletionCandidate> {
    let all = ask::Agents::default();
    let agents = ask(async |master| master.list(all).await).unwrap_or_default();
    agents
        .into_iter()
        .map(|agent| {
            let name = agent.name.split('@').next().unwrap_or_default();
            let place = agent.node.map(|node| format!("on {node}").into());
            CompletionCandidate::new(name).help(place)
        })
        .collect()
}

/// The nodes' names.
pub(crate) fn nodes() -> Vec<CompletionCandidate> {
    let all = ask::Nodes::default();
    let nodes = ask(async |master| master.list(all).await).unwrap_or_default();
    nodes
        .into_iter()
        .map(|node| CompletionCandidate::new(node.name).help(Some(node.host.into())))
        .collect()
}

/// The channels that processes use now, and those whose events nodes keep.
pub(crate) fn channels() -> Vec<CompletionCandidate> {
    let used = ask(async |master| master.ask(ask::Observe { watch: None }).await);
    let used = used.into_iter().flat_map(|traffic| traffic.processes);
    let used = used.flat_map(|process| process.channels);
    let kept = ask(async |master| master.ask(ask::ChannelLogs).await);
    let kept = kept.into_iter().flat_map(|kept| kept.logs);
    let all: BTreeSet<String> = used
        .map(|used| used.channel)
        .chain(kept.map(|kept| kept.channel))
        .collect();
    all.into_iter().map(CompletionCandidate::new).collect()
}

/// The Master's answer. A shell has no place for errors, so there are no candidates instead.
fn ask<T>(
    question: impl AsyncFnOnce(&mut Connection) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let general = General::of_typed(&words);
    runtime()?.block_on(async {
        let mut connection = Connection::open_within(&general, PATIENCE).await?;
        question(&mut connection).await
    })
}
