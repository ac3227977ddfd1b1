//! Why a request is not carried out.

use serde::{Deserialize, Serialize};

/// The answer to a request that was refused or failed: what happened, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}", self.advice.as_deref().map(|advice| format!(" ({advice})")).unwrap_or_default())]
pub struct Fault {
    /// The kind of fault, for programs.
    pub code: FaultCode,
    /// A description of the event and of those concerned.
    pub message: String,
    /// The remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Fault {
    /// A fault without advice.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            advice: None,
        }
    }

    /// A fault of this side, which the other side cannot repair.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(FaultCode::Internal, error.to_string())
    }

    /// The fault of an answer that belongs to another question.
    pub fn other_answer() -> Self {
        let message = "the other side answered something else than was asked";
        Self::new(FaultCode::Internal, message)
            .advise("run the same version of sealbus on both sides: `sealbus version`")
    }

    /// Whether the fault may pass, so that the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(
            self.code,
            FaultCode::Unavailable | FaultCode::Storage | FaultCode::Full
        )
    }

    /// Adds advice on what to do.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl From<std::convert::Infallible> for Fault {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultCode {
    /// The request could not be read, or makes no sense here.
    BadRequest,
    /// A token or ticket is unknown, already used, or expired.
    InvalidSecret,
    /// The name belongs to another node or agent that is alive.
    NameTaken,
    /// The name is not legal.
    IllegalName,
    /// The clocks of both sides differ by more than a certificate allows.
    ClockSkew,
    /// The CA refused to sign, because the Master did not place that agent there.
    NotPlaced,
    /// The asker is not allowed to do that.
    NotPermitted,
    /// There is no agent, node or process of that name.
    Unknown,
    /// No node can take the agent.
    NoNode,
    /// The Master does not lead, and has done nothing: the leading Master takes the request.
    NotLeading,
    /// The other side could not be reached in time; asking again may help.
    Unavailable,
    /// The disk is full or the state store failed.
    Storage,
    /// There is no more room now. Asking again later may help.
    Full,
    /// The request or its answer is larger than a message may be.
    TooLarge,
    /// A program could not be started.
    StartFailed,
    /// Anything else that went wrong inside the platform.
    Internal,
    /// A kind that a newer peer knows.
    #[serde(other)]
    Other,
}
