//! The agent of ours that asks a neighbour: the chain that the neighbour is told, and the token that proves the agent.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use sealbus::{Aid, Delegation, Message, Voice, WorkloadToken};

use super::error::RemoteError;

/// A token is used no longer when so little of its time is left.
const LEAST: Duration = Duration::from_secs(60);
/// Most tokens that are kept.
const MOST_TOKENS: usize = 1_024;

/// The one who asks.
pub(super) struct Asker {
    voice: Voice,
    agent: Option<Aid>,
    chain: Delegation,
}

impl Asker {
    /// The sender of a message to the agent that stands for the neighbour.
    pub(super) fn of(voice: &Voice, message: &Message) -> Self {
        let is_ours = |it: &&Aid| it.platform() == Some(voice.platform());
        let provenance = message.provenance();
        let agent = message.sender.as_ref().filter(is_ours);
        Self {
            voice: voice.clone(),
            agent: agent.filter(|_| provenance.is_trusted()).cloned(),
            chain: Delegation::by(&message.view()),
        }
    }

    /// Those who ask: the sender last.
    pub(super) fn chain(&self) -> &Delegation {
        &self.chain
    }
}

/// The tokens for a neighbour, by the names of those who ask.
pub(super) struct Tokens {
    audience: String,
    kept: Mutex<HashMap<String, WorkloadToken>>,
}

impl Tokens {
    pub(super) fn new(audience: String) -> Self {
        Self {
            audience,
            kept: Mutex::default(),
        }
    }

    /// The header that shows who asks.
    ///
    /// # Errors
    /// [`RemoteError::Token`] if the platform makes no token.
    pub(super) async fn header(&self, asker: &Asker) -> Result<HeaderValue, RemoteError> {
        let agent = asker.agent.as_ref().ok_or_else(|| {
            let problem = "tokens are for agents of this platform alone";
            RemoteError::Token(problem.to_owned())
        })?;
        let known = self.kept.lock().get(&agent.name).cloned();
        let token = match known.filter(lasts) {
            Some(token) => token,
            None => {
                let made = asker.voice.workload_token_for(agent, &self.audience).await;
                let made = made.map_err(|error| RemoteError::Token(error.to_string()))?;
                let mut kept = self.kept.lock();
                kept.retain(|_, token| lasts(token));
                if kept.len() < MOST_TOKENS {
                    kept.insert(agent.name.clone(), made.clone());
                }
                made
            }
        };
        let header = HeaderValue::try_from(format!("Bearer {}", token.token));
        let mut header = header.map_err(|error| RemoteError::Token(error.to_string()))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// Whether a token is good for another while.
fn lasts(token: &WorkloadToken) -> bool {
    let end = UNIX_EPOCH + Duration::from_millis(token.expires);
    SystemTime::now() + LEAST < end
}
