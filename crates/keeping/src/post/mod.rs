//! Mailboxes of absent agents: a node keeps messages in its journal until their receivers have them.
//!
//! A process gives persistent messages to its node. Sending returns when the messages are on that node's disk. A node
//! that runs the receiver's process hands the messages over. Any other node carries them to the node that runs, or ran,
//! that process, or waits until the directory knows the receiver's place. An expired message comes back to its sender
//! as a `failure`. The node keeps this `failure` until the sender has it.
//!
//! **Once.** The writing process and a number identify a letter all the way, even after it has left. The letter also
//! counts how often it was carried from node to node. By this count (`had`), a node can tell a letter that comes back
//! from a letter that comes twice because an answer was lost. A letter leaves a node when the next node has it on disk,
//! or when the receiver has taken it. If the receiver's process ends after it took a letter and before its node knows,
//! the next process gets the letter again, marked as a repetition.
//!
//! **In order.** A node notes the nodes to which it carried letters for an agent. Before it hands over later letters,
//! or carries them to another node, it asks those nodes whether they still have earlier ones (`trail`).

mod carrier;
mod had;
mod mailbox;
mod notices;
mod own;
mod settling;
mod shares;
mod shelf;
#[cfg(test)]
mod simulation;
mod taking;
#[cfg(test)]
mod tests;
mod trail;
mod waiting_notices;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sealbus_bus::LogShares;
use sealbus_fipa::{Aid, Limits, bitefficient};
use sealbus_journal::{Journal, JournalError};
use sealbus_seal::Fingerprint;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::reserve::Reserve;
use crate::{longest, storage};
use sealbus_control::clock::now;
use sealbus_control::post::{
    AboutLetter, Cover, DeliveredLetter, LetterMark, LetterStanding, PostedLetter, Trail,
    WaitingLetter,
};
use sealbus_control::{Blob, Fault, UnixMillis, WaitingMessage};

pub(crate) use mailbox::MAILBOX;
use mailbox::{KeptMailbox, mailbox_config};
use shares::Shares;
use shelf::{Shelf, ShelvedLetter};

pub use carrier::run;
pub use own::{OwnPost, PostPlace};

/// How long a notice is kept, and how long a letter without an expiry is kept.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a letter may wait at most.
const LONGEST_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How far ahead the clock of a sender's process may be.
const CLOCKS_APART: Duration = Duration::from_secs(3600);
/// The most letters in one request.
pub const MOST_POSTED: usize = 1024;
/// The most letters of a mailbox that are listed.
const MOST_LISTED: usize = 1000;

/// The place of an agent, as seen from this node.
#[derive(Debug)]
pub enum Whereabouts {
    /// In this process of this node. The number identifies the connection to the process.
    Here(String, u64),
    /// On another node.
    There(String),
    /// Unknown, or on its way.
    Away,
}

/// The times by which letters are handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The pause before a failed attempt is repeated.
    pub(crate) pause: Duration,
    /// The longest time between two checks for changes.
    pub(crate) look: Duration,
    /// How long the post waits for a silent node to which letters were carried.
    pub(crate) given_up: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            pause: Duration::from_millis(250),
            look: Duration::from_secs(2),
            given_up: Duration::from_secs(10),
        }
    }
}

/// The ways by which letters leave this node.
pub trait Ways: Send + Sync + 'static {
    /// The present place of an agent.
    fn whereabouts(&self, agent: &str) -> Whereabouts;

    /// Hands letters to the agent's process. They may be lost if the process ends.
    fn deliver<'a>(
        &'a self,
        agent: &'a str,
        letters: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>>;

    /// Carries letters for one agent to another node. For each letter, the answer is the reason why that node does not
    /// keep it, if it does not.
    fn forward<'a>(
        &'a self,
        node: &'a str,
        letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>>;

    /// Asks another node how these letters for an agent compare with those that it has for the agent. No letter that
    /// was forwarded to the node before this question arrives there after it.
    fn trail<'a>(
        &'a self,
        node: &'a str,
        receiver: &'a str,
        letters: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>>;
}

/// The letters that a node keeps.
pub struct KeptLetters {
    /// The node's name.
    node: String,
    platform: String,
    /// The length of the longest kept message, in bytes.
    longest: usize,
    ams: Aid,
    pace: Pace,
    journal: Journal,
    /// The part of the disk that letters must leave free.
    reserve: Reserve,
    shares: Arc<Shares>,
    mailboxes: Mutex<HashMap<String, Arc<KeptMailbox>>>,
    /// The letters here about which the node has written notices.
    about: Mutex<HashSet<AboutLetter>>,
    origin: u64,
    /// This origin's last number for each receiver.
    sequences: Mutex<HashMap<String, u64>>,
    /// Mailboxes that need a carrier.
    carried: mpsc::UnboundedSender<Arc<KeptMailbox>>,
    /// The receiving end, until the task that runs the carriers takes it.
    to_carry: Mutex<Option<mpsc::UnboundedReceiver<Arc<KeptMailbox>>>>,
    /// The shares of the log for reports on letters, by agent.
    lines: Mutex<LogShares>,
}

/// A number that no other process or node ever uses as its origin: the second in which this one began, and random bits.
pub fn new_origin() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let chance = std::collections::hash_map::RandomState::new();
    (now() / 1000) << 32 | (chance.build_hasher().finish() & 0xffff_ffff)
}

/// The origin under which a node keeps the letters that a process numbers. No two processes share an origin, even if
/// both claim the same one.
pub fn origin_of(process: &str, said: u64) -> u64 {
    origin_at(process, said, now())
}

/// The origin, as a node makes it at this moment. If the process's clock is no further ahead than allowed, the moment
/// does not matter: a letter that is brought again later is recognised. A start further in the future counts as the
/// oldest, so that no process has its letters remembered longer than others.
fn origin_at(process: &str, said: u64, now: UnixMillis) -> u64 {
    let mut both = said.to_le_bytes().to_vec();
    both.extend_from_slice(process.as_bytes());
    let [a, b, c, d, ..] = *Fingerprint::of(&both).as_bytes();
    let latest = now.saturating_add(CLOCKS_APART.as_millis() as u64) / 1000;
    let began = match said >> 32 {
        began if began <= latest => began,
        _ => 0,
    };
    began << 32 | u64::from(u32::from_le_bytes([a, b, c, d]))
}

impl KeptLetters {
    /// Opens the waiting messages in a journal. This blocks.
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
            pace: Pace::default(),
            reserve: Reserve::of(journal.folder()),
            journal,
            shares: Arc::default(),
            mailboxes: Mutex::default(),
            about: Mutex::default(),
            origin: new_origin(),
            sequences: Mutex::default(),
            carried,
            to_carry: Mutex::new(Some(to_carry)),
            lines: Mutex::default(),
        };
        let mut written = Vec::new();
        for stream in post.journal.streams() {
            let Some(agent) = stream.name().strip_prefix(MAILBOX) else {
                continue;
            };
            let mailbox = KeptMailbox::load(agent.to_owned(), stream.clone(), &post.shares)?;
            let mailbox = Arc::new(mailbox);
            {
                let shelf = mailbox.shelf.lock();
                // A notice that was carried here names a letter by its number on another node.
                let own = shelf.letters().filter(|(_, kept, _)| kept.cover.hops == 0);
                let notices = own.filter_map(|(_, kept, _)| {
                    let about = kept.cover.about.clone()?;
                    Some((about, kept.cover.posted))
                });
                written.extend(notices);
            }
            post.mailboxes
                .lock()
                .insert(mailbox.agent.clone(), mailbox.clone());
            post.carry(&mailbox);
        }
        for (about, posted) in written {
            if post.has_letter(&about, posted) {
                post.about.lock().insert(about);
            }
        }
        Ok(post)
    }

    /// Whether this node has the letter that a notice from this time is about. A new mailbox numbers its letters from the
    /// beginning, so a later letter may have the same number.
    fn has_letter(&self, about: &AboutLetter, noticed: UnixMillis) -> bool {
        let mailbox = self.mailboxes.lock().get(&about.receiver).cloned();
        mailbox.is_some_and(|mailbox| {
            let shelf = mailbox.shelf.lock();
            let letter = shelf.get(about.number);
            letter.is_some_and(|kept| kept.cover.posted <= noticed)
        })
    }

    /// Whether to write a line about this agent to the log now. If so, returns how many lines were left out since the
    /// last one.
    fn admit_line(&self, agent: &str) -> Option<u64> {
        self.lines.lock().admit(agent.to_owned())
    }

    fn mailbox(&self, agent: &str) -> Result<Arc<KeptMailbox>, JournalError> {
        let mut mailboxes = self.mailboxes.lock();
        if let Some(mailbox) = mailboxes.get(agent) {
            return Ok(mailbox.clone());
        }
        let name = format!("{MAILBOX}{agent}");
        let stream = self.journal.open_stream(&name, mailbox_config())?;
        let mailbox = KeptMailbox::new(agent.to_owned(), stream, Shelf::counted_by(&self.shares));
        mailbox.shelf.lock().begin_at(mailbox.stream.end());
        let mailbox = Arc::new(mailbox);
        mailboxes.insert(agent.to_owned(), mailbox.clone());
        Ok(mailbox)
    }

    /// Forgets a mailbox in which letters have only expired: no process was ever handed one, and no node has one. So a
    /// name that no agent has leaves nothing behind. This blocks.
    fn forget_unused(
        &self,
        mailbox: &Arc<KeptMailbox>,
        runtime: &Handle,
    ) -> Result<(), JournalError> {
        let mut mailboxes = self.mailboxes.lock();
        let is_unused = mailbox.shelf.lock().is_unused() && mailbox.trail.lock().nodes.is_empty();
        // Nobody else is about to put a letter in: a task that does so holds the mailbox, or waits for the list.
        if is_unused && Arc::strong_count(mailbox) == 2 {
            mailboxes.remove(&mailbox.agent);
            // The list stays locked until the stream is gone, so that its name is free.
            runtime.block_on(self.journal.remove_stream(&mailbox.stream)?)?;
        }
        Ok(())
    }

    /// Starts a carrier for a mailbox that has none.
    fn carry(&self, mailbox: &Arc<KeptMailbox>) {
        if mailbox.shelf.lock().is_empty() {
            return;
        }
        let first = !std::mem::replace(&mut *mailbox.is_carried.lock(), true);
        if first {
            // This fails only when the node ends.
            let _ = self.carried.send(mailbox.clone());
        }
        mailbox.news.notify_one();
    }

    /// Reports news about an agent's place.
    pub fn wake(&self, agent: &str) {
        if let Some(mailbox) = self.mailboxes.lock().get(agent) {
            mailbox.news.notify_one();
        }
    }

    /// The messages that wait for an agent: the first letters, and the number of all.
    pub fn list(&self, agent: &str) -> (Vec<WaitingLetter>, u64) {
        let Some(mailbox) = self.mailboxes.lock().get(agent).cloned() else {
            return (Vec::new(), 0);
        };
        let known: Vec<(u64, ShelvedLetter, bool)> = {
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

    /// How letters that another node keeps for an agent compare with the letters here.
    pub fn trail(&self, receiver: &str, letters: &[LetterMark]) -> Trail {
        let mailbox = self.mailboxes.lock().get(receiver).cloned();
        let Some(mailbox) = mailbox else {
            return Trail {
                standings: vec![LetterStanding::Free; letters.len()],
                nodes: Vec::new(),
                waiting: 0,
                life: self.origin,
                arrivals: 0,
            };
        };
        let shelf = mailbox.shelf.lock();
        let now = now();
        let standings = letters.iter().map(|mark| shelf.standing(*mark, now));
        Trail {
            standings: standings.collect(),
            nodes: mailbox.trail.lock().nodes.keys().cloned().collect(),
            waiting: shelf.waiting() as u64,
            life: self.origin,
            arrivals: shelf.arrivals(),
        }
    }
}

fn waiting_message(message: &Bytes, cover: &Cover) -> WaitingMessage {
    WaitingMessage {
        message: Blob(message.to_vec()),
        provenance: cover.provenance.clone(),
    }
}

/// The expiry of a letter, from the one that its sender asked for.
pub fn expiry_of(asked: Option<UnixMillis>, posted: UnixMillis) -> UnixMillis {
    asked.unwrap_or(posted + LIFETIME.as_millis() as u64)
}
