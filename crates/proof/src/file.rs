//! Evidence as a file: messages, their authors' proofs and certificates, and the issuance log's words about these
//! certificates. A verifier needs the file and the platform's root certificate. docs/evidence.md describes the lines.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::blob::Blob;
use crate::error::{EvidenceFileError, NotTrue};

/// The version of the format.
pub const FILE_VERSION: u32 = 2;

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceLine {
    /// The first line: the exporter's word about the file, which nothing proves.
    Evidence(EvidenceHead),
    /// The platform's root certificate: DER.
    Root(Blob),
    /// The issuance log.
    Log(LogLine),
    /// The CA's signed deny list.
    Denied(Blob),
    /// An author's certificate. Messages name it by its number among these lines, from 0.
    Certificate(CertificateLine),
    /// A message.
    Message(MessageLine),
    /// The words inside a sealed message.
    Disclosed(DisclosedLine),
    /// The last line: SHA-256 of all bytes before it, hexadecimal.
    Sha256(String),
}

/// The exporter's word about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceHead {
    /// [`FILE_VERSION`].
    pub version: u32,
    /// The platform.
    pub platform: String,
    /// The time of the export, in milliseconds since 1970.
    pub exported: u64,
    /// The messages that were asked for, in words.
    pub asked: String,
    /// The gaps that the exporter knows of, in words: nodes that did not answer, messages that nobody signed.
    pub gaps: Vec<String>,
}

/// The issuance log in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// The certificate of the CA whose log it is: DER.
    pub authority: Blob,
    /// The checkpoint: a signed note, with its cosignatures.
    pub checkpoint: String,
    /// The certificate chains of the nodes that cosigned it, in their wire form.
    pub witnesses: Vec<Blob>,
    /// Checkpoints that somebody saw earlier.
    pub earlier: Vec<EarlierLine>,
}

/// An earlier checkpoint, and the proof that the log continues it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlierLine {
    /// The signed note.
    pub checkpoint: String,
    /// The consistency proof (RFC 9162 section 2.1.4).
    pub proof: Vec<Blob>,
}

/// An author's certificate in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateLine {
    /// The certificate and its issuers', in their wire form.
    pub chain: Blob,
    /// The log's entry of the certificate.
    pub entry: Blob,
    /// The entry's place in the log.
    pub index: u64,
    /// The inclusion proof (RFC 9162 section 2.1.3).
    pub proof: Vec<Blob>,
}

/// A message in a file: its author's statement, and the proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// The number of the author's certificate.
    pub certificate: usize,
    /// The channel; null for a direct message.
    pub channel: Option<String>,
    /// The quality of service.
    pub qos: String,
    /// The receivers.
    pub receivers: Vec<String>,
    /// The message in the bit-efficient encoding (FIPA00069).
    pub message: Blob,
    /// The proof of this message.
    pub proof: Blob,
}

/// The words inside a sealed message of a file, which its receiver shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisclosedLine {
    /// The number of the sealed message among the messages of the file.
    pub message: usize,
    /// The salt of the author's commitment.
    pub salt: Blob,
    /// The message inside, in the bit-efficient encoding (FIPA00069).
    pub inside: Blob,
}

/// Writes a file of these lines, and its last one.
///
/// # Errors
/// If a line cannot be written as JSON. Every line of this module can.
pub fn write_file(lines: &[EvidenceLine]) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut out, line)?;
        out.push(b'\n');
    }
    let last = EvidenceLine::Sha256(hexadecimal(&out));
    serde_json::to_writer(&mut out, &last)?;
    out.push(b'\n');
    Ok(out)
}

/// SHA-256 in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

/// The same result, with the number of the line.
pub(crate) fn at<T, E: Into<NotTrue>>(
    line: usize,
    result: Result<T, E>,
) -> Result<T, EvidenceFileError> {
    result.map_err(|why| EvidenceFileError {
        line,
        why: Box::new(why.into()),
    })
}

/// The file without its last line, which must fit the others.
pub(crate) fn whole(file: &[u8]) -> Result<&[u8], EvidenceFileError> {
    let last = file
        .strip_suffix(b"\n")
        .and_then(|file| file.iter().rposition(|byte| *byte == b'\n'));
    let Some(end) = last else {
        return at(1, Err(NotTrue::Form("the file is cut short")));
    };
    let (body, last) = (&file[..=end], &file[end + 1..]);
    let expected = format!("{{\"sha256\":\"{}\"}}\n", hexadecimal(body));
    match last == expected.as_bytes() {
        true => Ok(&body[..end]),
        false => at(
            1 + body.iter().filter(|byte| **byte == b'\n').count(),
            Err(NotTrue::Form(
                "the file was changed or cut short: its last line is not the SHA-256 of the lines before it",
            )),
        ),
    }
}
