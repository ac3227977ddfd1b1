//! Paths and bundles of a log.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sealbus_transparency::{LogFile, read_bundle};

#[test]
fn paths_are_those_of_tlog_tiles() {
    let tile = |level, index, width| LogFile::Tile {
        level,
        index,
        width,
    };
    for (path, file) in [
        ("checkpoint", LogFile::Checkpoint),
        ("tile/0/x001/x234/067", tile(0, 1_234_067, 256)),
        ("tile/7/000.p/255", tile(7, 0, 255)),
        ("tile/0/x001/000.p/1", tile(0, 1000, 1)),
        (
            "tile/entries/x123/456",
            LogFile::Entries {
                index: 123_456,
                width: 256,
            },
        ),
    ] {
        assert_eq!(path.parse::<LogFile>().unwrap(), file);
        assert_eq!(file.to_string(), path);
    }
}

#[test]
fn a_file_has_one_path() {
    for path in [
        "",
        "/checkpoint",
        "checkpoint/",
        "tile",
        "tile/0",
        "tile/0/",
        "tile/0/0",
        "tile/0/00",
        "tile/0/0000",
        "tile/0/x000/001",
        "tile/0/001/002",
        "tile/0/x001",
        "tile/00/001",
        "tile/8/001",
        "tile/+1/001",
        "tile/0/+01",
        "tile/0/001.p/0",
        "tile/0/001.p/256",
        "tile/0/001.p/01",
        "tile/0/001.p/",
        "tile/0/001.p/1/",
        "tile/-1/001",
        "tile/0/1e3",
        "tile/0/../../checkpoint",
        "tile/0/x999/x999/x999/x999/x999/x999/999",
        "tile/entries",
        "tile/0/001.p/1.p/1",
        "tile/0/\u{0661}",
        "authority.pem/..",
        "tile/entries/x000/000",
    ] {
        assert!(path.parse::<LogFile>().is_err(), "{path}");
    }
}

proptest! {
    #[test]
    fn every_path_is_read_as_the_file_that_wrote_it(
        level in 0..8_u8, index in 0..u64::MAX >> 8, width in 1..=256_u16, is_tile: bool,
    ) {
        let file = match is_tile {
            true => LogFile::Tile { level, index, width },
            false => LogFile::Entries { index, width },
        };
        prop_assert_eq!(file.to_string().parse::<LogFile>().unwrap(), file);
    }

    #[test]
    fn hostile_paths_are_refused_or_canonical(path in "(tile/)?[x0-9/.pe+-]{0,40}") {
        if let Ok(file) = path.parse::<LogFile>() {
            prop_assert_eq!(file.to_string(), path);
        }
    }

    #[test]
    fn bundles_hold_exactly_their_entries(
        entries in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..30),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bundle = Vec::new();
        for entry in &entries {
            bundle.extend_from_slice(&(entry.len() as u16).to_be_bytes());
            bundle.extend_from_slice(entry);
        }
        let width = entries.len() as u16;
        let file = |width| LogFile::Entries { index: 0, width };
        prop_assert_eq!(read_bundle(file(width), &bundle).unwrap(), entries);
        prop_assert!(read_bundle(file(width + 1), &bundle).is_err());
        if width > 1 {
            prop_assert!(read_bundle(file(width - 1), &bundle).is_err());
        }
        let cut = cut.index(bundle.len());
        prop_assert!(read_bundle(file(width), &bundle[..cut]).is_err());
    }
}
