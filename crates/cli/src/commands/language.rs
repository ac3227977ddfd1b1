//! `acl convert`, `acl explain`, `acl validate`: messages on disk and in pipes.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use data_encoding::HEXLOWER;
use sealbus_fipa::{
    AclMessage, DecodeError, Expectations, Finding, Limits, Representation, Severity, detect,
    representation, representations,
};
use serde::Serialize;
use serde_json::json;

use crate::arguments::{AclConvert, AclExplain, AclValidate};
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// Bytes shown on either side of a mistake.
const AROUND: usize = 24;

/// `sealbus acl convert --from ENCODING --to ENCODING`: prints the bytes themselves. For programs it prints an object
/// with the bytes as text, or in base64 if they are not text.
pub(crate) fn convert(convert: &AclConvert, output: Output) -> Result<(), CliError> {
    let (from, to) = (named(&convert.from)?, named(&convert.to)?);
    let bytes = bytes_of(convert.file.as_deref())?;
    let message = decode(from, &bytes)?;
    let mut out = Vec::new();
    to.encode(&message, &mut out)
        .map_err(|error| CliError::Failed {
            message: format!(
                "the message cannot be written as {}: {error}",
                to.short_name()
            ),
            help: Some("other encodings may carry it: `sealbus acl convert --help`".to_owned()),
        })?;
    if output.is_json() {
        let (kind, written) = match String::from_utf8(out) {
            Ok(text) => ("text", text),
            Err(bytes) => ("base64", BASE64.encode(bytes.as_bytes())),
        };
        output.show(
            &json!({ "encoding": to.name(), kind: written }),
            String::new,
        );
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&out).and_then(|()| stdout.flush()) {
        // A reader that closes the pipe has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(CliError::file("write", "standard output")),
    }
}

/// `sealbus acl validate`: checks first the encoding, then everything that a strict receiver checks beyond it.
pub(crate) fn validate(validate: &AclValidate, output: Output) -> Result<(), CliError> {
    let bytes = bytes_of(validate.file.as_deref())?;
    let encoding = chosen(validate.from.as_deref(), &bytes)?;
    let message = decode(encoding, &bytes)?;
    let performative = message.performative.to_string();
    let findings = sealbus_fipa::validate(&message, &Expectations::default());
    let faults = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    let told: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "severity": severity(finding.severity),
                "field": finding.field,
                "message": finding.message,
                "reference": finding.reference,
            })
        })
        .collect();
    let told = json!({
        "valid": faults == 0,
        "encoding": encoding.name(),
        "bytes": bytes.len(),
        "performative": performative,
        "receivers": message.receivers.len(),
        "findings": told,
    });
    output.show(&told, || {
        let mut lines: Vec<String> = findings
            .iter()
            .map(|finding| {
                let Finding {
                    field,
                    message,
                    reference,
                    ..
                } = finding;
                format!(
                    "{} {field}: {message}  [{reference}]",
                    severity(finding.severity)
                )
            })
            .collect();
        let verdict = if faults == 0 {
            "a valid"
        } else {
            "not a valid"
        };
        lines.push(format!(
            "{verdict} {performative} in {}, {} bytes",
            encoding.name(),
            bytes.len()
        ));
        lines.join("\n")
    });
    if faults == 0 {
        return Ok(());
    }
    Err(CliError::Failed {
        message: format!("the message is against the standard in {faults} respects"),
        help: None,
    })
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// The requested encoding, or the one recognised from the first bytes.
fn chosen(asked: Option<&str>, bytes: &[u8]) -> Result<&'static dyn Representation, CliError> {
    match asked {
        Some(name) => named(name),
        None => detect(bytes).ok_or_else(|| CliError::Usage {
            message: "the first bytes are of no encoding known".to_owned(),
            help: format!("name it with --from: {}", names()),
        }),
    }
}

fn named(name: &str) -> Result<&'static dyn Representation, CliError> {
    representation(name).ok_or_else(|| CliError::Usage {
        message: format!("there is no encoding `{name}`"),
        help: format!("choose one of {}", names()),
    })
}

fn names() -> String {
    representations()
        .iter()
        .map(|known| known.short_name())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Reads the file or standard input, up to one byte more than a message may have.
fn bytes_of(file: Option<&Path>) -> Result<Vec<u8>, CliError> {
    let most = Limits::DEFAULT.message_length as u64 + 1;
    input::read(file.unwrap_or(Path::new("-")), most)
}

fn decode(encoding: &dyn Representation, bytes: &[u8]) -> Result<AclMessage, CliError> {
    encoding
        .decode(bytes, &Limits::DEFAULT)
        .map_err(|error| invalid(encoding, bytes, &error))
}

/// The mistake, with the bytes around it.
fn invalid(encoding: &dyn Representation, bytes: &[u8], error: &DecodeError) -> CliError {
    let at = error.offset.min(bytes.len());
    let before = &bytes[at.saturating_sub(AROUND)..at];
    let after = &bytes[at..bytes.len().min(at + AROUND)];
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    CliError::Failed {
        message: format!("not a valid message in {}: {error}", encoding.name()),
        help: Some(format!("…{} >here> {}…", shown(before), shown(after))),
    }
}

/// A run of a message's bytes and its meaning, for programs.
#[derive(Serialize)]
struct Piece {
    offset: usize,
    bytes: String,
    depth: usize,
    meaning: String,
    reference: &'static str,
}

/// `sealbus acl explain`: explains the valid part of the message, and then the fault.
pub(crate) fn explain(explain: &AclExplain, output: Output) -> Result<(), CliError> {
    let bytes = bytes_of(explain.file.as_deref())?;
    let encoding = chosen(explain.from.as_deref(), &bytes)?;
    let explanation = encoding.explain(&bytes, &Limits::DEFAULT);
    let pieces: Vec<Piece> = explanation
        .pieces
        .iter()
        .map(|piece| Piece {
            offset: piece.range.start,
            bytes: HEXLOWER.encode(&bytes[piece.range.clone()]),
            depth: piece.depth,
            meaning: piece.meaning.clone(),
            reference: piece.reference,
        })
        .collect();
    output.show(&pieces, || explanation.to_string().trim_end().to_owned());
    match explanation.error {
        Some(error) => Err(invalid(encoding, &bytes, &error)),
        None => Ok(()),
    }
}
