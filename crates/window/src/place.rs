//! The place at which the window is reached: on loopback, or from other machines, and then only over TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use sealbus_web::tls::{self, TlsConfig, TlsSetupError};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The port that browsers leave out.
const HTTPS: u16 = 443;

/// The reason why the window is not reached at an address.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The page would cross a network without protection.
    #[error("other machines reach {0}, and the window is shown to them over TLS only")]
    NeedsTls(IpAddr),
    /// A browser cannot ask for every address.
    #[error("{0} stands for every address: by which name is the window reached?")]
    NeedsName(IpAddr),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// The PEM files for TLS.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'a> {
    /// The certificate, and those of its issuers.
    pub certificate: &'a Path,
    /// Its key.
    pub key: &'a Path,
}

/// The place at which the window is reached.
pub struct WindowAddress {
    address: IpAddr,
    names: Vec<String>,
    tls: Option<TlsAcceptor>,
}

impl WindowAddress {
    /// The window at an address of this machine, and also under a name if there is one.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn at(
        address: IpAddr,
        name: Option<&str>,
        proof: Option<TlsFiles<'_>>,
    ) -> Result<Self, PlaceError> {
        if !address.is_loopback() && proof.is_none() {
            return Err(PlaceError::NeedsTls(address));
        }
        let own = match address {
            _ if address.is_unspecified() => {
                name.ok_or(PlaceError::NeedsName(address))?;
                None
            }
            IpAddr::V4(address) => Some(address.to_string()),
            IpAddr::V6(address) => Some(format!("[{address}]")),
        };
        let name = name.map(str::to_ascii_lowercase);
        let local = address.is_loopback().then(|| "localhost".to_owned());
        Ok(Self {
            address,
            names: name.into_iter().chain(own).chain(local).collect(),
            tls: proof.map(acceptor).transpose()?,
        })
    }

    /// The window on this machine only.
    pub fn loopback() -> Self {
        let address = Ipv4Addr::LOCALHOST;
        Self {
            address: address.into(),
            names: vec![address.to_string(), "localhost".to_owned()],
            tls: None,
        }
    }

    /// Listens on a port, or on any free one if `port` is 0.
    ///
    /// # Errors
    /// If the port is taken, or the address is not of this machine.
    pub async fn listen(&self, port: u16) -> io::Result<TcpListener> {
        TcpListener::bind((self.address, port)).await
    }

    /// The way to speak TLS with a connection, if it must.
    pub(crate) fn tls(&self) -> Option<&TlsAcceptor> {
        self.tls.as_ref()
    }

    /// The scheme of the window's addresses.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The names by which browsers know the window at a port, the best name first.
    pub(crate) fn hosts(&self, port: u16) -> Vec<String> {
        let with_port = self.names.iter().map(|name| format!("{name}:{port}"));
        let bare = self.names.iter().filter(|_| self.is_usual(port)).cloned();
        with_port.chain(bare).collect()
    }

    fn is_usual(&self, port: u16) -> bool {
        self.tls.is_some() && port == HTTPS
    }
}

fn acceptor(proof: TlsFiles<'_>) -> Result<TlsAcceptor, PlaceError> {
    let config = TlsConfig {
        certificate: Some(proof.certificate.to_owned()),
        key: Some(proof.key.to_owned()),
        clients: None,
    };
    Ok(tls::server(&config, None, &[b"http/1.1"])?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_spoken_to_over_tls_alone() {
        for address in ["192.0.2.7", "0.0.0.0", "::", "2001:db8::7"] {
            let place = WindowAddress::at(address.parse().unwrap(), Some("watch.example"), None);
            assert!(matches!(place, Err(PlaceError::NeedsTls(_))), "{address}");
        }
        let place = WindowAddress::at("127.0.0.2".parse().unwrap(), None, None).unwrap();
        assert_eq!(place.hosts(7000), ["127.0.0.2:7000", "localhost:7000"]);
        let place = WindowAddress::at("::1".parse().unwrap(), None, None).unwrap();
        assert_eq!(place.hosts(7000), ["[::1]:7000", "localhost:7000"]);
        assert_eq!(place.scheme(), "http");
    }

    #[test]
    fn files_that_are_no_certificate_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
        let proof = TlsFiles {
            certificate: &certificate,
            key: &key,
        };
        let place = || WindowAddress::at("192.0.2.7".parse().unwrap(), None, Some(proof));
        let told = place().err().unwrap().to_string();
        assert!(told.contains("c.pem"), "{told}");
        std::fs::write(&certificate, "no certificate").unwrap();
        let told = place().err().unwrap().to_string();
        assert!(told.contains("no certificate"), "{told}");
        let every = WindowAddress::at("0.0.0.0".parse().unwrap(), None, Some(proof));
        assert!(matches!(every, Err(PlaceError::NeedsName(_))));
    }
}
