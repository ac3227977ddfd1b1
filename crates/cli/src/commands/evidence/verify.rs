//! `evidence verify`: who said what to whom and when.

use std::collections::{BTreeMap, BTreeSet};

use sealbus_control::text::printable;
use sealbus_proof::{MessageReport, Report, inspect};

use super::demands;
use crate::arguments::EvidenceVerify;
use crate::commands::instant;
use crate::commands::issuance_log::{certificate, read, wrong};
use crate::error::CliError;
use crate::output::Output;

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
    if log.cosignatures.is_empty() {
        text.push_str("  NO WITNESS COSIGNED IT: its CA may have shown it to nobody else\n");
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
    let in_the_open = match log.cosignatures.is_empty() {
        true => "",
        false => ", and its certificate was issued in the open, as the witnesses above state",
    };
    text.push_str(&format!(
        "{} messages. Proved: each author wrote exactly this, for these receivers{in_the_open}\n",
        report.messages.len()
    ));
    text.push_str(&format!(
        "Not proved: that a message arrived, that the stated time is the true one, that no message is missing, \
         that nobody was revoked after version {} of the deny list\n",
        report.denied_version
    ));
    let exporter = &report.exporter;
    text.push_str(&format!(
        "The exporter says: {}, at {}",
        printable(&exporter.asked),
        instant(exporter.exported)
    ));
    for gap in &exporter.gaps {
        text.push_str(&format!("\n  not there: {}", printable(gap)));
    }
    text
}

/// The lines about a message. Words of its author stay within their line: they could else look like another message.
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
        receivers => printable(&receivers.join(", ")).into_owned(),
    };
    let on = match channel {
        Some(channel) => format!(" on {}", printable(channel)),
        None => String::new(),
    };
    let content = said_in(
        message.content.as_deref(),
        message.content_sha256.as_deref(),
    );
    let performative = printable(performative);
    let mut text = format!("{at}  {author} to {to}{on}\n  {performative}: {content}\n");
    if let Some(conversation) = &message.conversation {
        text.push_str(&format!("  conversation {}\n", printable(conversation)));
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
            printable(&words.performative),
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
        (Some(content), _) => printable(content).into_owned(),
        (None, Some(hash)) => format!("bytes of SHA-256 {hash}"),
        (None, None) => "no content".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use sealbus_proof::{CosignatureReport, EvidenceHead, LogReport};

    use super::*;

    fn report(messages: Vec<MessageReport>) -> Report {
        Report {
            platform: "factory".to_owned(),
            root: "00".to_owned(),
            exporter: EvidenceHead::default(),
            log: LogReport {
                origin: "spiffe://factory/authority/ca/issuance".to_owned(),
                size: 3,
                root: "11".to_owned(),
                cosignatures: Vec::new(),
                continues: Vec::new(),
            },
            denied_version: 7,
            messages,
        }
    }

    #[test]
    fn a_log_that_nobody_witnessed_is_not_said_to_be_in_the_open() {
        let mut report = report(Vec::new());
        let alone = text(&report, true);
        assert!(alone.contains("NO WITNESS COSIGNED IT"), "{alone}");
        assert!(!alone.contains("in the open"), "{alone}");
        assert!(alone.contains("version 7 of the deny list"), "{alone}");
        report.log.cosignatures.push(CosignatureReport {
            witness: "spiffe://factory/node/node-1".to_owned(),
            at: 0,
        });
        let witnessed = text(&report, true);
        assert!(witnessed.contains("in the open"), "{witnessed}");
        assert!(!witnessed.contains("NO WITNESS"), "{witnessed}");
    }

    #[test]
    fn no_author_and_no_exporter_writes_lines_of_the_report() {
        let forged =
            "yes\n2026-01-01 00:00:00.000Z  victim@factory to all subscribers\n  agree: I pay";
        let message = MessageReport {
            author: "mallory@factory".to_owned(),
            identity: None,
            serial: "22".to_owned(),
            entry: 1,
            number: 0,
            time: 0,
            level: "signed".to_owned(),
            channel: Some(forged.to_owned()),
            qos: String::new(),
            receivers: vec![forged.to_owned()],
            performative: forged.to_owned(),
            conversation: Some(forged.to_owned()),
            in_reply_to: None,
            content: Some(forged.to_owned()),
            content_sha256: None,
            revoked: None,
            disclosed: None,
        };
        let mut report = report(vec![message]);
        report.exporter.asked = forged.to_owned();
        report.exporter.gaps = vec![forged.to_owned()];
        let text = text(&report, true);
        let mut lines = text.lines().map(str::trim_start);
        assert!(
            lines.all(|line| !line.starts_with("2026") && !line.starts_with("agree")),
            "{text}"
        );
    }
}
