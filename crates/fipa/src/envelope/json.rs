//! The JSON representation of envelopes, defined by Sealbus. Its schema is [`SCHEMA`].

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Envelope, EnvelopeParameters, EnvelopeRepresentation, Received};
use crate::aid::longest_list;
use crate::forms::{AidForm, AidRead, ContentForm, ContentRead, DateTimeRead};
use crate::json::{guard, syntax_error};
use crate::{Aid, DecodeError, EncodeError, EncodeProblem, Limits};

/// The encoding's name; FIPA has none for it.
pub const NAME: &str = "sealbus.mts.env.rep.json";

/// The JSON Schema of an envelope.
pub const SCHEMA: &str = include_str!("../../schema/envelope.schema.json");

/// The encoding as an [`EnvelopeRepresentation`].
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl EnvelopeRepresentation for Json {
    fn name(&self) -> &'static str {
        NAME
    }

    fn short_name(&self) -> &'static str {
        "json"
    }

    fn encode(&self, envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(envelope, out)
    }

    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<(Envelope, usize), DecodeError> {
        decode(bytes, limits).map(|envelope| (envelope, bytes.len()))
    }
}

/// Appends the envelope to `out`, without blanks or line ends.
///
/// # Errors
/// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
pub fn encode(envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let revisions = envelope
        .revisions
        .iter()
        .enumerate()
        .map(|(index, revision)| {
            ParametersForm::new(revision)
                .map_err(|error| error.within(format_args!("revisions[{index}]")))
        });
    let form = EnvelopeForm {
        base: ParametersForm::new(&envelope.base).map_err(|error| error.within("base"))?,
        revisions: revisions.collect::<Result<_, _>>()?,
    };
    // A value whose keys are all texts can always be written.
    let text = serde_json::to_vec(&form)
        .map_err(|_| EncodeError::new("envelope", EncodeProblem::Empty))?;
    out.extend_from_slice(&text);
    Ok(())
}

/// Reads an envelope. Only white space may stand around it.
///
/// # Errors
/// [`DecodeError`] with the offset of the byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Envelope, DecodeError> {
    guard(bytes, limits)?;
    let read: EnvelopeRead<'_> =
        serde_json::from_slice(bytes).map_err(|error| syntax_error(bytes, &error))?;
    if read.revisions.len() > limits.depth {
        let limit = limits.depth;
        return Err(DecodeError::limit(0, "revisions", limit));
    }
    let revisions = read.revisions.iter().map(|revision| {
        let text = revision.get();
        let revision: ParametersRead = serde_json::from_str(text).map_err(|error| {
            let mut error = syntax_error(text.as_bytes(), &error);
            // The text is a part of `bytes`.
            error.offset += (text.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize);
            error
        })?;
        Ok(revision.into())
    });
    let envelope = Envelope {
        revisions: revisions.collect::<Result<_, _>>()?,
        base: read.base.into(),
    };
    let is_long = |part: &EnvelopeParameters| {
        let lists = [
            part.to.as_slice(),
            part.from.as_slice(),
            &part.intended_receivers,
        ];
        lists
            .into_iter()
            .any(|list| longest_list(list) > limits.agents)
    };
    if is_long(&envelope.base) || envelope.revisions.iter().any(is_long) {
        return Err(DecodeError::too_many_agents(0, limits));
    }
    Ok(envelope)
}

#[derive(Serialize)]
struct EnvelopeForm<'a> {
    base: ParametersForm<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revisions: Vec<ParametersForm<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ParametersForm<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    to: Vec<AidForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<AidForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acl_representation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_encoding: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    intended_receiver: Vec<AidForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<ReceivedForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport_behaviour: Option<ContentForm<'a>>,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    user_defined: Texts,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ReceivedForm<'a> {
    by: &'a str,
    date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'a str>,
    #[serde(skip_serializing_if = "Texts::is_empty")]
    user_defined: Texts,
}

impl<'a> ParametersForm<'a> {
    fn new(parameters: &'a EnvelopeParameters) -> Result<Self, EncodeError> {
        let received = parameters
            .received
            .as_ref()
            .map(ReceivedForm::new)
            .transpose();
        let from = parameters.from.as_ref().map(AidForm::new).transpose();
        Ok(Self {
            to: AidForm::list("to", &parameters.to)?,
            from: from.map_err(|error| error.within("from"))?,
            comments: parameters.comments.as_deref(),
            acl_representation: parameters.acl_representation.as_deref(),
            payload_length: parameters.payload_length,
            payload_encoding: parameters.payload_encoding.as_deref(),
            date: parameters.date.map(|date| date.to_string()),
            intended_receiver: AidForm::list("intended-receiver", &parameters.intended_receivers)?,
            received: received.map_err(|error| error.within("received"))?,
            transport_behaviour: parameters.transport_behaviour.as_ref().map(ContentForm),
            user_defined: Texts::new(&parameters.user_defined)?,
        })
    }
}

impl<'a> ReceivedForm<'a> {
    fn new(received: &'a Received) -> Result<Self, EncodeError> {
        Ok(Self {
            by: &received.by,
            date: received.date.to_string(),
            from: received.from.as_deref(),
            id: received.id.as_deref(),
            via: received.via.as_deref(),
            user_defined: Texts::new(&received.user_defined)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeRead<'a> {
    base: ParametersRead,
    /// The revisions are read only once it is known that there are not too many.
    #[serde(default, borrow)]
    revisions: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ParametersRead {
    #[serde(default)]
    to: Vec<AidRead>,
    from: Option<AidRead>,
    comments: Option<String>,
    acl_representation: Option<String>,
    payload_length: Option<u64>,
    payload_encoding: Option<String>,
    date: Option<DateTimeRead>,
    #[serde(default)]
    intended_receiver: Vec<AidRead>,
    received: Option<ReceivedRead>,
    transport_behaviour: Option<ContentRead>,
    #[serde(default)]
    user_defined: Texts,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ReceivedRead {
    by: String,
    date: DateTimeRead,
    from: Option<String>,
    id: Option<String>,
    via: Option<String>,
    #[serde(default)]
    user_defined: Texts,
}

impl From<ParametersRead> for EnvelopeParameters {
    fn from(read: ParametersRead) -> Self {
        let aids = |aids: Vec<AidRead>| aids.into_iter().map(Aid::from).collect();
        Self {
            to: aids(read.to),
            from: read.from.map(Aid::from),
            comments: read.comments,
            acl_representation: read.acl_representation,
            payload_length: read.payload_length,
            payload_encoding: read.payload_encoding,
            date: read.date.map(|date| date.0),
            intended_receivers: aids(read.intended_receiver),
            received: read.received.map(|received| Received {
                by: received.by,
                date: received.date.0,
                from: received.from,
                id: received.id,
                via: received.via,
                user_defined: received.user_defined.0,
            }),
            transport_behaviour: read.transport_behaviour.map(|value| value.0),
            user_defined: read.user_defined.0,
        }
    }
}

/// User-defined parameters. An array of objects would keep their order, but an object is easier to use. Names must
/// differ either way.
#[derive(Default)]
struct Texts(Vec<(String, String)>);

impl Texts {
    fn new(parameters: &[(String, String)]) -> Result<Self, EncodeError> {
        let mut names = BTreeSet::new();
        match parameters
            .iter()
            .find(|(name, _)| name.is_empty() || !names.insert(name))
        {
            None => Ok(Self(parameters.to_vec())),
            Some((name, _)) => {
                let encoding = crate::forms::ENCODING;
                let problem = EncodeProblem::NameTaken { encoding };
                Err(EncodeError::new(format!("name of {name:?}"), problem))
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Texts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::forms::Members::<String>::deserialize(deserializer).map(|members| Self(members.0))
    }
}
