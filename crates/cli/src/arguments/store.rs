//! `sealbus store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Make certificates for an etcd that holds a platform's state: an authority of its own, members and Masters
    #[command(
        after_help = "Example: sealbus store certify ./etcd --member etcd-1=10.0.0.5 --client master-1"
    )]
    Certify(StoreCertify),
    /// Examine the etcd of a manifest: members, versions, alarms, and how fast it writes
    #[command(after_help = "Example: sealbus store check platform.toml")]
    Check(StoreCheck),
}

#[derive(Debug, Args)]
pub(crate) struct StoreCertify {
    /// Folder of the authority; it is made with the first certificates, and its ca.key is needed for more
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// A member of etcd, with the addresses at which others reach it; may be given several times
    #[arg(long, value_name = "NAME=HOST,…")]
    pub(crate) member: Vec<Bearer>,
    /// A Master; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StoreCheck {
    /// The manifest, whose [store] names etcd, or `-` for standard input
    #[arg(default_value = "platform.toml", value_name = "MANIFEST")]
    pub(crate) manifest: PathBuf,
}

/// A member of etcd and its addresses.
#[derive(Debug, Clone)]
pub(crate) struct Bearer {
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
}

impl std::str::FromStr for Bearer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, hosts) = text
            .split_once('=')
            .ok_or("write its name and its addresses, such as etcd-1=10.0.0.5")?;
        Ok(Self {
            name: name.to_owned(),
            hosts: hosts.split(',').map(str::to_owned).collect(),
        })
    }
}
