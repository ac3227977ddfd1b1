//! `channel list`, `channel publish`, `channel tail`, `channel request`. Each command runs an agent of its own,
//! certified like any other, for as long as the command runs.

mod last;
mod publishing;

use std::time::{Duration, SystemTime};

use sealbus::acl::Expression;
use sealbus::channel::{
    Channel, ChannelError, ChannelEvent, ChannelPath, ChannelPattern, Moment, PublishError,
    QosOverride, Replay, RequestOptions, SubscribeError, Subscribing,
};
use sealbus::{AclMessage, Content, ContentError, Performative};
use sealbus_bus::Lifetime;
use sealbus_channels::{Channels, Ended};
use sealbus_control::admin::{ChannelLogsReport, SilentNode, ask};
use sealbus_control::channel_log::KeptLog;
use sealbus_control::text::printable;
use sealbus_fipa::Number;
use serde::Serialize;
use serde_json::json;

use super::member::Member;
use super::{content, instant};
use crate::arguments::{ChannelPublish, ChannelRequest, ChannelTail, DescribeChannel, Since};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{self, Output, shown, table};

pub(crate) use last::last;

/// How long a published event may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How often a reader checks whether its logs are damaged.
const LOOK: Duration = Duration::from_secs(1);

fn channel(member: &Member, address: &str, qos: &QosOverride) -> Result<Channel, CliError> {
    Channel::open(member.outbox().clone(), member.platform(), address)
        .and_then(|channel| channel.with_qos(*qos))
        .map_err(|error| wrong_channel(&error))
}

fn wrong_channel(error: &ChannelError) -> CliError {
    CliError::Usage {
        message: error.to_string(),
        help: "a channel is a path such as /offers/tea, or an address such as \
               sealbus:priority=7:///offers/tea/"
            .to_owned(),
    }
}

fn not_published(error: PublishError) -> CliError {
    match error {
        PublishError::NotPermitted { .. } => CliError::Refused {
            message: error.to_string(),
            advice: Some("the manifest's [permission] says who may".to_owned()),
        },
        PublishError::Unavailable(error) => wrong_channel(&error.into()),
        error => CliError::Failed {
            message: error.to_string(),
            help: None,
        },
    }
}

fn not_subscribed(error: &SubscribeError) -> CliError {
    match error {
        SubscribeError::NotPermitted { .. } => CliError::Refused {
            message: error.to_string(),
            advice: Some("the manifest's [permission] says who may".to_owned()),
        },
        SubscribeError::Filter(_) | SubscribeError::NoLog => CliError::Usage {
            message: error.to_string(),
            help: "see `sealbus channel tail --help`".to_owned(),
        },
        _ => CliError::Failed {
            message: error.to_string(),
            help: None,
        },
    }
}

#[derive(Serialize)]
struct Subscriber {
    agent: String,
    process: Option<String>,
    channels: String,
    filter: Option<String>,
    policy: &'static str,
    answers: bool,
    group: Option<String>,
}

/// `sealbus channel list`
pub(crate) async fn list(connection: &mut Connection, output: Output) -> Result<(), CliError> {
    let member = Member::join(connection, "list").await?;
    let subscribers = member
        .during(async |member| Ok(subscribers(member, |_| true)))
        .await?;
    let ChannelLogsReport { logs, silent } = channel_logs(connection).await?;
    let listed = json!({ "subscriptions": &subscribers, "kept": &logs, "silent": &silent });
    output.show(&listed, || shown_list(&subscribers, &logs));
    Ok(())
}

/// The subscriptions whose channels are `wanted`, by channel and agent.
fn subscribers(member: &Member, wanted: impl Fn(&ChannelPattern) -> bool) -> Vec<Subscriber> {
    let reports = Channels::of(member.outbox().bus()).subscriptions();
    let mut subscribers: Vec<_> = reports
        .into_iter()
        .filter(|report| wanted(&report.pattern))
        .map(|report| Subscriber {
            agent: report.agent.to_string(),
            process: report.process.map(|process| process.to_string()),
            channels: report.pattern.to_string(),
            filter: Some(report.filter).filter(|filter| !filter.is_empty()),
            policy: report.policy.as_str(),
            answers: report.answers,
            group: report.group,
        })
        .collect();
    subscribers.sort_by(|one, two| (&one.channels, &one.agent).cmp(&(&two.channels, &two.agent)));
    subscribers
}

/// The kept events of persistent channels. Nodes that did not answer are named.
async fn channel_logs(connection: &mut Connection) -> Result<ChannelLogsReport, CliError> {
    let kept = connection.ask(ask::ChannelLogs).await?;
    for SilentNode { node, why } in &kept.silent {
        anstream::eprintln!(
            "warning: the events that {node} keeps are not shown: {}",
            printable(why)
        );
    }
    Ok(kept)
}

fn shown_list(subscribers: &[Subscriber], logs: &[KeptLog]) -> String {
    let mut shown = table(&["CHANNELS", "AGENT", "GROUP", "ANSWERS", "POLICY", "FILTER"]);
    for subscriber in subscribers {
        shown.add_row([
            subscriber.channels.as_str(),
            &subscriber.agent,
            subscriber.group.as_deref().unwrap_or("-"),
            if subscriber.answers { "yes" } else { "no" },
            subscriber.policy,
            subscriber.filter.as_deref().unwrap_or("-"),
        ]);
    }
    let subscriptions = shown.trim_fmt();
    if logs.is_empty() {
        return subscriptions;
    }
    format!("{subscriptions}\n\n{}", kept(logs))
}

/// `sealbus describe channel CHANNEL`
pub(crate) async fn describe(
    connection: &mut Connection,
    describe: &DescribeChannel,
    output: Output,
) -> Result<(), CliError> {
    let path = ChannelPath::new(&describe.channel).map_err(|error| wrong_channel(&error.into()))?;
    let member = Member::join(connection, "describe").await?;
    let subscribers = member
        .during(async |member| Ok(subscribers(member, |pattern| pattern.matches(&path))))
        .await?;
    let ChannelLogsReport { mut logs, silent } = channel_logs(connection).await?;
    logs.retain(|log| log.channel == path.as_str());
    let told = json!({
        "channel": path.as_str(),
        "subscriptions": &subscribers,
        "kept": &logs,
        "silent": &silent,
    });
    output.show(&told, || {
        if subscribers.is_empty() && logs.is_empty() {
            return format!("nobody has subscribed to {path}, and no node keeps events of it");
        }
        shown_list(&subscribers, &logs)
    });
    Ok(())
}

/// A table of the events that nodes keep from persistent channels.
fn kept(logs: &[KeptLog]) -> String {
    let mut shown = table(&[
        "KEPT", "NODE", "EVENTS", "BYTES", "FROM", "DURABLE", "STATE",
    ]);
    for log in logs {
        let state = match (&log.damage, log.torn) {
            (Some(damage), _) => printable(damage).into_owned(),
            (None, 0) => "whole".to_owned(),
            (None, torn) => format!("{torn} bytes were torn, and cut off"),
        };
        let durable: Vec<String> = log
            .durable
            .iter()
            .map(|(name, next)| format!("{} #{next}", printable(name)))
            .collect();
        shown.add_row([
            log.channel.clone(),
            log.node.clone(),
            log.events.to_string(),
            log.bytes.to_string(),
            format!("#{}", log.first),
            match durable.as_slice() {
                [] => "-".to_owned(),
                durable => durable.join(", "),
            },
            state,
        ]);
    }
    shown.trim_fmt()
}

/// The message that is put on a channel.
fn message(
    performative: &str,
    text: &str,
    properties: &[(String, String)],
) -> Result<AclMessage, CliError> {
    let Some(performative) = Performative::standard(performative.as_bytes()) else {
        return Err(CliError::Usage {
            message: format!("{performative:?} is not a FIPA performative"),
            help: "such as inform, request, cfp or query-ref".to_owned(),
        });
    };
    let mut message = AclMessage::new(performative).with_content(Content::Text(text.to_owned()));
    message.user_defined = properties
        .iter()
        .map(|(name, value)| {
            let value = match Number::parse(value) {
                Some(number) => Expression::Number(number),
                None => Expression::from(value.as_str()),
            };
            (format!("X-{name}"), value)
        })
        .collect();
    Ok(message)
}

/// `sealbus channel publish CHANNEL TEXT`
pub(crate) async fn publish(
    connection: &mut Connection,
    publish: &ChannelPublish,
    output: Output,
) -> Result<(), CliError> {
    let event = message(
        &publish.performative,
        &content(&publish.text)?,
        &publish.header.property,
    )?;
    let member = Member::join(connection, "publish").await?;
    let (channel, reach) = member
        .during(async |member| {
            let channel = channel(member, &publish.channel, &publish.header.qos)?;
            let reach = match channel.agent() {
                Some(agent) => channel.send(agent, event).await,
                None => channel.publish(event).await,
            };
            let reach = reach.map_err(not_published)?;
            let undelivered = member.until_delivered(ARRIVAL).await;
            match undelivered.first() {
                None => Ok((channel, reach)),
                Some(left) => Err(CliError::Failed {
                    message: format!("{left} did not arrive"),
                    help: Some("see who listens: `sealbus channel list`".to_owned()),
                }),
            }
        })
        .await?;
    output.show(&publishing::to_json(&reach, channel.path()), || {
        publishing::to_text(&reach, channel.path())
    });
    Ok(())
}

#[derive(Serialize)]
struct Seen<'a> {
    channel: &'a str,
    /// The node from whose log the event was read.
    log: Option<&'a str>,
    /// The number of earlier events that were not kept long enough.
    missed: u64,
    mechanism: &'static str,
    published: u64,
    number: u64,
    qos: String,
    sender: &'a str,
    /// The platform's knowledge of the sender.
    provenance: &'static str,
    performative: String,
    content: Option<String>,
}

impl<'a> Seen<'a> {
    fn new(event: &'a ChannelEvent) -> Self {
        let header = event.header();
        Self {
            channel: header.channel.as_str(),
            log: event.log(),
            missed: event.missed(),
            mechanism: header.mechanism.as_str(),
            published: header.published.unix_ms(),
            number: header.number,
            qos: header.qos.to_string(),
            sender: event.sender_name(),
            provenance: event.provenance().as_str(),
            performative: event.performative.to_string(),
            content: match event.text() {
                Ok(text) => Some(text.to_owned()),
                Err(ContentError::Missing { .. }) => None,
                Err(_) => event
                    .content_bytes()
                    .map(|bytes| format!("({} bytes)", bytes.len())),
            },
        }
    }

    fn line(&self) -> String {
        format!(
            "{}  {}  {} ({})  {}  {}  {}",
            instant(self.published),
            self.channel,
            self.sender,
            self.provenance,
            self.qos,
            self.performative,
            printable(self.content.as_deref().unwrap_or("-"))
        )
    }
}

/// `sealbus channel tail CHANNEL`
pub(crate) async fn tail(
    connection: &mut Connection,
    tail: &ChannelTail,
    output: Output,
) -> Result<(), CliError> {
    let pattern = ChannelPattern::new(&tail.channel).map_err(|error| CliError::Usage {
        message: error.to_string(),
        help: "such as /offers/tea, /offers/* for one level or /offers/** for all below".to_owned(),
    })?;
    let member = Member::join(connection, "tail").await?;
    member
        .during(async |member| read(member, pattern, tail, output).await)
        .await
}

async fn read(
    member: &Member,
    pattern: ChannelPattern,
    tail: &ChannelTail,
    output: Output,
) -> Result<(), CliError> {
    let mut subscribing = Subscribing::new(member.outbox().clone(), pattern);
    if let Some(filter) = &tail.filter {
        subscribing = subscribing.filter(filter.clone());
    }
    if let Some(count) = tail.last {
        subscribing = subscribing.since(Replay::Last(count));
    }
    if let Some(key) = &tail.last_per {
        subscribing = subscribing.since(Replay::LastPerKey(key.clone()));
    }
    match tail.since {
        None => {}
        Some(Since::Number(number)) => subscribing = subscribing.since(Replay::From(number)),
        Some(Since::Time(Lifetime(ago))) => {
            let since = SystemTime::now().checked_sub(ago);
            let since = Moment::from(since.unwrap_or(SystemTime::UNIX_EPOCH));
            subscribing = subscribing.since(Replay::Since(since));
        }
    }
    let mut subscription = subscribing.open().map_err(|error| not_subscribed(&error))?;
    let mut left = tail.count.unwrap_or(u64::MAX);
    let mut stopped = std::pin::pin!(tokio::signal::ctrl_c());
    let mut unread = std::pin::pin!(output::unread());
    let mut look = tokio::time::interval(LOOK);
    let mut damaged = Vec::new();
    while left > 0 {
        let event = tokio::select! {
            event = subscription.next() => event,
            _ = look.tick() => {
                let former = std::mem::replace(&mut damaged, subscription.damaged());
                for log in damaged.iter().filter(|log| !former.contains(log)) {
                    let (node, channel) = (&log.node, &log.channel);
                    let damage = printable(&log.damage);
                    anstream::eprintln!("warning: {node} cannot read on in its log of {channel}: {damage}");
                }
                continue;
            }
            _ = &mut stopped => break,
            () = &mut unread => break,
        };
        let Some(event) = event else {
            let why = subscription.ended().unwrap_or(Ended::Cancelled);
            return Err(CliError::Failed {
                message: format!("the subscription has ended: {why}"),
                help: None,
            });
        };
        let seen = Seen::new(&event);
        if seen.missed > 0 && !output.is_json() {
            let (missed, channel) = (seen.missed, seen.channel);
            anstream::eprintln!(
                "warning: {missed} events of {channel} before the next one are not kept any more"
            );
        }
        output.line(&seen, || seen.line());
        left -= 1;
    }
    Ok(())
}

/// `sealbus channel request CHANNEL TEXT`
pub(crate) async fn request(
    connection: &mut Connection,
    request: &ChannelRequest,
    output: Output,
) -> Result<(), CliError> {
    let question = message(
        &request.performative,
        &content(&request.text)?,
        &request.header.property,
    )?;
    let member = Member::join(connection, "request").await?;
    member
        .during(async |member| ask(member, question, request, output).await)
        .await
}

async fn ask(
    member: &Member,
    question: AclMessage,
    request: &ChannelRequest,
    output: Output,
) -> Result<(), CliError> {
    let channel = channel(member, &request.channel, &request.header.qos)?;
    let options = RequestOptions {
        within: request.timeout.0,
        first: request.first,
    };
    let waiting = output.waiting(&format!("waiting for answers on {}", channel.path()));
    let mut replies = channel
        .request_with(question, options, QosOverride::default())
        .await
        .map_err(not_published)?;
    let mut answers = Vec::new();
    while let Some(reply) = replies.next().await {
        if !output.is_json() {
            waiting.suspend(|| anstream::println!("{}", shown(&Seen::new(&reply).line())));
        }
        answers.push(reply);
    }
    waiting.finish_and_clear();
    let missing = replies.missing();
    if output.is_json() {
        let seen: Vec<_> = answers.iter().map(Seen::new).collect();
        let missing: Vec<&str> = missing.iter().map(|name| &**name).collect();
        output.show(&json!({ "replies": seen, "missing": missing }), String::new);
    } else if !missing.is_empty() {
        anstream::println!("no answer from {}", printable(&missing.join(", ")));
    } else if answers.is_empty() {
        anstream::println!("nobody answers on {}", channel.path());
    }
    Ok(())
}
