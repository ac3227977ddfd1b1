//! Addresses of channels and of the agents on them, in the URL form of the AgentBus papers.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::path::{self, ChannelPath, LONGEST_LEVEL, PathProblem};
use super::qos::{QosOverride, QosProblem};

/// The longest address, in bytes.
pub const LONGEST_ADDRESS: usize = 2048;

/// The beginning of an address. Both schemes mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressScheme {
    /// `cia:`, as in the papers.
    Cia,
    /// `sealbus:`.
    #[default]
    Sealbus,
}

impl AddressScheme {
    /// The scheme without its colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cia => "cia",
            Self::Sealbus => "sealbus",
        }
    }
}

/// The platform of the channel: `<user>@<country>:<pid>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelOwner {
    /// The user, such as `frank.kargl`.
    pub user: String,
    /// The country, such as `de`. Any name without `:`, `/` and `@` is accepted.
    pub country: String,
    /// The number that distinguishes several platforms of one user.
    pub pid: Option<u32>,
}

/// `cia:<qos>://<user>@<country>:<pid>/<channel path>/<agent>`, such as
/// `cia://frank.kargl@de/dates/business/diary-agent`: the agent `diary-agent` on the channel `/dates/business`.
///
/// `<qos>` and `:<pid>` may be left out. The last segment is the agent. An address that ends with `/` names the channel
/// itself: `cia://frank.kargl@de/dates/business/`. If nothing stands between `//` and the next `/`, the channel is on
/// the reader's own platform: `sealbus:///dates/business/`. Characters that are not plain in a URL are percent-encoded
/// UTF-8. The QoS is the text of [`Qos`](super::Qos), which needs no encoding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelAddress {
    /// The scheme.
    pub scheme: AddressScheme,
    /// The differences from the default.
    pub qos: QosOverride,
    /// The platform; `None`: the reader's own.
    pub owner: Option<ChannelOwner>,
    /// The channel.
    pub channel: ChannelPath,
    /// The agent's name on the channel, local (`diary-agent`) or whole (`diary-agent@factory`).
    pub agent: Option<String>,
}

/// The reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset} of the address {text:?}: {problem}")]
pub struct AddressError {
    /// The text, cut to 80 characters.
    pub text: String,
    /// The place of the fault, in bytes from the start of the text.
    pub offset: usize,
    /// The fault at that place.
    pub problem: AddressProblem,
}

/// The fault in the text of an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressProblem {
    /// Longer than [`LONGEST_ADDRESS`].
    #[error("longer than {LONGEST_ADDRESS} bytes")]
    TooLong,
    /// Another scheme.
    #[error("expected 'cia:' or 'sealbus:'")]
    Scheme,
    /// No `//`.
    #[error("expected '://' after the scheme and the QoS")]
    Slashes,
    /// The QoS is not valid.
    #[error(transparent)]
    Qos(#[from] QosProblem),
    /// No `@`.
    #[error("expected <user>@<country>")]
    Owner,
    /// User or country is empty.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// User or country is too long.
    #[error("the {0} is longer than {LONGEST_LEVEL} bytes")]
    PartTooLong(&'static str),
    /// The process id is not a number.
    #[error("expected the pid, a number up to 4294967295")]
    Pid,
    /// No channel.
    #[error("expected '/' and the path of the channel")]
    NoChannel,
    /// The channel is not valid.
    #[error(transparent)]
    Channel(PathProblem),
    /// `%` without two hexadecimal digits.
    #[error("expected two hexadecimal digits after '%'")]
    Percent,
    /// The encoded bytes are no UTF-8.
    #[error("the percent-encoded bytes are not UTF-8")]
    NotUtf8,
    /// A character that must be encoded.
    #[error("the character {0:?} must be percent-encoded here")]
    Illegal(char),
}

impl ChannelAddress {
    /// The channel on the reader's own platform, at the default QoS.
    pub fn of(channel: ChannelPath) -> Self {
        Self {
            scheme: AddressScheme::default(),
            qos: QosOverride::default(),
            owner: None,
            channel,
            agent: None,
        }
    }
}

type At<T> = Result<T, (usize, AddressProblem)>;

fn read(text: &str) -> At<ChannelAddress> {
    if text.len() > LONGEST_ADDRESS {
        return Err((LONGEST_ADDRESS, AddressProblem::TooLong));
    }
    let (scheme, start) = [AddressScheme::Cia, AddressScheme::Sealbus]
        .into_iter()
        .find_map(|scheme| {
            let head = text.get(..scheme.as_str().len())?;
            (head.eq_ignore_ascii_case(scheme.as_str())
                && text.as_bytes().get(head.len()) == Some(&b':'))
            .then_some((scheme, head.len() + 1))
        })
        .ok_or((0, AddressProblem::Scheme))?;
    let rest = &text[start..];
    let (qos, after_qos) = match rest.strip_prefix("//") {
        Some(after) => ("", after),
        None => rest
            .split_once("://")
            .ok_or((start, AddressProblem::Slashes))?,
    };
    let qos = qos
        .parse()
        .map_err(|error: super::QosError| (start + error.offset, error.problem.into()))?;
    let owner_at = text.len() - after_qos.len();
    let length = after_qos
        .find('/')
        .ok_or((text.len(), AddressProblem::NoChannel))?;
    let owner =
        read_owner(&after_qos[..length]).map_err(|(at, problem)| (owner_at + at, problem))?;
    let (channel, agent) = read_path(&after_qos[length..])
        .map_err(|(at, problem)| (owner_at + length + at, problem))?;
    Ok(ChannelAddress {
        scheme,
        qos,
        owner,
        channel,
        agent,
    })
}

fn read_owner(text: &str) -> At<Option<ChannelOwner>> {
    if text.is_empty() {
        return Ok(None);
    }
    let (user, rest) = text.split_once('@').ok_or((0, AddressProblem::Owner))?;
    let rest_at = user.len() + 1;
    let (country, pid) = match rest.split_once(':') {
        None => (rest, None),
        Some((country, digits)) => {
            let at = rest_at + country.len() + 1;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            let pid = digits.parse().ok().filter(|_| is_number);
            (country, Some(pid.ok_or((at, AddressProblem::Pid))?))
        }
    };
    let part = |what, text: &str, at: usize| {
        let decoded = decode(text).map_err(|(offset, problem)| (at + offset, problem))?;
        match decoded.len() {
            0 => Err((at, AddressProblem::Empty(what))),
            1..=LONGEST_LEVEL => Ok(decoded),
            _ => Err((at, AddressProblem::PartTooLong(what))),
        }
    };
    Ok(Some(ChannelOwner {
        user: part("user", user, 0)?,
        country: part("country", country, rest_at)?,
        pid,
    }))
}

/// Reads the text from its first `/` on.
fn read_path(text: &str) -> At<(ChannelPath, Option<String>)> {
    let (channel, agent) = text.rsplit_once('/').unwrap_or((text, ""));
    if channel.is_empty() {
        return Err((1, AddressProblem::NoChannel));
    }
    let mut decoded = String::with_capacity(channel.len());
    // The text is decoded level by level, so that an encoded slash does not split a level, and the place of an error is
    // known.
    let mut at = 1;
    for level in channel[1..].split('/') {
        let plain = decode(level).map_err(|(offset, problem)| (at + offset, problem))?;
        path::check_level(&plain, false).map_err(|(offset, problem)| {
            (
                at + encoded_offset(level, offset),
                AddressProblem::Channel(problem),
            )
        })?;
        decoded.push('/');
        decoded.push_str(&plain);
        at += level.len() + 1;
    }
    let channel_path =
        ChannelPath::new(&decoded).map_err(|error| (0, AddressProblem::Channel(error.problem)))?;
    let at = channel.len() + 1;
    let agent = match agent {
        "" => None,
        agent => {
            let plain = decode(agent).map_err(|(offset, problem)| (at + offset, problem))?;
            path::check_level(&plain, false).map_err(|(offset, problem)| {
                (
                    at + encoded_offset(agent, offset),
                    AddressProblem::Channel(problem),
                )
            })?;
            Some(plain)
        }
    };
    Ok((channel_path, agent))
}

/// The offset in the encoded text that belongs to the byte at `offset` of the decoded text.
fn encoded_offset(encoded: &str, offset: usize) -> usize {
    let mut at = 0;
    for _ in 0..offset {
        at += if encoded.as_bytes().get(at) == Some(&b'%') {
            3
        } else {
            1
        };
    }
    at
}

/// Whether a character needs no encoding: the unreserved characters of RFC 3986, section 2.3, those of section 3.3 that
/// have no meaning here, and `@`, which whole agent names contain.
fn is_plain(byte: u8, allow_at: bool) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'+'
                | b','
                | b';'
                | b'='
        )
        || (allow_at && matches!(byte, b'@' | b':'))
}

fn decode(text: &str) -> At<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let digit = |index: usize| {
                bytes
                    .get(index)
                    .and_then(|byte| char::from(*byte).to_digit(16))
            };
            let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
                return Err((at, AddressProblem::Percent));
            };
            decoded.push((high * 16 + low) as u8);
            at += 3;
        } else if byte >= 0x80 || is_plain(byte, true) || byte == b'*' {
            // Users paste UTF-8 without encoding, which is unambiguous. The enclosing part refuses a `*`.
            decoded.push(byte);
            at += 1;
        } else {
            let character = text[at..].chars().next().unwrap_or('\u{fffd}');
            return Err((at, AddressProblem::Illegal(character)));
        }
    }
    String::from_utf8(decoded).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        (encoded_offset(text, valid), AddressProblem::NotUtf8)
    })
}

fn encode(f: &mut fmt::Formatter<'_>, text: &str, allow_at: bool) -> fmt::Result {
    for byte in text.bytes() {
        if is_plain(byte, allow_at) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl FromStr for ChannelAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        read(text).map_err(|(offset, problem)| AddressError {
            text: text.chars().take(80).collect(),
            offset,
            problem,
        })
    }
}

impl fmt::Display for ChannelAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme.as_str())?;
        if self.qos != QosOverride::default() {
            write!(f, "{}:", self.qos)?;
        }
        f.write_str("//")?;
        if let Some(owner) = &self.owner {
            encode(f, &owner.user, false)?;
            f.write_str("@")?;
            encode(f, &owner.country, false)?;
            if let Some(pid) = owner.pid {
                write!(f, ":{pid}")?;
            }
        }
        for level in self.channel.levels() {
            f.write_str("/")?;
            encode(f, level, true)?;
        }
        f.write_str("/")?;
        match &self.agent {
            Some(agent) => encode(f, agent, true),
            None => Ok(()),
        }
    }
}
