//! The sender's side: rows of messages under one secret.
//!
//! The first message of a row contains the secret. Once a carrier that keeps the order has taken it, later messages
//! only name the row ([`Destination::session`](crate::Destination::session)). A message that comes back gets the secret
//! again before it goes another way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sealbus_fipa::{AclMessage, bitefficient};
use sealbus_seal::encryption::{
    Commitment, Encapsulation, EncryptionError, EncryptionKeyId, EncryptionPublicKey, Salts,
    Sealing,
};

use super::NotSealed;
use super::form::{
    OUTER, RowForm, RowId, SALTS, SealedEnvelope, associate, context, short_in, with_secret,
};
use crate::session::SessionNumber;

/// The most messages under one secret, and how long a secret is used.
pub const LONGEST_ROW: (u64, Duration) = (1 << 20, Duration::from_secs(600));
/// Room for the parameters of a message.
const ROOM: usize = 512;
/// The most rows whose messages may come back, and how long after a row's beginning they may.
const MOST: usize = 16_384;
const COMES_BACK: Duration = Duration::from_secs(3600);

/// A secret that a sender shares with a receiver, for a row of messages.
pub struct SealedRow {
    head: Arc<RowHead>,
    sealing: Sealing,
    salts: Salts,
    begun: Instant,
}

/// The secret of a row, for its receiver.
#[derive(Debug)]
struct RowHead {
    id: RowId,
    key: EncryptionKeyId,
    encapsulation: Encapsulation,
    /// The session over which the row's secret went last; 0 if none.
    session: AtomicU64,
}

/// A message that was sealed, in the bit-efficient encoding.
#[derive(Clone, Debug)]
pub struct SealedMessage {
    bytes: Bytes,
    row: Arc<RowHead>,
    is_short: bool,
}

impl SealedRow {
    /// Makes a secret that only the owner of `key` shares.
    ///
    /// # Errors
    /// If nothing can be encrypted to the key.
    pub fn begin(
        key: &EncryptionPublicKey,
        sender: &str,
        receiver: &str,
        now: Instant,
    ) -> Result<Self, EncryptionError> {
        let (encapsulation, sealing) = Sealing::begin(key, &context(sender, receiver))?;
        Ok(Self {
            salts: Salts::new(sealing.export(SALTS)),
            head: Arc::new(RowHead {
                id: RowId::of(encapsulation.as_bytes()),
                key: key.id(),
                encapsulation,
                session: AtomicU64::new(0),
            }),
            sealing,
            begun: now,
        })
    }

    /// Whether the secret seals no more messages.
    pub fn is_over(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.begun);
        self.sealing.number() >= LONGEST_ROW.0 || age > LONGEST_ROW.1
    }

    /// Seals the next message of the row. The message must name its sender.
    ///
    /// # Errors
    /// [`NotSealed`] if the message cannot be sealed.
    pub fn seal(&mut self, message: &AclMessage) -> Result<SealedMessage, NotSealed> {
        let number = self.sealing.number();
        let number = u32::try_from(number).map_err(|_| EncryptionError::Exhausted)?;
        let room = message.content_bytes().map_or(0, <[u8]>::len) + ROOM;
        let (mut outer, mut inside) = (Vec::with_capacity(room), Vec::with_capacity(room));
        outer.extend_from_slice(OUTER);
        bitefficient::encode_parts(message, &mut outer, &mut inside)?;
        let before = outer.len();
        let pieces = bitefficient::join_parts(&outer[OUTER.len()..], &inside);
        let pieces = pieces.ok_or_else(|| NotSealed("it has no act".to_owned()))?;
        let commitment = Commitment::to_pieces(&self.salts.of(number.into()), &pieces);
        associate(self.head.id, number, &commitment, &mut outer);
        self.sealing.seal(&outer, &mut inside)?;
        outer.truncate(before);
        let is_short = self.head.session.load(Ordering::Relaxed) != 0;
        let envelope = SealedEnvelope {
            row: match is_short {
                true => RowForm::Short(self.head.id),
                false => self.head.form(),
            },
            number,
            commitment,
            sealed: &inside,
        };
        envelope.end_message(&mut outer)?;
        Ok(SealedMessage {
            bytes: outer.into(),
            row: self.head.clone(),
            is_short,
        })
    }
}

impl RowHead {
    fn form(&self) -> RowForm<'_> {
        RowForm::Whole {
            key: self.key,
            encapsulation: self.encapsulation.as_bytes(),
        }
    }

    fn with_secret(&self, payload: &[u8]) -> Result<Bytes, NotSealed> {
        with_secret(payload, self.key, self.encapsulation.as_bytes())
    }
}

impl SealedMessage {
    /// The message as it was sealed: without the row's secret if a carrier may have taken that already.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The message with the row's secret. It can be opened wherever the receiver's key is.
    ///
    /// # Errors
    /// [`NotSealed`] if it is too long.
    pub fn whole(&self) -> Result<Bytes, NotSealed> {
        match self.is_short {
            true => self.row.with_secret(&self.bytes),
            false => Ok(self.bytes.clone()),
        }
    }

    /// Whether the message lacks the row's secret, and needs none in this session because the secret went the same way
    /// before.
    pub(crate) fn is_short_for(&self, session: Option<SessionNumber>) -> bool {
        let known = self.row.session.load(Ordering::Relaxed);
        self.is_short && session.is_some_and(|session| session.get() == known)
    }

    /// Notes that the row's secret went over this session. Later messages over the same session only name the row.
    /// Without a session nothing keeps the order, so the next message contains the secret, too.
    pub fn went_over(&self, session: impl Into<Option<SessionNumber>>) {
        let session = session.into().map_or(0, SessionNumber::get);
        self.row.session.store(session, Ordering::Relaxed);
    }
}

/// The rows of a process whose messages may come back.
#[derive(Default)]
pub struct SentRows(HashMap<RowId, (Arc<RowHead>, Instant)>);

impl SentRows {
    /// Notes a new row.
    pub fn note(&mut self, row: &SealedRow) {
        if self.0.len() >= MOST {
            // Rows that are no longer used go first, then the older half.
            self.0.retain(|_, (head, _)| Arc::strong_count(head) > 1);
        }
        if self.0.len() >= MOST {
            let mut begun: Vec<Instant> = self.0.values().map(|(_, begun)| *begun).collect();
            let (_, middle, _) = begun.select_nth_unstable(MOST / 2);
            let middle = *middle;
            self.0.retain(|_, (_, begun)| *begun > middle);
        }
        self.0.insert(row.head.id, (row.head.clone(), row.begun));
    }

    /// A message that came back, with its row's secret if it was sealed.
    ///
    /// # Errors
    /// [`NotSealed`] if the secret is forgotten.
    pub fn whole(&self, payload: Bytes) -> Result<Bytes, NotSealed> {
        match short_in(&payload) {
            None => Ok(payload),
            Some(id) => match self.0.get(&id) {
                Some((head, _)) => head.with_secret(&payload),
                None => Err(NotSealed(
                    "it came back so late that its secret is forgotten: send it again".to_owned(),
                )),
            },
        }
    }

    /// Forgets the rows that are over.
    pub fn forget(&mut self, now: Instant) {
        let is_recent = |begun: Instant| now.saturating_duration_since(begun) < COMES_BACK;
        self.0.retain(|_, (_, begun)| is_recent(*begun));
    }
}
