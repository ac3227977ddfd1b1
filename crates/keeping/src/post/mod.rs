//! Mailboxes of the absent: messages that a node keeps, in its journal, until their receivers have them.
//!
//! A process gives persistent messages to its node, and sending returns when they are on that node's disk. The node
//! hands them to the receiver's process if it runs it; or carries them to the node that does, or did; or waits until the
//! directory knows where the receiver is. What expires comes back to its sender as a `failure`, itself kept until that
//! has it.
//!
//! **Once.** A letter is known by the process that wrote it and a number, all the way, also after it has left; so
//! whoever asks twice, because an answer was lost, is answered and changes nothing. A letter leaves a node when the next
//! one has it on disk, or when the receiver has taken it. If the receiver's process ends between taking a letter and
//! its node learning of it, the next process gets it again, marked as such, with the same number.
//!
//! **In order.** All that one agent sends another persistently goes the same way: a node that has carried letters for an agent
//! to a node goes on to carry them there until that has none left and says where the agent is now.

mod carrier;
mod mailbox;
mod notices;
mod own;
mod shelf;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sealbus_fipa::{Aid, Limits, bitefficient};
use sealbus_journal::{Journal, JournalError, NewRecord, Written};
use sealbus_seal::Identity;
use tokio::sync::mpsc;

use crate::longest;
use sealbus_control::clock::now;
use sealbus_control::names::SYSTEM_AGENTS;
use sealbus_control::post::{
    About, Cover, DeliveredLetter, LetterOutcome, PostedLetter, Receipt, WaitingLetter,
};
use sealbus_control::{Blob, Fault, FaultCode, UnixMillis, WaitingMessage, WaitingProvenance};

use mailbox::{HANDED, MAILBOX, Mailbox, SEEN, mailbox_config};
use notices::{RECEIPT, reason_of};
use shelf::{Kept, NotTaken};

pub use carrier::run;
pub use own::{OwnPost, PostPlace};

/// How long a letter without an expiry is kept, and each notice.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most letters in one request.
pub const MOST_POSTED: usize = 1024;
/// Most letters of a mailbox that are listed.
const MOST_LISTED: usize = 1000;

/// Where an agent is, from this node.
#[derive(Debug)]
pub enum Whereabouts {
    /// In this process of this node; the second number tells a connection to it from another.
    Here(String, u64),
    /// On another node.
    There(String),
    /// Nobody knows, or it is on its way.
    Away,
}

/// What a node answers to letters carried to it.
pub enum Forwarded {
    /// For each why it does not keep it, if it does not.
    Kept(Vec<Option<Fault>>),
    /// The agent is not there.
    Elsewhere,
}

/// The ways that letters go from here.
pub trait Ways: Send + Sync + 'static {
    /// Where an agent is now.
    fn whereabouts(&self, agent: &str) -> Whereabouts;

    /// Hands letters to the process the agent is in; they may be lost if that ends.
    fn deliver<'a>(
        &'a self,
        agent: &'a str,
        letters: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>>;

    /// Carries letters for one agent to another node.
    fn forward<'a>(
        &'a self,
        node: &'a str,
        letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Forwarded, Fault>>;
}

/// The letters a node keeps.
pub struct Post {
    /// The node's name.
    node: String,
    platform: String,
    /// Longest message that is kept, in bytes.
    longest: usize,
    ams: Aid,
    journal: Journal,
    mailboxes: Mutex<HashMap<String, Arc<Mailbox>>>,
    /// Letters that a notice was written about which has not left yet.
    about: Mutex<HashSet<About>>,
    origin: u64,
    /// The last number of this origin, by receiver.
    sequences: Mutex<HashMap<String, u64>>,
    /// Mailboxes that need a carrier.
    carried: mpsc::UnboundedSender<Arc<Mailbox>>,
    /// Until they are fetched by the one who runs the carriers.
    to_carry: Mutex<Option<mpsc::UnboundedReceiver<Arc<Mailbox>>>>,
}

/// A number that no other process or node ever has as its own: the second it began in, and chance.
pub fn new_origin() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let chance = std::collections::hash_map::RandomState::new();
    (now() / 1000) << 32 | (chance.build_hasher().finish() & 0xffff_ffff)
}

impl Post {
    /// What waits in a journal. Blocks.
    ///
    /// # Errors
    /// If the journal cannot be used.
    pub fn open(
        journal: Journal,
        node: &str,
        platform: &str,
        max_message: u64,
    ) -> Result<Self, JournalError> {
        let (carried, to_carry) = mpsc::unbounded_channel();
        let ams = Aid {
            name: format!("ams@{platform}"),
            addresses: Vec::new(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        };
        let post = Self {
            node: node.to_owned(),
            platform: platform.to_owned(),
            longest: longest(max_message),
            ams,
            journal,
            mailboxes: Mutex::default(),
            about: Mutex::default(),
            origin: new_origin(),
            sequences: Mutex::default(),
            carried,
            to_carry: Mutex::new(Some(to_carry)),
        };
        for stream in post.journal.streams() {
            let Some(agent) = stream.name().strip_prefix(MAILBOX) else {
                continue;
            };
            let mailbox = Arc::new(Mailbox::load(agent.to_owned(), stream.clone())?);
            {
                let shelf = mailbox.shelf.lock();
                let about = shelf
                    .letters()
                    .filter_map(|(_, kept, _)| kept.cover.about.clone());
                post.about.lock().extend(about);
            }
            post.mailboxes
                .lock()
                .insert(mailbox.agent.clone(), mailbox.clone());
            post.carry(&mailbox);
        }
        Ok(post)
    }

    fn mailbox(&self, agent: &str) -> Result<Arc<Mailbox>, JournalError> {
        let mut mailboxes = self.mailboxes.lock();
        if let Some(mailbox) = mailboxes.get(agent) {
            return Ok(mailbox.clone());
        }
        let name = format!("{MAILBOX}{agent}");
        let stream = self.journal.open_stream(&name, mailbox_config())?;
        let mailbox = Mailbox::new(agent.to_owned(), stream);
        mailbox.shelf.lock().begin_at(mailbox.stream.end());
        let mailbox = Arc::new(mailbox);
        mailboxes.insert(agent.to_owned(), mailbox.clone());
        Ok(mailbox)
    }

    /// Has a mailbox looked after, if it is not already.
    fn carry(&self, mailbox: &Arc<Mailbox>) {
        if mailbox.shelf.lock().is_empty() {
            return;
        }
        let first = !std::mem::replace(&mut *mailbox.is_carried.lock(), true);
        if first {
            // It fails only when the node ends.
            let _ = self.carried.send(mailbox.clone());
        }
        mailbox.news.notify_one();
    }

    /// There is news about where an agent is.
    pub fn wake(&self, agent: &str) {
        if let Some(mailbox) = self.mailboxes.lock().get(agent) {
            mailbox.news.notify_one();
        }
    }

    /// Keeps letters; returns when they are on disk. For each why it is not kept, if it is not.
    pub async fn keep(self: &Arc<Self>, letters: Vec<PostedLetter>) -> Vec<Option<Fault>> {
        let (post, count) = (self.clone(), letters.len());
        // What was begun is finished, though nobody may wait for it any more.
        let keeping = tokio::spawn(async move { post.keep_all(letters).await });
        keeping.await.unwrap_or_else(|error| {
            let fault = Fault::new(FaultCode::Internal, error.to_string());
            vec![Some(fault); count]
        })
    }

    async fn keep_all(&self, letters: Vec<PostedLetter>) -> Vec<Option<Fault>> {
        let mut under_way = Vec::with_capacity(letters.len());
        // In order, into the journal's queue; then wait for all.
        let mut full: HashMap<String, Fault> = HashMap::new();
        for letter in letters {
            let receiver = letter.cover.receiver.clone();
            // What comes after one that found no room must not come before it.
            let put = match full.get(&receiver) {
                Some(fault) => Err(fault.clone()),
                None => self.put(letter),
            };
            if let Err(fault) = &put
                && matches!(fault.code, FaultCode::Full | FaultCode::Storage)
            {
                full.insert(receiver, fault.clone());
            }
            under_way.push(put);
        }
        let mut refused = Vec::with_capacity(under_way.len());
        for put in under_way {
            refused.push(match put {
                Ok(put) => put.finish(self).await.err(),
                Err(fault) => Some(fault),
            });
        }
        refused
    }

    fn put(&self, letter: PostedLetter) -> Result<Put, Fault> {
        let cover = letter.cover;
        self.check(&cover, &letter.message.0)?;
        let mailbox = self.mailbox(&cover.receiver).map_err(storage)?;
        let size = letter.message.0.len() as u64;
        let attributes = serde_json::to_vec(&cover)
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        let mut shelf = mailbox.shelf.lock();
        let written = match shelf.admit(&cover, size) {
            // It may still be on its way to the disk: what is written after it says when it is there.
            Err(NotTaken::Known) => {
                let written = mailbox.stream.set_cursor(HANDED, shelf.handed_before());
                drop(shelf);
                let written = written.map_err(storage)?;
                return Ok(Put {
                    mailbox,
                    written,
                    kept: None,
                });
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
            Ok(()) => mailbox.stream.append(NewRecord {
                key: Bytes::new(),
                attributes: attributes.into(),
                payload: letter.message.0.into(),
            }),
        };
        match written {
            Ok(written) => {
                drop(shelf);
                Ok(Put {
                    mailbox,
                    written,
                    kept: Some(Kept { cover, size }),
                })
            }
            Err(error) => {
                shelf.retract(&cover);
                Err(storage(error))
            }
        }
    }

    /// Whether a letter is one that can be kept.
    fn check(&self, cover: &Cover, message: &[u8]) -> Result<(), Fault> {
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
        let proved = match &cover.provenance {
            WaitingProvenance::SameProcess { identity }
            | WaitingProvenance::Proved { identity, .. } => identity,
            WaitingProvenance::Claimed | WaitingProvenance::Platform => return Ok(()),
            WaitingProvenance::Foreign => {
                return refuse("messages of other platforms are not kept here".to_owned());
            }
        };
        let proved: Identity = match proved.parse() {
            Ok(identity) => identity,
            Err(error) => return refuse(format!("{error}")),
        };
        match view.sender() {
            Some(sender) if proved.is_agent_named(sender.name()) => Ok(()),
            _ => refuse(format!("the message is not from {proved}, who sends it")),
        }
    }

    /// What a process says of letters it was handed. Returns when all of it is on disk.
    ///
    /// # Errors
    /// If it cannot be written: then the process is to say it again.
    pub async fn settle(
        &self,
        agent: &str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> Result<(), Fault> {
        let Some(mailbox) = self.mailboxes.lock().get(agent).cloned() else {
            return Ok(());
        };
        tracing::trace!(agent, ?outcomes, "settled");
        let mut gone = Vec::new();
        // What was left is handed over again in a while, not at once.
        let is_news = outcomes
            .iter()
            .any(|(_, outcome)| *outcome != LetterOutcome::Left);
        for (number, outcome) in outcomes {
            match outcome {
                LetterOutcome::Left => mailbox.shelf.lock().was_left(number),
                LetterOutcome::Arrived => {
                    self.receipt(&mailbox, number, Receipt::Process).await?;
                }
                LetterOutcome::Taken => {
                    self.receipt(&mailbox, number, Receipt::Process).await?;
                    self.receipt(&mailbox, number, Receipt::Agent).await?;
                    gone.push(number);
                }
                LetterOutcome::Expired => {
                    self.expired(&mailbox, number).await?;
                    gone.push(number);
                }
                LetterOutcome::Refused(refusal) => {
                    let reason = reason_of(refusal, &mailbox.agent);
                    self.bounce(&mailbox, number, &reason).await?;
                    gone.push(number);
                }
            }
        }
        self.remove(&mailbox, &gone).await?;
        if is_news {
            mailbox.news.notify_one();
        }
        Ok(())
    }

    /// Forgets letters that have left, or have no way to go any more.
    async fn remove(&self, mailbox: &Mailbox, numbers: &[u64]) -> Result<(), Fault> {
        let mut last: Option<Written> = None;
        let mut removed = Vec::new();
        let mut seen = HashMap::new();
        {
            let shelf = mailbox.shelf.lock();
            for number in numbers {
                let Some(kept) = shelf.get(*number) else {
                    continue;
                };
                let Cover {
                    origin, sequence, ..
                } = kept.cover;
                // Once the letter is gone this alone says that it was here.
                if let Some((first, end)) = shelf.stretch(origin, sequence) {
                    seen.insert((origin, first), end);
                }
                if kept.cover.receipt == Some(Receipt::Process) {
                    let name = format!("{RECEIPT}{number}");
                    mailbox.stream.forget_cursor(&name).map_err(storage)?;
                }
                removed.push(*number);
            }
            for ((origin, first), end) in seen {
                let name = format!("{SEEN}{origin:016x}/{first}");
                mailbox.stream.set_cursor(&name, end).map_err(storage)?;
            }
            if !removed.is_empty() {
                last = Some(mailbox.stream.remove(&removed).map_err(storage)?);
            }
        }
        if let Some(written) = last {
            written.await.map_err(storage)?;
        }
        let mut shelf = mailbox.shelf.lock();
        for number in removed {
            if let Some(kept) = shelf.take(number)
                && let Some(about) = &kept.cover.about
            {
                self.about.lock().remove(about);
            }
        }
        drop(shelf);
        mailbox.forget_origins().map_err(storage)
    }

    /// What waits for an agent: the first letters, and how many there are.
    pub fn list(&self, agent: &str) -> (Vec<WaitingLetter>, u64) {
        let Some(mailbox) = self.mailboxes.lock().get(agent).cloned() else {
            return (Vec::new(), 0);
        };
        let known: Vec<(u64, Kept, bool)> = {
            let shelf = mailbox.shelf.lock();
            let letters = shelf.letters().take(MOST_LISTED);
            letters
                .map(|(number, kept, delivered)| (number, kept.clone(), delivered))
                .collect()
        };
        let total = mailbox.shelf.lock().len() as u64;
        let listed = known.into_iter().map(|(number, kept, delivered)| {
            let message = mailbox.read(number).unwrap_or_default();
            let view = bitefficient::decode_ref(&message, &Limits::default()).ok();
            WaitingLetter {
                node: self.node.clone(),
                number,
                sender: view
                    .as_ref()
                    .and_then(|view| view.sender())
                    .map_or_else(String::new, |sender| sender.name().to_owned()),
                performative: view
                    .as_ref()
                    .map_or_else(String::new, |view| view.performative().to_string()),
                size: kept.size,
                posted: kept.cover.posted,
                expiry: kept.cover.expiry,
                valid_from: kept.cover.valid_from,
                delivered,
            }
        });
        (listed.collect(), total)
    }

    /// Whether something waits for an agent.
    pub fn has_letters_for(&self, agent: &str) -> bool {
        let mailbox = self.mailboxes.lock().get(agent).cloned();
        mailbox.is_some_and(|mailbox| !mailbox.shelf.lock().is_empty())
    }
}

/// A letter on its way to the disk.
struct Put {
    mailbox: Arc<Mailbox>,
    written: Written,
    /// `None` if it was known.
    kept: Option<Kept>,
}

impl Put {
    async fn finish(self, post: &Post) -> Result<(), Fault> {
        let written = self.written.await;
        let Some(kept) = self.kept else {
            return written.map(|_| ()).map_err(storage);
        };
        match written {
            Ok(number) => {
                self.mailbox.shelf.lock().arrived(number, kept);
                post.carry(&self.mailbox);
                Ok(())
            }
            Err(error) => {
                self.mailbox.shelf.lock().retract(&kept.cover);
                Err(storage(error))
            }
        }
    }
}

fn storage(error: JournalError) -> Fault {
    let code = match error {
        JournalError::Busy { .. } => FaultCode::Full,
        _ => FaultCode::Storage,
    };
    Fault::new(code, format!("the node's journal: {error}"))
}

fn waiting_message(message: &Bytes, cover: &Cover) -> WaitingMessage {
    WaitingMessage {
        message: Blob(message.to_vec()),
        provenance: cover.provenance.clone(),
    }
}

/// The expiry that a letter gets, given what its sender asked for.
pub fn expiry_of(asked: Option<UnixMillis>, posted: UnixMillis) -> UnixMillis {
    asked.unwrap_or(posted + LIFETIME.as_millis() as u64)
}
