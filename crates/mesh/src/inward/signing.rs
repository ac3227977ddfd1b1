//! Level `signed`, of the platform or of one message: messages wait for their signature, which comes behind them. Bus
//! frames that contain a message wait, too, and so do the frames behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{ExplainedRefusal, Moment, RefusalReason};
use sealbus_proof::{
    Author, AuthorEntry, BatchKeyDelegation, Evidence, Hash, MOST_MESSAGES, NotProved,
    ProvedAuthor, ProvedBatch, SignedBatch, check_time,
};
use sealbus_seal::{SecurityLevel, Serial, Timestamp, Trust};

use super::line::HeldFrame;
use super::senders::{Sender, never_bound};
use super::shown::{NO_CERTIFICATE, Unproved, not_proved};
use super::{Broken, Inward};
use crate::frame::{PROCESS_SENDER, PROCESS_TARGET, SignedMessages};
use crate::link::Link;
use crate::statement::statement_of;

/// A message or a frame that waits for a signature.
pub(super) struct AwaitingSignature {
    sender: u32,
    target: u32,
    /// The statement that its sender must have signed.
    statement: Hash,
    what: MessageOrFrame,
}

enum MessageOrFrame {
    Message(Bytes),
    /// The frame with this number in the line.
    Frame(u64),
}

/// The messages of one sender in a batch.
struct BatchPart {
    sender: u32,
    /// The certificate; `None` if the process could not sign.
    serial: Option<Serial>,
    first: u64,
    count: u16,
    /// The index of its first statement among those of all senders.
    start: usize,
    /// The number of its messages that were found.
    found: u16,
}

/// The statements of a batch, grouped by sender; and for each message its part, and its place in that part.
struct Sorted {
    parts: Vec<BatchPart>,
    statements: Vec<Hash>,
    places: Vec<(usize, usize)>,
}

impl Sorted {
    /// Finds the messages of a batch. They are the first of those that wait.
    fn new(
        authors: &[SignedMessages],
        waiting: &VecDeque<AwaitingSignature>,
    ) -> Result<Self, Broken> {
        const WRONG: Broken = Broken::Rule("a signature is for other messages than came before it");
        let mut start = 0;
        let mut parts: Vec<BatchPart> = Vec::with_capacity(authors.len());
        for author in authors {
            let (sender, count) = (author.sender(), author.count());
            let is_ordered = parts.last().is_none_or(|last| last.sender < sender);
            let is_numbered = author.first().checked_add(u64::from(count)).is_some();
            if count == 0 || !is_ordered || !is_numbered {
                return Err(WRONG);
            }
            parts.push(BatchPart {
                sender,
                serial: author.serial(),
                first: author.first(),
                count,
                start,
                found: 0,
            });
            start += usize::from(count);
        }
        if start > waiting.len().min(MOST_MESSAGES) {
            return Err(WRONG);
        }
        let mut statements = vec![Hash::default(); start];
        let mut places = Vec::with_capacity(start);
        for waiting in waiting.iter().take(start) {
            let part = parts.binary_search_by_key(&waiting.sender, |part| part.sender);
            let part = part.map_err(|_| WRONG)?;
            let of = &mut parts[part];
            if of.found == of.count {
                return Err(WRONG);
            }
            let place = usize::from(of.found);
            statements[of.start + place] = waiting.statement;
            places.push((part, place));
            of.found += 1;
        }
        Ok(Self {
            parts,
            statements,
            places,
        })
    }
}

/// The verdict on a batch: for each part, its index among the believed authors, or why its messages are refused.
struct Judged {
    parts: Vec<Result<usize, ExplainedRefusal>>,
    batch: Option<Arc<ProvedBatch>>,
    places: Vec<(usize, usize)>,
}

impl Judged {
    /// The evidence for the message at this place of the batch.
    fn evidence(&self, place: usize) -> Result<Option<Evidence>, ExplainedRefusal> {
        let Some((part, place)) = self.places.get(place) else {
            return Ok(None);
        };
        match (&self.parts[*part], &self.batch) {
            (Err(refused), _) => Err(refused.clone()),
            (Ok(author), Some(batch)) => {
                let evidence = batch.evidence(*author, *place);
                evidence
                    .map(Some)
                    .map_err(|error| not_proved(&error.to_string()))
            }
            (Ok(_), None) => Ok(None),
        }
    }
}

impl Inward {
    /// Keeps a message until its signature comes, and a bus frame also until the frames before it are done. Returns it
    /// if it need not wait: no signature follows, or it is a frame without a message.
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
        let is_of_agent = sender != PROCESS_SENDER && self.level.authenticates();
        let must_wait = is_of_agent && (is_signed || self.level >= SecurityLevel::Signed);
        // The credit of the targets limits the waiting messages.
        if *slot.name != *PROCESS_TARGET {
            if !must_wait {
                return Some(payload);
            }
            slot.unproved += 1;
            let statement = statement_of(&slot.name, &payload);
            self.wait(sender, target, statement, MessageOrFrame::Message(payload));
            return None;
        }
        let statement = match must_wait {
            // A signed frame of unknown contents can never be proved.
            true if is_signed => {
                let statement = self.bus.frame_statement(&payload);
                Some(statement.unwrap_or_default())
            }
            true => self.bus.frame_statement(&payload),
            false => None,
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
        if let Some(statement) = statement {
            self.wait(sender, target, statement, MessageOrFrame::Frame(number));
        }
        None
    }

    fn wait(&mut self, sender: u32, target: u32, statement: Hash, what: MessageOrFrame) {
        if let Some(unproved) = self.unproved_of(sender) {
            unproved.waiting += 1;
        }
        self.waiting.push_back(AwaitingSignature {
            sender,
            target,
            statement,
            what,
        });
    }

    fn unproved_of(&mut self, sender: u32) -> Option<&mut Unproved> {
        let sender = self.senders.get_mut(sender as usize)?;
        sender.as_mut()?.unproved.as_deref_mut()
    }

    /// A sender has delegated to the key of its process.
    pub(super) fn delegated(
        &mut self,
        handle: u32,
        serial: Serial,
        delegation: &[u8],
    ) -> Result<(), Broken> {
        let delegation = BatchKeyDelegation::decode(delegation)?;
        let sender = self.senders.get_mut(handle as usize);
        let (Some(Some(sender)), Some(verifier)) = (sender, &mut self.verifier) else {
            return Ok(());
        };
        let Some(unproved) = &mut sender.unproved else {
            return Ok(());
        };
        match unproved.delegated(serial, delegation, verifier) {
            Ok(()) => Ok(()),
            Err(error @ NotProved::TooManyWrong) => Err(Broken::NotProved(error)),
            Err(error) => {
                let proved = sender.provenance.certified();
                let proved = proved.map(|verified| verified.identity().to_string());
                let (reason, why) = (RefusalReason::NotProved, error.to_string());
                self.bus.refused(&sender.name, proved, None, reason, why);
                Ok(())
            }
        }
    }

    /// A signature for the first waiting messages has come. They are delivered or refused.
    pub(super) fn signed(
        &mut self,
        link: &Arc<Link>,
        time: u64,
        signature: &[u8],
        authors: &[SignedMessages],
        now: Timestamp,
    ) -> Result<(), Broken> {
        let judged = self.judge_batch(time, signature, authors, now)?;
        for place in 0..judged.places.len() {
            let Some(AwaitingSignature {
                sender,
                target,
                what,
                ..
            }) = self.waiting.pop_front()
            else {
                break;
            };
            if let Some(unproved) = self.unproved_of(sender) {
                // A message that came before its sender was bound was not counted.
                unproved.waiting = unproved.waiting.saturating_sub(1);
            }
            let proved = judged.evidence(place);
            match what {
                MessageOrFrame::Message(payload) => {
                    if let Some(Some(slot)) = self.targets.get_mut(target as usize) {
                        slot.unproved -= 1;
                    }
                    self.continue_row(link, target);
                    let same = payload.clone();
                    self.deliver(link, sender, target, payload, [&same[..], &[]], proved);
                }
                MessageOrFrame::Frame(number) => {
                    let origin = self.origin(sender, proved);
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

    /// Checks the signature for the first waiting messages.
    fn judge_batch(
        &mut self,
        time: u64,
        signature: &[u8],
        authors: &[SignedMessages],
        now: Timestamp,
    ) -> Result<Judged, Broken> {
        let Sorted {
            parts,
            statements,
            places,
        } = Sorted::new(authors, &self.waiting)?;
        let present = Moment::now().unix_ms();
        let mut judged = Judged {
            parts: Vec::with_capacity(parts.len()),
            batch: None,
            places,
        };
        let (mut authors, mut leaves) = (Vec::new(), Vec::with_capacity(parts.len()));
        let (mut key, mut is_whole) = (None, true);
        for part in &parts {
            let Some(serial) = part.serial else {
                judged
                    .parts
                    .push(Err(not_proved("its process could not sign it")));
                continue;
            };
            let sender = self.senders.get_mut(part.sender as usize);
            let sender = sender.and_then(Option::as_mut);
            let place = leaves.len();
            let start = part.start;
            let unproved = sender.as_ref().and_then(|it| it.unproved.as_deref());
            let certificate = unproved.and_then(|it| it.certificate(serial));
            let Some(certificate) = certificate else {
                is_whole = false;
                judged.parts.push(Err(not_proved(NO_CERTIFICATE)));
                continue;
            };
            let entry = AuthorEntry {
                serial,
                certificate,
                first: part.first,
                count: part.count,
            };
            leaves.push(entry.leaf(&statements[start..start + usize::from(part.count)]));
            let author = judge(sender, serial, time, self.trust.as_deref(), now, present);
            judged.parts.push(author.and_then(|(author, delegation)| {
                if key.get_or_insert_with(|| delegation.key().clone()) != delegation.key() {
                    return Err(not_proved("its author delegated to another key"));
                }
                authors.push(ProvedAuthor {
                    author,
                    delegation,
                    entry,
                    place,
                    start,
                });
                Ok(authors.len() - 1)
            }));
        }
        let (Some(key), Some(verifier)) = (key, &mut self.verifier) else {
            return Ok(judged);
        };
        let batch = SignedBatch::received(verifier.level(), key, time, signature, leaves);
        let checked = match is_whole {
            true => verifier.signed(&batch, present),
            // Without all certificates, nobody can tell what was signed.
            false => Err(NotProved::WrongSignature),
        };
        match checked {
            Ok(()) => judged.batch = Some(ProvedBatch::new(batch, statements, authors)),
            // A process signs only for its own agents, so an honest one never gets here.
            Err(error @ NotProved::TooManyWrong) => return Err(Broken::NotProved(error)),
            Err(error) => {
                for part in judged.parts.iter_mut().filter(|part| part.is_ok()) {
                    *part = Err(not_proved(&error.to_string()));
                }
            }
        }
        Ok(judged)
    }
}

/// The author behind a sender, if anything is accepted from it.
fn judge(
    sender: Option<&mut Sender>,
    serial: Serial,
    time: u64,
    trust: Option<&Trust>,
    now: Timestamp,
    present: u64,
) -> Result<(Author, BatchKeyDelegation), ExplainedRefusal> {
    let sender = sender.ok_or_else(never_bound)?;
    sender.check()?;
    let unproved = sender.unproved.as_deref_mut().ok_or_else(never_bound)?;
    let (author, delegation) = unproved.author(serial, trust, now)?;
    check_time(author.verified(), time, present).map_err(|error| not_proved(&error.to_string()))?;
    Ok((author, delegation))
}
