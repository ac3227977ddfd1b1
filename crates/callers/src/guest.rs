//! The other end of a connection, as far as TLS proves who it is.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sealbus_seal::tls::peer_identity;
use sealbus_seal::{Timestamp, Trust, VerifiedIdentity};
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
