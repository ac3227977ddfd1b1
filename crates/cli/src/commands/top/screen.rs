//! `top` on a terminal.

use std::io::{self, Write, stdout};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue};
use sealbus_control::text::printable;
use sealbus_window::Board;
use tokio::sync::mpsc;

use super::board::{Shown, rows, summary};
use super::look;
use crate::arguments::{TopList, TopSort};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::table;

const KEYS: &str = "Tab: list   s: sort   /: filter   arrows: scroll   q: end";
/// The lines besides the rows of the list: two above its head, the head, and the keys.
const FRAME: usize = 4;
/// The rows of a page.
const PAGE: usize = 20;

/// The state of the screen.
struct Screen {
    platform: String,
    shown: Shown,
    board: Board,
    /// The first row that is shown.
    first: usize,
    /// The filter is being typed.
    is_typing: bool,
}

/// The consequence of a key.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Draw,
    End,
}

/// The terminal while it belongs to `top`. It gets its former content back when this value ends.
struct Terminal {
    drawn: Vec<String>,
}

impl Terminal {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let terminal = Self { drawn: Vec::new() };
        execute!(
            stdout(),
            EnterAlternateScreen,
            DisableLineWrap,
            cursor::Hide
        )?;
        Ok(terminal)
    }

    /// Writes the lines that differ from those drawn before.
    fn draw(&mut self, lines: Vec<String>) -> io::Result<()> {
        let mut out = stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        for row in 0..lines.len().max(self.drawn.len()) {
            let line = lines.get(row);
            if line == self.drawn.get(row) {
                continue;
            }
            let at = cursor::MoveTo(0, u16::try_from(row).unwrap_or(u16::MAX));
            let text = Print(line.map_or("", String::as_str));
            queue!(out, at, text, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        self.drawn = lines;
        out.flush()
    }

    /// The terminal has a new size, and its content is unknown.
    fn forget(&mut self) -> io::Result<()> {
        self.drawn.clear();
        execute!(stdout(), Clear(ClearType::All))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone need not be restored.
        let _ = execute!(stdout(), cursor::Show, EnableLineWrap, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Shows the board until the user ends it. It is drawn when there is news, and only what has changed is written.
pub(super) async fn run(
    connection: &mut Connection,
    platform: &str,
    interval: Duration,
    shown: Shown,
) -> Result<(), CliError> {
    let failed = CliError::file("use", "the terminal");
    let mut before = look(connection).await?;
    let mut screen = Screen {
        platform: platform.to_owned(),
        shown,
        board: Board::between(&before, &before),
        first: 0,
        is_typing: false,
    };
    let mut terminal = Terminal::take().map_err(&failed)?;
    let mut keys = keys();
    let mut looks = tokio::time::interval(interval);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let (_, height) = size().map_err(&failed)?;
        let lines = screen.lines(height.into());
        terminal.draw(lines).map_err(&failed)?;
        tokio::select! {
            _ = looks.tick() => {
                let now = look(connection).await?;
                screen.board = Board::between(&before, &now);
                before = now;
            }
            key = keys.recv() => match key {
                Some(Event::Resize(..)) => terminal.forget().map_err(&failed)?,
                Some(event) if screen.obey(&event) == Outcome::Draw => {}
                _ => return Ok(()),
            },
        }
    }
}

/// The keys that are pressed. They are read by a thread, because reading a terminal blocks.
fn keys() -> mpsc::UnboundedReceiver<Event> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Screen {
    fn obey(&mut self, event: &Event) -> Outcome {
        let Event::Key(key) = event else {
            return Outcome::Draw;
        };
        if key.kind == KeyEventKind::Release {
            return Outcome::Draw;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Outcome::End;
            }
            KeyCode::Char(typed) if self.is_typing => self.shown.filter.push(typed),
            KeyCode::Backspace if self.is_typing => {
                self.shown.filter.pop();
            }
            KeyCode::Esc if self.is_typing => {
                self.shown.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('q') | KeyCode::Esc => return Outcome::End,
            KeyCode::Char('s') => {
                self.shown.sort = match self.shown.sort {
                    TopSort::Rate => TopSort::Waiting,
                    TopSort::Waiting => TopSort::Errors,
                    TopSort::Errors => TopSort::Name,
                    TopSort::Name => TopSort::Rate,
                }
            }
            KeyCode::Tab => {
                self.shown.list = match self.shown.list {
                    TopList::Agents => TopList::Channels,
                    TopList::Channels => TopList::Processes,
                    TopList::Processes => TopList::Agents,
                };
                self.first = 0;
            }
            KeyCode::Down => self.first += 1,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += PAGE,
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE),
            _ => {}
        }
        Outcome::Draw
    }

    /// The lines of a screen of this height. The terminal cuts off long lines.
    fn lines(&mut self, height: usize) -> Vec<String> {
        let sort = format!("{:?} by {:?}", self.shown.list, self.shown.sort).to_lowercase();
        let filter = match (self.is_typing, self.shown.filter.as_str()) {
            (false, "") => String::new(),
            (false, filter) => format!("   filter: {filter}"),
            (true, filter) => format!("   filter: {filter}_"),
        };
        let (head, rows) = rows(&self.board, &self.shown);
        self.first = self.first.min(rows.len().saturating_sub(1));
        let room = height.saturating_sub(FRAME);
        let mut table = table(head);
        // The widths of columns depend on all rows, so that they do not change while the list is scrolled.
        for row in rows {
            table.add_row(row);
        }
        table.align_numbers();
        let text = table.trim_fmt();
        let mut text = text.lines().map(str::to_owned);
        let head = text.next().unwrap_or_default();
        let safe = |text: String| printable(&text).into_owned();
        let mut lines = vec![
            safe(summary(&self.board, &self.platform)),
            safe(format!("{sort}{filter}")),
            head,
        ];
        lines.extend(text.skip(self.first).take(room));
        lines.resize(height.saturating_sub(1).max(lines.len()), String::new());
        lines.push(KEYS.to_owned());
        lines.truncate(height);
        lines
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;
    use sealbus_window::AgentRow;

    use super::*;

    fn screen() -> Screen {
        let agent = |name: &str, rate: f64| AgentRow {
            agent: name.to_owned(),
            node: "node-1".to_owned(),
            process: "p.1".to_owned(),
            sent_rate: rate,
            received_rate: 0.0,
            sent: 7,
            received: 0,
            waiting: 3,
            waiting_bytes: 1,
            refused: 0,
        };
        Screen {
            platform: "factory".to_owned(),
            shown: Shown {
                list: TopList::Agents,
                sort: TopSort::Rate,
                filter: String::new(),
            },
            board: Board {
                agents: vec![
                    agent("slow@factory", 1.0),
                    agent("e\u{1b}[2J\u{202e}vil@factory", 50.0),
                ],
                ..Board::default()
            },
            first: 0,
            is_typing: false,
        }
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Outcome {
        screen.obey(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    #[test]
    fn the_busiest_stand_first_and_names_steer_nothing() {
        let lines = screen().lines(8);
        assert_eq!(lines.len(), 8);
        assert!(lines[0].starts_with("factory: "), "{lines:#?}");
        assert!(lines[2].contains("AGENT"), "{lines:#?}");
        assert!(
            lines[3]
                .trim_start()
                .starts_with("e\\u{1b}[2J\\u{202e}vil@factory"),
            "{lines:#?}"
        );
        assert!(
            lines[4].trim_start().starts_with("slow@factory"),
            "{lines:#?}"
        );
        assert!(lines[4].ends_with("node-1"), "{lines:#?}");
        assert_eq!(lines[7], KEYS);
        // The lines fill a screen of any height exactly.
        for height in 0..20 {
            assert_eq!(screen().lines(height).len(), height);
        }
    }

    #[test]
    fn keys_sort_filter_scroll_and_end() {
        let mut screen = screen();
        for key in ['/', 's', 'l', 'q'] {
            assert_eq!(press(&mut screen, KeyCode::Char(key)), Outcome::Draw);
        }
        press(&mut screen, KeyCode::Backspace);
        press(&mut screen, KeyCode::Enter);
        let lines = screen.lines(8);
        assert!(lines[1].contains("filter: sl"), "{lines:#?}");
        assert!(
            lines[3].trim_start().starts_with("slow@factory") && lines[4].is_empty(),
            "{lines:#?}"
        );
        press(&mut screen, KeyCode::Char('/'));
        press(&mut screen, KeyCode::Esc);
        press(&mut screen, KeyCode::PageDown);
        assert!(screen.lines(8)[3].trim_start().starts_with("slow@factory"));
        press(&mut screen, KeyCode::PageUp);
        press(&mut screen, KeyCode::Tab);
        assert_eq!(screen.shown.list, TopList::Channels);
        press(&mut screen, KeyCode::Char('s'));
        assert_eq!(screen.shown.sort, TopSort::Waiting);
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Outcome::End);
    }
}
