//! The agents that processes hand in for moves, and the decision on the answers to their messages when a move fails.

use std::sync::Arc;

use sealbus_control::attachment::FrozenPart;
use sealbus_control::rpc::Caller;
use sealbus_control::{Fault, FaultCode};
use sealbus_process::attachment::part_of;
use tokio::sync::oneshot;

use super::Processes;

/// Most bytes of one process's frozen agents.
const MOST_FROZEN: usize = 256 * 1024 * 1024;

/// The parts of a freeze in progress, and the tasks that wait for all of it.
pub(crate) type Freezing = (Vec<u8>, Vec<oneshot::Sender<Result<usize, Fault>>>);

/// The frozen state of a process, and the node that may fetch it.
pub(crate) struct Frozen {
    /// The agents that are placed in the process.
    pub(crate) agents: Vec<String>,
    pub(crate) destination: String,
    /// Empty until all of it is there.
    pub(crate) bytes: Arc<Vec<u8>>,
    /// Whether the process ends, and leaves it to the node to answer what its agents have not read.
    pub(crate) is_left: bool,
    /// Whether the destination has fetched all of it.
    pub(crate) is_fetched: bool,
}

impl Frozen {
    /// Nothing yet, of a process with these agents.
    pub(crate) fn begun(agents: Vec<String>, destination: &str) -> Self {
        Self {
            agents,
            destination: destination.to_owned(),
            bytes: Arc::default(),
            is_left: false,
            is_fetched: false,
        }
    }
}

/// The consequence of a move that failed.
pub(crate) enum AfterMove {
    /// The process goes on, once it is told.
    GoesOn(Option<Caller>),
    /// The process has ended or is about to: the node answers what its agents have not read.
    Answer(Frozen),
}

impl Processes {
    /// Takes a part of a process's frozen agents.
    pub(crate) fn frozen_part(&self, process: &str, part: &FrozenPart) -> Result<(), Fault> {
        let complete = self.with(process, |entry| {
            let Some((bytes, _)) = &mut entry.freezing else {
                return Err(Fault::new(
                    FaultCode::BadRequest,
                    "nothing was to be frozen",
                ));
            };
            if bytes.len() + part.bytes.0.len() > MOST_FROZEN {
                return Err(Fault::new(
                    FaultCode::BadRequest,
                    format!("more than {MOST_FROZEN} bytes of state and messages cannot be moved"),
                ));
            }
            bytes.extend_from_slice(&part.bytes.0);
            if part.more {
                return Ok(None);
            }
            Ok(entry.freezing.take())
        })??;
        let Some((bytes, waiting)) = complete else {
            return Ok(());
        };
        let size = bytes.len();
        let mut frozen = self.frozen.lock();
        let frozen = frozen
            .get_mut(process)
            .ok_or_else(|| Fault::new(FaultCode::BadRequest, "the move was given up meanwhile"))?;
        tracing::info!(process, size, "its agents are handed in for a move");
        frozen.bytes = Arc::new(bytes);
        for waiting in waiting {
            let _ = waiting.send(Ok(size));
        }
        Ok(())
    }

    /// Notes that a process cannot be moved, or that it ends. Returns whether it has handed its agents in, so that the node
    /// answers what they have not read.
    pub(crate) fn not_frozen(&self, process: &str, reason: &str) -> bool {
        {
            let mut all = self.frozen.lock();
            if let Some(frozen) = all.get_mut(process).filter(|it| !it.bytes.is_empty()) {
                frozen.is_left = true;
                return true;
            }
            // A last part that is being taken comes too late.
            all.remove(process);
        }
        let waiting = self.with(process, |entry| entry.freezing.take());
        let waiting = waiting.ok().flatten().map(|(_, waiting)| waiting);
        for waiting in waiting.into_iter().flatten() {
            let _ = waiting.send(Err(Fault::new(FaultCode::NotPermitted, reason)));
        }
        false
    }

    /// Ends a failed move.
    ///
    /// # Errors
    /// If the process is unknown and has handed in nothing.
    pub(crate) fn thaw(&self, process: &str) -> Result<AfterMove, Fault> {
        let frozen = self.frozen.lock().remove(process);
        let caller = self.with(process, |entry| {
            entry.freezing = None;
            entry.connection.as_ref().map(|(_, caller)| caller.clone())
        });
        match (frozen, caller) {
            (Some(frozen), Ok(_)) if frozen.is_left => Ok(AfterMove::Answer(frozen)),
            (Some(frozen), Err(_)) => Ok(AfterMove::Answer(frozen)),
            (_, Ok(caller)) => Ok(AfterMove::GoesOn(caller)),
            (None, Err(fault)) => Err(fault),
        }
    }

    /// Forgets what a process that has ended had handed in. Returns it if nobody has fetched it.
    pub(crate) fn forget_frozen(&self, process: &str) -> Option<Frozen> {
        let frozen = self.frozen.lock().remove(process)?;
        (!frozen.bytes.is_empty() && !frozen.is_fetched).then_some(frozen)
    }

    /// The size of what a process has handed over for this destination, if that still waits for the outcome. The process may
    /// have ended since.
    pub(crate) fn frozen_for(&self, process: &str, destination: &str) -> Option<usize> {
        let frozen = self.frozen.lock();
        let frozen = frozen.get(process);
        let complete = frozen.filter(|it| it.destination == destination && !it.bytes.is_empty());
        complete.map(|frozen| frozen.bytes.len())
    }

    /// Returns a part of the frozen agents to the destination node.
    pub(crate) fn fetch(&self, from: &str, process: &str, index: u32) -> Result<FrozenPart, Fault> {
        let mut frozen = self.frozen.lock();
        let found = frozen
            .get_mut(process)
            .filter(|frozen| frozen.destination == from);
        let part = found.and_then(|frozen| {
            let part = part_of(&frozen.bytes, index)?;
            frozen.is_fetched |= !part.more;
            Some(part)
        });
        part.ok_or_else(|| {
            Fault::new(
                FaultCode::Unknown,
                format!("nothing of {process} waits here for {from}"),
            )
        })
    }
}
