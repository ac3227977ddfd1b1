//! The other end of a connection, as far as TLS proves who it is.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sealbus_seal::tls::peer_identity;
use sealbus_seal::{CLOCK_SKEW, Timestamp, Trust, VerifiedIdentity};
use tokio_rustls::rustls::ServerConnection;

use crate::entry::Entry;

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct Guest {
    /// The connection's place.
    pub(crate) entry: Arc<Entry>,
    /// The SHA-256 hash, in base64url, of the certificate that it has proved to hold.
    pub(crate) certificate: Option<String>,
    /// The agent of this platform whose certificate it is.
    pub(crate) agent: Option<VerifiedIdentity>,
}

impl Guest {
    /// The end of a connection without TLS.
    pub(crate) fn plain(entry: Arc<Entry>) -> Self {
        Self {
            entry,
            certificate: None,
            agent: None,
        }
    }

    /// The end of a connection after its handshake. `trust` checks certificates of this platform.
    pub(crate) fn of(
        connection: &ServerConnection,
        trust: Option<&Trust>,
        entry: Arc<Entry>,
    ) -> Self {
        let shown = connection.peer_certificates();
        let certificate = shown.and_then(|it| it.first());
        let now = Timestamp::from(SystemTime::now());
        let agent = trust.and_then(|trust| peer_identity(connection, trust, now).ok());
        Self {
            entry,
            certificate: certificate.map(|it| URL_SAFE_NO_PAD.encode(digest(&SHA256, it))),
            agent,
        }
    }
}

/// From when a certificate is refused, in seconds since 1970: after its last second, and the distance that clocks may have.
pub(crate) fn refused_from(agent: &VerifiedIdentity) -> u64 {
    agent.not_after().plus(CLOCK_SKEW).as_unix_seconds() + 1
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use sealbus_seal::issuance::Grant;
    use sealbus_seal::{Identity, KeyPair, PlatformName, RootAuthority, SigningRequest, Validity};

    use super::*;

    #[test]
    fn a_right_lasts_as_long_as_its_certificate_is_accepted() {
        let platform = PlatformName::new("factory").unwrap();
        let validity = Validity::starting(SystemTime::now().into(), Duration::from_secs(3_600));
        let root = RootAuthority::create(&platform, validity).unwrap();
        let authority = root.create_authority("ca-1", validity).unwrap();
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let identity = Identity::from_agent_name("keeper@factory").unwrap();
        let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let issued = authority.issue(&grant, &request, validity).unwrap();
        let roots = [root.certificate().clone()];
        let trust = Trust::new(platform, &roots, CLOCK_SKEW).unwrap();
        let late = validity.not_after().plus(CLOCK_SKEW);
        let agent = trust.verify(&issued.chain, late).unwrap();
        let refused = Timestamp::from_unix_seconds(refused_from(&agent));
        assert!(refused > late && trust.check(&agent, refused).is_err());
    }
}
