//! The files of a log and their paths (C2SP tlog-tiles).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Hashes in a full tile, and entries in a full bundle.
pub const TILE_WIDTH: u16 = 256;
/// The levels of tiles that a log of 2⁶⁴ entries has.
const LEVELS: u8 = 8;

/// A file of a log. Its text form is its path below the log's folder or address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogFile {
    /// The latest checkpoint, with its signatures.
    Checkpoint,
    /// The certificates of the log's authority and of its root, PEM.
    Authority,
    /// The certificate chains of the nodes that cosigned the checkpoint, PEM.
    Witnesses,
    /// Up to 256 hashes of one level. Level 0 has the hashes of the entries, and each other level the roots of the tiles
    /// below it.
    Tile {
        /// 0 to 7.
        level: u8,
        /// The place among the tiles of its level.
        index: u64,
        /// The number of hashes, 1 to 256.
        width: u16,
    },
    /// Up to 256 entries.
    Entries {
        /// The place among the bundles.
        index: u64,
        /// The number of entries, 1 to 256.
        width: u16,
    },
}

/// The path names no file of a log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} names no file of a log")]
pub struct NotALogFile(String);

impl LogFile {
    /// The tile of a level that holds the hash `index` of this level, in a log with `count` hashes at this level.
    pub(crate) fn tile(level: u8, index: u64, count: u64) -> Self {
        let tile = index / u64::from(TILE_WIDTH);
        let width = width(tile, count);
        Self::Tile {
            level,
            index: tile,
            width,
        }
    }

    /// A partial tile or bundle as the full one that takes its place later.
    #[must_use]
    pub fn full(self) -> Self {
        match self {
            Self::Tile { level, index, .. } => Self::Tile {
                level,
                index,
                width: TILE_WIDTH,
            },
            Self::Entries { index, .. } => Self::Entries {
                index,
                width: TILE_WIDTH,
            },
            other => other,
        }
    }

    /// Whether the file never changes and never goes.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Tile { width, .. } | Self::Entries { width, .. } if width == TILE_WIDTH)
    }

    /// The file with its contents, as a store of rows keeps it: the path, a line feed, and the contents.
    pub fn to_row(self, contents: &[u8]) -> Vec<u8> {
        [format!("{self}\n").as_bytes(), contents].concat()
    }

    /// The file in a row, and its contents. None if the row names no file of a log.
    pub fn from_row(row: &[u8]) -> Option<(Self, &[u8])> {
        let end = row.iter().position(|byte| *byte == b'\n')?;
        let path = str::from_utf8(&row[..end]).ok()?;
        Some((path.parse().ok()?, &row[end + 1..]))
    }
}

/// The width of the tile at `index` among `count` hashes.
fn width(index: u64, count: u64) -> u16 {
    let rest = count.saturating_sub(index * u64::from(TILE_WIDTH));
    rest.min(u64::from(TILE_WIDTH)) as u16
}

impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, width) = match self {
            Self::Checkpoint => return f.write_str("checkpoint"),
            Self::Authority => return f.write_str("authority.pem"),
            Self::Witnesses => return f.write_str("witnesses.pem"),
            Self::Tile {
                level,
                index,
                width,
            } => {
                write!(f, "tile/{level}")?;
                (*index, *width)
            }
            Self::Entries { index, width } => {
                f.write_str("tile/entries")?;
                (*index, *width)
            }
        };
        let mut groups = vec![index % 1000];
        let mut rest = index / 1000;
        while rest > 0 {
            groups.push(rest % 1000);
            rest /= 1000;
        }
        for (place, group) in groups.iter().enumerate().rev() {
            let mark = if place > 0 { "x" } else { "" };
            write!(f, "/{mark}{group:03}")?;
        }
        match width {
            TILE_WIDTH => Ok(()),
            width => write!(f, ".p/{width}"),
        }
    }
}

impl FromStr for LogFile {
    type Err = NotALogFile;

    /// Reads a path. Each file has one path.
    fn from_str(path: &str) -> Result<Self, NotALogFile> {
        let unknown = || NotALogFile(path.chars().take(80).collect());
        let found = match path {
            "checkpoint" => Self::Checkpoint,
            "authority.pem" => Self::Authority,
            "witnesses.pem" => Self::Witnesses,
            _ => parse_tile(path).ok_or_else(unknown)?,
        };
        // This refuses every other spelling of the same numbers.
        if path.len() > 80 || found.to_string() != path {
            return Err(unknown());
        }
        Ok(found)
    }
}

fn parse_tile(path: &str) -> Option<LogFile> {
    let (level, rest) = path.strip_prefix("tile/")?.split_once('/')?;
    let (index, width) = match rest.split_once(".p/") {
        Some((index, width)) => (index, width.parse().ok()?),
        None => (rest, TILE_WIDTH),
    };
    if !(1..=TILE_WIDTH).contains(&width) {
        return None;
    }
    let mut number: u64 = 0;
    for group in index.split('/') {
        let digits = group.strip_prefix('x').unwrap_or(group);
        let group: u64 = digits.parse().ok().filter(|group| *group < 1000)?;
        number = number.checked_mul(1000)?.checked_add(group)?;
    }
    // No log is so long that its hashes could not be counted.
    number.checked_mul(u64::from(TILE_WIDTH))?;
    match level {
        "entries" => Some(LogFile::Entries {
            index: number,
            width,
        }),
        level => Some(LogFile::Tile {
            level: level.parse().ok().filter(|level| *level < LEVELS)?,
            index: number,
            width,
        }),
    }
}
