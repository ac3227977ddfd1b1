//! The output of commands: tables and sentences for people, JSON for programs, progress on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use sealbus_control::text::{printable, printable_but, printable_json};
use serde::Serialize;

use crate::arguments::{Color, General};

/// How often a long-running command checks whether anyone still reads its output.
#[cfg(unix)]
const LOOK: Duration = Duration::from_millis(200);

/// The destination and form of a command's output. Results go to standard output; progress and errors go to standard
/// error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    coloured: bool,
    again: bool,
}

impl Output {
    /// Decides once about colours and the format, from the options and the terminal.
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
        Self {
            json: general.json,
            coloured: colours,
            again: false,
        }
    }

    /// The output of a command that shows its result again and again: programs get one JSON value a line, and a terminal
    /// shows only the latest result.
    pub(crate) fn again_and_again(self) -> Self {
        Self {
            again: true,
            ..self
        }
    }

    /// Makes room for the next result of a command that shows its result again and again.
    pub(crate) fn begin_again(self) {
        if self.json {
            return;
        }
        if std::io::stdout().is_terminal() {
            // The cursor goes to the corner, and the screen is cleared from there on.
            anstream::print!("\u{1b}[H\u{1b}[2J");
        } else {
            anstream::println!();
        }
    }

    /// Whether the results are for a program.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether the text on standard error may have colours.
    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    /// Prints a sentence for people. Programs get the value instead.
    pub(crate) fn show(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.again {
            self.line(value, text);
        } else if self.json {
            match serde_json::to_string_pretty(value) {
                Ok(json) => anstream::println!("{}", printable_json(json)),
                Err(error) => anstream::eprintln!("cannot print the result as JSON: {error}"),
            }
        } else {
            anstream::println!("{}", shown(&text()));
        }
    }

    /// Prints one line of a stream. Programs get one JSON object a line.
    pub(crate) fn line(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            match serde_json::to_string(value) {
                Ok(json) => anstream::println!("{}", printable_json(json)),
                Err(error) => anstream::eprintln!("cannot print the result as JSON: {error}"),
            }
        } else {
            anstream::println!("{}", shown(&text()));
        }
    }

    /// A spinner on standard error that names what the command waits for. It is silent outside a terminal.
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

/// Ends when nobody reads standard output any more, because the reader behind a pipe, such as `head`, has seen enough.
/// Output that is printed later is lost, which is no error.
#[cfg(unix)]
pub(crate) async fn unread() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Windows does not tell whether anyone reads.
#[cfg(not(unix))]
pub(crate) async fn unread() {
    std::future::pending().await
}

/// A table without lines around its cells. The head is bold on a terminal. Text of others stays within its cell.
pub(crate) struct Cells(Table);

pub(crate) fn table(head: &[&str]) -> Cells {
    let mut table = Table::new();
    // When the table is printed, colours are removed where they do not belong.
    table
        .enforce_styling()
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(
            head.iter()
                .map(|name| Cell::new(name).add_attribute(Attribute::Bold)),
        );
    Cells(table)
}

impl Cells {
    /// Adds a row.
    pub(crate) fn add_row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter();
        self.0
            .add_row(cells.map(|cell| printable(cell.as_ref()).into_owned()));
    }

    /// Aligns all columns but the first to the right.
    pub(crate) fn align_numbers(&mut self) {
        for column in self.0.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }

    /// The table, without blanks at the ends of its lines.
    pub(crate) fn trim_fmt(&self) -> String {
        self.0.trim_fmt()
    }
}

/// `text` made safe for a terminal. The only control characters kept are line ends, tabs and this program's own styles,
/// which change nothing but the look of text.
pub(crate) fn shown(text: &str) -> String {
    // Reset, bold, dim, red, green, yellow, cyan, and the default colour.
    const STYLES: [&str; 8] = [
        "\u{1b}[0m",
        "\u{1b}[1m",
        "\u{1b}[2m",
        "\u{1b}[31m",
        "\u{1b}[32m",
        "\u{1b}[33m",
        "\u{1b}[36m",
        "\u{1b}[39m",
    ];
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    let next_style = |text: &str| {
        let at = |style: &&str| text.find(style).map(|at| (at, style.len()));
        STYLES.iter().filter_map(at).min()
    };
    while let Some((at, length)) = next_style(rest) {
        safe.push_str(&printable_but(&rest[..at], is_layout));
        safe.push_str(&rest[at..at + length]);
        rest = &rest[at + length..];
    }
    safe.push_str(&printable_but(rest, is_layout));
    safe
}

/// Characters that lay text out and do nothing else to a terminal.
pub(crate) fn is_layout(character: char) -> bool {
    matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_steers_no_terminal() {
        let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[1mx\u{9b}1A\r\u{202e}\n";
        let seen = shown(hostile);
        assert_eq!(
            seen,
            "\\u{1b}]0;owned\\u{7}\\u{1b}[2J\u{1b}[1mx\\u{9b}1A\\r\\u{202e}\n"
        );
    }

    #[test]
    fn a_cell_makes_no_rows() {
        let mut table = table(&["AGENT", "NOTE"]);
        table.add_row(["mallory", "ended\nvictim  active\u{1b}[1A"]);
        let text = table.trim_fmt();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("ended\\nvictim"), "{text}");
    }
}
