//! The changes that the page may make, where the operator allowed them.

use std::path::Path;
use std::time::Duration;

use sealbus_control::admin::ask;
use sealbus_control::{Fault, FaultCode, operators};
use serde::{Deserialize, Serialize};

/// How long the Master may take. A move waits until the agent has come to rest.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most characters of a reason.
const REASON: usize = 256;

/// An act, and the name that the user typed for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Confirmed {
    confirm: String,
    act: Act,
}

/// An act on an agent.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Act {
    /// End it, with its process, and revoke its certificate.
    Kill { agent: String },
    /// Move it, with its process, to another node.
    Move { agent: String, node: String },
    /// Revoke its certificates.
    Revoke { agent: String, reason: String },
}

/// The outcome of an act.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    done: String,
}

impl Confirmed {
    /// The local name of the agent, if it is the one that was typed.
    fn agent(&self) -> Result<&str, Fault> {
        let (Act::Kill { agent } | Act::Move { agent, .. } | Act::Revoke { agent, .. }) = &self.act;
        let local = agent.split('@').next().unwrap_or_default();
        if local.is_empty() || self.confirm != local {
            let message = "the typed name is not the agent's";
            return Err(Fault::new(FaultCode::BadRequest, message));
        }
        if let Act::Revoke { reason, .. } = &self.act
            && reason.chars().count() > REASON
        {
            let message = format!("a reason has at most {REASON} characters");
            return Err(Fault::new(FaultCode::BadRequest, message));
        }
        Ok(local)
    }

    /// Carries out the act over a connection with all of the operator's rights, which lasts as long as the act.
    pub(crate) async fn carry_out(self, directory: &Path) -> Result<Done, Fault> {
        let agent = self.agent()?.to_owned();
        let caller = operators::connect(directory).await?;
        let done = match self.act {
            Act::Kill { .. } => {
                let (name, grace) = (agent.clone(), 0);
                let kill = ask::Kill { agent: name, grace };
                caller.ask(kill, PATIENCE).await?;
                format!("{agent} has ended and its certificate is revoked")
            }
            Act::Move { node, .. } => {
                let name = agent.clone();
                let moved = caller
                    .ask(ask::Move { agent: name, node }, PATIENCE)
                    .await?;
                format!("{} moved to {}", moved.agents.join(", "), moved.node)
            }
            Act::Revoke { reason, .. } => {
                let what = agent.clone();
                let revoked = caller.ask(ask::Revoke { what, reason }, PATIENCE).await?;
                format!(
                    "{} certificates of {agent} are revoked",
                    revoked.certificates.len()
                )
            }
        };
        tracing::info!(agent, "by the page of the window: {done}");
        Ok(Done { done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(text: &str) -> Option<String> {
        let confirmed: Confirmed = serde_json::from_str(text).ok()?;
        confirmed.agent().ok().map(str::to_owned)
    }

    #[test]
    fn only_the_typed_agent_is_meant() {
        let kill = |confirm: &str, agent: &str| {
            format!(r#"{{"confirm":"{confirm}","act":{{"do":"kill","agent":"{agent}"}}}}"#)
        };
        assert_eq!(agent(&kill("ann", "ann@factory")).unwrap(), "ann");
        assert_eq!(agent(&kill("ann", "ann")).unwrap(), "ann");
        for (confirm, name) in [
            ("", ""),
            ("", "@factory"),
            ("ben", "ann"),
            ("ann@factory", "ann"),
        ] {
            assert!(agent(&kill(confirm, name)).is_none(), "{confirm} {name}");
        }
        let long = "x".repeat(REASON + 1);
        let act = format!(r#"{{"do":"revoke","agent":"ann","reason":"{long}"}}"#);
        assert!(agent(&format!(r#"{{"confirm":"ann","act":{act}}}"#)).is_none());
        // The page cannot make other requests of operators.
        assert!(agent(r#"{"confirm":"ann","act":{"do":"shutdown","agent":"ann"}}"#).is_none());
    }
}
