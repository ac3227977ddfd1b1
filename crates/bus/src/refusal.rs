//! Refused or dropped attempts: their sources, reasons and counts.

mod shares;

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use sealbus_proof::NotAnAuthor;
use sealbus_seal::VerifyError;
use sealbus_seal::binding::BindingError;
use tokio::sync::Notify;

use crate::network::network_of;
use crate::text::{LONGEST_EXPLANATION, excerpt};
pub use shares::{Allowance, Budget, LogShares};

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// A message whose `:sender` is not the proved name.
    ForgedSender,
    /// A peer or an agent without a certificate, or with an invalid proof.
    NotProved,
    /// A certificate of an authority that is not trusted here.
    UnknownIssuer,
    /// A certificate that was revoked.
    Revoked,
    /// A certificate outside its time of validity.
    Expired,
    /// A certificate of another platform, or one made for another purpose.
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
    /// A message in the clear that says it is sealed, or must be sealed.
    NotSealed,
    /// A sealed message that does not open: it was changed, or is sealed to a key that its receiver does not have.
    NotOpened,
    /// A certificate without the proof that it is in the issuance log of its CA.
    NotLogged,
}

impl RefusalReason {
    /// All reasons, in the order of [`RefusalLog::counts`].
    pub const ALL: [Self; 14] = [
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
        Self::NotSealed,
        Self::NotOpened,
        Self::NotLogged,
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
            Self::NotSealed => "not-sealed",
            Self::NotOpened => "not-opened",
            Self::NotLogged => "not-logged",
        }
    }

    /// The number that stands for the reason on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason that a number stands for.
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

impl From<&NotAnAuthor> for RefusalReason {
    fn from(error: &NotAnAuthor) -> Self {
        match error {
            NotAnAuthor::Untrusted(error) => error.into(),
            NotAnAuthor::NotLogged(_) => Self::NotLogged,
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why something that arrived was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedRefusal {
    /// Why, for machines.
    pub reason: RefusalReason,
    /// Why, for people.
    pub explanation: String,
}

/// One thing refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// When the attempt was refused.
    pub time: SystemTime,
    /// The source of the attempt: the agent name it gave, or the address it came from.
    pub tried_by: String,
    /// The proved identity, if anything was proved.
    pub proved: Option<String>,
    /// The receiver that it tried to reach.
    pub receiver: Option<String>,
    /// The reason for the refusal.
    pub reason: RefusalReason,
    /// The reason for people, with the remedy.
    pub explanation: String,
}

/// The number of refusals kept for inspection. The counts go on.
const KEPT: usize = 1024;
/// The latest refusals, and the number of refusals of each kind.
#[derive(Debug, Default)]
pub struct RefusalLog {
    inner: Mutex<Inner>,
    noted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    last: VecDeque<Refusal>,
    counts: [u64; RefusalReason::ALL.len()],
    shares: LogShares,
}

/// The source that a refusal counts against: the proved identity, or else the [network](network_of) of the address. The
/// port is left out, because it costs nothing to change. A claimed name counts only if there is neither.
fn source(refusal: &Refusal) -> String {
    let Refusal {
        proved, tried_by, ..
    } = refusal;
    if let Some(proved) = proved {
        return proved.clone();
    }
    let socket = tried_by.parse().map(|it: SocketAddr| it.ip());
    // A gateway writes `NAME at IP`.
    let at = tried_by.rsplit_once(" at ").map(|(_, at)| at);
    let address = socket.ok().or_else(|| at?.parse::<IpAddr>().ok());
    address.map_or_else(|| tried_by.clone(), |it| network_of(it).to_string())
}

impl RefusalLog {
    /// Notes a refusal and logs it (target `sealbus::refused`), unless its source has filled its share of the log.
    pub fn note(&self, refusal: Refusal) {
        let short = |text: &str| excerpt(text, LONGEST_EXPLANATION);
        let refusal = Refusal {
            tried_by: short(&refusal.tried_by),
            proved: refusal.proved.as_deref().map(short),
            receiver: refusal.receiver.as_deref().map(short),
            explanation: short(&refusal.explanation),
            ..refusal
        };
        let mut inner = self.inner.lock();
        let is_logged = inner.shares.admit(source(&refusal));
        inner.counts[usize::from(refusal.reason.code())] += 1;
        if inner.last.len() == KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(refusal.clone());
        drop(inner);
        self.noted.notify_one();
        if let Some(left_out) = is_logged {
            tracing::warn!(
                target: "sealbus::refused",
                tried_by = %refusal.tried_by,
                proved = refusal.proved.as_deref().unwrap_or("nothing"),
                receiver = refusal.receiver.as_deref().unwrap_or("-"),
                reason = %refusal.reason,
                left_out,
                "{}",
                refusal.explanation
            );
        }
    }

    /// Notifies one waiting task of each refusal.
    pub fn noted(&self) -> Arc<Notify> {
        self.noted.clone()
    }

    /// The last refusals, oldest first.
    pub fn last(&self) -> Vec<Refusal> {
        self.inner.lock().last.iter().cloned().collect()
    }

    /// The number of refusals for each reason.
    pub fn counts(&self) -> Vec<(RefusalReason, u64)> {
        let counts = self.inner.lock().counts;
        RefusalReason::ALL.into_iter().zip(counts).collect()
    }

    /// The number of refusals in all.
    pub fn total(&self) -> u64 {
        self.inner.lock().counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::shares::SOURCES;
    use super::*;

    fn refusal(tried_by: &str, proved: Option<&str>) -> Refusal {
        Refusal {
            time: SystemTime::UNIX_EPOCH,
            tried_by: tried_by.to_owned(),
            proved: proved.map(str::to_owned),
            receiver: None,
            reason: RefusalReason::ForgedSender,
            explanation: "no".to_owned(),
        }
    }

    /// The number of lines written, and the number of refusals that they report as left out.
    fn lines(log: &RefusalLog, refusals: impl Iterator<Item = Refusal>, now: u64) -> (u64, u64) {
        refusals.fold((0, 0), |(lines, left_out), refusal| {
            let shares = &mut log.inner.lock().shares;
            match shares.admit_at(source(&refusal), Duration::from_secs(now)) {
                Some(more) => (lines + 1, left_out + more),
                None => (lines, left_out),
            }
        })
    }

    #[test]
    fn names_in_turn_do_not_fill_the_log() {
        let log = RefusalLog::default();
        let names = ["alice@factory", "bob@factory", "carol@factory"];
        let tries = (0..10_000).map(|it| refusal(names[it % 3], Some("mallory@factory")));
        assert_eq!(lines(&log, tries, 0), (5, 0));
        // Other sources still get their lines, and a line reports how many refusals were left out.
        let other = std::iter::once(refusal("x", Some("dave@factory")));
        assert_eq!(lines(&log, other, 0), (1, 9_995));
    }

    #[test]
    fn ports_of_one_address_are_one_source() {
        let log = RefusalLog::default();
        let tries = (1..60_000_u16).map(|port| refusal(&format!("192.0.2.7:{port}"), None));
        assert_eq!(lines(&log, tries, 0).0, 5);
        let later = std::iter::once(refusal("192.0.2.7:1", None));
        assert_eq!(lines(&log, later, 61).0, 1);
    }

    #[test]
    fn names_and_addresses_that_a_stranger_chooses_are_one_source() {
        let log = RefusalLog::default();
        let names = (0..10_000).map(|it| refusal(&format!("a{it} at home@x at 192.0.2.7"), None));
        assert_eq!(lines(&log, names, 0), (5, 0));
        let ports = std::iter::once(refusal("192.0.2.7:1", None));
        assert_eq!(lines(&log, ports, 0).0, 0);
        let hosts = (0..10_000).map(|it| refusal(&format!("[2001:db8::{it:x}]:1"), None));
        assert_eq!(lines(&log, hosts, 0).0, 5);
    }

    #[test]
    fn many_sources_share_one_log_and_little_memory() {
        let log = RefusalLog::default();
        let tries = (0..200_000_u32).map(|it| {
            let address = std::net::Ipv4Addr::from(it);
            refusal(&format!("{address}:1"), None)
        });
        let (lines, _) = lines(&log, tries, 0);
        assert!(lines <= 50, "{lines} lines");
        assert!(log.inner.lock().shares.sources.len() <= SOURCES);
    }

    #[test]
    fn what_was_tried_is_shown_short_and_without_control_characters() {
        let log = RefusalLog::default();
        let name = format!("\u{1b}[2J{}", "x".repeat(100_000));
        log.note(refusal(&name, None));
        let last = log.last();
        let shown = &last[0].tried_by;
        assert!(
            shown.len() <= LONGEST_EXPLANATION + 8,
            "{} bytes",
            shown.len()
        );
        assert!(shown.starts_with("\\u{1b}[2J"), "{shown}");
        assert_eq!(log.total(), 1);
    }
}
