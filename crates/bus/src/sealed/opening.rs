//! The receiver's side: the secrets of rows, and the messages that they open.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sealbus_fipa::AclMessageRef;
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_seal::encryption::{
    Commitment, Encapsulation, EncryptionError, EncryptionKey, EncryptionKeyId, Opening, Salts,
    SharedSecret,
};

use super::form::{Outer, RowForm, RowId, SALTS, context};
use super::sending::LONGEST_ROW;
use super::{NotOpened, Opened};
use crate::limits::ANY_LENGTH;

/// How long a row is known: ten minutes longer than its sender uses it, because messages wait for slow receivers.
const KNOWN: Duration = Duration::from_secs(LONGEST_ROW.1.as_secs() + 600);
/// The most rows of one sender, and of all senders. A forgotten row becomes known again by a message that contains its
/// secret.
const MOST_OF_ONE: usize = 4096;
const MOST: usize = 32_768;
/// The longest name of a sender.
const NAME: usize = u16::MAX as usize;

/// The secret of a row of messages from one agent to another.
pub struct OpenedRow {
    id: RowId,
    key: EncryptionKeyId,
    sender: String,
    receiver: String,
    opening: Opening,
    salts: Salts,
}

impl OpenedRow {
    fn new(
        (id, key): (RowId, EncryptionKeyId),
        sender: &str,
        receiver: &str,
        opening: Opening,
    ) -> Self {
        Self {
            id,
            key,
            sender: sender.to_owned(),
            receiver: receiver.to_owned(),
            salts: Salts::new(opening.export(SALTS)),
            opening,
        }
    }

    fn open(&self, outer: &Outer<'_>) -> Result<Opened, String> {
        let envelope = &outer.envelope;
        let room = bitefficient::room_before_rest(outer.leading);
        let mut bytes = Vec::with_capacity(room + envelope.sealed.len());
        bytes.resize(room, 0);
        bytes.extend_from_slice(envelope.sealed);
        let number = u64::from(envelope.number);
        let associated = outer.associated(self.id);
        let opened = self
            .opening
            .open_at(number, &associated, &mut bytes[room..])
            .map_err(|error| error.to_string())?;
        let length = room + opened.len();
        bytes.truncate(length);
        let no_message = || "what is sealed is no ACL message".to_owned();
        let bytes = bitefficient::join_in_place(outer.leading, bytes).map_err(|_| no_message())?;
        let message = EncodedMessage::new(Bytes::from(bytes), &ANY_LENGTH)
            .map_err(|error| format!("{}: {error}", no_message()))?;
        let salt = self.salts.of(number);
        if message.length() != length
            || envelope.commitment != Commitment::new(&salt, message.bytes())
        {
            return Err("its author committed to another message".to_owned());
        }
        Ok(Opened {
            message,
            salt,
            row: None,
        })
    }

    /// Appends the row's bytes, for the process that its receiver moves to. They are as secret as the row's messages.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // Names are far shorter.
        let length = u16::try_from(self.sender.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.opening.secret().as_slice());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.sender.as_bytes()[..self.sender.len().min(NAME)]);
    }

    /// Reads a row that [`encode`](Self::encode) wrote for `receiver`. Also returns the bytes behind it.
    pub fn decode<'a>(bytes: &'a [u8], receiver: &str) -> Option<(Self, &'a [u8])> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (secret, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (sender, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        let sender = std::str::from_utf8(sender).ok()?;
        let opening = Opening::with_secret(SharedSecret::new(*secret), &context(sender, receiver));
        let names = (RowId::from_bytes(*id), EncryptionKeyId::from_bytes(*key));
        Some((Self::new(names, sender, receiver, opening.ok()?), rest))
    }

    /// The row's name among those of its sender.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The agent that seals the row's messages.
    pub fn sender(&self) -> &str {
        &self.sender
    }
}

impl fmt::Debug for OpenedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedRow")
            .field("id", &self.id)
            .field("sender", &self.sender)
            .field("receiver", &self.receiver)
            .finish_non_exhaustive()
    }
}

struct KnownRow {
    row: Arc<OpenedRow>,
    since: Instant,
    /// When the row was used last, counted in messages.
    used: u64,
}

/// The rows whose messages the agents of a process can open. A sender's rows take no room from those of other senders:
/// if there are too many, rows of the sender that has most are forgotten.
#[derive(Default)]
pub struct OpenedRows {
    senders: HashMap<String, HashMap<RowId, KnownRow>>,
    count: usize,
    messages: u64,
}

impl OpenedRows {
    /// Opens a message to `receiver`. `key` finds the receiver's key if the row is not known.
    ///
    /// # Errors
    /// [`NotOpened::UnknownRow`] if the message names a row that is not known; [`NotOpened::Refused`] if it does not open.
    pub fn open(
        &mut self,
        message: &AclMessageRef<'_>,
        receiver: &str,
        now: Instant,
        key: impl FnOnce(EncryptionKeyId) -> Result<Arc<EncryptionKey>, String>,
    ) -> Result<Opened, NotOpened> {
        let outer = Outer::read(message)?;
        let sender = message.sender();
        let sender = sender
            .ok_or_else(|| "it names no sender".to_owned())?
            .name();
        let id = outer.envelope.row.id();
        self.messages += 1;
        let known = self.senders.get_mut(sender);
        let known = known.and_then(|rows| rows.get_mut(&id));
        match (outer.envelope.row, known) {
            (RowForm::Short(_), None) => Err(NotOpened::UnknownRow),
            // The known row is for another receiver. The message may open with its own secret.
            (RowForm::Short(_), Some(known)) if known.row.receiver != receiver => {
                Err(NotOpened::UnknownRow)
            }
            (RowForm::Short(_), Some(known)) => {
                known.used = self.messages;
                let mut opened = known.row.open(&outer)?;
                opened.row = Some(known.row.clone());
                Ok(opened)
            }
            (RowForm::Whole { key, .. }, Some(known))
                if known.row.receiver == receiver && known.row.key == key =>
            {
                known.used = self.messages;
                Ok(known.row.open(&outer)?)
            }
            (
                RowForm::Whole {
                    key: name,
                    encapsulation,
                },
                _,
            ) => {
                let key = key(name)?;
                let begun = Encapsulation::from_bytes(encapsulation)
                    .and_then(|it| Opening::begin(&key, &it, &context(sender, receiver)));
                let opening = begun.map_err(|error: EncryptionError| error.to_string())?;
                let row = OpenedRow::new((id, name), sender, receiver, opening);
                let opened = row.open(&outer)?;
                self.keep(row, now);
                Ok(opened)
            }
        }
    }

    /// Keeps a row, such as one from the receiver's former process.
    pub fn keep(&mut self, row: OpenedRow, now: Instant) {
        self.messages += 1;
        if self.count >= MOST {
            let most = self.senders.values_mut().max_by_key(|rows| rows.len());
            self.count -= most.map_or(0, forget_half);
        }
        let rows = self.senders.entry(row.sender.clone()).or_default();
        if rows.len() >= MOST_OF_ONE {
            self.count -= forget_half(rows);
        }
        let known = KnownRow {
            since: now,
            used: self.messages,
            row: Arc::new(row),
        };
        if rows.insert(known.row.id, known).is_none() {
            self.count += 1;
        }
    }

    /// Forgets the rows that are over.
    pub fn forget(&mut self, now: Instant) {
        self.senders.retain(|_, rows| {
            rows.retain(|_, known| now.saturating_duration_since(known.since) < KNOWN);
            !rows.is_empty()
        });
        self.count = self.senders.values().map(HashMap::len).sum();
    }

    /// The number of known rows.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Forgets the half that was not used for longest. Returns their number.
fn forget_half(rows: &mut HashMap<RowId, KnownRow>) -> usize {
    let before = rows.len();
    let mut used: Vec<u64> = rows.values().map(|known| known.used).collect();
    if used.is_empty() {
        return 0;
    }
    let (_, middle, _) = used.select_nth_unstable(before / 2);
    let middle = *middle;
    rows.retain(|_, known| known.used > middle);
    before - rows.len()
}
