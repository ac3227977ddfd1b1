//! The effects that leave the desk.

use std::collections::HashSet;

use tokio::sync::oneshot;

use crate::state::About;
use sealbus_control::node::NodeRequest;
use sealbus_control::{Fault, PlacedState};

/// An effect of the desk, carried out once it is in the store.
#[derive(Debug)]
pub(crate) enum Outward {
    /// Ask a node.
    Ask {
        /// The node.
        node: String,
        /// The request.
        request: Box<NodeRequest>,
        /// The subject of the request.
        about: About,
    },
    /// Enter or remove an agent in the AMS.
    WhitePages {
        /// Local name.
        agent: String,
        /// The agent's state.
        state: Option<PlacedState>,
    },
    /// Tell the operators that wait for an event.
    Settled {
        /// The operators.
        waiting: Vec<oneshot::Sender<Result<String, Fault>>>,
        /// The outcome for them.
        result: Result<String, Fault>,
    },
    /// Tell the waiting task that the AMS knows of all earlier effects.
    Followed(oneshot::Sender<()>),
}

impl Outward {
    /// Whether the effect does nothing but end a process.
    pub(super) fn is_an_end(&self) -> bool {
        matches!(self, Self::Ask { request, .. } if matches!(**request, NodeRequest::Stop { .. }))
    }
}

/// Keeps only the last of several changes of an agent in the AMS. While the store takes nothing, an agent could report changes
/// without end.
pub(super) fn forget_overtaken(held: &mut Vec<Outward>) {
    let mut changed = HashSet::new();
    held.reverse();
    held.retain(|effect| match effect {
        Outward::WhitePages { agent, .. } => changed.insert(agent.clone()),
        Outward::Ask { .. } | Outward::Settled { .. } | Outward::Followed(_) => true,
    });
    held.reverse();
}
