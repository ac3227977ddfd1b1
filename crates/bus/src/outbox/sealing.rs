//! Messages that their sender seals, for each receiver separately.

use sealbus_fipa::AclMessage;

use super::{NotAccepted, Outbox};
use crate::error::SendError;
use crate::moment::Moment;
use crate::route::{Parcel, ParcelMessage};
use crate::sealed::{NotSealed, SealedMessage, asks_for_sealing};
use crate::transport::Outgoing;

impl Outbox {
    /// Whether a message to `receiver` must be sealed.
    #[inline]
    pub(super) fn must_seal(&self, message: &AclMessage, receiver: &str) -> bool {
        !message.user_defined.is_empty() && asks_for_sealing(&message.view())
            || self.bus.seals(self.agent.name(), receiver)
    }

    /// Seals the message to `receiver`. `kept`: as for [`Sealer::seal`](crate::Sealer::seal).
    pub(super) async fn sealed(
        &self,
        message: &AclMessage,
        receiver: &str,
        kept: Option<Option<Moment>>,
    ) -> Result<SealedMessage, SendError> {
        self.check_for(message, receiver)?;
        let sealed = match self.bus.sealer() {
            Some(sealer) => sealer.seal(message, receiver, kept).await,
            None => Err(no_keys()),
        };
        sealed.map_err(|reason| self.not_sealed(receiver, reason))
    }

    /// Seals a message to one receiver and sends it, without waiting. Returns false if the receiver's key must be looked up.
    // Not inlined: it would make `try_finish` longer for all other messages.
    #[inline(never)]
    pub(super) fn attempt_sealed(
        &self,
        message: &AclMessage,
        receiver: &str,
    ) -> Result<bool, NotAccepted> {
        // The sealed message does not show on whose behalf it asks, so this is checked here.
        self.check_for(message, receiver)
            .map_err(NotAccepted::Failed)?;
        let sealed = match self.bus.sealer() {
            Some(sealer) => sealer.try_seal(message, receiver),
            None => Err(no_keys()),
        };
        let sealed =
            sealed.map_err(|reason| NotAccepted::Failed(self.not_sealed(receiver, reason)))?;
        let Some(sealed) = sealed else {
            return Ok(false);
        };
        let outgoing = Outgoing::sealed(sealed.bytes());
        let parcel = self.sealed_parcel(&sealed, &outgoing);
        self.attempt(&parcel, receiver, false)?;
        Ok(true)
    }

    /// A parcel with a sealed message, which does not show on whose behalf it asks.
    pub(super) fn sealed_parcel<'a>(
        &'a self,
        sealed: &'a SealedMessage,
        outgoing: &'a Outgoing<'a>,
    ) -> Parcel<'a> {
        Parcel {
            sender: &self.agent,
            message: ParcelMessage::Sealed(sealed),
            outgoing,
            is_own: true,
            is_notice: false,
            chain: None,
        }
    }

    pub(super) fn not_sealed(&self, receiver: &str, reason: NotSealed) -> SendError {
        SendError::NotSealed {
            sender: self.agent.name().clone(),
            receiver: receiver.to_owned(),
            reason,
        }
    }
}

fn no_keys() -> NotSealed {
    NotSealed("this process has no keys".to_owned())
}
