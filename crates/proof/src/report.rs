//! The facts that a file of evidence proves.

use sealbus_seal::Fingerprint;
use sealbus_seal::denylist::Denial;
use serde::Serialize;

use crate::disclosure::DisclosedReport;
use crate::file::EvidenceHead;

/// Everything that a file proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The platform.
    pub platform: String,
    /// SHA-256 of the root certificate in the file, hexadecimal.
    pub root: String,
    /// The exporter's word about the file. Nothing proves it.
    pub exporter: EvidenceHead,
    /// The issuance log.
    pub log: LogReport,
    /// The version of the deny list, which grows with each revocation.
    pub denied_version: u64,
    /// The messages, in the file's order.
    pub messages: Vec<MessageReport>,
}

/// The issuance log that a file shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogReport {
    /// The log's name.
    pub origin: String,
    /// The number of certificates.
    pub size: u64,
    /// The tree's root, hexadecimal.
    pub root: String,
    /// The witnesses whose cosignatures are good.
    pub cosignatures: Vec<CosignatureReport>,
    /// The sizes of earlier checkpoints that the log continues.
    pub continues: Vec<u64>,
}

/// A good cosignature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CosignatureReport {
    /// The witness.
    pub witness: String,
    /// When it cosigned, in milliseconds since 1970.
    pub at: u64,
}

/// A message that its author's proof shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageReport {
    /// The author.
    pub author: String,
    /// The fingerprint of the author's long-lived identity, which its certificate names.
    pub identity: Option<Fingerprint>,
    /// The serial number of the author's certificate.
    pub serial: String,
    /// The place of the certificate in the issuance log.
    pub entry: u64,
    /// The message's number under this certificate.
    pub number: u64,
    /// When the author signed, by its own clock, in milliseconds since 1970.
    pub time: u64,
    /// The level that it was signed for.
    pub level: String,
    /// The channel; none for a direct message.
    pub channel: Option<String>,
    /// The quality of service that the author states.
    pub qos: String,
    /// The receivers that the author states.
    pub receivers: Vec<String>,
    /// The performative.
    pub performative: String,
    /// `:conversation-id`, if it is text.
    pub conversation: Option<String>,
    /// `:in-reply-to`, if it is text.
    pub in_reply_to: Option<String>,
    /// The content, if it is text.
    pub content: Option<String>,
    /// SHA-256 of the content's bytes, hexadecimal; none without content.
    pub content_sha256: Option<String>,
    /// When and why the author's certificate was revoked, or that of its CA, if the deny list in the file has it.
    pub revoked: Option<Denial>,
    /// The words inside a sealed message, if its receiver shows them. Performative and content above are those of the outer
    /// message.
    pub disclosed: Option<DisclosedReport>,
}
