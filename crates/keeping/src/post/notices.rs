//! Notices to the sender of a letter: that it has arrived, that it has expired, or why it is not delivered.

use std::sync::Arc;

use sealbus_bus::{
    Acknowledgement, RefusalReason, UndeliverableReason, failure_notice, receipt_notice,
};
use sealbus_fipa::{AclMessage, EncodeError, Limits, Performative, bitefficient};

use super::mailbox::KeptMailbox;
use super::waiting_notices::Notices;
use super::{KeptLetters, LIFETIME, storage};
use sealbus_control::clock::now;
use sealbus_control::post::{AboutLetter, Cover, LetterRefusal, PostedLetter, Receipt};
use sealbus_control::text::{LONGEST_EXPLANATION, excerpt};
use sealbus_control::{Blob, Fault, FaultCode, WaitingProvenance};

pub(super) const RECEIPT: &str = "receipt/";
impl KeptLetters {
    /// Tells the sender that its letter has arrived, if the sender asked for a receipt.
    pub(super) async fn receipt(
        self: &Arc<Self>,
        mailbox: &KeptMailbox,
        number: u64,
        stage: Receipt,
    ) -> Result<(), Fault> {
        let wanted = {
            let shelf = mailbox.shelf.lock();
            shelf.get(number).and_then(|kept| kept.cover.receipt)
        };
        if wanted != Some(stage) {
            return Ok(());
        }
        let mark = format!("{RECEIPT}{number}");
        if mailbox.stream.cursor(&mark).is_some() {
            return Ok(());
        }
        let acknowledgement = match stage {
            Receipt::Process => Acknowledgement::ReceiverProcess,
            Receipt::Agent => Acknowledgement::ReceiverAgent,
        };
        let message = mailbox.read(number).map_err(storage)?;
        let receiver = format!("{}@{}", mailbox.agent, self.platform);
        let view = bitefficient::decode_ref(&message, &Limits::default()).ok();
        let notice =
            view.and_then(|view| receipt_notice(&self.ams, &view, &receiver, acknowledgement));
        self.notify(mailbox, number, notice).await?;
        if stage == Receipt::Process {
            let marked = mailbox.stream.set_cursor(&mark, 1).map_err(storage)?;
            marked.await.map_err(storage)?;
        }
        Ok(())
    }

    /// Checks whether a sender takes the notices about its earlier letters. If it takes none, none of its new letters
    /// is kept, because each could cause one more notice, and notices are kept however full the disk is. A letter that
    /// is or was here, or comes from another node, is not new.
    ///
    /// This locks shelves, so the caller must not hold one.
    pub(super) fn check_notices(&self, cover: &Cover, sender: Option<&str>) -> Result<(), Fault> {
        let Some(sender) = sender else {
            return Ok(());
        };
        if cover.hops > 0 || cover.about.is_some() {
            return Ok(());
        }
        let mailbox = self.mailboxes.lock().get(sender).cloned();
        let waiting = mailbox.map(|mailbox| mailbox.shelf.lock().notices());
        let too_many = waiting.filter(|waiting| waiting.are_too_many());
        let Some(Notices { count, bytes }) = too_many else {
            return Ok(());
        };
        if self.is_known(cover) {
            return Ok(());
        }
        let message = format!(
            "{} keeps nothing new from {sender}: {count} notices about its earlier messages wait there for it, {bytes} bytes in all",
            self.node
        );
        let advice = "let the sender read them, then send again";
        Err(Fault::new(FaultCode::Full, message).advise(advice))
    }

    /// Tells the sender that its letter has expired.
    pub(super) async fn expired(
        self: &Arc<Self>,
        mailbox: &KeptMailbox,
        number: u64,
    ) -> Result<(), Fault> {
        let receiver = format!("{}@{}", mailbox.agent, self.platform);
        let reason = UndeliverableReason::Expired {
            receiver: receiver.clone(),
        };
        self.bounce(mailbox, number, &reason).await
    }

    /// Tells the sender that its letter is not delivered.
    pub(super) async fn bounce(
        self: &Arc<Self>,
        mailbox: &KeptMailbox,
        number: u64,
        reason: &UndeliverableReason,
    ) -> Result<(), Fault> {
        let is_notice = match mailbox.shelf.lock().get(number) {
            Some(kept) => kept.cover.about.is_some(),
            None => return Ok(()),
        };
        if is_notice {
            if let Some(left_out) = self.admit_line(&mailbox.agent) {
                tracing::info!(
                    agent = mailbox.agent,
                    left_out,
                    "a notice expired before its receiver was back"
                );
            }
            return Ok(());
        }
        let message = mailbox.read(number).map_err(storage)?;
        let receiver = format!("{}@{}", mailbox.agent, self.platform);
        let view = bitefficient::decode_ref(&message, &Limits::default()).ok();
        let notice = view.and_then(|view| failure_notice(&self.ams, &view, &receiver, reason));
        let sender = notice.as_ref().map(|notice| &notice.receivers[0].name);
        if let Some(left_out) = self.admit_line(sender.unwrap_or(&receiver)) {
            let reason = excerpt(&reason.to_string(), LONGEST_EXPLANATION);
            tracing::info!(
                receiver,
                reason,
                left_out,
                "a message that was kept goes back to its sender"
            );
        }
        self.notify(mailbox, number, notice).await
    }

    /// Keeps one notice about a letter for the letter's sender. Returns once it is on disk. A notice that can never be
    /// kept is given up, because otherwise its letter would hold up others.
    async fn notify(
        self: &Arc<Self>,
        mailbox: &KeptMailbox,
        number: u64,
        notice: Option<AclMessage>,
    ) -> Result<(), Fault> {
        let Some(notice) = notice else {
            return Ok(());
        };
        let about = AboutLetter {
            receiver: mailbox.agent.clone(),
            number,
            failure: notice.performative == Performative::Failure,
        };
        // Another task may be writing this notice. If that task fails, this one tries, too.
        let _turn = mailbox.notifying.lock().await;
        let is_gone = mailbox.shelf.lock().get(number).is_none();
        if is_gone || self.about.lock().contains(&about) {
            return Ok(());
        }
        let receiver = notice.receivers[0].local_name().to_owned();
        let message = match self.encoded(notice) {
            Ok(message) => message,
            Err(error) => {
                tracing::error!(%error, "a notice cannot be encoded");
                return Ok(());
            }
        };
        self.about.lock().insert(about.clone());
        let sequence = {
            let mut sequences = self.sequences.lock();
            let last = sequences.entry(receiver.clone()).or_default();
            *last += 1;
            *last
        };
        let posted = now();
        let letter = PostedLetter {
            cover: Cover {
                origin: self.origin,
                sequence,
                hops: 0,
                again: false,
                receiver,
                provenance: WaitingProvenance::Platform,
                posted,
                expiry: posted + LIFETIME.as_millis() as u64,
                valid_from: None,
                receipt: None,
                about: Some(about.clone()),
            },
            message: Blob(message),
        };
        let kept = self.keep(vec![letter]).await.into_iter().flatten().next();
        let Some(fault) = kept else {
            return Ok(());
        };
        self.about.lock().remove(&about);
        // The same notice would be refused every time.
        if fault.code != FaultCode::BadRequest {
            return Err(fault);
        }
        if let Some(left_out) = self.admit_line(&about.receiver) {
            tracing::error!(
                receiver = about.receiver, %fault, left_out,
                "the sender of a message that was kept is not told what became of it"
            );
        }
        Ok(())
    }

    /// Forgets the notices about a letter that is gone, wherever they are: a later letter may get its number.
    pub(super) fn forget_notices(&self, receiver: &str, number: u64) {
        let mut about = self.about.lock();
        for failure in [false, true] {
            about.remove(&AboutLetter {
                receiver: receiver.to_owned(),
                number,
                failure,
            });
        }
    }

    /// A notice in its encoding. It repeats what its letter says about itself, unless it would then be too long to be kept.
    fn encoded(&self, mut notice: AclMessage) -> Result<Vec<u8>, EncodeError> {
        let mut message = Vec::new();
        bitefficient::encode(&notice, &mut message)?;
        if message.len() > self.longest {
            (notice.ontology, notice.protocol) = (None, None);
            (notice.conversation_id, notice.in_reply_to) = (None, None);
            message.clear();
            bitefficient::encode(&notice, &mut message)?;
        }
        Ok(message)
    }
}

/// The reason given to the sender of a letter that may not be delivered.
pub(super) fn reason_of(refusal: LetterRefusal, receiver: &str) -> UndeliverableReason {
    let (reason, explanation) = match refusal {
        LetterRefusal::NotPermitted => (
            RefusalReason::NotPermitted,
            format!("the policy does not let its sender write to {receiver}"),
        ),
        LetterRefusal::Revoked => (
            RefusalReason::Revoked,
            "its sender was revoked before it was delivered".to_owned(),
        ),
        LetterRefusal::NotProved => (
            RefusalReason::NotProved,
            "no evidence proves that its sender wrote it to this receiver".to_owned(),
        ),
        LetterRefusal::NotSealed => (
            RefusalReason::NotSealed,
            "it states level=sealed, and everybody could read it".to_owned(),
        ),
        LetterRefusal::NotOpened => (
            RefusalReason::NotOpened,
            format!(
                "{receiver} does not have the key that it is sealed to any more: send it again"
            ),
        ),
    };
    UndeliverableReason::Refused {
        reason,
        explanation,
    }
}
