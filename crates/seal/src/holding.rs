//! The holder of a certificate, which the certificate names: the process with the key, and its node. A certificate that
//! was renewed without knowledge of the platform's state also names the last one that was issued with that knowledge.
//!
//! The names are in a non-critical extension of the certificate. Its value is a text: the process, the node and, for a
//! renewal, the serial number and the start of that earlier certificate, separated by spaces.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{Name, ProcessId};
use crate::serial::Serial;
use crate::timestamp::Timestamp;

/// How long after its issue with knowledge of the platform's state a certificate may be renewed without it.
pub const GRANT: Duration = Duration::from_secs(24 * 3600);

/// The extension's object identifier.
pub(crate) const EXTENSION: [u64; 15] = [
    1, 2, 840, 113_556, 1, 8000, 2554, 42964, 34295, 20436, 19583, 42606, 4_912_364, 344_408, 1,
];
/// The tag of a UTF8String in DER.
const TEXT: u8 = 0x0c;

/// The process that holds the key of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The process.
    pub process: ProcessId,
    /// Its node.
    pub node: Name,
    /// The certificate that this one renews, if it was renewed without knowledge of the state.
    pub renews: Option<Renewed>,
}

/// A certificate that was issued with knowledge of the platform's state, and renewed without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// Its serial number.
    pub serial: Serial,
    /// Its first valid second.
    pub not_before: Timestamp,
}

impl Renewed {
    /// The time until which it may be renewed without knowledge of the state.
    pub fn until(&self) -> Timestamp {
        self.not_before.plus(GRANT)
    }
}

impl Holding {
    /// The value of the extension.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{} {}", self.process, self.node);
        if let Some(Renewed { serial, not_before }) = &self.renews {
            text.push_str(&format!(" {serial} {}", not_before.as_unix_seconds()));
        }
        // Names have at most 128 bytes, so one byte is enough for the length.
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        let mut value = match length {
            0..=127 => vec![TEXT, length],
            _ => vec![TEXT, 0x81, length],
        };
        value.extend_from_slice(text.as_bytes());
        value
    }

    /// Reads the value of the extension.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (length, text) = match value {
            [TEXT, 0x81, length @ 128..=255, text @ ..] | [TEXT, length @ 0..=127, text @ ..] => {
                (usize::from(*length), text)
            }
            _ => return None,
        };
        if text.len() != length {
            return None;
        }
        let words: Vec<&str> = std::str::from_utf8(text).ok()?.split(' ').collect();
        let renews = match words[..] {
            [_, _] => None,
            [_, _, serial, start] => Some(Renewed {
                serial: serial.parse().ok()?,
                not_before: Timestamp::from_unix_seconds(start.parse().ok()?),
            }),
            _ => return None,
        };
        Some(Self {
            process: words[0].parse().ok()?,
            node: Name::new("node", words[1]).ok()?,
            renews,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            process: [u8; 16],
            node in "[a-z0-9-]{1,128}",
            renews in proptest::option::of((any::<[u8; 16]>(), 0..u64::MAX)),
        ) {
            prop_assume!(Name::new("node", &node).is_ok());
            let holding = Holding {
                process: ProcessId::from_bytes(process),
                node: Name::new("node", &node).unwrap(),
                renews: renews.map(|(serial, start)| Renewed {
                    serial: Serial::from_bytes(serial),
                    not_before: Timestamp::from_unix_seconds(start),
                }),
            };
            prop_assert_eq!(Holding::decode(&holding.encode()), Some(holding));
        }

        #[test]
        fn other_bytes_are_refused_or_read_and_written_as_they_were(bytes: Vec<u8>) {
            if let Some(holding) = Holding::decode(&bytes) {
                prop_assert_eq!(Holding::decode(&holding.encode()), Some(holding));
            }
        }
    }
}
