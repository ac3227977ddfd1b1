//! `sealbus acl`: encodings of messages.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// Read a message in one encoding and write it in another
    #[command(
        after_help = "Example: sealbus acl convert --from string --to bitefficient < message.acl > message.be"
    )]
    Convert(AclConvert),
    /// Show a message byte by byte, with the meaning and the FIPA section of each
    #[command(after_help = "Example: sealbus acl explain --from bitefficient < message.be")]
    Explain(AclExplain),
    /// Say whether a message is valid; if not, at which byte, and what was expected there
    #[command(after_help = "Example: sealbus acl validate --from string message.acl")]
    Validate(AclValidate),
}

#[derive(Debug, Args)]
pub(crate) struct AclConvert {
    /// Encoding of the input: string, bitefficient, xml or json
    #[arg(long, value_name = "ENCODING")]
    pub(crate) from: String,
    /// Encoding of the output
    #[arg(long, value_name = "ENCODING")]
    pub(crate) to: String,
    /// The message; `-`, the default, reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AclExplain {
    /// Encoding of the message [default: recognised from its first bytes]
    #[arg(long, value_name = "ENCODING")]
    pub(crate) from: Option<String>,
    /// The message; `-`, the default, reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AclValidate {
    /// Encoding of the message [default: recognised from its first bytes]
    #[arg(long, value_name = "ENCODING")]
    pub(crate) from: Option<String>,
    /// The message; `-`, the default, reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
