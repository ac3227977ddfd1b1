//! The mesh compared with raw TCP and raw mutual TLS: round trips and streams between two processes, measured in turns
//! in one run, and the cost of agents of one process.

mod agents;
pub(crate) mod credentials;
pub(crate) mod idle;
mod peer;
pub(crate) mod raw;
mod report;
mod threads;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use sealbus_bus::ProcessEndpoint;
use sealbus_seal::SecurityLevel;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::awake::Awake;
use crate::mesh::credentials::Authority;
use crate::mesh::report::{Report, Way};

/// Payloads of the round trips, in bytes of content.
const ROUND_TRIP_SIZES: [usize; 2] = [128, 16 << 10];
/// Content of the streamed messages, in bytes.
const STREAM_SIZE: usize = 64;
/// Messages of a stream that are sent at once, where many are.
const TOGETHER: usize = 1_000;

/// The subjects of the measurement, and its duration.
#[derive(Args, Clone)]
pub(crate) struct Arguments {
    /// Write the figures as JSON to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Round trips in each turn
    #[arg(long, default_value_t = 10_000)]
    round_trips: usize,
    /// Messages streamed in each turn
    #[arg(long, default_value_t = 2_000_000)]
    messages: usize,
    /// Turns; the median counts
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Idle agents whose memory is measured
    #[arg(long, default_value_t = 100_000)]
    idle_agents: usize,
    /// Only ways with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// Instead of all that, stream over two links at auth, with one I/O thread and with so many, in turns
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["json", "only"], value_parser = clap::value_parser!(u8).range(2..=64))]
    threads: Option<u8>,
    /// Be the other process
    #[arg(long, hide = true)]
    peer: Option<String>,
    /// Be the process with idle agents
    #[arg(long, hide = true)]
    idle: bool,
}

/// The reason why the figures could not be taken.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("the other process said {0:?}")]
    Peer(String),
    #[error("{0}")]
    Failed(String),
}

/// Any other error ends the run.
fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(error.to_string())
}

/// Runs one of the processes of the benchmark: the measuring one, unless the arguments name another.
pub(crate) fn run(arguments: &Arguments) -> Result<(), BenchError> {
    if let Some(threads) = arguments.threads {
        return threads::measure(arguments, threads.into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match &arguments.peer {
        Some(level) => runtime.block_on(peer::run(level)),
        None if arguments.idle => runtime.block_on(idle::measure(arguments.idle_agents)),
        // This is a task like those of agents. Waking a future that `block_on` runs itself costs more.
        None => runtime
            .block_on(async { tokio::spawn(measure_all(arguments.clone())).await })
            .map_err(failed)?,
    }
}

/// The other process, as this one talks to it.
struct Peer {
    _child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    async fn start(level: SecurityLevel, authority: &Authority) -> Result<Self, BenchError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["mesh", "--peer", level.as_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("the other process has no pipes"));
        };
        let mut peer = Self {
            _child: child,
            to,
            from: BufReader::new(from).lines(),
        };
        peer.say(&authority.root_text()).await?;
        while let Some(request) = peer.hear().await?.strip_prefix("certify ") {
            let chain = authority.certify_text(request).map_err(failed)?;
            peer.say(&chain).await?;
        }
        Ok(peer)
    }

    async fn say(&mut self, line: &str) -> Result<(), BenchError> {
        self.to.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    async fn hear(&mut self) -> Result<String, BenchError> {
        self.from
            .next_line()
            .await?
            .ok_or_else(|| failed("the other process has ended"))
    }

    async fn hear_address(&mut self) -> Result<SocketAddr, BenchError> {
        let line = self.hear().await?;
        line.parse().map_err(|_| BenchError::Peer(line))
    }
}

/// This process's agent, which has met those of the other process.
async fn open(
    peer: &mut Peer,
    level: SecurityLevel,
    authority: &Authority,
) -> Result<agents::Agents, BenchError> {
    let agents = agents::Agents::open(level, authority).await?;
    let own = agents.process();
    peer.say(&format!("mesh {} {}", own.address, own.identity))
        .await?;
    let address = peer.hear_address().await?;
    let identity = peer.hear().await?.parse().map_err(failed)?;
    agents.meet(ProcessEndpoint { identity, address });
    Ok(agents)
}

async fn measure_all(arguments: Arguments) -> Result<(), BenchError> {
    let authority = Authority::create().map_err(failed)?;
    let awake = Awake::hold();
    let mut report = Report::default();
    let arguments = &arguments;
    let is_wanted = |way: Way| way.name().contains(&arguments.only);
    for turn in 0..arguments.turns {
        for way in Way::ALL.into_iter().filter(|way| is_wanted(*way)) {
            eprintln!("turn {} of {}: {}", turn + 1, arguments.turns, way.name());
            measure(way, arguments, &authority, &mut report).await?;
        }
    }
    report.idle_processors = awake.words();
    drop(awake);
    if arguments.idle_agents > 0 && arguments.only.is_empty() {
        eprintln!("memory of {} idle agents", arguments.idle_agents);
        let output = Command::new(std::env::current_exe()?)
            .args([
                "mesh",
                "--idle",
                "--idle-agents",
                &arguments.idle_agents.to_string(),
            ])
            .output()
            .await?;
        report.idle = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(bytes, what)| Some((what.to_owned(), bytes.parse().ok()?)))
            .collect();
    }
    report.print();
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    Ok(())
}

async fn measure(
    way: Way,
    arguments: &Arguments,
    authority: &Authority,
    report: &mut Report,
) -> Result<(), BenchError> {
    let round_trips = arguments.round_trips;
    let level = match way {
        Way::InProcess => {
            for size in ROUND_TRIP_SIZES {
                let times = agents::in_process_round_trips(size, round_trips).await?;
                report.add_round_trips(way, size, times);
            }
            let rate = agents::in_process_stream(STREAM_SIZE, arguments.messages, 1).await?;
            report.add_stream(way, rate);
            return Ok(());
        }
        Way::InProcessMany => {
            let rate = agents::in_process_stream(STREAM_SIZE, arguments.messages, TOGETHER).await?;
            report.add_stream(way, rate);
            return Ok(());
        }
        Way::RawTcp | Way::MeshNone => SecurityLevel::None,
        Way::MeshTls => SecurityLevel::Tls,
        Way::RawTls | Way::MeshAuth | Way::MeshAuthMany => SecurityLevel::Auth,
        Way::MeshSigned | Way::MeshSignedMany => SecurityLevel::Signed,
    };
    let mut peer = Peer::start(level, authority).await?;
    if matches!(way, Way::RawTcp | Way::RawTls) {
        peer.say("raw").await?;
        let address = peer.hear_address().await?;
        let security = match level.encrypts() {
            true => {
                let credential = authority
                    .credential(raw::process("node-1")?)
                    .map_err(failed)?;
                Some((credential, authority.trust().map_err(failed)?))
            }
            false => None,
        };
        let mut stream = raw::connect(address, level, &security).await?;
        for size in ROUND_TRIP_SIZES {
            let encoded = agents::encoded_size(size)?;
            let times = raw::round_trips(&mut stream, encoded, round_trips).await?;
            report.add_round_trips(way, size, times);
        }
        let encoded = agents::encoded_size(STREAM_SIZE)?;
        let rate = raw::stream(&mut stream, encoded, arguments.messages).await?;
        report.add_stream(way, rate);
    } else {
        let agents = open(&mut peer, level, authority).await?;
        let together = match way {
            Way::MeshAuthMany | Way::MeshSignedMany => TOGETHER,
            _ => {
                for size in ROUND_TRIP_SIZES {
                    let times = agents.round_trips(size, round_trips).await?;
                    report.add_round_trips(way, size, times);
                }
                1
            }
        };
        let rate = agents
            .stream(STREAM_SIZE, arguments.messages, together)
            .await?;
        report.add_stream(way, rate);
        agents.leave().await;
    }
    Ok(())
}
