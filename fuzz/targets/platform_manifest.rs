//! Any text as a manifest: a manifest, or mistakes that can be shown.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sealbus_manifest::Manifest;

fuzz_target!(|text: &str| {
    match Manifest::parse("platform.toml", text, Path::new("/nowhere")) {
        Ok(manifest) => {
            for agent in &manifest.agents {
                drop(agent.local_names());
            }
        }
        Err(mistakes) => assert!(!mistakes.problems.is_empty() && !mistakes.to_string().is_empty()),
    }
});
