//! The tools of all agents, as the DF tells of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rmcp::model::Tool;
use sealbus::Aid;
use sealbus::acl::sl::Term;
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use serde_json::Value;

use crate::naming::{shown, tool_name};
use crate::schema::{Language, Shape, as_object};

/// Most tools that are told of. Further ones are left out.
const MOST_TOOLS: usize = 4_096;
/// Longest schema that is told, in bytes.
const LONGEST_SCHEMA: usize = 32 << 10;
/// Longest description of a tool, in bytes.
const LONGEST_DESCRIPTION: usize = 1_024;
/// The argument of a tool that takes no object.
pub(crate) const INPUT: &str = "input";
/// The member of a structured result that is no object.
pub(crate) const RESULT: &str = "result";

/// A tool of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) agent: Aid,
    /// The tool's name in the agent's words.
    pub(crate) service: String,
    pub(crate) takes: Shape,
    pub(crate) language: Language,
    /// The language of its results, or of their parts.
    pub(crate) says: Language,
    /// The shape of its result; none if a result has no declared form.
    pub(crate) gives: Option<Shape>,
    pub(crate) streams: bool,
    /// The tool in MCP's words.
    pub(crate) tool: Tool,
}

/// All tools, under their names for hosts.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    tools: BTreeMap<String, Arc<Offer>>,
    by_agent: HashMap<String, Vec<String>>,
}

impl Catalogue {
    /// Takes news of the DF: each entry is an agent's whole entry now; without services, it is gone.
    pub(crate) fn take(&mut self, entries: Vec<DfAgentDescription>, platform: &str) {
        for entry in entries {
            let Some(agent) = entry.name else { continue };
            for name in self.by_agent.remove(&agent.name).unwrap_or_default() {
                self.tools.remove(&name);
            }
            for service in &entry.services {
                self.add(&agent, service, platform);
            }
        }
    }

    fn add(&mut self, agent: &Aid, service: &ServiceDescription, platform: &str) {
        let Some((name, offer)) = offer(agent, service, platform) else {
            return;
        };
        if self.tools.len() >= MOST_TOOLS || self.tools.contains_key(&name) {
            tracing::warn!(agent = %agent.name, tool = %offer.service, "this tool is left out: there are too many, or it is offered twice");
            return;
        }
        let names = self.by_agent.entry(agent.name.clone()).or_default();
        names.push(name.clone());
        self.tools.insert(name, Arc::new(offer));
    }

    /// The tool of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Offer>> {
        self.tools.get(name).cloned()
    }

    /// The number of tools.
    pub(crate) fn len(&self) -> usize {
        self.tools.len()
    }

    /// The tools after this name, in the order of their names.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = (&String, &Arc<Offer>)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = name.map_or(Unbounded, Excluded);
        self.tools.range::<str, _>((from, Unbounded))
    }
}

/// The tool that a service is, if it says what it takes.
fn offer(agent: &Aid, service: &ServiceDescription, platform: &str) -> Option<(String, Offer)> {
    let property = |name: &str| {
        let property = service.properties.iter().find(|it| it.name == name)?;
        match &property.value {
            Some(Term::Text(text)) => Some(text.as_ref()),
            _ => None,
        }
    };
    let schema = |name: &str| -> Option<Value> {
        let text = property(name).filter(|text| text.len() <= LONGEST_SCHEMA)?;
        serde_json::from_str(text).ok()
    };
    let title = service.name.as_deref()?;
    // The only one of an agent's tools that has no ontology needs no name.
    let named = service.ontologies.first().map_or(title, String::as_str);
    let input = schema("input")?;
    let language = Language::of(&input);
    let (input, takes) = as_object(input, INPUT)?;
    let streams = property("streams") == Some("yes");
    let output = schema("output");
    let says = output.as_ref().map_or(Language::Json, Language::of);
    let output = output.and_then(|output| {
        let output = if streams { in_a_list(output) } else { output };
        as_object(output, RESULT)
    });
    let suffix = format!("@{platform}");
    let local = agent.name.strip_suffix(&suffix).unwrap_or(&agent.name);
    let name = tool_name(local, title);
    let about = shown(
        property("description").unwrap_or_default(),
        LONGEST_DESCRIPTION,
    );
    let agent_name = shown(&agent.name, LONGEST_DESCRIPTION);
    let description = if about.is_empty() {
        format!("A tool of the agent {agent_name}.")
    } else {
        format!("{about} (A tool of the agent {agent_name}.)")
    };
    let mut tool = Tool::new(name.clone(), description, Arc::new(input))
        .with_title(shown(title, LONGEST_DESCRIPTION));
    let gives = output.map(|(output, shape)| {
        tool.output_schema = Some(Arc::new(output));
        shape
    });
    let offer = Offer {
        agent: agent.clone(),
        service: named.to_owned(),
        takes,
        language,
        says,
        gives,
        streams,
        tool,
    };
    Some((name, offer))
}

/// The schema of a list of such values. Their definitions move to the top, where references look for them.
fn in_a_list(mut schema: Value) -> Value {
    let definitions = schema.as_object_mut().and_then(|it| it.remove("$defs"));
    let mut list = serde_json::json!({"type": "array", "items": schema});
    if let Some(definitions) = definitions {
        list["$defs"] = definitions;
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, input: &str) -> ServiceDescription {
        let text = |value: &str| Term::Text(value.to_owned().into());
        let mut service = ServiceDescription::new(name, name)
            .with_property("input", text(input))
            .with_property("output", text(r#"{"type":"integer"}"#))
            .with_property("description", text("Counts.\u{202e}"))
            .with_property("streams", text("no"));
        service.ontologies.push(name.to_owned());
        service
    }

    fn entry(agent: &str, services: Vec<ServiceDescription>) -> DfAgentDescription {
        let mut entry = DfAgentDescription::of(Aid::new(agent).unwrap());
        entry.services = services;
        entry
    }

    fn names(catalogue: &Catalogue) -> Vec<String> {
        catalogue
            .after(None)
            .map(|(name, _)| name.clone())
            .collect()
    }

    #[test]
    fn an_entry_replaces_the_one_before() {
        let mut catalogue = Catalogue::default();
        let object = r#"{"type":"object"}"#;
        let first = entry("a@home", vec![tool("count", object), tool("add", object)]);
        catalogue.take(vec![first], "home");
        assert_eq!(names(&catalogue), ["a__add", "a__count"]);
        catalogue.take(vec![entry("a@home", vec![tool("count", object)])], "home");
        assert_eq!(names(&catalogue), ["a__count"]);
        let offer = catalogue.get("a__count").unwrap();
        assert_eq!(
            offer.tool.description.as_deref(),
            Some("Counts. (A tool of the agent a@home.)")
        );
        let output = offer.tool.output_schema.as_ref().unwrap();
        assert_eq!(output["properties"]["result"]["type"], "integer");
        catalogue.take(vec![entry("a@home", Vec::new())], "home");
        assert!(names(&catalogue).is_empty());
    }

    #[test]
    fn services_without_a_readable_schema_are_no_tools() {
        let mut catalogue = Catalogue::default();
        let huge = format!(
            r#"{{"type":"object","description":"{}"}}"#,
            "x".repeat(LONGEST_SCHEMA)
        );
        let deep = format!("{}{}", r#"{"items":"#.repeat(10_000), "}".repeat(10_000));
        let services = vec![
            ServiceDescription::new("shop", "shop"),
            tool("broken", "{"),
            tool("huge", &huge),
            tool("deep", &deep),
        ];
        catalogue.take(vec![entry("a@home", services)], "home");
        assert!(names(&catalogue).is_empty());
    }

    #[test]
    fn there_is_an_end_to_tools() {
        let mut catalogue = Catalogue::default();
        for number in 0..MOST_TOOLS + 10 {
            let service = tool("t", r#"{"type":"object"}"#);
            catalogue.take(
                vec![entry(&format!("a{number}@home"), vec![service])],
                "home",
            );
        }
        assert_eq!(names(&catalogue).len(), MOST_TOOLS);
    }
}
