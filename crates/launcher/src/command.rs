//! The launcher as a process: its start by a node, and its first and last steps.
//!
//! The launcher's standard input is one end of a pair of sockets. The node writes the order, and shuts down its writing
//! side. The launcher writes [`SEALED`] just before it becomes the program. Then it writes an error, or `exec` closes
//! the socket.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use super::plan::{IsolationStep, NotIsolated, Order, Plan};

/// The hidden command of `sealbus` that is the launcher.
pub const SUBCOMMAND: &str = "launch";

/// The launcher writes this when it has sealed everything.
const SEALED: &[u8] = b"sealed\n";
/// Most bytes of an order.
const LONGEST: u64 = 64 * 1024 * 1024;

/// A launcher that is about to run.
pub struct Launching {
    order: Vec<u8>,
    socket: UnixStream,
}

/// Prepares a launcher. `program` is the `sealbus` command. The caller directs the output and starts the command.
///
/// # Errors
/// The system gives no pair of sockets.
pub fn launch(program: &Path, order: &Order) -> io::Result<(Command, Launching)> {
    let (socket, other) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command
        .arg(SUBCOMMAND)
        // The launcher is not sealed yet: no variable of the program may steer it.
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(other)));
    let order = serde_json::to_vec(order)?;
    Ok((command, Launching { order, socket }))
}

impl Launching {
    /// Gives the order to the running launcher, and waits until the launcher has become the program. Drop `command`
    /// first, because it holds the other end of the sockets.
    ///
    /// # Errors
    /// [`NotIsolated`] if the program does not run.
    pub fn wait(mut self) -> Result<(), NotIsolated> {
        let mut said = Vec::new();
        let heard = self
            .socket
            .write_all(&self.order)
            .and_then(|()| self.socket.shutdown(Shutdown::Write))
            .and_then(|()| self.socket.read_to_end(&mut said));
        if let Err(error) = heard {
            return Err(NotIsolated::because(
                IsolationStep::Session,
                &error,
                "the launcher does not listen",
            ));
        }
        if said == SEALED {
            return Ok(());
        }
        let problem = said.strip_prefix(SEALED).unwrap_or(&said);
        Err(
            serde_json::from_slice(problem).unwrap_or_else(|_| NotIsolated {
                step: IsolationStep::Session,
                cause: "its launcher ended without a word".to_owned(),
                errno: None,
            }),
        )
    }
}

impl NotIsolated {
    pub(crate) fn because(step: IsolationStep, error: &io::Error, what: &str) -> Self {
        let cause = match what {
            "" => error.to_string(),
            what => format!("{what}: {error}"),
        };
        let errno = error.raw_os_error();
        Self { step, cause, errno }
    }
}

/// The launcher itself: the hidden command [`SUBCOMMAND`]. It must be the only thread of its process.
pub fn run() -> ExitCode {
    let Ok(mut node) = take_standard_input() else {
        return ExitCode::FAILURE;
    };
    let mut order = Vec::new();
    let read = (&mut node).take(LONGEST).read_to_end(&mut order);
    let order: Order = match read
        .map_err(serde_json::Error::io)
        .and_then(|_| serde_json::from_slice(&order))
    {
        Ok(order) => order,
        Err(error) => {
            eprintln!("sealbus {SUBCOMMAND} is for nodes, which say what to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = match order {
        Order::Start(plan) => start(&plan, &mut node),
        Order::End { uid } => end(uid, &mut node),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // An error means that the node is gone, so nobody reads the problem.
            let _ = serde_json::to_writer(&mut node, &problem);
            ExitCode::FAILURE
        }
    }
}

/// The connection to the node. The program itself gets an empty standard input.
fn take_standard_input() -> io::Result<UnixStream> {
    let node = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(UnixStream::from(node))
}

/// Becomes the program. Returns only if that fails.
fn start(plan: &Plan, node: &mut UnixStream) -> Result<(), NotIsolated> {
    seal(plan, node)?;
    node.write_all(SEALED).map_err(|error| {
        NotIsolated::because(IsolationStep::Execute, &error, "the node is gone")
    })?;
    let error = Command::new(&plan.program)
        .args(&plan.arguments)
        .env_clear()
        .envs(&plan.environment)
        .current_dir(&plan.directory)
        .exec();
    Err(NotIsolated::because(
        IsolationStep::Execute,
        &error,
        &plan.program.display().to_string(),
    ))
}

#[cfg(target_os = "linux")]
fn seal(plan: &Plan, node: &UnixStream) -> Result<(), NotIsolated> {
    super::seal::seal(plan, node.as_fd())
}

#[cfg(not(target_os = "linux"))]
fn seal(plan: &Plan, _: &UnixStream) -> Result<(), NotIsolated> {
    let error = io::Error::from(io::ErrorKind::Unsupported);
    Err(NotIsolated::because(
        plan.steps()[0],
        &error,
        "only Linux seals programs",
    ))
}

#[cfg(target_os = "linux")]
fn end(uid: u32, node: &mut UnixStream) -> Result<(), NotIsolated> {
    super::slot::end(uid)?;
    let _ = node.write_all(SEALED);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn end(_: u32, _: &mut UnixStream) -> Result<(), NotIsolated> {
    Ok(())
}
