//! The addresses of objects as people write them: `IOR:…`, and `corbaloc:…` (CORBA 3.3 part 2, 7.6.10).

use std::fmt;
use std::str::FromStr;

use crate::address_error::ObjectAddressError;
use crate::header::Version;
use crate::ior::{IiopProfile, Ior};

/// The port of a corbaloc that names none.
const USUAL_PORT: u16 = 2809;
/// The most ways to one object.
const MOST_ENDPOINTS: usize = 8;

/// The address of an object: the ways to reach it, each over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAddress {
    /// The ways, in order; at least one.
    endpoints: Vec<IiopProfile>,
    text: String,
}

impl ObjectAddress {
    /// The ways to reach the object, in order; at least one.
    pub fn endpoints(&self) -> &[IiopProfile] {
        &self.endpoints
    }

    /// The corbaloc that names the same object.
    pub fn corbaloc(profile: &IiopProfile) -> String {
        let mut text = "corbaloc::".to_owned();
        if profile.host.contains(':') {
            text.push_str(&format!("[{}]", profile.host));
        } else {
            text.push_str(&profile.host);
        }
        text.push_str(&format!(":{}/", profile.port));
        for byte in &profile.key {
            // RFC 2396's unreserved characters, and those that corbaloc leaves as they are.
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                    text.push(char::from(*byte));
                }
                other => text.push_str(&format!("%{other:02x}")),
            }
        }
        text
    }

    fn of_corbaloc(text: &str, rest: &str) -> Result<Vec<IiopProfile>, ObjectAddressError> {
        let wrong = |problem| ObjectAddressError::new(text, problem);
        let (addresses, key) = rest.split_once('/').unwrap_or((rest, ""));
        let key = unescaped(key).ok_or_else(|| wrong("its key has a % without two digits"))?;
        let endpoints = addresses.split(',').map(|address| {
            let address = match address.split_once(':') {
                Some((protocol, address))
                    if protocol.is_empty() || protocol.eq_ignore_ascii_case("iiop") =>
                {
                    address
                }
                _ => return Err(wrong("its protocol is not iiop")),
            };
            let (version, address) = match address.split_once('@') {
                None => (Version::V1_0, address),
                Some((version, address)) => {
                    let parts = version.split_once('.');
                    let version = parts.and_then(|(major, minor)| {
                        Version::of(major.parse().ok()?, minor.parse::<u8>().ok()?.min(2))
                    });
                    let version = version.ok_or_else(|| wrong("its version is not 1.0 to 1.2"))?;
                    (version, address)
                }
            };
            let (host, port) = match address.strip_prefix('[') {
                Some(bracketed) => {
                    let parts = bracketed.split_once(']');
                    let (host, rest) = parts.ok_or_else(|| wrong("its host lacks a ]"))?;
                    match rest.strip_prefix(':') {
                        None if !rest.is_empty() => {
                            return Err(wrong("its host has more than a port behind the ]"));
                        }
                        port => (host, port),
                    }
                }
                None => match address.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (address, None),
                },
            };
            let port = match port {
                None | Some("") => USUAL_PORT,
                Some(port) => port
                    .parse()
                    .map_err(|_| wrong("its port is not a number from 1 to 65535"))?,
            };
            Ok(IiopProfile {
                version,
                host: host.to_owned(),
                port,
                key: key.clone(),
                components: Vec::new(),
            })
        });
        endpoints.take(MOST_ENDPOINTS).collect()
    }
}

/// The bytes of a key whose special characters are written as `%` and two digits.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high << 4 | low).ok()?);
    }
    Some(bytes)
}

/// Whether a host can be looked up: a name, or an address without brackets.
fn is_host(host: &str) -> bool {
    let is_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    !host.is_empty() && host.len() <= 255 && host.bytes().all(is_name)
}

impl FromStr for ObjectAddress {
    type Err = ObjectAddressError;

    fn from_str(text: &str) -> Result<Self, ObjectAddressError> {
        let wrong = |problem| ObjectAddressError::new(text, problem);
        let is = |scheme: &str| {
            let beginning = text.get(..scheme.len());
            beginning.is_some_and(|it| it.eq_ignore_ascii_case(scheme))
        };
        let endpoints: Vec<_> = if is("IOR:") {
            let (ior, _) = Ior::from_text(text)?;
            ior.iiop_profiles().take(MOST_ENDPOINTS).collect()
        } else if is("corbaloc:") {
            if text.len() > 1000 {
                return Err(wrong("it is too long"));
            }
            Self::of_corbaloc(text, &text["corbaloc:".len()..])?
        } else {
            return Err(wrong("it begins with neither IOR: nor corbaloc:"));
        };
        if endpoints.is_empty() {
            return Err(wrong("it names no way over TCP"));
        }
        if !endpoints.iter().all(|it| is_host(&it.host)) {
            return Err(wrong("its host is not a name"));
        }
        if endpoints.iter().any(|it| it.port == 0) {
            return Err(wrong(
                "its port is 0: it may ask for TLS, which IIOP has not here",
            ));
        }
        Ok(Self {
            endpoints,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for ObjectAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
