//! Security levels: what a platform promises for the messages that it carries.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The promise made for each message, weakest first, so that levels compare by strength.
///
/// The level is part of the authenticated data. A peer that was downgraded to a weaker level is refused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum SecurityLevel {
    /// No promise: plain sockets, for measurements. This level must be requested by name.
    None,
    /// Confidentiality and integrity on each hop: TLS 1.3, with an authenticated server.
    Tls,
    /// As [`Tls`](Self::Tls), and every message's sender is proved to the hop that delivers the message.
    #[default]
    Auth,
    /// As [`Auth`](Self::Auth), and the receiver and any third party can check the author of the message.
    Signed,
    /// As [`Signed`](Self::Signed), and only sender and receiver can read the message.
    Sealed,
}

impl SecurityLevel {
    /// All levels, weakest first.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Tls,
        Self::Auth,
        Self::Signed,
        Self::Sealed,
    ];

    /// The level's name in manifests, on the command line and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tls => "tls",
            Self::Auth => "auth",
            Self::Signed => "signed",
            Self::Sealed => "sealed",
        }
    }

    /// The level's number on the wire and in signed statements: 0 is `none`, 4 is `sealed`.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The level with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// This level and the weaker ones, weakest first. This level keeps the promises of all of them.
    pub fn and_weaker(self) -> Vec<Self> {
        Self::ALL.into_iter().filter(|it| *it <= self).collect()
    }

    /// Whether connections are encrypted.
    pub fn encrypts(self) -> bool {
        self >= Self::Tls
    }

    /// Whether both ends of a connection, and each agent on it, prove their identity.
    pub fn authenticates(self) -> bool {
        self >= Self::Auth
    }
}

impl fmt::Display for SecurityLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for SecurityLevel {
    type Err = UnknownSecurityLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| UnknownSecurityLevel(text.chars().take(40).collect()))
    }
}

/// The text names no security level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown security level {0:?}: choose one of none, tls, auth, signed, sealed")]
pub struct UnknownSecurityLevel(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip_in_order_of_strength() {
        for (code, level) in SecurityLevel::ALL.into_iter().enumerate() {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(SecurityLevel::from_code(code as u8), Some(level));
            assert_eq!(usize::from(level.code()), code);
        }
        assert!(SecurityLevel::ALL.is_sorted());
        assert_eq!(SecurityLevel::from_code(5), None);
        assert!("Auth".parse::<SecurityLevel>().is_err());
        assert_eq!(SecurityLevel::default(), SecurityLevel::Auth);
    }
}
