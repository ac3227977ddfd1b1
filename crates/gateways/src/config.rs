//! The configuration of a gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sealbus_web::tls::TlsConfig;
use serde::{Deserialize, Serialize};

use crate::address::{Address, AddressError};
use crate::http::{self, HttpAddress};
use crate::policy::{GatewayPolicy, GatewayPolicyError, GatewayRule};
use crate::transmission::Encoding;

/// The configuration of a gateway. Times are in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GatewayConfig {
    /// The address on which the gateway listens. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The host by which other platforms reach the gateway, a name or an address. By default the host of `listen`.
    pub host: Option<String>,
    /// The port by which other platforms reach the gateway, if it differs from that of `listen`.
    pub port: Option<u16>,
    /// IIOP, in addition to HTTP.
    pub iiop: Option<IiopConfig>,
    /// HTTPS in place of HTTP.
    pub tls: Option<TlsConfig>,
    /// The certificates, in PEM, against which `https` addresses of other platforms are checked. By default the
    /// system's (`/etc/ssl/certs/ca-certificates.crt`).
    pub trust: Option<PathBuf>,
    /// Other platforms that are known beforehand, by name.
    pub platforms: BTreeMap<String, KnownPlatform>,
    /// The initial rules for messages from other platforms.
    pub allow: Vec<GatewayRule>,
    /// Limits.
    pub limits: GatewayLimits,
}

/// IIOP, in addition to HTTP. It has no TLS: name a network that nobody else reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct IiopConfig {
    /// The address on which the gateway listens. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The host by which other platforms reach the gateway, a name or an address. By default the host of `listen`.
    pub host: Option<String>,
    /// The port by which other platforms reach the gateway, if it differs from that of `listen`.
    pub port: Option<u16>,
}

impl Default for IiopConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            host: None,
            port: None,
        }
    }
}

/// Another platform that is known beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct KnownPlatform {
    /// The platform's addresses, tried in order. Messages to its agents go there, even if their identifiers name other
    /// addresses. The addresses may belong to this machine or to a private network.
    pub addresses: Vec<String>,
    /// The encoding of messages to the platform: `string`, `xml`, `bitefficient`. By default the one that the platform
    /// last used, or `string`.
    pub encoding: Option<String>,
    /// The encoding of envelopes to the platform: `xml`, `bitefficient`. By default the one that the platform last
    /// used, or `xml`.
    pub envelope: Option<String>,
}

/// Limits of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GatewayLimits {
    /// The largest body of a request, in bytes. Default 16 MiB.
    pub body: usize,
    /// The bytes of bodies from one network address that are being read or delivered. At least `body`. Default 32 MiB.
    pub bodies_per_address: usize,
    /// The bytes of all bodies that are being read or delivered. At least `bodies-per-address`. Default 128 MiB.
    pub bodies: usize,
    /// The largest head of a request, in bytes. At least 8192. Default 32 KiB.
    pub head: usize,
    /// The milliseconds that a client may take to send the head of a request, counted from the previous request.
    /// Default 60 000.
    pub head_time: u64,
    /// The milliseconds that a client may take to send the body of a request, and to read its answer. Default 30 000.
    pub body_time: u64,
    /// Open connections from outside. Default 1024.
    pub connections: usize,
    /// The number of open connections from one network address. Default 64.
    pub connections_per_address: usize,
    /// The milliseconds that a message from outside waits for room in its receiver's mailbox. Then its sender is told
    /// that it was not delivered. Default 30 000.
    pub receiver_time: u64,
    /// The bytes of messages from outside that wait for room in mailboxes. A quarter of them may wait for one mailbox.
    /// Beyond that other platforms are told to try again. Default 32 MiB.
    pub waiting: usize,
    /// The milliseconds after which a message that its platform has not taken comes back to its sender, unless its
    /// `:reply-by` comes first. Default 30 000.
    pub patience: u64,
    /// The milliseconds that another platform may take to answer. Default 20 000.
    pub answer_time: u64,
    /// The number of requests to one platform written before the first of them is answered. Default 64.
    pub window: usize,
    /// The bytes of messages on their way to one platform. Default 32 MiB. Those of other processes to all platforms
    /// have eight times as much room together, but at least 256 MiB. A process gets no more of it than is left for
    /// others.
    pub outgoing: usize,
    /// The number of agents of other platforms that can be written to at a time. Default 20 000. Another process than
    /// the gateway's gets no more of them than are left for others.
    pub foreign_agents: usize,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            host: None,
            port: None,
            iiop: None,
            tls: None,
            trust: None,
            platforms: BTreeMap::new(),
            allow: Vec::new(),
            limits: GatewayLimits::default(),
        }
    }
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            body: 16 << 20,
            bodies_per_address: 32 << 20,
            bodies: 128 << 20,
            head: 32 << 10,
            head_time: 60_000,
            body_time: 30_000,
            connections: 1024,
            connections_per_address: 64,
            receiver_time: 30_000,
            waiting: 32 << 20,
            patience: 30_000,
            answer_time: 20_000,
            window: 64,
            outgoing: 32 << 20,
            foreign_agents: 20_000,
        }
    }
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An address of another platform is wrong.
    #[error("platform {platform}: {error}")]
    Address {
        /// The platform.
        platform: String,
        /// The mistake.
        error: AddressError,
    },
    /// An encoding that does not exist.
    #[error("platform {platform}: there is no {what} '{name}': write {known}")]
    Encoding {
        /// The platform.
        platform: String,
        /// `encoding` or `envelope`.
        what: &'static str,
        /// The name given.
        name: String,
        /// The known names.
        known: &'static str,
    },
    /// A rule is wrong.
    #[error(transparent)]
    Rule(#[from] GatewayPolicyError),
    /// An address that means all interfaces.
    #[error("the gateway listens on {0}, which others cannot reach it by: name its host")]
    Host(SocketAddr),
    /// The configuration has a certificate without a key, or a key without a certificate.
    #[error("a certificate needs its key, and a key its certificate: name both, or none")]
    HalfACertificate,
    /// A limit that is too small.
    #[error("the limit '{name}' is {value}: it must be at least {least}")]
    Limit {
        /// The setting's name.
        name: &'static str,
        /// The setting's value.
        value: usize,
        /// The least.
        least: usize,
    },
}

/// A [`KnownPlatform`] that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPlatform {
    pub(crate) addresses: Vec<Address>,
    envelope: Option<usize>,
    message: Option<usize>,
}

impl ReadPlatform {
    /// The encoding to use, if the platform itself last used `own`.
    pub(crate) fn encoding(&self, own: Option<Encoding>) -> Encoding {
        let own = own.unwrap_or_default();
        let envelopes = sealbus_fipa::envelope::representations();
        let messages = sealbus_fipa::representations();
        Encoding {
            envelope: self.envelope.map_or(own.envelope, |at| envelopes[at]),
            message: self.message.map_or(own.message, |at| messages[at]),
        }
    }
}

impl KnownPlatform {
    pub(crate) fn read(&self, platform: &str) -> Result<ReadPlatform, ConfigError> {
        let addresses = self.addresses.iter().map(|text| Address::read(text));
        let addresses = addresses.collect::<Result<Vec<_>, _>>();
        let is = |name: &str, fipa: &str, short: &str| {
            fipa.eq_ignore_ascii_case(name) || short.eq_ignore_ascii_case(name)
        };
        let unknown = |what, name: &String, known| ConfigError::Encoding {
            platform: platform.to_owned(),
            what,
            name: name.clone(),
            known,
        };
        let message = self.encoding.as_ref().map(|name| {
            let all = sealbus_fipa::representations();
            all.iter()
                .position(|it| is(name, it.name(), it.short_name()))
                .ok_or_else(|| unknown("encoding", name, "string, xml or bitefficient"))
        });
        let envelope = self.envelope.as_ref().map(|name| {
            let all = sealbus_fipa::envelope::representations();
            all.iter()
                .position(|it| is(name, it.name(), it.short_name()))
                .ok_or_else(|| unknown("envelope", name, "xml or bitefficient"))
        });
        Ok(ReadPlatform {
            addresses: addresses
                .map_err(|error| ConfigError::Address {
                    platform: platform.to_owned(),
                    error,
                })?
                .concat(),
            message: message.transpose()?,
            envelope: envelope.transpose()?,
        })
    }
}

impl GatewayConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ConfigError`]: a setting makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (name, platform) in &self.platforms {
            platform.read(name)?;
        }
        self.policy().check()?;
        let iiop = self.iiop.iter().map(|it| (&it.host, it.listen));
        for (host, listen) in iiop.chain([(&self.host, self.listen)]) {
            if host.is_none() && listen.ip().is_unspecified() {
                return Err(ConfigError::Host(listen));
            }
        }
        if let Some(tls) = &self.tls
            && tls.certificate.is_some() != tls.key.is_some()
        {
            return Err(ConfigError::HalfACertificate);
        }
        for (name, value, least) in [
            ("head", self.limits.head, 8192),
            ("body", self.limits.body, 1),
            (
                "bodies-per-address",
                self.limits.bodies_per_address,
                self.limits.body,
            ),
            ("bodies", self.limits.bodies, self.limits.bodies_per_address),
            ("window", self.limits.window, 1),
            ("connections", self.limits.connections, 1),
            ("outgoing", self.limits.outgoing, 1024),
        ] {
            if value < least {
                return Err(ConfigError::Limit { name, value, least });
            }
        }
        Ok(())
    }

    /// The rules with which the gateway begins.
    pub fn policy(&self) -> GatewayPolicy {
        GatewayPolicy {
            rules: self.allow.clone(),
        }
    }

    /// The address by which others reach a gateway that listens on `bound`.
    pub(crate) fn address(&self, bound: SocketAddr) -> Result<HttpAddress, http::HttpAddressError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let port = self.port.unwrap_or(bound.port());
        let host = self.host.clone().unwrap_or_else(|| bound.ip().to_string());
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };
        format!("{scheme}://{host}:{port}/acc").parse()
    }
}

pub(crate) fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}
