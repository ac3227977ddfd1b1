//! Transport addresses: `http://host:port/path` and `https://…`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest address, in bytes.
const LONGEST: usize = 1000;

/// The address of another platform. Its text is safe in the head of a request: the parts contain neither blanks nor
/// control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpAddress {
    is_secure: bool,
    host: String,
    port: u16,
    path: String,
}

/// Why a text is not the address of a platform that this gateway can reach.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{}' is not an address that can be reached from here ({problem}): it must look like http://host:7778/acc", .text.escape_debug())]
pub struct HttpAddressError {
    /// The text, shortened.
    pub text: String,
    /// The mistake in it.
    pub problem: &'static str,
}

impl HttpAddress {
    /// Whether TLS is spoken.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 80 or 443 if the address names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as in the `Host` header.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl FromStr for HttpAddress {
    type Err = HttpAddressError;

    fn from_str(text: &str) -> Result<Self, HttpAddressError> {
        let wrong = |problem| HttpAddressError {
            text: text.chars().take(200).collect(),
            problem,
        };
        if text.len() > LONGEST {
            return Err(wrong("it is too long"));
        }
        if !text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
            return Err(wrong(
                "it holds blanks, control characters or others that a URL cannot",
            ));
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("it has no scheme"))?;
        let is_secure = if scheme.eq_ignore_ascii_case("https") {
            true
        } else if scheme.eq_ignore_ascii_case("http") {
            false
        } else {
            return Err(wrong("its scheme is neither http nor https"));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong("it names a user"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed
                    .split_once(']')
                    .ok_or_else(|| wrong("its host is no IPv6 address"))?;
                let host: std::net::Ipv6Addr = host
                    .parse()
                    .map_err(|_| wrong("its host is no IPv6 address"))?;
                (host.to_string(), port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (authority.to_owned(), None),
            },
        };
        let is_name =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
        if host.is_empty() || host.len() > 255 || !host.bytes().all(is_name) {
            return Err(wrong("its host is not a name"));
        }
        let port = match port {
            None | Some("") => {
                if is_secure {
                    443
                } else {
                    80
                }
            }
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| wrong("its port is not a number from 1 to 65535"))?,
        };
        let path = match path.split('#').next() {
            None | Some("") => "/".to_owned(),
            Some(path) if path.starts_with('?') => format!("/{path}"),
            Some(path) => path.to_owned(),
        };
        Ok(Self {
            is_secure,
            host: host.to_ascii_lowercase(),
            port,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, expected) in [
            ("http://127.0.0.1:7778/acc", "http://127.0.0.1:7778/acc"),
            ("HTTP://Host.example/acc", "http://host.example:80/acc"),
            ("https://[::1]:8443", "https://[::1]:8443/"),
            ("http://h?x#y", "http://h:80/?x"),
        ] {
            let address: HttpAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), expected);
        }
        for wrong in [
            "IOR:000",
            "ftp://host/acc",
            "http://",
            "http://host:0/acc",
            "http://host:70000/acc",
            "http://host/acc\r\nX-Injected: 1",
            "http://user@host/acc",
            "http://ho st/acc",
            "http://[::1/acc",
        ] {
            assert!(wrong.parse::<HttpAddress>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in "(http|https)://[a-z\\[\\]:0-9.]{1,12}(/[!-~]{0,20})?") {
            if let Ok(address) = text.parse::<HttpAddress>() {
                let written = address.to_string();
                prop_assert!(written.bytes().all(|byte| (b'!'..=b'~').contains(&byte)));
                prop_assert_eq!(written.parse::<HttpAddress>(), Ok(address));
            }
        }
    }
}
