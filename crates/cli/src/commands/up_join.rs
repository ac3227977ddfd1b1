//! `up --join`: a further Master gets a CA of its own.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sealbus_enrolment::EnrolmentError;
use sealbus_manifest::PlatformEntry;
use sealbus_master::{Invitation, JoinError};
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{CertificateChain, PlatformName};
use serde_json::json;

use super::ceremony::{LONGEST, failed};
use super::content;
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// The beginning of every token.
const TOKEN: &str = "sealbus-";

/// Gives the Master in `directory` a CA of its own, if it has none yet.
pub(super) async fn join(
    directory: &Path,
    platform: &PlatformEntry,
    typed: &str,
    output: Output,
) -> Result<(), CliError> {
    let refused = failed("docs/operations.md shows how a further Master joins");
    let signatures = platform.signatures;
    let platform = PlatformName::new(&platform.name).map_err(|error| refused(&error))?;
    let typed = content(typed)?;
    let typed = typed.trim();
    let invitation = if typed.starts_with(TOKEN) {
        let token = Token::parse(Purpose::Master, typed).map_err(|error| refused(&error))?;
        Invitation::Token(Box::new(token))
    } else {
        let bytes = input::read(Path::new(typed), LONGEST)?;
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let mut chain = read.map_err(|error| refused(&error))?;
        // The root is the last one.
        let root = chain.pop().unwrap_or_else(|| Vec::new().into()).to_vec();
        let chain = CertificateChain::new(chain).map_err(|error| refused(&error))?;
        Invitation::Certificates { chain, root }
    };
    let joined = sealbus_master::join(directory, &platform, signatures, invitation).await;
    let joined = joined.map_err(|error| match error {
        JoinError::Enrolment(EnrolmentError::Refused(fault)) => fault.into(),
        error => refused(&error),
    });
    if let Some(name) = joined? {
        output.line(&json!({ "authority": name }), || {
            format!("this Master has a CA of its own, {name}")
        });
    }
    Ok(())
}
