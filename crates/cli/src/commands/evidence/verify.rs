//! `evidence verify`: who said what to whom and when.

use std::collections::{BTreeMap, BTreeSet};

use sealbus_proof::{MessageReport, Report, inspect};

use super::demands;
use crate::arguments::EvidenceVerify;
use crate::commands::instant;
use crate::commands::issuance_log::{certificate, read, wrong};
use crate::error::CliError;
use crate::output::{Output, shown};

/// `sealbus evidence verify FILE`
pub(crate) fn verify(verify: &EvidenceVerify, output: Output) -> Result<(), CliError> {
    let root = verify.root.as_deref().map(certificate).transpose()?;
    let is_compared = root.is_some();
    let file = read(&verify.file)?;
    let report = inspect(&file, &demands(&verify.log, root)?).map_err(wrong)?;
    output.show(&report, || text(&report, is_compared));
    Ok(())
}

fn text(report: &Report, is_compared: bool) -> String {
    let Report {
        platform,
        root,
        log,
        ..
    } = report;
    let compared = match is_compared {
        true => "the root that you gave",
        false => "NOT COMPARED: give the platform's root with --root, or compare this",
    };
    let mut text = format!("platform {platform}, root {root}\n  {compared}\n");
    text.push_str(&format!(
        "issuance log of {} certificates, root {}\n",
        log.size, log.root
    ));
    for witness in &log.cosignatures {
        let at = instant(witness.at);
        text.push_str(&format!("  cosigned by {} at {at}\n", witness.witness));
    }
    for size in &log.continues {
        text.push_str(&format!(
            "  continues the checkpoint of {size} certificates\n"
        ));
    }
    for message in &report.messages {
        text.push_str(&said(message));
    }
    text.push_str(&identities(&report.messages));
    text.push_str(&format!(
        "{} messages. Proved: each author wrote exactly this, for these receivers, and its certificate was issued in the open\n",
        report.messages.len()
    ));
    text.push_str(
        "Not proved: that a message arrived, that the stated time is the true one, that no message is missing\n",
    );
    let exporter = &report.exporter;
    text.push_str(&format!(
        "The exporter says: {}, at {}",
        shown(&exporter.asked),
        instant(exporter.exported)
    ));
    for gap in &exporter.gaps {
        text.push_str(&format!("\n  not there: {}", shown(gap)));
    }
    text
}

fn said(message: &MessageReport) -> String {
    let MessageReport {
        author,
        channel,
        receivers,
        performative,
        ..
    } = message;
    let at = instant(message.time);
    let to = match receivers.as_slice() {
        [] => "all subscribers".to_owned(),
        receivers => shown(&receivers.join(", ")),
    };
    let on = match channel {
        Some(channel) => format!(" on {}", shown(channel)),
        None => String::new(),
    };
    let content = said_in(
        message.content.as_deref(),
        message.content_sha256.as_deref(),
    );
    let performative = shown(performative);
    let mut text = format!("{at}  {author} to {to}{on}\n  {performative}: {content}\n");
    if let Some(conversation) = &message.conversation {
        text.push_str(&format!("  conversation {}\n", shown(conversation)));
    }
    text.push_str(&format!(
        "  message {} under certificate {}, entry {} of the log\n",
        message.number, message.serial, message.entry
    ));
    if let Some(identity) = &message.identity {
        text.push_str(&format!("  long-lived identity {identity}\n"));
    }
    if let Some(words) = &message.disclosed {
        text.push_str(&format!(
            "  inside, as its author committed to: {}: {}\n",
            shown(&words.performative),
            said_in(words.content.as_deref(), words.content_sha256.as_deref())
        ));
    }
    if let Some(denial) = &message.revoked {
        let at_ms = denial.at.as_unix_seconds() * 1000;
        let order = match message.time < at_ms {
            true => "after",
            false => "BEFORE",
        };
        text.push_str(&format!(
            "  its author was revoked at {}, {order} the stated time: {}\n",
            instant(at_ms),
            denial.reason
        ));
    }
    text
}

/// The certificates that belong to one agent, because one long-lived identity signed for them.
fn identities(messages: &[MessageReport]) -> String {
    let mut found: BTreeMap<String, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    for message in messages {
        if let Some(identity) = &message.identity {
            let (names, certificates) = found.entry(identity.to_string()).or_default();
            names.insert(&message.author);
            certificates.insert(&message.serial);
        }
    }
    let line = |(identity, (names, certificates)): (&String, &(BTreeSet<&str>, BTreeSet<&str>))| {
        let names: Vec<&str> = names.iter().copied().collect();
        let certificates: Vec<&str> = certificates.iter().copied().collect();
        format!(
            "one agent, by its long-lived identity {identity}: {}, certificates {}\n",
            names.join(", "),
            certificates.join(", ")
        )
    };
    found.iter().map(line).collect()
}

fn said_in(content: Option<&str>, hash: Option<&str>) -> String {
    match (content, hash) {
        (Some(content), _) => shown(content),
        (None, Some(hash)) => format!("bytes of SHA-256 {hash}"),
        (None, None) => "no content".to_owned(),
    }
}
