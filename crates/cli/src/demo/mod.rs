//! `sealbus demo`: certified agents on two nodes talk at every level, and impostors are refused.

mod agent;
mod attack;
mod conversation;
mod report;
mod showing;
mod stage;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use owo_colors::OwoColorize;
use sealbus_brokers::rabbitmq::{BrokerError, ManagedBroker};
use sealbus_control::admin::ServiceStatus;
use sealbus_fipa::split_name;
use sealbus_seal::SecurityLevel;

pub(crate) use self::agent::serve as serve_agent;
pub(crate) use self::attack::run as attack;
use self::conversation::{Question, RECEIVER, Received, SENDER, Sent, Task};
use self::report::{LevelReport, Report};
use self::showing::Showing;
use self::stage::{AGENTS, NODES, Stage};
use crate::arguments::{Demo, DemoTransport};
use crate::error::CliError;
use crate::output::Output;
use crate::python::Python;

/// Messages sent by each sender.
const MESSAGES: u32 = 500;
/// Microseconds from one message to the next.
const INTERVAL_US: u64 = 1_000;
/// How long a receiver may get no new message before it counts as finished.
const QUIET: Duration = Duration::from_secs(30);

/// Commands to try after the demo.
const NEXT: [(&str, &str); 5] = [
    ("sealbus up", "a platform of your own, in this terminal"),
    (
        "sealbus demo --window",
        "the same in a browser: who talks to whom, and each attack as it is refused",
    ),
    (
        "sealbus token --name node-2",
        "then `sealbus node --token TOKEN` on another machine",
    ),
    (
        "sealbus ps --refused",
        "who runs where; what was refused, and why",
    ),
    (
        "sealbus ca log --follow",
        "the six steps of each certification, as they happen",
    ),
];

/// Runs the demo. The exit code says whether everything arrived and every attack was refused.
pub(crate) async fn run(demo: &Demo, output: Output) -> Result<ExitCode, CliError> {
    let levels = if demo.level.is_empty() {
        vec![SecurityLevel::None, SecurityLevel::Tls, SecurityLevel::Auth]
    } else {
        demo.level.clone()
    };
    if demo.window && !levels.contains(&SecurityLevel::Auth) {
        return Err(CliError::Usage {
            message: "the window shows level auth, and the attacks there".to_owned(),
            help: "add --level auth".to_owned(),
        });
    }
    if demo.transport == DemoTransport::RabbitMq && !ManagedBroker::is_installed() {
        return Err(CliError::Failed {
            message: BrokerError::NotInstalled.to_string(),
            help: Some(
                "the demo starts a RabbitMQ of its own, so the system's service need not run"
                    .to_owned(),
            ),
        });
    }
    let python = Python::find(demo.python.as_deref()).await?.program;
    let mut report = Report {
        nodes: NODES,
        agents: AGENTS,
        ..Report::default()
    };
    for level in levels {
        let steps = output.waiting(&format!(
            "level {level}: starting a Master, {NODES} nodes, {AGENTS} agents"
        ));
        let mut stage = Stage::open(level, demo.transport, &python).await?;
        if let Err(error) = play(&mut stage, &mut report, &steps, demo, output).await {
            stage.abandon().await;
            return Err(error);
        }
        steps.set_message(format!("level {level}: ending"));
        stage.close().await?;
        steps.finish_and_clear();
    }
    if let Some(file) = &demo.report {
        report.write(file)?;
    }
    conclude(&report, demo, output);
    Ok(if report.faults().is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The agents' work at every level, and its reason.
const TALK: &str = "  Ten agents find a partner in the yellow pages (DF) and write to it, 500 messages each, Rust and Python in turn.
  Each message must arrive once and in order.";
/// The attackers' work, and its reason.
const ATTACKS: &str = "  Now four programs attack the port of one agent: with a forged name, without a certificate, with one of another
  authority, and with a revoked one. None of their messages may arrive, and each refusal must say its reason.";

/// The protection that a level gives, and the reason to show the level.
const fn meaning(level: SecurityLevel) -> &'static str {
    match level {
        SecurityLevel::None => {
            "\nPlain TCP: anybody may read, and write in any name. The floor that the others are measured against."
        }
        SecurityLevel::Tls => {
            "\nTLS 1.3 with post-quantum key exchange: nobody else reads or changes a message, but its sender is only claimed."
        }
        SecurityLevel::Signed => {
            "\nCertified agents that sign their messages: a receiver knows who writes, and can prove it to others."
        }
        SecurityLevel::Sealed => {
            "\nCertified agents that sign and seal their messages: only the receiver reads them, and no node between."
        }
        SecurityLevel::Auth => {
            "\nCertified agents, the default: each makes its own key, and the platform's CA certifies it before it may send. Each
connection proves who writes, so a receiver knows it."
        }
    }
}

/// The part of the demo that needs a running platform.
async fn play(
    stage: &mut Stage,
    report: &mut Report,
    steps: &ProgressBar,
    demo: &Demo,
    output: Output,
) -> Result<(), CliError> {
    let level = stage.level();
    say(output, meaning(level));
    say(output, &placement(stage).await?);
    let mut showing = None;
    if demo.window && level == SecurityLevel::Auth {
        let mut window = Showing::open(stage, output).await?;
        steps.set_message("level auth: waiting for somebody to look");
        window.opened().await;
        showing = Some(window);
    }
    steps.set_message(format!("level {level}: 10 pairs talk"));
    say(output, TALK);
    report.levels.push(traffic(stage).await?);
    if level == SecurityLevel::Auth {
        say(output, ATTACKS);
        steps.set_message("level auth: four attacks");
        report.refusals = attack::all(stage).await?;
    }
    report.certificates += stage.status().await?.certificates;
    if let Some(mut showing) = showing {
        steps.set_message("level auth: shown in a browser");
        showing.looked_at(output).await;
    }
    Ok(())
}

/// Ten pairs at once: each sender finds its receiver in the DF and writes to it.
async fn traffic(stage: &mut Stage) -> Result<LevelReport, CliError> {
    let mut senders = names(&stage.services(SENDER).await?);
    let mut receivers = names(&stage.services(RECEIVER).await?);
    senders.sort();
    // The order is reversed, so that Rust agents talk to Python agents as well as to Rust agents.
    receivers.sort_by(|one, other| one.bytes().rev().cmp(other.bytes().rev()));
    let stage = &*stage;
    let pairs = senders
        .iter()
        .zip(&receivers)
        .map(|(sender, receiver)| pair(stage, sender, receiver));
    let pairs = try_join_all(pairs).await?;
    Ok(LevelReport::new(stage.level(), &pairs))
}

/// The local names of the agents that offer something.
fn names(services: &[ServiceStatus]) -> Vec<String> {
    services
        .iter()
        .map(|service| split_name(&service.agent).0.to_owned())
        .collect()
}

/// Lets one sender send, and asks its receiver until all messages have arrived or no more come.
async fn pair(stage: &Stage, sender: &str, receiver: &str) -> Result<(Sent, Received), CliError> {
    let conversation = format!("traffic-{sender}");
    let task = Task {
        service: receiver.to_owned(),
        conversation: conversation.clone(),
        count: MESSAGES,
        interval_us: INTERVAL_US,
    };
    let sent: Sent = stage.converse(sender, "request", &task).await?;
    let question = Question { conversation };
    let mut quiet_since = Instant::now();
    let mut arrived = 0;
    loop {
        let received: Received = stage.converse(receiver, "query-ref", &question).await?;
        if received.received >= sent.sent || quiet_since.elapsed() > QUIET {
            return Ok((sent, received));
        }
        if received.received > arrived {
            arrived = received.received;
            quiet_since = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The placement of the agents by the Master, in one line.
async fn placement(stage: &Stage) -> Result<String, CliError> {
    let mut nodes = BTreeMap::<String, u32>::new();
    for agent in stage.agents().await? {
        if let Some(node) = agent.node {
            *nodes.entry(node).or_default() += 1;
        }
    }
    let nodes: Vec<String> = nodes
        .into_iter()
        .map(|(node, agents)| format!("{agents} on {node}"))
        .collect();
    let services = stage.services(SENDER).await?.len() + stage.services(RECEIVER).await?.len();
    Ok(format!(
        "level {:<4}  a Master with its CA, {NODES} nodes; {} agents certified and placed ({}); {services} services in the DF",
        stage.level(),
        AGENTS,
        nodes.join(", ")
    ))
}

/// Prints a line for people between the steps.
fn say(output: Output, line: &str) {
    if !output.is_json() {
        anstream::println!("{line}");
    }
}

/// Prints the tables, any faults, and commands to try next.
fn conclude(report: &Report, demo: &Demo, output: Output) {
    output.show(report, || {
        let mut text = format!("\n{}\n", report.levels_table());
        if !report.refusals.is_empty() {
            text += &format!("\n{}\n", report.refusals_text());
        }
        text += &format!(
            "\n{} certificates issued to {} agents on {} nodes\n",
            report.certificates, report.agents, report.nodes,
        );
        if let Some(file) = &demo.report {
            text += &format!("report: {}\n", file.display());
        }
        for fault in report.faults() {
            text += &format!("\n{} {fault}", "FAULT".red().bold());
        }
        if report.faults().is_empty() {
            text += &format!(
                "\n{}\n",
                "Every message arrived once and in order; every attack was refused.".green()
            );
        }
        text += "\nTry next:\n";
        for (command, what) in NEXT {
            text += &format!("  {:<32} {what}\n", command.cyan());
        }
        text
    });
    if output.is_json() {
        for fault in report.faults() {
            anstream::eprintln!("{fault}");
        }
    }
}
