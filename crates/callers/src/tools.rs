//! The tools of agents, from their entries in the DF.

use sealbus::Aid;
use sealbus::acl::sl::Term;
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use serde_json::Value;

use crate::schema::Language;
use crate::shown;
use crate::shown::shown_value;

/// Longest schema that callers get, in bytes.
pub const LONGEST_SCHEMA: usize = 32 << 10;
/// Longest description of a tool, in bytes.
pub const LONGEST_DESCRIPTION: usize = 1_024;

/// A tool of an agent.
#[derive(Clone, Debug)]
pub struct AgentTool {
    /// The agent.
    pub agent: Aid,
    /// The agent's name without the platform's.
    pub local: String,
    /// Its name.
    pub name: String,
    /// The service that a request for the tool names.
    pub service: String,
    /// The description that the tool's agent gives. Harmless to show.
    pub about: String,
    /// The JSON schema of its input.
    pub input: Value,
    /// The JSON schema of its result, or of its parts.
    pub output: Option<Value>,
    /// The language of its input.
    pub language: Language,
    /// The language of its results, or of their parts.
    pub says: Language,
    /// Whether it answers in parts.
    pub streams: bool,
}

/// The tools of an agent's entry: the services that describe their input.
pub fn tools<'a>(
    entry: &'a DfAgentDescription,
    platform: &'a str,
) -> impl Iterator<Item = AgentTool> + 'a {
    let agent = entry.name.iter();
    agent.flat_map(move |agent| {
        let services = entry.services.iter();
        services.filter_map(move |service| tool(agent, service, platform))
    })
}

/// A name of an agent without this platform's.
pub fn local_name<'a>(name: &'a str, platform: &str) -> &'a str {
    let local = name.strip_suffix(platform);
    local.and_then(|it| it.strip_suffix('@')).unwrap_or(name)
}

/// A text among the properties of a service.
pub fn property<'a>(service: &'a ServiceDescription, name: &str) -> Option<&'a str> {
    let property = service.properties.iter().find(|it| it.name == name)?;
    match &property.value {
        Some(Term::Text(text)) => Some(text.as_ref()),
        _ => None,
    }
}

fn tool(agent: &Aid, service: &ServiceDescription, platform: &str) -> Option<AgentTool> {
    let schema = |name: &str| -> Option<Value> {
        let text = property(service, name).filter(|text| text.len() <= LONGEST_SCHEMA)?;
        serde_json::from_str(text).ok().map(shown_value)
    };
    let name = service.name.as_deref()?;
    // If only one of an agent's tools has no ontology, that tool needs no name.
    let named = service.ontologies.first().map_or(name, String::as_str);
    let input = schema("input")?;
    let output = schema("output");
    let about = property(service, "description").unwrap_or_default();
    Some(AgentTool {
        agent: agent.clone(),
        local: local_name(&agent.name, platform).to_owned(),
        name: name.to_owned(),
        service: named.to_owned(),
        about: shown(about, LONGEST_DESCRIPTION),
        language: Language::of(&input),
        says: output.as_ref().map_or(Language::Json, Language::of),
        streams: property(service, "streams") == Some("yes"),
        input,
        output,
    })
}
