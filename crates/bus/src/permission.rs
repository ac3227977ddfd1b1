//! Permissions between agents, decided in one place, whatever way a message goes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sealbus_seal::Identity;
use sealbus_seal::permission::Permissions;

use crate::bus::Bus;
use crate::inlet::Refused;
use crate::refusal::RefusalReason;

/// The rules a bus obeys; without any, everybody may write to everybody.
#[derive(Default)]
pub(crate) struct MessageRules {
    /// Grows with each change, so that decisions made before are known to be old.
    version: AtomicU64,
    rules: RwLock<Option<Arc<Permissions>>>,
}

/// A decision to remember for one sender and one receiver: [`Bus::permits`] looks it up again only when the rules
/// have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// One more than the version of the rules that permitted it; 0 while nothing did.
    granted_by: u64,
}

impl Bus {
    /// Says who may write to whom, from now on.
    pub fn set_permissions(&self, permissions: Arc<Permissions>) {
        let rules = &self.inner.rules;
        let mut held = rules.rules.write();
        *held = (!permissions.allow_everything()).then_some(permissions);
        rules.version.fetch_add(1, Ordering::Release);
    }

    /// Whether `sender` may write to `receiver`, both by AID name. Asked when an agent sends, and again by whatever
    /// takes in what has arrived: a mailbox of this process, a transport, the keeper of messages for the absent.
    ///
    /// # Errors
    /// [`Refused`] with `not-permitted`; it is to be [noted](Bus::refused) by the caller, who knows what was proved.
    pub fn permits(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
    ) -> Result<(), Refused> {
        let rules = &self.inner.rules;
        let version = rules.version.load(Ordering::Acquire) + 1;
        if permit.granted_by == version {
            return Ok(());
        }
        let held = rules.rules.read();
        if let Some(permissions) = &*held
            && !permissions.may_send(sender, receiver)
        {
            return Err(Refused {
                reason: RefusalReason::NotPermitted,
                explanation: format!("the policy does not let {sender} write to {receiver}"),
            });
        }
        permit.granted_by = version;
        Ok(())
    }

    /// As [`permits`](Self::permits), for an agent of this process; what is refused is noted.
    pub(crate) fn permits_own(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
    ) -> Result<(), Refused> {
        self.permits(permit, sender, receiver)
            .inspect_err(|refused| {
                let identity = Identity::from_agent_name(sender).ok();
                self.refused(
                    sender,
                    identity.map(|identity| identity.to_string()),
                    Some(receiver),
                    refused.reason,
                    refused.explanation.clone(),
                );
            })
    }
}

impl fmt::Debug for MessageRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRules")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
