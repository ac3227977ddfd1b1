//! The tools of all agents, from the DF's news.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rmcp::model::Tool;
use sealbus::directory::DfAgentDescription;
use sealbus_callers::LogShares;
use sealbus_callers::schema::{Shape, as_object};
use sealbus_callers::shown;
use sealbus_callers::tools::{self, LONGEST_DESCRIPTION};
use serde_json::Value;

use crate::naming::tool_name;

/// Most tools in the catalogue. Further tools are left out.
const MOST_TOOLS: usize = 4_096;
/// The argument of a tool that takes no object.
pub(crate) const INPUT: &str = "input";
/// The member of a structured result that is no object.
pub(crate) const RESULT: &str = "result";

/// A tool of an agent, for hosts.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) tool: tools::AgentTool,
    pub(crate) takes: Shape,
    /// The shape of its result; none if a result has no declared form.
    pub(crate) gives: Option<Shape>,
    /// The tool in MCP's words.
    pub(crate) shown: Tool,
}

/// All tools, under their names for hosts.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    tools: BTreeMap<String, Arc<Offer>>,
    by_agent: HashMap<String, Vec<String>>,
    /// The shares of the log for tools that are left out, by agents.
    log: LogShares,
}

impl Catalogue {
    /// Takes news of the DF: each entry is an agent's whole entry now; without services, it is gone.
    pub(crate) fn take(&mut self, entries: Vec<DfAgentDescription>, platform: &str) {
        for entry in entries {
            let Some(agent) = &entry.name else { continue };
            for name in self.by_agent.remove(&agent.name).unwrap_or_default() {
                self.tools.remove(&name);
            }
            for tool in tools::tools(&entry, platform) {
                self.add(tool);
            }
        }
    }

    fn add(&mut self, tool: tools::AgentTool) {
        let (agent, service) = (tool.agent.name.clone(), tool.service.clone());
        let Some((name, offer)) = offer(tool) else {
            return;
        };
        if self.tools.len() >= MOST_TOOLS || self.tools.contains_key(&name) {
            if let Some(left_out) = self.log.admit(agent.clone()) {
                tracing::warn!(%agent, tool = %service, left_out, "this tool is left out: there are too many, or it is offered twice");
            }
            return;
        }
        let names = self.by_agent.entry(agent).or_default();
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

/// The tool and its name for hosts, if its schema describes its input.
fn offer(tool: tools::AgentTool) -> Option<(String, Offer)> {
    let (input, takes) = as_object(tool.input.clone(), INPUT)?;
    let output = tool.output.clone().and_then(|output| {
        let output = if tool.streams {
            in_a_list(output)
        } else {
            output
        };
        as_object(output, RESULT)
    });
    let name = tool_name(&tool.local, &tool.name);
    let agent = shown(&tool.agent.name, LONGEST_DESCRIPTION);
    let about = if tool.about.is_empty() {
        format!("A tool of the agent {agent}.")
    } else {
        format!("{} (A tool of the agent {agent}.)", tool.about)
    };
    let title = shown(&tool.name, LONGEST_DESCRIPTION);
    let mut to_hosts = Tool::new(name.clone(), about, Arc::new(input)).with_title(title);
    let gives = output.map(|(output, shape)| {
        to_hosts.output_schema = Some(Arc::new(output));
        shape
    });
    let offer = Offer {
        tool,
        takes,
        gives,
        shown: to_hosts,
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
    use sealbus::Aid;
    use sealbus::acl::sl::Term;
    use sealbus::directory::ServiceDescription;
    use sealbus_callers::tools::LONGEST_SCHEMA;

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
            offer.shown.description.as_deref(),
            Some("Counts. (A tool of the agent a@home.)")
        );
        let output = offer.shown.output_schema.as_ref().unwrap();
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
    fn nothing_is_hidden_in_a_schema() {
        let mut catalogue = Catalogue::default();
        let input =
            r#"{"type":"object","properties":{"n\u200b":{"description":"Seen.\udb40\udc41"}}}"#;
        catalogue.take(vec![entry("a@home", vec![tool("count", input)])], "home");
        let offer = catalogue.get("a__count").unwrap();
        let properties = &offer.shown.input_schema["properties"];
        assert_eq!(properties["n"]["description"], "Seen.");
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
        // An agent that offers another one again and again has a share of the log.
        let again = || {
            let service = tool("t", r#"{"type":"object"}"#);
            vec![entry("mallory@home", vec![service])]
        };
        for _ in 0..10 {
            catalogue.take(again(), "home");
        }
        assert_eq!(catalogue.log.admit("mallory@home".to_owned()), None);
        assert!(catalogue.log.admit("a1@home".to_owned()).is_some());
    }
}
