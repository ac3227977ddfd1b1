//! Envelopes (FIPA00067). The message transport reads the envelope, and not the payload inside it.
//!
//! An envelope is a base and the revisions that message transport services on the way have added. No revision changes
//! an earlier one. [`Envelope::current`] gives the values that count: the newest value of each parameter.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
pub mod bitefficient;
#[cfg(feature = "json")]
pub mod json;
#[cfg(feature = "xml")]
pub mod xml;

use crate::{Aid, Content, DateTime, DecodeError, EncodeError, Limits};

/// An envelope: the base and its revisions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Envelope {
    /// The text that the sender's platform wrote.
    pub base: EnvelopeParameters,
    /// The stamps that platforms on the way added, the oldest first.
    pub revisions: Vec<EnvelopeParameters>,
}

/// The parameters of an envelope, or of a revision of it (FIPA00067). A revision has a `received` stamp and only the
/// parameters that it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvelopeParameters {
    /// All receivers of the message.
    pub to: Vec<Aid>,
    /// The sender, which is told of errors.
    pub from: Option<Aid>,
    /// Text for the final receiver.
    pub comments: Option<String>,
    /// The encoding of the payload, such as `fipa.acl.rep.string.std`.
    pub acl_representation: Option<String>,
    /// Length of the payload in bytes.
    pub payload_length: Option<u64>,
    /// The character set of the payload; US-ASCII if absent.
    pub payload_encoding: Option<String>,
    /// When the envelope was made.
    pub date: Option<DateTime>,
    /// The receivers of this copy of the message. If there are none, the receivers in `to` apply.
    pub intended_receivers: Vec<Aid>,
    /// The stamp of a platform that handled the message.
    pub received: Option<Received>,
    /// Reserved by the standard.
    pub transport_behaviour: Option<Content>,
    /// Further parameters, named `X-…`.
    pub user_defined: Vec<(String, String)>,
}

/// The stamp of a message transport service on a message that it handles (FIPA00067).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The URL of the service that received the message.
    pub by: String,
    /// When the service received the message.
    pub date: DateTime,
    /// The URL it came from.
    pub from: Option<String>,
    /// An identifier that is unique at the service that gave it.
    pub id: Option<String>,
    /// The transport protocol it came by.
    pub via: Option<String>,
    /// Further parameters, named `X-…`.
    pub user_defined: Vec<(String, String)>,
}

impl Envelope {
    /// An envelope with the four mandatory parameters.
    pub fn new(
        to: Vec<Aid>,
        from: Aid,
        acl_representation: impl Into<String>,
        date: DateTime,
    ) -> Self {
        Self {
            base: EnvelopeParameters {
                to,
                from: Some(from),
                acl_representation: Some(acl_representation.into()),
                date: Some(date),
                ..EnvelopeParameters::default()
            },
            revisions: Vec::new(),
        }
    }

    /// The values that count: the newest value of each parameter.
    pub fn current(&self) -> EnvelopeParameters {
        self.clone().into_current()
    }

    /// As [`current`](Self::current), for an envelope that is no longer needed.
    pub fn into_current(self) -> EnvelopeParameters {
        let mut current = self.base;
        for revision in &self.revisions {
            current.supersede(revision);
        }
        let user_defined = self.revisions.into_iter().map(|it| it.user_defined);
        current.supersede_user_defined(user_defined.flatten());
        current
    }

    /// The newest value of one parameter.
    pub fn newest<T>(
        &self,
        parameter: impl FnMut(&EnvelopeParameters) -> Option<&T>,
    ) -> Option<&T> {
        let all = core::iter::once(&self.base).chain(&self.revisions);
        all.rev().find_map(parameter)
    }

    /// The receivers of this copy of the message: the intended receivers, or else all of `to`.
    pub fn receivers(&self) -> Vec<Aid> {
        let current = self.current();
        if current.intended_receivers.is_empty() {
            current.to
        } else {
            current.intended_receivers
        }
    }

    /// All stamps, the oldest first. A service that finds its own stamp here has detected a loop.
    pub fn stamps(&self) -> impl Iterator<Item = &Received> {
        let all = core::iter::once(&self.base).chain(&self.revisions);
        all.filter_map(|parameters| parameters.received.as_ref())
    }
}

impl EnvelopeParameters {
    fn supersede(&mut self, newer: &Self) {
        fn value<T: Clone>(slot: &mut Option<T>, newer: &Option<T>) {
            if newer.is_some() {
                slot.clone_from(newer);
            }
        }
        fn list<T: Clone>(slot: &mut Vec<T>, newer: &Vec<T>) {
            if !newer.is_empty() {
                slot.clone_from(newer);
            }
        }
        list(&mut self.to, &newer.to);
        value(&mut self.from, &newer.from);
        value(&mut self.comments, &newer.comments);
        value(&mut self.acl_representation, &newer.acl_representation);
        value(&mut self.payload_length, &newer.payload_length);
        value(&mut self.payload_encoding, &newer.payload_encoding);
        value(&mut self.date, &newer.date);
        list(&mut self.intended_receivers, &newer.intended_receivers);
        value(&mut self.received, &newer.received);
        value(&mut self.transport_behaviour, &newer.transport_behaviour);
    }

    /// A stranger's envelope may have tens of thousands of parameters, so this never searches through all of them for
    /// one.
    fn supersede_user_defined(&mut self, newer: impl Iterator<Item = (String, String)>) {
        let mut newer = newer.peekable();
        if newer.peek().is_none() {
            return;
        }
        let mut places = BTreeMap::new();
        for (place, (name, _)) in self.user_defined.iter().enumerate() {
            places.entry(name.clone()).or_insert(place);
        }
        for (name, value) in newer {
            match places.get(&name) {
                Some(place) => self.user_defined[*place].1 = value,
                None => {
                    places.insert(name.clone(), self.user_defined.len());
                    self.user_defined.push((name, value));
                }
            }
        }
    }
}

/// An encoding of envelopes.
pub trait EnvelopeRepresentation: Sync {
    /// The FIPA name, such as `fipa.mts.env.rep.xml.std`.
    fn name(&self) -> &'static str;

    /// A word for command lines and configuration files, such as `xml`.
    fn short_name(&self) -> &'static str;

    /// Appends the envelope to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] names the field that cannot be carried. `out` is then unchanged.
    fn encode(&self, envelope: &Envelope, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads an envelope and returns its end: a payload may follow a bit-efficient envelope.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset and the expected input there.
    fn decode(&self, bytes: &[u8], limits: &Limits) -> Result<(Envelope, usize), DecodeError>;
}

/// Every encoding of envelopes in Sealbus. A new encoding is a module and a line here.
static REPRESENTATIONS: &[&dyn EnvelopeRepresentation] = &[
    #[cfg(feature = "xml")]
    &xml::Xml,
    &bitefficient::BitEfficient,
    #[cfg(feature = "json")]
    &json::Json,
];

/// Every encoding of envelopes.
pub fn representations() -> &'static [&'static dyn EnvelopeRepresentation] {
    REPRESENTATIONS
}

/// The encoding with this name, FIPA's or the short one, in any letter case.
pub fn representation(name: &str) -> Option<&'static dyn EnvelopeRepresentation> {
    let mut all = REPRESENTATIONS.iter();
    let found = all.find(|known| {
        known.name().eq_ignore_ascii_case(name) || known.short_name().eq_ignore_ascii_case(name)
    });
    found.copied()
}
