//! The bus: mailboxes, delivery, the [`Transport`] trait and the in-process transport.
//!
//! A [`Bus`] joins the agents of one process. Each [attached](Bus::attach) agent has an [`Outbox`] and a [`Mailbox`].
//! Every message takes one path. The bus finds the way to the receiver. Inside the process the bus then puts the
//! message itself, shared and not encoded, into the receiver's mailbox. For another process the bus hands the message
//! to the [`Transport`], which encodes it.
//!
//! An undeliverable message comes back to its sender as a `failure` message. The [`RefusalLog`] holds refused attempts.

mod acknowledgement;
mod agent;
mod attachment;
mod bus;
mod credit;
mod delegation;
mod error;
mod failure;
mod foreign;
mod foreign_room;
mod gate;
mod gateway;
mod given_up;
mod inlet;
mod letter;
mod level;
mod lifetime;
mod limits;
mod mailbox;
mod message;
mod moment;
mod network;
mod opening;
mod origin;
mod outbox;
mod patience;
mod permission;
mod permits;
mod refusal;
mod resolver;
mod route;
mod sealed;
mod search;
mod session;
mod tap;
pub mod text;
mod transport;
mod waiting;
mod ways;

pub use acknowledgement::Acknowledgement;
pub use agent::{LocalAgent, NoSigner};
pub use attachment::AttachError;
pub use bus::{Bus, BusConfig, Counters, WeakBus};
pub use credit::WindowCredit;
pub use delegation::{Delegation, DelegationError, LONGEST_ASKER, MOST_ASKERS, ON_BEHALF_OF};
pub use error::{Rejected, SendError, TrySendError, UndeliverableReason, Unsent};
pub use failure::{failure_notice, receipt_notice, receiver_receipt};
pub use foreign::{GATEWAY, StandInLimits, StandInReader, is_foreign};
pub use foreign_room::{ForeignRoom, MessageRoom};
pub use gate::Gate;
pub use inlet::{
    ArrivedFrame, FrameCredit, FrameInlet, FrameOrigin, FrameSender, FrameWindow, FrameWriter,
    LostFrame, OutgoingFrame, ProcessDestination, RefusedFrame, check_sender,
};
pub use letter::{Delivery, Kept, KeptListener, KeptOutcome, Letter, NotKept, Post};
pub use level::{Downgrade, LEVEL_PARAMETER, asks_for_proof, level_of, set_level};
pub use lifetime::{Lifetime, LifetimeError};
pub use limits::{ANY_LENGTH, OWN_ENCODING};
pub use mailbox::{
    Closed, Conversation, ConversationOpen, Conversations, Late, MESSAGE_OVERHEAD, Mailbox,
    MailboxCounts, MailboxLimits, MailboxSender, MailboxWindow, PushError, RestingMailbox,
    WindowListener, mailbox,
};
pub use message::{Provenance, ReceivedMessage, SealedWords, shared_size};
pub use moment::{Moment, milliseconds};
pub use network::network_of;
pub use origin::{ForeignOrigin, ORIGIN_PARAMETER};
pub use outbox::Outbox;
pub use patience::Patience;
pub use permission::Permit;
pub use refusal::{
    Allowance, Budget, ExplainedRefusal, LogShares, Refusal, RefusalLog, RefusalReason,
};
pub use resolver::{BoxFuture, Location, ProcessEndpoint, ResolveError, Resolver};
pub use sealed::{
    LONGEST_ROW, NotOpened, NotSealed, Opened, OpenedRow, OpenedRows, RowForm, RowId,
    SHORT_OVERHEAD, SealedEnvelope, SealedMessage, SealedRow, Sealer, SentRows, WHOLE_OVERHEAD,
    is_sealed,
};
pub use session::SessionNumber;
pub use tap::{Arrival, Tap, Watcher};
pub use transport::{Capabilities, Destination, LinkCounts, Outgoing, Transport, TransportError};
pub use waiting::{sleep_until, until};
pub use ways::Returned;

/// An identifier that holds only a name. The name is legal, because an agent was attached or a message decoded under
/// it.
pub fn aid_of(name: &str) -> sealbus_fipa::Aid {
    sealbus_fipa::Aid {
        name: name.to_owned(),
        addresses: Vec::new(),
        resolvers: Vec::new(),
        user_defined: Vec::new(),
    }
}
