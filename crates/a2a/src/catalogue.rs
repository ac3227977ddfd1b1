//! The agents that callers may ask, from the DF's news.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealbus::Aid;
use sealbus::directory::{DfAgentDescription, ServiceDescription};
use sealbus_callers::schema::Language;
use sealbus_callers::shown;
use sealbus_callers::tools::{LONGEST_DESCRIPTION, local_name, tools};
use serde_json::Value;

/// Most agents in the catalogue, and most skills of one agent.
const MOST_AGENTS: usize = 4_096;
const MOST_SKILLS: usize = 64;
/// Longest name of a skill, in bytes.
const LONGEST_NAME: usize = 256;
/// The protocol of a service that answers requests.
pub(crate) const PROTOCOL: &str = "fipa-request";

/// The input of a skill.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Takes {
    /// A tool: a body of this language and schema.
    Tool(Language, Value),
    /// A service without a schema: any body.
    Anything,
}

/// A skill of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Skill {
    /// Its name; harmless to show.
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) kind: String,
    /// The ontology that a request for the skill names, if any.
    pub(crate) ontology: Option<String>,
    pub(crate) takes: Takes,
    /// The language of its answers.
    pub(crate) says: Language,
}

/// An agent with a card.
#[derive(Clone, Debug)]
pub(crate) struct Exposed {
    pub(crate) aid: Aid,
    /// Its name without the platform's.
    pub(crate) local: String,
    pub(crate) platform: String,
    pub(crate) skills: Vec<Skill>,
}

/// All agents that offer something, by their local names.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    agents: BTreeMap<String, Arc<Exposed>>,
    /// The agents that were there when the news ended.
    before: BTreeSet<String>,
}

impl Catalogue {
    /// Takes news of the DF: each entry is an agent's whole entry now; without services, it is gone. Returns the agents that have
    /// come, or come back.
    pub(crate) fn take(
        &mut self,
        entries: Vec<DfAgentDescription>,
        platform: &str,
    ) -> Vec<Arc<Exposed>> {
        let mut before = std::mem::take(&mut self.before);
        let mut come = Vec::new();
        for entry in &entries {
            let Some(aid) = &entry.name else { continue };
            let local = local_name(&aid.name, platform);
            let was_there = self.agents.remove(local).is_some() || before.remove(local);
            // Agents of other platforms are left to the gateways of those platforms.
            if local.len() == aid.name.len() || self.agents.len() >= MOST_AGENTS {
                continue;
            }
            let skills = skills(entry, platform);
            if !skills.is_empty() {
                let exposed = Exposed {
                    aid: aid.clone(),
                    local: local.to_owned(),
                    platform: platform.to_owned(),
                    skills,
                };
                let exposed = Arc::new(exposed);
                self.agents.insert(local.to_owned(), exposed.clone());
                if !was_there {
                    come.push(exposed);
                }
            }
        }
        come
    }

    /// Nothing is known any more until the next news, which name all agents.
    pub(crate) fn forget(&mut self) {
        self.before
            .extend(std::mem::take(&mut self.agents).into_keys());
    }

    /// An agent that is away, and offers nothing.
    pub(crate) fn away(local: &str, platform: &str) -> Option<Arc<Exposed>> {
        let exposed = Exposed {
            aid: Aid::new(format!("{local}@{platform}")).ok()?,
            local: local.to_owned(),
            platform: platform.to_owned(),
            skills: Vec::new(),
        };
        Some(Arc::new(exposed))
    }

    /// The number of agents.
    pub(crate) fn len(&self) -> usize {
        self.agents.len()
    }

    /// The agent of which this is so, if it is so of one alone.
    pub(crate) fn only(&self, is_so: impl Fn(&Exposed) -> bool) -> Option<Arc<Exposed>> {
        let mut found = self.agents.values().filter(|agent| is_so(agent));
        let one = found.next()?;
        found.next().is_none().then(|| one.clone())
    }

    pub(crate) fn get(&self, local: &str) -> Option<Arc<Exposed>> {
        self.agents.get(local).cloned()
    }
}

fn skills(entry: &DfAgentDescription, platform: &str) -> Vec<Skill> {
    let mut skills: Vec<Skill> = Vec::new();
    let mut add = |skill: Skill| {
        let is_new = skills.iter().all(|it| it.name != skill.name);
        if is_new && !skill.name.is_empty() && skills.len() < MOST_SKILLS {
            skills.push(skill);
        }
    };
    for tool in tools(entry, platform) {
        add(Skill {
            name: shown(&tool.name, LONGEST_NAME),
            about: tool.about,
            kind: "tool".to_owned(),
            ontology: Some(tool.service),
            says: tool.says,
            takes: Takes::Tool(tool.language, tool.input),
        });
    }
    for service in &entry.services {
        if let Some(skill) = plain(service) {
            add(skill);
        }
    }
    skills
}

/// A service without a schema, whose agent says that it answers requests.
fn plain(service: &ServiceDescription) -> Option<Skill> {
    let answers = service.protocols.iter().any(|it| it == PROTOCOL);
    let kind = service.service_type.as_deref().unwrap_or_default();
    let name = service.name.as_deref().filter(|_| answers)?;
    let about = sealbus_callers::tools::property(service, "description");
    Some(Skill {
        name: shown(name, LONGEST_NAME),
        about: shown(about.unwrap_or_default(), LONGEST_DESCRIPTION),
        kind: shown(kind, LONGEST_NAME),
        ontology: service.ontologies.first().cloned(),
        takes: Takes::Anything,
        says: Language::Json,
    })
}

#[cfg(test)]
mod tests {
    use sealbus::acl::sl::Term;

    use super::*;

    fn entry(name: &str, services: Vec<ServiceDescription>) -> DfAgentDescription {
        let mut entry = DfAgentDescription::of(Aid::new(name).unwrap());
        entry.services = services;
        entry
    }

    fn service(name: &str, answers: bool) -> ServiceDescription {
        let mut service = ServiceDescription::new(name, name);
        if answers {
            service.protocols.push(PROTOCOL.to_owned());
        }
        service
    }

    fn tool(name: &str) -> ServiceDescription {
        let schema = Term::Text(r#"{"type":"string"}"#.to_owned().into());
        service(name, true).with_property("input", schema)
    }

    #[test]
    fn agents_of_this_platform_that_answer_have_a_card() {
        let mut catalogue = Catalogue::default();
        let entries = vec![
            entry(
                "a@home",
                vec![tool("brew"), service("trade", true), service("mute", false)],
            ),
            entry("b@home", vec![service("mute", false)]),
            entry("c@away", vec![tool("brew")]),
        ];
        catalogue.take(entries, "home");
        let skills = |name: &str| {
            let agent = catalogue.get(name)?;
            Some(
                agent
                    .skills
                    .iter()
                    .map(|it| it.name.clone())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            skills("a"),
            Some(vec!["brew".to_owned(), "trade".to_owned()])
        );
        assert_eq!(skills("b"), None);
        assert_eq!(skills("c"), None);
        assert_eq!(skills("c@away"), None);
        catalogue.take(vec![entry("a@home", Vec::new())], "home");
        assert!(catalogue.get("a").is_none());
    }

    #[test]
    fn agents_that_come_back_are_told_from_those_that_were_there() {
        let mut catalogue = Catalogue::default();
        let come = |catalogue: &mut Catalogue, names: &[&str], services: usize| {
            let services = vec![tool("brew"); services];
            let entries = names.iter().map(|it| entry(it, services.clone()));
            let come = catalogue.take(entries.collect(), "home");
            come.iter().map(|it| it.local.clone()).collect::<Vec<_>>()
        };
        assert_eq!(come(&mut catalogue, &["a@home", "b@home"], 1), ["a", "b"]);
        assert!(come(&mut catalogue, &["a@home"], 1).is_empty());
        assert!(come(&mut catalogue, &["a@home"], 0).is_empty());
        assert_eq!(come(&mut catalogue, &["a@home"], 1), ["a"]);
        // The Master was away: these were there all the time.
        catalogue.forget();
        assert!(catalogue.get("a").is_none());
        assert_eq!(come(&mut catalogue, &["a@home", "c@home"], 1), ["c"]);
        // This one was not.
        assert_eq!(come(&mut catalogue, &["b@home"], 1), ["b"]);
    }

    #[test]
    fn there_is_an_end_to_agents_and_skills() {
        let mut catalogue = Catalogue::default();
        let many = (0..MOST_SKILLS + 9)
            .map(|it| tool(&format!("t{it}")))
            .collect();
        let rest = (0..MOST_AGENTS + 9).map(|it| entry(&format!("x{it}@home"), vec![tool("t")]));
        let entries = std::iter::once(entry("a@home", many)).chain(rest);
        catalogue.take(entries.collect(), "home");
        assert_eq!(catalogue.len(), MOST_AGENTS);
        assert_eq!(catalogue.get("a").unwrap().skills.len(), MOST_SKILLS);
    }
}
