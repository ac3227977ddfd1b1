//! The platform's issuer of workload tokens, published for the servers that check them: where discovery of OpenID Connect
//! looks for it (OpenID Connect Discovery 1.0, section 4), and its keys (RFC 7517).

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::http::Uri;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use sealbus::{Voice, WorkloadIssuer, WorkloadTokenError};
use sealbus_control::FaultCode;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use crate::connection::{Answer, typed_answer};

const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/.well-known/workload-keys.json";
/// Pause before the CA is asked again: strangers must not make the gateway ask all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// The publication. It asks the CA when somebody wants to know.
pub(crate) struct Published {
    voice: Voice,
    known: Arc<tokio::sync::Mutex<Known>>,
}

/// The issuer, if there is one, and when the CA was last asked.
type Known = Option<(Option<WorkloadIssuer>, Instant)>;

impl Published {
    pub(crate) fn new(voice: Voice) -> Self {
        Self {
            voice,
            known: Arc::default(),
        }
    }

    /// The answer to a request for one of the documents.
    pub(crate) async fn answer(&self, head: &Parts) -> Option<Answer> {
        let path = head.uri.path();
        if head.method != Method::GET || !(path.ends_with(DISCOVERY) || path.ends_with(KEYS)) {
            return None;
        }
        let text = document(&self.issuer().await?, path)?;
        let mut answer = typed_answer(StatusCode::OK, "application/json", text);
        let fresh = HeaderValue::from_static("max-age=60");
        answer.headers_mut().insert(CACHE_CONTROL, fresh);
        Some(answer)
    }

    async fn issuer(&self) -> Option<WorkloadIssuer> {
        let known = self.known.clone().lock_owned().await;
        if let Some((issuer, at)) = known.as_ref()
            && at.elapsed() < PAUSE
        {
            return issuer.clone();
        }
        // It ends although those that wait for it leave: the next one must not ask again.
        let asking = tokio::spawn(ask(self.voice.clone(), known));
        asking.await.ok().flatten()
    }
}

async fn ask(voice: Voice, mut known: OwnedMutexGuard<Known>) -> Option<WorkloadIssuer> {
    let issuer = match voice.workload_issuer().await {
        Ok(issuer) => Some(issuer),
        Err(WorkloadTokenError::Refused(fault)) if fault.code == FaultCode::NotPermitted => None,
        Err(WorkloadTokenError::Level { .. }) => None,
        // Without the Master there are no new keys, and the old ones are still good.
        Err(error) => {
            tracing::warn!("the keys of workload tokens could not be asked for: {error}");
            known.take().and_then(|(issuer, _)| issuer)
        }
    };
    *known = Some((issuer.clone(), Instant::now()));
    issuer
}

/// The document at a path, for an issuer whose URL may have a path itself.
fn document(known: &WorkloadIssuer, path: &str) -> Option<String> {
    let issuer = known.issuer.as_str();
    let uri: Uri = issuer.parse().ok()?;
    let document = match path.strip_prefix(uri.path().trim_end_matches('/'))? {
        // The members without which clients refuse the document; nobody logs in here.
        DISCOVERY => json!({
            "issuer": issuer,
            "jwks_uri": format!("{issuer}{KEYS}"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }),
        KEYS => json!({"keys": known.keys}),
        _ => return None,
    };
    Some(document.to_string())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use sealbus::Platform;

    use super::*;
    use crate::caller::CallerAgent;

    #[tokio::test]
    async fn the_ca_is_asked_to_the_end_although_nobody_waits() {
        let platform = Platform::embedded().await.unwrap();
        let (agent, caller) = CallerAgent::new();
        platform.start("door", agent).await.unwrap();
        let caller = caller.await.unwrap();
        let published = Published::new(caller.voice.clone());
        {
            let left = pin!(published.issuer());
            let mut waiting = Context::from_waker(Waker::noop());
            assert!(left.poll(&mut waiting).is_pending());
        }
        assert!(published.known.lock().await.is_some());
    }

    #[test]
    fn the_documents_stand_where_the_issuer_says() {
        for (issuer, before) in [
            ("https://tea.example", ""),
            ("https://tea.example:8443/agents", "/agents"),
        ] {
            let known = WorkloadIssuer {
                issuer: issuer.to_owned(),
                keys: Vec::new(),
            };
            let told = document(&known, &format!("{before}{DISCOVERY}")).unwrap();
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["issuer"], issuer);
            let keys = told["jwks_uri"].as_str().unwrap();
            let path = keys.parse::<Uri>().unwrap().path().to_owned();
            assert_eq!(document(&known, &path).unwrap(), r#"{"keys":[]}"#);
            assert_eq!(document(&known, &format!("/other{DISCOVERY}")), None);
            assert_eq!(document(&known, &format!("{before}{KEYS}/x")), None);
        }
    }
}
