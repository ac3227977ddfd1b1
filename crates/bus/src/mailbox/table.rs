//! The table of a mailbox's conversations: the rules that assign messages to them, and the queue of each.

use std::collections::{BTreeMap, HashMap, VecDeque, hash_map};
use std::sync::Arc;
use std::task::Waker;
use std::{iter, mem};

use sealbus_fipa::{AclMessageRef, ExpressionRef, Performative};

use super::ended::{EndedConversations, Name};
use super::entry::{Alarm, Entry, Hook, Wake};
use crate::message::ReceivedMessage;

/// The number of messages of a conversation, counted from the latest, whose answers are recognised without a conversation-id.
const TAGS: usize = 32;

/// The rule for messages that come after the end of a conversation, or are unread at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// They are dropped and counted. If a peer named the conversation, it may use the name again, so only answers and
    /// `cancel` count as late. For [replies](super::Conversations::open_reply), only messages with a tag count as late.
    #[default]
    Ignored,
    /// They go to the mailbox, as if there had been no conversation.
    Received,
}

/// The place of an arriving message.
pub(super) enum MailboxPlace {
    /// It belongs to no conversation.
    General,
    Conversation(u64),
    /// Its conversation has ended and ignores it.
    Late,
}

/// The one agent that a name is for; `None` if the name is for all agents.
type Peer = Option<Arc<str>>;

/// A conversation that gets the messages of a name, and the peer that the name is for.
type Owner = (Peer, u64);

/// The owners of a name: one, unless several agents have chosen the same name.
struct Owners {
    first: Owner,
    more: Vec<Owner>,
}

/// The owners of names of open conversations, or of tags of their messages.
#[derive(Default)]
struct Named(HashMap<Arc<str>, Owners>);

impl Named {
    fn owners(&self, name: &str) -> impl Iterator<Item = &Owner> {
        let owners = self.0.get(name).into_iter();
        owners.flat_map(|it| iter::once(&it.first).chain(&it.more))
    }

    /// The conversations that own a name for this sender. The platform itself speaks for every peer.
    fn find<'a>(&'a self, name: &str, sender: Option<&'a str>) -> impl Iterator<Item = u64> {
        self.owners(name)
            .filter(move |(peer, _)| match (peer, sender) {
                (Some(peer), Some(sender)) => **peer == *sender,
                _ => true,
            })
            .map(|(_, owner)| *owner)
    }

    /// Whether the name already has an owner for this peer.
    fn is_taken(&self, name: &str, peer: Option<&str>) -> bool {
        self.owners(name).any(|(other, _)| other.as_deref() == peer)
    }

    fn insert(&mut self, name: Arc<str>, peer: Peer, owner: u64) {
        match self.0.entry(name) {
            hash_map::Entry::Occupied(owners) => owners.into_mut().more.push((peer, owner)),
            hash_map::Entry::Vacant(place) => {
                place.insert(Owners {
                    first: (peer, owner),
                    more: Vec::new(),
                });
            }
        }
    }

    fn remove(&mut self, name: &str, owner: u64) {
        let Some(owners) = self.0.get_mut(name) else {
            return;
        };
        owners.more.retain(|(_, it)| *it != owner);
        if owners.first.1 == owner {
            if owners.more.is_empty() {
                self.0.remove(name);
            } else {
                owners.first = owners.more.remove(0);
            }
        }
    }
}

/// One open conversation.
pub(super) struct Slot {
    queue: VecDeque<Entry>,
    id: Option<Arc<str>>,
    /// Whether all messages with the conversation-id belong here, and not only the answers to its tags.
    owns_id: bool,
    /// Whether the conversation-id is borrowed: it belongs to a larger conversation of the agent.
    is_guest: bool,
    peer: Peer,
    tags: VecDeque<Arc<str>>,
    late: Late,
    readers: Vec<Waker>,
    hook: Option<Hook>,
    hook_armed: bool,
}

impl Slot {
    /// The readers to wake. The hook is told of messages for which it is armed, and of the end.
    fn alarms(&mut self, is_end: bool) -> impl Iterator<Item = Alarm> + use<> {
        let is_told = mem::take(&mut self.hook_armed) || is_end;
        let hook = self.hook.clone().filter(|_| is_told);
        let readers = mem::take(&mut self.readers).into_iter();
        readers.map(Alarm::Task).chain(hook.map(Alarm::Hook))
    }
}

#[derive(Default)]
pub(super) struct Table {
    /// Boxed, because the map moves its values when it grows.
    slots: BTreeMap<u64, Box<Slot>>,
    last: u64,
    ids: Named,
    tags: Named,
    ended: EndedConversations,
    /// The number of messages in all queues.
    pub(super) queued: usize,
    /// The number of late messages that were dropped.
    pub(super) ignored: u64,
    /// Late messages that are still in the accounts.
    pub(super) dropped: Vec<Entry>,
    /// Whether the agent goes on elsewhere, so that nothing more will come.
    pub(super) is_over: bool,
}

fn text<'m>(parameter: Option<ExpressionRef<'m>>) -> Option<std::borrow::Cow<'m, str>> {
    parameter?.text()
}

impl Table {
    // ---- which message belongs where -------------------------------------------------------------

    pub(super) fn place(&self, received: &ReceivedMessage) -> MailboxPlace {
        if self.slots.is_empty() && self.ended.is_empty() {
            return MailboxPlace::General;
        }
        let message = received.message();
        let (tag, id) = (text(message.in_reply_to()), text(message.conversation_id()));
        if tag.is_none() && id.is_none() {
            return MailboxPlace::General;
        }
        let sender = message.sender();
        let sender = match &sender {
            _ if received.provenance().is_of_platform() => None,
            Some(sender) => Some(sender.name()),
            None => Some(""),
        };
        if let Some(tag) = &tag {
            let mut owners = self.tags.find(tag, sender);
            // A message with the name of another open conversation belongs to that conversation.
            let found = owners.find(|owner| {
                let own = self.slots.get(owner).and_then(|slot| slot.id.as_deref());
                match &id {
                    Some(id) => own == Some(id) || self.ids.find(id, sender).next().is_none(),
                    None => true,
                }
            });
            if let Some(owner) = found {
                return MailboxPlace::Conversation(owner);
            }
        }
        if let Some(id) = &id {
            if let Some(owner) = self.ids.find(id, sender).next() {
                return MailboxPlace::Conversation(owner);
            }
            if self.ended.has(Name::Conversation, id, sender) && self.is_late(id, &message) {
                return MailboxPlace::Late;
            }
        }
        match &tag {
            Some(tag) if self.ended.has(Name::Tag, tag, sender) => MailboxPlace::Late,
            _ => MailboxPlace::General,
        }
    }

    /// Whether a message of an ended conversation is late. A peer may use a name again.
    fn is_late(&self, id: &str, message: &AclMessageRef<'_>) -> bool {
        self.ended.is_for_all(Name::Conversation, id)
            || message.in_reply_to().is_some()
            || message.performative() == Performative::Cancel
    }

    // ---- opening and ending ----------------------------------------------------------------------

    /// Opens a conversation. It gets all messages of the conversation-id, unless another open conversation has them.
    pub(super) fn open(&mut self, id: Option<&str>, peer: Option<&str>, is_guest: bool) -> u64 {
        self.last += 1;
        let owns_id = id.is_some_and(|id| !self.ids.is_taken(id, peer));
        let (id, peer) = (id.map(Arc::<str>::from), peer.map(Arc::<str>::from));
        if owns_id && let Some(id) = &id {
            self.ids.insert(id.clone(), peer.clone(), self.last);
            self.ended.remove(Name::Conversation, id, peer.as_deref());
        }
        let slot = Slot {
            queue: VecDeque::new(),
            id,
            owns_id,
            is_guest,
            peer,
            tags: VecDeque::new(),
            late: Late::default(),
            readers: Vec::new(),
            hook: None,
            hook_armed: false,
        };
        self.slots.insert(self.last, Box::new(slot));
        self.last
    }

    pub(super) fn is_taken(&self, id: &str, peer: Option<&str>) -> bool {
        self.ids.is_taken(id, peer)
    }

    /// The conversation has sent a message with this tag.
    pub(super) fn expect_reply_to(&mut self, number: u64, tag: &str) {
        let Some(slot) = self.slots.get_mut(&number) else {
            return;
        };
        if slot.tags.iter().any(|known| **known == *tag) {
            return;
        }
        if slot.tags.len() == TAGS
            && let Some(oldest) = slot.tags.pop_front()
        {
            self.tags.remove(&oldest, number);
        }
        let tag = Arc::<str>::from(tag);
        slot.tags.push_back(tag.clone());
        self.tags.insert(tag, slot.peer.clone(), number);
    }

    pub(super) fn set_late(&mut self, number: u64, late: Late) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.late = late;
        }
    }

    /// Ends a conversation. Returns the unread messages that go to the mailbox.
    pub(super) fn end(&mut self, number: u64) -> VecDeque<Entry> {
        let Some(slot) = self.slots.remove(&number) else {
            return VecDeque::new();
        };
        let peer = slot.peer.as_deref();
        self.queued -= slot.queue.len();
        let id = slot.id.filter(|_| slot.owns_id);
        if let Some(id) = &id {
            self.ids.remove(id, number);
        }
        for tag in &slot.tags {
            self.tags.remove(tag, number);
        }
        if slot.late == Late::Received {
            return slot.queue;
        }
        let is_late = |entry: &Entry| {
            let tag = text(entry.message.message().in_reply_to());
            !slot.is_guest || tag.is_some_and(|tag| slot.tags.iter().any(|it| **it == *tag))
        };
        let (late, left): (Vec<_>, _) = slot.queue.into_iter().partition(is_late);
        self.ignored += late.len() as u64;
        self.dropped.extend(late);
        if let Some(id) = id.filter(|_| !slot.is_guest) {
            self.ended.add(Name::Conversation, &id, peer);
        }
        for tag in &slot.tags {
            self.ended.add(Name::Tag, tag, peer);
        }
        left.into()
    }

    // ---- the queues ------------------------------------------------------------------------------

    pub(super) fn put(&mut self, number: u64, entry: Entry, wake: &mut Wake) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.queue.push_back(entry);
            self.queued += 1;
            wake.more.extend(slot.alarms(false));
        }
    }

    /// Drops a late message.
    pub(super) fn ignore(&mut self, entry: Entry) {
        self.ignored += 1;
        self.dropped.push(entry);
    }

    /// The first message of a conversation that `matches`. If there is none, the readers are told of the next message.
    pub(super) fn take(
        &mut self,
        number: u64,
        matches: &mut dyn FnMut(&ReceivedMessage) -> bool,
    ) -> Option<Entry> {
        let slot = self.slots.get_mut(&number)?;
        let found = slot.queue.iter().position(|entry| matches(&entry.message));
        let taken = found.and_then(|index| slot.queue.remove(index));
        match &taken {
            Some(_) => self.queued -= 1,
            None => slot.hook_armed = true,
        }
        taken
    }

    pub(super) fn wait(&mut self, number: u64, reader: &Waker) {
        if let Some(slot) = self.slots.get_mut(&number)
            && !slot.readers.iter().any(|other| other.will_wake(reader))
        {
            slot.readers.push(reader.clone());
        }
    }

    pub(super) fn set_hook(&mut self, number: u64, hook: Hook) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.hook = Some(hook);
            slot.hook_armed = slot.queue.is_empty();
        }
    }

    pub(super) fn len(&self, number: u64) -> usize {
        self.slots.get(&number).map_or(0, |slot| slot.queue.len())
    }

    /// The open conversations.
    pub(super) fn open_count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut VecDeque<Entry>> {
        self.slots.values_mut().map(|slot| &mut slot.queue)
    }

    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        self.queued = 0;
        self.queues().flat_map(mem::take).collect()
    }

    /// Counts the messages again after some have expired.
    pub(super) fn count(&mut self) {
        self.queued = self.slots.values().map(|slot| slot.queue.len()).sum();
    }

    /// Wakes every reader of the conversations, because nothing more comes or much has changed.
    pub(super) fn wake_all(&mut self, wake: &mut Wake) {
        let slots = self.slots.values_mut();
        wake.more.extend(slots.flat_map(|slot| slot.alarms(true)));
    }
}
