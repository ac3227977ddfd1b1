//! Serial numbers and fingerprints of certificates.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A certificate's serial number: 127 random bits, unique across all CA instances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial([u8; 16]);

/// SHA-256 of a certificate's DER.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Serial {
    /// A fresh random serial number: positive, as RFC 5280 section 4.1.2.2 demands.
    pub fn random() -> Result<Self, crate::KeyError> {
        let mut bytes: [u8; 16] = crate::key::random()?;
        bytes[0] &= 0x7f;
        Ok(Self(bytes))
    }

    /// A serial number from 16 bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The number in an INTEGER in DER; `None` if it has more than 16 bytes.
    pub(crate) fn from_der(integer: &[u8]) -> Option<Self> {
        let start = integer
            .iter()
            .position(|byte| *byte != 0)
            .unwrap_or(integer.len());
        let digits = &integer[start..];
        let mut bytes = [0; 16];
        let pad = bytes.len().checked_sub(digits.len())?;
        bytes[pad..].copy_from_slice(digits);
        Some(Self(bytes))
    }
}

impl Fingerprint {
    /// The fingerprint of a certificate.
    pub fn of(der: &[u8]) -> Self {
        Self(crate::sha256(&[der]))
    }

    /// A fingerprint from the 32 bytes of the digest.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

macro_rules! hexadecimal_traits {
    ($type:ident, $error:ident, $message:literal) => {
        #[doc = concat!("The text is not a ", stringify!($type), " in lower-case hexadecimal.")]
        #[derive(Clone, Debug, PartialEq, Eq, Error)]
        #[error($message)]
        pub struct $error(String);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&data_encoding::HEXLOWER.encode(&self.0))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $type {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
                bytes
                    .and_then(|bytes| bytes.try_into().ok())
                    .map(Self)
                    .ok_or_else(|| $error(text.chars().take(80).collect()))
            }
        }

        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

hexadecimal_traits!(
    Serial,
    NotASerial,
    "{0:?} is not a serial number of 32 lower-case hexadecimal digits (see `sealbus ca list`)"
);
hexadecimal_traits!(
    Fingerprint,
    NotAFingerprint,
    "{0:?} is not a SHA-256 fingerprint of 64 lower-case hexadecimal digits"
);
