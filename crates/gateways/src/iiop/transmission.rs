//! The envelope in the IDL types of FIPA00075.

use std::time::SystemTime;

use sealbus_fipa::envelope::{Envelope, EnvelopeParameters, Received};
use sealbus_fipa::{
    AclMessage, Aid, DateTime, EncodeError, Expression, Limits, Origin, Representation,
};
use sealbus_giop::cdr::{ByteOrder, Encoder};
use sealbus_giop::mts::{self, AgentId, FipaMessage, Property, ReceivedObject};
use sealbus_giop::{CodeSet, TextError};
use thiserror::Error;

use crate::transmission::{Encoding, PayloadError, Transmission, describe_payload, read_payload};

/// The usual length of an envelope, in bytes.
const ENVELOPE: usize = 2 << 10;
/// The longest text of an envelope, in bytes.
const LONGEST_TEXT: usize = 64 << 10;

/// Why a message cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransmissionError {
    /// A text of the envelope.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A text of the envelope is too long.
    #[error("the envelope holds a text of {0} bytes, and the limit is {LONGEST_TEXT}")]
    TooLong(usize),
    /// The message behind the envelope.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

/// Why a message cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The encoding of the ACL message cannot carry it.
    #[error(transparent)]
    Encoding(#[from] EncodeError),
    /// The other side's character set cannot carry the envelope.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Reads the argument of the operation `message`.
///
/// # Errors
/// [`TransmissionError`].
pub fn read(
    message: &FipaMessage,
    code_set: CodeSet,
    limits: &Limits,
) -> Result<Transmission, TransmissionError> {
    let texts = Texts(code_set);
    let mut parameters = message.envelopes.iter().map(|it| texts.envelope(it));
    let base = parameters.next().transpose()?.unwrap_or_default();
    let envelope = Envelope {
        base,
        revisions: parameters.collect::<Result<_, _>>()?,
    };
    let (message, representation) = read_payload(&envelope, &message.body, limits)?;
    Ok(Transmission {
        envelope,
        envelope_representation: Encoding::default().envelope,
        message,
        representation,
    })
}

/// Writes the argument of the operation `message`, big-endian. It begins at a multiple of 4.
///
/// # Errors
/// [`WriteError`].
pub fn write(
    mut envelope: Envelope,
    message: &AclMessage,
    representation: &dyn Representation,
    code_set: CodeSet,
) -> Result<Vec<u8>, WriteError> {
    let mut body = Vec::new();
    describe_payload(&mut envelope, message, representation, &mut body)?;
    let written = written(&envelope.base, code_set)?;
    let mut out = Encoder::with_capacity(ByteOrder::Big, body.len() + ENVELOPE);
    let envelopes = vec![written];
    FipaMessage { envelopes, body }.encode(&mut out);
    Ok(out.into_bytes())
}

/// Reads texts in the character set of their connection.
struct Texts(CodeSet);

impl Texts {
    fn text(&self, bytes: &[u8]) -> Result<String, TransmissionError> {
        if bytes.len() > LONGEST_TEXT {
            return Err(TransmissionError::TooLong(bytes.len()));
        }
        Ok(self.0.decode(bytes)?)
    }

    /// Empty texts are not given.
    fn given(&self, bytes: &[u8]) -> Result<Option<String>, TransmissionError> {
        let text = self.text(bytes)?;
        Ok(Some(text).filter(|it| !it.is_empty()))
    }

    fn envelope(&self, it: &mts::Envelope) -> Result<EnvelopeParameters, TransmissionError> {
        Ok(EnvelopeParameters {
            to: self.agents(&it.to)?,
            from: it.from.as_ref().map(|it| self.agent(it)).transpose()?,
            comments: self.given(&it.comments)?,
            acl_representation: self.given(&it.acl_representation)?,
            payload_length: u64::try_from(it.payload_length).ok().filter(|it| *it > 0),
            payload_encoding: self.given(&it.payload_encoding)?,
            date: it.date.as_ref().and_then(date),
            intended_receivers: self.agents(&it.intended_receivers)?,
            received: match &it.received {
                Some(stamp) => self.stamp(stamp)?,
                None => None,
            },
            transport_behaviour: None,
            user_defined: self.properties(&it.user_defined)?,
        })
    }

    fn agents(&self, all: &[AgentId]) -> Result<Vec<Aid>, TransmissionError> {
        all.iter().map(|it| self.agent(it)).collect()
    }

    fn agent(&self, it: &AgentId) -> Result<Aid, TransmissionError> {
        let addresses = it.addresses.iter().map(|it| self.text(it));
        let user_defined = self.properties(&it.user_defined)?.into_iter();
        Ok(Aid {
            name: self.text(&it.name)?,
            addresses: addresses.collect::<Result<_, _>>()?,
            resolvers: self.agents(&it.resolvers)?,
            user_defined: user_defined
                .map(|(name, value)| (name, Expression::String(value)))
                .collect(),
        })
    }

    /// Properties whose value is no text are left out.
    fn properties(&self, all: &[Property]) -> Result<Vec<(String, String)>, TransmissionError> {
        let mut texts = Vec::new();
        for it in all {
            let value = it.value.to_text(|bytes| self.0.decode(bytes).ok());
            if let Some(value) = value {
                texts.push((self.text(&it.keyword)?, value));
            }
        }
        Ok(texts)
    }

    fn stamp(&self, it: &ReceivedObject) -> Result<Option<Received>, TransmissionError> {
        let unknown = || DateTime::from_system_time(SystemTime::UNIX_EPOCH).ok();
        let Some(date) = date(&it.date).or_else(unknown) else {
            return Ok(None);
        };
        Ok(Some(Received {
            by: self.text(&it.by)?,
            date,
            from: self.given(&it.from)?,
            id: self.given(&it.id)?,
            via: self.given(&it.via)?,
            user_defined: Vec::new(),
        }))
    }
}

/// A date in universal time. JADE writes local time, and months from 0: a reader cannot know the meaning.
fn date(it: &mts::DateTime) -> Option<DateTime> {
    if it.designator != b'Z' {
        return None;
    }
    let mut digits = [0; 17];
    let mut rest = digits.as_mut_slice();
    for (field, width) in it.fields.into_iter().zip([4, 2, 2, 2, 2, 2, 3]) {
        let (own, others) = rest.split_at_mut(width);
        let mut number = u16::try_from(field).ok()?;
        for digit in own.iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).ok()?;
            number /= 10;
        }
        if number > 0 {
            return None;
        }
        rest = others;
    }
    DateTime::from_digits(Origin::Calendar, &digits, Some(b'Z')).ok()
}

fn written_date(date: &DateTime) -> mts::DateTime {
    let digits = date.digits();
    let number = |at: usize, length: usize| {
        let all = digits[at..at + length].iter();
        all.fold(0, |number, digit| number * 10 + i16::from(digit - b'0'))
    };
    mts::DateTime {
        fields: [
            number(0, 4),
            number(4, 2),
            number(6, 2),
            number(8, 2),
            number(10, 2),
            number(12, 2),
            number(14, 3),
        ],
        designator: b'Z',
    }
}

fn written(it: &EnvelopeParameters, code_set: CodeSet) -> Result<mts::Envelope, TextError> {
    let text = |text: &str| code_set.encode(text);
    let given = |it: &Option<String>| text(it.as_deref().unwrap_or_default());
    let agent = |it: &Aid| {
        Ok(AgentId {
            name: text(&it.name)?,
            addresses: it
                .addresses
                .iter()
                .map(|it| text(it))
                .collect::<Result<_, _>>()?,
            ..AgentId::default()
        })
    };
    let agents = |all: &[Aid]| all.iter().map(agent).collect::<Result<Vec<_>, TextError>>();
    let stamp = |it: &Received| {
        Ok(ReceivedObject {
            by: text(&it.by)?,
            from: given(&it.from)?,
            date: written_date(&it.date),
            id: given(&it.id)?,
            via: given(&it.via)?,
        })
    };
    Ok(mts::Envelope {
        to: agents(&it.to)?,
        from: it.from.as_ref().map(agent).transpose()?,
        comments: given(&it.comments)?,
        acl_representation: given(&it.acl_representation)?,
        payload_length: it
            .payload_length
            .and_then(|it| i32::try_from(it).ok())
            .unwrap_or(-1),
        payload_encoding: given(&it.payload_encoding)?,
        date: it.date.as_ref().map(written_date),
        encrypted: Vec::new(),
        intended_receivers: agents(&it.intended_receivers)?,
        received: it.received.as_ref().map(stamp).transpose()?,
        transport_behaviour: None,
        // An `any` that its reader does not know makes JADE drop the whole message.
        user_defined: Vec::new(),
    })
}
