//! Permissions between agents. All ways of a message ask this one place.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sealbus_seal::permission::Permissions;

use crate::delegation::Delegation;
use crate::refusal::{ExplainedRefusal, RefusalReason};

/// The rules that a bus obeys. Without rules, every agent may write to every other.
#[derive(Default)]
pub(crate) struct MessageRules {
    /// The number of changes of the rules so far. A decision with a lower number is outdated.
    version: AtomicU64,
    rules: RwLock<Option<Arc<Permissions>>>,
}

/// A remembered decision for one sender and one receiver. [`Bus::permits`](crate::Bus::permits) looks the decision up
/// again only if the rules have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// One more than the version of the rules that permitted the message; 0 if no rules have permitted it yet.
    granted_by: u64,
}

impl MessageRules {
    pub(crate) fn set(&self, permissions: Arc<Permissions>) {
        let mut held = self.rules.write();
        *held = (!permissions.allow_everything()).then_some(permissions);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether the present rules gave this permit.
    #[inline]
    pub(crate) fn gave(&self, permit: &Permit) -> bool {
        permit.granted_by == self.version.load(Ordering::Acquire) + 1
    }

    /// Checks that `sender` may write to `receiver`, both by AID name.
    pub(crate) fn check(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
    ) -> Result<(), ExplainedRefusal> {
        let version = self.version.load(Ordering::Acquire) + 1;
        let held = self.rules.read();
        if let Some(permissions) = &*held
            && !permissions.may_send(sender, receiver)
        {
            return Err(ExplainedRefusal {
                reason: RefusalReason::NotPermitted,
                explanation: format!("the policy does not let {sender} write to {receiver}"),
            });
        }
        permit.granted_by = version;
        Ok(())
    }

    /// Checks that `sender` may write to `receiver` on behalf of others.
    pub(crate) fn check_for(
        &self,
        sender: &str,
        receiver: &str,
        chain: &Delegation,
    ) -> Result<(), ExplainedRefusal> {
        match &*self.rules.read() {
            Some(permissions) if !permissions.may_send_for(sender, receiver, chain.askers()) => {
                let explanation = format!(
                    "the policy does not let {sender} write to {receiver} on behalf of {chain}"
                );
                Err(ExplainedRefusal {
                    reason: RefusalReason::NotPermitted,
                    explanation,
                })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for MessageRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRules")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
