//! Searches in this DF and onwards in other DFs.

use std::time::SystemTime;

use sealbus_fipa::management::{
    DfAgentDescription, Exception, SearchConstraints, ServiceDescription,
};
use sealbus_fipa::sl::{Content, Term, Wff};
use sealbus_fipa::{AclMessage, Aid, Performative};

use super::super::dialogue::{action, answer, name_limit, read};
use super::federation::{DF_SERVICE, Gathered, Here, WaitingSearch, is_of_same_platform};
use super::{Df, Outcome, Requester};

/// Searches that are remembered. A search that comes back through other DFs is not done again.
const REMEMBERED_SEARCHES: usize = 256;
/// The longest search-id, in bytes.
const LONGEST_SEARCH_ID: usize = 1024;

/// The result of a search of this DF alone.
pub(super) struct FoundHere {
    pub(super) entries: Vec<Term<'static>>,
    /// The limit that left out further entries.
    pub(super) limit: Option<String>,
}

impl Df {
    /// Searches as the request asks. Returns the entries found, or nothing if other DFs are asked too and the answer
    /// must wait for them.
    pub(super) fn search_for(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        template: &DfAgentDescription,
        constraints: &SearchConstraints,
        now: SystemTime,
        outcome: &mut Outcome,
    ) -> Result<Option<FoundHere>, Exception> {
        self.limits.check_description(template)?;
        self.remember(constraints)?;
        let found = self.limits.search(&self.entries, template, constraints);
        let others = self.entries.search(&federated(), usize::MAX);
        let others: Vec<Aid> = others
            .into_iter()
            .filter_map(|it| it.name.clone())
            .filter(|df| !is_of_same_platform(&df.name, &self.own.name))
            .collect();
        let entries: Vec<_> = found
            .entries
            .iter()
            .map(|it| it.to_term().into_owned())
            .collect();
        let gathered = Gathered {
            found: found.entries.into_iter().cloned().collect(),
            wanted: constraints.results(usize::MAX),
            most: constraints.results(self.limits.results),
            room: found.room,
            limit: found.limit.clone(),
        };
        let limit = found.limit;
        let here = Here {
            gathered,
            others,
            asker: requester.asker(),
            limits: &self.limits,
        };
        let federation = &mut self.federation;
        match federation.search(&self.own, message, template, constraints, here, now) {
            Ok(questions) if questions.is_empty() => Ok(Some(FoundHere { entries, limit })),
            Ok(questions) => {
                outcome.messages.extend(questions);
                Ok(None)
            }
            Err(stopped) => Ok(Some(FoundHere {
                entries,
                limit: limit.or(Some(stopped)),
            })),
        }
    }

    /// The answer to a search that went on in other DFs.
    pub(super) fn found(&self, waiting: &WaitingSearch) -> Option<AclMessage> {
        let content = read(&waiting.request).ok()?;
        let (asked, _) = action(&content, &self.own).ok()?;
        let gathered = &waiting.gathered;
        let found = gathered.found.iter().map(DfAgentDescription::to_term);
        let result = Wff::result(asked.clone(), Term::Sequence(found.collect()));
        let content = Content::of(result);
        let mut answer = answer(&self.own, &waiting.request, Performative::Inform, content);
        name_limit(&mut answer, gathered.limit());
        Some(answer)
    }

    /// Remembers a search that has a search-id. Returns an error if a search with that id came before.
    fn remember(&mut self, constraints: &SearchConstraints) -> Result<(), Exception> {
        let Some(search_id) = &constraints.search_id else {
            return Ok(());
        };
        if search_id.len() > LONGEST_SEARCH_ID {
            return Err(Exception::UnrecognisedParameterValue {
                object: "search-constraints".into(),
                slot: "search-id".into(),
            });
        }
        if self.searches.contains(search_id) {
            let text = format!("the search '{}' has been here before", shorten(search_id));
            return Err(Exception::InternalError(text));
        }
        if self.searches.len() == REMEMBERED_SEARCHES {
            self.searches.pop_front();
        }
        self.searches.push_back(search_id.clone());
        Ok(())
    }
}

/// The template of DFs that are registered here.
fn federated() -> DfAgentDescription {
    DfAgentDescription::default().with_service(ServiceDescription {
        service_type: Some(DF_SERVICE.to_owned()),
        ..ServiceDescription::default()
    })
}

fn shorten(text: &str) -> &str {
    text.char_indices()
        .nth(64)
        .map_or(text, |(end, _)| &text[..end])
}
