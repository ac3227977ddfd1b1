//! The process at the other end of a connection to the node's socket, as the kernel knows it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use sealbus_seal::token::Secret;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::descendants;
use super::memory::Remembered;
use sealbus_control::attachment::MARK;
use sealbus_control::{Fault, FaultCode};

/// The most bytes of a mark that are read.
const LONGEST_MARK: u64 = 64;

/// The process at the other end of a connection. Over the network the kernel knows nothing about it, not even its user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) uid: Option<u32>,
    pub(crate) pid: Option<u32>,
    /// A handle to the process itself, if the kernel gives one. Another process may get its number when it has ended.
    pub(crate) process: Option<Arc<OwnedFd>>,
    /// The program's folder that has the process's mark.
    pub(crate) folder: Option<PathBuf>,
}

impl Peer {
    /// The process that made a connection.
    ///
    /// # Errors
    /// If the system does not tell which process it is.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let told = stream.peer_cred()?;
        Ok(Self {
            uid: Some(told.uid()),
            pid: told.pid().and_then(|pid| u32::try_from(pid).ok()),
            process: process_of(stream).map(Arc::new),
            folder: None,
        })
    }

    /// The same process, with this folder if the mark is in it.
    pub(crate) async fn marked(self, mark: Option<String>, folder: Option<PathBuf>) -> Self {
        let (Some(mark), Some(folder)) = (mark, folder) else {
            return self;
        };
        let looking = move || has_mark(&folder, &mark).then_some(folder);
        let found = tokio::task::spawn_blocking(looking).await;
        let folder = found.ok().flatten();
        Self { folder, ..self }
    }

    /// The user of the process, for the log.
    pub(crate) fn user(&self) -> String {
        match self.uid {
            Some(uid) => format!("the user {uid}"),
            None => "an unknown user".to_owned(),
        }
    }

    /// Checks that the process is the program with this secret. For a program that the node started, the secret alone
    /// proves nothing: the process must be that program, or descend from it, and have its user. Over the network, only
    /// a program without unix sockets comes, and proves by its mark that it is that program.
    pub(crate) fn check(&self, known: &Remembered) -> Result<(), Fault> {
        let own_user = known.slot.is_none_or(|slot| self.uid == Some(slot));
        let own_process = match (known.pid, self.pid) {
            _ if known.launch.command.is_empty() => true,
            _ if self.uid.is_none() => known.folder.is_some() && self.folder == known.folder,
            // The order matters: a process that is still there was already there before, under the same number.
            (Some((program, _)), Some(pid)) => {
                descendants::belongs_to(pid, program) && self.is_there()
            }
            // The program is just starting, or this system does not tell which process is at the other end.
            _ => true,
        };
        if own_user && own_process {
            return Ok(());
        }
        let message = format!(
            "the ticket is that of {}, which is another process",
            known.launch.group
        );
        Err(Fault::new(FaultCode::InvalidSecret, message).advise(
            "a program shows the ticket that it was started with, starts others as its children, and has the package of its \
             node's version",
        ))
    }

    /// Waits until the process has ended, or for ever if the kernel gives no handle to it.
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

/// Whether this mark is in a program's folder. The program may have put anything else in its place.
fn has_mark(folder: &Path, mark: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(folder.join(MARK), flags, Mode::empty()) else {
        return false;
    };
    let mut written = String::new();
    let read = File::from(file)
        .take(LONGEST_MARK)
        .read_to_string(&mut written);
    read.is_ok() && written == mark && mark.parse::<Secret>().is_ok()
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
            pid: Some((pid, 0)),
            ..Remembered::new(serde_json::from_value(launch).unwrap())
        }
    }

    #[tokio::test]
    async fn the_kernel_says_which_process_is_at_the_other_end() {
        let (ours, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        peer.check(&known(std::process::id())).unwrap();
    }

    /// Although programs are isolated in one mode, the node must not accept the secret of one from another.
    #[tokio::test]
    async fn a_secret_alone_lets_nobody_attach_for_a_program_that_the_node_started() {
        let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = |pid| Peer {
            uid: Some(1),
            pid: Some(pid),
            ..Peer::default()
        };
        let from_afar = Peer::default();
        let started = known(program.id());
        own(program.id()).check(&started).unwrap();
        for thief in [own(std::process::id()), from_afar.clone()] {
            let refused = thief.check(&started).unwrap_err();
            assert_eq!(refused.code, FaultCode::InvalidSecret);
        }
        // The program is just starting, so its process has no number yet.
        let begins = Remembered {
            pid: None,
            ..started.clone()
        };
        own(std::process::id()).check(&begins).unwrap();
        assert!(from_afar.check(&begins).is_err());
        let with_user = Remembered {
            slot: Some(2),
            ..started.clone()
        };
        assert!(own(program.id()).check(&with_user).is_err());
        // A program that came by itself is known by its secret alone.
        let mut guest = started.clone();
        (guest.pid, guest.launch.command) = (None, Vec::new());
        from_afar.check(&guest).unwrap();
        drop(program.stdin.take());
        program.wait().unwrap();
    }

    #[tokio::test]
    async fn a_program_without_unix_sockets_is_known_by_its_mark() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let known = Remembered {
            folder: Some(own.path().to_owned()),
            ..known(std::process::id())
        };
        let mark = Secret::random().unwrap().text();
        let shows = async |mark: &str| {
            let folder = known.folder.clone();
            let peer = Peer::default().marked(Some(mark.to_owned()), folder).await;
            peer.check(&known).is_ok()
        };
        let file = own.path().join(MARK);
        assert!(!shows(&mark).await, "it has left none");
        std::fs::write(&file, "").unwrap();
        assert!(!shows("").await, "an empty one is none");
        std::fs::write(&file, &mark).unwrap();
        assert!(shows(&mark).await);
        assert!(!shows(&Secret::random().unwrap().text()).await);
        assert!(Peer::default().check(&known).is_err());
        // The link leads to a file that others may write.
        std::fs::write(other.path().join("mark"), &mark).unwrap();
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(other.path().join("mark"), &file).unwrap();
        assert!(!shows(&mark).await, "a link is none");
    }

    /// Another process may have its number by now.
    #[tokio::test]
    async fn a_process_that_has_ended_is_not_taken_for_the_one_with_its_number() {
        let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = program.id();
        let process = pidfd_open(raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let peer = Peer {
            uid: Some(0),
            pid: Some(pid),
            process: Some(Arc::new(process)),
            ..Peer::default()
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
