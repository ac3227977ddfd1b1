//! The agents that processes hand in for moves, and who answers their unread messages when a move fails.

use std::sync::Arc;

use sealbus_control::attachment::{FrozenPart, MOST_FROZEN};
use sealbus_control::rpc::RpcCaller;
use sealbus_control::{Fault, FaultCode};
use sealbus_process::attachment::part_of;
use tokio::sync::oneshot;

use super::Processes;

/// The most bytes of notices that a process brings for agents that it has handed in. There is a limit because notices are
/// kept even on a full disk.
const MOST_LATE: usize = 16 << 20;
/// The bytes for which each of these notices counts beside its message. A node's records of a letter take more room than a
/// short message.
const LATE_OVERHEAD: usize = 1 << 10;

/// The parts of a freeze in progress, and the tasks that wait for all of it.
pub(crate) struct FreezeInProgress {
    number: u64,
    bytes: Vec<u8>,
    /// The number of parts.
    parts: u32,
    waiting: Vec<oneshot::Sender<Result<usize, Fault>>>,
}

impl FreezeInProgress {
    pub(super) fn begun(number: u64) -> Self {
        Self {
            number,
            bytes: Vec::new(),
            parts: 0,
            waiting: Vec::new(),
        }
    }
}

/// The frozen state of a process, and the node that may fetch it.
pub(crate) struct FrozenProcess {
    /// The number of the freeze.
    pub(crate) number: u64,
    /// The agents that are placed in the process.
    pub(crate) agents: Vec<String>,
    pub(crate) destination: String,
    /// Empty until all parts are there.
    pub(crate) bytes: Arc<Vec<u8>>,
    /// Whether the process ends, and leaves it to the node to answer its agents' unread messages.
    pub(crate) is_left: bool,
    /// Whether the destination has fetched everything.
    pub(crate) is_fetched: bool,
}

impl FrozenProcess {
    /// A freeze of a process with these agents, of which nothing is there yet.
    pub(crate) fn begun(number: u64, agents: Vec<String>, destination: &str) -> Self {
        Self {
            number,
            agents,
            destination: destination.to_owned(),
            bytes: Arc::default(),
            is_left: false,
            is_fetched: false,
        }
    }
}

/// The consequence of a failed move.
pub(crate) enum AfterMove {
    /// The process goes on once it is told.
    GoesOn(Option<RpcCaller>),
    /// The process has ended or is about to. The node answers its agents' unread messages.
    Answer(FrozenProcess),
}

impl Processes {
    /// Begins a freeze with this number, unless one is in progress. Returns the connection to the process, which must
    /// be told of a new one.
    ///
    /// # Errors
    /// If the process cannot be moved now.
    pub(crate) fn begin_freeze(
        &self,
        process: &str,
        number: u64,
        destination: &str,
        waiting: oneshot::Sender<Result<usize, Fault>>,
    ) -> Result<Option<RpcCaller>, Fault> {
        let refused = |why: &str| Fault::new(FaultCode::NotPermitted, why);
        let begun = self.with(process, |entry| {
            if entry.remembered.handed_in.is_some() {
                let why = "its agents are at rest since an earlier move, and their node has lost what they handed in";
                return Err(refused(why).advise("they go on now: move them again"));
            }
            let Some((_, caller)) = &entry.connection else {
                let why = "its process has not attached and cannot be moved";
                return Err(refused(why));
            };
            let is_first = entry.freezing.is_none();
            let freezing = entry.freezing.get_or_insert_with(|| FreezeInProgress::begun(number));
            freezing.waiting.push(waiting);
            let agents = &entry.remembered.launch.agents;
            Ok(is_first.then(|| (caller.clone(), agents.clone())))
        })??;
        let Some((caller, agents)) = begun else {
            return Ok(None);
        };
        let frozen = FrozenProcess::begun(number, agents, destination);
        self.frozen.lock().insert(process.to_owned(), frozen);
        Ok(Some(caller))
    }

    /// Gives up a freeze. If all frozen agents have been handed in by now, returns their size: then it is too late.
    pub(crate) fn give_up_freeze(&self, process: &str, number: u64) -> Option<usize> {
        {
            let mut all = self.frozen.lock();
            if let Some(frozen) = all.get(process).filter(|it| it.number == number) {
                if !frozen.bytes.is_empty() {
                    return Some(frozen.bytes.len());
                }
                all.remove(process);
            }
        }
        // Any further parts belong to no move.
        let _ = self.with(process, |entry| {
            entry.freezing.take_if(|it| it.number == number);
            entry.remembered.handed_in.take_if(|it| *it == number);
        });
        None
    }

    /// Takes a part of a process's frozen agents. A part that is there already comes again because the answer was lost.
    /// With the last part, returns the whole, which must then be [noted](Self::note) and [handed in](Self::handed_in).
    ///
    /// # Errors
    /// If the part belongs to no freeze in progress, or does not follow the others. The agents then go on in the process.
    pub(crate) fn add_frozen_part(
        &self,
        process: &str,
        number: u64,
        part: &FrozenPart,
    ) -> Result<Option<FreezeInProgress>, Fault> {
        let refuse = |why: String| Err(Fault::new(FaultCode::BadRequest, why));
        self.with(process, |entry| {
            if entry.remembered.handed_in == Some(number) {
                return Ok(None);
            }
            let Some(freezing) = entry.freezing.as_mut().filter(|it| it.number == number) else {
                return refuse("nothing was to be frozen, or the move was given up".to_owned());
            };
            if part.index < freezing.parts {
                return Ok(None);
            }
            if part.index > freezing.parts {
                let (index, expected) = (part.index, freezing.parts);
                return refuse(format!(
                    "part {index} came, and part {expected} is the next"
                ));
            }
            if freezing.bytes.len() + part.bytes.0.len() > MOST_FROZEN {
                return refuse(format!(
                    "more than {MOST_FROZEN} bytes of state and messages cannot be moved"
                ));
            }
            freezing.bytes.extend_from_slice(&part.bytes.0);
            freezing.parts += 1;
            if part.more {
                return Ok(None);
            }
            entry.remembered.handed_in = Some(number);
            Ok(entry.freezing.take())
        })?
    }

    /// Notes that a process has handed in its agents, and tells the tasks that wait for that.
    ///
    /// # Errors
    /// If the move was given up in the meantime.
    pub(crate) fn handed_in(&self, process: &str, whole: FreezeInProgress) -> Result<(), Fault> {
        let size = whole.bytes.len();
        let mut frozen = self.frozen.lock();
        let frozen = frozen
            .get_mut(process)
            .filter(|it| it.number == whole.number)
            .ok_or_else(|| Fault::new(FaultCode::BadRequest, "the move was given up meanwhile"))?;
        tracing::info!(process, size, "its agents are handed in for a move");
        frozen.bytes = Arc::new(whole.bytes);
        for waiting in whole.waiting {
            let _ = waiting.send(Ok(size));
        }
        Ok(())
    }

    /// Notes that a process brings so many notices, of this many bytes in all, which came too late for its agents to take
    /// along.
    ///
    /// # Errors
    /// If the process has not handed in its agents, or has brought too many bytes.
    pub(crate) fn brings_notices(
        &self,
        process: &str,
        count: usize,
        bytes: usize,
    ) -> Result<(), Fault> {
        self.with(process, |entry| {
            if entry.remembered.handed_in.is_none() {
                let why = format!("the process {process} brings notices, and its agents do not move");
                return Err(Fault::new(FaultCode::NotPermitted, why));
            }
            let bytes = bytes.saturating_add(count.saturating_mul(LATE_OVERHEAD));
            entry.late_notices = entry.late_notices.saturating_add(bytes);
            if entry.late_notices <= MOST_LATE {
                return Ok(());
            }
            let why = format!(
                "the process {process} brings more than {MOST_LATE} bytes of notices for agents that it has handed in"
            );
            Err(Fault::new(FaultCode::Full, why))
        })?
    }

    /// Notes that a process cannot be moved, or that it ends. Returns whether it has handed in its agents, so that the
    /// node answers their unread messages.
    pub(crate) fn not_frozen(&self, process: &str, reason: &str) -> bool {
        {
            let mut all = self.frozen.lock();
            if let Some(frozen) = all.get_mut(process).filter(|it| !it.bytes.is_empty()) {
                frozen.is_left = true;
                return true;
            }
            // A last part that is just being taken is too late.
            all.remove(process);
        }
        let given_up = self.with(process, |entry| {
            entry.remembered.handed_in = None;
            entry.freezing.take()
        });
        let waiting = given_up.ok().flatten().map(|freezing| freezing.waiting);
        for waiting in waiting.into_iter().flatten() {
            let _ = waiting.send(Err(Fault::new(FaultCode::NotPermitted, reason)));
        }
        false
    }

    /// Ends a failed move. A process that is not told of it asks when it attaches again.
    ///
    /// # Errors
    /// If the process is unknown and has handed in nothing.
    pub(crate) fn thaw(&self, process: &str) -> Result<AfterMove, Fault> {
        let frozen = self.frozen.lock().remove(process);
        let caller = self.with(process, |entry| {
            entry.freezing = None;
            entry.remembered.handed_in = None;
            entry.connection.as_ref().map(|(_, caller)| caller.clone())
        });
        match (frozen, caller) {
            (Some(frozen), Ok(_)) if frozen.is_left => Ok(AfterMove::Answer(frozen)),
            (Some(frozen), Err(_)) => Ok(AfterMove::Answer(frozen)),
            (_, Ok(caller)) => Ok(AfterMove::GoesOn(caller)),
            (None, Err(fault)) => Err(fault),
        }
    }

    /// Whether agents that a process hands in for this freeze are still kept for its move.
    pub(crate) fn keeps_frozen(&self, process: &str, number: u64) -> bool {
        let frozen = self.frozen.lock();
        frozen.get(process).is_some_and(|it| it.number == number)
    }

    /// Forgets the agents that an ended process had handed in. Returns them if nobody has fetched them.
    pub(crate) fn forget_frozen(&self, process: &str) -> Option<FrozenProcess> {
        let frozen = self.frozen.lock().remove(process)?;
        (!frozen.bytes.is_empty() && !frozen.is_fetched).then_some(frozen)
    }

    /// The size of the agents that a process has handed over for this destination, if they still wait for the outcome.
    /// The process may have ended since.
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
