//! One-time secrets, each in one printable word: join tokens for nodes, and tickets for programs.

mod book;

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::certificate::Fingerprint;
use crate::identity::{Identity, IdentityError, Name, PlatformName};
use crate::key::KeyError;
use crate::timestamp::Timestamp;

pub use book::{TokenBook, TokenEntry};

/// The longest token that is read, in characters.
pub const LONGEST_TOKEN: usize = 4096;

/// The most addresses in a token.
pub const MOST_ADDRESSES: usize = 8;

/// The most tokens that a book keeps.
pub const MOST_TOKENS: usize = 10_000;

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// A machine joins the platform as a Remote Node.
    Join,
    /// A program that the platform did not start joins as an agent.
    Ticket,
    /// A machine joins the platform as a further Master, with a CA of its own.
    Master,
}

/// A one-time secret with the facts needed to use it: the platform's addresses, and the root to trust there.
///
/// Its text, by [`fmt::Display`] and [`FromStr`], is one word such as `sealbus-join:AQ…`. Any holder of the token can
/// use it. Show it once, to its intended user.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    purpose: Purpose,
    platform: PlatformName,
    name: Option<Name>,
    addresses: Vec<String>,
    root: Fingerprint,
    secret: Secret,
}

/// 256 random bits. They are overwritten when dropped, and `Debug` never shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; 32]>);

/// The SHA-256 of a secret, stored in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SecretHash(Fingerprint);

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The text is not a token.
    #[error(
        "not a token: {0}; copy the whole word that begins with sealbus-join:, sealbus-ticket: or sealbus-master:"
    )]
    Malformed(&'static str),
    /// A name in the token is not legal.
    #[error("not a token: {0}")]
    Name(#[from] IdentityError),
    /// The text is a token for another purpose.
    #[error("this is a {found}, but a {expected} is needed")]
    WrongPurpose {
        /// The purpose that was needed.
        expected: Purpose,
        /// The kind of token found.
        found: Purpose,
    },
    /// No token with this secret was made here, or it was made very long ago.
    #[error("unknown {0}: it was not made by this platform; make a new one")]
    Unknown(Purpose),
    /// The token was used before.
    #[error("the {purpose} was used already, at {at}, by {by}; each is good once: make a new one")]
    Redeemed {
        /// The kind of token.
        purpose: Purpose,
        /// When it was used.
        at: Timestamp,
        /// The name of its user.
        by: Name,
    },
    /// The token was not used in time.
    #[error("the {purpose} expired at {at}; make a new one")]
    Expired {
        /// The kind of token.
        purpose: Purpose,
        /// When it expired.
        at: Timestamp,
    },
    /// The token was made for another name.
    #[error("the {purpose} was made for {expected}, not for {found}")]
    WrongName {
        /// The kind of token.
        purpose: Purpose,
        /// The name that the token was made for.
        expected: Name,
        /// The name that used it.
        found: Name,
    },
    /// Too many tokens are open.
    #[error("{MOST_TOKENS} tokens are open already; wait until some expire")]
    Full,
    /// The secret could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Join => "join token",
            Self::Ticket => "ticket",
            Self::Master => "token for a Master",
        })
    }
}

impl Purpose {
    const ALL: [Self; 3] = [Self::Join, Self::Ticket, Self::Master];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Join => "sealbus-join:",
            Self::Ticket => "sealbus-ticket:",
            Self::Master => "sealbus-master:",
        }
    }
}

impl Secret {
    /// A fresh random secret.
    pub fn random() -> Result<Self, KeyError> {
        crate::key::random().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// A secret from its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The 32 bytes, for sending.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its text: base64url, 43 characters.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(*self.0)
    }

    /// A message authentication code whose key is this secret: HMAC-SHA256 over `context` and `data`.
    pub fn mac(&self, context: &[u8], data: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.0);
        let tag = hmac::sign(&key, &[context, data].concat());
        let mut mac = [0; 32];
        mac.copy_from_slice(tag.as_ref());
        mac
    }

    /// Whether `mac` is the result of [`mac`](Secret::mac), compared in constant time.
    pub fn has_mac(&self, context: &[u8], data: &[u8], mac: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.0);
        hmac::verify(&key, &[context, data].concat(), mac).is_ok()
    }

    /// The hash that may be stored. A secret of 256 random bits needs no slow hash.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Fingerprint::of(&*self.0))
    }
}

/// Lower-case hexadecimal, 64 characters.
impl fmt::Display for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Base64url, 43 characters.
impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(self.text()))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Secret {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut bytes = Zeroizing::new([0; 32]);
        match URL_SAFE_NO_PAD.decode_slice(text, bytes.as_mut_slice()) {
            Ok(32) => Ok(Self(bytes)),
            _ => Err(TokenError::Malformed(
                "the secret is not 43 characters of base64url",
            )),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Token {
    /// A token with a fresh secret. `addresses` have the form `host:port`. `root` is the fingerprint of the platform's
    /// root certificate. Without a `name`, the user of the token chooses one.
    pub fn new(
        purpose: Purpose,
        platform: PlatformName,
        name: Option<Name>,
        addresses: Vec<String>,
        root: Fingerprint,
    ) -> Result<Self, TokenError> {
        check_addresses(&addresses)?;
        Ok(Self {
            purpose,
            platform,
            name,
            addresses,
            root,
            secret: Secret::random()?,
        })
    }

    /// The same token for a user that reaches the platform at another address, `host:port`.
    pub fn at(self, address: String) -> Result<Self, TokenError> {
        let addresses = vec![address];
        check_addresses(&addresses)?;
        Ok(Self { addresses, ..self })
    }

    /// The purpose of the token.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The platform that the token is for.
    pub fn platform(&self) -> &PlatformName {
        &self.platform
    }

    /// The name that the token was made for, if it is bound to one.
    pub fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// The addresses to connect to, `host:port`, to be tried in order.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The fingerprint of the root certificate that the server must show.
    pub fn root(&self) -> Fingerprint {
        self.root
    }

    /// The secret.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Reads a token and checks its purpose.
    pub fn parse(purpose: Purpose, text: &str) -> Result<Self, TokenError> {
        let token: Self = text.parse()?;
        if token.purpose != purpose {
            return Err(TokenError::WrongPurpose {
                expected: purpose,
                found: token.purpose,
            });
        }
        Ok(token)
    }
}

fn check_addresses(addresses: &[String]) -> Result<(), TokenError> {
    let plausible = |address: &String| {
        address.len() <= 255
            && address.bytes().all(|byte| byte.is_ascii_graphic())
            && address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    if addresses.is_empty() || addresses.len() > MOST_ADDRESSES {
        return Err(TokenError::Malformed(
            "it has no address or more than eight",
        ));
    }
    if !addresses.iter().all(plausible) {
        return Err(TokenError::Malformed(
            "an address in it is not of the form host:port",
        ));
    }
    Ok(())
}

const VERSION: u8 = 1;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Zeroizing::new(Vec::with_capacity(256));
        bytes.push(VERSION);
        bytes.extend_from_slice(self.secret.as_bytes());
        bytes.extend_from_slice(self.root.as_bytes());
        let name = self.name.as_ref().map(Name::as_str).unwrap_or_default();
        for text in [self.platform.as_str(), name] {
            bytes.push(text.len() as u8);
            bytes.extend_from_slice(text.as_bytes());
        }
        for address in &self.addresses {
            bytes.push(address.len() as u8);
            bytes.extend_from_slice(address.as_bytes());
        }
        let body = Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice()));
        write!(f, "{}{}", self.purpose.prefix(), body.as_str())
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() > LONGEST_TOKEN {
            return Err(TokenError::Malformed("it is too long"));
        }
        let (purpose, body) = Purpose::ALL
            .into_iter()
            .find_map(|purpose| Some((purpose, text.strip_prefix(purpose.prefix())?)))
            .ok_or(TokenError::Malformed("it begins with neither"))?;
        let cut = TokenError::Malformed("it is cut short or altered");
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(body).map_err(|_| cut.clone())?);
        let rest = bytes.as_slice();
        let (version, rest) = rest.split_first().ok_or(cut.clone())?;
        if *version != VERSION {
            return Err(TokenError::Malformed(
                "it was made by another version of Sealbus",
            ));
        }
        let (secret, rest) = rest.split_first_chunk::<32>().ok_or(cut.clone())?;
        let (root, rest) = rest.split_first_chunk::<32>().ok_or(cut.clone())?;
        let (platform, rest) = short_text(rest)?;
        let (name, mut rest) = short_text(rest)?;
        let mut addresses = Vec::new();
        while !rest.is_empty() && addresses.len() <= MOST_ADDRESSES {
            let (address, after) = short_text(rest)?;
            addresses.push(address.to_owned());
            rest = after;
        }
        check_addresses(&addresses)?;
        Ok(Self {
            purpose,
            platform: PlatformName::new(platform)?,
            name: (!name.is_empty())
                .then(|| Name::new("token's", name))
                .transpose()?,
            addresses,
            root: Fingerprint::from_bytes(*root),
            secret: Secret::from_bytes(*secret),
        })
    }
}

fn short_text(bytes: &[u8]) -> Result<(&str, &[u8]), TokenError> {
    let cut = TokenError::Malformed("it is cut short or altered");
    let (length, rest) = bytes.split_first().ok_or(cut.clone())?;
    let (text, rest) = rest
        .split_at_checked(usize::from(*length))
        .ok_or(cut.clone())?;
    Ok((std::str::from_utf8(text).map_err(|_| cut)?, rest))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("purpose", &self.purpose)
            .field("platform", &self.platform)
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Purpose {
    /// The identity that a redeemed token of this purpose gives.
    pub fn identity(self, platform: &PlatformName, name: &Name) -> Identity {
        let (platform, name) = (platform.clone(), name.clone());
        match self {
            Self::Join => Identity::Node { platform, name },
            Self::Ticket => Identity::Agent { platform, name },
            Self::Master => Identity::Authority { platform, name },
        }
    }
}
