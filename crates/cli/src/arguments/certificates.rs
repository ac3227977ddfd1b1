//! `sealbus ca`: the platform's certification authority.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use sealbus_master::KeyName;

use super::listing::Watch;
use crate::candidates;

#[derive(Debug, Subcommand)]
pub(crate) enum Ca {
    /// Show the steps of each certification, and each revocation, in order
    #[command(after_help = "Example: sealbus ca log --agent seller-1")]
    Log(CaLog),
    /// List the issued certificates
    #[command(after_help = "Example: sealbus ca list --valid")]
    List(CaList),
    /// Revoke the certificates of an agent, which cuts it off at once, or a CA with all that it certified
    #[command(after_help = "Example: sealbus ca revoke seller-1")]
    Revoke(CaRevoke),
    /// Show each certificate that was issued in an agent's name, from a log that is verified meanwhile
    #[command(after_help = "Example: sealbus ca monitor seller-1 --follow")]
    Monitor(CaMonitor),
    /// List the platform's CAs: each Master has one of its own
    #[command(after_help = "Example: sealbus ca authorities")]
    Authorities,
    /// Let a token hold the keys of a new platform, or of a further Master's CA (PKCS#11): they are made in it and stay there
    #[command(
        after_help = "Example: sealbus ca keys --ca 'pkcs11:token=factory;object=ca?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/etc/sealbus/pin'"
    )]
    Keys(CaKeys),
    /// Make the key of a CA for a further Master on this machine, and print the request to certify it (PEM)
    #[command(after_help = "Example: sealbus ca request platform.toml > request.pem")]
    Request(CaRequest),
    /// Certify the CA of a further Master with the root's key, and print its certificates (PEM)
    #[command(after_help = "Example: sealbus ca certify request.pem --root root > ca.pem")]
    Certify(CaCertify),
    /// Print the root certificate (PEM), with which others check certificates of this platform
    #[command(after_help = "Example: sealbus ca root > factory.pem")]
    Root,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CaLog {
    #[command(subcommand)]
    pub(crate) command: Option<CaLogCommand>,
    /// Show only entries about this agent or node
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: Option<String>,
    /// Show only this many last entries
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with = "follow")]
    pub(crate) lines: Option<u32>,
    /// Keep showing new entries
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaList {
    /// List only certificates that are neither expired nor revoked
    #[arg(long)]
    pub(crate) valid: bool,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

#[derive(Debug, Args)]
pub(crate) struct CaRevoke {
    /// The agent or node, a process by its identity in `sealbus ca list`, or a certificate's serial number
    #[arg(value_name = "NAME", required_unless_present = "authority", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) name: Option<String>,
    /// The CA, by its name in `sealbus ca authorities`, in place of an agent
    #[arg(long, value_name = "CA", conflicts_with = "name")]
    pub(crate) authority: Option<String>,
    /// The reason, shown with the revocation
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct CaKeys {
    /// The manifest of the platform [default: platform.toml]
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
    /// The CA's key, by its name in the token (RFC 7512)
    #[arg(long, value_name = "URI", required_unless_present = "root")]
    pub(crate) ca: Option<KeyName>,
    /// The root's key, of a platform that never ran
    #[arg(long, value_name = "URI")]
    pub(crate) root: Option<KeyName>,
}

#[derive(Debug, Args)]
pub(crate) struct CaRequest {
    /// The manifest of the platform [default: platform.toml]
    #[arg(value_name = "MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CaCertify {
    /// The request, as `sealbus ca request` prints it, or `-` for standard input
    #[arg(value_name = "REQUEST")]
    pub(crate) request: PathBuf,
    /// The folder with root.key and root.der [default: the state directory of the platform]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CaLogCommand {
    /// Verify the whole issuance log: every entry, every tile, the checkpoint and its cosignatures
    #[command(
        after_help = "Example: sealbus ca log verify --address 10.0.0.7:7400 --root factory.pem"
    )]
    Verify(CaLogVerify),
}

/// The log to read. Without these options it is that of the platform that runs here.
#[derive(Debug, Args)]
pub(crate) struct LogSource {
    /// Read the log from this folder
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "address",
        requires = "root"
    )]
    pub(crate) folder: Option<PathBuf>,
    /// Read the log from the port at which nodes join this platform
    #[arg(long, value_name = "HOST:PORT", requires = "root")]
    pub(crate) address: Option<String>,
    /// The platform's root certificate, as `sealbus ca root` prints it
    #[arg(long, value_name = "FILE")]
    pub(crate) root: Option<PathBuf>,
    /// The CA whose log it is [default: the logs of all CAs]
    #[arg(long, value_name = "NAME")]
    pub(crate) ca: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CaLogVerify {
    #[command(flatten)]
    pub(crate) source: LogSource,
    /// A checkpoint that somebody else saw, for instance a node's `witness/ca.checkpoint`; the log must continue it
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Vec<PathBuf>,
    /// A certificate (PEM or DER) that must be in the log
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Vec<PathBuf>,
    /// A witness outside the platform that must have cosigned, as `name+hint+key`
    #[arg(long, value_name = "KEY")]
    pub(crate) witness: Vec<String>,
    /// How many witnesses must have cosigned
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) quorum: usize,
}

#[derive(Debug, Args)]
pub(crate) struct CaMonitor {
    /// The agent
    #[arg(value_name = "AGENT", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) source: LogSource,
    /// Keep showing new certificates
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// A witness outside the platform that must have cosigned, as `name+hint+key`
    #[arg(long, value_name = "KEY")]
    pub(crate) witness: Vec<String>,
    /// How many witnesses must have cosigned
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) quorum: usize,
}
