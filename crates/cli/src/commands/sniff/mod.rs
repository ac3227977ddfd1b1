//! `sniff`: the messages between agents as they arrive, and refused attempts. The command can also record, read again
//! and draw them.

mod diagram;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use owo_colors::OwoColorize;
use sealbus_channels::ChannelPattern;
use sealbus_control::RefusalRecord;
use sealbus_control::admin::{SilentNode, ask};
use sealbus_control::text::printable;
use sealbus_control::traffic::{MOST_PATTERNS, MessageHead, Watch, WatchedBody};
use sealbus_window::{Recorder, Seen, fresh, read_from};

use super::instant;
use crate::arguments::{General, Sniff};
use crate::connection::Connection;
use crate::error::CliError;
use crate::input;
use crate::output::{self, Output};

/// How often the platform is asked for arrived messages.
const LOOK: Duration = Duration::from_millis(250);
/// Most messages of a diagram.
const MOST_DRAWN: usize = 10_000;

/// A body, on a line of its own.
fn body(body: &WatchedBody) -> String {
    let text = match body {
        WatchedBody::Shown { text, left_out: 0 } => text.clone(),
        WatchedBody::Shown { text, left_out } => format!("{text} … and {left_out} bytes"),
        WatchedBody::Private => "kept from watchers by [tap] in the manifest".to_owned(),
        WatchedBody::Skipped => "left out: too many came at once".to_owned(),
    };
    format!("\n    {}", printable(&text))
}

/// One line for a message or a refused attempt.
fn line(seen: &Seen) -> String {
    match seen {
        Seen::Message(head) => {
            let by = head.channel.as_deref();
            format!(
                "{}  {} → {}{}  {}  {}  {} bytes  {}{}{}",
                instant(head.at),
                head.from,
                head.to,
                by.map(|channel| format!("  {channel}")).unwrap_or_default(),
                head.performative.cyan(),
                head.conversation.as_deref().unwrap_or("-"),
                head.size,
                head.provenance,
                match head.on_behalf_of.is_empty() {
                    true => String::new(),
                    false => format!("  on behalf of {}", head.on_behalf_of.join(", ")),
                },
                head.body.as_ref().map(body).unwrap_or_default()
            )
        }
        Seen::Refused(record) => format!(
            "{}  {} → {}  {}  {}{}",
            instant(record.at),
            record.who,
            record.receiver.as_deref().unwrap_or("-"),
            "refused".red(),
            record.reason,
            match record.count {
                1 => String::new(),
                count => format!("  ({count} times)"),
            }
        ),
        Seen::Skipped { count } => format!("{count} messages passed and are not shown")
            .yellow()
            .to_string(),
    }
}

/// `sealbus sniff`
pub(crate) async fn sniff(
    general: &General,
    sniff: &Sniff,
    output: Output,
) -> Result<(), CliError> {
    let watch = watch(sniff)?;
    let mut show = Show::new(sniff, output)?;
    match &sniff.open {
        Some(file) => again(file, sniff, &watch, &mut show)?,
        None => live(general, sniff, watch, &mut show).await?,
    }
    show.end();
    Ok(())
}

fn watch(sniff: &Sniff) -> Result<Watch, CliError> {
    let usage = |message: String, help: &str| CliError::Usage {
        message,
        help: help.to_owned(),
    };
    if let Some(channel) = &sniff.channel {
        ChannelPattern::new(channel).map_err(|error| {
            let help = "such as /offers/tea, /offers/* for one level or /offers/** for all below";
            usage(error.to_string(), help)
        })?;
    }
    let watch = Watch {
        // A random number.
        id: RandomState::new().build_hasher().finish(),
        agents: sniff.agent.clone(),
        conversation: sniff.conversation.clone(),
        protocol: sniff.protocol.clone(),
        performatives: sniff.performative.clone(),
        channel: sniff.channel.clone(),
        bodies: sniff.bodies,
    };
    if watch.is_bounded() {
        return Ok(watch);
    }
    Err(usage(
        format!("at most {MOST_PATTERNS} agents and performatives of 256 bytes each are watched"),
        "a pattern such as 'buyer-*' names many agents",
    ))
}

/// The destinations of the seen messages.
struct Show<'a> {
    sniff: &'a Sniff,
    output: Output,
    recorder: Option<Recorder>,
    drawn: Vec<Seen>,
    shown: u64,
    skipped: u64,
    left_out: u64,
}

impl<'a> Show<'a> {
    fn new(sniff: &'a Sniff, output: Output) -> Result<Self, CliError> {
        let recorder = sniff.record.as_deref().map(Recorder::create).transpose()?;
        Ok(Self {
            sniff,
            output,
            recorder,
            drawn: Vec::new(),
            shown: 0,
            skipped: 0,
            left_out: 0,
        })
    }

    fn draws(&self) -> bool {
        self.sniff.mermaid || self.sniff.svg
    }

    /// Shows one message or refused attempt. Returns whether more are wanted.
    fn seen(&mut self, seen: Seen) -> Result<bool, CliError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(&seen)?;
        }
        match &seen {
            Seen::Skipped { count } => self.skipped += count,
            _ => self.shown += 1,
        }
        if !self.draws() {
            self.output.line(&seen, || line(&seen));
        } else if self.drawn.len() < MOST_DRAWN {
            self.drawn.push(seen);
        } else {
            self.left_out += 1;
        }
        Ok(self.sniff.count.is_none_or(|count| self.shown < count))
    }

    /// Draws the diagram, if the user asked for it, and counts the messages that were not shown.
    fn end(self) {
        if self.draws() {
            let drawn = match self.sniff.mermaid {
                true => diagram::mermaid(&self.drawn),
                false => diagram::svg(&self.drawn),
            };
            anstream::print!("{drawn}");
        }
        let (shown, skipped) = (self.shown, self.skipped);
        anstream::eprintln!("{shown} shown, {skipped} passed unseen");
        if self.left_out > 0 {
            anstream::eprintln!(
                "{} are not in the diagram, which has room for {MOST_DRAWN}",
                self.left_out
            );
        }
    }
}

/// Shows a recorded file.
fn again(file: &Path, sniff: &Sniff, watch: &Watch, show: &mut Show<'_>) -> Result<(), CliError> {
    for seen in read_from(&input::name(file), input::open(file)?)? {
        let seen = seen?;
        let is_wanted = match &seen {
            Seen::Message(head) => !sniff.refused && wants(watch, head),
            Seen::Refused(record) => is_shown(sniff, watch, record),
            Seen::Skipped { .. } => true,
        };
        if is_wanted && !show.seen(seen)? {
            break;
        }
    }
    Ok(())
}

/// Whether a recorded message is wanted, by the rule that a process applies to an arriving message.
fn wants(watch: &Watch, head: &MessageHead) -> bool {
    let same = |wanted: &Option<String>, said: &Option<String>| wanted.is_none() || wanted == said;
    let pattern = watch.channel.as_deref().map(ChannelPattern::new);
    let on_channel = pattern.is_none_or(|pattern| {
        let path = head
            .channel
            .as_deref()
            .map(sealbus_channels::ChannelPath::new);
        matches!((pattern, path), (Ok(pattern), Some(Ok(path))) if pattern.matches(&path))
    });
    on_channel
        && (watch.names(&head.from) || watch.names(&head.to))
        && same(&watch.conversation, &head.conversation)
        && same(&watch.protocol, &head.protocol)
        && (watch.performatives.is_empty()
            || watch
                .performatives
                .iter()
                .any(|wanted| wanted.eq_ignore_ascii_case(&head.performative)))
}

/// Whether a refused attempt is shown. It always is if the user wants only refusals. Together with messages, it is
/// shown unless the user sets conditions that no refused attempt can meet.
fn is_shown(sniff: &Sniff, watch: &Watch, record: &RefusalRecord) -> bool {
    let says_more = watch.conversation.is_some()
        || watch.protocol.is_some()
        || watch.channel.is_some()
        || !watch.performatives.is_empty();
    let names = |name: &str| watch.names(name);
    (sniff.refused || !says_more)
        && (names(&record.who) || record.receiver.as_deref().is_some_and(names))
}

/// Shows messages until the user, the count or the time ends it.
async fn live(
    general: &General,
    sniff: &Sniff,
    watch: Watch,
    show: &mut Show<'_>,
) -> Result<(), CliError> {
    let mut connection = Connection::open(general).await?;
    let bodies = sniff.bodies;
    connection.ask(ask::Narrow { bodies }).await?;
    let status = connection.ask(ask::Status).await?;
    let mut known = connection.ask(ask::Refusals).await?;
    let asked = || ask::Observe {
        watch: (!sniff.refused).then(|| watch.clone()),
    };
    let mut silent: Vec<SilentNode> = Vec::new();
    connection.ask(asked()).await?;
    let ends = if std::io::stdin().is_terminal() {
        "; Ctrl-C ends it"
    } else {
        ""
    };
    anstream::eprintln!("watching {}{ends}", status.name);
    let mut stopped = std::pin::pin!(tokio::signal::ctrl_c());
    let mut unread = std::pin::pin!(output::unread());
    let mut over = std::pin::pin!(async {
        match sniff.time {
            Some(time) => tokio::time::sleep(time.0).await,
            None => std::future::pending().await,
        }
    });
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = &mut stopped => is_over = true,
            () = &mut unread => is_over = true,
            () = &mut over => is_over = true,
        }
        let latest = connection.ask(ask::Refusals).await?;
        let refused = fresh(&known, &latest).iter();
        let refused = refused.filter(|record| is_shown(sniff, &watch, record));
        let mut seen: Vec<_> = refused.cloned().map(Seen::Refused).collect();
        known = latest;
        if !sniff.refused {
            let traffic = connection.ask(asked()).await?;
            for node in traffic.silent.iter().filter(|node| !silent.contains(node)) {
                let why = sealbus_control::text::printable(&node.why);
                anstream::eprintln!(
                    "warning: the messages on {} are not shown: {why}",
                    node.node
                );
            }
            silent = traffic.silent;
            let skipped: u64 = traffic
                .processes
                .iter()
                .map(|process| process.skipped)
                .sum();
            let heads = traffic.processes.into_iter().flat_map(|it| it.heads);
            seen.extend(heads.map(Seen::Message));
            if skipped > 0 {
                seen.push(Seen::Skipped { count: skipped });
            }
        }
        seen.sort_by_key(Seen::at);
        for seen in seen {
            if !show.seen(seen)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_wrote_to_whom() {
        let line = line(&Seen::Refused(RefusalRecord {
            at: 0,
            who: "mallory@factory".to_owned(),
            proved: None,
            receiver: Some("seller-1@factory".to_owned()),
            reason: "forged-sender: no".to_owned(),
            count: 1,
            by: None,
        }));
        assert!(
            line.contains("mallory@factory → seller-1@factory"),
            "{line}"
        );
        assert!(line.contains("forged-sender"), "{line}");
    }
}
