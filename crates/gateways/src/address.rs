//! The addresses of other platforms, of every transport.

use std::fmt;

use sealbus_giop::{IiopProfile, ObjectAddress};
use thiserror::Error;

use crate::http::{self, HttpAddress};

/// The transport that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Iiop,
}

impl Transport {
    /// FIPA's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => http::TRANSPORT,
            Self::Iiop => crate::iiop::TRANSPORT,
        }
    }
}

/// One way to reach another platform.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Over HTTP.
    Http(HttpAddress),
    /// Over IIOP.
    Iiop(IiopProfile),
}

/// A text that is not the address of a platform that this gateway can reach.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It is not an address of HTTP or of another known transport.
    #[error(transparent)]
    Http(#[from] http::HttpAddressError),
    /// It begins like an address of IIOP, but is not one.
    #[error(transparent)]
    Iiop(#[from] sealbus_giop::ObjectAddressError),
}

impl Address {
    /// Reads an address. An address of IIOP may name several ways to the same object.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn read(text: &str) -> Result<Vec<Self>, AddressError> {
        let is = |scheme: &str| {
            let beginning = text.get(..scheme.len());
            beginning.is_some_and(|it| it.eq_ignore_ascii_case(scheme))
        };
        if is("IOR:") || is("corbaloc:") {
            let object: ObjectAddress = text.parse()?;
            return Ok(object.endpoints().iter().cloned().map(Self::Iiop).collect());
        }
        Ok(vec![Self::Http(text.parse()?)])
    }

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        match self {
            Self::Http(address) => address.host(),
            Self::Iiop(profile) => &profile.host,
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Self::Http(address) => address.port(),
            Self::Iiop(profile) => profile.port,
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Http(_) => Transport::Http,
            Self::Iiop(_) => Transport::Iiop,
        }
    }

    /// Whether both lead to the same place, even if they are written differently.
    pub(crate) fn leads_to(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Iiop(one), Self::Iiop(other)) => {
                (&one.host, one.port, &one.key) == (&other.host, other.port, &other.key)
            }
            (one, other) => one == other,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(address) => address.fmt(f),
            // A reference has hundreds of digits for the same facts.
            Self::Iiop(profile) => f.write_str(&ObjectAddress::corbaloc(profile)),
        }
    }
}
