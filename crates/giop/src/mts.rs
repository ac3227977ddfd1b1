//! The interface `FIPA::MTS` (FIPA00075): its types as they travel. Texts are bytes in the character set of their
//! connection.

use crate::any::Any;
use crate::cdr::{Decoder, Encoder, MarshalError, MarshalProblem};

/// The repository id of the interface.
pub const TYPE_ID: &str = "IDL:FIPA/MTS:1.0";
/// The interface's one operation. It is oneway.
pub const MESSAGE: &str = "message";

/// The most envelopes of one message.
const MOST_ENVELOPES: usize = 16;
/// The most agents in one list.
pub const MOST_AGENTS: usize = 256;
/// The most addresses of one agent.
pub const MOST_ADDRESSES: usize = 64;
/// The most properties in one list.
const MOST_PROPERTIES: usize = 64;
/// How deep resolvers may be nested.
pub const DEEPEST: usize = 4;

/// The shortest encodings of the elements of sequences, in bytes.
const LEAST_STRING: usize = 4;
const LEAST_AGENT: usize = 16;
const LEAST_PROPERTY: usize = 8;
const LEAST_ENVELOPE: usize = 48;

/// A message with its envelopes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FipaMessage {
    /// The first platform's envelope, and the envelopes that other platforms on the way added. The values of later
    /// envelopes count.
    pub envelopes: Vec<Envelope>,
    /// The ACL message, encoded.
    pub body: Vec<u8>,
}

/// An envelope. An empty text means that the field is not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// All receivers.
    pub to: Vec<AgentId>,
    /// The sender.
    pub from: Option<AgentId>,
    /// Text for the final receiver.
    pub comments: Vec<u8>,
    /// The encoding of the ACL message.
    pub acl_representation: Vec<u8>,
    /// The length of the ACL message in bytes; 0 or less if it is not given.
    pub payload_length: i32,
    /// The character set of the ACL message.
    pub payload_encoding: Vec<u8>,
    /// When the envelope was made.
    pub date: Option<DateTime>,
    /// A parameter that FIPA00067 dropped.
    pub encrypted: Vec<Vec<u8>>,
    /// The receivers of this copy.
    pub intended_receivers: Vec<AgentId>,
    /// The stamp of a platform that handled the message.
    pub received: Option<ReceivedObject>,
    /// Reserved.
    pub transport_behaviour: Option<Vec<Property>>,
    /// Further parameters.
    pub user_defined: Vec<Property>,
}

/// An agent's identifier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentId {
    /// The agent's name.
    pub name: Vec<u8>,
    /// Its addresses.
    pub addresses: Vec<Vec<u8>>,
    /// Agents that know its addresses.
    pub resolvers: Vec<AgentId>,
    /// Further parameters.
    pub user_defined: Vec<Property>,
}

/// A time, as its sender wrote it. JADE counts months from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DateTime {
    /// The year, month, day, hour, minute, second and millisecond.
    pub fields: [i16; 7],
    /// `Z` for universal time; local time otherwise.
    pub designator: u8,
}

/// The stamp of a platform that handled a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedObject {
    /// The platform's address.
    pub by: Vec<u8>,
    /// The address from which the message came there.
    pub from: Vec<u8>,
    /// When it came there.
    pub date: DateTime,
    /// The message's number there.
    pub id: Vec<u8>,
    /// The transport by which it came.
    pub via: Vec<u8>,
}

/// A further parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// Its name.
    pub keyword: Vec<u8>,
    /// Its value.
    pub value: Any,
}

fn text(decoder: &mut Decoder<'_>) -> Result<Vec<u8>, MarshalError> {
    decoder.string().map(<[u8]>::to_vec)
}

fn at_most_one<T>(
    decoder: &mut Decoder<'_>,
    what: &'static str,
    read: impl FnMut(&mut Decoder<'_>) -> Result<T, MarshalError>,
) -> Result<Option<T>, MarshalError> {
    let found = decoder.sequence(what, 1, 1, read)?;
    Ok(found.into_iter().next())
}

fn write_option<T>(encoder: &mut Encoder, value: Option<&T>, write: impl FnOnce(&mut Encoder, &T)) {
    encoder.length(value.is_some().into());
    if let Some(value) = value {
        write(encoder, value);
    }
}

fn texts(encoder: &mut Encoder, all: &[Vec<u8>]) {
    encoder.sequence(all, |encoder, it| encoder.string(it));
}

impl FipaMessage {
    /// Reads the argument of the operation `message`.
    ///
    /// # Errors
    /// [`MarshalError`].
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        let envelope = Envelope::decode;
        Ok(Self {
            envelopes: decoder.sequence("envelopes", MOST_ENVELOPES, LEAST_ENVELOPE, envelope)?,
            body: decoder.octets()?.to_vec(),
        })
    }

    /// Writes the argument of the operation `message`.
    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.sequence(&self.envelopes, |encoder, it| it.encode(encoder));
        encoder.octets(&self.body);
    }
}

impl Envelope {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        Ok(Self {
            to: AgentId::decode_all(decoder, 0)?,
            from: at_most_one(decoder, "senders", |it| AgentId::decode(it, 0))?,
            comments: text(decoder)?,
            acl_representation: text(decoder)?,
            payload_length: decoder.long()?,
            payload_encoding: text(decoder)?,
            date: at_most_one(decoder, "dates", DateTime::decode)?,
            encrypted: decoder.sequence("strings", MOST_PROPERTIES, LEAST_STRING, text)?,
            intended_receivers: AgentId::decode_all(decoder, 0)?,
            received: at_most_one(decoder, "stamps", ReceivedObject::decode)?,
            transport_behaviour: at_most_one(decoder, "behaviours", Property::decode_all)?,
            user_defined: Property::decode_all(decoder)?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        AgentId::encode_all(&self.to, encoder);
        write_option(encoder, self.from.as_ref(), |encoder, it| {
            it.encode(encoder)
        });
        encoder.string(&self.comments);
        encoder.string(&self.acl_representation);
        encoder.long(self.payload_length);
        encoder.string(&self.payload_encoding);
        write_option(encoder, self.date.as_ref(), |encoder, it| {
            it.encode(encoder)
        });
        texts(encoder, &self.encrypted);
        AgentId::encode_all(&self.intended_receivers, encoder);
        write_option(encoder, self.received.as_ref(), |encoder, it| {
            it.encode(encoder);
        });
        write_option(encoder, self.transport_behaviour.as_ref(), |encoder, it| {
            Property::encode_all(it, encoder);
        });
        Property::encode_all(&self.user_defined, encoder);
    }
}

impl AgentId {
    fn decode_all(decoder: &mut Decoder<'_>, depth: usize) -> Result<Vec<Self>, MarshalError> {
        decoder.sequence("agents", MOST_AGENTS, LEAST_AGENT, |decoder| {
            Self::decode(decoder, depth)
        })
    }

    fn decode(decoder: &mut Decoder<'_>, depth: usize) -> Result<Self, MarshalError> {
        if depth > DEEPEST {
            let (what, most) = ("resolvers within resolvers", DEEPEST);
            let count = depth;
            return Err(decoder.error(MarshalProblem::TooMany { what, count, most }));
        }
        Ok(Self {
            name: text(decoder)?,
            addresses: decoder.sequence("addresses", MOST_ADDRESSES, LEAST_STRING, text)?,
            resolvers: Self::decode_all(decoder, depth + 1)?,
            user_defined: Property::decode_all(decoder)?,
        })
    }

    fn encode_all(all: &[Self], encoder: &mut Encoder) {
        encoder.sequence(all, |encoder, it| it.encode(encoder));
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.string(&self.name);
        texts(encoder, &self.addresses);
        Self::encode_all(&self.resolvers, encoder);
        Property::encode_all(&self.user_defined, encoder);
    }
}

impl DateTime {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        let mut fields = [0; 7];
        for field in &mut fields {
            *field = decoder.short()?;
        }
        Ok(Self {
            fields,
            designator: decoder.octet()?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        for field in self.fields {
            encoder.short(field);
        }
        encoder.octet(self.designator);
    }
}

impl ReceivedObject {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, MarshalError> {
        Ok(Self {
            by: text(decoder)?,
            from: text(decoder)?,
            date: DateTime::decode(decoder)?,
            id: text(decoder)?,
            via: text(decoder)?,
        })
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.string(&self.by);
        encoder.string(&self.from);
        self.date.encode(encoder);
        encoder.string(&self.id);
        encoder.string(&self.via);
    }
}

impl Property {
    fn decode_all(decoder: &mut Decoder<'_>) -> Result<Vec<Self>, MarshalError> {
        decoder.sequence("properties", MOST_PROPERTIES, LEAST_PROPERTY, |decoder| {
            Ok(Self {
                keyword: text(decoder)?,
                value: Any::decode(decoder)?,
            })
        })
    }

    fn encode_all(all: &[Self], encoder: &mut Encoder) {
        encoder.sequence(all, |encoder, it| {
            encoder.string(&it.keyword);
            it.value.encode(encoder);
        });
    }
}
