//! The checks of messages by the platform's rules.

use sealbus_fipa::AclMessageRef;
use sealbus_seal::Identity;

use crate::bus::Bus;
use crate::delegation::Delegation;
use crate::permission::Permit;
use crate::refusal::ExplainedRefusal;

impl Bus {
    /// Checks that `sender` may write to `receiver`, both by AID name. The check runs when an agent sends, and again on
    /// arrival: in a mailbox of this process, in a transport, and in the keeper of messages for the absent.
    ///
    /// # Errors
    /// [`ExplainedRefusal`] with `not-permitted`. The caller, which knows the proved identity, must [note](Bus::refused) it.
    #[inline]
    pub fn permits(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
    ) -> Result<(), ExplainedRefusal> {
        if self.inner.rules.gave(permit) {
            return Ok(());
        }
        self.inner.rules.check(permit, sender, receiver)
    }

    /// As [`permits`](Self::permits), for this message, which may ask on behalf of others.
    ///
    /// # Errors
    /// [`ExplainedRefusal`], also if the message does not rightly say on whose behalf it asks.
    #[inline]
    pub fn permits_message(
        &self,
        permit: &mut Permit,
        sender: &str,
        receiver: &str,
        message: &AclMessageRef<'_>,
    ) -> Result<(), ExplainedRefusal> {
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
    ) -> Result<(), ExplainedRefusal> {
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
    ) -> Result<(), ExplainedRefusal> {
        self.permits_message(permit, sender, receiver, message)
            .inspect_err(|refused| self.refused_own(sender, receiver, refused))
    }

    /// Notes the refusal of a message of an agent of this process.
    pub(crate) fn refused_own(&self, sender: &str, receiver: &str, refused: &ExplainedRefusal) {
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
