//! Runs the benchmark of the mesh in small. Nothing depends on the speed of the machine.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn mesh(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealbus-bench"));
    command.arg("mesh").args(arguments).output().unwrap()
}

#[test]
fn processors_are_kept_awake_or_the_report_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mesh.json");
    let output = mesh(&[
        "--json",
        file.to_str().unwrap(),
        "--only",
        "in one process, many",
        "--turns",
        "1",
        "--messages",
        "1000",
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let words = report["idle_processors"].as_str().unwrap();
    assert!(words.contains("/dev/cpu_dma_latency"), "{words}");
}

#[test]
fn several_threads_stand_beside_one() {
    let output = mesh(&["--threads", "2", "--turns", "1", "--messages", "1000"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "I/O threads: 1:",
        "I/O threads: 2:",
        "2 threads / one thread:",
    ] {
        assert!(text.contains(words), "{text}");
    }
}
