//! Level `signed`, of the platform or of one message: messages wait for the proof of their author, which comes behind
//! them. Frames for the bus that bring a message wait, too, and with them the frames behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{RefusalReason, Refused};
use sealbus_proof::{Author, Evidence, Hash, NotProved, Proof, Verifier};
use sealbus_seal::{
    CertificateChain, PlatformName, SecurityLevel, Serial, Timestamp, Trust, VerifiedIdentity,
    VerifyError,
};

use super::line::HeldFrame;
use super::{Broken, Inward};
use crate::frame::PROCESS_TARGET;
use crate::link::Link;
use crate::statement::{milliseconds, statement_of};

/// Certificates of one sender that are known at a time. A proof may have been made with an earlier one than the sender
/// shows: it was on its way, or is sent again on another connection.
const CERTIFICATES: usize = 8;

/// A message or a frame that waits for its proof.
enum Waiting {
    /// A message.
    Message { target: u32, payload: Bytes },
    /// The frame with this number in the line, and what its writer must have signed.
    Frame { number: u64, statement: Hash },
}

/// A certificate that a sender has shown.
struct Shown {
    verified: VerifiedIdentity,
    chain: CertificateChain,
    /// The author, once the whole chain was checked, not only the leaf: others may get it.
    author: Option<Author>,
}

/// The messages of one sender that wait for their proof, and the facts for checking it.
pub(super) struct Unproved {
    waiting: Vec<Waiting>,
    /// The latest first.
    shown: VecDeque<Shown>,
    verifier: Verifier,
}

impl Unproved {
    pub(super) fn new(platform: &PlatformName, level: SecurityLevel) -> Self {
        Self {
            waiting: Vec::new(),
            shown: VecDeque::new(),
            verifier: Verifier::new(platform.clone(), level.max(SecurityLevel::Signed)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The sender has shown a certificate. The `author`, if all of its chain was checked.
    pub(super) fn add(
        &mut self,
        verified: VerifiedIdentity,
        chain: CertificateChain,
        author: Option<Author>,
    ) {
        self.shown
            .retain(|shown| shown.verified.serial() != verified.serial());
        self.shown.truncate(CERTIFICATES - 1);
        self.shown.push_front(Shown {
            verified,
            chain,
            author,
        });
    }

    /// The author that this certificate belongs to. The certificate may have ended since, but was not revoked.
    fn author(
        &mut self,
        serial: Serial,
        trust: Option<&Trust>,
        now: Timestamp,
    ) -> Result<&Author, Refused> {
        let shown = self
            .shown
            .iter_mut()
            .find(|shown| shown.verified.serial() == serial);
        let shown = shown.ok_or_else(|| not_proved("its author has shown no such certificate"))?;
        let trust = trust.ok_or_else(|| not_proved("no certificate is trusted here"))?;
        if let Err(error @ VerifyError::Revoked { .. }) = trust.check(&shown.verified, now) {
            return Err(Refused {
                reason: RefusalReason::from(&error),
                explanation: error.to_string(),
            });
        }
        let author = match shown.author.take() {
            Some(author) => author,
            None => {
                let then = now.min(shown.verified.not_after());
                let author = Author::verify(shown.chain.clone(), trust, then);
                author.map_err(|error| Refused {
                    reason: RefusalReason::from(&error),
                    explanation: error.to_string(),
                })?
            }
        };
        Ok(shown.author.insert(author))
    }

    /// Checks the proof of messages that wait.
    fn check(
        &mut self,
        proof: Proof,
        statements: Vec<Hash>,
        trust: Option<&Trust>,
        now: Timestamp,
    ) -> Result<Result<Vec<Evidence>, Refused>, Broken> {
        let author = match self.author(proof.serial(), trust, now) {
            Ok(author) => author.clone(),
            Err(refused) => return Ok(Err(refused)),
        };
        let now = milliseconds();
        match self
            .verifier
            .verify(author.verified(), &proof, &statements, now)
        {
            Ok(()) => Ok(Ok(Evidence::of_each(author, proof, statements).collect())),
            // A process signs for its own agents, so an honest one never comes that far.
            Err(error @ NotProved::TooManyWrong { .. }) => Err(Broken::NotProved(error)),
            Err(error) => Ok(Err(not_proved(&error.to_string()))),
        }
    }
}

fn not_proved(explanation: &str) -> Refused {
    Refused {
        reason: RefusalReason::NotProved,
        explanation: explanation.to_owned(),
    }
}

impl Inward {
    /// Lets a message wait for its proof if it `is_signed`, and a frame also for the frames before it. Returns it if it
    /// need not wait: its sender is not known and will be refused, or it is a frame that brings no message.
    pub(super) fn hold(
        &mut self,
        sender: u32,
        target: u32,
        is_signed: bool,
        payload: Bytes,
    ) -> Option<Bytes> {
        let Some(Some(slot)) = self.targets.get_mut(target as usize) else {
            return Some(payload);
        };
        let unproved = self.senders.get_mut(sender as usize);
        let unproved = unproved
            .and_then(Option::as_mut)
            .and_then(|sender| sender.unproved.as_mut())
            .filter(|_| is_signed);
        // The allowances of the targets bound the waiting messages.
        if *slot.name != *PROCESS_TARGET {
            let Some(unproved) = unproved else {
                return Some(payload);
            };
            unproved.waiting.push(Waiting::Message { target, payload });
            slot.unproved += 1;
            self.unproved += 1;
            return None;
        }
        let statement = match unproved {
            Some(_) => self.bus.frame_statement(&payload),
            None => None,
        };
        let origin = match statement {
            Some(_) => None,
            None if self.line.is_empty() => return Some(payload),
            None => Some(self.origin(sender, Ok(None))),
        };
        let number = self.line.push(HeldFrame {
            sender,
            target,
            payload,
            origin,
        });
        if let Some(Some(slot)) = self.targets.get_mut(target as usize) {
            slot.unproved += 1;
        }
        let sender = self.senders.get_mut(sender as usize);
        let unproved = sender
            .and_then(Option::as_mut)
            .and_then(|sender| sender.unproved.as_mut());
        if let (Some(statement), Some(unproved)) = (statement, unproved) {
            let frame = Waiting::Frame { number, statement };
            unproved.waiting.push(frame);
            self.unproved += 1;
        }
        None
    }

    /// The proof of the first messages of a sender that wait: they go on, or are refused.
    pub(super) fn signed(
        &mut self,
        link: &Arc<Link>,
        handle: u32,
        proof: &[u8],
        now: Timestamp,
    ) -> Result<(), Broken> {
        let sender = self.senders.get_mut(handle as usize);
        // Messages without a sender were refused when they came.
        let Some(sender) = sender.and_then(Option::as_mut) else {
            return Ok(());
        };
        let proof = match proof {
            [] => None,
            proof => Some(Proof::decode(proof)?),
        };
        let refused = sender.check().err();
        let Some(unproved) = sender.unproved.as_mut().filter(|it| !it.is_empty()) else {
            return Ok(());
        };
        let in_all = unproved.waiting.len();
        let count = proof.as_ref().map_or(in_all, Proof::count).min(in_all);
        let mut proved = match (refused, proof) {
            (Some(refused), _) => Err(refused),
            (None, None) => Err(not_proved("its process could not sign it")),
            (None, Some(proof)) => {
                let name_of = |target: u32| match self.targets.get(target as usize) {
                    Some(Some(target)) => &*target.name,
                    _ => "",
                };
                let waiting = unproved.waiting.iter().take(count);
                let statements = waiting
                    .map(|waiting| match waiting {
                        Waiting::Message { target, payload } => {
                            statement_of(name_of(*target), payload)
                        }
                        Waiting::Frame { statement, .. } => *statement,
                    })
                    .collect();
                unproved
                    .check(proof, statements, self.trust.as_deref(), now)?
                    .map(Vec::into_iter)
            }
        };
        let rest = unproved.waiting.split_off(count);
        let waiting = std::mem::replace(&mut unproved.waiting, rest);
        self.unproved -= count;
        for waiting in waiting {
            let proved = match &mut proved {
                Ok(evidence) => Ok(evidence.next()),
                Err(refused) => Err(refused.clone()),
            };
            match waiting {
                Waiting::Message { target, payload } => {
                    if let Some(Some(slot)) = self.targets.get_mut(target as usize) {
                        slot.unproved -= 1;
                    }
                    self.continue_row(link, target);
                    self.deliver(link, handle, target, payload, proved);
                }
                Waiting::Frame { number, .. } => {
                    let origin = self.origin(handle, proved);
                    self.line.settle(number, origin);
                }
            }
        }
        while let Some(HeldFrame {
            sender,
            target,
            payload,
            origin: Some(origin),
        }) = self.line.next()
        {
            if let Some(Some(slot)) = self.targets.get_mut(target as usize) {
                slot.unproved -= 1;
            }
            self.continue_row(link, target);
            self.deliver_frame(link, sender, target, payload, origin);
        }
        Ok(())
    }
}
