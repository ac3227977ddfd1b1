//! Writes the issuance log to files, has it witnessed, and then publishes its checkpoint.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::{CertificateChain, Fingerprint, Trust, certificate_pem};
use sealbus_store::Store;
use sealbus_transparency::{
    AddCheckpoint, Folder, LogFile, Note, Publication, TileReader, consistency_proof,
};

use super::shared;
use super::witnesses::{OutsideWitness, Way, WitnessAnswer};
use crate::desk::{Desk, DeskHandle};

/// The shortest time between two checkpoints.
const PAUSE: Duration = Duration::from_secs(1);
/// How soon a checkpoint that was not published, or that a witness did not cosign, is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Publishes the log as long as the desk is open.
pub(crate) struct Publisher {
    desk: DeskHandle,
    master: Correspondent,
    /// The name of the CA.
    authority: String,
    folder: Folder,
    /// The store that has the files too, because it outlives this machine.
    shared: Option<Arc<dyn Store>>,
    root: Vec<u8>,
    outside: Vec<OutsideWitness>,
    /// The size that each witness saw last, as far as it is known.
    seen: HashMap<String, u64>,
    /// The files of the folder, and those of the store.
    in_folder: KnownFiles,
    in_store: KnownFiles,
}

/// The files that a place got last, without those that never change. Most are the same the next time.
#[derive(Default)]
struct KnownFiles(HashMap<LogFile, (LogFile, Fingerprint)>);

impl KnownFiles {
    /// The files that the place lacks.
    fn lacks<'f>(
        &self,
        files: impl Iterator<Item = &'f (LogFile, Vec<u8>)>,
    ) -> Vec<(LogFile, Vec<u8>)> {
        let is_new = |(file, bytes): &&(LogFile, Vec<u8>)| {
            self.0.get(&file.full()) != Some(&(*file, Fingerprint::of(bytes)))
        };
        files.filter(is_new).cloned().collect()
    }

    /// The place got these files.
    fn got(&mut self, files: &[(LogFile, Vec<u8>)]) {
        for (file, bytes) in files {
            match file.is_final() {
                true => self.0.remove(file),
                false => (self.0).insert(file.full(), (*file, Fingerprint::of(bytes))),
            };
        }
    }
}

/// The log of one size, in files.
struct WrittenLog {
    publication: Publication,
    note: Note,
    authority: CertificateChain,
    /// The files that the log's next size will replace.
    edge: Vec<(LogFile, Vec<u8>)>,
}

/// The result of a publication.
struct Published {
    size: u64,
    /// How many nodes were asked to cosign.
    nodes: usize,
    /// Whether every witness cosigned.
    is_whole: bool,
}

/// The living nodes.
fn alive(desk: &Desk) -> impl Iterator<Item = &String> {
    let nodes = desk.state.nodes().iter();
    nodes
        .filter(|(_, node)| node.state.is_there())
        .map(|(name, _)| name)
}

fn push_pem(pem: &mut String, chain: &CertificateChain) {
    for der in chain.to_certificates() {
        pem.push_str(&certificate_pem(&der));
    }
}

impl Publisher {
    pub(crate) fn new(
        desk: DeskHandle,
        master: Correspondent,
        authority: String,
        folder: Folder,
        shared: Option<Arc<dyn Store>>,
        root: Vec<u8>,
        outside: Vec<OutsideWitness>,
    ) -> Self {
        Self {
            desk,
            master,
            authority,
            folder,
            shared,
            root,
            outside,
            seen: HashMap::new(),
            in_folder: KnownFiles::default(),
            in_store: KnownFiles::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let published = match self.publish().await {
                Ok(published) => Some(published),
                Err(fault) if fault.code == FaultCode::Unavailable => return,
                Err(fault) => {
                    tracing::error!(%fault, "the issuance log could not be published");
                    None
                }
            };
            tokio::time::sleep(PAUSE).await;
            let limit = match &published {
                Some(Published { is_whole: true, .. }) => Duration::MAX,
                _ => AGAIN,
            };
            // Nodes are counted after changes only: the desk asks after each heartbeat.
            let counted = Cell::new(None);
            self.desk
                .wait_until(limit, move |desk| {
                    published.as_ref().is_some_and(|published| {
                        let changes = Some(desk.state.changes_of_nodes());
                        desk.ca.issued_in_all() != published.size
                            || counted.replace(changes) != changes
                                && alive(desk).count() != published.nodes
                    })
                })
                .await;
        }
    }

    /// Publishes the present log.
    async fn publish(&mut self) -> Result<Published, Fault> {
        let written = self.write().await?;
        let size = written.publication.checkpoint.size;
        let (nodes, trust) = self
            .desk
            .run(|desk, _| {
                let nodes: Vec<String> = alive(desk).cloned().collect();
                Ok((nodes, desk.ca.trust().clone()))
            })
            .await?;
        let asked = nodes.len();
        let ways: Vec<Way> = nodes
            .into_iter()
            .map(Way::Node)
            .chain(self.outside.iter().cloned().map(Way::Outside))
            .collect();
        let this = &*self;
        let asking = ways.iter().map(|way| this.ask(way, &written, &trust));
        let answers = join_all(asking).await;
        let mut note = written.note;
        let mut pem = String::new();
        let mut is_whole = true;
        for (way, answer) in ways.iter().zip(answers) {
            let name = way.to_string();
            is_whole &= matches!(answer, WitnessAnswer::Cosigned { .. });
            match answer {
                WitnessAnswer::Cosigned { signature, chain } => {
                    self.seen.insert(name, size);
                    // Without its cosignature, nobody needs the certificates of a node.
                    if note.add(signature) {
                        chain.iter().for_each(|chain| push_pem(&mut pem, chain));
                    }
                    self.alarm(way, None).await?;
                }
                WitnessAnswer::Seen { size: seen } => {
                    self.seen.insert(name, seen);
                    if seen > size {
                        let why = format!("it cosigned {seen} entries, and the log has {size}");
                        self.alarm(way, Some(why)).await?;
                    }
                }
                WitnessAnswer::Alarm { why } => self.alarm(way, Some(why)).await?,
                WitnessAnswer::None { why } => {
                    tracing::debug!(witness = %name, %why, "the checkpoint was not cosigned");
                }
            }
        }
        let statements = [
            (LogFile::Witnesses, pem.into_bytes()),
            (LogFile::Checkpoint, note.to_string().into_bytes()),
        ];
        self.share(written.edge.iter().chain(&statements)).await?;
        self.keep(&statements).await?;
        Ok(Published {
            size,
            nodes: asked,
            is_whole,
        })
    }

    /// Writes the entries and tiles.
    async fn write(&mut self) -> Result<WrittenLog, Fault> {
        let (publication, note, authority) = self
            .desk
            .run(|desk, _| {
                let (publication, note) = desk.ca.publication()?;
                Ok((publication, note, desk.ca.authority().chain().clone()))
            })
            .await?;
        let mut files = publication.files.clone();
        let mut pem = String::new();
        push_pem(&mut pem, &authority);
        pem.push_str(&certificate_pem(&self.root));
        files.push((LogFile::Authority, pem.into_bytes()));
        // A store has one edge, which must be that of its checkpoint. So both come together.
        self.share(files.iter().filter(|(file, _)| file.is_final()))
            .await?;
        self.keep(&files).await?;
        files.retain(|(file, _)| !file.is_final());
        // After this, the store has every entry that is published. This fails while the disk is full.
        let head = publication.head.clone();
        self.desk
            .run(move |desk, _| {
                desk.ca.published_files(head);
                Ok(())
            })
            .await?;
        Ok(WrittenLog {
            publication,
            note,
            authority,
            edge: files,
        })
    }

    /// Puts files into the store that outlives this machine, all of them or none.
    async fn share<'f>(
        &mut self,
        files: impl Iterator<Item = &'f (LogFile, Vec<u8>)>,
    ) -> Result<(), Fault> {
        let Some(store) = &self.shared else {
            return Ok(());
        };
        let files = self.in_store.lacks(files);
        shared::keep(&**store, &self.authority, &files)
            .await
            .map_err(|error| Fault::new(FaultCode::Storage, error.to_string()))?;
        self.in_store.got(&files);
        Ok(())
    }

    /// Writes files into the folder.
    async fn keep(&mut self, files: &[(LogFile, Vec<u8>)]) -> Result<(), Fault> {
        let files = self.in_folder.lacks(files.iter());
        let folder = self.folder.clone();
        let (files, written) = tokio::task::spawn_blocking(move || {
            let written = folder.write(&files);
            (files, written)
        })
        .await
        .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        written.map_err(|error| Fault::new(FaultCode::Storage, error.to_string()))?;
        self.in_folder.got(&files);
        Ok(())
    }

    /// Asks a witness. Asks again if the witness saw another size than the one remembered here.
    async fn ask(&self, way: &Way, written: &WrittenLog, trust: &Trust) -> WitnessAnswer {
        let size = written.publication.checkpoint.size;
        let name = way.to_string();
        let mut old = self.seen.get(&name).copied().unwrap_or_default();
        for last in [false, true] {
            let request = match self.request(written, old).await {
                Ok(request) => request,
                Err(why) => return WitnessAnswer::None { why },
            };
            let answer = way
                .ask(&self.master, &request, &written.authority, trust)
                .await;
            match answer {
                WitnessAnswer::Seen { size: seen } if !last && seen <= size => old = seen,
                answer => return answer,
            }
        }
        WitnessAnswer::None {
            why: "it saw yet another size".to_owned(),
        }
    }

    async fn request(&self, written: &WrittenLog, old: u64) -> Result<AddCheckpoint, String> {
        let size = written.publication.checkpoint.size;
        let old = old.min(size);
        let folder = self.folder.clone();
        let proving = tokio::task::spawn_blocking(move || {
            let tiles = TileReader::new(size, |file| folder.read(file));
            consistency_proof(tiles, size, old)
        });
        let proof = proving.await.map_err(|error| error.to_string())?;
        Ok(AddCheckpoint {
            old,
            proof: proof.map_err(|error| error.to_string())?,
            note: written.note.clone(),
        })
    }

    /// Notes the word of a witness about the log. One outside the platform does not sign an objection, and anybody on the way can
    /// make one up: it is a warning to the operator, and no verifier refuses the log for it.
    async fn alarm(&self, way: &Way, why: Option<String>) -> Result<(), Fault> {
        let (witness, is_node) = (way.to_string(), matches!(way, Way::Node(_)));
        self.desk
            .run(move |desk, _| {
                let words = match is_node {
                    true => &mut desk.log_alarms,
                    false => &mut desk.log_warnings,
                };
                let says = match why {
                    Some(why) if is_node => {
                        tracing::error!(%witness, %why, "THE ISSUANCE LOG IS NOT WHAT IT WAS");
                        format!("{witness}: {why}")
                    }
                    Some(why) => {
                        let says = format!(
                            "witness-objects: {witness} does not cosign the issuance log: {why}; nobody signed this answer, so \
                             ask the witness for its checkpoint: `sealbus ca log verify --against` compares it with the log"
                        );
                        tracing::warn!("{says}");
                        says
                    }
                    None => {
                        words.remove(&witness);
                        return Ok(());
                    }
                };
                words.insert(witness, says);
                Ok(())
            })
            .await
    }
}
