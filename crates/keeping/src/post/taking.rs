//! Taking letters in: the checks before a letter is kept, and the answers once it is on disk.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_control::clock::now;
use sealbus_control::names::SYSTEM_AGENTS;
use sealbus_control::post::{Cover, LetterMark, PostedLetter};
use sealbus_control::{Fault, FaultCode, UnixMillis, WaitingProvenance};
use sealbus_fipa::{Limits, bitefficient};
use sealbus_journal::{NewRecord, Written};
use sealbus_proof::LONGEST_EVIDENCE;
use sealbus_seal::Identity;
use tokio::task::JoinHandle;

use super::mailbox::KeptMailbox;
use super::shares::sender_of;
use super::shelf::{NotTaken, ShelvedLetter};
use super::{CLOCKS_APART, KeptLetters, LONGEST_LIFETIME, storage};

impl KeptLetters {
    /// Keeps letters, and returns when they are on disk. For each letter, the result is the reason why it is not kept,
    /// if it is not.
    pub async fn keep(self: &Arc<Self>, letters: Vec<PostedLetter>) -> Vec<Option<Fault>> {
        self.begin(letters, None).finish().await
    }

    /// Puts letters into the journal's queue, in order. If `elsewhere` gives a reason to refuse, only letters that are
    /// or were here are kept.
    pub fn begin(self: &Arc<Self>, letters: Vec<PostedLetter>, elsewhere: Option<&Fault>) -> Begun {
        let mut under_way = Vec::with_capacity(letters.len());
        let mut full: HashMap<String, Fault> = HashMap::new();
        for letter in letters {
            let receiver = letter.cover.receiver.clone();
            // A later letter must not overtake one that found no room.
            let put = match full.get(&receiver) {
                Some(fault) => Err(fault.clone()),
                None => self.put(letter, elsewhere),
            };
            if let Err(fault) = &put
                && matches!(fault.code, FaultCode::Full | FaultCode::Storage)
            {
                full.insert(receiver, fault.clone());
            }
            under_way.push(put);
        }
        let (post, count) = (self.clone(), under_way.len());
        // Work that has begun is finished even if nobody waits for it any more, because later letters wait for it.
        let finishing = tokio::spawn(async move {
            let mut refused = Vec::with_capacity(count);
            for put in under_way {
                refused.push(match put {
                    Ok(put) => put.finish(&post).await.err(),
                    Err(fault) => Some(fault),
                });
            }
            refused
        });
        Begun { count, finishing }
    }

    /// Puts a letter into the journal's queue. If `elsewhere` gives a reason to refuse, the letter is kept only if it
    /// was here before.
    fn put(&self, letter: PostedLetter, elsewhere: Option<&Fault>) -> Result<LetterWrite, Fault> {
        let mut cover = letter.cover;
        if cover.hops > 0 {
            // No node has letters kept for ever. It may have accepted this one by another clock, so it is not refused.
            cover.expiry = cover.expiry.min(latest_expiry());
        }
        let sender = self.check(&cover, &letter.message.0)?;
        if let Some(elsewhere) = elsewhere
            && !self.is_known(&cover)
        {
            return Err(elsewhere.clone());
        }
        self.check_notices(&cover, sender.as_deref())?;
        let size = (letter.message.0.len() + cover.provenance.size()) as u64;
        let attributes = serde_json::to_vec(&cover).map_err(Fault::internal)?;
        let mailbox = self.open_mailbox(&cover, size)?;
        let mut shelf = mailbox.shelf.lock();
        let written = match shelf.admit(&cover, size) {
            // A letter that is there already costs nothing, however often it comes.
            Err(NotTaken::Known) => {
                drop(shelf);
                let step = Step::Nothing;
                return Ok(LetterWrite { mailbox, step });
            }
            Err(NotTaken::BeingWritten) => {
                drop(shelf);
                let step = Step::Wait(PostedLetter { cover, ..letter });
                return Ok(LetterWrite { mailbox, step });
            }
            // The letter stays where it is. The note that it has been away must survive a restart of this node.
            // Otherwise the letter would be taken for one that was carried on and must be removed here.
            Err(NotTaken::Returned(number)) => {
                let Some((mark, is_again)) = shelf.returned(number, &cover) else {
                    let step = Step::Nothing;
                    drop(shelf);
                    return Ok(LetterWrite { mailbox, step });
                };
                let noted = mailbox.note_return(number, mark.hops, is_again);
                drop(shelf);
                let noted = noted.map_err(storage)?;
                let step = Step::Return {
                    noted,
                    number,
                    mark,
                };
                return Ok(LetterWrite { mailbox, step });
            }
            Err(NotTaken::Full) => {
                let held_up = mailbox.held_up.lock().clone();
                let held_up = held_up.map_or_else(String::new, |why| format!(", since {why}"));
                let message = format!(
                    "the mailbox of {} on {} is full: {} messages wait{held_up}",
                    cover.receiver,
                    self.node,
                    shelf.len()
                );
                let advice = "send again when some have been taken, or have expired";
                return Err(Fault::new(FaultCode::Full, message).advise(advice));
            }
            Ok(()) => {
                if let Err(fault) = self.check_room(&cover, size) {
                    shelf.retract(&cover);
                    return Err(fault);
                }
                mailbox.stream.append(NewRecord {
                    key: Bytes::new(),
                    attributes: attributes.into(),
                    payload: letter.message.0.into(),
                })
            }
        };
        match written {
            Ok(written) => {
                drop(shelf);
                let kept = ShelvedLetter { cover, size };
                let step = Step::Letter { written, kept };
                Ok(LetterWrite { mailbox, step })
            }
            Err(error) => {
                shelf.retract(&cover);
                Err(storage(error))
            }
        }
    }

    /// Whether this copy of a letter, or a later one, is or was here.
    pub(super) fn is_known(&self, cover: &Cover) -> bool {
        let mailbox = self.mailboxes.lock().get(&cover.receiver).cloned();
        mailbox.is_some_and(|mailbox| mailbox.shelf.lock().is_known(cover))
    }

    /// The mailbox for a letter, which is made if there is room for the letter.
    fn open_mailbox(&self, cover: &Cover, size: u64) -> Result<Arc<KeptMailbox>, Fault> {
        if let Some(mailbox) = self.mailboxes.lock().get(&cover.receiver) {
            return Ok(mailbox.clone());
        }
        self.check_room(cover, size)?;
        self.mailbox(&cover.receiver).map_err(storage)
    }

    /// Checks whether there is room for a new letter: on the disk, and, on the sender's own node, in the share of its
    /// sender. Notices that this node writes itself are always kept. Those of another node stay there as long as there
    /// is no room here.
    fn check_room(&self, cover: &Cover, size: u64) -> Result<(), Fault> {
        if cover.about.is_some() && cover.hops == 0 {
            return Ok(());
        }
        self.reserve.check(&self.node)?;
        if cover.hops > 0 {
            return Ok(());
        }
        let refusal = sender_of(&cover.provenance)
            .and_then(|sender| self.shares.refusal(sender, &cover.receiver, size));
        let Some(refusal) = refusal else {
            return Ok(());
        };
        let message = format!(
            "{} keeps no more for this sender: {refusal}, which is the limit for one sender",
            self.node
        );
        let advice = "send again when some have been taken, or have expired";
        Err(Fault::new(FaultCode::Full, message).advise(advice))
    }

    /// Checks whether a letter can be kept. Returns the local name of its sender, if the message names one.
    fn check(&self, cover: &Cover, message: &[u8]) -> Result<Option<String>, Fault> {
        let refuse = |text: String| Err(Fault::new(FaultCode::BadRequest, text));
        if SYSTEM_AGENTS.contains(&cover.receiver.as_str()) {
            return refuse(format!(
                "{} is a service of the platform and has no mailbox: send to it without persistence",
                cover.receiver
            ));
        }
        let name = format!("{}@{}", cover.receiver, self.platform);
        if let Err(error) = Identity::from_agent_name(&name) {
            return refuse(format!("nothing can be kept for {name}: {error}"));
        }
        if cover.hops == 0 && cover.expiry > latest_expiry() {
            return refuse(format!(
                "a message is kept for {} days at most: give it an earlier expiry",
                LONGEST_LIFETIME.as_secs() / 86_400
            ));
        }
        if message.len() > self.longest {
            return refuse(format!(
                "the message has {} bytes, and at most {} are kept",
                message.len(),
                self.longest
            ));
        }
        let view = match bitefficient::decode_ref(message, &Limits::default()) {
            Ok(view) => view,
            Err(error) => return refuse(format!("what is to be kept is no ACL message: {error}")),
        };
        let sender = view.sender().map(|sender| sender.local_name().to_owned());
        let proved = match &cover.provenance {
            WaitingProvenance::SameProcess { identity }
            | WaitingProvenance::Proved { identity, .. } => identity,
            WaitingProvenance::Signed { identity, evidence } => {
                if evidence.0.len() > LONGEST_EVIDENCE {
                    return refuse(format!(
                        "the evidence has {} bytes, and at most {LONGEST_EVIDENCE} are kept",
                        evidence.0.len()
                    ));
                }
                identity
            }
            WaitingProvenance::Claimed | WaitingProvenance::Platform => return Ok(sender),
            WaitingProvenance::Foreign => {
                return refuse("messages of other platforms are not kept here".to_owned());
            }
        };
        let proved: Identity = match proved.parse() {
            Ok(identity) => identity,
            Err(error) => return refuse(format!("{error}")),
        };
        match view.sender() {
            Some(named) if proved.is_agent_named(named.name()) => Ok(sender),
            _ => refuse(format!("the message is not from {proved}, who sends it")),
        }
    }
}

/// The latest expiry of a letter that comes in now.
fn latest_expiry() -> UnixMillis {
    now() + (LONGEST_LIFETIME + CLOCKS_APART).as_millis() as u64
}

/// Letters on their way to the disk.
pub struct Begun {
    count: usize,
    finishing: JoinHandle<Vec<Option<Fault>>>,
}

impl Begun {
    /// Waits until the letters are on disk. For each letter, the result is the reason why it is not kept, if it is not.
    pub async fn finish(self) -> Vec<Option<Fault>> {
        let Self { count, finishing } = self;
        finishing
            .await
            .unwrap_or_else(|error| vec![Some(Fault::internal(error)); count])
    }
}

/// A letter on its way to the disk.
struct LetterWrite {
    mailbox: Arc<KeptMailbox>,
    step: Step,
}

/// The event to wait for.
enum Step {
    /// The letter is known.
    Nothing,
    /// The letter is on disk.
    Letter {
        written: Written,
        kept: ShelvedLetter,
    },
    /// The note that the letter came back is on disk.
    Return {
        noted: Written,
        number: u64,
        mark: LetterMark,
    },
    /// Another copy of this letter is on disk, or could not be written.
    Wait(PostedLetter),
}

impl LetterWrite {
    async fn finish(self, post: &KeptLetters) -> Result<(), Fault> {
        let mut put = self;
        loop {
            let Self { mailbox, step } = put;
            match step {
                Step::Nothing => return Ok(()),
                Step::Letter { written, kept } => {
                    let written = written.await;
                    let kept = match written {
                        Ok(number) => {
                            mailbox.shelf.lock().arrived(number, kept);
                            post.carry(&mailbox);
                            Ok(())
                        }
                        Err(error) => {
                            mailbox.shelf.lock().retract(&kept.cover);
                            Err(storage(error))
                        }
                    };
                    mailbox.written.notify_waiters();
                    return kept;
                }
                Step::Return {
                    noted,
                    number,
                    mark,
                } => {
                    noted.await.map_err(storage)?;
                    mailbox.shelf.lock().return_noted(number, mark);
                    return Ok(());
                }
                // This copy may have been carried further than the other one, so it is handled again.
                Step::Wait(letter) => {
                    mailbox.until_written(&letter.cover).await;
                    let problem = "another copy of the message could not be written";
                    let not_written = Fault::new(FaultCode::Storage, problem);
                    put = post.put(letter, Some(&not_written))?;
                }
            }
        }
    }
}
