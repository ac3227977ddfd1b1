//! `evidence export`: proofs of messages for others.

pub(crate) mod disclose;
#[cfg(test)]
mod tests;
pub(crate) mod verify;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sealbus_bus::milliseconds;
use sealbus_control::admin::{SilentNode, ask};
use sealbus_control::evidence::{EvidencePages, EvidenceQuestion, ProvedMessage};
use sealbus_control::text::printable;
use sealbus_fipa::{Limits, bitefficient};
use sealbus_proof::{
    Blob, CertificateLine, Demands, EarlierLine, Evidence, EvidenceHead, EvidenceLine,
    FILE_VERSION, LogLine, MessageLine, Statement, inspect, write_file,
};
use sealbus_seal::{Certificate, CertificateChain, Fingerprint, Identity, SecurityLevel, Trust};
use sealbus_transparency::{
    Audit, Checkpoint, Hash, Inclusion, Note, NoteKey, WholeTree, consistency_proof,
    inclusion_proof, leaf_hash,
};
use serde_json::json;

use super::issuance_log::{Log, read, witness_keys, wrong};
use super::{instant, now};
use crate::arguments::{EvidenceExport, EvidenceLog, General, LogSource};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::Output;

/// How often the log is read again until it has every certificate, with this pause.
const LOOKS: u32 = 15;
const PAUSE: Duration = Duration::from_secs(1);
/// The most pages of one node. A page has half a megabyte of messages, or is all that the node found in 16,384 records or 32 MiB.
const MOST_PAGES: u32 = 16_384;

/// A message whose proof is good.
struct Good {
    certificate: Fingerprint,
    evidence: Evidence,
    message: ProvedMessage,
}

/// The messages whose proofs are good, each once. A certificate and a number identify a message.
#[derive(Default)]
struct Found {
    messages: Vec<Good>,
    /// The statement under each number of a certificate.
    statements: HashMap<(Fingerprint, u64), Hash>,
}

impl Found {
    /// Adds a message, unless it is there. No file shows a number twice, and an author that gives a number twice must not
    /// prevent the whole file.
    ///
    /// # Errors
    /// A text about the message, if it is left out because another one has its number.
    fn add(&mut self, message: Good) -> Result<(), String> {
        let evidence = &message.evidence;
        let (number, statement) = (evidence.number(), *evidence.statement());
        match self.statements.entry((message.certificate, number)) {
            Entry::Vacant(place) => {
                place.insert(statement);
                self.messages.push(message);
                Ok(())
            }
            Entry::Occupied(known) if *known.get() == statement => Ok(()),
            Entry::Occupied(_) => Err(format!(
                "a further message of {} with the number {number} under the certificate {}, which its author gave to two \
                 messages: an export of fewer messages shows it",
                evidence.author().identity(),
                evidence.author().serial()
            )),
        }
    }
}

/// A certificate and its place in the log.
struct Certified {
    evidence: Evidence,
    entry: Option<(u64, Vec<u8>)>,
}

/// `sealbus evidence export FILE`
pub(crate) async fn export(
    general: &General,
    export: &EvidenceExport,
    output: Output,
) -> Result<(), CliError> {
    let mut connection = Connection::open(general).await?;
    let pem = connection.ask(ask::Root).await?;
    let root = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(wrong)?;
    let source = LogSource {
        folder: None,
        address: None,
        root: None,
        ca: export.ca.clone(),
    };
    let mut log = Log::open(general, &source).await?;
    let platform = log.trust.platform().to_string();
    let mut question = EvidenceQuestion {
        conversation: export.conversation.clone(),
        channel: export.channel.clone(),
        agent: export
            .agent
            .as_ref()
            .map(|agent| match agent.contains('@') {
                true => agent.clone(),
                false => format!("{agent}@{platform}"),
            }),
        since: export
            .since
            .map(|since| now().saturating_sub(milliseconds(since.0))),
        positions: None,
    };
    let mut head = EvidenceHead {
        version: FILE_VERSION,
        platform,
        exported: now(),
        asked: asked(&question),
        gaps: Vec::new(),
    };
    let waiting = output.waiting("the nodes");
    let pages = async |question| connection.ask(ask::Evidence { question }).await;
    let (messages, denied) = gather(pages, &mut question, &log.trust, &mut head).await?;
    waiting.finish_and_clear();
    let lines = lines(
        export,
        head,
        &mut log,
        root.to_vec(),
        denied,
        messages,
        output,
    )
    .await?;
    let file = write_file(&lines).map_err(wrong)?;
    // Nobody should get a file that proves nothing.
    let demands = demands(&export.log, Some(root.to_vec()))?;
    let report = inspect(&file, &demands).map_err(wrong)?;
    let path = &export.file;
    create(path, &file)?;
    let told = json!({
        "file": path,
        "messages": report.messages.len(),
        "cosignatures": report.log.cosignatures.len(),
        "gaps": report.exporter.gaps,
    });
    output.show(&told, || {
        let mut text = format!("{} messages in {}", report.messages.len(), path.display());
        for gap in &report.exporter.gaps {
            text.push_str(&format!("\nnot there: {}", printable(gap)));
        }
        let messages = report.messages.iter();
        let sealed = messages.filter(|it| it.performative == "sealed").count();
        if sealed > 0 {
            text.push_str(&format!(
                "\n{sealed} of them are sealed: their receivers can show the words (sealbus evidence disclose)"
            ));
        }
        if report.log.cosignatures.is_empty() {
            text.push_str("\nno witness has cosigned the log yet: --quorum 1 waits for one");
        }
        text
    });
    Ok(())
}

/// Writes a file that is not there yet.
fn create(path: &Path, file: &[u8]) -> Result<(), CliError> {
    let made = File::options().write(true).create_new(true).open(path);
    let mut out = made.map_err(CliError::file("create", path))?;
    out.write_all(file)
        .and_then(|()| out.sync_all())
        .map_err(CliError::file("write", path))
}

fn asked(question: &EvidenceQuestion) -> String {
    let mut parts = Vec::new();
    if let Some(id) = &question.conversation {
        parts.push(format!("conversation {id}"));
    }
    if let Some(pattern) = &question.channel {
        parts.push(format!("channel {pattern}"));
    }
    if let Some(agent) = &question.agent {
        parts.push(format!("agent {agent}"));
    }
    if let Some(since) = question.since {
        parts.push(format!("kept since {}", instant(since)));
    }
    parts.join(", ")
}

/// The messages of all nodes whose proofs are good, by the time of their signatures, and the deny list.
async fn gather(
    mut pages: impl AsyncFnMut(EvidenceQuestion) -> Result<EvidencePages, CliError>,
    question: &mut EvidenceQuestion,
    trust: &Trust,
    head: &mut EvidenceHead,
) -> Result<(Vec<Good>, Vec<u8>), CliError> {
    let (mut found, mut known) = (Found::default(), HashSet::new());
    let mut unsigned: BTreeMap<String, u64> = BTreeMap::new();
    let mut gap = |text: String| {
        if !head.gaps.contains(&text) {
            head.gaps.push(text);
        }
    };
    let mut asked = 0;
    loop {
        let answer = pages(question.clone()).await?;
        asked += 1;
        let mut waiting = question.positions.clone().unwrap_or_default();
        for SilentNode { node, why } in answer.silent {
            waiting.remove(&node);
            gap(format!(
                "everything on {node}, which does not answer: {why}"
            ));
        }
        let mut positions = BTreeMap::new();
        for page in answer.pages {
            let node = page.node;
            waiting.remove(&node);
            let count = unsigned.entry(node.clone()).or_default();
            *count = count.saturating_add(page.unsigned);
            for damage in page.damage {
                gap(format!("a part of the journal of {node}: {damage}"));
            }
            for message in page.messages {
                // A message to an agent that moved is recorded on both nodes.
                let key = (message.evidence.0.clone(), message.receivers.clone());
                if !known.insert(key) {
                    continue;
                }
                match checked(message, trust).map(|message| found.add(message)) {
                    Ok(Ok(())) => {}
                    Ok(Err(further)) => gap(further),
                    Err(why) => gap(format!("a record of {node} that proves nothing: {why}")),
                }
            }
            match page.next {
                Some(next) if asked < MOST_PAGES && question.leads_to(&node, &next) => {
                    positions.insert(node, next);
                }
                Some(_) => gap(format!(
                    "the rest of what {node} keeps: its pages do not follow each other, or are more than {MOST_PAGES} (--since)"
                )),
                None => {}
            }
        }
        for node in waiting.into_keys() {
            gap(format!("the rest on {node}: the Master asks it no more"));
        }
        if positions.is_empty() {
            for (node, count) in unsigned.into_iter().filter(|(_, count)| *count > 0) {
                gap(format!("{count} messages on {node} that nobody signed"));
            }
            let mut good = found.messages;
            good.sort_by_key(|good| good.evidence.time());
            return Ok((good, answer.deny_list.0));
        }
        question.positions = Some(positions);
    }
}

fn checked(message: ProvedMessage, trust: &Trust) -> Result<Good, String> {
    let receivers: Vec<&str> = message.receivers.iter().map(String::as_str).collect();
    let statement = Statement {
        channel: message.channel.as_deref(),
        qos: &message.qos,
        receivers: &receivers,
        message: &message.message.0,
    };
    let level = SecurityLevel::Signed;
    let evidence = &message.evidence.0;
    let evidence = Evidence::decode(evidence, statement.hash(), level, trust, now());
    let evidence = evidence.map_err(|error| error.to_string())?;
    let limits = Limits {
        message_length: message.message.0.len(),
        ..Limits::default()
    };
    let view = bitefficient::decode_ref(&message.message.0, &limits);
    let view = view.map_err(|error| error.to_string())?;
    let author = evidence.author().identity().agent_name();
    match view.sender() {
        Some(sender) if Some(sender.name()) == author.as_deref() => {}
        _ => return Err("its author signed it in another's name".to_owned()),
    }
    Ok(Good {
        certificate: Fingerprint::of(evidence.chain().leaf()),
        evidence,
        message,
    })
}

/// The lines of the file.
async fn lines(
    export: &EvidenceExport,
    mut head: EvidenceHead,
    log: &mut Log,
    root: Vec<u8>,
    denied: Vec<u8>,
    messages: Vec<Good>,
    output: Output,
) -> Result<Vec<EvidenceLine>, CliError> {
    let mut certified: BTreeMap<[u8; 32], Certified> = BTreeMap::new();
    for good in &messages {
        certified
            .entry(*good.certificate.as_bytes())
            .or_insert(Certified {
                evidence: good.evidence.clone(),
                entry: None,
            });
    }
    let bar = output.waiting("the log");
    let outside = witness_keys(&export.log.witness)?;
    let (tree, note) = read_log(export, log, &outside, &mut certified).await?;
    bar.finish_and_clear();
    // One witness that lies must not prevent a file: the file shows which witnesses believe the log.
    let disbelief = log.alarms.iter().map(|alarm| {
        format!("the cosignature of a witness that does not believe the log: {alarm}")
    });
    head.gaps.extend(disbelief);
    let (log_line, size) = log_line(export, log, &outside, &tree, note).await?;
    let mut numbers = BTreeMap::new();
    let mut certificates = Vec::new();
    for (fingerprint, Certified { evidence, entry }) in certified {
        let Some((index, entry)) = entry else {
            let author = evidence.author().identity();
            head.gaps.push(format!(
                "everything that {author} signed with the certificate {}, which the issuance log lacks{}",
                evidence.author().serial(),
                about_lacking(evidence.chain(), log, size)
            ));
            continue;
        };
        let mut chain = Vec::new();
        // The file has its own proof that the log has the certificate, under a checkpoint with witnesses.
        let alone = evidence.chain().clone().without_inclusion();
        alone.encode(&mut chain);
        let proof = inclusion_proof(&tree, size, index).map_err(wrong)?;
        numbers.insert(fingerprint, certificates.len());
        certificates.push(EvidenceLine::Certificate(CertificateLine {
            chain: Blob(chain),
            entry: Blob(entry),
            index,
            proof: hashes(proof),
        }));
    }
    let mut lines = vec![
        EvidenceLine::Evidence(head),
        EvidenceLine::Root(Blob(root)),
        EvidenceLine::Log(log_line),
        EvidenceLine::Denied(Blob(denied)),
    ];
    lines.extend(certificates);
    for Good {
        certificate,
        evidence,
        message,
    } in messages
    {
        let Some(number) = numbers.get(certificate.as_bytes()) else {
            continue;
        };
        let mut proof = Vec::new();
        evidence.proof().map_err(wrong)?.encode(&mut proof);
        lines.push(EvidenceLine::Message(MessageLine {
            certificate: *number,
            channel: message.channel,
            qos: message.qos,
            receivers: message.receivers,
            message: message.message,
            proof: Blob(proof),
        }));
    }
    Ok(lines)
}

/// The reason why the log of `size` entries lacks a certificate: it is of another CA, it may still come, or its own CA signed a
/// log that nobody else has seen. The proof that came with the certificate was checked.
fn about_lacking(chain: &CertificateChain, log: &Log, size: u64) -> String {
    let place = chain.inclusion().and_then(Inclusion::decode);
    let place = place.map(|proof| proof.size());
    let issuer = chain.issuers().first();
    let issuer = issuer.and_then(|der| Certificate::parse(der).ok());
    match issuer.as_ref().map(Certificate::identity) {
        Some(other @ Identity::Authority { name, .. }) if *other != log.identity => {
            format!(": it is of another CA, see --ca {name}")
        }
        _ if place.is_some_and(|place| place > size) => {
            ": the log is not published that far yet, or another CA took it up (--ca)".to_owned()
        }
        _ => ", though its CA signed that it is there: somebody uses the CA's key in secret"
            .to_owned(),
    }
}

/// Reads the whole log, and finds the certificates in it. A certificate comes into the published log a little after it
/// was issued, and cosignatures a little after that.
async fn read_log(
    export: &EvidenceExport,
    log: &mut Log,
    outside: &[NoteKey],
    certified: &mut BTreeMap<[u8; 32], Certified>,
) -> Result<(WholeTree, Note), CliError> {
    let (mut note, checkpoint) = log.checkpoint().await?;
    let mut audit = Audit::new(checkpoint);
    let mut leaves: Vec<Hash> = Vec::new();
    for look in 1.. {
        let read = log.drive(&mut audit, |entry, record| {
            leaves.push(leaf_hash(&entry.leaf));
            if let Some(certified) = certified.get_mut(record.certificate.as_bytes()) {
                certified.entry = Some((entry.index, entry.leaf));
            }
            Ok(())
        });
        read.await?;
        let is_whole = certified.values().all(|it| it.entry.is_some());
        let outside = outside.iter().filter(|key| note.verify(key).is_ok());
        let witnesses = log.witnesses(&note).await?.len() + outside.count();
        if look == LOOKS || is_whole && witnesses >= export.log.quorum {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        let (later, checkpoint) = log.checkpoint().await?;
        note = later;
        audit.go_on(checkpoint).map_err(wrong)?;
    }
    Ok((WholeTree::new(leaves), note))
}

/// The line about the log, and the log's size.
async fn log_line(
    export: &EvidenceExport,
    log: &mut Log,
    outside: &[NoteKey],
    tree: &WholeTree,
    note: Note,
) -> Result<(LogLine, u64), CliError> {
    let checkpoint = Checkpoint::open(&note, &log.key).map_err(wrong)?;
    let witnesses = log.witnesses(&note).await?;
    let mut earlier = Vec::new();
    for path in &export.log.against {
        let seen = note_of(path)?;
        let of = Checkpoint::open(&seen, &log.key).map_err(wrong)?;
        let proof = consistency_proof(tree, checkpoint.size, of.size).map_err(wrong)?;
        earlier.push(EarlierLine {
            checkpoint: seen.signed_by(&[&log.key]).to_string(),
            proof: hashes(proof),
        });
    }
    let keys = witnesses.iter().map(|(key, ..)| key).chain(outside);
    let keys: Vec<&NoteKey> = [&log.key].into_iter().chain(keys).collect();
    let chains = witnesses.iter().map(|(_, chain, _)| {
        let mut encoded = Vec::new();
        chain.encode(&mut encoded);
        Blob(encoded)
    });
    let line = LogLine {
        authority: Blob(log.authority.clone()),
        checkpoint: note.signed_by(&keys).to_string(),
        witnesses: chains.collect(),
        earlier,
    };
    Ok((line, checkpoint.size))
}

fn hashes(hashes: Vec<Hash>) -> Vec<Blob> {
    hashes.into_iter().map(|hash| Blob(hash.to_vec())).collect()
}

fn note_of(path: &std::path::Path) -> Result<Note, CliError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    Note::parse(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

fn demands(log: &EvidenceLog, root: Option<Vec<u8>>) -> Result<Demands, CliError> {
    Ok(Demands {
        root,
        witnesses: witness_keys(&log.witness)?,
        quorum: log.quorum,
        seen: log
            .against
            .iter()
            .map(|path| note_of(path))
            .collect::<Result<_, _>>()?,
        now: now(),
    })
}
