//! The card of an agent of others (specification, section 4.4). It is a stranger's text until it is checked here.

use hyper::Uri;
use hyper::http::uri::Authority;
use sealbus_callers::shown;
use serde::Deserialize;
use serde_json::Value;

use crate::acl::{ACL, WHOLE};
use crate::card::CARD;
use crate::extensions::KNOWN;
use crate::wire;

/// Longest card, in bytes.
pub(crate) const LONGEST_CARD: usize = 1 << 20;
/// Most skills that are told of.
const MOST_SKILLS: usize = 64;
/// Most interfaces that are looked at.
const MOST_INTERFACES: usize = 64;
/// Longest name of an agent or a skill, and longest text about one, in bytes.
const LONGEST_NAME: usize = 256;
const LONGEST_ABOUT: usize = 1_024;

/// How requests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolBinding {
    /// JSON-RPC 2.0.
    JsonRpc,
    /// HTTP with JSON.
    Rest,
    /// gRPC.
    Grpc,
}

/// Where an agent of others takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The address, without a slash at its end.
    pub url: String,
    /// How requests are written.
    pub binding: ProtocolBinding,
    /// Goes along with every request.
    pub tenant: Option<String>,
}

/// Something that an agent of others does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub id: String,
    /// The agent's words about it.
    pub about: String,
    /// Its first tag.
    pub kind: String,
}

/// A card that was checked. All texts are harmless to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The name that the agent gives itself.
    pub name: String,
    /// Its words about itself.
    pub about: String,
    /// Its version.
    pub version: String,
    /// Where it takes requests.
    pub interface: Interface,
    /// Whether it answers in streams.
    pub streams: bool,
    /// Its skills.
    pub skills: Vec<Skill>,
    /// The extensions known here that it knows, too, by their URIs.
    pub extensions: Vec<&'static str>,
    /// Whether it takes and gives whole ACL messages.
    pub speaks_acl: bool,
}

/// Why a card is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// It is no card.
    #[error("its card cannot be read: {0}")]
    Unreadable(String),
    /// All interfaces speak something else.
    #[error("its card names no interface of A2A 1 over JSON-RPC, HTTP+JSON or gRPC")]
    NoInterface,
    /// The card is perhaps a copy of another agent's.
    #[error(
        "its card leads to {host}, which is not where the card is: list the host in `hosts` if that is right"
    )]
    Elsewhere {
        /// The host that it leads to.
        host: String,
    },
    /// It asks for something that is not known here.
    #[error("its card requires the extension {0}, which is not known here")]
    Extension(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCard {
    name: String,
    description: String,
    version: String,
    supported_interfaces: Vec<WrittenInterface>,
    capabilities: Capabilities,
    #[serde(default)]
    skills: Vec<WrittenSkill>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenInterface {
    url: String,
    protocol_binding: String,
    protocol_version: String,
    #[serde(default)]
    tenant: String,
}

#[derive(Deserialize)]
struct Capabilities {
    #[serde(default)]
    streaming: bool,
    #[serde(default)]
    extensions: Vec<Extension>,
}

#[derive(Deserialize)]
struct Extension {
    uri: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    params: Params,
}

#[derive(Default, Deserialize)]
struct Params {
    #[serde(default)]
    representations: Vec<Value>,
}

#[derive(Deserialize)]
struct WrittenSkill {
    id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tags: Vec<String>,
}

/// The address of the card of an agent: the address itself if it is a card's, or else the usual place below it.
pub(super) fn place(url: &str) -> String {
    if url.ends_with(".json") {
        return url.to_owned();
    }
    format!("{}/{CARD}", url.trim_end_matches('/'))
}

fn unreadable(fault: crate::Fault) -> CardError {
    CardError::Unreadable(fault.message())
}

/// The JSON of a card.
///
/// # Errors
/// If it is none, or has more than 65,536 values.
pub fn parse(body: &[u8]) -> Result<Value, CardError> {
    wire::parse(body).map_err(unreadable)
}

impl Card {
    /// Reads the card that was found at `from`. Its interface must be at the same scheme, host and port, or at one of
    /// `hosts`, over TLS.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn read(card: Value, from: &Uri, hosts: &[String]) -> Result<Self, CardError> {
        let written: WrittenCard = wire::read(card).map_err(unreadable)?;
        let interface = interface(written.supported_interfaces, from, hosts)?;
        let declared = &written.capabilities.extensions;
        let is_known = |it: &&Extension| KNOWN.contains(&it.uri.as_str());
        let mut unknown = declared.iter().filter(|it| !is_known(it));
        if let Some(unknown) = unknown.find(|it| it.required) {
            return Err(CardError::Extension(shown(&unknown.uri, LONGEST_NAME)));
        }
        let is_declared = |known: &&'static str| declared.iter().any(|it| it.uri == **known);
        let extensions = KNOWN.into_iter().filter(is_declared).collect();
        let mut acl = declared.iter().filter(|it| it.uri == ACL);
        let speaks_acl = acl.any(|it| it.params.representations.iter().any(|it| it == WHOLE));
        let mut skills: Vec<Skill> = Vec::new();
        for skill in written.skills {
            let id = shown(&skill.id, LONGEST_NAME);
            let is_new = skills.iter().all(|it| it.id != id);
            if is_new && !id.is_empty() && skills.len() < MOST_SKILLS {
                let kind = skill.tags.first().map(|tag| shown(tag, LONGEST_NAME));
                skills.push(Skill {
                    about: shown(&skill.description, LONGEST_ABOUT),
                    kind: kind.unwrap_or_default(),
                    id,
                });
            }
        }
        Ok(Self {
            name: shown(&written.name, LONGEST_NAME),
            about: shown(&written.description, LONGEST_ABOUT),
            version: shown(&written.version, LONGEST_NAME),
            interface,
            streams: written.capabilities.streaming,
            skills,
            extensions,
            speaks_acl,
        })
    }
}

/// The first interface that is spoken here, over gRPC only if there is no other. One of them that leads elsewhere makes the card a
/// copy.
fn interface(
    written: Vec<WrittenInterface>,
    from: &Uri,
    hosts: &[String],
) -> Result<Interface, CardError> {
    let spoken = |written: WrittenInterface| {
        let binding = match written.protocol_binding.as_str() {
            "JSONRPC" => ProtocolBinding::JsonRpc,
            "HTTP+JSON" => ProtocolBinding::Rest,
            "GRPC" => ProtocolBinding::Grpc,
            _ => return None,
        };
        let version = written.protocol_version.as_str();
        (version == "1" || version.starts_with("1.")).then_some((binding, written))
    };
    let spoken = written.into_iter().take(MOST_INTERFACES).filter_map(spoken);
    // The first of the least.
    let first = spoken.min_by_key(|(binding, _)| *binding == ProtocolBinding::Grpc);
    let (binding, WrittenInterface { url, tenant, .. }) = first.ok_or(CardError::NoInterface)?;
    let wrong = |problem: &str| CardError::Unreadable(format!("an interface's url {problem}"));
    // The address of gRPC is a host and a port. The card's own scheme says whether there is TLS.
    let text = match from.scheme_str() {
        Some(scheme) if binding == ProtocolBinding::Grpc && !url.contains("://") => {
            format!("{scheme}://{url}")
        }
        _ => url,
    };
    let url: Uri = text.parse().map_err(|_| wrong("is none"))?;
    let authority = url.authority().ok_or_else(|| wrong("names no host"))?;
    if authority.as_str().contains('@') || url.query().is_some() {
        return Err(wrong("has a user or a query"));
    }
    // A server of gRPC has a port of its own. Without TLS it is on this machine, as its card is.
    let is_near = binding == ProtocolBinding::Grpc && url.scheme() == from.scheme();
    let is_listed = is_listed(authority, port(&url), hosts);
    let may_be_there = is_listed && (url.scheme_str() == Some("https") || is_near);
    if !is_at(&url, from) && !may_be_there {
        let host = shown(authority.as_str(), LONGEST_NAME);
        return Err(CardError::Elsewhere { host });
    }
    Ok(Interface {
        url: text.trim_end_matches('/').to_owned(),
        binding,
        tenant: Some(tenant).filter(|it| !it.is_empty()),
    })
}

fn port(url: &Uri) -> Option<u16> {
    url.port_u16().or(match url.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    })
}

/// Whether two addresses are of one server.
pub(super) fn is_at(url: &Uri, from: &Uri) -> bool {
    let host = |url: &Uri| url.host().map(str::to_ascii_lowercase);
    url.scheme() == from.scheme() && host(url) == host(from) && port(url) == port(from)
}

fn is_listed(authority: &Authority, port: Option<u16>, hosts: &[String]) -> bool {
    hosts.iter().any(|listed| {
        listed.eq_ignore_ascii_case(authority.as_str())
            || (listed.eq_ignore_ascii_case(authority.host()) && port == Some(443))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(change: impl FnOnce(&mut Value)) -> Result<Card, CardError> {
        let mut card = json!({
            "name": "Probe", "description": "Does.", "version": "1.0.0",
            "supportedInterfaces": [
                {"url": "agents.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": "https://agents.example/rpc/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            ],
            "capabilities": {"streaming": true, "extensions": [{"uri": "urn:x"}]},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "echo", "name": "Echo", "description": "Says\n\u{202e}it.", "tags": ["probe"]}],
        });
        change(&mut card);
        let from = "https://Agents.example:443/.well-known/agent-card.json";
        let hosts = ["other.example".to_owned(), "third.example:8443".to_owned()];
        Card::read(card, &from.parse().unwrap(), &hosts)
    }

    #[test]
    fn a_card_is_read() {
        let card = card(|_| ()).unwrap();
        assert_eq!(card.interface.url, "https://agents.example/rpc");
        assert_eq!(card.interface.binding, ProtocolBinding::JsonRpc);
        assert!(card.streams);
        assert_eq!(card.skills[0].about, "Says it.");
        assert_eq!(
            place("https://a/b/"),
            "https://a/b/.well-known/agent-card.json"
        );
        assert_eq!(place("https://a/b.json"), "https://a/b.json");
    }

    #[test]
    fn a_card_that_leads_elsewhere_is_a_copy() {
        let at = |url: &str| {
            let url = url.to_owned();
            card(move |it| it["supportedInterfaces"][1]["url"] = url.into())
        };
        for url in ["https://other.example/x", "https://third.example:8443/"] {
            assert!(at(url).is_ok(), "{url}");
        }
        for url in [
            "https://agents.example:8443/rpc",
            "http://agents.example/rpc",
            "http://other.example/rpc",
            "https://third.example/",
            "https://agents.example.evil.example/",
            "http://169.254.169.254/",
        ] {
            assert!(matches!(at(url), Err(CardError::Elsewhere { .. })), "{url}");
        }
        for url in [
            "https://u@agents.example/",
            "/rpc",
            "",
            "https://agents.example/?a",
        ] {
            assert!(matches!(at(url), Err(CardError::Unreadable(_))), "{url}");
        }
    }

    #[test]
    fn a_card_that_offers_only_grpc_is_asked_so() {
        let only = |url: &str| {
            let interface = json!({"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "tea"});
            card(move |it| it["supportedInterfaces"] = json!([interface]))
        };
        let found = only("agents.example:443").unwrap().interface;
        assert_eq!(found.binding, ProtocolBinding::Grpc);
        assert_eq!(found.url, "https://agents.example:443");
        assert_eq!(found.tenant.as_deref(), Some("tea"));
        for near in [
            "https://agents.example",
            "third.example:8443",
            "other.example",
        ] {
            assert!(only(near).is_ok(), "{near}");
        }
        for far in [
            "agents.example:50051",
            "evil.example:443",
            "http://other.example",
            "third.example",
        ] {
            assert!(
                matches!(only(far), Err(CardError::Elsewhere { .. })),
                "{far}"
            );
        }
        for wrong in [
            "",
            "user@agents.example",
            "unix:/tmp/x",
            "dns:///agents.example",
        ] {
            assert!(only(wrong).is_err(), "{wrong}");
        }
        // Without TLS, a server of its own is on this machine, and listed.
        let from = "http://127.0.0.1:80/.well-known/agent-card.json"
            .parse()
            .unwrap();
        let read = |hosts: &[String]| {
            let mut written =
                json!({"name": "", "description": "", "version": "", "capabilities": {}});
            written["supportedInterfaces"] = json!([{"url": "127.0.0.1:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]);
            Card::read(written, &from, hosts).map(|card| card.interface.url)
        };
        assert!(read(&[]).is_err());
        assert_eq!(
            read(&["127.0.0.1:50051".to_owned()]),
            Ok("http://127.0.0.1:50051".to_owned())
        );
    }

    #[test]
    fn what_is_not_spoken_here_is_refused() {
        let version = card(|it| {
            for place in 0..2 {
                it["supportedInterfaces"][place]["protocolVersion"] = "9.9".into();
            }
        });
        assert_eq!(version, Err(CardError::NoInterface));
        let required = card(|it| it["capabilities"]["extensions"][0]["required"] = true.into());
        assert_eq!(required, Err(CardError::Extension("urn:x".to_owned())));
        assert!(matches!(
            card(|it| it["name"] = 7.into()),
            Err(CardError::Unreadable(_))
        ));
        let many = card(|it| {
            let skills = (0..1_000).map(|number| json!({"id": number.to_string()}));
            it["skills"] = skills.collect();
        });
        assert_eq!(many.unwrap().skills.len(), MOST_SKILLS);
    }
}
