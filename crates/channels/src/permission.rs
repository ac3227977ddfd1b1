//! Permissions on channels.

use std::collections::HashMap;

use sealbus_seal::PlatformName;
use sealbus_seal::permission::{AgentSet, ChannelRight, ChannelRule, Policy, PolicyError};
use thiserror::Error;

use super::path::{ChannelPath, PathError};
use super::pattern::{ChannelPattern, PatternIndex};

/// The most rules about channels.
pub const MOST_CHANNEL_RULES: usize = 1024;

/// The reason why the rules of a policy about channels cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChannelPermissionError {
    /// A group or an agent in the policy is not valid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A pattern is not valid.
    #[error("rule {rule} of the policy about channels: {error}")]
    Pattern {
        /// The number of the rule, from 1.
        rule: usize,
        /// The fault.
        error: PathError,
    },
    /// Too many rules.
    #[error(
        "the policy has {0} rules about channels, but at most {MOST_CHANNEL_RULES} may be given; use groups and patterns"
    )]
    TooManyRules(usize),
}

/// The compiled rules of a [`Policy`] about channels. An index finds the rules whose patterns match a channel. A
/// decision looks only at these and needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct ChannelPermissions {
    rules: Vec<CompiledRule>,
    /// For each right, the numbers of the rules about it.
    by_right: [PatternIndex<usize>; ChannelRight::ALL.len()],
    /// For each named agent, the rules that name it, as bits. The rules for all agents are not included.
    named: HashMap<String, Vec<u64>>,
}

#[derive(Clone, Debug)]
struct CompiledRule {
    allow: bool,
    everybody: bool,
    rights: Vec<ChannelRight>,
    on: Vec<ChannelPattern>,
}

impl ChannelPermissions {
    /// Compiles the rules for a platform. The platform's name completes agents' local names.
    ///
    /// # Errors
    /// [`ChannelPermissionError`] with the fault of the rule.
    pub fn compile(
        policy: &Policy,
        platform: &PlatformName,
    ) -> Result<Self, ChannelPermissionError> {
        let count = policy.channel_rules.len();
        if count > MOST_CHANNEL_RULES {
            return Err(ChannelPermissionError::TooManyRules(count));
        }
        let groups = policy.members(platform)?;
        let mut compiled = Self::default();
        for (number, rule) in policy.channel_rules.iter().enumerate() {
            let (allow, uses) = match rule {
                ChannelRule::Allow(uses) => (true, uses),
                ChannelRule::Deny(uses) => (false, uses),
            };
            let on = uses
                .on
                .iter()
                .map(|text| ChannelPattern::new(text))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| ChannelPermissionError::Pattern {
                    rule: number + 1,
                    error,
                })?;
            for right in &uses.rights {
                for pattern in &on {
                    compiled.by_right[index(*right)].insert(pattern, number);
                }
            }
            let agents = AgentSet::new(&uses.agents, &groups, platform)?;
            for name in agents.names() {
                let bits = compiled
                    .named
                    .entry(name.clone())
                    .or_insert_with(|| vec![0; count.div_ceil(64)]);
                bits[number / 64] |= 1 << (number % 64);
            }
            compiled.rules.push(CompiledRule {
                allow,
                everybody: agents.is_everybody(),
                rights: uses.rights.clone(),
                on,
            });
        }
        Ok(compiled)
    }

    /// Whether the agent with this AID name has this right on the channel.
    pub fn may(&self, agent: &str, right: ChannelRight, channel: &ChannelPath) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let named = self.named.get(agent);
        let mut first = usize::MAX;
        self.by_right[index(right)].for_each_match(channel, |number| {
            if *number < first && self.is_about(*number, named) {
                first = *number;
            }
        });
        self.rules.get(first).is_none_or(|rule| rule.allow)
    }

    /// Whether the agent may have this right on some channel of this pattern. If so, its subscription to the pattern is
    /// accepted, and sees the channels that [`may`](Self::may) allows.
    pub fn may_on_some(&self, agent: &str, right: ChannelRight, pattern: &ChannelPattern) -> bool {
        if let Some(channel) = pattern.as_path() {
            return self.may(agent, right, &channel);
        }
        let named = self.named.get(agent);
        for (number, rule) in self.rules.iter().enumerate() {
            if !rule.rights.contains(&right) || !self.is_about(number, named) {
                continue;
            }
            if rule.allow && rule.on.iter().any(|on| on.overlaps(pattern)) {
                return true;
            }
            if !rule.allow && rule.on.iter().any(|on| on.covers(pattern)) {
                return false;
            }
        }
        true
    }

    /// Whether the rules make no difference: everything is allowed.
    pub fn allow_everything(&self) -> bool {
        self.rules.iter().all(|rule| rule.allow)
    }

    fn is_about(&self, number: usize, named: Option<&Vec<u64>>) -> bool {
        self.rules.get(number).is_some_and(|rule| rule.everybody)
            || named.is_some_and(|bits| bits[number / 64] & (1 << (number % 64)) != 0)
    }
}

const fn index(right: ChannelRight) -> usize {
    right as usize
}
