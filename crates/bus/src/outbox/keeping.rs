//! Messages that the platform keeps for their receivers.

use std::sync::Arc;

use bytes::Bytes;
use sealbus_fipa::AclMessage;
use sealbus_proof::{Hash, Statement};

use super::Outbox;
use crate::error::SendError;
use crate::letter::{Delivery, Letter, NotKept};
use crate::level::{asks_for_proof, set_level};

impl Outbox {
    /// Sends `message` to all its receivers as `delivery` says. A persistent message is on a disk of the platform when
    /// this call returns. Each receiver gets it once, when that receiver is there, in order among the sender's
    /// persistent messages. Otherwise a `failure` from the AMS comes at the expiry.
    ///
    /// # Errors
    /// [`SendError`]: neither the receiver named nor those after it accepted the message.
    pub async fn send_with(
        &self,
        message: impl Into<Arc<AclMessage>>,
        delivery: Delivery,
    ) -> Result<(), SendError> {
        let sender = self.agent.name();
        if let Some(what) = delivery.needs_persistence() {
            let sender = sender.clone();
            return Err(SendError::NeedsPersistence { sender, what });
        }
        let mut message = message.into();
        if let Some(level) = delivery.level {
            set_level(Arc::make_mut(&mut message), level);
        }
        if !delivery.persistent {
            return self.send(message).await;
        }
        self.check_process()?;
        let message = self.signed(message)?;
        let is_signed = self.bus.signs() || asks_for_proof(&message.view());
        let mut plain = None;
        for receiver in &message.receivers {
            self.check_for(&message, &receiver.name)?;
            let encoded = match (&plain, self.must_seal(&message, &receiver.name)) {
                (_, true) => {
                    let kept = Some(delivery.valid_from);
                    let sealed = self.sealed(&message, &receiver.name, kept).await?;
                    let whole = sealed.whole();
                    whole.map_err(|reason| self.not_sealed(&receiver.name, reason))?
                }
                (Some(encoded), false) => Bytes::clone(encoded),
                (None, false) => {
                    let encoded = self.encoded(&message, &receiver.name)?;
                    plain.insert(encoded).clone()
                }
            };
            let evidence = match is_signed {
                true => Some(self.evidence_of(Statement::direct(&receiver.name, &encoded))?),
                false => None,
            };
            let letter = Letter {
                sender: sender.clone(),
                receiver: receiver.name.clone(),
                message: encoded,
                delivery,
                evidence,
            };
            let kept = match self.bus.inner.post.get() {
                Some(post) => post.keep(letter).await,
                None => Err(NotKept(
                    "no node of a platform stands behind this bus".to_owned(),
                )),
            };
            kept.map_err(|reason| SendError::NotKept {
                sender: sender.clone(),
                receiver: receiver.name.clone(),
                reason,
            })?;
            let _last = self.last.lock();
            self.agent.count_sent(1);
        }
        Ok(())
    }

    fn encoded(&self, message: &AclMessage, receiver: &str) -> Result<Bytes, SendError> {
        let mut encoded = Vec::new();
        sealbus_fipa::bitefficient::encode(message, &mut encoded)
            .map_err(|error| self.impossible(receiver, error.into()))?;
        Ok(encoded.into())
    }

    /// Has the agent sign the statement with this hash alone.
    fn evidence_of(&self, statement: Hash) -> Result<Vec<u8>, SendError> {
        let signed = self.agent.sign_one(statement);
        signed.map_err(|reason| SendError::NotSigned {
            sender: self.agent.name().clone(),
            reason,
        })
    }
}
