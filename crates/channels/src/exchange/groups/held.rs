//! An event of a queue group, as the process of its publisher holds it.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::UndeliverableReason;
use sealbus_fipa::AclMessage;
use sealbus_seal::SecurityLevel;

use crate::event::ChannelHeader;
use crate::exchange::receipt::Receipt;
use crate::exchange::share::MemberKey;

/// An event that is held until a member has handled it.
pub(in crate::exchange) struct Held {
    pub(in crate::exchange) header: ChannelHeader,
    pub(in crate::exchange) message: Arc<AclMessage>,
    pub(in crate::exchange) publisher: Arc<str>,
    pub(in crate::exchange) receipt: Option<Arc<Receipt>>,
    pub(in crate::exchange) cost: usize,
    /// How often the event came back.
    pub(super) tries: u32,
    /// The member that the event came back from.
    pub(super) refused_by: Option<MemberKey>,
    /// Whether that member may have the event again if no other member may have it.
    pub(super) may_return: bool,
    /// Why the event came back.
    pub(in crate::exchange) reason: Option<UndeliverableReason>,
    /// The time since which no member may have the event, busy or not.
    pub(super) stranded_since: Option<Duration>,
}

impl Held {
    pub(in crate::exchange) fn new(
        header: ChannelHeader,
        message: Arc<AclMessage>,
        publisher: Arc<str>,
        receipt: Option<Arc<Receipt>>,
        cost: usize,
    ) -> Self {
        Self {
            header,
            message,
            publisher,
            receipt,
            cost,
            tries: 0,
            refused_by: None,
            may_return: false,
            reason: None,
            stranded_since: None,
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.header.qos.level == Some(SecurityLevel::Sealed)
    }
}

/// How an event of a group has ended.
pub(in crate::exchange) enum Fate {
    Handled,
    Expired,
    Failed(UndeliverableReason),
}
