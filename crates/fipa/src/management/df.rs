use super::Exception;
use super::frame::{Frame, Slots, date_time, integer, string};
use crate::sl::Term;
use crate::{Aid, DateTime};
use alloc::string::String;
use alloc::vec::Vec;

/// An entry of the DF, or the template of a search for entries.
///
/// Empty lists and `None` mean that a slot is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DfAgentDescription {
    /// The agent. Mandatory in an entry, optional in a template.
    pub name: Option<Aid>,
    /// The services that the agent offers.
    pub services: Vec<ServiceDescription>,
    /// The interaction protocols that the agent follows, such as `fipa-request`.
    pub protocols: Vec<String>,
    /// Ontologies it knows.
    pub ontologies: Vec<String>,
    /// Content languages it speaks.
    pub languages: Vec<String>,
    /// The moment until which the entry stands, or its duration. Without it the DF's limit applies.
    pub lease_time: Option<DateTime>,
    /// The scope in which the entry may be shown: `global`, `local`.
    pub scope: Vec<String>,
}

/// Something that an agent offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceDescription {
    /// The service's name. Mandatory in an entry.
    pub name: Option<String>,
    /// The service's type. Mandatory in an entry; `fipa-df` and `fipa-ams` are reserved.
    pub service_type: Option<String>,
    /// Interaction protocols of the service.
    pub protocols: Vec<String>,
    /// Ontologies of the service.
    pub ontologies: Vec<String>,
    /// Content languages of the service.
    pub languages: Vec<String>,
    /// The owner of the service.
    pub ownership: Option<String>,
    /// Further properties that tell services of one type apart.
    pub properties: Vec<Property>,
}

/// A named value that belongs to a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// The property's name.
    pub name: String,
    /// The property's value, any term.
    pub value: Option<Term<'static>>,
}

/// The depth and the size of a search in a DF or AMS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchConstraints {
    /// How many DFs deep the search may go on. Absent or 0: only this DF.
    pub max_depth: Option<i64>,
    /// How many entries to return. Absent: one. Negative: as many as the DF is ready to give.
    pub max_results: Option<i64>,
    /// Marks one search throughout all DFs, so that no DF runs it twice.
    pub search_id: Option<String>,
}

impl DfAgentDescription {
    pub(super) const OBJECT: &'static str = "df-agent-description";
    const SLOTS: [&'static str; 7] = [
        "name",
        "services",
        "protocols",
        "ontologies",
        "languages",
        "lease-time",
        "scope",
    ];

    /// The entry of an agent, without services yet.
    pub fn of(name: Aid) -> Self {
        Self {
            name: Some(name),
            ..Self::default()
        }
    }

    /// Adds a service.
    #[must_use]
    pub fn with_service(mut self, service: ServiceDescription) -> Self {
        self.services.push(service);
        self
    }

    /// The description as a term.
    pub fn to_term(&self) -> Term<'_> {
        let [
            name,
            services,
            protocols,
            ontologies,
            languages,
            lease_time,
            scope,
        ] = Self::SLOTS;
        Slots::default()
            .with_aid(name, self.name.as_ref())
            .with_set(services, &self.services, ServiceDescription::to_term)
            .with_strings(protocols, &self.protocols)
            .with_strings(ontologies, &self.ontologies)
            .with_strings(languages, &self.languages)
            .with(lease_time, self.lease_time.map(Term::DateTime))
            .with_strings(scope, &self.scope)
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
            services: frame.members(1, ServiceDescription::from_term)?,
            protocols: frame.members(2, string)?,
            ontologies: frame.members(3, string)?,
            languages: frame.members(4, string)?,
            lease_time: frame.optional(5, date_time)?,
            scope: frame.members(6, string)?,
        })
    }

    /// Checks that no slot is missing that an entry, unlike a template, must have. Returns the agent's name.
    pub fn check_entry(&self) -> Result<&Aid, Exception> {
        let name = self
            .name
            .as_ref()
            .ok_or_else(|| Exception::missing(Self::OBJECT, Self::SLOTS[0]))?;
        self.services
            .iter()
            .try_for_each(ServiceDescription::check_entry)?;
        Ok(name)
    }
}

impl ServiceDescription {
    const OBJECT: &'static str = "service-description";
    const SLOTS: [&'static str; 7] = [
        "name",
        "type",
        "protocols",
        "ontologies",
        "languages",
        "ownership",
        "properties",
    ];

    /// A service with a name and a type.
    pub fn new(name: impl Into<String>, service_type: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..Self::of_type(service_type)
        }
    }

    /// A template for services of a type.
    pub fn of_type(service_type: impl Into<String>) -> Self {
        Self {
            service_type: Some(service_type.into()),
            ..Self::default()
        }
    }

    /// Adds a property.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<String>, value: Term<'static>) -> Self {
        self.properties.push(Property {
            name: name.into(),
            value: Some(value),
        });
        self
    }

    /// The description as a term.
    pub fn to_term(&self) -> Term<'_> {
        let [
            name,
            service_type,
            protocols,
            ontologies,
            languages,
            ownership,
            properties,
        ] = Self::SLOTS;
        Slots::default()
            .with_string(name, self.name.as_deref())
            .with_string(service_type, self.service_type.as_deref())
            .with_strings(protocols, &self.protocols)
            .with_strings(ontologies, &self.ontologies)
            .with_strings(languages, &self.languages)
            .with_string(ownership, self.ownership.as_deref())
            .with_set(properties, &self.properties, Property::to_term)
            .into_frame(Self::OBJECT)
    }

    /// Reads a description.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let frame = Frame::read(term, Self::OBJECT, Self::SLOTS)?;
        Ok(Self {
            name: frame.optional(0, string)?,
            service_type: frame.optional(1, string)?,
            protocols: frame.members(2, string)?,
            ontologies: frame.members(3, string)?,
            languages: frame.members(4, string)?,
            ownership: frame.optional(5, string)?,
            properties: frame.members(6, Property::from_term)?,
        })
    }

    fn check_entry(&self) -> Result<(), Exception> {
        if self.name.is_none() {
            return Err(Exception::missing(Self::OBJECT, Self::SLOTS[0]));
        }
        if self.service_type.is_none() {
            return Err(Exception::missing(Self::OBJECT, Self::SLOTS[1]));
        }
        Ok(())
    }
}

impl Property {
    const OBJECT: &'static str = "property";
    const SLOTS: [&'static str; 2] = ["name", "value"];

    /// The property as a term.
    pub fn to_term(&self) -> Term<'_> {
        Slots::default()
            .with_string(Self::SLOTS[0], Some(&self.name))
            .with(Self::SLOTS[1], self.value.clone())
            .into_frame(Self::OBJECT)
    }

    /// Reads a property.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let frame = Frame::read(term, Self::OBJECT, Self::SLOTS)?;
        Ok(Self {
            name: frame.mandatory(0, string)?,
            value: frame.optional(1, |value| Ok(value.clone().into_owned()))?,
        })
    }
}

impl SearchConstraints {
    pub(super) const OBJECT: &'static str = "search-constraints";
    const SLOTS: [&'static str; 3] = ["max-depth", "max-results", "search-id"];

    /// Constraints for all entries that match, as many as the DF gives at once.
    pub fn all() -> Self {
        Self {
            max_results: Some(-1),
            ..Self::default()
        }
    }

    /// At most this many entries.
    pub fn at_most(results: u32) -> Self {
        Self {
            max_results: Some(i64::from(results)),
            ..Self::default()
        }
    }

    /// The constraints as a term.
    pub fn to_term(&self) -> Term<'_> {
        let [max_depth, max_results, search_id] = Self::SLOTS;
        Slots::default()
            .with(max_depth, self.max_depth.map(Term::Integer))
            .with(max_results, self.max_results.map(Term::Integer))
            .with_string(search_id, self.search_id.as_deref())
            .into_frame(Self::OBJECT)
    }

    /// Reads constraints.
    ///
    /// # Errors
    /// The exception to answer.
    pub fn from_term(term: &Term<'_>) -> Result<Self, Exception> {
        let frame = Frame::read(term, Self::OBJECT, Self::SLOTS)?;
        Ok(Self {
            max_depth: frame.optional(0, integer)?,
            max_results: frame.optional(1, integer)?,
            search_id: frame.optional(2, string)?,
        })
    }

    /// The number of entries to return when the answer may hold up to `most`.
    pub fn results(&self, most: usize) -> usize {
        match self.max_results {
            None => most.min(1),
            Some(wanted) => usize::try_from(wanted).map_or(most, |wanted| wanted.min(most)),
        }
    }
}
