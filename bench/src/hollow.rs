//! A real Master beside many real nodes that run no programs, over loopback: what each second of their heartbeats, and their
//! return after its restart, cost the Master.
//!
//! Its bytes are those of the loopback interface, with all headers: run it in a network namespace of its own
//! (`unshare -n sh -c 'ip link set lo up; sealbus-bench hollow'`).

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealbus_control::Fault;
use sealbus_control::admin::{NodeState, ask};
use sealbus_control::operators;
use sealbus_control::rpc::RpcCaller;
use sealbus_manifest::isolation::Isolation;
use sealbus_master::{Master, MasterConfig, MasterError, PlatformSettings};
use sealbus_node::{IsolationConfig, Node, NodeConfig, NodeError, SLOTS};
use sealbus_seal::PlatformName;
use sealbus_seal::token::{Purpose, Token};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::papers::process::{Cost, cost};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A wait that never ends a measurement.
const WITHIN: Duration = Duration::from_secs(600);
/// Nodes that join at a time.
const AT_ONCE: usize = 8;
/// The open files of a node, and of the rest of this process, for which it asks if the system allows so many.
const FILES_OF_NODE: u64 = 40;
const FILES: u64 = 1000;
/// The nodes and the heartbeats' share of a core in the design.
const GOAL: (usize, f64) = (10_000, 0.1);

/// The options of the measurement.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Nodes
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Seconds of heartbeats
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Write the figures as JSON to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Be the Master with this state directory, until the standard input ends
    #[arg(long, value_name = "DIR", hide = true)]
    master: Option<PathBuf>,
}

/// A fault of this measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HollowError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("the Master: {0}")]
    Master(#[from] MasterError),
    #[error("a node: {0}")]
    Node(#[from] NodeError),
    #[error("the Master refused: {0}")]
    Fault(#[from] Fault),
    #[error("{0}")]
    Other(String),
}

fn other(error: impl std::fmt::Display) -> HollowError {
    HollowError::Other(error.to_string())
}

/// The cost of a part of the measurement for the Master.
#[derive(Clone, Copy, Debug, Serialize)]
struct Part {
    seconds: f64,
    processor_seconds: f64,
    loopback_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Figures {
    nodes: usize,
    joining: Part,
    heartbeats: Part,
    restart: Part,
    /// The most memory of the Master's process, in bytes.
    memory: u64,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<(), HollowError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if let Some(directory) = &arguments.master {
        return runtime.block_on(be_master(directory));
    }
    let wanted = arguments.nodes as u64 * FILES_OF_NODE + FILES;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(maximum.map_or(wanted, |most| most.min(wanted))),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).map_err(other)?;
    let folder = tempfile::tempdir()?;
    let figures = runtime.block_on(measure(arguments, folder.path()))?;
    print(&figures);
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_vec_pretty(&figures)?)?;
    }
    Ok(())
}

async fn be_master(directory: &Path) -> Result<(), HollowError> {
    let config = MasterConfig {
        directory: directory.to_owned(),
        settings: PlatformSettings::new(PlatformName::new("factory").map_err(other)?),
        address: HERE,
        port: 0,
        enrolment_port: 0,
        metrics: None,
        accept_clock: false,
    };
    let master = Master::start(config).await?;
    println!("up");
    std::io::stdout().flush()?;
    let mut rest = String::new();
    BufReader::new(tokio::io::stdin())
        .read_line(&mut rest)
        .await?;
    master.abandon().await;
    Ok(())
}

/// The Master in a process of its own.
struct Apart {
    child: Child,
    operator: RpcCaller,
}

impl Apart {
    async fn start(directory: &Path) -> Result<Self, HollowError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["hollow", "--master"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut said).await?;
        }
        if said.trim() != "up" {
            return Err(other("the Master does not start"));
        }
        let operator = operators::connect(directory).await?;
        Ok(Self { child, operator })
    }

    fn cost(&self) -> Cost {
        cost(&self.child.id().into_iter().collect::<Vec<_>>())
    }

    /// Waits until so many nodes are alive.
    async fn alive(&self, count: usize) -> Result<(), HollowError> {
        let waiting = async {
            loop {
                let all = ask::Nodes::default();
                let nodes = self.operator.list(all, WITHIN).await?;
                let alive = nodes.iter().filter(|node| node.state == NodeState::Alive);
                if alive.count() == count {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = tokio::time::timeout(WITHIN, waiting).await;
        waited.map_err(|_| other(format!("{count} nodes do not come")))?
    }

    async fn join(&self, directory: PathBuf) -> Result<Node, HollowError> {
        let token = ask::Token {
            node: None,
            lifetime: WITHIN.as_secs(),
            master: false,
        };
        let issued = self.operator.ask(token, WITHIN).await?;
        let config = NodeConfig {
            directory,
            token: Some(Token::parse(Purpose::Join, &issued.token).map_err(other)?),
            join: None,
            name: None,
            address: HERE,
            isolation: IsolationConfig {
                mode: Some(Isolation::None),
                launcher: "/nowhere".into(),
                hidden: Vec::new(),
                slots: SLOTS,
            },
            metrics: None,
        };
        Ok(Node::start(config).await?)
    }
}

/// The bytes that crossed the loopback interface.
fn loopback() -> u64 {
    let text = std::fs::read_to_string("/sys/class/net/lo/statistics/rx_bytes");
    let bytes = text.ok().and_then(|text| text.trim().parse().ok());
    bytes.unwrap_or_default()
}

/// The beginning of a part.
struct Began {
    at: Instant,
    processor: f64,
    bytes: u64,
}

impl Began {
    fn with(processor: f64) -> Self {
        Self {
            at: Instant::now(),
            processor,
            bytes: loopback(),
        }
    }

    fn until(self, cost: &Cost) -> Part {
        Part {
            seconds: self.at.elapsed().as_secs_f64(),
            processor_seconds: cost.processor_s - self.processor,
            loopback_bytes: loopback() - self.bytes,
        }
    }
}

async fn measure(arguments: &Arguments, folder: &Path) -> Result<Figures, HollowError> {
    let count = arguments.nodes;
    let directory = folder.join("master");
    let master = Apart::start(&directory).await?;
    let began = Began::with(master.cost().processor_s);
    let joining = stream::iter(0..count).map(|number| master.join(folder.join(number.to_string())));
    let nodes: Vec<Node> = joining.buffer_unordered(AT_ONCE).try_collect().await?;
    master.alive(count).await?;
    let joining = began.until(&master.cost());
    // The last nodes still learn the places of all agents.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let began = Began::with(master.cost().processor_s);
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    let spent = master.cost();
    let heartbeats = began.until(&spent);

    let Apart { mut child, .. } = master;
    child.kill().await?;
    let began = Began::with(0.0);
    let master = Apart::start(&directory).await?;
    master.alive(count).await?;
    let again = master.cost();
    let figures = Figures {
        nodes: count,
        joining,
        heartbeats,
        restart: began.until(&again),
        memory: spent.memory.max(again.memory),
    };
    drop(nodes);
    Ok(figures)
}

fn print(figures: &Figures) {
    let nodes = figures.nodes;
    let part = |name: &str, part: &Part| {
        println!(
            "  {name:10} {:7.1} s, {:7.2} s of a processor, {:11} bytes over loopback",
            part.seconds, part.processor_seconds, part.loopback_bytes
        );
    };
    println!("a Master and {nodes} nodes without programs");
    part("joining", &figures.joining);
    part("heartbeats", &figures.heartbeats);
    part("restart", &figures.restart);
    let Part {
        seconds,
        processor_seconds,
        loopback_bytes,
    } = figures.heartbeats;
    let share = processor_seconds / seconds;
    let each = seconds * nodes as f64;
    let (goal, budget) = GOAL;
    println!(
        "each node's second: {:.0} µs of a processor, {:.0} bytes; {:.3} of a core, and {:.2} with {goal} nodes (goal: {budget})",
        processor_seconds / each * 1e6,
        loopback_bytes as f64 / each,
        share,
        share * goal as f64 / nodes as f64,
    );
    println!(
        "memory: {} MiB, {} kB a node",
        figures.memory >> 20,
        figures.memory / 1000 / nodes as u64
    );
}
