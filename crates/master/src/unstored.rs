//! The acts of this Master's CA that the store lacks, because it did not answer: in a file of the state directory until they
//! are in the store, and there until a Master that leads has taken them in.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_ca::Unstored;
use sealbus_control::clock::now;
use sealbus_control::{Fault, FaultCode};
use sealbus_files::{Private, sync_folder, write_private};
use sealbus_store::{Batch, Store, StoreError};

/// Prefix of the rows. The name of the CA and the number of the act follow.
pub(crate) const UNSTORED_ROW: &str = "unstored/";
/// The file in the state directory: an act in JSON on each line, after its number. The first line may be the number of the next act
/// alone.
const FILE: &str = "unstored.log";
/// Acts that are brought to the store at a time.
const AT_ONCE: usize = 64;

/// The file.
pub(crate) struct Ledger {
    path: PathBuf,
    kept: Mutex<KeptLines>,
}

struct KeptLines {
    /// None until it is needed.
    file: Option<File>,
    acts: BTreeMap<u64, Unstored>,
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

impl Ledger {
    /// Opens the file in a state directory. A line that was cut off when the machine stopped, or when the disk was full, is passed
    /// over: nobody has seen what it was about.
    ///
    /// # Errors
    /// If it cannot be read or made, or [`io::ErrorKind::InvalidData`] if another line cannot be read: it may be a revocation.
    pub(crate) fn open(directory: &Path) -> io::Result<Arc<Self>> {
        let path = directory.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let lines = (1..).zip(text.split(|byte| *byte == b'\n'));
        // No number comes twice, also after the file was emptied, or lost.
        let mut next = now();
        let mut acts = BTreeMap::new();
        for (number, line) in lines {
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
                Ok(Line::Next(number)) => next = next.max(number),
                Ok(Line::Act(number, act)) => {
                    next = next.max(number.saturating_add(1));
                    acts.insert(number, act);
                }
                Err(error) if error.is_eof() => {
                    tracing::warn!(line = number, path = %path.display(), "an act of the CA was not finished");
                }
                Err(error) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "line {number} of {FILE} is damaged ({error}), and may be a revocation: \
                             mend the line, or delete it and revoke again"
                        ),
                    ));
                }
            }
        }
        let kept = KeptLines {
            file: Some(appended(&path)?),
            acts,
            next,
        };
        sync_folder(directory)?;
        Ok(Arc::new(Self {
            path,
            kept: Mutex::new(kept),
        }))
    }

    /// Keeps an act. It is on disk when this returns. Returns its number.
    ///
    /// # Errors
    /// [`FaultCode::Storage`].
    pub(crate) async fn keep(self: &Arc<Self>, act: Unstored) -> Result<u64, Fault> {
        let ledger = self.clone();
        let keeping = tokio::task::spawn_blocking(move || ledger.append(act));
        let kept = keeping.await.map_err(io::Error::other).flatten();
        kept.map_err(|error| {
            let message = format!("{} cannot be written: {error}", self.path.display());
            Fault::new(FaultCode::Storage, message)
        })
    }

    fn append(&self, act: Unstored) -> io::Result<u64> {
        let mut kept = self.kept.lock();
        let number = kept.next;
        let line = serde_json::to_string(&(number, &act))?;
        let mut file = match kept.file.take() {
            Some(file) => file,
            None => appended(&self.path)?,
        };
        // The line before may have been cut off.
        file.write_all(format!("\n{line}\n").as_bytes())?;
        file.sync_data()?;
        kept.file = Some(file);
        kept.next += 1;
        kept.acts.insert(number, act);
        Ok(number)
    }

    /// Whether an act is in the file, because it is not in the store yet.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.kept.lock().acts.contains_key(&number)
    }

    /// The acts that the store lacks, in their order.
    pub(crate) fn acts(&self) -> Vec<Unstored> {
        self.kept.lock().acts.values().cloned().collect()
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
        let mut handed = 0;
        loop {
            let mut batch = Batch::new();
            let last = {
                let kept = self.kept.lock();
                let some = kept.acts.range(handed..).take(AT_ONCE);
                some.fold(None, |_, (number, act)| {
                    batch.put(
                        row_of(authority, *number),
                        serde_json::to_vec(act).unwrap_or_default(),
                    );
                    Some(*number)
                })
            };
            let stored = match last {
                None => Ok(()),
                Some(last) => match store.commit(batch).await {
                    Ok(_) => {
                        handed = last + 1;
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            if handed == 0 {
                return stored;
            }
            // The file is written anew once for all that is stored.
            let ledger = self.clone();
            let forgetting = tokio::task::spawn_blocking(move || ledger.forget_before(handed));
            match forgetting.await.map_err(io::Error::other).flatten() {
                Ok(acts) => {
                    tracing::info!(acts, "what the CA did while the store was away is stored");
                }
                Err(error) => {
                    tracing::warn!(%error, path = %self.path.display(), "cannot be written");
                }
            }
            return stored;
        }
    }

    /// Forgets the acts before this number. Returns how many there were.
    fn forget_before(&self, number: u64) -> io::Result<usize> {
        let mut kept = self.kept.lock();
        let left = kept.acts.split_off(&number);
        let acts = std::mem::replace(&mut kept.acts, left).len();
        let mut text = format!("{}\n", kept.next);
        for act in &kept.acts {
            text.push_str(&serde_json::to_string(&act)?);
            text.push('\n');
        }
        kept.file = None;
        write_private(&self.path, text.as_bytes())?;
        Ok(acts)
    }
}

/// The row of an act.
pub(crate) fn row_of(authority: &str, number: u64) -> String {
    format!("{UNSTORED_ROW}{authority}/{number:016x}")
}

fn appended(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .private()
        .open(path)
}

#[cfg(test)]
mod tests {
    use sealbus_seal::Timestamp;
    use sealbus_store::{MemoryStore, read_all};

    use super::*;

    fn act(number: u64) -> Unstored {
        Unstored::Revoked {
            what: format!("agent-{number}"),
            said: "stolen\nkey".to_owned(),
            at: Timestamp::from_unix_seconds(number),
        }
    }

    async fn rows(store: &dyn Store) -> Vec<Unstored> {
        let mut rows = Vec::new();
        read_all(store, UNSTORED_ROW, |_, entry| {
            rows.push(serde_json::from_slice(&entry.value).unwrap());
        })
        .await
        .unwrap();
        rows
    }

    #[tokio::test]
    async fn acts_survive_a_restart_and_a_cut_and_come_into_the_store_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let ledger = Ledger::open(folder.path()).unwrap();
        for number in 0..100 {
            ledger.keep(act(number)).await.unwrap();
        }
        let whole = std::fs::read(&file).unwrap();
        // The machine stopped in the midst of the last line, and the next act comes after it.
        std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.keep(act(100)).await.unwrap();
        let expected: Vec<_> = (0..99).chain([100]).map(act).collect();
        assert_eq!(ledger.acts(), expected);
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!(ledger.acts(), expected);

        let store = MemoryStore::new();
        ledger.hand_in(&store, "ca-1").await.unwrap();
        assert_eq!(rows(&store).await, expected);
        assert!(ledger.acts().is_empty());
        // Later acts come after the earlier ones, also if the file was emptied and opened anew.
        let ledger = Ledger::open(folder.path()).unwrap();
        assert!(ledger.acts().is_empty());
        ledger.keep(act(101)).await.unwrap();
        ledger.hand_in(&store, "ca-1").await.unwrap();
        assert_eq!(rows(&store).await.last(), Some(&act(101)));
        assert_eq!(rows(&store).await.len(), 101);
    }

    #[tokio::test]
    async fn a_damaged_line_is_named_and_a_cut_one_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let ledger = Ledger::open(folder.path()).unwrap();
        for number in 0..3 {
            ledger.keep(act(number)).await.unwrap();
        }
        let whole = std::fs::read(&file).unwrap();
        let second = whole.windows(7).position(|it| it == b"agent-1").unwrap();
        let line = whole[..second].split(|byte| *byte == b'\n').count();
        for (at, with) in [(second - 1, b'x'), (second - 20, 0xff), (second, 7)] {
            let mut damaged = whole.clone();
            damaged[at] = with;
            std::fs::write(&file, &damaged).unwrap();
            let error = Ledger::open(folder.path()).err().unwrap();
            assert!(
                error.to_string().contains(&format!("line {line} ")),
                "{error}"
            );
            assert_eq!(std::fs::read(&file).unwrap(), damaged);
        }
        // The disk was full, or has zeros where nothing was written.
        let end = second
            + whole[second..]
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap();
        for cut in second - 10..end {
            let mut torn = whole.clone();
            torn[cut..end].fill(0);
            std::fs::write(&file, &torn).unwrap();
            assert_eq!(
                Ledger::open(folder.path()).unwrap().acts(),
                [act(0), act(2)]
            );
            torn.drain(cut..end);
            std::fs::write(&file, &torn).unwrap();
            assert_eq!(
                Ledger::open(folder.path()).unwrap().acts(),
                [act(0), act(2)]
            );
        }
    }
}
