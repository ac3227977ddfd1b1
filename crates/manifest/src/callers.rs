//! `[gateway.mcp]` and `[gateway.a2a]`: programs from outside, as callers of agents.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use http::uri::{Authority, Uri};
use sealbus_web::reach::Reach;
use sealbus_web::tls::TlsConfig;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// `[gateway.mcp]`, the platform as a server of the Model Context Protocol, or `[gateway.a2a]`, its agents as servers of A2A.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CallersEntry {
    /// The address on which it listens. Without `tls` it shows keys to everyone on the way, so it must be a loopback address.
    pub listen: SocketAddr,
    /// HTTPS in place of HTTP, with the operator's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// The certificates, in PEM, against which servers of others are checked. By default the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<PathBuf>,
    /// The issuer of tokens for callers, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthEntry>,
    /// Where push notifications may go, if there are any: `[gateway.a2a]` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<WebhooksEntry>,
    /// The names by which callers may reach it (`Host`), besides its own address: those of its certificate, or of a proxy
    /// before it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The web pages whose scripts may call (`Origin`), such as `https://app.example:443`. Without an entry, none may.
    #[serde(default)]
    pub origins: Vec<String>,
    /// The agent in whose name callers without a key act.
    #[serde(default)]
    pub anonymous: Option<String>,
    /// The callers with keys or tokens.
    #[serde(default, rename = "caller")]
    pub callers: Vec<CallerEntry>,
}

/// `[[gateway.mcp.caller]]`, `[[gateway.a2a.caller]]`: a caller from outside, which is an agent of this platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CallerEntry {
    /// The agent's name.
    pub name: String,
    /// The SHA-256 hash of its key, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyHash>,
    /// The subject (`sub`) of its tokens, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whether the caller may prove its name, over TLS, with a certificate of this platform.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub certificate: bool,
    /// The scopes that a token must have to speak for this caller. They tell callers with the same subject apart: the
    /// first caller whose scopes the token has counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// `[gateway.mcp.oauth]`, `[gateway.a2a.oauth]`: the authorization server whose tokens the gateway accepts (OAuth 2.1), as a
/// resource server (RFC 9728).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OauthEntry {
    /// The issuer, exactly as its tokens name it (`iss`).
    pub issuer: String,
    /// The URL of the issuer's published keys, a JSON Web Key Set: `https`, or `http` on the loopback.
    pub keys: String,
    /// The audience of tokens (`aud`): the URL by which callers reach the gateway.
    pub resource: String,
}

/// `[gateway.a2a.webhooks]`: the gateway posts news of tasks to addresses that callers name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WebhooksEntry {
    /// Networks besides the open internet to which the gateway posts: `10.0.0.7`, or `10.0.0.0/24`.
    #[serde(default)]
    pub allow: Vec<String>,
}

/// The agent in whose name callers of [`CallersEntry::open_to_all`] act.
const GUEST: &str = "guest";

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

/// An entry of `hosts` or `origins` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoHostOrOrigin {
    /// The entry is not a host.
    #[error("{0:?} in `hosts` is not a host: write it as agents.example or agents.example:8443")]
    Host(String),
    /// The entry is not an origin.
    #[error(
        "{0:?} in `origins` is not an origin of web pages: write it as https://app.example:443"
    )]
    Origin(String),
}

impl TryFrom<String> for KeyHash {
    type Error = NoKeyHash;

    fn try_from(text: String) -> Result<Self, NoKeyHash> {
        let digits = text.strip_prefix("sha256:").ok_or(NoKeyHash)?;
        let hash = HEXLOWER_PERMISSIVE.decode(digits.as_bytes());
        let hash = hash.map_err(|_| NoKeyHash)?.try_into();
        Ok(Self(hash.map_err(|_| NoKeyHash)?))
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> String {
        hash.to_string()
    }
}

impl std::fmt::Display for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", HEXLOWER.encode(&self.0))
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
    /// [`NoHostOrOrigin`] names the entry.
    pub fn authorities(&self) -> Result<Vec<Authority>, NoHostOrOrigin> {
        let read = |text: &String| {
            let read = text.parse().ok();
            let read = read.filter(|it: &Authority| !it.as_str().contains('@'));
            read.ok_or_else(|| NoHostOrOrigin::Host(text.clone()))
        };
        self.hosts.iter().map(read).collect()
    }

    /// The [`origins`](Self::origins), read. Each has a scheme and a host.
    ///
    /// # Errors
    /// [`NoHostOrOrigin`] names the entry.
    pub fn pages(&self) -> Result<Vec<Uri>, NoHostOrOrigin> {
        let read = |text: &String| {
            let read = text.parse().ok();
            let read = read.filter(|it: &Uri| it.scheme().is_some() && it.host().is_some());
            read.ok_or_else(|| NoHostOrOrigin::Origin(text.clone()))
        };
        self.origins.iter().map(read).collect()
    }

    /// The files that the gateway reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let tls = self.tls.iter();
        let tls = tls.flat_map(|tls| [&tls.certificate, &tls.key, &tls.clients]);
        tls.flatten().chain(&self.trust)
    }

    /// A door at this address for everybody who can reach it, as the agent `guest`.
    pub fn open_to_all(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            trust: None,
            oauth: None,
            webhooks: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            anonymous: Some(GUEST.to_owned()),
            callers: Vec::new(),
        }
    }

    /// Checks everything that the types do not. `section` is the place of the entry, such as `gateway.a2a`.
    ///
    /// # Errors
    /// The mistake, in words.
    pub fn check(&self, section: &str) -> Result<(), String> {
        match &self.tls {
            None if !self.listen.ip().is_loopback() => {
                return Err(format!(
                    "[{section}] would show keys to the network at {}: add [{section}.tls], or listen on 127.0.0.1 and put a proxy with TLS before it",
                    self.listen
                ));
            }
            Some(tls) if tls.certificate.is_none() || tls.key.is_none() => {
                return Err(format!(
                    "[{section}.tls] needs `certificate` and `key`: callers do not know the platform's own authority"
                ));
            }
            _ => {}
        }
        if self.listen.ip().is_unspecified() && self.hosts.is_empty() {
            return Err(format!(
                "[{section}] listens on every address: list in `hosts` the names by which callers reach it"
            ));
        }
        if self.agents().next().is_none() {
            return Err(format!(
                "[{section}] has no caller: add [[{section}.caller]], or `anonymous = \"guest\"` for all who can reach it"
            ));
        }
        let places = self.authorities().err().or(self.pages().err());
        if let Some(error) = places {
            return Err(format!("[{section}]: {error}"));
        }
        if let Some(oauth) = &self.oauth {
            oauth.check(section)?;
        }
        if let Some(webhooks) = &self.webhooks {
            if section != "gateway.a2a" {
                return Err(format!(
                    "[{section}] posts no news: remove [{section}.webhooks]"
                ));
            }
            Reach::new(&webhooks.allow).map_err(|error| error.to_string())?;
        }
        let (mut keys, mut subjects) = (BTreeSet::new(), BTreeSet::new());
        for caller in &self.callers {
            let name = &caller.name;
            if caller.key.is_none() && caller.subject.is_none() && !caller.certificate {
                return Err(format!(
                    "{name} has neither `key` nor `subject` nor `certificate = true`"
                ));
            }
            if caller.certificate && self.tls.is_none() {
                return Err(format!(
                    "{name} cannot show a certificate without TLS: add [{section}.tls]"
                ));
            }
            if caller.subject.is_some() && self.oauth.is_none() {
                return Err(format!(
                    "{name} has a `subject`, and nobody issues tokens: add [{section}.oauth]"
                ));
            }
            if caller.subject.is_none() && !caller.scopes.is_empty() {
                return Err(format!("{name} has `scopes` and no `subject`"));
            }
            if let Some(scope) = caller.scopes.iter().find(|it| !is_scope(it)) {
                return Err(format!(
                    "{name} has the scope {scope:?}, which no token can have"
                ));
            }
            if caller.key.is_some_and(|key| !keys.insert(key)) {
                return Err(format!(
                    "{name} has the key of another caller: give each caller its own"
                ));
            }
            let scopes: BTreeSet<_> = caller.scopes.iter().collect();
            if caller.subject.is_some() && !subjects.insert((&caller.subject, scopes)) {
                return Err(format!("{name} has subject and scopes of another caller"));
            }
        }
        Ok(())
    }
}

/// RFC 6749, section 3.3.
fn is_scope(text: &str) -> bool {
    let is_part = |it: u8| it == 0x21 || (0x23..=0x5b).contains(&it) || (0x5d..=0x7e).contains(&it);
    !text.is_empty() && text.bytes().all(is_part)
}

impl OauthEntry {
    fn check(&self, section: &str) -> Result<(), String> {
        let urls = [
            ("issuer", &self.issuer),
            ("keys", &self.keys),
            ("resource", &self.resource),
        ];
        match urls.into_iter().find(|(_, url)| !is_url(url)) {
            Some((key, url)) => Err(format!(
                "`{key}` of [{section}.oauth] is {url:?}: it must be a URL with https, or with http on this machine, without query and fragment"
            )),
            None => Ok(()),
        }
    }
}

/// Whether a text is the URL of a server that others believe: with `https`, or with `http` on this machine, without query and
/// fragment.
pub(crate) fn is_url(url: &str) -> bool {
    let on_this_machine = || {
        let rest = url.strip_prefix("http://")?;
        let host = rest.split('/').next().unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let is_here = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
        is_here.then_some(rest)
    };
    url.strip_prefix("https://")
        .or_else(on_this_machine)
        .is_some_and(|rest| !rest.is_empty() && !url.contains(['#', '?', '"', '\\', ' ', '@']))
}
