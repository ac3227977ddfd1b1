//! The first checks of a request's head. They keep every other page of the browser from using the window.

use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The names under which the window is reached.
pub(crate) struct Door {
    scheme: &'static str,
    hosts: Vec<String>,
}

/// The only value of a field; none if there is none or if there are several.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

impl Door {
    pub(crate) fn new(scheme: &'static str, hosts: Vec<String>) -> Self {
        Self { scheme, hosts }
    }

    /// Lets a request in, or says why not.
    ///
    /// A name that leads to this machine makes any page the same origin as the window (DNS rebinding). Its requests have
    /// that name in `Host`.
    pub(crate) fn admit(&self, head: &Parts) -> Result<(), &'static str> {
        let host = only(&head.headers, &HOST).filter(|host| self.hosts.iter().any(|it| it == host));
        let Some(host) = host.filter(|_| head.uri.authority().is_none()) else {
            return Err("the window is reached under its own names alone, with its port");
        };
        if head.headers.contains_key(ORIGIN) {
            let origin = only(&head.headers, &ORIGIN);
            if origin.and_then(|it| it.split_once("://")) != Some((self.scheme, host)) {
                return Err("another page may not use the window");
            }
        }
        if head.headers.contains_key(&SEC_FETCH_SITE) {
            let is_own = matches!(
                only(&head.headers, &SEC_FETCH_SITE),
                Some("same-origin" | "none")
            );
            // A link to the page itself may stand anywhere, for example in a terminal within a browser.
            let is_link =
                head.uri.path() == "/" && only(&head.headers, &SEC_FETCH_DEST) == Some("document");
            if !is_own && !is_link {
                return Err("another page may not use the window");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn admits(uri: &str, fields: &[(&str, &str)]) -> bool {
        let mut request = Request::get(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let place = crate::place::WindowAddress::loopback();
        let door = Door::new(place.scheme(), place.hosts(7000));
        door.admit(&head).is_ok()
    }

    #[test]
    fn only_the_windows_own_names_and_page_are_let_in() {
        let own = ("host", "127.0.0.1:7000");
        assert!(admits("/", &[own]) && admits("/", &[("host", "localhost:7000")]));
        assert!(admits("/ask", &[own, ("origin", "http://127.0.0.1:7000")]));
        assert!(admits("/ask", &[own, ("sec-fetch-site", "same-origin")]));
        for host in [
            "evil.example",
            "evil.example:7000",
            "127.0.0.1",
            "127.0.0.1:7001",
            "",
        ] {
            assert!(!admits("/", &[("host", host)]), "{host}");
        }
        assert!(!admits("/", &[]) && !admits("/", &[own, own]));
        assert!(!admits("http://evil.example/", &[own]));
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:7000",
            "https://127.0.0.1:7000",
        ] {
            assert!(!admits("/ask", &[own, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(!admits("/ask", &[own, ("sec-fetch-site", site)]), "{site}");
        }
        let link = [
            own,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(admits("/", &link) && !admits("/stream", &link));
        assert!(!admits(
            "/",
            &[link[0], link[1], ("sec-fetch-dest", "iframe")]
        ));
    }
}
