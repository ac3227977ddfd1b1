//! Four attacks, each made by a program of its own against a real agent, and the platform's reasons for refusing them.

mod amqp;
mod intruder;

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use sealbus_control::RefusalRecord;
use sealbus_control::admin::ask;
use sealbus_fipa::split_name;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::conversation::{Question, RECEIVER, Received, SENDER};
use super::report::RefusedAttack;
use super::stage::{PLATFORM, Stage};
use crate::arguments::{AttackKind, DemoTransport};
use crate::error::CliError;

pub(crate) use intruder::run;

/// The error that stopped an intruder.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long the intruder may take to start, and the platform to refuse it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the intruder goes on after the platform refused it. Its further messages must not arrive either.
const ENCORE: Duration = Duration::from_millis(300);
/// How many refusals by the broker are required where the platform never hears of the attack.
const REFUSED_BY_BROKER: u32 = 3;
/// The line that the intruder prints when one of its messages was accepted.
const TAKEN: &str = "taken";

impl AttackKind {
    /// A description of the attack, for people.
    fn title(self) -> &'static str {
        match self {
            Self::Forgery => "an agent forges another's sender name",
            Self::NoCertificate => "a process without a certificate connects",
            Self::OtherAuthority => "a process shows a certificate from another CA",
            Self::Revoked => "a revoked agent goes on sending",
        }
    }

    /// The name that the intruder uses, if it must be certified first.
    fn agent(self) -> Option<&'static str> {
        match self {
            Self::Forgery => Some("forger"),
            Self::Revoked => Some("turncoat"),
            Self::NoCertificate | Self::OtherAuthority => None,
        }
    }
}

/// Makes all attacks, one after another.
pub(crate) async fn all(stage: &mut Stage) -> Result<Vec<RefusedAttack>, CliError> {
    let mut refusals = Vec::new();
    for kind in AttackKind::value_variants() {
        refusals.push(attack(stage, *kind).await?);
    }
    Ok(refusals)
}

/// Makes one attack: starts the intruder, waits until the platform reports a refusal, and asks the receiver which
/// messages arrived.
async fn attack(stage: &mut Stage, kind: AttackKind) -> Result<RefusedAttack, CliError> {
    let target = Target::find(stage).await?;
    if stage.transport() == DemoTransport::RabbitMq && kind != AttackKind::Forgery {
        return attack_broker(stage, kind, &target).await;
    }
    let conversation = format!("attack-{kind:?}").to_lowercase();
    let before = refusals(stage).await?;
    let mut intruder = Intruder::start(stage, kind, &target, &conversation).await?;
    let mut honest = 0;
    if kind == AttackKind::Revoked {
        // Until the revocation, the platform accepts the intruder's messages.
        intruder.until_taken().await?;
        let request = ask::Revoke {
            what: intruder.agent.to_owned(),
            reason: "caught by the demo".to_owned(),
        };
        stage.connect().await?.ask(request).await?;
    }
    let record = new_refusal(stage, &before, kind.agent()).await?;
    if kind == AttackKind::Revoked {
        // After the first refusal no message may arrive. Earlier messages precede this question.
        honest = count(stage, &target, &conversation).await?;
    }
    tokio::time::sleep(ENCORE).await;
    let said = intruder.end().await;
    let arrived = count(stage, &target, &conversation).await?;
    Ok(RefusedAttack {
        attack: kind.title().to_owned(),
        refused: record.is_some() && arrived == honest,
        reason: match record {
            Some(record) if arrived == honest => record.reason,
            Some(record) => format!(
                "{} messages arrived after: {}",
                arrived - honest,
                record.reason
            ),
            None => format!("the platform refused nothing; the intruder says: {said}"),
        },
    })
}

/// Makes an attack that the broker refuses. The broker keeps no record of refusals, so this counts the answers to the
/// intruder and the messages that arrived.
async fn attack_broker(
    stage: &mut Stage,
    kind: AttackKind,
    target: &Target,
) -> Result<RefusedAttack, CliError> {
    let conversation = format!("attack-{kind:?}").to_lowercase();
    let mut intruder = Intruder::start(stage, kind, target, &conversation).await?;
    if kind == AttackKind::Revoked {
        intruder.until_taken().await?;
        let request = ask::Revoke {
            what: intruder.agent.to_owned(),
            reason: "caught by the demo".to_owned(),
        };
        stage.connect().await?.ask(request).await?;
    }
    let said = intruder.until_refused(REFUSED_BY_BROKER).await?;
    // All messages that the broker took before precede this question, because order is kept.
    let honest = count(stage, target, &conversation).await?;
    tokio::time::sleep(ENCORE).await;
    intruder.end().await;
    let arrived = count(stage, target, &conversation).await?;
    let is_clean = arrived == honest && (kind == AttackKind::Revoked || honest == 0);
    Ok(RefusedAttack {
        attack: kind.title().to_owned(),
        refused: said.is_some() && is_clean,
        reason: match said {
            Some(said) if is_clean => format!("refused by the broker: {said}"),
            Some(said) => format!("{arrived} messages arrived, although: {said}"),
            None => "the broker refused nothing".to_owned(),
        },
    })
}

/// The target of an attack.
struct Target {
    /// The agent under attack.
    receiver: String,
    /// The address of the agent's process, or of the broker.
    address: SocketAddr,
    /// An agent whose name the intruder borrows.
    innocent: String,
}

impl Target {
    async fn find(stage: &Stage) -> Result<Self, CliError> {
        let missing = || CliError::Failed {
            message: "there is no agent to attack".to_owned(),
            help: Some(format!("the logs are in {}", stage.directory().display())),
        };
        let receiver = stage
            .services(RECEIVER)
            .await?
            .into_iter()
            .next()
            .ok_or_else(missing)?
            .agent;
        let innocent = stage
            .services(SENDER)
            .await?
            .into_iter()
            .next()
            .ok_or_else(missing)?
            .agent;
        let address = match stage.transport() {
            DemoTransport::Mesh => {
                let agents = stage.agents().await?;
                let found = agents.into_iter().find(|agent| agent.name == receiver);
                found.and_then(|agent| agent.address)
            }
            DemoTransport::RabbitMq => stage.broker().await?,
        };
        let address = address.ok_or_else(missing)?;
        Ok(Self {
            receiver,
            address,
            innocent,
        })
    }
}

/// The attacking process.
struct Intruder {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    agent: &'static str,
}

impl Intruder {
    async fn start(
        stage: &Stage,
        kind: AttackKind,
        target: &Target,
        conversation: &str,
    ) -> Result<Self, CliError> {
        let failed = CliError::file("start", "the intruder");
        let mut command = Command::new(std::env::current_exe().map_err(&failed)?);
        command
            .arg("demo-attack")
            .arg(
                kind.to_possible_value()
                    .map_or_else(String::new, |value| value.get_name().to_owned()),
            )
            .args(["--receiver", &target.receiver])
            .args(["--address", &target.address.to_string()])
            .args(["--innocent", &target.innocent])
            .args(["--conversation", conversation]);
        if stage.transport() == DemoTransport::RabbitMq {
            command.args(["--broker", PLATFORM]);
        }
        if let Some(agent) = kind.agent() {
            let request = ask::Ticket {
                agent: agent.to_owned(),
                others: Vec::new(),
                node: None,
                lifetime: PATIENCE.as_secs(),
            };
            let ticket = stage.connect().await?.ask(request).await?;
            command.env("SEALBUS_TICKET", ticket.token);
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(&failed)?;
        let output = process.stdout.take().ok_or_else(|| CliError::Failed {
            message: "the intruder has no output to read".to_owned(),
            help: None,
        })?;
        let output = BufReader::new(output).lines();
        Ok(Self {
            process,
            output,
            agent: kind.agent().unwrap_or_default(),
        })
    }

    /// Waits until the platform took a message from the intruder.
    async fn until_taken(&mut self) -> Result<(), CliError> {
        let failed = |message: &str| CliError::Failed {
            message: message.to_owned(),
            help: None,
        };
        let taken = async {
            while let Ok(Some(line)) = self.output.next_line().await {
                if line == TAKEN {
                    return true;
                }
            }
            false
        };
        match tokio::time::timeout(PATIENCE, taken).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed("the agent that was to be revoked ended before")),
            Err(_) => Err(failed(
                "the agent that was to be revoked could not send before",
            )),
        }
    }

    /// Waits until the intruder was refused this many times in a row. Returns the latest answer to it.
    async fn until_refused(&mut self, times: u32) -> Result<Option<String>, CliError> {
        let refused = async {
            let mut told = 0;
            while let Ok(Some(line)) = self.output.next_line().await {
                told = if line == TAKEN { 0 } else { told + 1 };
                if told >= times {
                    return Some(line);
                }
            }
            None
        };
        Ok(tokio::time::timeout(PATIENCE, refused).await.ok().flatten())
    }

    /// Ends the intruder. Returns the last line it printed.
    async fn end(mut self) -> String {
        // The process may have ended by itself.
        let _ = self.process.start_kill();
        let mut last = "nothing".to_owned();
        while let Ok(Some(line)) = self.output.next_line().await {
            last = line;
        }
        last
    }
}

/// The refusals of the platform's processes so far.
async fn refusals(stage: &Stage) -> Result<Vec<RefusalRecord>, CliError> {
    stage.connect().await?.ask(ask::Refusals).await
}

/// The first refusal for a new reason. Processes report once a second, so refusals of an earlier intruder may still
/// come in; their reasons are already known.
async fn new_refusal(
    stage: &Stage,
    before: &[RefusalRecord],
    agent: Option<&str>,
) -> Result<Option<RefusalRecord>, CliError> {
    let is_new = |record: &RefusalRecord| {
        before.iter().all(|old| old.reason != record.reason)
            && agent.is_none_or(|agent| record.who.contains(agent) || record.reason.contains(agent))
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = refusals(stage).await?.into_iter().find(is_new);
        if found.is_some() || Instant::now() > deadline {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The number of messages that the receiver counted in the conversation.
async fn count(stage: &Stage, target: &Target, conversation: &str) -> Result<u32, CliError> {
    let question = Question {
        conversation: conversation.to_owned(),
    };
    let received: Received = stage
        .converse(split_name(&target.receiver).0, "query-ref", &question)
        .await?;
    Ok(received.received)
}
