//! The answers of an agent that has ended to messages that it brought here from another process and never read.

use std::sync::Arc;

use sealbus_fipa::AclMessage;

use super::Outbox;
use crate::error::SendError;
use crate::permission::Permit;
use crate::route::{Parcel, Sent};
use crate::transport::Outgoing;

impl Outbox {
    /// Sends `message` to `receiver`, although the agent has ended. If there is no room, the message waits for it.
    pub(crate) fn last_words(self, message: AclMessage, receiver: &str) {
        let message = Arc::new(message);
        if !self.must_seal(&message, receiver) {
            let outgoing = Outgoing::new(&message);
            let said = self.say_last(&self.parcel(&message, &outgoing), receiver);
            return self.note(said);
        }
        let receiver = receiver.to_owned();
        self.bus.inner.runtime.clone().spawn(async move {
            let said = match self.sealed(&message, &receiver, None).await {
                Ok(sealed) => {
                    let outgoing = Outgoing::sealed(sealed.bytes());
                    self.say_last(&self.sealed_parcel(&sealed, &outgoing), &receiver)
                }
                Err(error) => Err(error),
            };
            self.note(said);
        });
    }

    fn say_last(&self, parcel: &Parcel<'_>, receiver: &str) -> Result<(), SendError> {
        self.check_permission(&mut Permit::default(), receiver)?;
        loop {
            let route = self.bus.route(receiver);
            let sent = match self.bus.send_along(&route, parcel, true) {
                Sent::Full(_) => self.bus.hold_along(&route, parcel),
                sent => sent,
            };
            match sent {
                Sent::Accepted => return Ok(()),
                Sent::Impossible(reason) => return Err(self.impossible(receiver, reason)),
                Sent::Full(_) | Sent::Stale => {}
            }
        }
    }

    fn note(&self, said: Result<(), SendError>) {
        if let Err(error) = said {
            tracing::warn!(
                agent = &**self.agent.name(), %error,
                "the sender of a message that was left unread is not told"
            );
        }
    }
}
