//! Keeps waiting processors from being halted. Waking a virtual processor that its host has taken away costs a hundred
//! microseconds, or nothing if it happens to be busy still. Without this, a latency would tell more about that than
//! about a system.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The file that tells Linux how long waking a processor may take. It applies as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps all processors awake until it is dropped, if this machine allows it.
pub(crate) struct Awake(io::Result<File>);

impl Awake {
    pub(crate) fn hold() -> Self {
        let wish = || {
            let mut file = OpenOptions::new().write(true).open(LATENCY)?;
            // The value is in microseconds.
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
