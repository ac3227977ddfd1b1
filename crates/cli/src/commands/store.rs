//! `store`: the etcd that holds a platform's state.

use sealbus_manifest::{Manifest, StoreEntry};
use sealbus_store::StoreError;
use sealbus_store::etcd::{CertifyError, EtcdAuthority, EtcdCheck, EtcdSettings};
use serde_json::json;

use super::{cell, manifest};
use crate::arguments::{StoreCertify, StoreCheck};
use crate::error::CliError;
use crate::input;
use crate::output::{Output, table};

/// The etcd that a manifest names.
pub(super) fn etcd(manifest: &Manifest) -> Option<EtcdSettings> {
    let StoreEntry { etcd, credentials } = manifest.store.clone()?;
    Some(EtcdSettings {
        members: etcd,
        credentials: credentials.into(),
    })
}

/// `sealbus store certify FOLDER`
pub(crate) fn certify(certify: &StoreCertify, output: Output) -> Result<(), CliError> {
    if certify.member.is_empty() && certify.client.is_empty() {
        return Err(CliError::Usage {
            message: "neither a member nor a Master is named".to_owned(),
            help: "name members with --member etcd-1=10.0.0.5, and Masters with --client master-1"
                .to_owned(),
        });
    }
    let authority = EtcdAuthority::keep(&certify.folder)?;
    let mut made = Vec::new();
    for member in &certify.member {
        made.push(authority.certify_member(&member.name, &member.hosts)?);
    }
    for client in &certify.client {
        made.push(authority.certify_client(client)?);
    }
    let told = json!({ "folders": made });
    output.show(&told, || {
        let folders = made.iter().map(|folder| format!("  {}", folder.display()));
        format!(
            "written to\n{}\ncopy each folder to its machine, and keep {}/ca.key where no platform runs",
            folders.collect::<Vec<_>>().join("\n"),
            certify.folder.display()
        )
    });
    Ok(())
}

/// `sealbus store check MANIFEST`
pub(crate) async fn check(check: &StoreCheck, output: Output) -> Result<(), CliError> {
    let manifest = manifest::read(&check.manifest)?;
    let Some(settings) = etcd(&manifest) else {
        return Err(CliError::Usage {
            message: format!("{} has no [store]", input::name(&check.manifest).display()),
            help:
                "without it the state is in a file of the Master's, and there is nothing to check"
                    .to_owned(),
        });
    };
    let found = EtcdCheck::run(&settings, &manifest.platform.name).await?;
    output.show(&found, || shown(&found));
    if found.is_good() {
        return Ok(());
    }
    Err(CliError::Failed {
        message: "no platform can rely on this etcd".to_owned(),
        help: Some("what is wrong is shown above".to_owned()),
    })
}

fn shown(found: &EtcdCheck) -> String {
    let mut members = table(&["MEMBER", "NAME", "VERSION", "MIB", "LEADS", "STATE"]);
    for member in &found.members {
        let told = member.fault.as_ref().or(member.warning.as_ref());
        members.add_row([
            member.address.clone(),
            cell(member.name.as_ref()),
            cell(member.version.as_ref()),
            (member.size >> 20).to_string(),
            if member.leads { "yes" } else { "" }.to_owned(),
            told.cloned().unwrap_or_else(|| "good".to_owned()),
        ]);
    }
    let mut text = members.trim_fmt();
    let ms = |micros: u64| format!("{}.{} ms", micros / 1000, micros % 1000 / 100);
    // Without a leader nothing was written.
    if found.write_median > 0 {
        text += &format!(
            "\na write takes {}, and 99 of 100 take at most {}",
            ms(found.write_median),
            ms(found.write_p99)
        );
    }
    for address in &found.unnamed {
        text += &format!("\nthe manifest does not name the member at {address}");
    }
    for (kind, what) in [("fault", &found.faults), ("warning", &found.warnings)] {
        for what in what {
            text += &format!("\n{kind}: {what}");
        }
    }
    text
}

impl From<CertifyError> for CliError {
    fn from(error: CertifyError) -> Self {
        Self::Failed {
            message: error.to_string(),
            help: None,
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        Self::Failed {
            message: error.to_string(),
            help: None,
        }
    }
}
