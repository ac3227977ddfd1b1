//! How a further Master comes to the platform: with a CA of its own, which the owner of the root certifies.

use std::io;
use std::path::{Path, PathBuf};

use sealbus_control::Blob;
use sealbus_control::clock::{now, timestamp};
use sealbus_control::enrolment::{CertifiedAuthority, ask};
use sealbus_enrolment::{Enrolment, EnrolmentError};
use sealbus_files::folder;
use sealbus_process::attachment::secret_text;
use sealbus_seal::token::Token;
use sealbus_seal::{
    CertificateChain, CertificateError, Fingerprint, PlatformName, SignatureAlgorithm,
};

use super::authorities::{AuthoritiesError, accept_authority, has_authority, request_authority};

/// The word of the platform's owner that a Master may have a CA.
pub enum Invitation {
    /// The Master that leads has the root's key, and certifies the new CA.
    Token(Box<Token>),
    /// The owner of the root has certified the CA whose key was [made](request_authority) here.
    Certificates {
        /// The chain of the CA.
        chain: CertificateChain,
        /// The root's certificate, DER.
        root: Vec<u8>,
    },
}

/// The reason why a Master did not get a CA.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The state directory cannot be made.
    #[error("the state directory {} cannot be made: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The token is of another platform.
    #[error("the token is of the platform {found}, and the manifest of {wanted}")]
    AnotherPlatform {
        /// The platform of the token.
        found: PlatformName,
        /// The platform of the manifest.
        wanted: PlatformName,
    },
    /// The Master that leads shows another root than the token names.
    #[error("the Master that leads shows another root than the token names")]
    AnotherRoot,
    /// The Master that leads did not certify it, or cannot be reached.
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
    /// A certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The CA cannot be kept.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
}

/// Gives the Master in `directory` a CA of its own, whose key is of the algorithm `signatures` and never leaves the directory.
/// Returns the CA's name, or nothing if there is a CA already: an invitation is needed once.
///
/// # Errors
/// [`JoinError`].
pub async fn join(
    directory: &Path,
    platform: &PlatformName,
    signatures: Option<SignatureAlgorithm>,
    invitation: Invitation,
) -> Result<Option<String>, JoinError> {
    folder(directory).map_err(|error| JoinError::Directory {
        path: directory.to_owned(),
        error,
    })?;
    if has_authority(directory)? {
        return Ok(None);
    }
    let (chain, root) = match invitation {
        Invitation::Certificates { chain, root } => (chain, root),
        Invitation::Token(token) => redeem(directory, platform, signatures, &token).await?,
    };
    let time = timestamp(now());
    Ok(Some(accept_authority(
        directory, platform, chain, &root, time,
    )?))
}

async fn redeem(
    directory: &Path,
    platform: &PlatformName,
    signatures: Option<SignatureAlgorithm>,
    token: &Token,
) -> Result<(CertificateChain, Vec<u8>), JoinError> {
    if token.platform() != platform {
        return Err(JoinError::AnotherPlatform {
            found: token.platform().clone(),
            wanted: platform.clone(),
        });
    }
    let leader = Enrolment {
        platform: platform.clone(),
        addresses: token.addresses().to_vec(),
        root: token.root(),
    };
    let joining = ask::JoinAsMaster {
        secret: secret_text(token.secret()),
        request: Blob(request_authority(
            directory,
            signatures.unwrap_or_default(),
        )?),
        now: now(),
    };
    let CertifiedAuthority { root, chain } = *leader.ask(joining).await?;
    if Fingerprint::of(&root.0) != token.root() {
        return Err(JoinError::AnotherRoot);
    }
    let chain = chain.into_iter().map(|der| der.0.into()).collect();
    Ok((CertificateChain::new(chain)?, root.0))
}
