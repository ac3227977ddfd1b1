//! The Master's decisions as a state machine. Reports from nodes, agents and operators come in as method calls with the
//! time. The resulting work goes out as [`Effect`]s. The changed rows must be written to the store before any effect is
//! carried out. So a Master that is killed at any moment and restarted on its store continues at the same point.

mod bars;
mod ends;
mod heard_nodes;
mod loads;
mod moves;
mod nodes;
mod origins;
mod processes;
mod restored;
mod rows;
mod silence;
#[cfg(test)]
mod tests;

use sealbus_seal::denylist::Reason;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::registry::{Group, GroupOrigin, Life, Node, Process};
use sealbus_control::admin::NodeState;
use sealbus_control::directory::Directory;
use sealbus_control::node::NodeRequest;
use sealbus_control::{
    AgentLocation, EndedProcess, Fault, FaultCode, PlacedState, Rules, UnixMillis,
};
use sealbus_store::Rows;

use bars::{BAR_ROW, Bars};
use heard_nodes::HeardNodes;
use loads::Loads;
pub(crate) use nodes::not_a_member;
pub(crate) use processes::WAITING;
use restored::Restored;

/// The row of a state that was restored from a backup.
pub(crate) const RESTORED_ROW: &str = "restored";
const NODE_ROW: &str = "node/";
const GROUP_ROW: &str = "group/";

/// The Master's time limits.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// A node that was silent for this long is dead.
    pub node: Duration,
    /// As `node`, if a broker carries the nodes' messages. A sender may first have to find out that one of its brokers
    /// died.
    pub node_by_broker: Duration,
    /// A Master that heard no node for this long is itself cut off. The nodes' silence beyond it does not count.
    pub earshot: Duration,
    /// How long nodes have to come back after the Master was restarted, or was cut off.
    pub after_restart: Duration,
    /// How long nodes have until they are heard again after the broker was away.
    pub after_broker: Duration,
    /// How long a move may take.
    pub moving: Duration,
    /// The pause before the first restart of a failed process. It doubles with each failure.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// A process that ran for this long has not failed at its start.
    pub settled: Duration,
    /// How long a process stays after its agents moved, to redirect others that still write to it.
    pub leaving: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            node: Duration::from_secs(8),
            node_by_broker: Duration::from_secs(20),
            earshot: Duration::from_secs(3),
            after_restart: Duration::from_secs(15),
            after_broker: Duration::from_secs(30),
            moving: Duration::from_secs(60),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            settled: Duration::from_secs(30),
            leaving: Duration::from_secs(2),
        }
    }
}

/// The work to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask a node, repeatedly until it answers or is dead. The answer goes to [`MasterState::answered`].
    Ask {
        /// The node.
        node: String,
        /// The request.
        request: Box<NodeRequest>,
        /// The subject of the request.
        about: About,
    },
    /// Revoke all certificates of a process and its agents.
    Revoke {
        /// The process.
        process: String,
        /// Only the certificates of this agent.
        agent: Option<String>,
        /// The reason.
        cause: Reason,
    },
    /// Enter a step of certification.
    Step {
        /// 1 or 2.
        step: u8,
        /// The agent.
        agent: String,
        /// The node.
        node: String,
        /// The event.
        what: String,
    },
    /// Change the agent's entry in the AMS: its state, or that it is gone.
    WhitePages {
        /// Local name.
        agent: String,
        /// The agent's state.
        state: Option<PlacedState>,
    },
    /// End an operator's wait: a move ended, or a node knows a ticket.
    Settled {
        /// The group.
        group: String,
        /// The node that the group is on now, or the reason why it did not move.
        result: Result<String, Fault>,
    },
}

/// The subject of a question to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The start of a process.
    Start {
        /// The group.
        group: String,
        /// The process.
        process: String,
    },
    /// The freezing of a process.
    Freeze {
        /// The group.
        group: String,
        /// The process.
        process: String,
    },
    /// The admission of a ticket.
    Expect {
        /// The group.
        group: String,
        /// The node.
        node: String,
    },
    /// The certificates of a process that a restored state does not know.
    Certified {
        /// The node.
        node: String,
        /// The process.
        process: String,
    },
    /// No subject: nothing depends on the answer.
    Nothing,
}

/// Draws names for processes: 32 hexadecimal digits that were never drawn before.
pub type DrawName = Box<dyn FnMut() -> Result<String, Fault> + Send>;

/// The state machine.
pub struct MasterState {
    patience: TimeLimits,
    /// The broker, if it carries the nodes' messages.
    witness: Option<silence::Witness>,
    /// When the Master last looked at the clock.
    looked: UnixMillis,
    /// When any node was last heard.
    heard_any: UnixMillis,
    draw_name: DrawName,
    nodes: HeardNodes,
    groups: BTreeMap<String, Group>,
    /// Agent to group.
    agents: BTreeMap<String, String>,
    /// Process to group. A group that moves has two processes.
    processes: HashMap<String, String>,
    bars: Bars,
    /// Whether the state was ever restored from a backup.
    was_restored: bool,
    /// The known processes of the nodes, in a state that was restored from a backup.
    restored: Option<Restored>,
    /// Indexes over the groups: by node, by the next moment at which time does something, and those that wait for a
    /// node.
    loads: Loads,
    /// The last notice to the AMS.
    white_pages: HashMap<String, PlacedState>,
    directory: Directory,
    /// Groups with rows that must be written.
    unsaved: BTreeSet<String>,
    /// Groups with news of their agents that their nodes know, too.
    reported: BTreeSet<String>,
    rows: Rows,
    effects: Vec<Effect>,
}

/// A row of the store cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the row {key} of the platform's state cannot be read: {error}")]
pub struct DamagedRow {
    /// The row's key.
    pub key: String,
    /// The fault.
    pub error: serde_json::Error,
}

impl MasterState {
    /// Loads a Master from its rows. `revision` is above every directory revision given out before.
    ///
    /// # Errors
    /// [`DamagedRow`].
    pub fn load<'r>(
        rows: impl IntoIterator<Item = (&'r str, &'r [u8])>,
        revision: u64,
        patience: TimeLimits,
        draw_name: DrawName,
        now: UnixMillis,
    ) -> Result<Self, DamagedRow> {
        let mut state = Self {
            patience,
            witness: None,
            looked: now,
            heard_any: now,
            draw_name,
            nodes: HeardNodes::default(),
            groups: BTreeMap::new(),
            agents: BTreeMap::new(),
            processes: HashMap::new(),
            bars: Bars::default(),
            was_restored: false,
            restored: None,
            loads: Loads::default(),
            white_pages: HashMap::new(),
            directory: Directory::starting_at(revision),
            unsaved: BTreeSet::new(),
            reported: BTreeSet::new(),
            rows: Rows::default(),
            effects: Vec::new(),
        };
        for (key, value) in rows {
            let damaged = |error| DamagedRow {
                key: key.to_owned(),
                error,
            };
            if let Some(name) = key.strip_prefix(NODE_ROW) {
                let mut node: Node = serde_json::from_slice(value).map_err(damaged)?;
                node.heard = now;
                // A node that was given up must come back as another process, even if another Master gave it up.
                if !node.state.is_gone() {
                    node.state = NodeState::Expected;
                }
                state.nodes.change().insert(name.to_owned(), node);
            } else if let Some(name) = key.strip_prefix(GROUP_ROW) {
                let group: Group = serde_json::from_slice(value).map_err(damaged)?;
                state.index(name, &group);
                state.groups.insert(name.to_owned(), group);
            } else if let Some(row) = key.strip_prefix(BAR_ROW) {
                state.bars.load(row);
            } else if key == RESTORED_ROW {
                state.was_restored = true;
                state.restored = Restored::load(value, now);
            }
        }
        let is_known = |holder: &str| {
            state.processes.contains_key(holder) || state.groups.contains_key(holder)
        };
        state.bars.keep(is_known, &mut state.rows);
        let groups: Vec<String> = state.groups.keys().cloned().collect();
        for group in groups {
            state.resume(&group, now);
            state.refresh(&group);
        }
        let nodes: Vec<String> = state.nodes.keys().cloned().collect();
        for node in nodes {
            state.refresh_node(&node);
        }
        Ok(state)
    }

    /// Prefixes of this state's rows.
    pub const ROWS: [&'static str; 4] = [NODE_ROW, GROUP_ROW, BAR_ROW, RESTORED_ROW];

    /// Takes the effects, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The news of the directory for the nodes.
    pub fn directory_mut(&mut self) -> &mut Directory {
        &mut self.directory
    }

    /// Sets the rules for all processes.
    pub fn set_rules(&mut self, rules: Rules) {
        self.directory.set_rules(rules);
    }

    /// All nodes that ever joined, except forgotten ones.
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// A number that differs after nodes have changed. Their signs of life do not count.
    pub(crate) fn changes_of_nodes(&self) -> u64 {
        self.nodes.changes()
    }

    /// All process groups.
    pub fn groups(&self) -> &BTreeMap<String, Group> {
        &self.groups
    }

    /// The group of an agent.
    pub fn group_of(&self, agent: &str) -> Option<(&str, &Group)> {
        let name = self.agents.get(agent)?;
        Some((name, self.groups.get(name)?))
    }

    /// The process of that name, with its group's name, if the Master placed it and has not given it up.
    pub fn process(&self, process: &str) -> Option<(&str, &Process)> {
        let name = self.processes.get(process)?;
        let group = self.groups.get(name)?;
        let found = group.processes().find(|found| found.id == process)?;
        Some((name, found))
    }

    /// The names of the groups for which time alone does something by `now`, if `is` holds for the group.
    fn due(&self, now: UnixMillis, is: impl Fn(&Group) -> bool) -> Vec<String> {
        let due = self.loads.due_by(now);
        let due = due.filter(|name| self.groups.get(*name).is_some_and(&is));
        due.cloned().collect()
    }

    fn index(&mut self, name: &str, group: &Group) {
        for agent in &group.agents {
            self.agents.insert(agent.clone(), name.to_owned());
        }
        for process in group.processes() {
            self.processes.insert(process.id.clone(), name.to_owned());
        }
    }

    fn ask(&mut self, node: &str, request: NodeRequest, about: About) {
        self.effects.push(Effect::Ask {
            node: node.to_owned(),
            request: Box::new(request),
            about,
        });
    }

    /// Brings directory and AMS in line with a group, and saves it.
    fn refresh(&mut self, name: &str) {
        self.save(name);
        let Some(group) = self.groups.get(name) else {
            return;
        };
        let using = group.processes().filter(|process| process.channels);
        for contact in using.filter_map(Process::contact) {
            self.directory.joined(contact);
        }
        let agents = group.agents.clone();
        for agent in &agents {
            self.refresh_agent(name, agent);
        }
    }

    /// Brings directory and AMS in line with one agent of a group.
    fn refresh_agent(&mut self, name: &str, agent: &str) {
        let Some(group) = self.groups.get(name) else {
            return;
        };
        let (location, state) = situation(group, agent);
        self.directory.set(agent, location);
        self.tell_white_pages(agent, state);
    }

    fn tell_white_pages(&mut self, agent: &str, state: Option<PlacedState>) {
        let known = match state {
            Some(state) => self.white_pages.insert(agent.to_owned(), state),
            None => self.white_pages.remove(agent),
        };
        if known != state {
            let agent = agent.to_owned();
            self.effects.push(Effect::WhitePages { agent, state });
        }
    }

    fn refresh_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else {
            return;
        };
        let location = match (&node.contact, node.state) {
            (Some(contact), state) if state != NodeState::Dead => {
                AgentLocation::Process(contact.clone())
            }
            _ => AgentLocation::Unknown,
        };
        let alive = location != AgentLocation::Unknown;
        self.directory.set(name, location);
        self.tell_white_pages(name, alive.then_some(PlacedState::Active));
    }

    /// Forgets a group and its agents, and ends its remaining processes.
    fn forget(&mut self, name: &str) {
        let Some(group) = self.groups.remove(name) else {
            return;
        };
        self.unsaved.remove(name);
        self.reported.remove(name);
        self.loads.note(name, None);
        self.rows.delete(format!("{GROUP_ROW}{name}"));
        self.bars.forget(name, &mut self.rows);
        for agent in &group.agents {
            self.agents.remove(agent);
            self.directory.set(agent, AgentLocation::Unknown);
            if self.white_pages.remove(agent).is_some() {
                self.effects.push(Effect::WhitePages {
                    agent: agent.clone(),
                    state: None,
                });
            }
        }
        for process in group.processes() {
            self.drop_process(&process.id);
            if group.origin == GroupOrigin::System {
                // The name stays with the Master's process.
                self.revoke(&process.id, Reason::Superseded);
            } else {
                self.stop_process(process, Duration::ZERO, "it was replaced");
                self.end_process(process, Reason::Superseded);
            }
        }
    }

    fn revoke(&mut self, process: &str, cause: Reason) {
        self.effects.push(Effect::Revoke {
            process: process.to_owned(),
            agent: None,
            cause,
        });
    }

    /// Ends a process: its certificates are revoked, and the processes that may have links to it are told.
    fn end_process(&mut self, process: &Process, cause: Reason) {
        self.revoke(&process.id, cause);
        let ended = EndedProcess {
            node: process.node.clone(),
            process: process.id.clone(),
        };
        self.directory.ended(ended, process.agents.keys());
    }
}

/// The place of an agent of a group, and its state.
fn situation(group: &Group, agent: &str) -> (AgentLocation, Option<PlacedState>) {
    let Some(process) = &group.process else {
        return match group.start_at {
            Some(_) => (AgentLocation::InTransit, Some(PlacedState::Initiated)),
            None => (AgentLocation::Unknown, None),
        };
    };
    let life = process.agents.get(agent).unwrap_or(&Life::Unborn);
    let in_transit = (AgentLocation::InTransit, Some(PlacedState::Transit));
    match (&group.moving, life) {
        (Some(moving), _) if moving.source.is_none() => in_transit,
        (Some(_), Life::Unborn) => in_transit,
        (_, Life::Ended | Life::Failed { .. }) => (AgentLocation::Unknown, None),
        (None, Life::Unborn) => (AgentLocation::InTransit, Some(PlacedState::Initiated)),
        (_, Life::State { state }) => match process.contact() {
            Some(contact) => (AgentLocation::Process(contact), Some(*state)),
            None => (AgentLocation::InTransit, Some(*state)),
        },
    }
}

fn unknown(what: &str, name: &str) -> Fault {
    Fault::new(FaultCode::Unknown, format!("there is no {what} {name}"))
}
