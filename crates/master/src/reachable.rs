//! The processes that a process of the Master can reach. The control plane is separate from the agents.

use sealbus_control::ProcessContact;

use super::desk::Desk;

/// Name of the group of the control plane's process, where that is another.
pub(crate) const CONTROL_GROUP: &str = "control";

/// The processes in `processes` that a process of the Master can reach. That process belongs to the control plane
/// (`of_control`) or has agents.
pub(crate) fn reachable(
    desk: &Desk,
    mut processes: Vec<ProcessContact>,
    of_control: bool,
) -> Vec<ProcessContact> {
    if desk.platform.is_control_apart() {
        let is_control = |contact: &ProcessContact| {
            let node = desk.state.nodes().get(&contact.node);
            let group = desk.state.process(&contact.process).map(|(group, _)| group);
            node.is_some_and(|node| node.process == contact.process) || group == Some(CONTROL_GROUP)
        };
        processes.retain(|contact| is_control(contact) == of_control);
    }
    processes
}
