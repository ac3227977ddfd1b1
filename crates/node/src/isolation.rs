//! The isolation of a node's programs: the modes that work on this machine, and the plan for each start.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sealbus_launcher::{NotIsolated, Order, Plan, Probed, launch, probe, public_settings};
use sealbus_manifest::isolation::{Confinement, Isolation};
use sealbus_seal::SecurityLevel;
use tokio::net::UnixListener;

use super::NodeError;
use super::control_groups::{ControlGroups, NewGroup};
use super::ownership::give;
use super::slots::{self, ProbeUser, Slots};
use sealbus_control::local::listen;
use sealbus_control::node::Launch;
use sealbus_files::folder as private_folder;

/// Users that belong to no person and no service on common systems.
pub const SLOTS: RangeInclusive<u32> = 70_000..=79_999;

/// The folder that contains the programs' own folders, in the node's state directory.
const WORK: &str = "work";
/// The folder for a program's temporary files, in its own folder.
const TEMPORARY: &str = "tmp";
/// How long the list of public paths in `/etc` counts as known.
const SEEN: Duration = Duration::from_secs(10);
/// The folder of the program that probes the modes.
const PROBE: &str = ".probe";

/// The isolation of a node's programs.
#[derive(Clone, Debug)]
pub struct IsolationConfig {
    /// The only mode for all programs. If `None`, each program gets the strongest mode that works.
    pub mode: Option<Isolation>,
    /// The `sealbus` command, which seals programs.
    pub launcher: PathBuf,
    /// Folders that programs cannot see, in addition to the node's state directory.
    pub hidden: Vec<PathBuf>,
    /// The users that programs get if the node runs as root.
    pub slots: RangeInclusive<u32>,
}

/// Tries the modes on this machine. `directory` is the node's state directory.
///
/// # Errors
/// If the directory cannot be used.
pub async fn try_isolation(config: &IsolationConfig, directory: &Path) -> io::Result<Vec<Probed>> {
    let work = directory.join(WORK);
    private_folder(&work)?;
    let (launcher, slots) = (config.launcher.clone(), config.slots.clone());
    let trying = move || {
        let folder = work.join(PROBE);
        let slot = match rustix::process::geteuid().is_root() {
            true => Slots::open(slots)
                .and_then(|slots| slots.for_probe())
                .map_err(|error| error.to_string()),
            false => Err("only a node that root starts can give users".to_owned()),
        };
        let user = slot.as_ref().map(ProbeUser::uid).map_err(String::as_str);
        let probed = probe(&launcher, user, &folder);
        // A folder that remains does no harm.
        let _ = fs::remove_dir_all(folder);
        probed
    };
    tokio::task::spawn_blocking(trying)
        .await
        .map_err(io::Error::from)
}

/// The isolation that a node gives its programs.
pub(crate) struct ProgramIsolation {
    launcher: PathBuf,
    /// The modes that programs may get, strongest first; empty if programs cannot be isolated.
    modes: Vec<Isolation>,
    hidden: Vec<PathBuf>,
    work: PathBuf,
    slots: Option<Slots>,
    /// `None` if the node may not make control groups.
    control_groups: Option<ControlGroups>,
    /// The paths in `/etc` that everybody may read, and when the node listed them.
    public: Mutex<Option<(Instant, Vec<PathBuf>)>>,
}

impl ProgramIsolation {
    /// Finds out which modes work.
    pub(crate) async fn open(config: IsolationConfig, directory: &Path) -> Result<Self, NodeError> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |error| NodeError::System { what, error }
        };
        let mut modes = Vec::new();
        if config.mode == Some(Isolation::None) {
            modes.push(Isolation::None);
        } else {
            let probed = try_isolation(&config, directory).await;
            for (mode, outcome) in probed.map_err(system("try to isolate programs"))? {
                let is_wanted = config.mode.is_none_or(|wanted| wanted == mode);
                match outcome {
                    Ok(()) if is_wanted => modes.push(mode),
                    Err(error) if config.mode == Some(mode) => {
                        return Err(NodeError::Isolation { mode, error });
                    }
                    Err(error) => tracing::debug!(%mode, %error, "programs cannot be isolated so"),
                    Ok(()) => {}
                }
            }
        }
        let slots = modes
            .contains(&Isolation::Uid)
            .then(|| Slots::open(config.slots))
            .transpose()
            .map_err(system("note the users of programs"))?;
        let control_groups = ControlGroups::open(directory);
        match &control_groups {
            Ok(groups) => {
                let (folder, controllers) = (groups.folder().display(), groups.controllers());
                tracing::info!(%folder, ?controllers, "programs have control groups");
            }
            Err(error) => tracing::info!(%error, "programs have no control groups"),
        }
        Ok(Self {
            launcher: config.launcher,
            modes,
            hidden: [config.hidden, vec![directory.to_owned()]].concat(),
            work: directory.join(WORK),
            slots,
            control_groups: control_groups.ok(),
            public: Mutex::default(),
        })
    }

    /// The strongest isolation of its programs at a security level. `None` at `auth` if the node cannot isolate
    /// programs, because the platform would then promise more than it gives.
    pub(crate) fn at_level(&self, level: &str) -> Option<Isolation> {
        let strongest = self.modes.first().copied();
        let promises = level
            .parse()
            .is_ok_and(|level: SecurityLevel| level >= SecurityLevel::Auth);
        match strongest {
            Some(Isolation::None) | None if !promises => {
                tracing::warn!("programs are not isolated from each other and from the node");
                Some(Isolation::None)
            }
            None => {
                tracing::error!(
                    "programs cannot be isolated here, so none is started: run the node as root, allow user \
                    namespaces or Landlock, or start it with --isolation none (see `sealbus node --check`)"
                );
                None
            }
            strongest => strongest,
        }
    }

    /// The modes for a program, strongest first. `best` is the result of [`at_level`](Self::at_level), and `asked` is
    /// the mode that the manifest asks for.
    ///
    /// # Errors
    /// If no mode is strong enough.
    pub(crate) fn modes_for(
        &self,
        asked: Option<Isolation>,
        best: Option<Isolation>,
    ) -> Result<Vec<Isolation>, String> {
        if asked == Some(Isolation::None) {
            return Ok(vec![Isolation::None]);
        }
        let open = best.filter(|best| *best == Isolation::None);
        let modes = self.modes.iter().copied().chain(open);
        let floor = asked.unwrap_or(Isolation::None);
        let mut modes: Vec<Isolation> = modes.filter(|mode| *mode >= floor).collect();
        modes.dedup();
        match (modes.is_empty(), asked) {
            (false, _) => Ok(modes),
            (true, Some(floor)) => Err(format!(
                "its isolation must be at least {floor}, which this node cannot give"
            )),
            (true, None) => Err("this node cannot isolate programs".to_owned()),
        }
    }

    fn has(&self, controller: &str) -> bool {
        let groups = self.control_groups.as_ref();
        groups.is_some_and(|groups| groups.controllers().contains(&controller))
    }

    /// Makes a control group for a program. A program without isolation gets one only if it has limits.
    ///
    /// # Errors
    /// If the node cannot enforce a limit of the program.
    pub(crate) fn control_group(
        &self,
        mode: Isolation,
        launch: &Launch,
    ) -> Result<Option<NewGroup>, String> {
        let asked = &launch.confinement;
        // The kernel also counts the processes of a user.
        let processes = asked.processes.filter(|_| mode != Isolation::Uid);
        for (key, limit, controller) in
            [("cpu", asked.cpu, "cpu"), ("processes", processes, "pids")]
        {
            if limit.is_some() && !self.has(controller) {
                return Err(format!(
                    "its limit `{key}` cannot be kept: the node has no controller {controller} (`sealbus node --check` \
                     tells how it gets one); give it one, or take `{key}` out of the manifest"
                ));
            }
        }
        let is_free = mode == Isolation::None && !asked.has_limits();
        let groups = self.control_groups.as_ref().filter(|_| !is_free);
        let group = groups.map(|groups| groups.group(&launch.process, asked));
        let group = group.transpose();
        group.map_err(|error| format!("it gets no control group: {error}"))
    }

    /// The folder of the programs' own folders.
    pub(crate) fn work(&self) -> &Path {
        &self.work
    }

    /// Removes the control groups of earlier programs, with everything in them.
    pub(crate) fn clear(&self, running: &HashSet<PathBuf>) {
        if let Some(groups) = &self.control_groups {
            groups.clear(running);
        }
    }

    /// The user that belongs to the program.
    pub(crate) fn slot_of(&self, group: &str) -> io::Result<Option<u32>> {
        let work = self.work.join(group);
        self.slots.as_ref().map(|slots| slots.of(&work)).transpose()
    }

    /// Makes the folder of a program and gives it to the program's user. Files from earlier runs stay in the folder.
    pub(crate) fn folder_of(&self, group: &str, slot: Option<u32>) -> io::Result<PathBuf> {
        let folder = self.work.join(group);
        let temporary = folder.join(TEMPORARY);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&temporary)?;
        let owner = slot.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        give(&temporary, owner)?;
        give(&folder, owner)?;
        Ok(folder)
    }

    /// The plan for a start, with the program's folder, user and control group. `socket` is the node's.
    pub(crate) fn plan(
        &self,
        mode: Isolation,
        launch: &Launch,
        program: PathBuf,
        (work, slot, control_group): (PathBuf, Option<u32>, Option<PathBuf>),
        socket: &Path,
    ) -> io::Result<Plan> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let mut environment = BTreeMap::from([
            ("HOME".to_owned(), work.display().to_string()),
            (
                "TMPDIR".to_owned(),
                work.join(TEMPORARY).display().to_string(),
            ),
        ]);
        if let Some(home) = &home {
            // Through this variable or, without it, through HOME, Python finds the packages that the node's user installed.
            let packages = home.join(".local").display().to_string();
            environment.insert("PYTHONUSERBASE".to_owned(), packages);
        }
        if mode == Isolation::None {
            environment.clear();
        }
        let directory = Path::new(launch.directory.as_deref().unwrap_or("."));
        let mut plan = Plan {
            mode,
            program: std::path::absolute(program)?,
            arguments: launch.command.get(1..).unwrap_or_default().to_vec(),
            directory: std::path::absolute(directory)?,
            environment,
            work,
            public: self.public_settings(mode),
            attachment: None,
            hidden: self.hidden.clone(),
            home,
            confinement: Confinement {
                // Its control group counts its memory. Without one, only the requests of each process are limited.
                memory: launch.confinement.memory.filter(|_| !self.has("memory")),
                ..launch.confinement.clone()
            },
            slot,
            control_group,
        };
        if plan.may_open_unix_sockets() {
            plan.attachment = socket.parent().map(Path::to_owned);
        }
        Ok(plan)
    }

    /// The paths in `/etc` that everybody may read, for a program that stays root. Programs that start soon after each
    /// other get the same paths.
    fn public_settings(&self, mode: Isolation) -> Option<Vec<PathBuf>> {
        let stays_root = mode != Isolation::Uid && rustix::process::geteuid().is_root();
        stays_root.then(|| {
            let mut known = self.public.lock();
            match &*known {
                Some((at, public)) if at.elapsed() < SEEN => public.clone(),
                _ => {
                    let public = public_settings();
                    *known = Some((Instant::now(), public.clone()));
                    public
                }
            }
        })
    }

    /// The process that seals itself and becomes the program.
    pub(crate) fn launcher(
        &self,
        plan: Plan,
    ) -> io::Result<(std::process::Command, sealbus_launcher::Launching)> {
        launch(&self.launcher, &Order::Start(Box::new(plan)))
    }

    /// Ends every process of a slot. Returns when the processes have got the signal.
    pub(crate) fn end_slot(&self, uid: u32) -> Result<(), NotIsolated> {
        if let Some(Err(error)) = self.slots.as_ref().map(|slots| slots.used(uid)) {
            tracing::warn!(uid, %error, "the last use of a user cannot be noted");
        }
        end_slot(&self.launcher, uid)
    }

    /// Listens for programs. If programs have users of their own, the folder is open to every user that reaches it.
    pub(crate) fn listen(&self, socket: &Path) -> io::Result<UnixListener> {
        let Some(folder) = socket.parent() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let is_open = self.slots.is_some();
        match is_open {
            true => fs::create_dir_all(folder)?,
            false => private_folder(folder)?,
        }
        let listener = listen(socket)?;
        if is_open {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
            fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
        }
        Ok(listener)
    }
}

/// Whether a user still belongs to the program `group` of the node with this state directory, and not to another program.
pub(crate) fn is_user_of(uid: u32, directory: &Path, group: &str) -> bool {
    slots::is_of(uid, &directory.join(WORK).join(group))
}

/// Ends every process of a slot, with the `sealbus` command `launcher`.
pub(crate) fn end_slot(launcher: &Path, uid: u32) -> Result<(), NotIsolated> {
    let failed = |error: io::Error| NotIsolated {
        step: sealbus_launcher::IsolationStep::Execute,
        cause: error.to_string(),
        errno: error.raw_os_error(),
    };
    let (mut command, launching) = launch(launcher, &Order::End { uid }).map_err(failed)?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    drop(command);
    let ended = launching.wait();
    child.wait().map_err(failed)?;
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealing(modes: &[Isolation]) -> ProgramIsolation {
        ProgramIsolation {
            launcher: PathBuf::new(),
            modes: modes.to_vec(),
            hidden: Vec::new(),
            work: PathBuf::new(),
            slots: None,
            control_groups: None,
            public: Mutex::default(),
        }
    }

    #[test]
    fn a_program_gets_the_strongest_mode_and_never_less_than_it_asks_for() {
        use Isolation::{Landlock, Namespace, None as Open, Uid};
        let node = sealing(&[Uid, Landlock]);
        let best = node.at_level("auth");
        assert_eq!(best, Some(Uid));
        assert_eq!(node.modes_for(None, best), Ok(vec![Uid, Landlock]));
        assert_eq!(node.modes_for(Some(Namespace), best), Ok(vec![Uid]));
        assert_eq!(node.modes_for(Some(Open), best), Ok(vec![Open]));
        let weak = sealing(&[Landlock]);
        assert!(weak.modes_for(Some(Uid), weak.at_level("auth")).is_err());
    }

    #[test]
    fn a_node_that_cannot_isolate_starts_only_what_need_not_be_isolated() {
        let node = sealing(&[]);
        assert_eq!(node.at_level("auth"), None);
        assert!(node.modes_for(None, None).is_err());
        assert_eq!(
            node.modes_for(Some(Isolation::None), None),
            Ok(vec![Isolation::None])
        );
        // Lower levels make no promise.
        let best = node.at_level("none");
        assert_eq!(best, Some(Isolation::None));
        assert_eq!(node.modes_for(None, best), Ok(vec![Isolation::None]));
        assert!(node.modes_for(Some(Isolation::Landlock), best).is_err());
        let chosen = sealing(&[Isolation::None]);
        assert_eq!(chosen.at_level("auth"), Some(Isolation::None));
        assert_eq!(
            chosen.modes_for(None, chosen.at_level("auth")),
            Ok(vec![Isolation::None])
        );
    }

    #[test]
    fn an_isolation_that_does_not_work_is_refused_in_a_sentence() {
        let error = NotIsolated {
            step: sealbus_launcher::IsolationStep::User,
            cause: "only root can".to_owned(),
            errno: None,
        };
        let mode = Isolation::Uid;
        assert_eq!(
            NodeError::Isolation { mode, error }.to_string(),
            "programs cannot be isolated by uid here: a program is not started, because it cannot become a user of its own: \
             only root can"
        );
    }

    #[test]
    fn a_programs_folder_keeps_its_files_and_is_for_its_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let node = ProgramIsolation {
            work: place.path().join("work"),
            ..sealing(&[])
        };
        let folder = node.folder_of("seller-1", None).unwrap();
        fs::write(folder.join("notes"), "kept").unwrap();
        assert_eq!(node.folder_of("seller-1", None).unwrap(), folder);
        assert_eq!(fs::read(folder.join("notes")).unwrap(), b"kept");
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(folder.join(TEMPORARY).is_dir());
    }
}
