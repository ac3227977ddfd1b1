//! `sealbus evidence`: proofs of messages for others.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use sealbus_bus::Lifetime;

use crate::candidates;

#[derive(Debug, Subcommand)]
pub(crate) enum Evidence {
    /// Write the kept messages that bear their authors' proofs into one file, with everything that others need to check it
    #[command(
        after_help = "Example: sealbus evidence export --conversation order-17 order-17.evidence"
    )]
    Export(EvidenceExport),
    /// Check a file of evidence: who said what to whom and when
    #[command(after_help = "Example: sealbus evidence verify order-17.evidence --root factory.pem")]
    Verify(EvidenceVerify),
    /// Show the words of sealed messages in a copy of a file of evidence, as their receiver's program hands them out
    #[command(
        after_help = "Example: sealbus evidence disclose order-17.evidence words.jsonl shown.evidence"
    )]
    Disclose(EvidenceDisclose),
}

#[derive(Debug, Args)]
#[group(id = "wanted", required = true, multiple = true, args = ["conversation", "channel", "agent"])]
pub(crate) struct EvidenceExport {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Export the messages of this conversation (`:conversation-id`)
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Export the events of this persistent channel, or channels: `*` stands for one level, `**` for the rest
    #[arg(long, value_name = "PATTERN", add = ArgValueCandidates::new(candidates::channels))]
    pub(crate) channel: Option<String>,
    /// Export the messages that this agent sent or received
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(candidates::agents))]
    pub(crate) agent: Option<String>,
    /// Export only messages that were kept in this last time (1h)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Lifetime>,
    /// The CA whose log proves the certificates [default: the one that certifies now]; a file is about one log
    #[arg(long, value_name = "NAME")]
    pub(crate) ca: Option<String>,
    #[command(flatten)]
    pub(crate) log: EvidenceLog,
}

#[derive(Debug, Args)]
pub(crate) struct EvidenceVerify {
    /// The file, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The platform's root certificate, as `sealbus ca root` prints it. Without it, nothing proves that the root
    /// in the file is the platform's
    #[arg(long, value_name = "FILE")]
    pub(crate) root: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: EvidenceLog,
}

#[derive(Debug, Args)]
pub(crate) struct EvidenceDisclose {
    /// The file of evidence
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The words, a line for each message, as the program got them with the message (`disclosure`)
    #[arg(value_name = "WORDS")]
    pub(crate) words: PathBuf,
    /// The file to write
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
}

/// The demands on the issuance log in a file.
#[derive(Debug, Args)]
pub(crate) struct EvidenceLog {
    /// A checkpoint that somebody else saw, for instance a node's `witness/ca.checkpoint`; the log must continue it
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Vec<PathBuf>,
    /// A witness outside the platform that must have cosigned, as `name+hint+key`
    #[arg(long, value_name = "KEY")]
    pub(crate) witness: Vec<String>,
    /// How many witnesses must have cosigned
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) quorum: usize,
}
