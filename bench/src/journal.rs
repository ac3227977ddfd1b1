//! The journal with many streams, beside a single file that takes the same bytes in the same groups.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealbus_journal::fuzzing::synchronised;
use sealbus_journal::{Journal, JournalConfig, NewRecord, Stream, StreamConfig, Written};

/// Bytes of a record's payload, and of its header.
const PAYLOAD: usize = 400;
const HEADER: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Streams that are written in turn
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
    /// Appends of each stream that wait for the disk at any time
    #[arg(long, default_value_t = 2)]
    waiting: usize,
    /// Turns of the journal and of the file
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Seconds of a turn
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// The folder on the disk to measure
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

/// The figures of a turn.
#[derive(Clone, Copy)]
struct Turn {
    appends: f64,
    syncs: f64,
    group: f64,
}

/// Measures and prints the table.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(&arguments.folder)?;
    let (journal, _) = Journal::open(&folder.path().join("journal"), JournalConfig::default())?;
    let streams = (0..arguments.streams)
        .map(|number| journal.open_stream(&format!("stream {number}"), StreamConfig::default()));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let length = Duration::from_secs(arguments.seconds);
    let most = arguments.waiting * arguments.streams;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    // The first turn opens files and fills caches.
    appends(&streams, most, length)?;
    for _ in 0..arguments.turns {
        let turn = appends(&streams, most, length)?;
        ours.push(turn);
        raw.push(writes(folder.path(), turn.group, length)?);
    }
    println!("| | appends a second | syncs a second | appends a sync |\n|---|---:|---:|---:|");
    let (ours, raw) = (middle(ours), middle(raw));
    for (name, turn) in [("journal", ours), ("one file", raw)] {
        println!(
            "| {name} | {:.0} | {:.1} | {:.0} |",
            turn.appends, turn.syncs, turn.group
        );
    }
    let ratio = ours.appends / raw.appends;
    println!(
        "\n{} streams: {ratio:.2} of what the disk gives to one file (the goal: 0.8, or 100,000 a second).",
        arguments.streams
    );
    Ok(())
}

fn middle(mut turns: Vec<Turn>) -> Turn {
    turns.sort_by(|one, two| one.appends.total_cmp(&two.appends));
    turns[turns.len() / 2]
}

/// Appends to all streams in turn, while as many appends as `most` wait.
fn appends(streams: &[Stream], most: usize, length: Duration) -> Result<Turn, Box<dyn Error>> {
    let record = NewRecord {
        payload: vec![7; PAYLOAD].into(),
        ..NewRecord::default()
    };
    let mut waiting: VecDeque<Written> = VecDeque::new();
    let (begun, before) = (Instant::now(), synchronised());
    let mut count = 0.0;
    for stream in streams.iter().cycle() {
        if begun.elapsed() > length {
            break;
        }
        if waiting.len() >= most
            && let Some(first) = waiting.pop_front()
        {
            first.wait()?;
        }
        waiting.push_back(stream.append(record.clone())?);
        count += 1.0;
    }
    for last in waiting {
        last.wait()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let syncs = (synchronised() - before) as f64;
    Ok(Turn {
        appends: count / seconds,
        syncs: syncs / seconds,
        group: count / syncs,
    })
}

/// Appends the bytes of such groups to one file, with one write and one `fdatasync` for each.
fn writes(folder: &Path, group: f64, length: Duration) -> Result<Turn, Box<dyn Error>> {
    let bytes = vec![7; group as usize * (HEADER + PAYLOAD)];
    let mut file = File::create(folder.join("raw"))?;
    let begun = Instant::now();
    let mut syncs = 0.0;
    while begun.elapsed() < length {
        file.write_all(&bytes)?;
        file.sync_data()?;
        syncs += 1.0;
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Turn {
        appends: syncs * group / seconds,
        syncs: syncs / seconds,
        group,
    })
}
