//! The plan of one start, and the steps that it takes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use sealbus_manifest::isolation::{Confinement, Isolation};
use serde::{Deserialize, Serialize};

/// Folders in which programs of all kinds keep their sockets. Through the sockets of its node's user, a program could have other
/// programs act for it. In a program's own view, these folders are therefore empty.
const MEETING_PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/run/user"];

/// The task of a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Seal itself and become a program.
    Start(Box<Plan>),
    /// End every process of a slot.
    End {
        /// The slot's user.
        uid: u32,
    },
}

/// The start of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The isolation.
    pub mode: Isolation,
    /// The program's file.
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The folder in which the program starts. The program may read it.
    pub directory: PathBuf,
    /// All variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// The folder that belongs to it.
    pub work: PathBuf,
    /// The paths in `/etc` that everybody may read, if the node has looked. A program that stays root gets nothing else
    /// of `/etc`.
    #[serde(default)]
    pub public: Option<Vec<PathBuf>>,
    /// The folder of the node's socket, if the program attaches there.
    pub attachment: Option<PathBuf>,
    /// State folders of the platform. The program sees nothing in them but its own folder and the socket.
    pub hidden: Vec<PathBuf>,
    /// The home of the node's user. A program that lies directly in it can read only its own file there.
    pub home: Option<PathBuf>,
    /// The isolation that the manifest asks for, and its exceptions.
    pub confinement: Confinement,
    /// The user of the program's own, in the mode [`Isolation::Uid`].
    pub slot: Option<u32>,
    /// The folder of the program's own control group.
    #[serde(default)]
    pub control_group: Option<PathBuf>,
}

/// A step of sealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationStep {
    /// Entering its own control group, which bounds it, and which it cannot leave.
    ControlGroup,
    /// Leading a session of its own, so that it shares no terminal and no process group.
    Session,
    /// Closing all other inherited descriptors.
    Descriptors,
    /// Limiting resources.
    Limits,
    /// Making its own mounts and shared memory, and, in the mode `namespace`, its own user namespace.
    Namespaces,
    /// Hiding folders, and making the needed ones reachable.
    View,
    /// Finding the paths that it may touch.
    Paths,
    /// Giving up the right to ever have capabilities.
    Bounds,
    /// Taking on its own user.
    User,
    /// Ending processes that earlier programs of that user left running.
    Sweep,
    /// Giving up all capabilities.
    Capabilities,
    /// Preventing the programs that it starts from getting more rights.
    Privileges,
    /// Checking that its own user reaches the program and its files.
    Reach,
    /// Limiting files, abstract sockets and signals.
    Landlock,
    /// Limiting system calls.
    Filter,
    /// Becoming the program.
    Execute,
}

impl IsolationStep {
    fn purpose(self) -> &'static str {
        match self {
            Self::ControlGroup => "enter its control group",
            Self::Session => "get a session of its own",
            Self::Descriptors => "close inherited descriptors",
            Self::Limits => "limit its resources",
            Self::Namespaces => "get namespaces of its own",
            Self::View => "get its own view of the file system",
            Self::Paths => "find what it may read and write",
            Self::Bounds => "give up capabilities for ever",
            Self::User => "become a user of its own",
            Self::Sweep => "end what ran before it",
            Self::Capabilities => "give up capabilities",
            Self::Privileges => "refuse new privileges",
            Self::Reach => "reach its files",
            Self::Landlock => "limit its files (Landlock)",
            Self::Filter => "limit its system calls (seccomp)",
            Self::Execute => "be executed",
        }
    }
}

impl fmt::Display for IsolationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.purpose())
    }
}

/// A program was not started, because it could not be sealed as its plan says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("it cannot {step}: {cause}")]
pub struct NotIsolated {
    /// The step that failed.
    pub step: IsolationStep,
    /// The system's error, and its subject.
    pub cause: String,
    /// The system's number of the error, if the system refused.
    pub errno: Option<i32>,
}

impl Plan {
    /// The steps, in their order.
    pub fn steps(&self) -> Vec<IsolationStep> {
        use IsolationStep::*;
        // Without isolation, a control group still keeps the manifest's limits.
        let sealed = self.mode != Isolation::None;
        let own_view = self.mode >= Isolation::Namespace;
        let own_user = self.mode == Isolation::Uid;
        let all = [
            (ControlGroup, self.control_group.is_some()),
            (Session, true),
            (Descriptors, sealed),
            (Limits, true),
            (Namespaces, own_view),
            (Paths, sealed),
            (View, own_view),
            (Bounds, sealed),
            (User, own_user),
            (Sweep, own_user),
            (Capabilities, sealed),
            (Privileges, sealed),
            (Reach, sealed),
            (Landlock, sealed),
            (Filter, sealed),
        ];
        let needed = all.into_iter().filter(|(_, needed)| *needed);
        needed.map(|(step, _)| step).collect()
    }

    /// Takes the steps in their order, and stops at the first that fails.
    pub(crate) fn take<E>(
        &self,
        mut perform: impl FnMut(IsolationStep) -> Result<(), E>,
    ) -> Result<(), (IsolationStep, E)> {
        for step in self.steps() {
            perform(step).map_err(|error| (step, error))?;
        }
        Ok(())
    }

    /// The meeting places, without symbolic links in them.
    pub(crate) fn meeting_places(&self) -> Vec<PathBuf> {
        let places = MEETING_PLACES.iter().map(Path::new);
        let places = places.filter_map(|place| place.canonicalize().ok());
        places
            .filter(|_| self.mode >= Isolation::Namespace)
            .collect()
    }

    /// Whether the program may open unix sockets. The mode `landlock` knows only rights on files, so the program would
    /// reach the sockets of its user's other programs.
    pub fn may_open_unix_sockets(&self) -> bool {
        self.mode != Isolation::Landlock || self.confinement.unix_sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn plan(mode: Isolation) -> Plan {
        Plan {
            mode,
            program: "/bin/true".into(),
            arguments: Vec::new(),
            directory: "/".into(),
            environment: BTreeMap::new(),
            work: "/nowhere".into(),
            public: None,
            attachment: None,
            hidden: Vec::new(),
            home: None,
            confinement: Confinement::default(),
            slot: None,
            control_group: Some("/nowhere".into()),
        }
    }

    #[test]
    fn a_step_that_fails_is_the_last_one_in_every_mode() {
        for mode in Isolation::ALL {
            let plan = plan(mode);
            let steps = plan.steps();
            for (index, failing) in steps.iter().enumerate() {
                let mut taken = Vec::new();
                let ended = plan.take(|step| {
                    taken.push(step);
                    if step == *failing { Err(()) } else { Ok(()) }
                });
                assert_eq!(ended, Err((*failing, ())));
                assert_eq!(taken, steps[..=index]);
            }
        }
    }

    #[test]
    fn the_filter_is_last_and_rights_go_before_it() {
        for mode in [Isolation::Landlock, Isolation::Namespace, Isolation::Uid] {
            let steps = plan(mode).steps();
            let place = |step| steps.iter().position(|found| *found == step);
            assert_eq!(steps.first(), Some(&IsolationStep::ControlGroup));
            assert_eq!(steps.last(), Some(&IsolationStep::Filter));
            assert!(place(IsolationStep::Privileges) < place(IsolationStep::Landlock));
            assert!(
                place(IsolationStep::Paths) < place(IsolationStep::View)
                    || place(IsolationStep::View).is_none()
            );
            assert!(
                place(IsolationStep::Bounds) < place(IsolationStep::User)
                    || place(IsolationStep::User).is_none()
            );
            assert_eq!(place(IsolationStep::User).is_some(), mode == Isolation::Uid);
        }
    }
}
