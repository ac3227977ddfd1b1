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
    /// How often it came back.
    pub(super) tries: u32,
    /// The member it came back from.
    pub(super) refused_by: Option<MemberKey>,
    /// That member may have it again if no other one may.
    pub(super) may_return: bool,
    /// Why it came back.
    pub(in crate::exchange) reason: Option<UndeliverableReason>,
    /// Since when no member may have it, busy or not.
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
