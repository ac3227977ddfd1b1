//! Whether an entry matches the template of a search (FIPA00023).
//!
//! A slot that the template leaves out matches anything. Atoms match their equals. A set matches when each of its
//! members matches some member of the entry's set. A sequence matches when its members match members of the entry's
//! sequence in the same order. Each member of the template meets each member of the entry at most once, so the work is
//! bounded by the product of their sizes.

use super::{AmsAgentDescription, DfAgentDescription, Property, ServiceDescription};
use crate::Aid;
use crate::sl::{Arguments, FunctionalTerm, Term};
use alloc::string::String;

/// Whether every member of the template's set matches some member of the entry's.
fn set<T>(entry: &[T], template: &[T], matches: impl Fn(&T, &T) -> bool) -> bool {
    template
        .iter()
        .all(|wanted| entry.iter().any(|member| matches(member, wanted)))
}

fn atom<T: PartialEq>(entry: Option<&T>, template: Option<&T>) -> bool {
    template.is_none() || entry == template
}

/// Whether the entry is about the agent that the template names, if it names one.
fn agent(entry: Option<&Aid>, template: Option<&Aid>) -> bool {
    template.is_none_or(|wanted| entry.is_some_and(|entry| entry.names_same_agent(wanted)))
}

impl DfAgentDescription {
    /// Whether this entry matches a template. Agents are compared by name only.
    pub fn matches(&self, template: &Self) -> bool {
        agent(self.name.as_ref(), template.name.as_ref())
            && set(
                &self.services,
                &template.services,
                ServiceDescription::matches,
            )
            && set(&self.protocols, &template.protocols, String::eq)
            && set(&self.ontologies, &template.ontologies, String::eq)
            && set(&self.languages, &template.languages, String::eq)
            && atom(self.lease_time.as_ref(), template.lease_time.as_ref())
            && set(&self.scope, &template.scope, String::eq)
    }
}

impl ServiceDescription {
    /// Whether this service matches a template.
    pub fn matches(&self, template: &Self) -> bool {
        atom(self.name.as_ref(), template.name.as_ref())
            && atom(self.service_type.as_ref(), template.service_type.as_ref())
            && set(&self.protocols, &template.protocols, String::eq)
            && set(&self.ontologies, &template.ontologies, String::eq)
            && set(&self.languages, &template.languages, String::eq)
            && atom(self.ownership.as_ref(), template.ownership.as_ref())
            && set(&self.properties, &template.properties, Property::matches)
    }
}

impl Property {
    /// Whether this property matches a template.
    pub fn matches(&self, template: &Self) -> bool {
        self.name == template.name
            && match (&self.value, &template.value) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(value), Some(wanted)) => value.matches(wanted),
            }
    }
}

impl AmsAgentDescription {
    /// Whether this entry matches a template. Agents are compared by name only.
    pub fn matches(&self, template: &Self) -> bool {
        agent(self.name.as_ref(), template.name.as_ref())
            && atom(self.ownership.as_ref(), template.ownership.as_ref())
            && atom(self.state.as_ref(), template.state.as_ref())
    }
}

impl Term<'_> {
    /// Whether this term matches a template. Objects are compared by the slots that the template has, and sets,
    /// sequences and atoms as the module's documentation says. A string matches its equal in any written form.
    pub fn matches(&self, template: &Term<'_>) -> bool {
        match (self, template) {
            (Term::Set(entry), Term::Set(template)) => template
                .iter()
                .all(|wanted| entry.iter().any(|member| member.matches(wanted))),
            (Term::Sequence(entry), Term::Sequence(template)) => {
                let mut rest = entry.iter();
                template
                    .iter()
                    .all(|wanted| rest.any(|member| member.matches(wanted)))
            }
            (Term::Function(entry), Term::Function(template)) => function(entry, template),
            (
                Term::Text(_) | Term::Bytes(_) | Term::Truth(_),
                Term::Text(_) | Term::Bytes(_) | Term::Truth(_),
            ) => {
                self == template
                    || (self.as_text().is_some() && self.as_text() == template.as_text())
            }
            (entry, template) => entry == template,
        }
    }
}

fn function(entry: &FunctionalTerm<'_>, template: &FunctionalTerm<'_>) -> bool {
    entry.symbol == template.symbol
        && match (&entry.arguments, &template.arguments) {
            (_, Arguments::Positional(none)) if none.is_empty() => true,
            (Arguments::Positional(entry), Arguments::Positional(template)) => {
                entry.len() == template.len()
                    && entry
                        .iter()
                        .zip(template)
                        .all(|(value, wanted)| value.matches(wanted))
            }
            (Arguments::Named(entry), Arguments::Named(template)) => {
                template.iter().all(|wanted| {
                    entry
                        .iter()
                        .any(|slot| slot.name == wanted.name && slot.value.matches(&wanted.value))
                })
            }
            _ => false,
        }
}
