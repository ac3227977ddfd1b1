//! Level `sealed` on channels: only the agents that subscribe to an event can read it.
//!
//! A sealed event travels as an ACL message, the *outer* one. Its content holds the whole event, encrypted under a
//! secret that MLS (RFC 9420) brings to a group: the agents that read this channel of this publisher. Changes of the
//! group travel in the same form, before the events that need them. The author signs the outer message, as at level
//! `signed`. It contains a commitment to the event, so that a receiver can later show what the author wrote.
//!
//! An [`EventSealer`] has the groups. This module defines the form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{ANY_LENGTH, BoxFuture, NotSealed, Opened, aid_of, set_level};
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_fipa::{AclMessage, Content, Performative};
use sealbus_seal::encryption::{Commitment, Salt};
use sealbus_seal::{SecurityLevel, Timestamp};

use crate::path::ChannelPath;

/// The performative of the outer message.
const SEALED: &str = "sealed";
/// The version of the form. Version 1 is that of messages to one receiver, and version 2 was that of events that MLS
/// encrypted whole.
const VERSION: u8 = 3;
/// The first bytes of the context of an event.
const CONTEXT: &[u8] = b"sealbus sealed event v1\0";

/// The length of a group's name in bytes.
pub const GROUP_NAME: usize = 16;
/// The name of a group.
pub type GroupName = [u8; GROUP_NAME];

/// An agent of another process that subscribes to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The agent's name.
    pub agent: Arc<str>,
    /// The session with its process. In another session, the agent may have lost its knowledge of groups.
    pub session: u64,
    /// The beginning of the certificate under which the agent announced its subscription.
    pub since: Option<Timestamp>,
}

/// An event that is to be sealed.
#[derive(Clone, Copy, Debug)]
pub struct EventToSeal<'a> {
    /// The agent that publishes it.
    pub publisher: &'a str,
    /// The channel.
    pub channel: &'a ChannelPath,
    /// The message, which names its sender.
    pub message: &'a AclMessage,
    /// All agents that may read it, whether or not their filters want it.
    pub readers: &'a [Reader],
    /// The readers whose keys must be known. For other readers without known keys, the event is not sealed.
    pub needs: Needs<'a>,
}

/// The readers whose keys must be known before an event is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// All of them. The publisher is told which are left out.
    All,
    /// The one that gets the event. If it cannot read the event, nothing is sealed.
    Reader(&'a str),
    /// None of them.
    None,
}

/// An event that was sealed.
#[derive(Clone, Debug)]
pub struct SealedEvent {
    /// The changes of the group that must arrive before the event, in order.
    pub changes: Vec<GroupChange>,
    /// The outer message.
    pub message: Arc<AclMessage>,
    /// The event itself, for agents of the publisher's process.
    pub inside: Opened,
    /// The readers that the event was not sealed to.
    pub left_out: Vec<LeftOut>,
}

/// A change of a group.
#[derive(Clone, Debug)]
pub struct GroupChange {
    /// The outer message.
    pub message: Arc<AclMessage>,
    /// The readers that need it.
    pub readers: BTreeSet<Arc<str>>,
}

/// A reader that an event was not sealed to.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// Its name.
    pub agent: Arc<str>,
    /// Why.
    pub reason: NotSealed,
    /// Whether the publisher has not been told yet.
    pub is_news: bool,
}

/// Why an event was not sealed.
#[derive(Clone, Debug)]
pub enum Unsealed {
    /// The keys of these readers must be [looked up](EventSealer::look_up) first.
    Unknown(Vec<Reader>),
    /// It cannot be sealed.
    Failed(NotSealed),
}

/// The part of a sealed event that failures show: its conversation, as the outer message of a sealed direct message does.
pub(crate) fn outline(message: &AclMessage) -> AclMessage {
    let mut outline = AclMessage::new(Performative::from(SEALED));
    outline.sender = message.sender.clone();
    outline.conversation_id = message.conversation_id.clone();
    outline.reply_with = message.reply_with.clone();
    outline
}

/// The result of opening a part for agents.
#[derive(Clone, Debug, Default)]
pub struct OpenedPart {
    /// The event; `None` if the part is a change, or if nobody could open it.
    pub event: Option<Opened>,
    /// The agents that could not open it, and why.
    pub failed: BTreeMap<Arc<str>, String>,
}

/// The service of a process that seals its agents' events, and opens the events for them.
pub trait EventSealer: Send + Sync {
    /// Whether events that ask for no level are sealed, too, because the platform's level is `sealed`.
    fn is_for_all(&self) -> bool;

    /// Whether this is an agent of the platform itself, whose events everybody can read.
    fn is_of_platform(&self, agent: &str) -> bool;

    /// Seals an event to the group of its readers. If other agents read the channel now, the group changes first. Send
    /// everything that is returned, in order: a change cannot be made a second time.
    ///
    /// # Errors
    /// [`Unsealed`]; then nothing has changed.
    fn seal(&self, event: &EventToSeal<'_>) -> Result<SealedEvent, Unsealed>;

    /// Looks up the keys of readers. Waits a little for an agent that the platform expects.
    fn look_up<'a>(&'a self, readers: &'a [Reader]) -> BoxFuture<'a, ()>;

    /// Opens an event for agents of this process, or takes a change of a group, which contains no event. Each agent
    /// opens the parts of a publisher and a channel in order.
    fn open(&self, part: &SealedPart<'_>, agents: &BTreeSet<Arc<str>>) -> OpenedPart;

    /// These readers could not open a part that was sealed to them. They join the group anew.
    fn not_opened(&self, publisher: &str, channel: &str, readers: &BTreeSet<Arc<str>>);
}

/// The content of an outer message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedPart<'a> {
    /// The agent that signed it.
    pub publisher: &'a str,
    /// The channel.
    pub channel: &'a str,
    /// The group.
    pub group: GroupName,
    /// Its kind.
    pub kind: PartKind,
    /// The bytes that MLS made.
    pub bytes: &'a [u8],
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// An event, to which its author committed.
    Event(Commitment),
    /// A change, for the members that stay.
    Commit,
    /// The invitation of new members.
    Welcome,
}

/// An event, encoded and ready to be sealed.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The bytes to seal: the salt and the message.
    pub bytes: Bytes,
    /// The commitment to the message.
    pub commitment: Commitment,
    /// The message itself.
    pub opened: Opened,
}

impl Inside {
    /// Encodes an event, with a new salt.
    ///
    /// # Errors
    /// If the message cannot be encoded.
    pub fn new(message: &AclMessage) -> Result<Self, NotSealed> {
        let salt = Salt::random()?;
        let mut bytes = salt.as_bytes().to_vec();
        bitefficient::encode(message, &mut bytes)?;
        let bytes = Bytes::from(bytes);
        let message = bytes.slice(Salt::LENGTH..);
        Ok(Self {
            commitment: Commitment::new(&salt, &message),
            opened: Opened {
                message: EncodedMessage::new(message, &ANY_LENGTH)
                    .map_err(|error| NotSealed(error.to_string()))?,
                salt,
                row: None,
            },
            bytes,
        })
    }
}

impl<'a> SealedPart<'a> {
    /// Reads the content of an outer message that `publisher` signed.
    ///
    /// # Errors
    /// If it has another form.
    pub fn parse(content: &'a [u8], publisher: &'a str, channel: &'a str) -> Result<Self, String> {
        let malformed = || "its content has not the form of a sealed event".to_owned();
        let ([version, kind], rest) = content.split_first_chunk().ok_or_else(malformed)?;
        if *version != VERSION {
            return Err(format!(
                "it has version {version}, and events have {VERSION}"
            ));
        }
        let (group, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (kind, bytes) = match kind {
            0 => {
                let (commitment, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
                (PartKind::Event(Commitment::from_bytes(*commitment)), rest)
            }
            1 => (PartKind::Commit, rest),
            2 => (PartKind::Welcome, rest),
            _ => return Err(malformed()),
        };
        Ok(Self {
            publisher,
            channel,
            group: *group,
            kind,
            bytes,
        })
    }

    /// The outer message.
    pub fn to_message(&self) -> AclMessage {
        let mut content =
            Vec::with_capacity(2 + GROUP_NAME + Commitment::LENGTH + self.bytes.len());
        content.push(VERSION);
        content.push(match self.kind {
            PartKind::Event(_) => 0,
            PartKind::Commit => 1,
            PartKind::Welcome => 2,
        });
        content.extend_from_slice(&self.group);
        if let PartKind::Event(commitment) = &self.kind {
            content.extend_from_slice(commitment.as_bytes());
        }
        content.extend_from_slice(self.bytes);
        let mut outer = AclMessage::new(Performative::from(SEALED));
        outer.sender = Some(aid_of(self.publisher));
        set_level(&mut outer, SecurityLevel::Sealed);
        outer.content = Some(Content::Bytes(content));
        outer
    }

    /// The context that the sealed bytes of an event are bound to: the channel, the publisher and the commitment.
    pub fn context(&self) -> [u8; 32] {
        let length = |text: &str| (text.len() as u64).to_be_bytes();
        let commitment = match &self.kind {
            PartKind::Event(commitment) => commitment.as_bytes().as_slice(),
            _ => &[],
        };
        sealbus_seal::sha256(&[
            CONTEXT,
            &length(self.channel),
            self.channel.as_bytes(),
            &length(self.publisher),
            self.publisher.as_bytes(),
            commitment,
        ])
    }

    /// The event, from its decrypted bytes.
    ///
    /// # Errors
    /// If they are not a message of the publisher, or the publisher committed to another one.
    pub fn opened(&self, inside: Vec<u8>) -> Result<Opened, String> {
        let malformed = || "what is sealed is no event".to_owned();
        let inside = Bytes::from(inside);
        let salt = inside.first_chunk().ok_or_else(malformed)?;
        let salt = Salt::from_bytes(*salt);
        let message = inside.slice(Salt::LENGTH..);
        if self.kind != PartKind::Event(Commitment::new(&salt, &message)) {
            return Err("its author committed to another message".to_owned());
        }
        let message = EncodedMessage::new(message, &ANY_LENGTH)
            .map_err(|error| format!("what is sealed is no ACL message: {error}"))?;
        let is_its = message
            .message()
            .sender()
            .is_some_and(|sender| sender.name() == self.publisher);
        match is_its && message.length() == message.bytes().len() {
            true => Ok(Opened {
                message,
                salt,
                row: None,
            }),
            false => Err("the message inside is another agent's".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest may allow longer messages than the default.
    #[test]
    fn a_long_event_is_sealed_and_opened() {
        let mut event = AclMessage::new(Performative::Inform).with_content("x".repeat(17 << 20));
        event.sender = Some(aid_of("alice@factory"));
        let inside = Inside::new(&event).unwrap();
        let part = SealedPart {
            publisher: "alice@factory",
            channel: "/news",
            group: [0; GROUP_NAME],
            kind: PartKind::Event(inside.commitment),
            bytes: &[],
        };
        let opened = part.opened(inside.bytes.to_vec()).unwrap();
        assert!(opened.message.bytes() == inside.opened.message.bytes());
    }
}
