//! DFs that search on in each other (FIPA00023). A DF of another platform may register here with a service of type
//! `fipa-df`. A search that may go deeper than this DF then asks that DF too.
//!
//! Any agent may register such a service. So an agent of this platform is never asked, and a DF reports agents of its
//! own platform alone: nobody can put entries into a search in the names of agents elsewhere.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use sealbus_bus::LogShares;
use sealbus_bus::text::excerpt;
use sealbus_fipa::management::{
    DfAgentDescription, DfFunction, ONTOLOGY, SearchConstraints, ServiceDescription,
};
use sealbus_fipa::{AclMessage, Aid, DateTime, Expression, bitefficient};

use super::super::client::{Answer, LIMIT_PARAMETER, ask_df};
use super::super::limits::{left_out, not_asked};
use super::super::subscriptions::{HolderShare, holder};
use super::{DirectoryLimits, Requester};

/// The type of service under which DFs register with each other.
pub(super) const DF_SERVICE: &str = "fipa-df";
/// How long the other DFs may take together, unless the search sets a time itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most DFs asked in one search.
const MOST_ASKED: usize = 32;
/// How much of another DF's words about its limit is passed on, in characters.
const LONGEST_LIMIT: usize = 200;
/// Most characters of a name in the log.
const LONGEST_NAME: usize = 256;

/// Searches and questions that wait for other DFs.
#[derive(Debug, Default)]
pub(super) struct Federation {
    number: u64,
    waiting: HashMap<u64, WaitingSearch>,
    /// The shares of the waiting searches, by the key of the asker's [`holder`].
    shares: HashMap<String, HolderShare>,
    /// Length of all waiting searches, in bytes.
    length: usize,
    /// The tag of each question, with its search and the DF asked. A registration belongs to no search.
    asked: HashMap<String, (Option<u64>, String)>,
    /// The shares of the log for entries that are left out, by DFs.
    log: LogShares,
}

/// A search that other DFs take part in.
#[derive(Debug)]
pub(super) struct WaitingSearch {
    /// The request to answer, as far as the answer needs it.
    pub(super) request: AclMessage,
    /// The result so far.
    pub(super) gathered: Gathered,
    open: usize,
    deadline: SystemTime,
    /// The key of the share that it uses.
    holder: String,
    /// Length of the request and of the result so far, in bytes.
    length: usize,
}

/// The state that a search begins with.
pub(super) struct Here<'d> {
    /// The result in this DF.
    pub(super) gathered: Gathered,
    /// The DFs registered here.
    pub(super) others: Vec<Aid>,
    /// The AID name of the asker, as far as it is known.
    pub(super) asker: &'d str,
    /// The limits on searches that wait.
    pub(super) limits: &'d DirectoryLimits,
}

/// The result of a search, to which other DFs add.
#[derive(Debug)]
pub(super) struct Gathered {
    /// The entries found so far.
    pub(super) found: Vec<DfAgentDescription>,
    /// How many entries the asker wants.
    pub(super) wanted: usize,
    /// How many of them an answer may hold.
    pub(super) most: usize,
    /// Bytes of entries that may still be added.
    pub(super) room: usize,
    /// The limit that left out entries.
    pub(super) limit: Option<String>,
}

impl Gathered {
    /// Whether no entry of another DF would change the answer.
    fn is_full(&self) -> bool {
        self.found.len() >= self.most && (self.wanted <= self.most || self.limit.is_some())
    }

    /// The limit to name in the answer, if it leaves out entries that the asker wants.
    pub(super) fn limit(&self) -> Option<String> {
        let is_short = self.found.len() < self.wanted;
        self.limit.clone().filter(|_| is_short)
    }

    /// Adds an entry that another DF has found, if it describes an agent of that DF's own platform and is within the
    /// limits.
    fn add(
        &mut self,
        entry: DfAgentDescription,
        df: &str,
        limits: &DirectoryLimits,
        log: &mut LogShares,
    ) {
        let Some(name) = &entry.name else {
            return;
        };
        if !is_of_same_platform(&name.name, df) {
            let df = excerpt(df, LONGEST_NAME);
            if let Some(left_out) = log.admit(df.clone()) {
                let agent = excerpt(&name.name, LONGEST_NAME);
                tracing::warn!(
                    df,
                    agent,
                    left_out,
                    "a DF found an agent of a platform that is not its own: the entry is left out"
                );
            }
            return;
        }
        let is_known =
            |it: &DfAgentDescription| it.name.as_ref().is_some_and(|it| it.name == name.name);
        if self.is_full() || self.found.iter().any(is_known) {
            return;
        }
        match self.fits(&entry, limits) {
            Ok(length) => {
                self.room -= length;
                self.found.push(entry);
            }
            Err(limit) => {
                self.limit.get_or_insert(limit);
            }
        }
    }

    /// The length of an entry that may be added.
    ///
    /// # Errors
    /// The limit that leaves it out.
    fn fits(&self, it: &DfAgentDescription, limits: &DirectoryLimits) -> Result<usize, String> {
        if self.found.len() >= self.most {
            return Err(left_out("results", limits.results));
        }
        let checked = limits.check_description(it);
        checked.map_err(|exception| exception.to_string())?;
        let length = it.to_term().to_bytes().len();
        if length > self.room {
            return Err(left_out("results_length", limits.results_length));
        }
        Ok(length)
    }

    /// Notes the limit of another DF that left out entries there.
    fn is_limited(&mut self, df: &str, limit: &str) {
        let words = limit.chars().filter(|it| !it.is_control());
        let words: String = words.take(LONGEST_LIMIT).collect();
        self.limit.get_or_insert(format!("{df}: {words}"));
    }
}

/// Whether two agents, by their AID names, belong to one platform, without regard to letter case.
pub(super) fn is_of_same_platform(one: &str, other: &str) -> bool {
    match (one.rsplit_once('@'), other.rsplit_once('@')) {
        (Some((_, one)), Some((_, other))) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

impl Federation {
    /// Begins a search in other DFs. Returns the questions to send, or none if the search goes no further.
    ///
    /// # Errors
    /// The limit that keeps the search in this DF.
    pub(super) fn search(
        &mut self,
        own: &Aid,
        request: &AclMessage,
        template: &DfAgentDescription,
        constraints: &SearchConstraints,
        here: Here<'_>,
        now: SystemTime,
    ) -> Result<Vec<AclMessage>, String> {
        let Here {
            gathered,
            mut others,
            asker,
            limits,
        } = here;
        let depth = constraints.max_depth.unwrap_or(0);
        if depth <= 0 || gathered.is_full() {
            return Ok(Vec::new());
        }
        let sender = request.sender.as_ref().map_or("", |sender| &sender.name);
        others.retain(|df| df.name != own.name && df.name != sender);
        others.truncate(MOST_ASKED);
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let (holder, _) = holder(asker, own.platform().unwrap_or_default());
        let found = limits.results_length.saturating_sub(gathered.room);
        let length = self.admit(&holder, request, found, limits)?;
        self.number += 1;
        let number = self.number;
        let unix = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let search_id = constraints
            .search_id
            .clone()
            .unwrap_or_else(|| format!("{}{number}-{}", own.name, unix.as_millis()));
        // If another DF finds one entry more than the answer may hold, the limit leaves out entries.
        let most = gathered.most.saturating_add(1);
        let rest = gathered.wanted.min(most) - gathered.found.len();
        let deeper = SearchConstraints {
            max_depth: Some(depth - 1),
            max_results: Some(match constraints.max_results {
                Some(most) if most < 0 => most,
                _ => i64::try_from(rest).unwrap_or(i64::MAX),
            }),
            search_id: Some(search_id),
        };
        let asked_by = request.reply_by.and_then(|it| it.system_time(now).ok());
        let deadline = now + PATIENCE;
        let deadline = asked_by.map_or(deadline, |by| by.min(deadline));
        let function = DfFunction::Search(template.clone(), deeper);
        let mut questions = Vec::new();
        for df in others {
            let question = self.question(own, &df, &function, Some(number), unix);
            questions.push(match DateTime::from_system_time(deadline) {
                Ok(by) => AclMessage {
                    reply_by: Some(by),
                    ..question
                },
                Err(_) => question,
            });
        }
        self.length += length;
        let share = self.shares.entry(holder.clone()).or_default();
        share.count += 1;
        share.length += length;
        let waiting = WaitingSearch {
            // The answer repeats none of these lists, which may be long.
            request: AclMessage {
                receivers: Vec::new(),
                reply_to: Vec::new(),
                user_defined: Vec::new(),
                ..request.clone()
            },
            gathered,
            open: questions.len(),
            deadline,
            holder,
            length,
        };
        self.waiting.insert(number, waiting);
        Ok(questions)
    }

    /// Checks that another search may wait, with the bytes `found` in this DF. Returns its length.
    ///
    /// # Errors
    /// The limit that keeps the search in this DF.
    fn admit(
        &self,
        holder: &str,
        request: &AclMessage,
        found: usize,
        limits: &DirectoryLimits,
    ) -> Result<usize, String> {
        let mut encoded = Vec::new();
        bitefficient::encode(request, &mut encoded).map_err(|error| error.to_string())?;
        let length = encoded.len() + found;
        let held = self.shares.get(holder).copied().unwrap_or_default();
        let own = limits.searches_length_per_asker;
        for (limit, most, needed) in [
            (
                "subscription_length",
                limits.subscription_length,
                encoded.len(),
            ),
            (
                "searches_per_asker",
                limits.searches_per_asker,
                held.count + 1,
            ),
            ("searches_length_per_asker", own, held.length + length),
            ("searches", limits.searches, self.waiting.len() + 1),
            (
                "searches_length",
                limits.searches_length,
                self.length + length,
            ),
        ] {
            if needed > most {
                return Err(not_asked(limit, most));
            }
        }
        Ok(length)
    }

    /// Counts the bytes that were added to the result of a waiting search. Returns the limit that they exceed, if any.
    fn grow(&mut self, holder: &str, bytes: usize, limits: &DirectoryLimits) -> Option<String> {
        self.length += bytes;
        let share = self.shares.get_mut(holder)?;
        share.length += bytes;
        let (own, all) = (limits.searches_length_per_asker, limits.searches_length);
        if share.length > own {
            return Some(left_out("searches_length_per_asker", own));
        }
        (self.length > all).then(|| left_out("searches_length", all))
    }

    /// The question that registers this DF with another DF, which then searches here too.
    pub(super) fn join(&mut self, own: &Aid, df: &Aid, now: SystemTime) -> AclMessage {
        self.number += 1;
        let service = ServiceDescription {
            name: Some(own.name.clone()),
            service_type: Some(DF_SERVICE.to_owned()),
            protocols: vec!["fipa-request".to_owned()],
            ontologies: vec![ONTOLOGY.to_owned()],
            languages: vec!["fipa-sl0".to_owned()],
            ..ServiceDescription::default()
        };
        let entry = DfAgentDescription::of(own.clone()).with_service(service);
        let unix = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.question(own, df, &DfFunction::Register(entry), None, unix)
    }

    fn question(
        &mut self,
        own: &Aid,
        df: &Aid,
        function: &DfFunction,
        search: Option<u64>,
        unix: Duration,
    ) -> AclMessage {
        // The time makes the tag differ from those of an earlier run of this DF, so that old answers do not fit.
        let tag = format!("{}-{}-{}", unix.as_nanos(), self.number, self.asked.len());
        let question = ask_df(df, function)
            .with_sender(own.clone())
            .with_conversation_id(tag.as_str())
            .with_reply_with(tag.as_str());
        self.asked.insert(tag, (search, df.name.clone()));
        question
    }

    /// Takes an answer to a question. Returns the search that ends with it, or `None` if the search goes on or the
    /// message is no such answer.
    pub(super) fn answer(
        &mut self,
        message: &AclMessage,
        requester: &Requester,
        limits: &DirectoryLimits,
    ) -> Option<WaitingSearch> {
        let tag = message.in_reply_to.as_ref().and_then(Expression::as_str)?;
        let (_, asked) = self.asked.get(tag)?;
        let is_from_it = match requester {
            // The platform reports that the DF could not be reached.
            Requester::Platform => true,
            Requester::Agent(name) | Requester::Foreign { name, .. } => name == asked,
            Requester::Unproved => false,
        };
        // The AMS of the DF's platform reports that the DF could not be reached.
        let is_from_its_ams = matches!(
            (requester, asked.rsplit_once('@')),
            (Requester::Foreign { name, .. }, Some((_, home)))
                if name.strip_prefix("ams@").is_some_and(|it| it.eq_ignore_ascii_case(home))
        );
        if !is_from_it && !is_from_its_ams {
            return None;
        }
        let answer = Answer::read(message);
        if matches!(answer, Ok(Answer::Agreed)) {
            return None;
        }
        let (search, df) = self.asked.remove(tag)?;
        let Some(number) = search else {
            match answer {
                Ok(_) => tracing::info!(df, "this DF is registered with another one"),
                Err(error) => tracing::warn!(df, %error, "this DF was not registered"),
            }
            return None;
        };
        let waiting = self.waiting.get_mut(&number)?;
        let room = waiting.gathered.room;
        let found = |answer: Answer<'_>| answer.found(DfAgentDescription::from_term);
        let entries = answer
            .map_err(|error| error.to_string())
            .and_then(|answer| found(answer).map_err(|error| error.to_string()));
        match entries {
            Ok(entries) => {
                for entry in entries {
                    waiting.gathered.add(entry, &df, limits, &mut self.log);
                }
                let limit = message.user_defined_value(LIMIT_PARAMETER);
                if let Some(limit) = limit.and_then(Expression::as_str) {
                    waiting.gathered.is_limited(&df, limit);
                }
            }
            // A DF that has had this search already refuses it, as it should.
            Err(error) => tracing::debug!(df, error, "a DF did not search"),
        }
        waiting.open -= 1;
        let goes_on = waiting.open > 0 && !waiting.gathered.is_full();
        let added = room - waiting.gathered.room;
        waiting.length += added;
        let holder = waiting.holder.clone();
        let exceeded = self.grow(&holder, added, limits);
        match exceeded.filter(|_| goes_on) {
            None if goes_on => None,
            None => self.end(number),
            // The result goes out, so it no longer takes room. The other DFs are not waited for.
            Some(limit) => {
                let mut ended = self.end(number)?;
                ended.gathered.limit.get_or_insert(limit);
                Some(ended)
            }
        }
    }

    fn end(&mut self, number: u64) -> Option<WaitingSearch> {
        self.asked.retain(|_, (search, _)| *search != Some(number));
        let ended = self.waiting.remove(&number)?;
        self.length -= ended.length;
        if let Some(share) = self.shares.get_mut(&ended.holder) {
            share.count -= 1;
            share.length -= ended.length;
            if share.count == 0 {
                self.shares.remove(&ended.holder);
            }
        }
        Some(ended)
    }

    /// Takes the searches that have run out of time.
    pub(super) fn overdue(&mut self, now: SystemTime) -> Vec<WaitingSearch> {
        let mut overdue: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        overdue.sort_unstable();
        overdue.into_iter().filter_map(|it| self.end(it)).collect()
    }

    /// When the first search runs out of time.
    pub(super) fn deadline(&self) -> Option<SystemTime> {
        self.waiting.values().map(|waiting| waiting.deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_df_that_tells_of_agents_elsewhere_has_a_share_of_the_log() {
        let mut gathered = Gathered {
            found: Vec::new(),
            wanted: 100,
            most: 100,
            room: 1 << 20,
            limit: None,
        };
        let (limits, mut log) = (DirectoryLimits::default(), LogShares::default());
        for number in 0..100 {
            let entry = DfAgentDescription {
                name: Some(Aid::new(format!("seller-{number}@third")).unwrap()),
                ..DfAgentDescription::default()
            };
            gathered.add(entry, "df@far", &limits, &mut log);
        }
        assert!(gathered.found.is_empty());
        assert_eq!(log.admit("df@far".to_owned()), None);
        assert!(log.admit("df@other".to_owned()).is_some());
    }
}
