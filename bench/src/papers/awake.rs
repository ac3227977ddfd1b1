//! Processors that are not halted while they wait. To wake a virtual processor that its host has taken away costs a hundred
//! microseconds, or nothing if it happens to be busy still: without this a latency says more of that than of a system.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Where Linux is told how long waking a processor may take, as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Holds all processors awake until it is dropped, if this machine allows it.
pub(crate) struct Awake(io::Result<File>);

impl Awake {
    pub(crate) fn hold() -> Self {
        let wish = || {
            let mut file = OpenOptions::new().write(true).open(LATENCY)?;
            // In microseconds.
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok(file)
        };
        Self(wish())
    }

    /// The state, for readers of the report.
    pub(crate) fn words(&self) -> String {
        match &self.0 {
            Ok(_) => format!("never halted while they wait ({LATENCY} held at 0)"),
            Err(error) => format!("may be halted while they wait ({LATENCY}: {error})"),
        }
    }
}
