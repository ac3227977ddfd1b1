//! The node's part of the directory: its replica, the Master's news for it, and the other nodes that it asks about
//! agents whose slice is not here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::neighbours::HEARING;
use super::processes::wanted;
use super::shared::{RESOLVING, Shared};
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::directory::{Changed, DirectoryUpdate, HOLDERS, Replica, Standing};
use sealbus_control::host::Command;
use sealbus_control::names::{CONTROL_AGENTS, MASTER, SYSTEM_AGENTS};
use sealbus_control::node::{DirectoryHeard, ask_master, ask_node};
use sealbus_control::{AgentLocation, DirectoryChange, EndedProcess, Fault, FaultCode};

/// How long another node may take to say where an agent is.
const ASKING: Duration = Duration::from_secs(1);
/// The most agents whose former node is remembered.
const MOST_FORMER: usize = 65_536;

impl Shared {
    /// The standing of the replica, for the next report.
    pub(crate) fn standing(&self) -> Standing {
        let own = self.processes.agents();
        let hears = self.processes.use_channels();
        let heard = self.heard();
        let mut replica = self.replica.lock();
        replica.own_agents_are(&own);
        replica.hear_processes(hears);
        Standing {
            heard,
            ..replica.standing()
        }
    }

    /// Follows an agent as long as it is asked for.
    pub(crate) fn follow(&self, agent: &str) {
        let mut replica = self.replica.lock();
        let is_new = !replica.follows(agent);
        replica.follow(agent);
        if is_new && replica.wants() {
            self.wanting.notify_one();
        }
    }

    /// Stops following these agents, except those that some process still asks for.
    pub(crate) fn unfollow<'a>(&self, agents: impl IntoIterator<Item = &'a String>) {
        // A process that asks at this time notes that it does, and then waits here to follow the agent.
        let mut replica = self.replica.lock();
        for agent in agents {
            if !self.processes.is_asked(agent) {
                replica.unfollow(agent);
            }
        }
    }

    /// The place of an agent according to the Master, now or earlier.
    pub(crate) async fn locate_by_master(&self, agent: &str) -> Result<AgentLocation, Fault> {
        match self.known(agent) {
            AgentLocation::Unknown => self.resolve(agent).await,
            known => Ok(known),
        }
    }

    /// The place of an agent according to the Master, as far as it is known here.
    pub(crate) fn known(&self, agent: &str) -> AgentLocation {
        // These agents are always where the Master is. If a node took them for absent, it could not ask for their place.
        if CONTROL_AGENTS.contains(&agent) {
            return AgentLocation::Process(self.platform.read().control.clone());
        }
        if SYSTEM_AGENTS.contains(&agent) {
            return AgentLocation::Process(self.platform.read().master.clone());
        }
        self.replica.lock().locate(agent)
    }

    async fn resolve(&self, agent: &str) -> Result<AgentLocation, Fault> {
        let agent = agent.to_owned();
        let resolve = ask_master::Resolve { agent };
        self.correspondent()?.ask(MASTER, resolve, RESOLVING).await
    }

    /// The place of an agent, for messages to it: from the replica, from another node that holds its slice, or from the
    /// Master.
    ///
    /// Another node may be wrong or lie. The receiver of a message proves to be the agent, so at worst the message does
    /// not arrive. Only the Master is believed if it says that there is no such agent.
    pub(crate) async fn locate(&self, agent: &str) -> Result<AgentLocation, Fault> {
        let known = self.known(agent);
        if known != AgentLocation::Unknown {
            return Ok(known);
        }
        let mut holders = Holders::default();
        {
            let replica = self.replica.lock();
            if !replica.covers(agent) {
                let mut nodes = replica.holders(agent);
                nodes.retain(|node| *node != self.name);
                let turn = self.questions.fetch_add(1, Ordering::Relaxed);
                holders = Holders::asked_in(turn, nodes);
            }
        }
        // Asking one holder saves the Master most questions.
        if let Some(location) = self.ask_holders(agent, &mut holders, 1).await {
            return Ok(location);
        }
        let fault = match self.resolve(agent).await {
            Err(fault) if fault.code == FaultCode::Unavailable => fault,
            resolved => return resolved,
        };
        if let Some(location) = self.ask_holders(agent, &mut holders, usize::MAX).await {
            return Ok(location);
        }
        Err(holders.explain(fault))
    }

    /// Asks at most this many holders of an agent's slice, one after the other, until one knows the agent.
    async fn ask_holders(
        &self,
        agent: &str,
        holders: &mut Holders,
        most: usize,
    ) -> Option<AgentLocation> {
        for _ in 0..most {
            let node = holders.unasked.pop()?;
            let locate = ask_node::Locate {
                agent: agent.to_owned(),
            };
            let asked = match self.correspondent() {
                Ok(correspondent) => correspondent.ask(&node, locate, ASKING).await,
                Err(fault) => Err(fault),
            };
            let location = match asked {
                Ok(AgentLocation::Unknown) => {
                    holders.denying.push(node);
                    continue;
                }
                Ok(location) => location,
                Err(fault) => {
                    tracing::debug!(agent, node, %fault, "another node does not say where an agent is");
                    holders.silent.push(node);
                    continue;
                }
            };
            let mut replica = self.replica.lock();
            // The Master's answer may have come in the meantime.
            if replica.covers(agent) {
                return Some(replica.locate(agent))
                    .filter(|known| *known != AgentLocation::Unknown);
            }
            replica.heard(agent, &location);
            return Some(location);
        }
        None
    }

    /// Tells another node where an agent is. The question leaves nothing behind.
    pub(crate) async fn locate_for(&self, from: &str, agent: &str) -> Result<AgentLocation, Fault> {
        if !self.is_node(from).await? {
            let message = "only nodes ask a node where agents are";
            return Err(Fault::new(FaultCode::NotPermitted, message));
        }
        let replica = self.replica.lock();
        let known = replica.locate(agent);
        if known != AgentLocation::Unknown || replica.covers(agent) {
            return Ok(known);
        }
        let message = format!(
            "{} does not hold the part of the directory with {agent}",
            self.name
        );
        Err(Fault::new(FaultCode::Unavailable, message))
    }

    /// Notes the nodes that agents have left.
    fn note_former(&self, left: Vec<(String, String)>) {
        let mut former = self.former.lock();
        for (agent, node) in left {
            // The node that runs an agent asks about a forgotten one once more.
            if former.len() >= MOST_FORMER {
                former.clear();
            }
            former.insert(agent, node);
        }
    }

    /// Waits until the Master must be asked at once. News that came while it was asked are in its answer.
    pub(crate) async fn wants(&self) {
        until_wanting(&self.replica, &self.wanting).await;
    }

    /// Applies the Master's answer to the stated standing of the replica.
    pub(crate) async fn directory_answered(self: &Arc<Self>, update: DirectoryUpdate) {
        if let Some(revision) = self.apply(update, Replica::answered).await {
            self.state_when_heard(revision);
        }
    }

    /// Applies a change that the Master sent unasked. Returns the revision up to which the processes have been told of
    /// those that use channels.
    pub(crate) async fn directory_told(
        self: &Arc<Self>,
        update: DirectoryUpdate,
    ) -> DirectoryHeard {
        let (tells, revision) = (update.tells_of_processes(), update.to);
        self.apply(update, Replica::told).await;
        let is_late = tokio::time::timeout(HEARING, self.until_heard(revision));
        if tells && is_late.await.is_err() {
            self.state_when_heard(revision);
        }
        DirectoryHeard {
            heard: self.heard(),
        }
    }

    /// Applies a change of the directory. Processes that asked for the changed agents are told, and all are told of ended
    /// processes. Processes that use channels are told of others that do; if there are such news, this returns the revision.
    async fn apply(
        self: &Arc<Self>,
        update: DirectoryUpdate,
        apply: fn(&mut Replica, DirectoryUpdate) -> Changed,
    ) -> Option<u64> {
        // One change at a time, so that joined and ended processes are reported in the right order.
        let _telling = self.telling.lock().await;
        let (changed, revision) = {
            let mut replica = self.replica.lock();
            let changed = apply(&mut replica, update);
            if replica.wants() {
                self.wanting.notify_one();
            }
            // All others are known as of this revision.
            let revision = replica.processes().map(|_| replica.revision());
            (changed, revision)
        };
        let Changed {
            agents,
            left,
            joined,
            ended,
            rules,
        } = changed;
        self.note_former(left);
        let restarted = self.restarted_nodes(&agents);
        for change in &agents {
            self.post.wake(&change.agent);
        }
        let presence = self.presence.borrow().clone();
        if let Some(presence) = &presence {
            let own = {
                let asked = self.asked.lock();
                wanted(&agents, |agent| asked.contains(agent))
            };
            let mut news = Vec::new();
            if !own.is_empty() {
                news.push(Command::DirectoryChanged(own));
            }
            let mut ended = ended.clone();
            ended.extend(restarted);
            if !ended.is_empty() {
                news.push(Command::ProcessesEnded(ended));
            }
            news.extend(rules.clone().map(Box::new).map(Command::Rules));
            for command in news {
                let _ = presence.commands.send(command).await;
            }
        }
        for (process, caller, changes) in self.processes.interested(&agents) {
            let notice = AttachmentNotice::DirectoryChanged { changes };
            self.tell(&process, &caller, &notice);
        }
        let mut notices = Vec::new();
        if !ended.is_empty() {
            notices.push(AttachmentNotice::ProcessesEnded { processes: ended });
        }
        notices.extend(rules.map(|rules| AttachmentNotice::Rules { rules }));
        let has_joined = !joined.is_empty();
        let joined = has_joined.then_some(AttachmentNotice::ProcessesJoined { processes: joined });
        if has_joined || !notices.is_empty() {
            for (process, caller) in self.processes.callers() {
                let hears = self.processes.is_told_of_others(&process);
                for notice in notices.iter().chain(joined.iter().filter(|_| hears)) {
                    self.tell(&process, &caller, notice);
                }
            }
        }
        self.told_news(revision, has_joined)
    }

    /// Nodes that now listen at another address, because they were restarted under the same name. Frames under way to
    /// them must be sent again, and not wait for a connection that never comes back.
    fn restarted_nodes(&self, changes: &[DirectoryChange]) -> Vec<EndedProcess> {
        let mut nodes = self.nodes.lock();
        let mut restarted = Vec::new();
        for change in changes {
            if let AgentLocation::Process(contact) = &change.location
                && contact.node == change.agent
            {
                let before = nodes.insert(change.agent.clone(), contact.clone());
                if before.is_some_and(|before| {
                    before.process == contact.process && before.address != contact.address
                }) {
                    restarted.push(EndedProcess {
                        node: contact.node.clone(),
                        process: contact.process.clone(),
                    });
                }
            }
        }
        restarted
    }
}

/// Waits until the replica wants an answer. The notice of an earlier wish may still be there.
async fn until_wanting(replica: &Mutex<Replica>, wanting: &Notify) {
    while !replica.lock().wants() {
        wanting.notified().await;
    }
}

/// The nodes that may hold an agent's slice, in the order in which they are asked.
#[derive(Default)]
struct Holders {
    /// The nodes still to ask, the next one last.
    unasked: Vec<String>,
    /// The nodes that do not know the agent.
    denying: Vec<String>,
    /// The nodes that gave no answer.
    silent: Vec<String>,
}

impl Holders {
    /// `nodes`: the likeliest first. Each question begins with a different one of the present holders, so that a search
    /// that one of them misleads is repeated with another one, and finds the agent.
    fn asked_in(turn: usize, mut nodes: Vec<String>) -> Self {
        let first = nodes.len().min(HOLDERS);
        if first > 0 {
            nodes[..first].rotate_left(turn % first);
        }
        nodes.reverse();
        Self {
            unasked: nodes,
            ..Self::default()
        }
    }

    /// Why the place of an agent is not known, in place of the Master's reason.
    fn explain(self, fault: Fault) -> Fault {
        let mut message = fault.message.clone();
        for (what, nodes) in [
            ("not known to", self.denying),
            ("not answered by", self.silent),
        ] {
            if !nodes.is_empty() {
                message = format!("{message}; {what} {}", nodes.join(", "));
            }
        }
        Fault { message, ..fault }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn no_holder_is_always_asked_first() {
        let nodes = || (1..=6).map(|number| format!("node-{number}")).collect();
        let mut first = std::collections::BTreeSet::new();
        for turn in 0..HOLDERS {
            let mut holders = Holders::asked_in(turn, nodes());
            first.extend(holders.unasked.pop());
            // Nodes behind the holders may have been holders before.
            assert_eq!(holders.unasked[..3], ["node-6", "node-5", "node-4"]);
            assert_eq!(holders.unasked.len(), 5);
        }
        assert!(first.iter().eq(["node-1", "node-2", "node-3"]), "{first:?}");
        assert_eq!(
            Holders::asked_in(7, vec!["node-1".to_owned()])
                .unasked
                .len(),
            1
        );
        assert!(Holders::asked_in(7, Vec::new()).unasked.is_empty());
    }

    #[test]
    fn the_master_is_asked_at_once_only_as_long_as_there_is_something_to_ask() {
        let (replica, wanting) = (Mutex::new(Replica::default()), Notify::new());
        // The notice of a change that came while the Master was asked, and was in its answer.
        wanting.notify_one();
        assert!(until_wanting(&replica, &wanting).now_or_never().is_none());
        replica.lock().follow("alice");
        assert!(until_wanting(&replica, &wanting).now_or_never().is_some());
    }
}
