use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::Exception;
use super::frame::{Frame, Slots, string};
use crate::Aid;
use crate::sl::Term;

/// An entry of the AMS, or the template of a search for entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AmsAgentDescription {
    /// The agent. Mandatory in an entry, optional in a template.
    pub name: Option<Aid>,
    /// The owner of the agent.
    pub ownership: Option<String>,
    /// The state of the agent in its life cycle.
    pub state: Option<AgentState>,
}

/// The state of an agent in its life cycle (FIPA00023).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AgentState {
    /// Made, but not yet running.
    Initiated,
    /// Running: messages are delivered.
    Active,
    /// Stopped by itself or the AMS: messages are kept.
    Suspended,
    /// The agent waits by its own wish. Messages are kept.
    Waiting,
    /// The agent is on its way to another place. Messages are kept, or follow it.
    Transit,
    /// JADE's state for an agent that is put away in a store. It is not in the standard.
    Latent,
}

impl AgentState {
    const ALL: [Self; 6] = [
        Self::Initiated,
        Self::Active,
        Self::Suspended,
        Self::Waiting,
        Self::Transit,
        Self::Latent,
    ];

    /// The word of the ontology.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initiated => "initiated",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Waiting => "waiting",
            Self::Transit => "transit",
            Self::Latent => "latent",
        }
    }

    /// The state of this name, in any letter case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str().eq_ignore_ascii_case(name))
    }

    fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let name = string(term)?;
        Self::from_name(&name).ok_or(Exception::UnexpectedArgument(name))
    }
}

impl fmt::Display for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AmsAgentDescription {
    pub(super) const OBJECT: &'static str = "ams-agent-description";
    const SLOTS: [&'static str; 3] = ["name", "ownership", "state"];

    /// The entry of an agent.
    pub fn of(name: Aid) -> Self {
        Self {
            name: Some(name),
            ..Self::default()
        }
    }

    /// The description as a term.
    pub fn to_term(&self) -> Term<'_> {
        let [name, ownership, state] = Self::SLOTS;
        Slots::default()
            .with_aid(name, self.name.as_ref())
            .with_string(ownership, self.ownership.as_deref())
            .with_string(state, self.state.map(AgentState::as_str))
            .into_frame(Self::OBJECT)
    }

    /// Reads a description.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let frame = Frame::read(term, Self::OBJECT, Self::SLOTS)?;
        Ok(Self {
            name: frame.optional(0, Aid::from_term)?,
            ownership: frame.optional(1, string)?,
            state: frame.optional(2, AgentState::from_term)?,
        })
    }

    /// Checks that every slot is there that an entry must have; a template may lack it. Returns the agent's name.
    pub fn check_entry(&self) -> Result<&Aid, Exception> {
        self.name
            .as_ref()
            .ok_or_else(|| Exception::missing(Self::OBJECT, Self::SLOTS[0]))
    }
}

/// The platform's description of itself, in answer to `get-description`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApDescription {
    /// The platform's name.
    pub name: String,
    /// The services that the platform offers, above all its message transports.
    pub services: Vec<ApService>,
}

/// A service of a platform.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApService {
    /// The service's name.
    pub name: String,
    /// The service's type, such as `fipa.mts.mtp.http.std`.
    pub service_type: String,
    /// The service's addresses, as URLs.
    pub addresses: Vec<String>,
}

impl ApDescription {
    pub(super) const OBJECT: &'static str = "ap-description";
    const SLOTS: [&'static str; 2] = ["name", "ap-services"];
    /// Slots of the FIPA 2000 description, which this one replaced. They are ignored.
    const FORMER_SLOTS: [&'static str; 3] = ["dynamic", "mobility", "transport-profile"];

    /// The description as a term.
    pub fn to_term(&self) -> Term<'_> {
        Slots::default()
            .with_string(Self::SLOTS[0], Some(&self.name))
            .with_set(Self::SLOTS[1], &self.services, ApService::to_term)
            .into_frame(Self::OBJECT)
    }

    /// Reads a description. A second pair of quotes inside the name, as JADE writes it, is removed.
    ///
    /// # Errors
    /// The exception to answer with.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let [name, services] = Self::SLOTS;
        let [dynamic, mobility, transport_profile] = Self::FORMER_SLOTS;
        let slots = [name, services, dynamic, mobility, transport_profile];
        let frame = Frame::read(term, Self::OBJECT, slots)?;
        let name = frame.mandatory(0, string)?;
        let unquoted = name
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'));
        Ok(Self {
            name: unquoted.unwrap_or(&name).to_owned(),
            services: frame.members(1, ApService::from_term)?,
        })
    }
}

impl ApService {
    const OBJECT: &'static str = "ap-service";
    const SLOTS: [&'static str; 3] = ["name", "type", "addresses"];

    /// The service as a term.
    pub fn to_term(&self) -> Term<'_> {
        let [name, service_type, addresses] = Self::SLOTS;
        let sequence = Term::Sequence(self.addresses.iter().map(Term::text).collect());
        Slots::default()
            .with_string(name, Some(&self.name))
            .with_string(service_type, Some(&self.service_type))
            .with(addresses, Some(sequence))
            .into_frame(Self::OBJECT)
    }

    /// Reads a service.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let frame = Frame::read(term, Self::OBJECT, Self::SLOTS)?;
        Ok(Self {
            name: frame.mandatory(0, string)?,
            service_type: frame.mandatory(1, string)?,
            addresses: frame.members(2, string)?,
        })
    }
}
