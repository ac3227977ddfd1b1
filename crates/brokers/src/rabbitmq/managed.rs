//! A private RabbitMQ. It starts with the platform, in a folder of its own, and ends with it.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use sealbus_files::write_private;
use sealbus_seal::random_hex;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::files::{CONFIGURATION, PLUGINS};
use crate::lasting_address;

/// The places outside `PATH` where distributions install the server. Debian's script on `PATH` insists on a user of its
/// own.
const KNOWN_PLACES: [&str; 2] = ["/usr/lib/rabbitmq/bin", "/opt/rabbitmq/sbin"];
/// How long the broker may take to start. An Erlang node needs seconds of processor time, and a member of a cluster
/// waits for others.
const STARTING: Duration = Duration::from_secs(300);
/// How long the broker may take to end.
#[cfg(unix)]
const ENDING: Duration = Duration::from_secs(20);
/// How long the broker's ports may take to become free, and its port mapper to notice the broker's end. Other brokers of
/// a cluster may go on using the mapper.
const FORGETTING: Duration = Duration::from_secs(5);
/// The file name of the broker's process number.
const PID: &str = "broker.pid";
/// The file name of the cookie by which Erlang nodes know each other. Erlang looks for the file there.
const COOKIE: &str = ".erlang.cookie";
/// The file name of the broker's ports.
const PORTS: &str = "ports.json";
/// How often new ports are drawn for a broker that another program keeps from one of them.
const DRAWS: usize = 10;

/// A broker could not be started or ended.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// RabbitMQ is not installed.
    #[error("rabbitmq-server is not installed: apt-get install rabbitmq-server")]
    NotInstalled,
    /// Brokers of the platform's own run on Unix alone.
    #[error(
        "a RabbitMQ of the platform's own needs Unix: name the addresses of one that runs elsewhere in [rabbitmq]"
    )]
    NeedsUnix,
    /// The system refused something.
    #[error("cannot {what} for the broker in {}: {error}", directory.display())]
    System {
        /// The attempt.
        what: &'static str,
        /// The broker's folder.
        directory: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The broker ended, or does not come up.
    #[error("the broker in {} does not start: {why}", directory.display())]
    NotStarted {
        /// The broker's folder.
        directory: PathBuf,
        /// The end of its log.
        why: String,
    },
    /// Another program uses one of the broker's ports.
    #[error(
        "the broker in {} does not start, because another program uses its port {port}: end that program",
        directory.display()
    )]
    PortInUse {
        /// The broker's folder.
        directory: PathBuf,
        /// The port.
        port: u16,
    },
}

/// The ports of a broker. They are kept, so that agents find the broker again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerPorts {
    /// AMQP.
    pub amqp: u16,
    /// The management interface.
    pub management: u16,
    /// Between brokers of a cluster.
    pub distribution: u16,
    /// For the broker's own Erlang port mapper.
    pub mapper: u16,
}

impl BrokerPorts {
    /// The ports kept in `directory`.
    pub fn kept(directory: &Path) -> Option<Self> {
        let kept = fs::read(directory.join(PORTS)).ok()?;
        serde_json::from_slice(&kept).ok()
    }

    /// Free ports of `address`. They are kept in `directory` from now on.
    fn draw(directory: &Path, address: IpAddr) -> io::Result<Self> {
        let free = || TcpListener::bind(lasting_address(address, 0));
        // Held together, so that they differ.
        let held = [free()?, free()?, free()?, free()?];
        let port = |index: usize| -> io::Result<u16> { Ok(held[index].local_addr()?.port()) };
        let ports = Self {
            amqp: port(0)?,
            management: port(1)?,
            distribution: port(2)?,
            mapper: port(3)?,
        };
        fs::create_dir_all(directory)?;
        write_private(&directory.join(PORTS), &serde_json::to_vec(&ports)?)?;
        Ok(ports)
    }

    /// The broker's addresses, and last its mapper's. Brokers of a cluster and their mapper meet on loopback.
    fn addresses(self, address: IpAddr) -> [SocketAddr; 4] {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        [
            (address, self.amqp),
            (address, self.management),
            (loopback, self.distribution),
            (loopback, self.mapper),
        ]
        .map(SocketAddr::from)
    }
}

/// A broker that this process started, or an earlier process on the same folder. Dropping the value leaves the broker
/// running.
#[derive(Debug)]
pub struct ManagedBroker {
    directory: PathBuf,
    address: IpAddr,
    ports: BrokerPorts,
    child: Option<Child>,
}

impl ManagedBroker {
    /// Whether RabbitMQ is installed on this machine.
    pub fn is_installed() -> bool {
        server().is_some()
    }

    /// Starts the broker whose files lie in `directory`, or finds it running, and waits until it listens at the ports
    /// kept there. `configure` writes the files that name the ports, and may change them.
    ///
    /// Another program can take a port between its choice and its use. So new ports are drawn until the broker has
    /// them all; ports of an earlier start stay, because agents know them.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn start(
        directory: &Path,
        address: IpAddr,
        configure: impl Fn(&mut BrokerPorts) -> io::Result<()>,
    ) -> Result<Self, BrokerError> {
        let kept = BrokerPorts::kept(directory);
        let mut draws = 1..DRAWS;
        loop {
            let ports = kept.map_or_else(|| BrokerPorts::draw(directory, address), Ok);
            let mut ports = ports.map_err(system(directory, "choose the ports"))?;
            configure(&mut ports).map_err(system(directory, "write the files"))?;
            let mut broker = Self::found(directory, address, ports);
            match broker.keep_running().await {
                Err(BrokerError::PortInUse { .. }) if kept.is_none() && draws.next().is_some() => {}
                done => return done.map(|_| broker),
            }
        }
    }

    /// The broker's ports.
    pub fn ports(&self) -> BrokerPorts {
        self.ports
    }

    /// The broker whose files lie in `directory`, whether it runs or not.
    pub fn found(directory: &Path, address: IpAddr, ports: BrokerPorts) -> Self {
        Self {
            directory: directory.to_owned(),
            address,
            ports,
            child: None,
        }
    }

    /// Starts the broker again if it has died, and waits until it listens. Returns whether it had died.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn keep_running(&mut self) -> Result<bool, BrokerError> {
        let ports = self.ports;
        let address = self.address;
        let broker = self;
        let is_ending = match &mut broker.child {
            Some(child) => child.try_wait().ok().flatten().is_none(),
            None => false,
        };
        let had_died = broker.pid().is_none() && !is_ending;
        if had_died {
            broker.wait_for_ports().await?;
            broker.child = Some(broker.spawn()?);
        }
        let listening = [ports.amqp, ports.management].map(|port| SocketAddr::new(address, port));
        let deadline = Instant::now() + STARTING;
        for at in listening {
            while TcpStream::connect(at).await.is_err() {
                let ended = match &mut broker.child {
                    Some(child) => child.try_wait().ok().flatten().is_some(),
                    None => broker.pid().is_none(),
                };
                if ended || Instant::now() > deadline {
                    let problem = match ended {
                        true => "it ended".to_owned(),
                        false => format!("nothing listens at {at} after {} s", STARTING.as_secs()),
                    };
                    let why = format!("{problem}: {}", broker.last_words());
                    broker.stop().await;
                    let directory = broker.directory.clone();
                    return Err(match in_use(&ports.addresses(address)) {
                        Some(port) => BrokerError::PortInUse { directory, port },
                        None => BrokerError::NotStarted { directory, why },
                    });
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(had_died)
    }

    /// Waits until the broker can have its ports. The processes of a killed broker need a moment to leave them. Its port
    /// mapper stays, and serves the next broker.
    async fn wait_for_ports(&self) -> Result<(), BrokerError> {
        let [listening @ .., _] = self.ports.addresses(self.address);
        let deadline = Instant::now() + FORGETTING;
        while let Some(port) = in_use(&listening) {
            if Instant::now() > deadline {
                let directory = self.directory.clone();
                return Err(BrokerError::PortInUse { directory, port });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The broker's process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.directory.join(PID)).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        // The number may belong to another process by now. Ours has the broker's folder as its home.
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let home = self.directory.as_os_str().as_encoded_bytes();
        let is_ours = command.split(|byte| *byte == 0).any(|word| word == home);
        is_ours.then_some(pid)
    }

    /// Ends the broker, by force if it takes too long.
    pub async fn stop(&mut self) {
        #[cfg(unix)]
        self.end_processes().await;
        // The port mapper outlives the broker otherwise.
        let deadline = Instant::now() + FORGETTING;
        while !self.end_mapper().await && Instant::now() < deadline {
            sleep(Duration::from_millis(50)).await;
        }
        let _ = fs::remove_file(self.directory.join(PID));
    }

    #[cfg(unix)]
    async fn end_processes(&mut self) {
        let pid = self
            .pid()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
            let deadline = Instant::now() + ENDING;
            while test_kill_process(pid).is_ok() && Instant::now() < deadline {
                if let Some(child) = &mut self.child {
                    let _ = child.try_wait();
                }
                sleep(Duration::from_millis(50)).await;
            }
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Some(mut child) = self.child.take() {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
        }
    }

    /// Ends the port mapper. Returns whether it is gone. The mapper refuses as long as it knows of a broker. Another
    /// program at its port may never answer.
    async fn end_mapper(&self) -> bool {
        let asked = tokio::process::Command::new("epmd")
            .args(["-port", &self.ports.mapper.to_string(), "-kill"])
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match timeout(FORGETTING, asked).await {
            Ok(Ok(said)) => !String::from_utf8_lossy(&said.stdout).contains("living nodes"),
            Ok(Err(_)) => true,
            Err(_) => false,
        }
    }

    fn node_name(&self) -> String {
        format!("sealbus{}@localhost", self.ports.amqp)
    }

    fn spawn(&self) -> Result<Child, BrokerError> {
        if cfg!(not(unix)) {
            return Err(BrokerError::NeedsUnix);
        }
        let directory = &self.directory;
        let system = |what| system(directory, what);
        for name in ["log", "mnesia", "generated", "schema"] {
            fs::create_dir_all(directory.join(name)).map_err(system("make a folder"))?;
        }
        self.make_cookie()
            .map_err(system("make the cookie of its Erlang node"))?;
        let log = File::create(directory.join("log/start.log")).map_err(system("make a log"))?;
        let copy = log.try_clone().map_err(system("make a log"))?;
        let at = |name: &str| directory.join(name);
        let mut command = Command::new(server().ok_or(BrokerError::NotInstalled)?);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("HOME", directory)
            .env("RABBITMQ_NODENAME", self.node_name())
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_CONFIG_FILE", at(CONFIGURATION).with_extension(""))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", at("advanced"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", at(PLUGINS))
            .env("RABBITMQ_MNESIA_BASE", at("mnesia"))
            .env("RABBITMQ_LOG_BASE", at("log"))
            .env("RABBITMQ_PID_FILE", at(PID))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", at("generated"))
            .env("RABBITMQ_SCHEMA_DIR", at("schema"))
            .env("RABBITMQ_FEATURE_FLAGS_FILE", at("feature_flags"))
            .env("RABBITMQ_DIST_PORT", self.ports.distribution.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", self.ports.mapper.to_string())
            // The settings allow only loopback between nodes, avoid spinning while idle, and leave time to shake hands
            // with `rabbitmqctl` and others on a busy machine.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none -kernel net_setuptime 120",
            )
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy);
        // An interrupt at the terminal is for the platform, which ends the broker last.
        #[cfg(unix)]
        command.process_group(0);
        command.spawn().map_err(system("start rabbitmq-server"))
    }

    /// Makes the cookie by which Erlang nodes know each other, if there is none. Erlang would make the file too. But
    /// two of its programs that start together would find each other's file half written. No node starts with an empty
    /// cookie, which a power cut or a full disk may have left.
    fn make_cookie(&self) -> io::Result<()> {
        let path = self.directory.join(COOKIE);
        match fs::metadata(&path) {
            Ok(kept) if kept.len() > 0 => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let cookie = random_hex::<16>().map_err(io::Error::other)?;
        write_private(&path, cookie.as_bytes())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log/start.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(8);
        let words = lines[from..].join(" / ");
        if words.is_empty() {
            format!("see its logs in {}", self.directory.join("log").display())
        } else {
            words
        }
    }
}

/// The first port that a program uses.
fn in_use(addresses: &[SocketAddr]) -> Option<u16> {
    let is_taken = |at: &&SocketAddr| {
        TcpListener::bind(at).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    addresses.iter().find(is_taken).map(SocketAddr::port)
}

fn system(directory: &Path, what: &'static str) -> impl Fn(io::Error) -> BrokerError {
    move |error| BrokerError::System {
        what,
        directory: directory.to_owned(),
        error,
    }
}

fn server() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    KNOWN_PLACES
        .iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join("rabbitmq-server"))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_ports_are_kept_and_no_outgoing_connection_takes_them() {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let folder = tempfile::tempdir().unwrap();
        let ports = BrokerPorts::draw(folder.path(), address).unwrap();
        assert_eq!(BrokerPorts::kept(folder.path()).unwrap(), ports);
        let taken = TcpListener::bind((address, 0)).unwrap();
        let outgoing = taken.local_addr().unwrap().port();
        let all = [
            ports.amqp,
            ports.management,
            ports.distribution,
            ports.mapper,
        ];
        assert!(all.iter().all(|port| *port < outgoing), "{ports:?}");
        let differ: std::collections::HashSet<u16> = all.into();
        assert_eq!(differ.len(), all.len());
    }

    #[test]
    fn an_empty_cookie_is_replaced_and_a_filled_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let ports = BrokerPorts {
            amqp: 1,
            management: 2,
            distribution: 3,
            mapper: 4,
        };
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let broker = ManagedBroker::found(folder.path(), address, ports);
        let cookie = folder.path().join(COOKIE);
        // The disk was full at an earlier start.
        fs::write(&cookie, "").unwrap();
        broker.make_cookie().unwrap();
        let made = fs::read(&cookie).unwrap();
        assert!(!made.is_empty());
        broker.make_cookie().unwrap();
        assert_eq!(fs::read(&cookie).unwrap(), made);
    }
}
