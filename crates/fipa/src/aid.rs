//! Agent identifiers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::Expression;

/// An agent identifier (AID, FIPA00023): a globally unique name, and the addresses of its agent.
///
/// Two AIDs are equal when all their parts are. The name alone decides whether two AIDs name the same agent: use
/// [`names_same_agent`](Self::names_same_agent).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aid {
    /// The globally unique name, by custom `local@hap` where `hap` is the home platform's name.
    pub name: String,
    /// Transport addresses (URLs), the preferred one first.
    pub addresses: Vec<String>,
    /// Agents that can find addresses for this name, the preferred one first.
    pub resolvers: Vec<Aid>,
    /// Further parameters, by custom with names that begin with `X-`.
    pub user_defined: Vec<(String, Expression)>,
}

/// Why a text is not the name of an agent.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AidError {
    /// The name is empty, or nothing stands before or after its last `@`.
    #[error("'{0}' is not an agent name: write it as local or local@platform, both not empty")]
    Empty(String),
    /// The name holds a character that would need quoting or could deceive a reader.
    #[error(
        "'{}' is not an agent name: character {character:?} at byte {offset} is not allowed (no blanks, control characters, quotes or parentheses)",
        name.escape_debug()
    )]
    Character {
        /// The text given.
        name: String,
        /// The first character that is not allowed.
        character: char,
        /// The place of the character, in bytes.
        offset: usize,
    },
}

impl Aid {
    /// An AID with this name and nothing else.
    ///
    /// # Errors
    /// [`AidError`] if the name is empty or contains blanks, control characters, quotes or parentheses.
    pub fn new(name: impl Into<String>) -> Result<Self, AidError> {
        let name = name.into();
        let forbidden =
            |c: char| c.is_control() || c.is_whitespace() || matches!(c, '(' | ')' | '"');
        if let Some((offset, character)) = name.char_indices().find(|(_, c)| forbidden(*c)) {
            return Err(AidError::Character {
                name,
                character,
                offset,
            });
        }
        let (local, platform) = split_name(&name);
        if local.is_empty() || platform.is_some_and(str::is_empty) {
            return Err(AidError::Empty(name));
        }
        Ok(Self::unchecked(name))
    }

    /// An AID with a name from the wire, where any text is possible.
    pub(crate) fn unchecked(name: String) -> Self {
        Self {
            name,
            addresses: Vec::new(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        }
    }

    /// Adds a transport address after those it has.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Adds a resolver after those it has.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Aid) -> Self {
        self.resolvers.push(resolver);
        self
    }

    /// Adds a user-defined parameter, by custom named `X-…`.
    #[must_use]
    pub fn with_user_defined(
        mut self,
        name: impl Into<String>,
        value: impl Into<Expression>,
    ) -> Self {
        self.user_defined.push((name.into(), value.into()));
        self
    }

    /// Whether both AIDs name the same agent: their names are equal. Addresses may differ (FIPA00023).
    pub fn names_same_agent(&self, other: &Aid) -> bool {
        self.name == other.name
    }

    /// The name without its platform: everything before the last `@`.
    pub fn local_name(&self) -> &str {
        split_name(&self.name).0
    }

    /// The home platform: everything after the last `@`.
    pub fn platform(&self) -> Option<&str> {
        split_name(&self.name).1
    }
}

/// The length of the longest list of agents: of this one, or of the resolvers in it.
#[cfg(feature = "json")]
pub(crate) fn longest_list(aids: &[Aid]) -> usize {
    let resolvers = aids.iter().map(|aid| longest_list(&aid.resolvers));
    resolvers.fold(aids.len(), usize::max)
}

/// Splits an agent name at its last `@` into local name and platform.
pub fn split_name(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('@') {
        Some((local, platform)) => (local, Some(platform)),
        None => (name, None),
    }
}

impl FromStr for Aid {
    type Err = AidError;

    fn from_str(name: &str) -> Result<Self, AidError> {
        Self::new(name)
    }
}

impl fmt::Display for Aid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
