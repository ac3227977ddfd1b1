//! Opening sealed messages in their receiver's process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_fipa::AclMessageRef;

use crate::bus::Bus;
use crate::error::UndeliverableReason;
use crate::message::ReceivedMessage;
use crate::permission::Permit;
use crate::refusal::{ExplainedRefusal, RefusalReason};
use crate::sealed::{NotOpened, Opened, Sealer, asks_for_sealing, is_sealed};

impl Bus {
    /// Sets the service that seals and opens messages. Returns false if a service was set before.
    pub fn set_sealer(&self, sealer: Arc<dyn Sealer>) -> bool {
        let is_for_all = sealer.is_for_all();
        let is_first = self.inner.sealer.set(sealer).is_ok();
        if is_first {
            self.inner.seals_all.store(is_for_all, Ordering::Relaxed);
        }
        is_first
    }

    /// Whether messages between these two agents are sealed even if they do not ask for it.
    #[inline]
    pub(crate) fn seals(&self, sender: &str, receiver: &str) -> bool {
        self.inner.seals_all.load(Ordering::Relaxed) && self.are_ordinary(sender, receiver)
    }

    #[cold]
    fn are_ordinary(&self, sender: &str, receiver: &str) -> bool {
        self.sealer().is_some_and(|sealer| {
            ![sender, receiver]
                .iter()
                .any(|it| sealer.is_of_platform(it))
        })
    }

    /// The service that seals and opens messages, if there is one.
    pub(crate) fn sealer(&self) -> Option<&Arc<dyn Sealer>> {
        self.inner.sealer.get()
    }

    /// For transports: opens a message that has arrived for an agent of this process, if it is sealed. Give the result
    /// to [`ReceivedMessage::opened`](crate::ReceivedMessage::opened).
    ///
    /// # Errors
    /// [`NotOpened::Refused`] if it does not open, or says that it is sealed and is not. The caller, which knows the
    /// proved identity, must [note](Bus::refused) it. After [`NotOpened::UnknownRow`], a carrier that can do so gives
    /// the message back as if its receiver were moving: it comes again with its secret.
    #[inline]
    pub fn open(
        &self,
        message: &AclMessageRef<'_>,
        receiver: &str,
    ) -> Result<Option<Opened>, NotOpened> {
        let seals_all = self.inner.seals_all.load(Ordering::Relaxed);
        match seals_all || message.has_user_defined() || is_sealed(message) {
            true => self.open_sealed(message, receiver),
            false => Ok(None),
        }
    }

    /// Like [`open`](Self::open), for a message between agents of this process. The message is opened in place.
    #[inline]
    pub(crate) fn open_in_place(
        &self,
        message: &mut ReceivedMessage,
        receiver: &str,
    ) -> Result<(), UndeliverableReason> {
        let opened = self.open(&message.message(), receiver);
        match opened {
            Ok(None) => Ok(()),
            Ok(Some(opened)) => {
                message.put_inside(opened);
                Ok(())
            }
            Err(not_opened) => Err(self.note_unopened(message, not_opened, receiver)),
        }
    }

    #[cold]
    fn note_unopened(
        &self,
        message: &ReceivedMessage,
        not_opened: NotOpened,
        receiver: &str,
    ) -> UndeliverableReason {
        let refused = ExplainedRefusal::from(not_opened);
        let sender = message.message().sender().map(|it| it.name().to_owned());
        let sender = sender.unwrap_or_default();
        let ExplainedRefusal {
            reason,
            explanation,
        } = refused.clone();
        self.refused(&sender, None, Some(receiver), reason, explanation);
        refused.into()
    }

    // Not inlined: it would make `open` longer for all other messages.
    #[inline(never)]
    fn open_sealed(
        &self,
        message: &AclMessageRef<'_>,
        receiver: &str,
    ) -> Result<Option<Opened>, NotOpened> {
        let not_sealed = |why: &str| {
            Err(NotOpened::Refused(ExplainedRefusal {
                reason: RefusalReason::NotSealed,
                explanation: format!("{why}, and everybody could read it"),
            }))
        };
        if !is_sealed(message) {
            if asks_for_sealing(message) {
                return not_sealed("it states level=sealed");
            }
            let sender = message.sender();
            return match self.seals(sender.as_ref().map_or("", |it| it.name()), receiver) {
                true => not_sealed("level=sealed holds on this platform"),
                false => Ok(None),
            };
        }
        let opened = match self.sealer() {
            Some(sealer) => sealer.open(message, receiver)?,
            None => return Err("this process has no keys".to_owned().into()),
        };
        // The outer message, which was checked, does not show on whose behalf the inner one asks.
        let inside = opened.message.message();
        if inside.user_defined().next().is_some() {
            let sender = inside.sender();
            let sender = sender.as_ref().map_or("", |it| it.name());
            self.permits_message(&mut Permit::default(), sender, receiver, &inside)?;
        }
        Ok(Some(opened))
    }
}
