//! A log of a million certificates: time, memory and disk. Run it alone:
//! `cargo test -p sealbus-transparency --test million -- --ignored --nocapture`
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use sealbus_seal::{Identity, PlatformName};
use sealbus_transparency::{Audit, Folder, LogWriter};

const ENTRIES: u64 = 1_000_000;
/// A Master publishes once a second. This is a busy one.
const A_PUBLICATION: u64 = 5_000;

/// Resident memory in kB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// As long as the record of an agent with a name of ten letters.
fn leaf(number: u64) -> Vec<u8> {
    format!(
        "{{\"identity\":\"spiffe://factory/agent/seller-{number:06}\",{:?}}}",
        "x".repeat(300)
    )
    .into_bytes()
}

#[test]
#[ignore = "takes minutes and half a gigabyte of disk"]
fn a_million_entries() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path());
    let platform = PlatformName::new("factory").unwrap();
    let authority = Identity::authority(&platform, "ca").unwrap();
    let before = memory();
    let mut log = LogWriter::default();
    let (started, mut hashing) = (Instant::now(), std::time::Duration::ZERO);
    let mut most = 0;
    while log.size() < ENTRIES {
        let since = Instant::now();
        for _ in 0..A_PUBLICATION {
            let number = log.size();
            log.append(&leaf(number)).unwrap();
        }
        hashing += since.elapsed();
        let publication = log.publication(&authority);
        folder.write(&publication.files).unwrap();
        log.written(publication.head);
        most = most.max(memory().saturating_sub(before));
    }
    println!(
        "append: {:.2} µs an entry",
        hashing.as_secs_f64() * 1e6 / ENTRIES as f64
    );
    println!(
        "append and write with fsync: {:.1} s",
        started.elapsed().as_secs_f64()
    );
    println!("memory while writing: {most} kB more");

    let head = log.head().clone();
    let root = log.tree().root();
    let rest: Vec<Vec<u8>> = (head.size..ENTRIES).map(leaf).collect();
    drop(log);
    let (since, mut read) = (Instant::now(), 0);
    let mut log = LogWriter::resume(head, |file| {
        read += 1;
        folder.read(file)
    })
    .unwrap();
    for leaf in &rest {
        log.append(leaf).unwrap();
    }
    println!(
        "start: {:.2} ms, {read} files, {} entries from the store",
        since.elapsed().as_secs_f64() * 1e3,
        rest.len()
    );
    assert_eq!(log.tree().root(), root);
    assert!(read <= 3 && rest.len() < 256);

    let since = Instant::now();
    let mut audit = Audit::new(log.publication(&authority).checkpoint);
    let (mut files, mut bytes) = (0_u64, 0);
    while let Some(wanted) = audit.wants() {
        let (file, contents) = folder.read_or_full(wanted).unwrap();
        files += 1;
        bytes += contents.len();
        audit.give(file, &contents).unwrap();
    }
    audit.finish().unwrap();
    println!(
        "audit: {:.1} s, {files} files, {} MB",
        since.elapsed().as_secs_f64(),
        bytes / 1_000_000
    );
    println!(
        "memory at the end: {} kB more",
        memory().saturating_sub(before)
    );
    assert!(most < 32 * 1024, "{most} kB");
}
