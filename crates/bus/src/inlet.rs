//! Frames: the language between the buses of two processes. A [`Transport`](crate::Transport) carries frames in order
//! and once. A frame is only bytes to the transport; the [`FrameInlet`] understands the contents.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sealbus_fipa::AclMessageRef;
use sealbus_proof::Hash;
use sealbus_seal::Identity;

use crate::agent::LocalAgent;
use crate::credit::WindowCredit;
use crate::delegation::Delegation;
use crate::error::{Rejected, UndeliverableReason};
use crate::gate::Gate;
use crate::mailbox::{MESSAGE_OVERHEAD, WindowListener};
use crate::message::Provenance;
use crate::refusal::{ExplainedRefusal, RefusalReason};
use crate::resolver::ProcessEndpoint;

/// The writer of a frame.
#[derive(Clone, Copy, Debug)]
pub enum FrameSender<'a> {
    /// The process itself, for frames about its subscriptions, its credit and the like.
    Process,
    /// An agent of this process. The agent proves its identity as it does for messages.
    Agent(&'a Arc<LocalAgent>),
}

/// A frame on its way out: a head, and directly behind it a body and a tail.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingFrame<'a> {
    /// The writer.
    pub sender: FrameSender<'a>,
    /// The beginning of the frame: some hundred bytes, which may differ from process to process.
    pub head: &'a [u8],
    /// The body: most of a long frame, and the same for all processes. A transport keeps the body without copying it.
    pub body: &'a Bytes,
    /// The end mark; a few bytes.
    pub tail: &'static [u8],
    /// The hash that [`FrameInlet::statement`] gives for the frame. At level `signed` the writer signs it.
    pub statement: Option<Hash>,
}

impl OutgoingFrame<'_> {
    /// The length of the whole frame in bytes.
    pub fn length(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// The whole frame in one piece. The bytes are copied unless the frame is nothing but its body.
    pub fn to_bytes(&self) -> Bytes {
        if self.head.is_empty() && self.tail.is_empty() {
            return self.body.clone();
        }
        [self.head, self.body, self.tail].concat().into()
    }
}

/// The way to the bus of another process. Calls do not wait.
///
/// The other process [takes](FrameInlet::take) the accepted frames of all writers once and in the order of acceptance,
/// or the frames come back through [`FrameInlet::lost`]. Frames have room of their own: an inlet that gives no credit
/// does not hold up messages between agents.
pub trait ProcessDestination: Send + Sync {
    /// Accepts the frame for delivery in order, or says why not.
    ///
    /// # Errors
    /// [`Rejected`]; then nothing was accepted. After [`Rejected::Closed`] the caller must ask for a new way.
    /// [`Rejected::Moving`] says that the way will be closed once all accepted frames have come back.
    fn try_send(&self, frame: &OutgoingFrame<'_>) -> Result<(), Rejected>;

    /// The gate at which senders wait after [`Rejected::Full`]. The gate opens wide when the way ends.
    fn gate(&self) -> &Gate;
}

/// The writer of a frame that arrived, as far as the transport proved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameOrigin {
    /// The process itself.
    Process,
    /// An agent of that process, by its name.
    Agent(Arc<str>),
}

/// The known facts about the writer of frames. They are the same for most frames of one writer, which share them.
#[derive(Debug)]
pub struct FrameWriter {
    /// The process that sent the frames.
    pub process: Arc<Identity>,
    /// The writer.
    pub origin: FrameOrigin,
    /// The proof of the writer.
    pub provenance: Provenance,
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct ArrivedFrame {
    /// The facts about its writer. They can be read as if they were fields of the frame.
    pub writer: Arc<FrameWriter>,
    /// The frame.
    pub payload: Bytes,
    /// The room that the frame takes. When the credit is dropped, the sending process has this room again. If several
    /// frames come together, the last one may hold the room of all.
    pub credit: FrameCredit,
}

impl Deref for ArrivedFrame {
    type Target = FrameWriter;

    fn deref(&self) -> &FrameWriter {
        &self.writer
    }
}

impl ArrivedFrame {
    /// Checks that the writer of the frame also wrote the ACL message in it, and that the message rightly says on whose
    /// behalf it asks.
    ///
    /// # Errors
    /// [`ExplainedRefusal`], with `forged-sender` if another agent wrote it: only agents write messages, each under its
    /// own name.
    pub fn check_message(&self, message: &AclMessageRef<'_>) -> Result<(), ExplainedRefusal> {
        match &self.origin {
            FrameOrigin::Agent(name) => {
                check_sender(name, message)?;
                Delegation::from_sender(message, name)?;
                Ok(())
            }
            FrameOrigin::Process => Err(ExplainedRefusal {
                reason: RefusalReason::ForgedSender,
                explanation: format!("{} sent an agent's message as its own", self.process),
            }),
        }
    }
}

/// Checks that the `:sender` of a message is the name that its sender proved or, at levels without proofs, claims.
///
/// # Errors
/// [`ExplainedRefusal`] with `forged-sender`.
pub fn check_sender(proved: &str, message: &AclMessageRef<'_>) -> Result<(), ExplainedRefusal> {
    let explanation = match message.sender() {
        Some(claimed) if *claimed.name() == *proved => return Ok(()),
        Some(claimed) => format!("{proved} wrote under the name of {}", claimed.name()),
        None => format!("{proved} wrote without its name"),
    };
    Err(ExplainedRefusal {
        reason: RefusalReason::ForgedSender,
        explanation,
    })
}

/// A frame that arrived and was refused.
#[derive(Debug)]
pub struct RefusedFrame {
    /// The index of the frame among the frames that came together, from 0.
    pub place: usize,
    /// The frame.
    pub frame: ArrivedFrame,
    /// The reason.
    pub refused: ExplainedRefusal,
}

/// A frame that was accepted for another process, which did not take it.
#[derive(Clone, Debug)]
pub struct LostFrame {
    /// The agent that wrote the frame; `None`: the process itself.
    pub sender: Option<Arc<str>>,
    /// The frame.
    pub payload: Bytes,
    /// Whether the other process may have taken the frame anyway.
    pub may_have_arrived: bool,
}

/// Takes the frames that other processes send to the bus of this one. Calls come from the tasks of transports and
/// must not wait.
pub trait FrameInlet: Any + Send + Sync {
    /// Takes frames that have arrived, oldest first, and leaves `frames` empty. The transport has proved their
    /// `origin`, but their contents are not checked yet.
    ///
    /// Returns the refused frames. The transport tells the sending process, whose inlet finds them [lost](Self::lost).
    /// [`Bus::take_frames`](crate::Bus::take_frames) counts and logs them.
    fn take(&self, frames: &mut Vec<ArrivedFrame>) -> Vec<RefusedFrame>;

    /// The hash of the [statement](sealbus_proof::Statement) that the writer of a frame must have signed at level
    /// `signed`; `None` if the frame brings no message of an agent. The transport then hands over the frame with the
    /// evidence, or refuses it.
    fn statement(&self, _frame: &[u8]) -> Option<Hash> {
        None
    }

    /// Another process has joined the platform, or a known process has a new address.
    fn process_joined(&self, process: &ProcessEndpoint);

    /// A process has ended. Nothing sent to it arrives, and it never comes back under this identity.
    fn process_left(&self, process: &Identity);

    /// The platform has given up this process. Nothing more goes out: frames that other processes have not confirmed
    /// are reported with this reason.
    fn given_up(&self, _reason: &UndeliverableReason) {}

    /// An agent of this process was [detached](crate::Bus::detach).
    fn agent_left(&self, _name: &str) {}

    /// `process` did not take these frames, which were accepted for it. They are in order, oldest first.
    fn lost(&self, process: &Identity, frames: Vec<LostFrame>, reason: &UndeliverableReason);
}

/// The credit of one other process with the inlet of this process. It is the receiving side of the credit of a
/// [`ProcessDestination`].
pub struct FrameWindow {
    listener: Arc<dyn WindowListener>,
    size: u64,
    credit: Mutex<WindowCredit>,
}

impl FrameWindow {
    /// A window of `size` bytes. `listener` is told (with tag 0) when the limit rises.
    pub fn new(size: u64, listener: Arc<dyn WindowListener>) -> Arc<Self> {
        Arc::new(Self {
            listener,
            size,
            credit: Mutex::new(WindowCredit::new(size)),
        })
    }

    /// The number of bytes that may be sent at the beginning. Each frame is counted with [`MESSAGE_OVERHEAD`].
    pub fn first_limit(&self) -> u64 {
        self.size
    }

    /// The credit of a frame of that length. The limit must cover the frame.
    pub fn credit(self: &Arc<Self>, payload_length: usize) -> FrameCredit {
        FrameCredit {
            window: Some(self.clone()),
            cost: (payload_length + MESSAGE_OVERHEAD) as u64,
        }
    }

    fn give_back(&self, cost: u64) {
        let limit = self.credit.lock().take(cost, self.size);
        if let Some(limit) = limit {
            self.listener.widened(0, limit);
        }
    }
}

/// The room that a frame takes of its [`FrameWindow`]. Dropping the credit gives the room back.
pub struct FrameCredit {
    window: Option<Arc<FrameWindow>>,
    cost: u64,
}

impl FrameCredit {
    /// The credit of a frame that costs nothing, for transports that push back by other means.
    pub const fn free() -> Self {
        Self {
            window: None,
            cost: 0,
        }
    }

    /// The credit of the earlier frames and of one more frame of that length.
    #[must_use]
    pub fn and(mut self, payload_length: usize) -> Self {
        self.cost += (payload_length + MESSAGE_OVERHEAD) as u64;
        self
    }
}

impl Drop for FrameCredit {
    fn drop(&mut self) {
        if let Some(window) = &self.window {
            window.give_back(self.cost);
        }
    }
}

impl fmt::Debug for FrameCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCredit")
            .field("bytes", &self.cost)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FrameWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWindow")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Heard(AtomicU64);

    impl WindowListener for Heard {
        fn widened(&self, _tag: u64, limit: u64) {
            self.0.store(limit, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_credit_gives_back_the_room_of_all_frames_of_a_row() {
        let heard = Arc::<Heard>::default();
        let window = FrameWindow::new(1000, heard.clone());
        let cost = |length: usize| (length + MESSAGE_OVERHEAD) as u64;
        let mut credit = window.credit(300);
        credit = credit.and(200).and(100);
        assert_eq!(heard.0.load(Ordering::Relaxed), 0);
        drop(mem::replace(&mut credit, FrameCredit::free()));
        let taken = cost(300) + cost(200) + cost(100);
        assert_eq!(heard.0.load(Ordering::Relaxed), 1000 + taken);
        // A frame that costs nothing gives nothing back.
        drop(credit);
        assert_eq!(heard.0.load(Ordering::Relaxed), 1000 + taken);
    }
}
