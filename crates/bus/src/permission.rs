//! Permissions between agents. One place decides, whatever way a message goes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sealbus_seal::Identity;
use sealbus_seal::permission::Permissions;

use crate::bus::Bus;
use crate::inlet::Refused;
use crate::refusal::RefusalReason;

/// The rules that a bus obeys. Without rules, every agent may write to every other.
#[derive(Default)]
pub(crate) struct MessageRules {
    /// A counter that grows with each change of the rules. An older number marks an outdated decision.
    version: AtomicU64,
    rules: RwLock<Option<Arc<Permissions>>>,
}

/// A remembered decision for one sender and one receiver. [`Bus::permits`] looks the decision up again only when the
/// rules have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// One more than the version of the rules that permitted the message; 0 while no rules did.
    granted_by: u64,
}

impl Bus {
    /// Sets the rules that say which agents may write to which, from now on.
    pub fn set_permissions(&self, permissions: Arc<Permissions>) {
        let rules = &self.inner.rules;
        let mut held = rules.rules.write();
        *held = (!permissions.allow_everything()).then_some(permissions);
        rules.version.fetch_add(1, Ordering::Release);
    }

    /// Checks that `sender` may write to `receiver`, both by AID name. The check runs when an agent sends. It runs
    /// again on arrival: in a mailbox of this process, in a transport, and in the keeper of messages for the absent.
    ///
    /// # Errors
    /// [`Refused`] with `not-permitted`. The caller, which knows the proved identity, must [note](Bus::refused) it.
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

    /// As [`permits`](Self::permits), for an agent of this process. Refusals are noted.
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
