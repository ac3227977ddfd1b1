//! The output of commands: tables and sentences for people, JSON for programs, progress on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::arguments::{Color, General};

/// How often a command that goes on looks whether it is still read.
const LOOK: Duration = Duration::from_millis(200);

/// Where a command's results go. Progress and errors go to standard error, results to standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    coloured: bool,
}

impl Output {
    /// Decides once, from the options and the terminal, about colours and the format.
    pub(crate) fn new(general: &General) -> Self {
        match general.color {
            Color::Auto => {}
            Color::Always => anstream::ColorChoice::Always.write_global(),
            Color::Never => anstream::ColorChoice::Never.write_global(),
        }
        let colours = match general.color {
            Color::Auto => {
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
            }
            Color::Always => true,
            Color::Never => false,
        };
        // Fails only if a hook is already set, and this is the only place that sets one.
        let _ = miette::set_hook(Box::new(move |_| {
            Box::new(
                miette::MietteHandlerOpts::new()
                    .color(colours)
                    .unicode(colours)
                    .wrap_lines(std::io::stderr().is_terminal())
                    .build(),
            )
        }));
        Self {
            json: general.json,
            coloured: colours,
        }
    }

    /// Whether the results are for a program.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether what goes to standard error may have colours.
    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    /// Prints a sentence for people; programs get the value instead.
    pub(crate) fn show(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            match serde_json::to_string_pretty(value) {
                Ok(json) => anstream::println!("{json}"),
                Err(error) => anstream::eprintln!("cannot print the result as JSON: {error}"),
            }
        } else {
            anstream::println!("{}", text());
        }
    }

    /// Prints one line of a stream: for programs, one JSON object a line.
    pub(crate) fn line(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            match serde_json::to_string(value) {
                Ok(json) => anstream::println!("{json}"),
                Err(error) => anstream::eprintln!("cannot print the result as JSON: {error}"),
            }
        } else {
            anstream::println!("{}", text());
        }
    }

    /// A spinner on standard error that names what is being waited for; silent off a terminal.
    pub(crate) fn waiting(self, for_what: &str) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let spinner = ProgressBar::new_spinner()
            .with_style(style)
            .with_message(for_what.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(100));
        spinner
    }
}

/// Ends when nobody reads standard output any more: the reader behind a pipe, such as `head`, has seen enough. Output
/// that is printed then is lost, which is no error.
pub(crate) async fn unread() {
    let mut looks = tokio::time::interval(LOOK);
    loop {
        looks.tick().await;
        let output = std::io::stdout();
        // A pipe without readers is always reported.
        let mut watched = [PollFd::new(&output, PollFlags::empty())];
        let looked = poll(&mut watched, Some(&Timespec::default()));
        if looked.is_ok() && watched[0].revents().contains(PollFlags::ERR) {
            return;
        }
    }
}

/// A table without lines around its cells; the head is bold on a terminal.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    // Colours are taken out again where they do not belong, when the table is printed.
    table
        .enforce_styling()
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(
            head.iter()
                .map(|name| Cell::new(name).add_attribute(Attribute::Bold)),
        );
    table
}
