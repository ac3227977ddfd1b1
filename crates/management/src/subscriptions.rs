//! The subscriptions of a directory: agents name the entries they want to follow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sealbus_fipa::management::{
    AmsAgentDescription, AmsFunction, DfAgentDescription, DfFunction, Exception, SearchConstraints,
    subscription,
};
use sealbus_fipa::sl::{ActionExpression, Content, ContentExpression, IdentifyingExpression, Term};
use sealbus_fipa::{AclMessage, Aid, Expression, Limits, Performative, bitefficient};

use super::catalogue::{Description, Sequence, Words};
use super::dialogue::{answer, read};
use super::limits::exceeded;
use super::{DirectoryLimits, LoadError};

/// A description that agents can subscribe to.
pub(super) trait Followed: Description {
    /// Reads the search that a subscription names, if it is one.
    fn search(act: &Term<'_>) -> Result<Option<(Self, SearchConstraints)>, Exception>;
    /// Checks a template.
    fn check(&self, limits: &DirectoryLimits) -> Result<(), Exception>;
    /// The description for an entry that went, which has only the name.
    fn gone(&self) -> Self;
}

impl Followed for DfAgentDescription {
    fn search(act: &Term<'_>) -> Result<Option<(Self, SearchConstraints)>, Exception> {
        Ok(match DfFunction::from_term(act)? {
            DfFunction::Search(template, constraints) => Some((template, constraints)),
            _ => None,
        })
    }

    fn check(&self, limits: &DirectoryLimits) -> Result<(), Exception> {
        limits.check_description(self)
    }

    fn gone(&self) -> Self {
        Self {
            name: self.name.clone(),
            ..Self::default()
        }
    }
}

impl Followed for AmsAgentDescription {
    fn search(act: &Term<'_>) -> Result<Option<(Self, SearchConstraints)>, Exception> {
        Ok(match AmsFunction::from_term(act)? {
            AmsFunction::Search(template, constraints) => Some((template, constraints)),
            _ => None,
        })
    }

    fn check(&self, limits: &DirectoryLimits) -> Result<(), Exception> {
        limits.check_entry_length(self.to_term().to_bytes().len())
    }

    fn gone(&self) -> Self {
        Self {
            name: self.name.clone(),
            ..Self::default()
        }
    }
}

/// An agent's request for notifications of entries that match a template.
#[derive(Debug)]
pub(super) struct Subscription<D> {
    /// The request, to which every notification is an answer.
    request: AclMessage,
    /// The search whose result is sent.
    action: ActionExpression<'static>,
    /// The search as the subscriber refers to its result.
    expression: IdentifyingExpression<'static>,
    template: D,
    constraints: SearchConstraints,
    /// Length of its row in the store, in bytes.
    length: usize,
}

impl<D: Followed> Subscription<D> {
    /// Reads the request of a subscription. Its content has been read already.
    pub(super) fn read(message: &AclMessage, content: &Content<'_>) -> Result<Self, Exception> {
        let [ContentExpression::Identifying(expression)] = content.expressions.as_slice() else {
            return Err(Exception::UnrecognisedValue("content".into()));
        };
        let action = subscription::action(expression)?;
        let ActionExpression::Action { act, .. } = action else {
            return Err(Exception::UnrecognisedValue("content".into()));
        };
        let (template, constraints) =
            D::search(act)?.ok_or_else(|| Exception::UnrecognisedValue("content".into()))?;
        if message.conversation_id.is_none() {
            return Err(Exception::MissingParameter {
                object: "fipa-acl-message".into(),
                slot: "conversation-id".into(),
            });
        }
        let mut request = message.clone();
        // Only the subscriber is notified.
        request.reply_to.clear();
        let action = action.clone().into_owned();
        let expression = expression.clone().into_owned();
        Ok(Self {
            request,
            action,
            expression,
            template,
            constraints,
            length: 0,
        })
    }

    /// The request as the store keeps it.
    pub(super) fn row(&mut self) -> Result<Vec<u8>, Exception> {
        let mut row = Vec::new();
        bitefficient::encode(&self.request, &mut row)
            .map_err(|error| Exception::InternalError(error.to_string()))?;
        self.length = row.len();
        Ok(row)
    }

    pub(super) fn template(&self) -> &D {
        &self.template
    }

    pub(super) fn constraints(&self) -> &SearchConstraints {
        &self.constraints
    }

    /// The search whose result is sent.
    pub(super) fn action(&self) -> &ActionExpression<'static> {
        &self.action
    }

    /// The message that carries the entries.
    pub(super) fn notification<'a>(
        &self,
        own: &Aid,
        entries: impl IntoIterator<Item = &'a D>,
    ) -> AclMessage
    where
        D: 'a,
    {
        let entries = entries.into_iter().map(Description::term);
        let content = subscription::content(self.expression.clone(), entries);
        answer(own, &self.request, Performative::Inform, content)
    }

    fn agent(&self) -> &str {
        self.request
            .sender
            .as_ref()
            .map_or("", |sender| &sender.name)
    }
}

/// The share of one agent, or of another platform with all its agents.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct HolderShare {
    pub(super) count: usize,
    /// In bytes.
    pub(super) length: usize,
}

/// The key of the share that an agent uses in a directory of `platform`, and whether it is the share of another platform.
/// The key of this platform's agents is their name, and that of other platforms is `@` and their name in lower case. An
/// agent from outside can take any name of its platform, so all agents of a platform count together.
pub(super) fn holder(agent: &str, platform: &str) -> (String, bool) {
    match agent.rsplit_once('@') {
        Some((_, home)) if !home.eq_ignore_ascii_case(platform) => {
            (format!("@{}", home.to_ascii_lowercase()), true)
        }
        _ => (agent.to_owned(), false),
    }
}

/// All subscriptions, indexed so that a changed entry is compared with few of them.
#[derive(Debug)]
pub(super) struct Subscriptions<D> {
    /// The keys of their rows in the store begin with this.
    prefix: &'static str,
    /// The name of the platform.
    platform: String,
    /// The shares held, by the key of their [`holder`].
    held: HashMap<String, HolderShare>,
    /// Length of all subscriptions together, in bytes.
    length: usize,
    all: BTreeMap<Sequence, Subscription<D>>,
    /// Subscriptions by agent and conversation.
    conversations: HashMap<String, HashMap<Expression, Sequence>>,
    /// Subscriptions by one word of the template. Every matching entry has this word too.
    by_word: HashMap<u64, BTreeSet<Sequence>>,
    /// Subscriptions with templates that have no words.
    wordless: BTreeSet<Sequence>,
    filed_under: HashMap<Sequence, u64>,
    next: Sequence,
}

impl<D: Followed> Subscriptions<D> {
    /// An empty set, in a directory of this platform.
    pub(super) fn new(prefix: &'static str, platform: &str) -> Self {
        Self {
            prefix,
            platform: platform.to_owned(),
            held: HashMap::new(),
            length: 0,
            all: BTreeMap::new(),
            conversations: HashMap::new(),
            by_word: HashMap::new(),
            wordless: BTreeSet::new(),
            filed_under: HashMap::new(),
            next: 0,
        }
    }

    pub(super) fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// The key of a subscription's row in the store.
    pub(super) fn key(&self, sequence: Sequence) -> String {
        format!("{}{sequence:016x}", self.prefix)
    }

    pub(super) fn next(&self) -> Sequence {
        self.next
    }

    pub(super) fn get(&self, sequence: Sequence) -> Option<&Subscription<D>> {
        self.all.get(&sequence)
    }

    /// Checks whether another subscription of this size is within the limits.
    pub(super) fn admit(
        &self,
        agent: &str,
        length: usize,
        limits: &DirectoryLimits,
    ) -> Result<(), Exception> {
        if length > limits.subscription_length {
            let what = format!("the subscription has {length} bytes");
            return Err(exceeded(
                "subscription_length",
                limits.subscription_length,
                &what,
            ));
        }
        let (holder, is_platform) = holder(agent, &self.platform);
        let held = self.held.get(&holder).copied().unwrap_or_default();
        let (count, bytes) = if is_platform {
            (
                (
                    "subscriptions_per_platform",
                    limits.subscriptions_per_platform,
                ),
                (
                    "subscriptions_length_per_platform",
                    limits.subscriptions_length_per_platform,
                ),
            )
        } else {
            (
                ("subscriptions_per_agent", limits.subscriptions_per_agent),
                (
                    "subscriptions_length_per_agent",
                    limits.subscriptions_length_per_agent,
                ),
            )
        };
        let whose = holder.trim_start_matches('@');
        if held.count >= count.1 {
            let what = format!(
                "{whose} has {} subscriptions already; cancel one",
                held.count
            );
            return Err(exceeded(count.0, count.1, &what));
        }
        if held.length + length > bytes.1 {
            let what = format!(
                "{whose} has subscriptions of {} bytes already, and this one has {length}; cancel one",
                held.length
            );
            return Err(exceeded(bytes.0, bytes.1, &what));
        }
        if self.all.len() >= limits.subscriptions {
            let what = format!("the directory has {} subscriptions already", self.all.len());
            return Err(exceeded("subscriptions", limits.subscriptions, &what));
        }
        if self.length + length > limits.subscriptions_length {
            let what = format!(
                "the directory has subscriptions of {} bytes already",
                self.length
            );
            let most = limits.subscriptions_length;
            return Err(exceeded("subscriptions_length", most, &what));
        }
        Ok(())
    }

    /// The subscription of an agent's conversation.
    pub(super) fn find(&self, agent: &str, conversation: Option<&Expression>) -> Option<Sequence> {
        self.conversations.get(agent)?.get(conversation?).copied()
    }

    /// The agents that have subscriptions.
    pub(super) fn agents(&self) -> impl Iterator<Item = &str> {
        self.conversations.keys().map(String::as_str)
    }

    /// All subscriptions of an agent, in their order.
    pub(super) fn of_agent(&self, agent: &str) -> BTreeSet<Sequence> {
        let conversations = self.conversations.get(agent);
        conversations
            .into_iter()
            .flat_map(HashMap::values)
            .copied()
            .collect()
    }

    pub(super) fn file(
        &mut self,
        sequence: Sequence,
        subscription: Subscription<D>,
        words: &Words,
    ) {
        let (holder, _) = holder(subscription.agent(), &self.platform);
        let held = self.held.entry(holder).or_default();
        held.count += 1;
        held.length += subscription.length;
        self.length += subscription.length;
        let word = words.of(&subscription.template).first().copied();
        match word {
            Some(word) => {
                self.by_word.entry(word).or_default().insert(sequence);
                self.filed_under.insert(sequence, word);
            }
            None => {
                self.wordless.insert(sequence);
            }
        }
        if let Some(conversation) = subscription.request.conversation_id.clone() {
            let agent = subscription.agent().to_owned();
            self.conversations
                .entry(agent)
                .or_default()
                .insert(conversation, sequence);
        }
        self.all.insert(sequence, subscription);
        self.next = self.next.max(sequence + 1);
    }

    pub(super) fn take(&mut self, sequence: Sequence) -> Option<Subscription<D>> {
        let subscription = self.all.remove(&sequence)?;
        match self.filed_under.remove(&sequence) {
            Some(word) => {
                if let Some(filed) = self.by_word.get_mut(&word) {
                    filed.remove(&sequence);
                    if filed.is_empty() {
                        self.by_word.remove(&word);
                    }
                }
            }
            None => {
                self.wordless.remove(&sequence);
            }
        }
        let agent = subscription.agent();
        let (holder, _) = holder(agent, &self.platform);
        if let Some(held) = self.held.get_mut(&holder) {
            held.count -= 1;
            held.length -= subscription.length;
            if held.count == 0 {
                self.held.remove(&holder);
            }
        }
        self.length -= subscription.length;
        if let Some(conversations) = self.conversations.get_mut(agent) {
            conversations.retain(|_, filed| *filed != sequence);
            if conversations.is_empty() {
                self.conversations.remove(agent);
            }
        }
        Some(subscription)
    }

    /// Files a row of the store.
    pub(super) fn load(&mut self, key: &str, row: &[u8], words: &Words) -> Result<(), LoadError> {
        let unreadable = |detail: String| LoadError::Row {
            key: key.to_owned(),
            detail,
        };
        let number = key.strip_prefix(self.prefix).unwrap_or(key);
        let sequence =
            Sequence::from_str_radix(number, 16).map_err(|error| unreadable(error.to_string()))?;
        let request = bitefficient::decode(row, &Limits::DEFAULT)
            .map_err(|error| unreadable(error.to_string()))?;
        let mut subscription = read(&request)
            .and_then(|content| Subscription::read(&request, &content))
            .map_err(|exception| unreadable(exception.to_string()))?;
        subscription.length = row.len();
        self.file(sequence, subscription, words);
        Ok(())
    }

    /// The subscriptions with templates that the entry may match.
    pub(super) fn concerned(&self, entry: Option<&D>, words: &Words) -> BTreeSet<Sequence> {
        let Some(entry) = entry else {
            return BTreeSet::new();
        };
        let mut concerned = self.wordless.clone();
        for word in words.of(entry) {
            concerned.extend(self.by_word.get(&word).into_iter().flatten());
        }
        concerned
    }
}
