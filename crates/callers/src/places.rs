//! The names by which a gateway is reached, and the web pages whose scripts may call it.

use std::net::SocketAddr;

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::uri::{Authority, Uri};
use sealbus_manifest::callers::{CallersEntry, NoHostOrOrigin};

/// The port that URLs leave out.
const HTTPS: u16 = 443;
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The values that `Host` and `Origin` of a request may have.
#[derive(Debug)]
pub(crate) struct Places {
    /// The names of the certificate, or of proxies, perhaps with a port; and an address beyond the loopback.
    hosts: Vec<Authority>,
    origins: Vec<Origin>,
    /// Whether the gateway itself speaks TLS.
    is_tls: bool,
    own: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

/// The reason why a request is from the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrongPlace {
    /// There is not one `Host`, or it cannot be read.
    NoHost,
    /// A name that leads here and is not listed: perhaps a web page's.
    Host,
    /// A web page that is not listed.
    Origin,
}

impl Places {
    /// Reads the places of an entry, for a gateway at this address.
    ///
    /// # Errors
    /// [`NoHostOrOrigin`] names what cannot be read.
    pub(crate) fn new(entry: &CallersEntry, address: SocketAddr) -> Result<Self, NoHostOrOrigin> {
        let is_tls = entry.tls.is_some();
        let scheme = if is_tls { "https" } else { "http" };
        // The server itself serves no pages, so no page has its origin.
        let port = address.port();
        let own = LOOPBACK.map(|host| format!("{scheme}://{host}:{port}"));
        let origins = own.iter().filter_map(|it| Origin::read(it));
        let pages = entry.pages()?;
        let origins = origins.chain(pages.iter().filter_map(Origin::of));
        let origins = origins.collect();
        let mut hosts = entry.authorities()?;
        let own = match hosts.first().filter(|_| is_tls) {
            Some(host) if host.port().is_some() || port == HTTPS => format!("https://{host}"),
            Some(host) => format!("https://{host}:{port}"),
            None => format!("{scheme}://{address}"),
        };
        if !address.ip().is_unspecified() && !address.ip().is_loopback() {
            hosts.extend(address.to_string().parse().ok());
        }
        Ok(Self {
            hosts,
            origins,
            is_tls,
            own,
        })
    }

    /// The base of URLs for callers that ask nobody's name.
    pub(crate) fn own(&self) -> &str {
        &self.own
    }

    /// Checks a request, and returns the base of URLs by which its caller reaches the gateway, such as
    /// `http://127.0.0.1:7781`. The names of other hosts are those of its certificate, or of proxies with TLS.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<String, WrongPlace> {
        let mut named = headers.get_all(HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else {
            return Err(WrongPlace::NoHost);
        };
        let host = Authority::try_from(host.as_bytes()).map_err(|_| WrongPlace::NoHost)?;
        if host.as_str().contains('@') {
            return Err(WrongPlace::NoHost);
        }
        let is = |name: &str| name.eq_ignore_ascii_case(host.host());
        let scheme = if LOOPBACK.into_iter().any(is) {
            if self.is_tls { "https" } else { "http" }
        } else {
            let mut listed = self.hosts.iter();
            let is_listed = listed.any(|it| {
                is(it.host()) && (it.port().is_none() || it.port_u16() == host.port_u16())
            });
            if !is_listed {
                return Err(WrongPlace::Host);
            }
            "https"
        };
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().ok().and_then(Origin::read);
            if !origin.is_some_and(|origin| self.origins.contains(&origin)) {
                return Err(WrongPlace::Origin);
            }
        }
        Ok(format!("{scheme}://{host}"))
    }
}

impl Origin {
    fn read(text: &str) -> Option<Self> {
        Self::of(&text.parse().ok()?)
    }

    fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_owned();
        let authority = uri.authority()?;
        let usual = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        Some(Self {
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16().or(usual),
            scheme,
        })
    }
}

/// The base of URLs for a request with this `Host` and, unless it is empty, this `Origin`, at a gateway of this entry; none if it
/// is from the wrong place. For the fuzz target.
pub fn base_for(entry: &CallersEntry, host: &[u8], origin: &[u8]) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_bytes(host).ok()?);
    if !origin.is_empty() {
        headers.insert(ORIGIN, HeaderValue::from_bytes(origin).ok()?);
    }
    let places = Places::new(entry, entry.listen).ok()?;
    places.check(&headers).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(hyper::header::HeaderName, &'static str)]) -> Result<String, WrongPlace> {
        let entry = CallersEntry {
            listen: ([127, 0, 0, 1], 7780).into(),
            hosts: vec!["agents.example".into(), "[2001:db8::1]:8443".into()],
            origins: vec!["https://app.example:443".into()],
            anonymous: None,
            callers: Vec::new(),
            tls: None,
            trust: None,
            oauth: None,
            webhooks: None,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_static(value));
        }
        Places::new(&entry, entry.listen).unwrap().check(&headers)
    }

    #[test]
    fn only_listed_names_lead_here() {
        for (host, base) in [
            ("127.0.0.1:7780", Ok("http://127.0.0.1:7780")),
            ("LocalHost", Ok("http://LocalHost")),
            ("[::1]:7780", Ok("http://[::1]:7780")),
            ("agents.example", Ok("https://agents.example")),
            ("agents.example:9", Ok("https://agents.example:9")),
            ("[2001:db8::1]:8443", Ok("https://[2001:db8::1]:8443")),
            ("[2001:db8::1]:1", Err(WrongPlace::Host)),
            ("evil.example", Err(WrongPlace::Host)),
            ("127.0.0.1.evil.example:80", Err(WrongPlace::Host)),
            ("evil@127.0.0.1", Err(WrongPlace::NoHost)),
            ("a b", Err(WrongPlace::NoHost)),
            ("", Err(WrongPlace::NoHost)),
        ] {
            assert_eq!(check(&[(HOST, host)]), base.map(str::to_owned), "{host}");
        }
        assert_eq!(check(&[]), Err(WrongPlace::NoHost));
        let twice = [(HOST, "localhost"), (HOST, "localhost")];
        assert_eq!(check(&twice), Err(WrongPlace::NoHost));
    }

    #[test]
    fn only_listed_pages_call() {
        let from = |origin| check(&[(HOST, "localhost"), (ORIGIN, origin)]).is_ok();
        for origin in [
            "https://app.example",
            "https://APP.example:443",
            "http://localhost:7780",
        ] {
            assert!(from(origin), "{origin}");
        }
        for origin in [
            "http://app.example",
            "https://app.example:8443",
            "http://localhost",
            "null",
            "",
        ] {
            assert!(!from(origin), "{origin}");
        }
    }

    #[test]
    fn a_door_with_tls_has_the_name_of_its_certificate() {
        let own = |listen: &str, hosts: &[&str], tls: bool| {
            let entry = CallersEntry {
                listen: listen.parse().unwrap(),
                hosts: hosts.iter().map(|it| (*it).to_owned()).collect(),
                origins: Vec::new(),
                anonymous: None,
                callers: Vec::new(),
                tls: tls.then(Default::default),
                trust: None,
                oauth: None,
                webhooks: None,
            };
            let places = Places::new(&entry, entry.listen).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("192.0.2.7:8443"));
            (places.own().to_owned(), places.check(&headers))
        };
        let (base, own_address) = own("192.0.2.7:8443", &["tea.example"], true);
        assert_eq!(base, "https://tea.example:8443");
        assert_eq!(own_address, Ok("https://192.0.2.7:8443".to_owned()));
        let (base, other) = own("0.0.0.0:443", &["tea.example"], true);
        assert_eq!(
            (base.as_str(), other),
            ("https://tea.example", Err(WrongPlace::Host))
        );
        assert_eq!(own("127.0.0.1:7780", &[], true).0, "https://127.0.0.1:7780");
        assert_eq!(
            own("127.0.0.1:7780", &["proxy.example"], false).0,
            "http://127.0.0.1:7780"
        );
    }
}
