//! The identities that can be certified, and the only spelling of each name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest legal name of a platform, agent, node or authority, in bytes.
pub const LONGEST_NAME: usize = 128;

const SCHEME: &str = "spiffe://";

/// A legal local name of an agent, a node or an authority.
///
/// A name has 1 to 128 characters: ASCII letters, digits, `-`, `_` and `.`, starting with a letter or digit. Such a
/// name is legal as the local part of an AID, as a path segment of a SPIFFE ID (SPIFFE-ID section 2.2), and as a queue
/// name of every broker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A legal platform name (`hap`). It is a [`Name`] in lower case, as SPIFFE trust domains are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlatformName(Arc<str>);

/// The identifier of one run of one process: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId([u8; 16]);

/// The identity that a certificate speaks for.
///
/// Each identity has exactly one SPIFFE URI, and each such URI names one identity ([`fmt::Display`] and [`FromStr`]):
///
/// | identity | URI |
/// |---|---|
/// | agent `seller-3@factory` | `spiffe://factory/agent/seller-3` |
/// | Remote Node `node-1` | `spiffe://factory/node/node-1` |
/// | a process on it | `spiffe://factory/node/node-1/process/<32 hexadecimal digits>` |
/// | a CA | `spiffe://factory/authority/ca-1` |
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// An agent, named `name@platform`.
    Agent {
        /// The platform it lives on.
        platform: PlatformName,
        /// The agent's local name, the part of its AID before the `@`.
        name: Name,
    },
    /// A Remote Node (or the Master's own node).
    Node {
        /// The platform it belongs to.
        platform: PlatformName,
        /// The node's name.
        name: Name,
    },
    /// A process in which agents run. It has the mesh endpoint that they share.
    Process {
        /// The platform it belongs to.
        platform: PlatformName,
        /// The node that vouched for it.
        node: Name,
        /// The process's id.
        process: ProcessId,
    },
    /// A certification authority: the root, or a CA service instance.
    Authority {
        /// The platform it certifies for.
        platform: PlatformName,
        /// The authority's name.
        name: Name,
    },
}

/// Why a name or an identity is not legal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// The name is empty.
    #[error("the {what} name is empty")]
    Empty {
        /// The kind of thing that was named.
        what: &'static str,
    },
    /// The name is longer than [`LONGEST_NAME`].
    #[error("the {what} name {start:?}… has {length} bytes; at most {LONGEST_NAME} are allowed")]
    TooLong {
        /// The kind of thing that was named.
        what: &'static str,
        /// The beginning of the name.
        start: String,
        /// The name's length in bytes.
        length: usize,
    },
    /// The name contains a character that is not allowed at its place.
    #[error("the {what} name {name:?} holds {character:?} at position {position}: {allowed}")]
    IllegalCharacter {
        /// The kind of thing that was named.
        what: &'static str,
        /// The name.
        name: String,
        /// The offending character.
        character: char,
        /// The character's position, counted in characters from 1.
        position: usize,
        /// The legal form.
        allowed: &'static str,
    },
    /// The text has no `@` between a local name and a platform.
    #[error("{0:?} is not an agent name of the form name@platform, such as seller-1@factory")]
    NoPlatform(String),
    /// The text is not one of the SPIFFE URIs in the table of [`Identity`].
    #[error(
        "{0:?} is not a Sealbus identity, such as spiffe://factory/agent/seller-1 or spiffe://factory/node/node-1"
    )]
    NotAnIdentity(String),
    /// The text is not a process identifier of 32 lower-case hexadecimal digits.
    #[error("{0:?} is not a process identifier of 32 lower-case hexadecimal digits")]
    NotAProcess(String),
}

impl Name {
    /// Checks and keeps a name. `what` says in errors what is named: `agent`, `node`, …
    pub fn new(what: &'static str, name: &str) -> Result<Self, IdentityError> {
        check(what, name, false)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PlatformName {
    /// Checks and keeps a platform name.
    pub fn new(name: &str) -> Result<Self, IdentityError> {
        check("platform", name, true)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(what: &'static str, name: &str, lower_case: bool) -> Result<(), IdentityError> {
    if name.is_empty() {
        return Err(IdentityError::Empty { what });
    }
    if name.len() > LONGEST_NAME {
        return Err(IdentityError::TooLong {
            what,
            start: excerpt(name),
            length: name.len(),
        });
    }
    let illegal = |(index, character): &(usize, char)| match character {
        'a'..='z' | '0'..='9' => false,
        'A'..='Z' => lower_case,
        '-' | '_' | '.' => *index == 0,
        _ => true,
    };
    match name.chars().enumerate().find(illegal) {
        None => Ok(()),
        Some((index, character)) => Err(IdentityError::IllegalCharacter {
            what,
            name: name.to_owned(),
            character,
            position: index + 1,
            allowed: match (character, lower_case) {
                ('-' | '_' | '.', _) => "start with a letter or a digit",
                (_, false) => "use letters, digits, '-', '_' and '.'",
                (_, true) => "use lower-case letters, digits, '-', '_' and '.'",
            },
        }),
    }
}

/// The beginning of a text, which may be long and hostile, for an error.
fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

impl ProcessId {
    /// A process identifier from 16 random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A fresh random identifier.
    pub fn random() -> Result<Self, crate::KeyError> {
        crate::key::random().map(Self)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl Identity {
    /// The agent `name` on `platform`.
    pub fn agent(platform: &PlatformName, name: &str) -> Result<Self, IdentityError> {
        Ok(Self::Agent {
            platform: platform.clone(),
            name: Name::new("agent", name)?,
        })
    }

    /// The Remote Node `name` of `platform`.
    pub fn node(platform: &PlatformName, name: &str) -> Result<Self, IdentityError> {
        Ok(Self::Node {
            platform: platform.clone(),
            name: Name::new("node", name)?,
        })
    }

    /// The process `process` on the node `node` of `platform`.
    pub fn process(
        platform: &PlatformName,
        node: &str,
        process: ProcessId,
    ) -> Result<Self, IdentityError> {
        Ok(Self::Process {
            platform: platform.clone(),
            node: Name::new("node", node)?,
            process,
        })
    }

    /// The authority `name` of `platform`.
    pub fn authority(platform: &PlatformName, name: &str) -> Result<Self, IdentityError> {
        Ok(Self::Authority {
            platform: platform.clone(),
            name: Name::new("authority", name)?,
        })
    }

    /// The agent with this AID name, such as `seller-3@factory`. The platform follows the last `@`.
    pub fn from_agent_name(name: &str) -> Result<Self, IdentityError> {
        let (local, platform) = name
            .rsplit_once('@')
            .ok_or_else(|| IdentityError::NoPlatform(excerpt(name)))?;
        Self::agent(&PlatformName::new(platform)?, local)
    }

    /// The AID name `name@platform` of an agent; `None` for any other identity.
    pub fn agent_name(&self) -> Option<String> {
        match self {
            Self::Agent { platform, name } => Some(format!("{name}@{platform}")),
            _ => None,
        }
    }

    /// Whether this is the agent with that AID name. Does not allocate.
    pub fn is_agent_named(&self, agent_name: &str) -> bool {
        match self {
            Self::Agent { platform, name } => agent_name
                .strip_suffix(platform.as_str())
                .and_then(|rest| rest.strip_suffix('@'))
                .is_some_and(|local| local == name.as_str()),
            _ => false,
        }
    }

    /// The platform it belongs to.
    pub fn platform(&self) -> &PlatformName {
        match self {
            Self::Agent { platform, .. }
            | Self::Node { platform, .. }
            | Self::Process { platform, .. }
            | Self::Authority { platform, .. } => platform,
        }
    }

    /// The kind of the identity.
    pub fn kind(&self) -> IdentityKind {
        match self {
            Self::Agent { .. } => IdentityKind::Agent,
            Self::Node { .. } => IdentityKind::Node,
            Self::Process { .. } => IdentityKind::Process,
            Self::Authority { .. } => IdentityKind::Authority,
        }
    }

    /// The node that this identity is, or runs on; `None` for agents and authorities, whose names do not include their
    /// node.
    pub fn node_name(&self) -> Option<&Name> {
        match self {
            Self::Node { name, .. } => Some(name),
            Self::Process { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The path of the URI without its leading slash. It is also the certificate's UID, except for agents.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Agent { name, .. } => format!("agent/{name}"),
            Self::Node { name, .. } => format!("node/{name}"),
            Self::Process { node, process, .. } => format!("node/{node}/process/{process}"),
            Self::Authority { name, .. } => format!("authority/{name}"),
        }
    }

    /// The UID in the subject of the identity's certificate. For an agent it is the bare local name. For every other
    /// identity it is the path, which contains `/`; no agent name does.
    pub(crate) fn subject_uid(&self) -> String {
        match self {
            Self::Agent { name, .. } => name.to_string(),
            _ => self.path(),
        }
    }
}

/// The kinds of [`Identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentityKind {
    /// An agent.
    Agent,
    /// A node.
    Node,
    /// A process on a node.
    Process,
    /// A certification authority.
    Authority,
}

impl fmt::Display for IdentityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agent => "agent",
            Self::Node => "node",
            Self::Process => "process",
            Self::Authority => "authority",
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.platform(), self.path())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let foreign = || IdentityError::NotAnIdentity(excerpt(uri));
        let rest = uri.strip_prefix(SCHEME).ok_or_else(foreign)?;
        let mut segments = rest.splitn(6, '/');
        let platform = PlatformName::new(segments.next().ok_or_else(foreign)?)?;
        let segments = [(); 5].map(|()| segments.next());
        match segments {
            [Some("agent"), Some(name), None, ..] => Self::agent(&platform, name),
            [Some("node"), Some(name), None, ..] => Self::node(&platform, name),
            [
                Some("node"),
                Some(node),
                Some("process"),
                Some(process),
                None,
            ] => Self::process(&platform, node, process.parse()?),
            [Some("authority"), Some(name), None, ..] => Self::authority(&platform, name),
            _ => Err(foreign()),
        }
    }
}

impl Serialize for Identity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Identity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ProcessId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| IdentityError::NotAProcess(excerpt(text)))
    }
}

impl Serialize for ProcessId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ProcessId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

macro_rules! name_traits {
    ($type:ident, $check:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = IdentityError;

            fn from_str(text: &str) -> Result<Self, IdentityError> {
                $check(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdentityError;

            fn try_from(text: String) -> Result<Self, IdentityError> {
                $check(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name_traits!(Name, |text| Name::new("agent or node", text));
name_traits!(PlatformName, PlatformName::new);
