//! The entries of a directory, indexed so that a search looks at few of them.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;

use sealbus_fipa::management::{AmsAgentDescription, DfAgentDescription, Exception};
use sealbus_fipa::sl::Term;
use sealbus_fipa::{Aid, Limits};

use super::LoadError;
use sealbus_store::Batch;

/// A description that a catalogue can hold.
pub(super) trait Description: Clone {
    fn name(&self) -> Option<&Aid>;
    fn term(&self) -> Term<'_>;
    fn read(term: &Term<'_>) -> Result<Self, Exception>;
    fn matches(&self, template: &Self) -> bool;
    /// Shows the words of this description, each with its place. A description that matches a template has all of the
    /// template's words at the same places.
    fn words(&self, word: &mut dyn FnMut(WordPlace, &str));
}

/// The place of a word in a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WordPlace {
    State,
    Ownership,
    ServiceName,
    ServiceType,
    ServiceProtocol,
    ServiceOntology,
    ServiceLanguage,
    ServiceOwnership,
    PropertyName,
    PropertyValue,
    Protocol,
    Ontology,
    Language,
    Scope,
}

impl Description for AmsAgentDescription {
    fn name(&self) -> Option<&Aid> {
        self.name.as_ref()
    }

    fn term(&self) -> Term<'_> {
        self.to_term()
    }

    fn read(term: &Term<'_>) -> Result<Self, Exception> {
        Self::from_term(term)
    }

    fn matches(&self, template: &Self) -> bool {
        Self::matches(self, template)
    }

    fn words(&self, word: &mut dyn FnMut(WordPlace, &str)) {
        if let Some(state) = self.state {
            word(WordPlace::State, state.as_str());
        }
        if let Some(ownership) = &self.ownership {
            word(WordPlace::Ownership, ownership);
        }
    }
}

impl Description for DfAgentDescription {
    fn name(&self) -> Option<&Aid> {
        self.name.as_ref()
    }

    fn term(&self) -> Term<'_> {
        self.to_term()
    }

    fn read(term: &Term<'_>) -> Result<Self, Exception> {
        Self::from_term(term)
    }

    fn matches(&self, template: &Self) -> bool {
        Self::matches(self, template)
    }

    fn words(&self, word: &mut dyn FnMut(WordPlace, &str)) {
        let mut all = |place, words: &[String]| words.iter().for_each(|it| word(place, it));
        all(WordPlace::Protocol, &self.protocols);
        all(WordPlace::Ontology, &self.ontologies);
        all(WordPlace::Language, &self.languages);
        all(WordPlace::Scope, &self.scope);
        for service in &self.services {
            all(WordPlace::ServiceName, service.name.as_slice());
            all(WordPlace::ServiceType, service.service_type.as_slice());
            all(WordPlace::ServiceOwnership, service.ownership.as_slice());
            all(WordPlace::ServiceProtocol, &service.protocols);
            all(WordPlace::ServiceOntology, &service.ontologies);
            all(WordPlace::ServiceLanguage, &service.languages);
            for property in &service.properties {
                all(
                    WordPlace::PropertyName,
                    std::slice::from_ref(&property.name),
                );
                match &property.value {
                    Some(Term::Integer(number)) => {
                        all(WordPlace::PropertyValue, &[number.to_string()])
                    }
                    Some(value) => all(
                        WordPlace::PropertyValue,
                        value.as_text().map(str::to_owned).as_slice(),
                    ),
                    None => {}
                }
            }
        }
    }
}

/// Numbers words by a hash with a secret key. If two words share a number, a search only looks at
/// more entries than it has to.
#[derive(Debug, Default)]
pub(super) struct Words(RandomState);

impl Words {
    /// The different words of a description.
    pub(super) fn of(&self, description: &impl Description) -> BTreeSet<u64> {
        let mut words = BTreeSet::new();
        description.words(&mut |place, word| {
            words.insert(self.0.hash_one((place, word)));
        });
        words
    }
}

/// Gives entries their order: that in which they were first registered.
pub(super) type Sequence = u64;

/// The former state of an entry, to take a change back.
#[derive(Debug)]
pub(super) struct Former<D> {
    name: String,
    entry: Option<(Sequence, D)>,
}

impl<D> Former<D> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn description(&self) -> Option<&D> {
        self.entry.as_ref().map(|(_, description)| description)
    }
}

#[derive(Debug)]
struct Filed<D> {
    description: D,
    /// Bytes that the entry takes in an answer.
    length: usize,
}

/// The result of a search.
#[derive(Debug)]
pub(super) struct Found<'c, D> {
    pub(super) entries: Vec<&'c D>,
    /// Whether more matched than fit in.
    pub(super) is_cut: bool,
    /// Bytes that are left for further entries.
    pub(super) room: usize,
    /// The next entry, if the search ended before the last one.
    pub(super) rest: Option<Sequence>,
}

#[derive(Debug)]
pub(super) struct Catalogue<D> {
    /// The beginning of the keys of its rows.
    prefix: &'static str,
    entries: BTreeMap<Sequence, Filed<D>>,
    names: HashMap<String, Sequence>,
    words: Words,
    /// For each word, the entries that have it.
    having: HashMap<u64, BTreeSet<Sequence>>,
    /// For each platform, its name in lower case, the entries of its agents.
    platforms: HashMap<String, Share>,
    next: Sequence,
}

/// The size of a number of entries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) entries: usize,
    pub(super) length: usize,
}

/// The platform of an agent, in the form that names its share.
fn platform_of(name: &str) -> String {
    let platform = name.rsplit_once('@').map_or("", |(_, platform)| platform);
    platform.to_ascii_lowercase()
}

impl<D: Description> Catalogue<D> {
    pub(super) fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            entries: BTreeMap::new(),
            names: HashMap::new(),
            words: Words::default(),
            having: HashMap::new(),
            platforms: HashMap::new(),
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The names of all entries.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// The size of all entries of this agent's platform together.
    pub(super) fn share_of_platform(&self, agent: &str) -> Share {
        let share = self.platforms.get(&platform_of(agent));
        share.copied().unwrap_or_default()
    }

    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    pub(super) fn get(&self, name: &str) -> Option<&D> {
        self.sequence(name).and_then(|sequence| self.at(sequence))
    }

    pub(super) fn at(&self, sequence: Sequence) -> Option<&D> {
        self.entries.get(&sequence).map(|filed| &filed.description)
    }

    pub(super) fn sequence(&self, name: &str) -> Option<Sequence> {
        self.names.get(name).copied()
    }

    /// Files a description under its name, and replaces an earlier one.
    pub(super) fn put(&mut self, name: &str, description: D, batch: &mut Batch) -> Former<D> {
        let bytes = description.term().to_bytes();
        let former = self.take(name);
        let sequence = former
            .entry
            .as_ref()
            .map_or(self.next, |(sequence, _)| *sequence);
        let mut row = sequence.to_be_bytes().to_vec();
        row.extend_from_slice(&bytes);
        batch.put(format!("{}{name}", self.prefix), row);
        self.file(sequence, name, description, bytes.len());
        former
    }

    /// Removes the description of this name.
    pub(super) fn remove(&mut self, name: &str, batch: &mut Batch) -> Former<D> {
        batch.delete(format!("{}{name}", self.prefix));
        self.take(name)
    }

    /// Takes a change back.
    pub(super) fn restore(&mut self, former: Former<D>) {
        self.take(&former.name);
        if let Some((sequence, description)) = former.entry {
            let length = description.term().to_bytes().len();
            self.file(sequence, &former.name, description, length);
        }
    }

    /// Files a row of the store.
    pub(super) fn load(&mut self, key: &str, row: &[u8]) -> Result<&D, LoadError> {
        let unreadable = |detail: String| LoadError::Row {
            key: key.to_owned(),
            detail,
        };
        let name = key.strip_prefix(self.prefix).unwrap_or(key);
        let (sequence, bytes) = row
            .split_first_chunk()
            .ok_or_else(|| unreadable("it is shorter than its number".into()))?;
        let term = Term::parse(bytes, &Limits::DEFAULT);
        let term = term.map_err(|error| unreadable(error.to_string()))?;
        let description = D::read(&term).map_err(|error| unreadable(error.to_string()))?;
        let sequence = Sequence::from_be_bytes(*sequence);
        self.file(sequence, name, description, bytes.len());
        Ok(&self.entries[&sequence].description)
    }

    fn file(&mut self, sequence: Sequence, name: &str, description: D, length: usize) {
        for word in self.words.of(&description) {
            self.having.entry(word).or_default().insert(sequence);
        }
        let share = self.platforms.entry(platform_of(name)).or_default();
        share.entries += 1;
        share.length += length;
        self.names.insert(name.to_owned(), sequence);
        self.entries.insert(
            sequence,
            Filed {
                description,
                length,
            },
        );
        self.next = self.next.max(sequence + 1);
    }

    fn take(&mut self, name: &str) -> Former<D> {
        let entry = self.names.remove(name).and_then(|sequence| {
            let Filed {
                description,
                length,
            } = self.entries.remove(&sequence)?;
            let platform = platform_of(name);
            if let Some(share) = self.platforms.get_mut(&platform) {
                share.entries -= 1;
                share.length -= length;
                if share.entries == 0 {
                    self.platforms.remove(&platform);
                }
            }
            for word in self.words.of(&description) {
                if let Some(having) = self.having.get_mut(&word) {
                    having.remove(&sequence);
                    if having.is_empty() {
                        self.having.remove(&word);
                    }
                }
            }
            Some((sequence, description))
        });
        Former {
            name: name.to_owned(),
            entry,
        }
    }

    /// The first entries that match a template, in the order of registration: at most `most`.
    pub(super) fn search(&self, template: &D, most: usize) -> Vec<&D> {
        self.search_within(template, most, usize::MAX).entries
    }

    /// Like [`search`](Self::search), but after the first entry it returns no more entries than fit into `length`
    /// bytes.
    pub(super) fn search_within(&self, template: &D, most: usize, length: usize) -> Found<'_, D> {
        self.search_from(0, template, most, length)
    }

    /// Like [`search_within`](Self::search_within), without the entries before `first`.
    pub(super) fn search_from(
        &self,
        first: Sequence,
        template: &D,
        most: usize,
        length: usize,
    ) -> Found<'_, D> {
        let mut entries = Vec::new();
        let mut room = length;
        for (sequence, filed) in self.candidates(first, template) {
            let is_full = entries.len() >= most;
            if !is_full && !filed.description.matches(template) {
                continue;
            }
            let is_cut = !is_full && !entries.is_empty() && filed.length > room;
            if is_full || is_cut {
                return Found {
                    entries,
                    is_cut,
                    room,
                    rest: Some(sequence),
                };
            }
            room = room.saturating_sub(filed.length);
            entries.push(&filed.description);
        }
        Found {
            entries,
            is_cut: false,
            room,
            rest: None,
        }
    }

    /// The entries from `first` on that may match a template, in the order of registration.
    fn candidates<'c>(
        &'c self,
        first: Sequence,
        template: &D,
    ) -> Box<dyn Iterator<Item = (Sequence, &'c Filed<D>)> + 'c> {
        let filed = move |sequence: Sequence| Some((sequence, self.entries.get(&sequence)?));
        if let Some(name) = template.name() {
            let sequence = self.sequence(&name.name).filter(|it| *it >= first);
            return Box::new(sequence.and_then(filed).into_iter());
        }
        // The entries with the rarest word are the fewest to look at.
        let words = self.words.of(template);
        let having = words.iter().map(|word| self.having.get(word));
        match having.min_by_key(|having| having.map_or(0, BTreeSet::len)) {
            None => {
                let entries = self.entries.range(first..);
                Box::new(entries.map(|(sequence, filed)| (*sequence, filed)))
            }
            Some(rarest) => {
                let sequences = rarest.into_iter().flat_map(move |it| it.range(first..));
                Box::new(sequences.copied().filter_map(filed))
            }
        }
    }
}
