//! `identity`: the key of an agent's long-lived identity.

use sealbus::process::{LongLivedKey, LongLivedKeyError};
use serde::Serialize;

use crate::arguments::Identity;
use crate::error::CliError;
use crate::output::Output;

#[derive(Serialize)]
struct IdentityMade {
    identity: String,
    is_new: bool,
}

/// `sealbus identity FILE`. It overwrites nothing.
pub(crate) fn identity(identity: &Identity, output: Output) -> Result<(), CliError> {
    let file = &identity.file;
    let is_new = !file.exists();
    let key = match is_new {
        true => LongLivedKey::create(file),
        false => LongLivedKey::read(file),
    };
    let key = key.map_err(|error: LongLivedKeyError| CliError::Failed {
        message: error.to_string(),
        help: Some("name another file, or make this one readable by its owner only".to_owned()),
    })?;
    let told = IdentityMade {
        identity: key.fingerprint().to_string(),
        is_new,
    };
    output.show(&told, || match is_new {
        true => format!("{}\nmade in {}", told.identity, file.display()),
        false => told.identity.clone(),
    });
    Ok(())
}
