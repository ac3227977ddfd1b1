//! Permissions between agents. One place decides for every way that a message can go.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sealbus_fipa::AclMessageRef;
use sealbus_seal::Identity;
use sealbus_seal::permission::Permissions;

use crate::bus::Bus;
use crate::delegation::Delegation;
use crate::refusal::{RefusalReason, Refused};

/// The rules that a bus obeys. Without rules, every agent may write to every other.
#[derive(Default)]
pub(crate) struct MessageRules {
    /// A counter that grows with each change of the rules. An older number marks an outdated decision.
    version: AtomicU64,
    rules: RwLock<Option<Arc<Permissions>>>,
}

/// A remembered decision for one sender and one receiver. [`Bus::permits`](crate::Bus::permits) looks the decision up again only when the
/// rules have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// One more than the version of the rules that permitted the message; 0 while no rules did.
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
    ) -> Result<(), Refused> {
        let version = self.version.load(Ordering::Acquire) + 1;
        let held = self.rules.read();
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

    /// Checks that `sender` may write to `receiver` on behalf of others.
    pub(crate) fn check_for(
        &self,
        sender: &str,
        receiver: &str,
        chain: &Delegation,
    ) -> Result<(), Refused> {
        match &*self.rules.read() {
            Some(permissions) if !permissions.may_send_for(sender, receiver, chain.askers()) => {
                let explanation = format!(
                    "the policy does not let {sender} write to {receiver} on behalf of {chain}"
                );
                Err(Refused {
                    reason: RefusalReason::NotPermitted,
                    explanation,
                })
            }
            _ => Ok(()),
        }
    }
}

impl Bus {
    /// Checks that `sender` may write to `receiver`, both by AID name. The check runs when an agent sends. It runs
    /// again on arrival: in a mailbox of this process, in a transport, and in the keeper of messages for the absent.
    ///
    /// # Errors
    /// [`Refused`] with `not-permitted`. The caller, which knows the proved identity, must [note](Bus::refused) it.
    #[inline]
    pub fn permits(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
    ) -> Result<(), Refused> {
        if self.inner.rules.gave(permit) {
            return Ok(());
        }
        self.inner.rules.check(permit, sender, receiver)
    }

    /// As [`permits`](Self::permits), for this message, which may ask on behalf of others.
    ///
    /// # Errors
    /// [`Refused`], also if the message does not rightly say on whose behalf it asks.
    #[inline]
    pub fn permits_message(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
        message: &AclMessageRef<'_>,
    ) -> Result<(), Refused> {
        match message.user_defined().next() {
            None => self.permits(permit, sender, receiver),
            Some(_) => self.permits_chain(permit, sender, receiver, message),
        }
    }

    fn permits_chain(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
        message: &AclMessageRef<'_>,
    ) -> Result<(), Refused> {
        // The gateway relays messages of others.
        let writer = message.sender().map(|it| it.name().to_owned());
        let chain = Delegation::from_sender(message, writer.as_deref().unwrap_or(sender))?;
        match chain.is_empty() {
            true => self.permits(permit, sender, receiver),
            false => self.inner.rules.check_for(sender, receiver, &chain),
        }
    }

    /// As [`permits_message`](Self::permits_message), for an agent of this process. Refusals are noted.
    pub(crate) fn permits_own(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
        message: &AclMessageRef<'_>,
    ) -> Result<(), Refused> {
        self.permits_message(permit, sender, receiver, message)
            .inspect_err(|refused| self.refused_own(sender, receiver, refused))
    }

    /// Notes the refusal of a message of an agent of this process.
    pub(crate) fn refused_own(&self, sender: &str, receiver: &str, refused: &Refused) {
        let identity = Identity::from_agent_name(sender).ok();
        self.refused(
            sender,
            identity.map(|identity| identity.to_string()),
            Some(receiver),
            refused.reason,
            refused.explanation.clone(),
        );
    }
}

impl fmt::Debug for MessageRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRules")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
