//! Driving agents without hooks, at full speed: the parts of [`Platform`](crate::Platform), on which other SDKs build.

pub use crate::cast::{Part, Role, cast};
pub use crate::conversation::OpenRequest;
pub use crate::life::{HOOK_GRACE, TEARDOWN_LIMIT};
pub use crate::platform::{
    ATTACH_VARIABLE, EMBEDDED_NAME, IDENTITY_VARIABLE, LOG_VARIABLE, STATE_VARIABLE,
    TICKET_VARIABLE,
};
pub use sealbus_bus::{
    Conversations, Lifetime, Mailbox, Outbox, ReceivedMessage, UndeliverableReason,
};
pub use sealbus_process::{
    AgentHandle, AgentSender, CertificationError, LongLivedKey, LongLivedKeyError, OpenAgentError,
    OpenError, Parting, Process, ProcessEnd, Stopping, Thawed, Wish, Wishes,
};
pub use sealbus_seal::{Identity, SecurityLevel, VerifiedIdentity};
