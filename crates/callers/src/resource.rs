//! The gateway as a protected resource: the news of its issuer for callers without a token (RFC 9728), and the challenge that
//! leads them there (RFC 6750). Free of I/O.

use hyper::header::HeaderValue;
use hyper::http::Uri;
use sealbus_manifest::callers::{CallersEntry, OauthEntry};
use serde_json::json;

/// RFC 9728, section 3.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The published text.
pub(crate) struct Resource {
    /// The path of the document, and one without the resource's own path, which some clients try.
    paths: [String; 2],
    pub(crate) document: String,
    challenge: String,
}

impl Resource {
    pub(crate) fn new(entry: &CallersEntry, oauth: &OauthEntry) -> Self {
        let mut scopes: Vec<&str> = Vec::new();
        for scope in entry.callers.iter().flat_map(|it| &it.scopes) {
            if !scopes.contains(&scope.as_str()) {
                scopes.push(scope);
            }
        }
        let uri = oauth.resource.parse::<Uri>().unwrap_or_default();
        let path = uri.path().trim_end_matches('/');
        let origin = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
            _ => String::new(),
        };
        let mut document = json!({
            "resource": oauth.resource,
            "authorization_servers": [oauth.issuer],
            "bearer_methods_supported": ["header"],
        });
        let mut challenge = format!("resource_metadata=\"{origin}{WELL_KNOWN}{path}\"");
        if !scopes.is_empty() {
            challenge.push_str(&format!(", scope=\"{}\"", scopes.join(" ")));
            document["scopes_supported"] = scopes.into();
        }
        Self {
            paths: [format!("{WELL_KNOWN}{path}"), WELL_KNOWN.to_owned()],
            document: document.to_string(),
            challenge,
        }
    }

    /// Whether a path is that of the document.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.paths.iter().any(|it| it == path)
    }
}

/// A challenge (`WWW-Authenticate`), perhaps with an error of RFC 6750.
pub(crate) fn challenge(resource: Option<&Resource>, error: Option<&str>) -> HeaderValue {
    let error = error.map(|error| format!("error=\"{error}\""));
    let parts = error.into_iter();
    let parts = parts.chain(resource.map(|resource| resource.challenge.clone()));
    let parts: Vec<String> = parts.collect();
    let text = format!("Bearer {}", parts.join(", "));
    HeaderValue::try_from(text.trim_end()).unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_stands_where_the_resource_says() {
        let text = r#"{
            "listen": "127.0.0.1:1",
            "oauth": {"issuer": "https://login.example", "keys": "https://login.example/keys", "resource": "https://tea.example/mcp"},
            "caller": [
                {"name": "one", "subject": "1", "scopes": ["order", "read"]},
                {"name": "two", "subject": "1", "scopes": ["read"]}
            ]
        }"#;
        let entry: CallersEntry = serde_json::from_str(text).unwrap();
        let resource = Resource::new(&entry, entry.oauth.as_ref().unwrap());
        assert!(resource.is_at("/.well-known/oauth-protected-resource/mcp"));
        assert!(resource.is_at("/.well-known/oauth-protected-resource"));
        assert!(!resource.is_at("/.well-known/oauth-protected-resource/mcp/x"));
        let document: serde_json::Value = serde_json::from_str(&resource.document).unwrap();
        assert_eq!(document["resource"], "https://tea.example/mcp");
        assert_eq!(
            document["authorization_servers"],
            json!(["https://login.example"])
        );
        assert_eq!(document["scopes_supported"], json!(["order", "read"]));
        assert_eq!(
            challenge(Some(&resource), Some("invalid_token")),
            "Bearer error=\"invalid_token\", \
             resource_metadata=\"https://tea.example/.well-known/oauth-protected-resource/mcp\", scope=\"order read\""
        );
        assert_eq!(challenge(None, None), "Bearer");
        assert_eq!(
            challenge(None, Some("invalid_token")),
            "Bearer error=\"invalid_token\""
        );
    }
}
