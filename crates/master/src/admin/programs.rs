//! Ending and moving programs, and the end of the platform.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Admin, local};
use crate::registry::{GroupOrigin, Life};
use crate::state::{MasterState, WAITING};
use sealbus_control::admin::Moved;
use sealbus_control::node::ask_node;
use sealbus_control::{Fault, FaultCode};

/// How long a move may take before the operator learns that it is still in progress.
const MOVING: Duration = Duration::from_secs(90);
/// How long the end of a process is awaited beyond its grace.
pub(super) const ENDING: Duration = Duration::from_secs(4);

impl Admin {
    /// Ends an agent, with its process. If the agent is to be `started_again` and the platform cannot start it, it goes
    /// on.
    ///
    /// # Errors
    /// As [`MasterState::kill`], and [`MasterState::program_of`] for an agent that is to be started again.
    pub(super) async fn kill(
        &self,
        agent: String,
        grace: Duration,
        started_again: bool,
    ) -> Result<(), Fault> {
        let agent = local(&agent);
        let name = agent.clone();
        self.desk
            .order(move |desk, now| {
                if started_again {
                    desk.state.program_of(&name)?;
                }
                desk.state.kill(&name, grace, now)
            })
            .await?;
        self.desk
            .wait_until(grace + ENDING, move |desk| {
                desk.state
                    .group_of(&agent)
                    .is_none_or(|(_, group)| group.process.is_none())
            })
            .await;
        Ok(())
    }

    /// Starts an agent again. Returns when the agent has its certificate and runs, or when no node can take it yet.
    ///
    /// # Errors
    /// If it may not be started, or does not run: its process has ended, or has no certificate in time.
    pub(super) async fn start_again(&self, agent: String, timeout: Duration) -> Result<(), Fault> {
        let name = agent.clone();
        self.desk
            .order(move |desk, now| desk.state.start_again(&name, now))
            .await?;
        let runs = Arc::new(AtomicBool::new(false));
        let (name, seen) = (agent.clone(), runs.clone());
        self.desk
            .wait_until(timeout, move |desk| {
                let group = desk.state.group_of(&name).map(|(_, group)| group);
                let process = group.and_then(|group| group.process.as_ref());
                let life = process.and_then(|process| process.agents.get(&name));
                seen.fetch_or(
                    life.is_some_and(|life| *life != Life::Unborn),
                    Ordering::Relaxed,
                );
                life != Some(&Life::Unborn)
            })
            .await;
        if !runs.load(Ordering::Relaxed) {
            self.desk
                .run(move |desk, _| check_start(&desk.state, &agent))
                .await?;
        }
        Ok(())
    }

    pub(super) async fn move_agent(&self, agent: String, node: String) -> Result<Moved, Fault> {
        let agent = local(&agent);
        let (moved, agents) = self
            .desk
            .order(move |desk, now| {
                let group = desk.state.move_agent(&agent, &node, now)?;
                let (sender, moved) = oneshot::channel();
                let agents = desk
                    .state
                    .groups()
                    .get(&group)
                    .map(|group| group.agents.clone());
                desk.waiting.entry(group).or_default().push(sender);
                Ok((moved, agents.unwrap_or_default()))
            })
            .await?;
        match tokio::time::timeout(MOVING, moved).await {
            Ok(Ok(result)) => result.map(|node| Moved { agents, node }),
            _ => Err(
                Fault::new(FaultCode::Unavailable, "the move takes long and goes on")
                    .advise("see `sealbus ps`"),
            ),
        }
    }

    /// Ends all agents, then the nodes, then the Master.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        let _ = self
            .desk
            .run(move |desk, now| {
                desk.state.stop_all(grace, now);
                Ok(())
            })
            .await;
        self.desk
            .wait_until(grace + ENDING, |desk| {
                let mut programs = desk
                    .state
                    .groups()
                    .values()
                    .filter(|g| g.origin != GroupOrigin::System);
                programs.all(|group| group.process.is_none())
            })
            .await;
        let forgotten = self.desk.order(|desk, _| {
            desk.state.forget_programs();
            Ok(())
        });
        if let Err(fault) = forgotten.await {
            tracing::error!(%fault, "the programs could not be forgotten");
        }
        let alive = self.desk.run(|desk, _| {
            let nodes = desk.state.nodes().iter();
            let alive = nodes.filter(|(_, node)| node.state.is_there());
            Ok(alive.map(|(name, _)| name.clone()).collect::<Vec<_>>())
        });
        for node in alive.await.unwrap_or_default() {
            let leave = ask_node::Leave { grace: 0 };
            if let Err(fault) = self.system.master.ask(&node, leave, ENDING).await {
                tracing::warn!(%node, %fault, "could not be told to end");
            }
        }
        self.ended.send_replace(true);
    }
}

/// Checks whether an agent that was started, and does not run, only waits for a node.
fn check_start(state: &MasterState, agent: &str) -> Result<(), Fault> {
    let Some((_, group)) = state.group_of(agent) else {
        return Ok(());
    };
    let what = match &group.process {
        Some(process) => format!("has no certificate on {} yet", process.node),
        // The agent is started as soon as there is a node.
        None if group.start_at == Some(WAITING) => return Ok(()),
        None => "has ended".to_owned(),
    };
    let note = group.note.as_ref();
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    let message = format!("{agent} was started and does not run: it {what}{note}");
    let advice = "see `sealbus ps`, `sealbus logs` and `sealbus ca log`";
    Err(Fault::new(FaultCode::NotPermitted, message).advise(advice))
}
