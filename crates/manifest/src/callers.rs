//! `[gateway.mcp]` and `[gateway.a2a]`: programs from outside, as callers of agents.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::uri::{Authority, Uri};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// `[gateway.mcp]`, the platform as a server of the Model Context Protocol, or `[gateway.a2a]`, its agents as servers of A2A.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CallersEntry {
    /// The address on which it listens. It speaks HTTP without TLS and shows keys to everyone on the way, so it must be a
    /// loopback address.
    pub listen: SocketAddr,
    /// The names by which callers may reach it (`Host`), besides those of the loopback: those of a proxy before it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The web pages whose scripts may call (`Origin`), such as `https://app.example:443`. Without an entry, none may.
    #[serde(default)]
    pub origins: Vec<String>,
    /// The agent in whose name callers without a key act.
    #[serde(default)]
    pub anonymous: Option<String>,
    /// The callers with keys.
    #[serde(default, rename = "caller")]
    pub callers: Vec<CallerEntry>,
}

/// `[[gateway.mcp.caller]]`, `[[gateway.a2a.caller]]`: a caller from outside, which is an agent of this platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CallerEntry {
    /// The agent's name.
    pub name: String,
    /// The SHA-256 hash of its key.
    pub key: KeyHash,
}

/// The SHA-256 hash of a key, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyHash(pub [u8; 32]);

/// A text is not the hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the hash of a key is written sha256: and 64 hexadecimal digits, as `sealbus gateway key` prints it"
)]
pub struct NoKeyHash;

/// An entry names no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoPlace {
    /// It is no host.
    #[error(
        "{0:?} in `hosts` is no name of a host: write it as agents.example or agents.example:8443"
    )]
    Host(String),
    /// It is no origin.
    #[error("{0:?} in `origins` is no origin of web pages: write it as https://app.example:443")]
    Origin(String),
}

impl TryFrom<String> for KeyHash {
    type Error = NoKeyHash;

    fn try_from(text: String) -> Result<Self, NoKeyHash> {
        let digits = text.strip_prefix("sha256:").ok_or(NoKeyHash)?;
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(NoKeyHash);
        }
        let mut hash = [0; 32];
        for (byte, place) in hash.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&digits[place..place + 2], 16).map_err(|_| NoKeyHash)?;
        }
        Ok(Self(hash))
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> String {
        hash.to_string()
    }
}

impl std::fmt::Display for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl CallersEntry {
    /// The names of the agents that callers are.
    pub fn agents(&self) -> impl Iterator<Item = &String> {
        let named = self.callers.iter().map(|caller| &caller.name);
        named.chain(&self.anonymous)
    }

    /// The [`hosts`](Self::hosts), read.
    ///
    /// # Errors
    /// [`NoPlace`] names the entry.
    pub fn authorities(&self) -> Result<Vec<Authority>, NoPlace> {
        let read = |text: &String| {
            let read = text.parse().ok();
            let read = read.filter(|it: &Authority| !it.as_str().contains('@'));
            read.ok_or_else(|| NoPlace::Host(text.clone()))
        };
        self.hosts.iter().map(read).collect()
    }

    /// The [`origins`](Self::origins), read. Each has a scheme and a host.
    ///
    /// # Errors
    /// [`NoPlace`] names the entry.
    pub fn pages(&self) -> Result<Vec<Uri>, NoPlace> {
        let read = |text: &String| {
            let read = text.parse().ok();
            let read = read.filter(|it: &Uri| it.scheme().is_some() && it.host().is_some());
            read.ok_or_else(|| NoPlace::Origin(text.clone()))
        };
        self.origins.iter().map(read).collect()
    }

    /// Checks everything that the types do not.
    pub(crate) fn check(&self, section: &str) -> Result<(), String> {
        if !self.listen.ip().is_loopback() {
            return Err(format!(
                "[{section}] would show keys to the network at {}: listen on 127.0.0.1, and put a proxy with TLS before it",
                self.listen
            ));
        }
        if self.agents().next().is_none() {
            return Err(format!(
                "[{section}] has no caller: add [[{section}.caller]], or `anonymous = \"guest\"` for all programs of this machine"
            ));
        }
        let places = self.authorities().err().or(self.pages().err());
        if let Some(error) = places {
            return Err(format!("[{section}]: {error}"));
        }
        let mut keys = BTreeSet::new();
        match self.callers.iter().find(|it| !keys.insert(it.key)) {
            Some(caller) => Err(format!("{} has the key of another caller", caller.name)),
            None => Ok(()),
        }
    }
}
