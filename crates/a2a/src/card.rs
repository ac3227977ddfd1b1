//! An agent's card (specification, section 4.4).

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use hyper::http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sealbus::body::{BYTES, JSON};
use sealbus_callers::schema::Language;
use sealbus_manifest::callers::{CallersEntry, OauthEntry};
use serde_json::{Value, json};

use crate::catalogue::{Exposed, Skill, Takes};
use crate::extensions;

/// The path below which each agent has its address.
pub(crate) const AGENTS: &str = "/agents/";
/// The path of a card below its agent's address.
pub(crate) const CARD: &str = ".well-known/agent-card.json";

const TEXT: &str = "text/plain";

/// The media type of content in a language.
pub(crate) fn media_type(language: Language) -> &'static str {
    match language {
        Language::Text => TEXT,
        Language::Json => JSON,
        Language::Bytes => BYTES,
    }
}

impl Skill {
    /// The media types that a skill takes.
    pub(crate) fn input_modes(&self) -> Vec<&'static str> {
        match &self.takes {
            Takes::Tool(Language::Text, _) => vec![TEXT],
            // JSON is text, too.
            Takes::Tool(Language::Json, _) => vec![JSON, TEXT],
            Takes::Tool(Language::Bytes, _) => vec![BYTES],
            Takes::Anything => vec![TEXT, JSON, BYTES],
        }
    }
}

/// The gateway's settings that cards tell: above all, how callers show who they are.
pub(crate) struct Security {
    schemes: Value,
    /// One of them is needed.
    requirements: Option<Value>,
    has_webhooks: bool,
}

impl Security {
    pub(crate) fn new(entry: &CallersEntry) -> Self {
        let mut schemes = json!({"key": {"httpAuthSecurityScheme": {
            "scheme": "Bearer", "description": "A key of this gateway, which names the caller.",
        }}});
        // No member is empty: what a signature covers would not be clear (`signature`).
        let mut requirements = vec![json!({"schemes": {"key": {"list": ["caller"]}}})];
        if let Some(oauth) = &entry.oauth {
            let OauthEntry {
                issuer, resource, ..
            } = oauth;
            schemes["token"] = json!({"httpAuthSecurityScheme": {
                "scheme": "Bearer", "bearerFormat": "JWT",
                "description": format!("An access token of {issuer} for {resource}."),
            }});
            requirements.push(json!({"schemes": {"token": {"list": ["caller"]}}}));
        }
        Self {
            schemes,
            has_webhooks: entry.webhooks.is_some(),
            requirements: entry.anonymous.is_none().then(|| requirements.into()),
        }
    }
}

/// The card of an agent, for callers who reach the gateway at `base`.
pub(crate) fn card(agent: &Exposed, base: &str, security: &Security) -> Value {
    let name = utf8_percent_encode(&agent.local, NON_ALPHANUMERIC);
    let url = format!("{base}{AGENTS}{name}");
    let interface =
        |binding: &str| json!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"});
    // One address serves all agents, so the request names its agent.
    let grpc = json!({
        "url": place(base), "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": agent.local,
    });
    let skills: Vec<Value> = agent.skills.iter().map(skill).collect();
    let mut card = json!({
        "name": agent.local,
        "description": format!("The agent {} of the Sealbus platform {}.", agent.local, agent.platform),
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [interface("JSONRPC"), interface("HTTP+JSON"), grpc],
        "capabilities": {
            "streaming": true, "extendedAgentCard": true, "extensions": extensions::declared(),
        },
        "defaultInputModes": [TEXT, JSON],
        "defaultOutputModes": [TEXT, JSON],
        "skills": skills,
        "securitySchemes": security.schemes,
    });
    if security.has_webhooks {
        card["capabilities"]["pushNotifications"] = true.into();
    }
    if let Some(requirements) = &security.requirements {
        card["securityRequirements"] = requirements.clone();
    }
    card
}

/// The host and the port of a base of URLs.
fn place(base: &str) -> String {
    let is_https = base.starts_with("https:");
    let authority = base
        .parse::<Uri>()
        .ok()
        .and_then(|it| it.authority().cloned());
    match authority {
        Some(it) if it.port().is_some() => it.to_string(),
        Some(it) => format!("{it}:{}", if is_https { 443 } else { 80 }),
        None => base.to_owned(),
    }
}

fn skill(skill: &Skill) -> Value {
    let mut about = skill.about.clone();
    if about.is_empty() {
        about.clone_from(&skill.name);
    }
    if let Takes::Tool(Language::Json, schema) = &skill.takes {
        about = format!("{about} Takes JSON of this schema: {schema}");
    }
    let tag = if skill.kind.is_empty() {
        "service"
    } else {
        &skill.kind
    };
    json!({
        "id": skill.name,
        "name": skill.name,
        "description": about,
        "tags": [tag],
        "inputModes": skill.input_modes(),
        "outputModes": [media_type(skill.says)],
    })
}

/// The tag by which a caller recognises a card.
pub(crate) fn tag(card: &[u8]) -> String {
    let hash = digest(&SHA256, card);
    format!("\"{}\"", HEXLOWER.encode(&hash.as_ref()[..16]))
}
