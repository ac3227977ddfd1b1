//! `[gateway.neighbours.NAME]`: agents of others as agents of the platform.

use std::net::IpAddr;

use http::Uri;
use http::header::HeaderName;
use sealbus_seal::workload::check_audience;
use serde::{Deserialize, Serialize};

/// `[gateway.neighbours.NAME]`, an agent of others that speaks A2A. The agent `NAME` of this platform stands for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeighbourEntry {
    /// Its address, or that of its card. HTTP without TLS leads to this machine alone.
    pub url: String,
    /// The file with the key or the token that the neighbour asks for, relative to the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// The header for the key. Without it, the key is a bearer token in `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The name that the neighbour gives itself, for tokens: each request carries a workload token of the asking agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_audience: Option<String>,
    /// Further hosts, perhaps with a port, that its card may lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The file with the authorities that may have issued its certificate, relative to the manifest. By default, the
    /// system's authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// The file with the keys or the authorities for its card's signature, relative to the manifest: a JSON Web Key Set, or the
    /// root of another platform in PEM. A card without such a signature is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// Whether a card needs a signature even if no `signer` is named. A key that the card's server publishes is then enough.
    #[serde(default)]
    pub signed: bool,
    /// Whether its name may lead to an address of this machine or of a private network.
    #[serde(default)]
    pub private: bool,
}

impl NeighbourEntry {
    /// Whether its address is a number or this machine's name. Nobody but the operator decides where such an address
    /// leads.
    pub fn is_of_this_machine(&self) -> bool {
        let host = self.url.parse().ok().as_ref().and_then(host_of);
        host.is_some_and(|host| host == "localhost" || host.parse::<IpAddr>().is_ok())
    }

    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.key_file.iter().chain(&self.trust).chain(&self.signer)
    }

    /// Checks what the types do not.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        let whose = format!("the neighbour {name}");
        let url = check_url(&whose, &self.url)?;
        if url.query().is_some() {
            return Err(format!("the url of {whose} has a query: {KEY_IN_FILE}"));
        }
        let audience = self.token_audience.as_deref().map(check_audience);
        if let Some(Err(problem)) = audience {
            return Err(format!(
                "the token-audience of the neighbour {name}: {problem}"
            ));
        }
        if self.token_audience.is_some() && self.key_file.is_some() && self.header.is_none() {
            return Err(format!(
                "the neighbour {name} has a token-audience and a key-file, and both would be its bearer token: name a header for the key"
            ));
        }
        check_header(&whose, self.header.as_deref(), self.key_file.is_some())
    }
}

const KEY_IN_FILE: &str = "write the key into a file, and name it in key-file";

/// The host of a URL, without the brackets of an address.
fn host_of(url: &Uri) -> Option<String> {
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    Some(host.to_ascii_lowercase())
}

/// Checks the address of a server of others. HTTP without TLS leads to this machine alone.
pub(crate) fn check_url(whose: &str, url: &str) -> Result<Uri, String> {
    let parsed: Option<Uri> = url.parse().ok();
    let parsed = parsed.and_then(|url| Some((host_of(&url)?, url)));
    let Some((host, url)) = parsed else {
        return Err(format!("the url of {whose} names no host"));
    };
    let is_loopback =
        || host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback());
    match url.scheme_str() {
        Some("https") => {}
        Some("http") if is_loopback() => {}
        Some("http") => {
            return Err(format!(
                "{whose} would be asked without TLS over the network: its url must begin with https"
            ));
        }
        _ => return Err(format!("the url of {whose} must begin with https")),
    }
    if url.authority().is_some_and(|it| it.as_str().contains('@')) {
        return Err(format!("the url of {whose} has a user: {KEY_IN_FILE}"));
    }
    Ok(url)
}

/// Checks the header for the key of a server of others.
pub(crate) fn check_header(whose: &str, header: Option<&str>, has_key: bool) -> Result<(), String> {
    match header {
        Some(header) if header.parse::<HeaderName>().is_err() => {
            Err(format!("{header} is no header for {whose}"))
        }
        Some(_) if !has_key => Err(format!("{whose} has a header for a key, and no key-file")),
        _ => Ok(()),
    }
}
