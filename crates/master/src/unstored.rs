//! The acts of this Master's CA that the store lacks because it did not answer. They are in a file of the state directory
//! until they are in the store. They are in the store until a Master that leads has taken them in.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use sealbus_ca::Unstored;
use sealbus_control::clock::now;
use sealbus_control::{Fault, FaultCode};
use sealbus_files::{Private, sync_folder, write_private};
use sealbus_seal::Fingerprint;
use sealbus_store::{Batch, Store, StoreError};

/// Prefix of the rows. The name of the CA that brought the act and the [name](name_of) of the act follow.
pub(crate) const UNSTORED_ROW: &str = "unstored/";
/// Prefix of the rows of revocations, so that nobody need look for them among all renewals. Revocations of earlier versions
/// are among the other rows.
pub(crate) const REVOKED_ROW: &str = "unstored/-/";
/// The file in the state directory: an act in JSON on each line, after its number. The first line may be the number of the next act
/// alone. An operator may have appended the file of a Master that is lost.
const FILE: &str = "unstored.log";
/// Most bytes of the file, even if an operator has joined several. A renewal has about 2,000 bytes, so the file has room for a
/// whole day's renewals of 50,000 agents with certificates of an hour.
const LONGEST: u64 = 4 << 30;
/// The file has this many parts. The last one is for revocations alone.
const PARTS: u64 = 64;
/// Acts that are brought to the store at a time.
const AT_ONCE: usize = 64;
/// Bytes of the digest of an act in its name.
const DIGEST: usize = 8;

/// The files that are open. A file stays open as long as any work on it goes on, even after its holder has gone.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Ledger>>> = Mutex::new(BTreeMap::new());

/// The file.
pub(crate) struct Ledger {
    path: PathBuf,
    /// Most bytes of it.
    longest: u64,
    kept: Mutex<KeptLines>,
}

struct KeptLines {
    /// `None` until the file is needed.
    file: Option<File>,
    /// The acts with their numbers, by their names.
    acts: BTreeMap<String, (u64, Unstored)>,
    next: u64,
}

/// A line of the file.
enum Line {
    /// The number of the next act.
    Next(u64),
    /// An act with its number.
    Act(u64, Unstored),
}

impl Line {
    fn read(line: &[u8]) -> serde_json::Result<Self> {
        match line.first() {
            Some(b'[') => serde_json::from_slice(line).map(|(number, act)| Self::Act(number, act)),
            _ => serde_json::from_slice(line).map(Self::Next),
        }
    }
}

impl KeptLines {
    /// Reads the text of a file. A line that was cut off when the machine stopped, or when the disk was full, is passed over.
    /// Nobody has seen the result of its act.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if another line cannot be read: it may be a revocation.
    fn read(text: &[u8]) -> io::Result<Self> {
        let mut kept = Self {
            file: None,
            acts: BTreeMap::new(),
            next: 0,
        };
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            // Where the file had grown and its bytes were not written, a disk may have zeros.
            let line = line.trim_ascii();
            let cut = line
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            let line = &line[..cut];
            if line.is_empty() {
                continue;
            }
            match Line::read(line) {
                Ok(Line::Next(number)) => kept.next = kept.next.max(number),
                Ok(Line::Act(number, act)) => {
                    kept.next = kept.next.max(number.saturating_add(1));
                    kept.acts.insert(name_of(number, &act)?, (number, act));
                }
                Err(error) if error.is_eof() => {
                    tracing::warn!(
                        line = number,
                        file = FILE,
                        "an act of the CA was not finished"
                    );
                }
                Err(error) => {
                    let (is, advice) = match error.is_data() {
                        true => (
                            "of a kind that this version does not know",
                            "start the version that wrote it",
                        ),
                        false => ("damaged", "mend the line"),
                    };
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "line {number} of {FILE} is {is} ({error}), and may be a revocation: \
                             {advice}, or delete it and revoke again"
                        ),
                    ));
                }
            }
        }
        Ok(kept)
    }

    /// The text of a file with the same acts.
    fn text(&self) -> serde_json::Result<String> {
        let mut text = format!("{}\n", self.next);
        for act in self.acts.values() {
            text.push_str(&serde_json::to_string(act)?);
            text.push('\n');
        }
        Ok(text)
    }
}

impl Ledger {
    /// Opens the file in a state directory. If a ledger of this file is still at work, returns that one. It may yet write the
    /// file anew, and a second ledger would add to the former file, or be written over.
    ///
    /// # Errors
    /// If it cannot be read or made, or those of [`KeptLines::read`]; [`io::ErrorKind::FileTooLarge`].
    pub(crate) fn open(directory: &Path) -> io::Result<Arc<Self>> {
        Self::open_within(directory, LONGEST)
    }

    fn open_within(directory: &Path, longest: u64) -> io::Result<Arc<Self>> {
        let path = directory.join(FILE);
        let mut open = OPEN.lock();
        open.retain(|_, ledger| ledger.strong_count() > 0);
        if let Some(ledger) = open.get(&path).and_then(Weak::upgrade) {
            return Ok(ledger);
        }
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(longest + 1).read_to_end(&mut text));
        match read {
            Ok(length) if length as u64 > longest => return Err(too_long(&path, longest)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut kept = KeptLines::read(&text)?;
        // No number comes twice, even after the file was emptied or lost.
        kept.next = kept.next.max(now());
        kept.file = Some(appended(&path)?);
        sync_folder(directory)?;
        let ledger = Arc::new(Self {
            path: path.clone(),
            longest,
            kept: Mutex::new(kept),
        });
        open.insert(path, Arc::downgrade(&ledger));
        Ok(ledger)
    }

    /// Keeps an act. It is on disk when this returns. Returns its name.
    ///
    /// # Errors
    /// [`FaultCode::Storage`], also if the file is full.
    pub(crate) async fn keep(self: &Arc<Self>, act: Unstored) -> Result<String, Fault> {
        let ledger = self.clone();
        let keeping = tokio::task::spawn_blocking(move || ledger.append(act));
        let kept = keeping.await.map_err(io::Error::other).flatten();
        kept.map_err(|error| {
            let message = format!("{} cannot be written: {error}", self.path.display());
            Fault::new(FaultCode::Storage, message)
        })
    }

    fn append(&self, act: Unstored) -> io::Result<String> {
        let mut kept = self.kept.lock();
        let number = kept.next;
        let name = name_of(number, &act)?;
        // The line before may have been cut off.
        let line = format!("\n{}\n", serde_json::to_string(&(number, &act))?);
        let mut file = match kept.file.take() {
            Some(file) => file,
            None => appended(&self.path)?,
        };
        // No more is accepted than is read when the Master starts.
        let most = match &act {
            Unstored::Renewed { .. } => self.longest - self.longest / PARTS,
            Unstored::Revoked { .. } => self.longest,
        };
        if file.metadata()?.len() + line.len() as u64 > most {
            return Err(full(most));
        }
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
        kept.file = Some(file);
        kept.next = number.saturating_add(1);
        kept.acts.insert(name.clone(), (number, act));
        Ok(name)
    }

    /// Whether the act of this name is in the file, because it is not in the store yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.kept.lock().acts.contains_key(name)
    }

    /// The acts that the store lacks, in their order.
    pub(crate) fn acts(&self) -> Vec<Unstored> {
        let kept = self.kept.lock();
        kept.acts.values().map(|(_, act)| act.clone()).collect()
    }

    /// Brings all acts into the store, in the name of the CA `authority`.
    ///
    /// # Errors
    /// [`StoreError`]. The acts that are not in the store stay in the file.
    pub(crate) async fn hand_in(
        self: &Arc<Self>,
        store: &dyn Store,
        authority: &str,
    ) -> Result<(), StoreError> {
        let mut handed: Option<String> = None;
        loop {
            let mut batch = Batch::new();
            let last = {
                let kept = self.kept.lock();
                let from = handed.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let some = kept.acts.range::<str, _>((from, Bound::Unbounded));
                some.take(AT_ONCE).fold(None, |_, (name, (_, act))| {
                    batch.put(
                        row_of(authority, name, act),
                        serde_json::to_vec(act).unwrap_or_default(),
                    );
                    Some(name.clone())
                })
            };
            let stored = match last {
                None => Ok(()),
                Some(last) => match store.commit(batch).await {
                    Ok(_) => {
                        handed = Some(last);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            let Some(last) = handed else {
                return stored;
            };
            // The file is written anew once for all stored acts.
            let ledger = self.clone();
            let forgetting = tokio::task::spawn_blocking(move || ledger.forget(&last));
            match forgetting.await.map_err(io::Error::other).flatten() {
                Ok(acts) => {
                    tracing::info!(
                        acts,
                        "the acts of the CA while the store was away are stored"
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, path = %self.path.display(), "cannot be written");
                }
            }
            return stored;
        }
    }

    /// Forgets the acts up to the one of this name. Returns how many there were.
    fn forget(&self, last: &str) -> io::Result<usize> {
        let mut kept = self.kept.lock();
        let before = kept.acts.len();
        kept.acts.retain(|name, _| name.as_str() > last);
        let acts = before - kept.acts.len();
        kept.file = None;
        write_private(&self.path, kept.text()?.as_bytes())?;
        Ok(acts)
    }
}

/// Reads any bytes as the file of a Master that starts, for the fuzz target.
///
/// # Errors
/// If a line cannot be read.
///
/// # Panics
/// If the acts are written and read again as other acts, or if a later act could take the place of one.
pub fn check_file(text: &[u8]) -> io::Result<()> {
    let kept = KeptLines::read(text)?;
    let again = KeptLines::read(kept.text()?.as_bytes());
    let again = again.map(|again| (again.acts, again.next));
    assert_eq!(again.ok(), Some((kept.acts.clone(), kept.next)));
    for (name, (number, act)) in &kept.acts {
        assert!(*number < kept.next || *number == u64::MAX);
        assert_eq!(act_in(&row_of("ca", name, act)), name);
    }
    Ok(())
}

/// The name of an act. Each CA counts its own acts, and a file may have those of several CAs. The digest tells acts of the same
/// number apart, and an act that two CAs bring has one name.
fn name_of(number: u64, act: &Unstored) -> serde_json::Result<String> {
    let digest = Fingerprint::of(&serde_json::to_vec(act)?);
    let digest = HEXLOWER.encode(&digest.as_bytes()[..DIGEST]);
    Ok(format!("{number:016x}-{digest}"))
}

/// The row of an act that a CA brings.
pub(crate) fn row_of(authority: &str, name: &str, act: &Unstored) -> String {
    let prefix = match act {
        Unstored::Renewed { .. } => UNSTORED_ROW,
        Unstored::Revoked { .. } => REVOKED_ROW,
    };
    format!("{prefix}{authority}/{name}")
}

/// The name of the act in a row. In a row of an earlier version it is a number, which belongs to its CA.
pub(crate) fn act_in(row: &str) -> &str {
    let with_authority = row.strip_prefix(UNSTORED_ROW).unwrap_or(row);
    match with_authority.rsplit_once('/') {
        Some((_, name)) if name.contains('-') => name,
        _ => with_authority,
    }
}

fn too_long(path: &Path, longest: u64) -> io::Error {
    let message = format!(
        "{} has more than {longest} bytes, and no more are read. Each line may be a revocation, so delete none: move the last ones \
         into another file, start the Master, stop it when the store has the others, append the moved ones, and start it again",
        path.display()
    );
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

/// The file has no room for an act, which is not kept.
fn full(most: u64) -> io::Error {
    let message = format!(
        "the acts that the store lacks take nearly the {most} bytes that they may take: bring the store back, which takes them in, or go to \
         another Master"
    );
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

fn appended(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .private()
        .open(path)
}

#[cfg(test)]
mod tests;
