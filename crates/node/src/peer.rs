//! The process at the other end of a connection to the node's socket, in the words of the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::descendants;
use super::memory::Remembered;
use sealbus_control::{Fault, FaultCode};

/// The process at the other end of a connection. Over the network nothing is known of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) uid: Option<u32>,
    pub(crate) pid: Option<u32>,
    /// A handle to the process itself, if the kernel gives one. A process number may pass to another process when this
    /// one has ended.
    pub(crate) process: Option<Arc<OwnedFd>>,
}

impl Peer {
    /// The process that made a connection.
    ///
    /// # Errors
    /// The system does not say which.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let told = stream.peer_cred()?;
        Ok(Self {
            uid: Some(told.uid()),
            pid: told.pid().and_then(|pid| u32::try_from(pid).ok()),
            process: process_of(stream).map(Arc::new),
        })
    }

    /// A secret alone identifies nobody: the process that shows it must be the one that it was given to, or descend from
    /// it, and have its user.
    pub(crate) fn check(&self, known: &Remembered) -> Result<(), Fault> {
        let own_user = known.slot.is_none_or(|slot| self.uid == Some(slot));
        let own_process = match (known.pid, self.pid) {
            // The order matters: a process that is still there was there before, under the same number.
            (Some((program, _)), Some(pid)) => {
                descendants::belongs_to(pid, program) && self.is_there()
            }
            _ => true,
        };
        if own_user && own_process {
            return Ok(());
        }
        let message = format!(
            "the ticket is that of {}, which is another process",
            known.launch.group
        );
        Err(Fault::new(FaultCode::InvalidSecret, message)
            .advise("a program shows the ticket that it was started with, and starts others as its children"))
    }

    /// Waits until the process has ended: for ever, if the kernel gives no handle to it.
    #[expect(
        deprecated,
        reason = "the new call is unsafe; this one holds the descriptor, as that one asks for"
    )]
    pub(crate) async fn ended(&self) {
        let process = self.process.clone();
        let watched = process.map(|process| AsyncFd::with_interest(process, Interest::READABLE));
        // A handle becomes readable when its process ends (man 2 pidfd_open).
        match watched {
            Some(Ok(process)) if process.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Whether the process still has its number. Kernels before Linux 6.5 cannot tell.
    fn is_there(&self) -> bool {
        let (Some(pid), Some(process)) = (self.pid, &self.process) else {
            return true;
        };
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
        facts.is_ok_and(|facts| {
            let mut lines = facts.lines().filter_map(|line| line.strip_prefix("Pid:"));
            lines.any(|number| number.trim().parse() == Ok(pid))
        })
    }
}

#[cfg(target_os = "linux")]
fn process_of(stream: &UnixStream) -> Option<OwnedFd> {
    nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerPidfd).ok()
}

#[cfg(not(target_os = "linux"))]
fn process_of(_: &UnixStream) -> Option<OwnedFd> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::pin::pin;
    use std::process::{Command, Stdio};

    use rustix::process::{PidfdFlags, pidfd_open};

    use super::super::descendants::raw;
    use super::*;

    fn known(pid: u32) -> Remembered {
        let launch = serde_json::json!({
            "process": "p", "group": "g", "agents": ["g"], "command": ["/bin/true"], "environment": {},
        });
        Remembered {
            launch: serde_json::from_value(launch).unwrap(),
            pid: Some((pid, 0)),
            ticket: None,
            reattach: Vec::new(),
            slot: None,
            control_group: None,
            channels: false,
        }
    }

    #[tokio::test]
    async fn the_kernel_says_which_process_is_at_the_other_end() {
        let (ours, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        peer.check(&known(std::process::id())).unwrap();
    }

    /// Another process may have its number by now.
    #[tokio::test]
    async fn a_process_that_has_ended_is_not_taken_for_the_one_with_its_number() {
        let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = program.id();
        let process = pidfd_open(raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let peer = Peer {
            uid: None,
            pid: Some(pid),
            process: Some(Arc::new(process)),
        };
        peer.check(&known(pid)).unwrap();
        let mut ended = pin!(peer.ended());
        tokio::select! {
            biased;
            () = &mut ended => panic!("it runs"),
            () = std::future::ready(()) => {}
        }
        drop(program.stdin.take());
        ended.await;
        program.wait().unwrap();
        assert!(peer.check(&known(pid)).is_err());
    }
}
