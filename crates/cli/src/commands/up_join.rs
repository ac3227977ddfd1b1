//! `up --join`: a further Master gets a CA of its own.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sealbus_enrolment::EnrolmentError;
use sealbus_manifest::PlatformEntry;
use sealbus_master::{Invitation, JoinError, has_authority};
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

/// Gives the Master in `directory` a CA of its own. If it has a CA already, `typed` is not looked at.
pub(super) async fn join(
    directory: &Path,
    platform: &PlatformEntry,
    typed: &str,
    output: Output,
) -> Result<(), CliError> {
    let refused = failed("docs/operations.md shows how a further Master joins");
    if has_authority(directory).map_err(|error| refused(&error))? {
        return Ok(());
    }
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

#[cfg(test)]
mod tests {
    use sealbus_manifest::Manifest;
    use sealbus_master::Authorities;
    use sealbus_seal::Timestamp;

    use super::*;
    use crate::arguments::General;
    use crate::commands::now;

    #[tokio::test]
    async fn a_master_that_has_joined_does_not_look_at_its_invitation() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[platform]\nname = \"factory\"\n";
        let manifest = Manifest::parse("platform.toml", text, directory.path()).unwrap();
        let gone = directory.path().join("ca.pem");
        let typed = [gone.to_str().unwrap(), "sealbus-none"];
        let output = Output::new(&General::of_typed(&[]));
        let start = async |typed: &str| {
            let platform = &manifest.platform;
            join(directory.path(), platform, typed, output).await
        };
        for typed in typed {
            assert!(start(typed).await.is_err());
        }
        let name = PlatformName::new("factory").unwrap();
        let time = Timestamp::from_unix_seconds(now() / 1000);
        Authorities::keep(directory.path(), &name, None, time).unwrap();
        for typed in typed {
            start(typed).await.unwrap();
        }
    }
}
