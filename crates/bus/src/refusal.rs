//! What was refused or dropped, by whom it was tried, and how often.

use std::collections::VecDeque;
use std::fmt;
use std::time::SystemTime;

use parking_lot::Mutex;
use sealbus_seal::VerifyError;
use sealbus_seal::binding::BindingError;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// A message whose `:sender` is not the name that was proved.
    ForgedSender,
    /// A peer or an agent without a certificate, or with a proof that does not hold.
    NotProved,
    /// A certificate of an authority that is not trusted here.
    UnknownIssuer,
    /// A certificate that was revoked.
    Revoked,
    /// A certificate outside its time of validity.
    Expired,
    /// A certificate of another platform, or for something else than it was shown for.
    WrongIdentity,
    /// The other side runs at another security level.
    LevelMismatch,
    /// The policy does not allow it.
    NotPermitted,
    /// More bytes than allowed.
    TooLarge,
    /// Bytes that are not the protocol.
    Malformed,
    /// More connections, agents or bytes than one peer may use.
    OverLimit,
}

impl RefusalReason {
    /// All reasons, in the order of [`RefusalLog::counts`].
    pub const ALL: [Self; 11] = [
        Self::ForgedSender,
        Self::NotProved,
        Self::UnknownIssuer,
        Self::Revoked,
        Self::Expired,
        Self::WrongIdentity,
        Self::LevelMismatch,
        Self::NotPermitted,
        Self::TooLarge,
        Self::Malformed,
        Self::OverLimit,
    ];

    /// The reason as one word of a report, such as `forged-sender`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ForgedSender => "forged-sender",
            Self::NotProved => "not-proved",
            Self::UnknownIssuer => "unknown-issuer",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::WrongIdentity => "wrong-identity",
            Self::LevelMismatch => "level-mismatch",
            Self::NotPermitted => "not-permitted",
            Self::TooLarge => "too-large",
            Self::Malformed => "malformed",
            Self::OverLimit => "over-limit",
        }
    }

    /// The number that stands for it on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason a number stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl From<&VerifyError> for RefusalReason {
    fn from(error: &VerifyError) -> Self {
        match error {
            VerifyError::NoCertificate | VerifyError::Malformed(_) => Self::NotProved,
            VerifyError::UnknownIssuer { .. } | VerifyError::WrongRoot { .. } => {
                Self::UnknownIssuer
            }
            VerifyError::Expired { .. } | VerifyError::NotYetValid { .. } => Self::Expired,
            VerifyError::Revoked { .. } => Self::Revoked,
            VerifyError::WrongPlatform { .. }
            | VerifyError::WrongKind { .. }
            | VerifyError::WrongIdentity { .. } => Self::WrongIdentity,
            _ => Self::NotProved,
        }
    }
}

impl From<&BindingError> for RefusalReason {
    fn from(error: &BindingError) -> Self {
        match error {
            BindingError::NotVerified(error) => error.into(),
            _ => Self::NotProved,
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// When.
    pub time: SystemTime,
    /// Who tried: the agent name it gave, or the address it came from.
    pub tried_by: String,
    /// Who it proved to be, if it proved anything.
    pub proved: Option<String>,
    /// Whom it wanted to reach.
    pub receiver: Option<String>,
    /// Why it was refused.
    pub reason: RefusalReason,
    /// The same for people, with what to do.
    pub explanation: String,
}

/// Refusals kept for looking at; the counts go on.
const KEPT: usize = 1024;

/// The last refusals, and how many there were of each kind.
#[derive(Debug, Default)]
pub struct RefusalLog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: VecDeque<Refusal>,
    /// How often the last one was tried in a row.
    repeated: u64,
    counts: [u64; RefusalReason::ALL.len()],
}

impl RefusalLog {
    /// Notes a refusal and logs it (target `sealbus::refused`).
    pub fn note(&self, refusal: Refusal) {
        let mut inner = self.inner.lock();
        let is_repeated = inner
            .last
            .back()
            .is_some_and(|last| last.reason == refusal.reason && last.tried_by == refusal.tried_by);
        inner.repeated = if is_repeated { inner.repeated + 1 } else { 1 };
        // Somebody who tries a million times shall not fill the log: the 1st, 2nd, 4th, 8th … are logged.
        if inner.repeated.is_power_of_two() {
            tracing::warn!(
                target: "sealbus::refused",
                tried_by = %refusal.tried_by,
                proved = refusal.proved.as_deref().unwrap_or("nothing"),
                receiver = refusal.receiver.as_deref().unwrap_or("-"),
                reason = %refusal.reason,
                times = inner.repeated,
                "{}",
                refusal.explanation
            );
        }
        inner.counts[usize::from(refusal.reason.code())] += 1;
        if inner.last.len() == KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(refusal);
    }

    /// The last refusals, oldest first.
    pub fn last(&self) -> Vec<Refusal> {
        self.inner.lock().last.iter().cloned().collect()
    }

    /// How many there were for each reason.
    pub fn counts(&self) -> Vec<(RefusalReason, u64)> {
        let counts = self.inner.lock().counts;
        RefusalReason::ALL.into_iter().zip(counts).collect()
    }

    /// How many there were in all.
    pub fn total(&self) -> u64 {
        self.inner.lock().counts.iter().sum()
    }
}
