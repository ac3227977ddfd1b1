//! A backup of a platform's state, in the form of a file.
//!
//! A backup begins with [`MAGIC`]. Parts follow, each with a byte for its kind, the length of its name (2 bytes,
//! big-endian), the length of its contents (4 bytes), its name and its contents. The first part describes the backup.
//! The last part holds the SHA-256 of all bytes before it. Nothing comes after it.

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// The first bytes of a backup. The number is the version of the format.
pub const MAGIC: &[u8] = b"sealbus backup 1\n";
/// The longest name of a row or file, in bytes.
pub const LONGEST_NAME: usize = 1024;
/// The longest contents of a row or file, in bytes.
pub(crate) const LONGEST_CONTENTS: usize = 64 << 20;

const DESCRIPTION: u8 = 0;
const ROW: u8 = 1;
const FILE: u8 = 2;
const END: u8 = 3;

/// The description of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The platform's name.
    pub platform: String,
    /// When the backup was made, in milliseconds since the Unix epoch.
    pub made: u64,
    /// The version of Sealbus that made it.
    pub version: String,
    /// Whether the private keys of the CA are in it.
    pub has_keys: bool,
}

/// A part of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A row of the store.
    Row {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// A file of the state directory.
    File {
        /// Its path below the directory.
        path: String,
        /// Its contents.
        contents: Vec<u8>,
    },
}

/// A backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file does not begin like a backup.
    #[error("it is no backup of Sealbus")]
    Foreign,
    /// The file begins like a backup of another version.
    #[error("it was made by another version of Sealbus, whose backups this one does not read")]
    OtherVersion,
    /// The file ends too early.
    #[error("it is cut off")]
    Truncated,
    /// The contents differ from the written ones.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// A row or file is too long for a backup.
    #[error("{0} is too long for a backup")]
    TooLong(String),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a backup.
pub struct BackupWriter<W> {
    out: W,
    digest: Context,
}

impl<W: Write> BackupWriter<W> {
    /// Begins a backup.
    ///
    /// # Errors
    /// [`BackupError::Io`].
    pub fn new(out: W, description: &Description) -> Result<Self, BackupError> {
        let digest = Context::new(&SHA256);
        let mut writer = Self { out, digest };
        writer.write(MAGIC)?;
        let text = serde_json::to_vec(description).map_err(io::Error::from)?;
        writer.part(DESCRIPTION, "", &text)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.out.write_all(bytes)
    }

    fn part(&mut self, kind: u8, name: &str, contents: &[u8]) -> Result<(), BackupError> {
        let too_long = || BackupError::TooLong(name.chars().take(80).collect());
        if name.len() > LONGEST_NAME || contents.len() > LONGEST_CONTENTS {
            return Err(too_long());
        }
        self.write(&[kind])?;
        self.write(&(name.len() as u16).to_be_bytes())?;
        self.write(&(contents.len() as u32).to_be_bytes())?;
        self.write(name.as_bytes())?;
        Ok(self.write(contents)?)
    }

    /// Adds a row of the store.
    ///
    /// # Errors
    /// [`BackupError::TooLong`] or [`BackupError::Io`].
    pub fn row(&mut self, key: &str, value: &[u8]) -> Result<(), BackupError> {
        self.part(ROW, key, value)
    }

    /// Adds a file of the state directory.
    ///
    /// # Errors
    /// [`BackupError::TooLong`] or [`BackupError::Io`].
    pub fn file(&mut self, path: &str, contents: &[u8]) -> Result<(), BackupError> {
        self.part(FILE, path, contents)
    }

    /// Ends the backup, and returns the writer.
    ///
    /// # Errors
    /// [`BackupError::Io`].
    pub fn finish(mut self) -> Result<W, BackupError> {
        let digest = self.digest.clone().finish();
        self.part(END, "", digest.as_ref())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a backup, part by part. Trust the returned parts only after [`next_part`](Self::next_part) has returned
/// `None`.
pub struct BackupReader<R> {
    input: R,
    digest: Context,
    description: Description,
    is_over: bool,
}

impl<R: Read> BackupReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn new(mut input: R) -> Result<Self, BackupError> {
        let mut magic = Vec::new();
        (&mut input)
            .take(MAGIC.len() as u64)
            .read_to_end(&mut magic)?;
        if magic != MAGIC {
            let version = MAGIC.len() - 2;
            let is_other = magic.len() == MAGIC.len() && magic[..version] == MAGIC[..version];
            return Err(match is_other {
                true => BackupError::OtherVersion,
                false => BackupError::Foreign,
            });
        }
        let mut digest = Context::new(&SHA256);
        digest.update(MAGIC);
        let (kind, _, contents) = read_part(&mut input, &mut digest)?;
        if kind != DESCRIPTION {
            return Err(BackupError::Damaged("it does not begin with a description"));
        }
        let description = serde_json::from_slice(&contents)
            .map_err(|_| BackupError::Damaged("its description cannot be read"))?;
        Ok(Self {
            input,
            digest,
            description,
            is_over: false,
        })
    }

    /// The description at the beginning of the backup.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The next part. `None` means that the backup is complete and undamaged.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn next_part(&mut self) -> Result<Option<Part>, BackupError> {
        if self.is_over {
            return Ok(None);
        }
        let expected = self.digest.clone().finish();
        let (kind, name, contents) = read_part(&mut self.input, &mut self.digest)?;
        Ok(Some(match kind {
            ROW => Part::Row {
                key: name,
                value: contents,
            },
            FILE => Part::File {
                path: name,
                contents,
            },
            END if contents != expected.as_ref() => {
                return Err(BackupError::Damaged("its checksum is wrong"));
            }
            END => {
                if self.input.read(&mut [0])? > 0 {
                    return Err(BackupError::Damaged("something follows its end"));
                }
                self.is_over = true;
                return Ok(None);
            }
            _ => return Err(BackupError::Damaged("a part is of no known kind")),
        }))
    }
}

fn read_part(
    input: &mut impl Read,
    digest: &mut Context,
) -> Result<(u8, String, Vec<u8>), BackupError> {
    let head = read_bytes(input, 7, digest)?;
    let [kind, a, b, c, d, e, f] = head[..] else {
        return Err(BackupError::Truncated);
    };
    let name = usize::from(u16::from_be_bytes([a, b]));
    let length = u32::from_be_bytes([c, d, e, f]) as usize;
    if name > LONGEST_NAME || length > LONGEST_CONTENTS {
        return Err(BackupError::Damaged("a part is too long"));
    }
    let name = String::from_utf8(read_bytes(input, name, digest)?)
        .map_err(|_| BackupError::Damaged("a name is no text"))?;
    let contents = read_bytes(input, length, digest)?;
    Ok((kind, name, contents))
}

/// Memory grows with the bytes that are there, not with a claimed length.
fn read_bytes(
    input: &mut impl Read,
    length: usize,
    digest: &mut Context,
) -> Result<Vec<u8>, BackupError> {
    let mut bytes = Vec::new();
    input.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(BackupError::Truncated);
    }
    digest.update(&bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn description() -> Description {
        Description {
            platform: "factory".to_owned(),
            made: 7,
            version: "0.1.0".to_owned(),
            has_keys: false,
        }
    }

    fn read(bytes: &[u8]) -> Result<Vec<Part>, BackupError> {
        let mut reader = BackupReader::new(bytes)?;
        assert_eq!(reader.description(), &description());
        let mut parts = Vec::new();
        while let Some(part) = reader.next_part()? {
            parts.push(part);
        }
        Ok(parts)
    }

    fn is_refused(bytes: &[u8]) -> bool {
        let Ok(mut reader) = BackupReader::new(bytes) else {
            return true;
        };
        loop {
            match reader.next_part() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn backup(parts: &[Part]) -> Vec<u8> {
        let mut writer = BackupWriter::new(Vec::new(), &description()).unwrap();
        for part in parts {
            match part {
                Part::Row { key, value } => writer.row(key, value).unwrap(),
                Part::File { path, contents } => writer.file(path, contents).unwrap(),
            }
        }
        writer.finish().unwrap()
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let contents = || prop::collection::vec(any::<u8>(), 0..40);
        let part = prop_oneof![
            ("[a-z/]{0,9}", contents()).prop_map(|(key, value)| Part::Row { key, value }),
            ("[a-z/]{0,9}", contents()).prop_map(|(path, contents)| Part::File { path, contents }),
        ];
        prop::collection::vec(part, 0..6)
    }

    proptest! {
        #[test]
        fn a_backup_is_read_as_it_was_written_or_refused(
            parts in parts(), at in any::<prop::sample::Index>(), bit in 0..8_u8,
        ) {
            let bytes = backup(&parts);
            prop_assert_eq!(read(&bytes).unwrap(), parts);
            let at = at.index(bytes.len());
            prop_assert!(is_refused(&bytes[..at]));
            let mut damaged = bytes;
            damaged[at] ^= 1 << bit;
            prop_assert!(is_refused(&damaged));
        }
    }

    #[test]
    fn each_refusal_has_its_own_words() {
        let whole = backup(&[]);
        let says = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert_eq!(says(b"PK\x03\x04"), "it is no backup of Sealbus");
        assert_eq!(says(&whole[..whole.len() - 1]), "it is cut off");
        let mut longer = whole.clone();
        longer.push(0);
        assert_eq!(says(&longer), "it is damaged: something follows its end");
        let mut later = whole.clone();
        later[MAGIC.len() - 2] = b'2';
        assert!(says(&later).contains("another version"));
        let mut huge = whole;
        huge[MAGIC.len() + 3] = 0xff;
        assert_eq!(says(&huge), "it is damaged: a part is too long");
    }
}
