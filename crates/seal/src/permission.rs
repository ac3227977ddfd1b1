//! Rules for messages between agents, and for actions on channels. By default every agent may do everything. A policy
//! narrows that.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::identity::{Identity, IdentityError, PlatformName};

/// The most classes of agents that a policy may distinguish.
const MOST_CLASSES: usize = 512;

/// The most rules of a policy.
pub const MOST_RULES: usize = 1024;

/// A policy as written in the manifest. Rules are tried in order, and the first one that matches decides. If no rule
/// matches, the message may be sent.
///
/// ```toml
/// [permission.groups]
/// sellers = ["seller-1", "seller-2"]
///
/// [[permission.rule]]
/// allow = { from = ["sellers"], to = ["broker", "sellers"] }
///
/// [[permission.rule]]
/// deny = { from = ["sellers"], to = ["*"] }
///
/// [[permission.rule]]
/// deny = { from = ["*"], to = ["vault"], on-behalf-of = ["*"] }
///
/// [[permission.channel]]
/// allow = { agents = ["sellers"], do = ["publish", "answer"], on = ["/prices/**"] }
///
/// [[permission.channel]]
/// deny = { agents = ["*"], do = ["publish"], on = ["/prices/**"] }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Groups of agents, by name. Members are agents: `seller-1`, or `seller-1@factory`.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
    /// The rules, in order.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    /// The rules for channels, in order. The bus compiles them.
    #[serde(default, rename = "channel")]
    pub channel_rules: Vec<ChannelRule>,
}

/// One rule of a [`Policy`] about channels. As with [`Rule`], the first rule that matches decides. If no rule matches,
/// the action is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ChannelRule {
    /// These agents may do these things on these channels.
    Allow(ChannelUses),
    /// These agents may not do these things on these channels.
    Deny(ChannelUses),
}

/// The agents, actions and channels of a [`ChannelRule`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelUses {
    /// Groups, agents, or `*` for all agents.
    pub agents: Vec<String>,
    /// The actions.
    #[serde(rename = "do")]
    pub rights: Vec<ChannelRight>,
    /// Patterns of channels, such as `/prices/**`.
    pub on: Vec<String>,
}

/// The actions of an agent on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelRight {
    /// Publish events, send messages and ask everyone.
    Publish,
    /// See events, and messages sent to the agent on the channel.
    Subscribe,
    /// See requests to everyone, and answer them.
    Answer,
}

impl ChannelRight {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Publish, Self::Subscribe, Self::Answer];

    /// The name used in policies and in errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Answer => "answer",
        }
    }
}

/// One rule of a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Rule {
    /// These messages may be sent.
    Allow(Messages),
    /// These messages may not be sent.
    Deny(Messages),
}

/// The messages that a rule applies to. Each entry is a group, an agent, or `*` for all agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Their senders.
    pub from: Vec<String>,
    /// Their receivers.
    pub to: Vec<String>,
    /// The agents on whose behalf the messages ask. Without it, a rule applies to all messages. With it, a rule applies only
    /// to messages on behalf of others: a denying rule if it names one of them; an allowing rule if it names all of them.
    #[serde(
        default,
        rename = "on-behalf-of",
        skip_serializing_if = "Option::is_none"
    )]
    pub on_behalf_of: Option<Vec<String>>,
}

/// A compiled policy: a decision is two look-ups in tables.
#[derive(Clone, Debug)]
pub struct Permissions {
    /// The class of each agent that the policy names. All other agents are of class 0.
    classes: HashMap<String, u32>,
    count: usize,
    /// The decisions: `count` × `count` of them, one row for each sender's class.
    allowed: Vec<bool>,
    /// The rules for messages on behalf of others, in order.
    delegated: Vec<Delegated>,
    /// The place of the rule behind each decision, if there are rules for messages on behalf of others.
    deciding: Vec<Option<usize>>,
}

/// A rule for messages on behalf of others.
#[derive(Clone, Debug)]
struct Delegated {
    allow: bool,
    askers: AgentSet,
    /// The classes of senders, and below of receivers, that the rule is for.
    from: Vec<bool>,
    to: Vec<bool>,
    /// The rule's place among all rules.
    place: usize,
}

/// Why a policy cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A name in it is not that of an agent.
    #[error("the policy names {name:?}: {error}")]
    Name {
        /// The name.
        name: String,
        /// The fault in it.
        error: IdentityError,
    },
    /// The name of a group could be mistaken for an agent, or for `*`.
    #[error("a group cannot be named {0:?}: use letters, digits, '-', '_' and '.'")]
    GroupName(String),
    /// The policy has too many rules.
    #[error("the policy has {0} rules, but at most {MOST_RULES} may be given; use groups")]
    TooManyRules(usize),
    /// The policy distinguishes too many classes of agents.
    #[error("the policy distinguishes more than {MOST_CLASSES} kinds of agents; use groups")]
    TooManyClasses,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            classes: HashMap::new(),
            count: 1,
            allowed: vec![true],
            delegated: Vec::new(),
            deciding: Vec::new(),
        }
    }
}

impl Policy {
    /// The members of each group, by AID name.
    ///
    /// # Errors
    /// [`PolicyError`] if a group or a member has no legal name.
    pub fn members(&self, platform: &PlatformName) -> Result<Groups<'_>, PolicyError> {
        let mut groups = HashMap::new();
        for (group, members) in &self.groups {
            crate::Name::new("group", group).map_err(|_| PolicyError::GroupName(group.clone()))?;
            let members = members
                .iter()
                .map(|member| full_name(member, platform))
                .collect::<Result<HashSet<_>, _>>()?;
            groups.insert(group.as_str(), members);
        }
        Ok(groups)
    }

    /// Compiles the rules about messages for a platform. The platform's name completes agents' local names.
    ///
    /// # Errors
    /// [`PolicyError`] with the fault of the rule.
    pub fn compile(&self, platform: &PlatformName) -> Result<Permissions, PolicyError> {
        self.compile_beside(platform, &[])
    }

    /// As [`compile`](Self::compile), on a platform with `services` of its own: agents, given by their local names,
    /// that `*` does not match. So rules for all agents do not cut agents off from the services, or the services from
    /// each other. A rule that names a service applies to it.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_beside(
        &self,
        platform: &PlatformName,
        services: &[&str],
    ) -> Result<Permissions, PolicyError> {
        if self.rules.len() > MOST_RULES {
            return Err(PolicyError::TooManyRules(self.rules.len()));
        }
        let groups = self.members(platform)?;
        let rules = self
            .rules
            .iter()
            .map(|rule| CompiledRule::new(rule, &groups, platform))
            .collect::<Result<Vec<_>, _>>()?;

        let services = services
            .iter()
            .map(|service| full_name(service, platform))
            .collect::<Result<HashSet<_>, _>>()?;

        // Agents that match the same sides of the same rules form one class.
        let named: HashSet<&String> = rules
            .iter()
            .flat_map(|rule| rule.from.names().chain(rule.to.names()))
            .chain(&services)
            .collect();
        let mut signatures = vec![
            rules
                .iter()
                .map(CompiledRule::of_unnamed)
                .collect::<Vec<_>>(),
        ];
        let mut by_signature = HashMap::from([(signatures[0].clone(), 0)]);
        let mut classes = HashMap::new();
        for name in named {
            let is_service = services.contains(name);
            let sides = |rule: &CompiledRule| match is_service {
                true => rule.sides_by_name(name),
                false => rule.sides(name),
            };
            let signature: Vec<_> = rules.iter().map(sides).collect();
            let class = *by_signature.entry(signature.clone()).or_insert_with(|| {
                signatures.push(signature);
                signatures.len() as u32 - 1
            });
            if signatures.len() > MOST_CLASSES {
                return Err(PolicyError::TooManyClasses);
            }
            classes.insert(name.clone(), class);
        }
        // The place of the first rule for all messages that decides about a pair of classes.
        let deciding: Vec<Option<usize>> = signatures
            .iter()
            .flat_map(|sender| signatures.iter().map(move |receiver| (sender, receiver)))
            .map(|(sender, receiver)| {
                let mut sides = rules.iter().zip(sender.iter().zip(receiver));
                sides.position(|(rule, (sender, receiver))| {
                    rule.askers.is_none() && sender.0 && receiver.1
                })
            })
            .collect();
        let decision = |place: &Option<usize>| place.is_none_or(|place| rules[place].allow);
        let allowed = deciding.iter().map(decision).collect();
        let delegated: Vec<Delegated> = rules
            .iter()
            .enumerate()
            .filter_map(|(place, rule)| {
                let side = |of: fn(&(bool, bool)) -> bool| {
                    signatures.iter().map(|it| of(&it[place])).collect()
                };
                Some(Delegated {
                    allow: rule.allow,
                    askers: rule.askers.clone()?,
                    from: side(|it| it.0),
                    to: side(|it| it.1),
                    place,
                })
            })
            .collect();
        let is_delegated = !delegated.is_empty();
        Ok(Permissions {
            classes,
            count: signatures.len(),
            allowed,
            deciding: match is_delegated {
                true => deciding,
                false => Vec::new(),
            },
            delegated,
        })
    }
}

impl Permissions {
    /// Whether the agent `sender` may write to the agent `receiver`, both by AID name. O(1).
    pub fn may_send(&self, sender: &str, receiver: &str) -> bool {
        if self.count == 1 {
            return self.allowed[0];
        }
        self.allowed[self.class(sender) * self.count + self.class(receiver)]
    }

    /// Whether the agent `sender` may write to the agent `receiver` on behalf of `askers`, all given by AID name.
    /// Without askers, it is [`may_send`](Self::may_send).
    pub fn may_send_for(&self, sender: &str, receiver: &str, askers: &[String]) -> bool {
        if self.delegated.is_empty() || askers.is_empty() {
            return self.may_send(sender, receiver);
        }
        let (from, to) = (self.class(sender), self.class(receiver));
        let pair = from * self.count + to;
        let decided = self.deciding[pair].unwrap_or(usize::MAX);
        let mut earlier = self
            .delegated
            .iter()
            .take_while(|rule| rule.place < decided);
        let found = earlier.find(|rule| rule.from[from] && rule.to[to] && rule.is_for(askers));
        found.map_or(self.allowed[pair], |rule| rule.allow)
    }

    /// Whether the policy allows all messages.
    pub fn allow_everything(&self) -> bool {
        self.allowed.iter().all(|allowed| *allowed) && self.delegated.iter().all(|it| it.allow)
    }

    fn class(&self, agent: &str) -> usize {
        self.classes.get(agent).map_or(0, |class| *class as usize)
    }
}

impl Delegated {
    fn is_for(&self, askers: &[String]) -> bool {
        match self.allow {
            true => askers.iter().all(|it| self.askers.holds(it)),
            false => askers.iter().any(|it| self.askers.holds(it)),
        }
    }
}

/// The members of each group of a [`Policy`].
pub type Groups<'a> = HashMap<&'a str, HashSet<String>>;

/// The agents of a rule.
#[derive(Clone, Debug, Default)]
pub struct AgentSet {
    /// Whether all agents are meant.
    everybody: bool,
    /// The AID names that the rule names, even if it also has `*`.
    names: HashSet<String>,
}

struct CompiledRule {
    allow: bool,
    from: AgentSet,
    to: AgentSet,
    askers: Option<AgentSet>,
}

impl AgentSet {
    /// The agents of a rule: groups, agents, or `*`.
    ///
    /// # Errors
    /// [`PolicyError::Name`] for any other entry.
    pub fn new(
        entries: &[String],
        groups: &Groups<'_>,
        platform: &PlatformName,
    ) -> Result<Self, PolicyError> {
        let mut set = Self::default();
        for entry in entries {
            match groups.get(entry.as_str()) {
                _ if entry == "*" => set.everybody = true,
                Some(members) => set.names.extend(members.iter().cloned()),
                None => {
                    set.names.insert(full_name(entry, platform)?);
                }
            }
        }
        Ok(set)
    }

    /// Whether all agents are meant.
    pub fn is_everybody(&self) -> bool {
        self.everybody
    }

    /// Whether the agent with this AID name is one of them.
    pub fn holds(&self, name: &str) -> bool {
        self.everybody || self.names_one(name)
    }

    /// Whether the agent with this AID name is listed by name, and not only matched by `*`.
    fn names_one(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The agents that are named.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }
}

impl CompiledRule {
    fn new(rule: &Rule, groups: &Groups<'_>, platform: &PlatformName) -> Result<Self, PolicyError> {
        let (allow, messages) = match rule {
            Rule::Allow(messages) => (true, messages),
            Rule::Deny(messages) => (false, messages),
        };
        let side = |entries: &[String]| AgentSet::new(entries, groups, platform);
        Ok(Self {
            allow,
            from: side(&messages.from)?,
            to: side(&messages.to)?,
            askers: messages.on_behalf_of.as_deref().map(side).transpose()?,
        })
    }

    /// Whether the agent matches as a sender, and as a receiver.
    fn sides(&self, name: &str) -> (bool, bool) {
        (self.from.holds(name), self.to.holds(name))
    }

    /// As [`sides`](Self::sides), for an agent that `*` does not match.
    fn sides_by_name(&self, name: &str) -> (bool, bool) {
        (self.from.names_one(name), self.to.names_one(name))
    }

    /// As [`sides`](Self::sides), for agents that no rule names.
    fn of_unnamed(&self) -> (bool, bool) {
        (self.from.everybody, self.to.everybody)
    }
}

fn full_name(name: &str, platform: &PlatformName) -> Result<String, PolicyError> {
    let bad = |error| PolicyError::Name {
        name: name.to_owned(),
        error,
    };
    if name.contains('@') {
        Identity::from_agent_name(name).map_err(bad)?;
        return Ok(name.to_owned());
    }
    Identity::agent(platform, name).map_err(bad)?;
    Ok(format!("{name}@{platform}"))
}
