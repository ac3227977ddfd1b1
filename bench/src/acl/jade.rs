//! JADE's codec for the String encoding, on a JVM of its own that is warmed up first.

use std::path::PathBuf;
use std::process::Command;

use sealbus_fipa::{AclMessage, string};
use serde::Deserialize;

use super::Row;

/// The line that the Java program prints for each message and task.
#[derive(Deserialize)]
struct Measured {
    message: usize,
    work: String,
    nanoseconds: f64,
    bytes: usize,
}

/// Measures JADE with the same messages. An error says why that is not possible.
pub(super) fn run(messages: &[(&'static str, AclMessage)]) -> Result<Vec<Row>, String> {
    let peer: PathBuf = [env!("CARGO_MANIFEST_DIR"), "peers/jade"].iter().collect();
    let directory = std::env::temp_dir().join(format!("sealbus-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    for (index, (_, message)) in messages.iter().enumerate() {
        let mut bytes = Vec::new();
        string::encode(message, &mut bytes).map_err(|error| error.to_string())?;
        let path = directory.join(format!("{index}.acl"));
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let output = Command::new(peer.join("run")).arg(&directory).output();
    let _ = std::fs::remove_dir_all(&directory);
    let output = output.map_err(|error| format!("{}: {error}", peer.join("run").display()))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(told
            .lines()
            .last()
            .unwrap_or("it failed without a word")
            .to_owned());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let measured = lines.lines().map(serde_json::from_str::<Measured>);
    let rows = measured.map(|measured| {
        let measured = measured.map_err(|error| error.to_string())?;
        let (message, _) = messages.get(measured.message).ok_or("an unknown message")?;
        Ok(Row {
            message,
            subject: "JADE String".to_owned(),
            work: if measured.work == "encode" {
                "encode"
            } else {
                "decode owned"
            },
            nanoseconds: measured.nanoseconds,
            allocations: None,
            bytes: Some(measured.bytes),
        })
    });
    rows.collect()
}
