//! The commands, one function each. A command asks the platform and prints the answer; the platform does the work.

pub(crate) mod agents;
pub(crate) mod apply;
pub(crate) mod backup;
pub(crate) mod broker;
pub(crate) mod ceremony;
pub(crate) mod certificates;
pub(crate) mod channels;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod evidence;
pub(crate) mod gateway;
pub(crate) mod identity;
pub(crate) mod issuance_log;
pub(crate) mod language;
#[cfg(unix)]
mod local_node;
pub(crate) mod logs;
mod manifest;
pub(crate) mod masters;
mod member;
pub(crate) mod messages;
pub(crate) mod new;
#[cfg(unix)]
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod platform;
mod run;
pub(crate) mod sniff;
pub(crate) mod store;
pub(crate) mod top;
#[cfg(unix)]
pub(crate) mod up;
#[cfg(unix)]
mod up_attached;
#[cfg(unix)]
mod up_detached;
#[cfg(unix)]
mod up_join;
pub(crate) mod window;

use std::io::{ErrorKind, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::env::Shells;
use sealbus_control::UnixMillis;
use sealbus_control::clock::now;
use sealbus_fipa::Limits;
use sealbus_window::is_agent;
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::arguments::{Arguments, Completion, Man};
use crate::error::CliError;
use crate::input;
use crate::output::Output;

/// The variable with which a completion script asks this program for candidates.
pub(crate) const COMPLETE: &str = "SEALBUS_COMPLETE";

/// `sealbus completion SHELL`: a script that asks this program for the possible next words.
pub(crate) fn completion(completion: &Completion) -> Result<(), CliError> {
    let name = completion.shell.to_string();
    let failed = |message| CliError::Failed {
        message,
        help: Some("`sealbus completion --help` lists the shells".to_owned()),
    };
    let shells = Shells::builtins();
    let shell = shells
        .completer(&name)
        .ok_or_else(|| failed(format!("there is no completion for {name}")))?;
    let mut script = Vec::new();
    shell
        .write_registration(COMPLETE, "sealbus", "sealbus", "sealbus", &mut script)
        .map_err(|error| failed(format!("the script cannot be written: {error}")))?;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&script).and_then(|()| stdout.flush()) {
        // A reader that closes the pipe has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(CliError::file("write", "standard output")),
    }
}

/// `sealbus man DIRECTORY`
pub(crate) fn man(man: &Man, output: Output) -> Result<(), CliError> {
    let failed = CliError::file("write", &man.directory);
    std::fs::create_dir_all(&man.directory).map_err(&failed)?;
    clap_mangen::generate_to(Arguments::command(), &man.directory).map_err(&failed)?;
    let told = serde_json::json!({ "directory": man.directory });
    output.show(&told, || format!("written to {}", man.directory.display()));
    Ok(())
}

#[derive(Serialize)]
struct Version {
    sealbus: &'static str,
    rust: &'static str,
    profile: &'static str,
    target: String,
}

/// `sealbus version`
pub(crate) fn version(output: Output) {
    let version = Version {
        sealbus: env!("CARGO_PKG_VERSION"),
        rust: env!("CARGO_PKG_RUST_VERSION"),
        profile: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
    };
    output.show(&version, || {
        format!(
            "sealbus {} ({}, {})",
            version.sealbus, version.target, version.profile
        )
    });
}

/// The content of a message as typed. `-` stands for standard input.
fn content(typed: &str) -> Result<String, CliError> {
    let path = Path::new(typed);
    if !input::is_standard(path) {
        return Ok(typed.to_owned());
    }
    input::read_text(path, Limits::DEFAULT.message_length as u64)
}

/// A cell of a table: the value, or a dash.
fn cell(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// An instant in UTC, to the millisecond.
fn instant(at: UnixMillis) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000)
        .ok()
        .and_then(|at| {
            at.format(format_description!(
                "[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]Z"
            ))
            .ok()
        })
        .unwrap_or_else(|| format!("{at} ms"))
}
