//! `logs`: the output of agents.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::time::Duration;

use owo_colors::{AnsiColors, OwoColorize};
use sealbus_control::admin::{AgentStatus, ask};
use sealbus_control::node::{LogPosition, LogText};
use sealbus_control::text::printable;
use serde_json::json;

use crate::arguments::Logs;
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{self, Output, shown};

/// The mark of a certification step in a program's own log.
pub(super) const STEP: &str = " INFO sealbus::certification: ";
/// How often `--follow` asks for more.
pub(super) const FOLLOW: Duration = Duration::from_millis(200);
/// Most bytes of a line that is not complete yet. A longer one is shown in parts.
const LONGEST: usize = 64 * 1024;
/// The colours of names. They differ from the colours of events and errors.
const COLOURS: [AnsiColors; 3] = [AnsiColors::Cyan, AnsiColors::Green, AnsiColors::Yellow];

/// `sealbus logs [AGENT…]`
pub(crate) async fn logs(
    connection: &mut Connection,
    logs: &Logs,
    output: Output,
) -> Result<(), CliError> {
    if let ([agent], None, false) = (logs.agent.as_slice(), &logs.grep, output.is_json()) {
        return one(connection, agent, logs).await;
    }
    let mut tails = Tails::new(logs.first());
    for agent in &logs.agent {
        tails.add(agent, agent);
    }
    let is_wanted = |line: &str| match &logs.grep {
        Some(grep) => grep.is_match(line),
        None => !line.contains(STEP),
    };
    let show = |tails: &Tails, lines: Vec<(String, String)>| {
        for (name, line) in lines.iter().filter(|(_, line)| is_wanted(line)) {
            let told = json!({ "agent": name, "line": line });
            output.line(&told, || tails.prefixed(name, line));
        }
    };
    loop {
        if logs.agent.is_empty() {
            tails.add_all(&connection.list(ask::Agents::default()).await?);
        }
        let lines = tails.more(connection, logs.agent.is_empty()).await?;
        show(&tails, lines);
        if !tails.caught_up {
            continue;
        }
        if !logs.follow {
            let rests = tails.rests();
            show(&tails, rests);
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW) => {}
            () = output::unread() => return Ok(()),
        }
    }
}

/// Shows one log to people, without prefixes, including incomplete lines.
async fn one(connection: &mut Connection, agent: &str, logs: &Logs) -> Result<(), CliError> {
    let mut from = logs.first();
    loop {
        let request = ask::Log {
            agent: agent.to_owned(),
            from,
        };
        let LogText { text, next } = connection.ask(request).await?;
        let caught_up = text.is_empty();
        let lines = text.split_inclusive('\n');
        let text: String = lines.filter(|line| !line.contains(STEP)).collect();
        let mut out = anstream::stdout().lock();
        let written = out
            .write_all(shown(&text).as_bytes())
            .and_then(|()| out.flush());
        match written {
            // A closed pipe (`| head`) means that the reader has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(CliError::file("write", "standard output"))?,
        }
        drop(out);
        from = LogPosition::Offset { offset: next };
        if caught_up {
            if !logs.follow {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW) => {}
                () = output::unread() => return Ok(()),
            }
        }
    }
}

/// The ends of several logs.
pub(super) struct Tails {
    /// The position at which to begin a log that was not read before.
    first: LogPosition,
    /// The logs, by the name that their lines get.
    tails: BTreeMap<String, Tail>,
    /// Whether the last look found nothing new.
    caught_up: bool,
}

struct Tail {
    /// An agent that writes the log. Agents of one process share a log.
    agent: String,
    from: LogPosition,
    /// The beginning of a line whose end has not come yet.
    rest: String,
}

impl Tails {
    pub(super) fn new(first: LogPosition) -> Self {
        Self {
            first,
            tails: BTreeMap::new(),
            caught_up: false,
        }
    }

    fn add(&mut self, name: &str, agent: &str) {
        let first = self.first;
        self.tails.entry(name.to_owned()).or_insert_with(|| Tail {
            agent: agent.to_owned(),
            from: first,
            rest: String::new(),
        });
    }

    /// Adds the logs of all these agents, also of those that have ended, each log once, under the name of its process.
    pub(super) fn add_all(&mut self, agents: &[AgentStatus]) {
        for agent in agents {
            let process = agent.process.rsplit_once('.');
            let name = process.map_or(agent.process.as_str(), |(name, _)| name);
            let local = agent.name.split('@').next().unwrap_or_default();
            self.add(name, local);
        }
    }

    /// The whole lines that have come since the last time. A log that cannot be read now is passed over if `is_lenient`.
    ///
    /// # Errors
    /// If a log cannot be read, or the Master is gone.
    pub(super) async fn more(
        &mut self,
        connection: &mut Connection,
        is_lenient: bool,
    ) -> Result<Vec<(String, String)>, CliError> {
        let mut lines = Vec::new();
        self.caught_up = true;
        for (name, tail) in &mut self.tails {
            let request = ask::Log {
                agent: tail.agent.clone(),
                from: tail.from,
            };
            match connection.ask(request).await {
                Ok(LogText { text, next }) => {
                    tail.from = LogPosition::Offset { offset: next };
                    self.caught_up &= text.is_empty();
                    let whole = tail.take(&text).into_iter();
                    lines.extend(whole.map(|line| (name.clone(), line)));
                }
                Err(_) if is_lenient => {}
                Err(error) => return Err(error),
            }
        }
        Ok(lines)
    }

    /// The lines whose ends have not come.
    fn rests(&mut self) -> Vec<(String, String)> {
        let rest = |(name, tail): (&String, &mut Tail)| {
            let rest = std::mem::take(&mut tail.rest);
            (!rest.is_empty()).then(|| (name.clone(), rest))
        };
        self.tails.iter_mut().filter_map(rest).collect()
    }

    /// A line behind the name of its log, as wide as the longest name.
    pub(super) fn prefixed(&self, name: &str, line: &str) -> String {
        let widest = self.tails.keys().map(|name| name.chars().count()).max();
        let width = widest.unwrap_or(0);
        let place = self.tails.keys().position(|known| known == name);
        let colour = COLOURS[place.unwrap_or(0) % COLOURS.len()];
        let name = format!("{:width$} |", printable(name));
        // Any style that the line begins ends with the line.
        let end = if line.contains('\u{1b}') {
            "\u{1b}[0m"
        } else {
            ""
        };
        format!("{} {line}{end}", name.color(colour))
    }
}

impl Tail {
    /// The lines that this text completes.
    fn take(&mut self, text: &str) -> Vec<String> {
        self.rest.push_str(text);
        let end = match self.rest.rfind('\n') {
            Some(end) => end + 1,
            None if self.rest.len() > LONGEST => self.rest.len(),
            None => 0,
        };
        let rest = self.rest.split_off(end);
        let whole = std::mem::replace(&mut self.rest, rest);
        whole.lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_begin_with_their_name() {
        let mut tails = Tails::new(LogPosition::LastLines { lines: 1 });
        tails.add("ann", "ann");
        tails.add("benjamin", "ben");
        let tail = tails.tails.get_mut("ann").unwrap();
        assert!(tail.take("on").is_empty());
        assert_eq!(tail.take("e\ntwo\nth"), ["one", "two"]);
        let unfinished = ("ann".to_owned(), "th".to_owned());
        assert_eq!(tails.rests(), [unfinished]);
        assert!(tails.rests().is_empty());
        let tail = tails.tails.get_mut("ann").unwrap();
        assert_eq!(tail.take("three\n"), ["three"]);
        assert_eq!(tail.take(&"x".repeat(LONGEST + 1)).len(), 1);
        let line = shown(&tails.prefixed("ann", "one"));
        assert_eq!(line, "\u{1b}[36mann      |\u{1b}[39m one");
        let styled = tails.prefixed("benjamin", "\u{1b}[31mred");
        assert!(styled.ends_with("\u{1b}[0m"), "{styled:?}");
    }
}
