use std::time::Duration;

use sealbus_fipa::management::{DfAgentDescription, Exception, SearchConstraints};
use sealbus_fipa::sl::{Arguments, Term};

use super::catalogue::{Catalogue, Description, Share};

/// The most that AMS and DF keep and return. Each refusal names the limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryLimits {
    /// Entries in one directory. Default one million.
    pub entries: usize,
    /// Entries of agents of one other platform in the DF. Default 10 000.
    pub entries_per_platform: usize,
    /// Bytes of the entries of one other platform together. Default 64 MiB.
    pub entries_length_per_platform: usize,
    /// Bytes of one entry or template, written as SL. Default 64 KiB.
    pub entry_length: usize,
    /// Services in one entry or template. Default 64.
    pub services: usize,
    /// Words in one entry or template: all protocols, ontologies, languages and properties with all their values, of
    /// the entry and of its services. Default 512.
    pub words: usize,
    /// Entries in the result of one search. An answer that leaves out more says so. Default 1000.
    pub results: usize,
    /// Bytes of entries in the result of one search. The first entry is always included; entries beyond the limit are
    /// left out, and the answer says so. Default 4 MiB.
    pub results_length: usize,
    /// Subscriptions of one agent. Default 64.
    pub subscriptions_per_agent: usize,
    /// Bytes of one agent's subscriptions together. Default 256 KiB.
    pub subscriptions_length_per_agent: usize,
    /// Subscriptions of all agents of one other platform. Default 1024.
    pub subscriptions_per_platform: usize,
    /// Bytes of the subscriptions of all agents of one other platform together. Default 4 MiB.
    pub subscriptions_length_per_platform: usize,
    /// Subscriptions of all agents. Default 100 000.
    pub subscriptions: usize,
    /// Bytes of all subscriptions together. Default 256 MiB.
    pub subscriptions_length: usize,
    /// Bytes of a request that the directory keeps, to subscribe or to search on in other DFs: a template, and what the
    /// message has around it. Default 68 KiB.
    pub subscription_length: usize,
    /// Searches of one agent, or of all agents of one other platform, that wait for other DFs. Default 64.
    pub searches_per_asker: usize,
    /// Bytes of these searches together: their requests, and the entries found so far. It has room for one answer of the
    /// longest kind and for many of the usual ones. Default 8 MiB.
    pub searches_length_per_asker: usize,
    /// Searches of all agents that wait for other DFs. Default 1024.
    pub searches: usize,
    /// Bytes of the searches of all agents that wait for other DFs. Default 64 MiB.
    pub searches_length: usize,
    /// The longest time that an entry of the DF lasts without being renewed; `None` for ever. Longer leases are cut to
    /// this time. Default `None`.
    pub longest_lease: Option<Duration>,
}

impl Default for DirectoryLimits {
    fn default() -> Self {
        Self {
            entries: 1_000_000,
            entries_per_platform: 10_000,
            entries_length_per_platform: 64 << 20,
            entry_length: 64 << 10,
            services: 64,
            words: 512,
            results: 1000,
            results_length: 4 << 20,
            subscriptions_per_agent: 64,
            subscriptions_length_per_agent: 256 << 10,
            subscriptions_per_platform: 1024,
            subscriptions_length_per_platform: 4 << 20,
            subscriptions: 100_000,
            subscriptions_length: 256 << 20,
            subscription_length: 68 << 10,
            searches_per_asker: 64,
            searches_length_per_asker: 8 << 20,
            searches: 1024,
            searches_length: 64 << 20,
            longest_lease: None,
        }
    }
}

/// The answer when a limit is reached.
pub(super) fn exceeded(limit: &str, most: usize, what: &str) -> Exception {
    Exception::LimitExceeded(format!(
        "{what}, but the platform's limit '{limit}' allows {most}"
    ))
}

/// The words of an answer about the limit that left out entries.
pub(super) fn left_out(limit: &str, most: usize) -> String {
    format!("more matches, but the platform's limit '{limit}' allows {most}")
}

/// The words of an answer about the limit that kept a search in this DF.
pub(super) fn not_asked(limit: &str, most: usize) -> String {
    format!("other DFs were not asked, because the platform's limit '{limit}' allows {most}")
}

/// The result of a search, within the limits of an answer.
pub(super) struct Results<'c, D> {
    pub(super) entries: Vec<&'c D>,
    /// The limit that left out further results.
    pub(super) limit: Option<String>,
    /// Bytes that are left for further results.
    pub(super) room: usize,
}

impl DirectoryLimits {
    /// Searches a directory within the limits of an answer.
    pub(super) fn search<'c, D: Description>(
        &self,
        directory: &'c Catalogue<D>,
        template: &D,
        constraints: &SearchConstraints,
    ) -> Results<'c, D> {
        let most = constraints.results(self.results);
        let found = directory.search_within(template, most, self.results_length);
        let is_full = found.entries.len() == most && constraints.results(usize::MAX) > most;
        let is_more = || directory.search(template, most + 1).len() > most;
        let limit = if found.is_cut {
            Some(left_out("results_length", self.results_length))
        } else if is_full && is_more() {
            Some(left_out("results", self.results))
        } else {
            None
        };
        Results {
            entries: found.entries,
            limit,
            room: found.room,
        }
    }

    pub(super) fn check_entries(&self, entries: usize) -> Result<(), Exception> {
        if entries >= self.entries {
            let what = format!("the directory holds {entries} entries already");
            return Err(exceeded("entries", self.entries, &what));
        }
        Ok(())
    }

    /// Checks whether another platform may have one more entry, or a longer one, of `length` bytes. Its agents can take
    /// any names, so the limit holds for all of them together.
    pub(super) fn check_share(
        &self,
        platform: &str,
        others: Share,
        length: usize,
    ) -> Result<(), Exception> {
        if others.entries >= self.entries_per_platform {
            let what = format!("{platform} has {} entries already", others.entries);
            let most = self.entries_per_platform;
            return Err(exceeded("entries_per_platform", most, &what));
        }
        if others.length + length > self.entries_length_per_platform {
            let what = format!("{platform} has entries of {} bytes already", others.length);
            let most = self.entries_length_per_platform;
            return Err(exceeded("entries_length_per_platform", most, &what));
        }
        Ok(())
    }

    pub(super) fn check_entry_length(&self, length: usize) -> Result<(), Exception> {
        if length > self.entry_length {
            let what = format!("the entry has {length} bytes");
            return Err(exceeded("entry_length", self.entry_length, &what));
        }
        Ok(())
    }

    /// Checks a description for the DF, an entry or a template. The product of their words bounds the cost of comparing
    /// two of them.
    pub(super) fn check_description(&self, it: &DfAgentDescription) -> Result<(), Exception> {
        let services = it.services.len();
        if services > self.services {
            let what = format!("the description has {services} services");
            return Err(exceeded("services", self.services, &what));
        }
        let mut words = 0;
        it.words(&mut |_, _| words += 1);
        let properties = it.services.iter().flat_map(|service| &service.properties);
        words += properties
            .filter_map(|it| it.value.as_ref())
            .map(values_in)
            .sum::<usize>();
        if words > self.words {
            let what = format!("the description has {words} words");
            return Err(exceeded("words", self.words, &what));
        }
        self.check_entry_length(it.to_term().to_bytes().len())
    }
}

/// The number of constants in a term. A formula inside counts as one, because formulas are only compared as a whole.
fn values_in(term: &Term<'_>) -> usize {
    match term {
        Term::Set(terms) | Term::Sequence(terms) => 1 + terms.iter().map(values_in).sum::<usize>(),
        Term::Function(function) => {
            1 + match &function.arguments {
                Arguments::Positional(terms) => terms.iter().map(values_in).sum::<usize>(),
                Arguments::Named(parameters) => {
                    parameters.iter().map(|it| values_in(&it.value)).sum()
                }
            }
        }
        _ => 1,
    }
}
