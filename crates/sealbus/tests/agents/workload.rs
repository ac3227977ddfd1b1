//! Workload tokens of agents in Rust, on the platform that their own program embeds.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sealbus::{Agent, AgentResult, Context, Platform, WorkloadTokenError, agent};
use sealbus_control::FaultCode;
use sealbus_master::embedded::EmbeddedPlatform;
use sealbus_seal::PlatformName;
use serde_json::{Value, json};

const ISSUER: &str = "https://tea.example";
const AUDIENCE: &str = "https://api.example";

fn part(token: &str, place: usize) -> Value {
    let part = token.split('.').nth(place).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Gets tokens, if there is an issuer.
struct Envoy {
    has_issuer: bool,
}

impl Agent for Envoy {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let made = context.workload_token(AUDIENCE).await;
        if !self.has_issuer {
            assert_refused(made, "workload-issuer");
            context.stop();
            return Ok(());
        }
        let made = made?;
        assert!(!format!("{made:?}").contains(&made.token));
        let claims = part(&made.token, 1);
        assert_eq!(claims["iss"], ISSUER);
        assert_eq!(claims["aud"], AUDIENCE);
        assert_eq!(claims["sub"], "spiffe://home/agent/envoy");
        assert_eq!(claims["client_id"], claims["sub"]);
        assert_eq!(claims["exp"], json!(made.expires / 1000));
        assert_eq!(claims.get("act"), None);
        let issuer = context.workload_issuer().await?;
        assert_eq!(issuer.issuer, ISSUER);
        let kid = part(&made.token, 0)["kid"].clone();
        assert!(issuer.keys.iter().any(|key| kid == key.kid.as_str()));
        assert_refused(context.workload_token("").await, "audience");
        // The agent stands for nobody outside.
        let other = context.peer("other")?;
        let other = context.workload_token_for(&other, AUDIENCE).await;
        assert_refused(other, "token-audience");
        context.stop();
        Ok(())
    }
}

fn assert_refused<T: std::fmt::Debug>(made: Result<T, WorkloadTokenError>, why: &str) {
    match made {
        Err(WorkloadTokenError::Refused(fault)) => {
            let codes = [FaultCode::NotPermitted, FaultCode::BadRequest];
            assert!(codes.contains(&fault.code), "{fault}");
            assert!(fault.to_string().contains(why), "{fault}");
        }
        other => panic!("{other:?}"),
    }
}

async fn run(has_issuer: bool) {
    let embedded = EmbeddedPlatform::start(PlatformName::new("home").unwrap()).await;
    let embedded = embedded.unwrap();
    if has_issuer {
        let issuing = embedded.issue_workload_tokens(ISSUER.to_owned());
        issuing.await.unwrap();
    }
    let platform = Platform::open(embedded.host(), Some(embedded.bus()));
    let platform = platform.await.unwrap();
    let envoy = Envoy { has_issuer };
    platform.run([agent("envoy", envoy)]).await.unwrap();
}

#[tokio::test]
async fn an_agent_gets_a_token_of_its_own_alone() {
    run(true).await;
}

#[tokio::test]
async fn without_an_issuer_there_is_none() {
    run(false).await;
}
