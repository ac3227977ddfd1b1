//! `ca keys`: a token holds the keys of authorities. `ca request` and `ca certify`: how a further Master gets a CA of its
//! own. The key of the CA is made where the Master runs, and never leaves that machine.

use sealbus_master::{certify_authority, place_keys, request_authority};
use sealbus_seal::{SigningRequest, Timestamp, VerifyingKey, certificate_pem, request_pem};
use serde_json::json;

use super::manifest::manifest;
use super::now;
use crate::arguments::{CaCertify, CaKeys, CaRequest, General};
use crate::connection::{directory_of, running};
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// Longest file with a request or certificates, in bytes.
pub(super) const LONGEST: u64 = 64 * 1024;

pub(super) fn failed(help: &'static str) -> impl Fn(&dyn std::error::Error) -> CliError {
    move |error| CliError::Failed {
        message: error.to_string(),
        help: Some(help.to_owned()),
    }
}

/// `sealbus ca keys`
pub(crate) fn keys(general: &General, keys: &CaKeys, output: Output) -> Result<(), CliError> {
    let manifest = manifest(general, keys.manifest.as_deref())?;
    let directory = directory_of(general, &manifest.platform.name)?;
    sealbus_files::folder(&directory).map_err(CliError::file("create", &directory))?;
    let unusable = failed("see docs/operations.md");
    let made = place_keys(&directory, keys.root.as_ref(), keys.ca.as_ref());
    let mut made = made.map_err(|error| unusable(&error))?.into_iter();
    let mut public = |key: &Option<_>| key.as_ref().and_then(|_| made.next());
    let (root, ca) = (public(&keys.root), public(&keys.ca));
    let text = |key: &Option<VerifyingKey>| key.as_ref().map(ToString::to_string);
    output.show(&json!({ "root": text(&root), "ca": text(&ca) }), || {
        let line = |what: &str, key| format!("the key of the {what} is {key}");
        let lines = [
            root.map(|key| line("root", key)),
            ca.map(|key| line("CA", key)),
        ];
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        lines.join("\n")
    });
    Ok(())
}

/// `sealbus ca request`
pub(crate) fn request(
    general: &General,
    request: &CaRequest,
    output: Output,
) -> Result<(), CliError> {
    let manifest = manifest(general, request.manifest.as_deref())?;
    let directory = directory_of(general, &manifest.platform.name)?;
    sealbus_files::folder(&directory).map_err(CliError::file("create", &directory))?;
    let unusable = failed("see docs/operations.md");
    let request = request_authority(&directory, manifest.platform.signatures.unwrap_or_default())
        .map_err(|error| unusable(&error))?;
    let pem = request_pem(&request);
    output.show(&json!({ "request": pem }), || pem.trim_end().to_owned());
    Ok(())
}

/// `sealbus ca certify REQUEST`
pub(crate) fn certify(
    general: &General,
    certify: &CaCertify,
    output: Output,
) -> Result<(), CliError> {
    let directory = match &certify.root {
        Some(folder) => folder.clone(),
        None => running(general)?,
    };
    let bytes = input::read(&certify.request, LONGEST)?;
    let unusable = failed("`sealbus ca request` prints a request");
    let der = SigningRequest::from_pem(&bytes).map_err(|error| unusable(&error))?;
    let time = Timestamp::from_unix_seconds(now() / 1000);
    let certified = certify_authority(&directory, &der, time).map_err(|error| unusable(&error))?;
    let Some((chain, root)) = certified else {
        return Err(CliError::Failed {
            message: format!("{} has no root.key and root.der", directory.display()),
            help: Some("name the folder with the root's key: --root FOLDER".to_owned()),
        });
    };
    let chain = chain.to_certificates();
    let all = chain
        .iter()
        .map(|der| der.as_ref())
        .chain([root.as_slice()]);
    let pem: String = all.map(certificate_pem).collect();
    output.show(&json!({ "certificates": pem }), || {
        pem.trim_end().to_owned()
    });
    Ok(())
}
