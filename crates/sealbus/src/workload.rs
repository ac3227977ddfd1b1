//! Workload tokens: an agent proves to servers outside the platform which agent it is.

use std::time::Duration;

use sealbus_control::ask::Ask;
use sealbus_control::authority::{AuthorityRequest, ask_ca};
use sealbus_control::names::CA;
use sealbus_control::node::{LANGUAGE, ONTOLOGY};
use sealbus_control::{Fault, FaultCode};
use sealbus_fipa::{AclMessage, Aid, Performative};

use crate::context::{RequestError, Voice};

pub use sealbus_control::workload::{WorkloadIssuer, WorkloadToken};

/// How long the CA may take for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why an agent got no workload token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadTokenError {
    /// No agent is certified on this platform, so a token could prove nothing.
    #[error("{agent} gets no workload token: at the level {level} agents have no certificates")]
    Level {
        /// The agent.
        agent: String,
        /// The platform's level.
        level: String,
    },
    /// The CA refused the token.
    #[error(transparent)]
    Refused(Fault),
    /// The CA did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Voice {
    /// A token that proves to a server outside the platform which agent this is: a signed JWT (RFC 7519). `audience` is
    /// the name that the server gives itself, such as `https://api.example`. The platform's CA makes the token.
    /// `workload-issuer` in the manifest names the URL by which servers know that CA.
    ///
    /// The token is valid for five minutes, and never longer than the agent's certificate. A revoked agent gets none.
    /// Ask for a token when it is needed, keep it out of logs, and send it only over TLS.
    ///
    /// ```no_run
    /// # use sealbus::{AgentResult, Context};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let token = context.workload_token("https://api.example").await?;
    /// let header = format!("Bearer {}", token.token);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`WorkloadTokenError`].
    pub async fn workload_token(
        &self,
        audience: &str,
    ) -> Result<WorkloadToken, WorkloadTokenError> {
        self.token(audience, None).await
    }

    /// Like [`workload_token`](Self::workload_token), for an agent of this platform that asks this agent, which stands
    /// for a neighbour (`[gateway.neighbours]`). The token proves the asking agent, and names this agent as the one
    /// that shows it (`act`, RFC 8693). The audience is the `token-audience` of the neighbour's entry. Only agents that
    /// stand for a neighbour get such tokens.
    ///
    /// # Errors
    /// [`WorkloadTokenError`].
    pub async fn workload_token_for(
        &self,
        asker: &Aid,
        audience: &str,
    ) -> Result<WorkloadToken, WorkloadTokenError> {
        self.token(audience, Some(asker.local_name().to_owned()))
            .await
    }

    async fn token(
        &self,
        audience: &str,
        asker: Option<String>,
    ) -> Result<WorkloadToken, WorkloadTokenError> {
        let audience = audience.to_owned();
        self.ask_ca(ask_ca::WorkloadToken { audience, asker }).await
    }

    /// The URL and the public keys of the platform's issuer of workload tokens, for publication.
    ///
    /// # Errors
    /// [`WorkloadTokenError`].
    pub async fn workload_issuer(&self) -> Result<WorkloadIssuer, WorkloadTokenError> {
        self.ask_ca(ask_ca::WorkloadIssuer).await
    }

    async fn ask_ca<A>(&self, ask: A) -> Result<A::Answer, WorkloadTokenError>
    where
        A: Ask<Requests = AuthorityRequest>,
    {
        let level = self.process.level();
        if !level.authenticates() {
            return Err(WorkloadTokenError::Level {
                agent: self.agent(),
                level: level.to_string(),
            });
        }
        let unreadable =
            |error: serde_json::Error| WorkloadTokenError::Refused(Fault::internal(error));
        let content = serde_json::to_string(&ask.into()).map_err(unreadable)?;
        let request = AclMessage::new(Performative::Request)
            .with_receiver(self.system_agent(CA))
            .with_ontology(ONTOLOGY)
            .with_language(LANGUAGE)
            .with_content(content);
        let answer = self.request(request, PATIENCE).await?;
        let content = answer.content_text().unwrap_or_default();
        if answer.performative != Performative::Inform {
            let fault = serde_json::from_str(content).unwrap_or_else(|_| {
                let message = format!("the CA answered {}: {content}", answer.performative);
                Fault::new(FaultCode::Internal, message)
            });
            return Err(WorkloadTokenError::Refused(fault));
        }
        let answer = serde_json::from_str(content).map_err(unreadable)?;
        A::take(answer).map_err(WorkloadTokenError::Refused)
    }
}
