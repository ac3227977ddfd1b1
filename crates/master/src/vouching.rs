//! The Master's answers to the CA before it certifies: the place of an agent, and whether its process may go on.

use sealbus_control::{Fault, FaultCode, Subject};
use sealbus_seal::Name;
use sealbus_seal::issuance::Placements;

use super::state::MasterState;

/// The placements that the CA asks for, on behalf of one process. While an agent moves, it counts as placed in the
/// asking process.
pub(crate) struct PlacementsOf<'d> {
    /// The Master's state.
    pub(crate) state: &'d MasterState,
    /// The process that will hold the key.
    pub(crate) process: &'d str,
}

impl Placements for PlacementsOf<'_> {
    fn is_member(&self, node: &Name) -> bool {
        self.state.is_member(node.as_str())
    }

    fn node_of(&self, agent: &Name) -> Option<Name> {
        let agent = agent.as_str();
        let node = if self.state.nodes().contains_key(agent) {
            // A node's own agent has the node's name.
            agent
        } else {
            match self.state.process(self.process) {
                Some((_, process)) if process.agents.contains_key(agent) => &process.node,
                _ => &self.state.group_of(agent)?.1.process.as_ref()?.node,
            }
        };
        Name::new("node", node).ok()
    }
}

/// Checks whether a process may still be certified for `subject`. It must belong to this node, the subject must be its
/// own, and the Master must not have told it to stop.
///
/// # Errors
/// [`FaultCode::NotPlaced`], or [`FaultCode::NotPermitted`] for an identity that an operator revoked.
pub(crate) fn check_process(
    state: &MasterState,
    node: &str,
    process: &str,
    subject: &Subject,
) -> Result<(), Fault> {
    let refuse = |why: &str| {
        Fault::new(
            FaultCode::NotPlaced,
            format!("the process {process} on {node} {why}"),
        )
    };
    let is_own = state
        .nodes()
        .get(node)
        .is_some_and(|known| known.process == process && !known.state.is_gone());
    if is_own {
        // A node's own process holds the node's own agent and no other. Any other agent placed there has a process of
        // its own, by which it is revoked.
        return match subject {
            Subject::Process => Ok(()),
            Subject::Agent { name } if name == node => Ok(()),
            Subject::Agent { name } => Err(refuse(&format!("is the node's own, not {name}'s"))),
        };
    }
    match state.process(process) {
        None if state.is_restoring() => {
            let message = format!(
                "the process {process} on {node} is not known yet: the platform is being restored"
            );
            Err(Fault::new(FaultCode::Unavailable, message).advise("the node tries again"))
        }
        None => Err(refuse("is none the Master placed, or was given up")),
        Some((_, found)) if found.node != node => Err(refuse("was placed elsewhere")),
        Some((_, found)) if found.stop_by.is_some() => Err(refuse("was told to stop")),
        Some((_, found)) => match subject {
            Subject::Agent { name } if state.is_barred(process, name) => {
                let message = format!("{name} was revoked by an operator");
                Err(Fault::new(FaultCode::NotPermitted, message)
                    .advise("kill it and start it again, if it is to be trusted again"))
            }
            Subject::Agent { name } if !found.agents.contains_key(name) => {
                Err(refuse(&format!("is not the one {name} was placed in")))
            }
            Subject::Process if state.barred(found).1 => {
                Err(refuse("has no agent left that may be certified"))
            }
            _ => Ok(()),
        },
    }
}
