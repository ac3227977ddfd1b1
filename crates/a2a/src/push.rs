//! Addresses for push notifications, as callers name them (specification, section 4.3).

use hyper::header::HeaderValue;
use hyper::http::Uri;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;

use crate::Fault;

/// Webhooks of one task.
pub(crate) const MOST_WEBHOOKS: usize = 4;
/// Longest URL, token and credentials, in bytes.
const LONGEST_FIELD: usize = 1_024;

/// `TaskPushNotificationConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfig {
    /// The caller's name for it.
    #[serde(default)]
    pub id: String,
    /// The task.
    #[serde(default)]
    pub task_id: String,
    /// The address.
    pub url: String,
    /// A text of the caller, which each notification repeats.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// The proof that the address wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

/// `AuthenticationInfo`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Authentication {
    /// The scheme of HTTP, such as `Bearer`.
    pub scheme: String,
    /// Its credentials.
    #[serde(default)]
    pub credentials: String,
}

impl PushConfig {
    /// Checks everything that the types do not. The address itself is checked for each post.
    ///
    /// # Errors
    /// [`Fault::BadMember`]; `place` is the beginning of its place, such as `configuration.`.
    pub fn check(&self, place: &str) -> Result<(), Fault> {
        let wrong =
            |name: &str, problem: &str| Err(Fault::member(format!("{place}{name}"), problem));
        let url = self.url.parse::<Uri>().ok();
        let is_url = url.is_some_and(|url| {
            let is_http = matches!(url.scheme_str(), Some("https" | "http"));
            is_http && url.authority().is_some_and(|it| !it.as_str().contains('@'))
        });
        if !is_url || self.url.len() > LONGEST_FIELD {
            return wrong("url", "it is a URL of https with at most 1024 bytes");
        }
        if self.id.len() > 256 {
            return wrong("id", "it has at most 256 bytes");
        }
        let is_value = |it: &str| it.len() <= LONGEST_FIELD && HeaderValue::from_str(it).is_ok();
        if !is_value(&self.token) {
            return wrong("token", "it is a value of a header with at most 1024 bytes");
        }
        if let Some(Authentication {
            scheme,
            credentials,
        }) = &self.authentication
        {
            let is_scheme = |it: u8| it.is_ascii_alphanumeric() || b"-_.+".contains(&it);
            if scheme.is_empty() || scheme.len() > 64 || !scheme.bytes().all(is_scheme) {
                return wrong("authentication.scheme", "it is a scheme of HTTP");
            }
            if !is_value(credentials) {
                let problem = "it is a value of a header with at most 1024 bytes";
                return wrong("authentication.credentials", problem);
            }
        }
        Ok(())
    }
}

/// A webhook as a task's file has it.
#[derive(Debug)]
pub(crate) struct KeptWebhook {
    pub(crate) config: PushConfig,
    /// The number of the last event that it needs no more.
    pub(crate) told: u64,
    /// It took nothing more.
    pub(crate) is_lost: bool,
}

/// An address that is told of a task. It is told as long as this lives.
pub(crate) struct Webhook {
    pub(crate) config: PushConfig,
    pub(crate) posting: AbortHandle,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.posting.abort();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configurations_of_strangers_have_limits() {
        let config = |change: serde_json::Value| {
            let mut config = json!({"url": "https://hooks.example/a?b"});
            config
                .as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            let config: PushConfig = serde_json::from_value(config).unwrap();
            config.check("").is_ok()
        };
        assert!(config(json!({})));
        assert!(config(
            json!({"token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}})
        ));
        for wrong in [
            json!({"url": "ftp://hooks.example"}),
            json!({"url": "/relative"}),
            json!({"url": "https://user@hooks.example"}),
            json!({"url": format!("https://hooks.example/{}", "x".repeat(LONGEST_FIELD))}),
            json!({"token": "two\r\nX-Smuggled: 1"}),
            json!({"token": "x".repeat(LONGEST_FIELD + 1)}),
            json!({"id": "x".repeat(257)}),
            json!({"authentication": {"scheme": "Bearer\r\nX: 1", "credentials": "c"}}),
            json!({"authentication": {"scheme": "", "credentials": "c"}}),
            json!({"authentication": {"scheme": "Bearer", "credentials": "c\r\nX: 1"}}),
        ] {
            assert!(!config(wrong.clone()), "{wrong}");
        }
    }
}
