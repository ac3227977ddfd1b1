//! Sealing this process, step by step.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Access as Wish, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
use sealbus_manifest::isolation::Isolation;

use super::filter;
use super::paths::{Paths, Right, SHARED_MEMORY};
use super::plan::{IsolationStep, NotIsolated, Plan};
use super::slot;
use super::view::{Mount, changes};

/// The rights on files that are limited wherever the kernel knows them.
const FILES: ABI = ABI::V5;
/// Abstract sockets and signals are limited from this version of Landlock on.
const SCOPED: ABI = ABI::V6;
/// Most open files, if the manifest says nothing.
const OPEN_FILES: u64 = 65_536;
/// Most processes and threads, if the manifest says nothing.
const PROCESSES: u64 = 1024;
/// Agents are the first that the kernel ends when memory runs out.
const OUT_OF_MEMORY: &str = "500";
/// An empty folder needs little memory.
const EMPTY: &CStr = c"mode=711,size=1m";
/// A file takes memory of the kernel even if it is empty, so there is one for each page at most.
const OWN_SHARED_MEMORY: &CStr = c"mode=1777,size=256m,nr_inodes=65536";

/// An error and its subject.
type Cause = (io::Error, String);

/// Seals this process, which must have one thread. `node` stays open until the program is executed.
///
/// # Errors
/// [`NotIsolated`] with the step that failed. The process must not go on then.
pub(crate) fn seal(plan: &Plan, node: BorrowedFd<'_>) -> Result<(), NotIsolated> {
    let mut sealing = IsolationSteps {
        plan,
        node,
        paths: Paths::default(),
    };
    plan.take(|step| sealing.perform(step))
        .map_err(|(step, (error, what))| NotIsolated::because(step, &error, &what))
}

struct IsolationSteps<'p> {
    plan: &'p Plan,
    node: BorrowedFd<'p>,
    paths: Paths,
}

/// Moves this process to a control group.
fn enter(group: Option<&Path>) -> Result<(), Cause> {
    let processes = group.unwrap_or(Path::new("")).join("cgroup.procs");
    fs::write(&processes, "0").map_err(about(&processes))
}

/// Leads a session, and adopts the processes that its descendants leave running.
fn lead() -> io::Result<()> {
    let own = rustix::process::setsid()?;
    Ok(rustix::process::set_child_subreaper(Some(own))?)
}

fn plainly(error: impl Into<io::Error>) -> Cause {
    (error.into(), String::new())
}

fn about(path: &Path) -> impl FnOnce(io::Error) -> Cause {
    let what = path.display().to_string();
    move |error| (error, what)
}

impl IsolationSteps<'_> {
    fn perform(&mut self, step: IsolationStep) -> Result<(), Cause> {
        match step {
            IsolationStep::ControlGroup => enter(self.plan.control_group.as_deref()),
            IsolationStep::Session => lead().map_err(plainly),
            IsolationStep::Descriptors => self.close_descriptors().map_err(plainly),
            IsolationStep::Limits => self.limit().map_err(plainly),
            IsolationStep::Namespaces => self.unshare(),
            IsolationStep::Paths => {
                self.paths = Paths::of(self.plan).map_err(|(path, error)| about(&path)(error))?;
                Ok(())
            }
            IsolationStep::View => self.change_view(),
            IsolationStep::Bounds => give_up_bounds().map_err(plainly),
            IsolationStep::User => self.become_own_user().map_err(plainly),
            IsolationStep::Sweep => slot::end_own().map_err(plainly),
            IsolationStep::Capabilities => give_up_capabilities().map_err(plainly),
            IsolationStep::Privileges => rustix::thread::set_no_new_privs(true).map_err(plainly),
            IsolationStep::Reach => self.check_reach(),
            IsolationStep::Landlock => self.limit_files(),
            IsolationStep::Filter => {
                filter::apply(self.plan).map_err(|error| (error, String::new()))
            }
            IsolationStep::Execute => Ok(()),
        }
    }

    /// Descriptors that the node's own starter did not close must not reach the program.
    fn close_descriptors(&self) -> io::Result<()> {
        let open = fs::read_dir("/proc/self/fd")?.flatten();
        let open: Vec<i32> = open
            .filter_map(|fd| fd.file_name().to_str()?.parse().ok())
            .collect();
        for fd in open
            .into_iter()
            .filter(|fd| *fd > 2 && *fd != self.node.as_raw_fd())
        {
            // The descriptor of the listing is closed by now.
            let _ = nix::unistd::close(fd);
        }
        Ok(())
    }

    fn limit(&self) -> io::Result<()> {
        let asked = &self.plan.confinement;
        let no_core = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        rustix::process::setrlimit(Resource::Core, no_core)?;
        lower(Resource::Nofile, asked.files.unwrap_or(OPEN_FILES))?;
        if let Some(memory) = asked.memory {
            lower(Resource::Data, memory)?;
        }
        if self.plan.mode == Isolation::Uid {
            // The kernel counts all processes of a user, including those of other programs if the program has no user
            // of its own.
            lower(Resource::Nproc, asked.processes.unwrap_or(PROCESSES))?;
        }
        fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY)
    }

    fn unshare(&self) -> Result<(), Cause> {
        let own = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
        if self.plan.mode == Isolation::Namespace {
            let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
            unshare(own | CloneFlags::CLONE_NEWUSER).map_err(plainly)?;
            for (file, text) in [
                ("/proc/self/setgroups", "deny".to_owned()),
                ("/proc/self/uid_map", format!("{0} {0} 1", uid.as_raw())),
                ("/proc/self/gid_map", format!("{0} {0} 1", gid.as_raw())),
            ] {
                fs::write(file, text).map_err(about(Path::new(file)))?;
            }
        } else {
            unshare(own).map_err(plainly)?;
        }
        // Other processes do not see these mounts.
        let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", flags).map_err(plainly)?;
        let shared = Path::new(SHARED_MEMORY);
        if shared.is_dir() {
            cover(shared, OWN_SHARED_MEMORY)?;
        }
        Ok(())
    }

    fn change_view(&self) -> Result<(), Cause> {
        let hidden = self.plan.hidden.iter();
        let hidden = hidden.filter_map(|path| path.canonicalize().ok());
        let hidden: Vec<PathBuf> = hidden.chain(self.plan.meeting_places()).collect();
        let changes = changes(&self.paths, &hidden);
        let kept: Vec<Option<OwnedFd>> = changes.iter().map(open_kept).collect::<Result<_, _>>()?;
        for (change, kept) in changes.iter().zip(&kept) {
            match (change, kept) {
                (Mount::Keep(path), Some(kept)) => put_back(path, kept)?,
                (Mount::Keep(_), None) => {}
                (Mount::Cover(path), _) => cover(path, EMPTY)?,
                (Mount::Link(path, target), _) => link_again(path, target)?,
            }
        }
        Ok(())
    }

    fn become_own_user(&self) -> io::Result<()> {
        let slot = self.plan.slot.ok_or(io::ErrorKind::InvalidInput)?;
        let (uid, gid) = (Uid::from_raw(slot), Gid::from_raw(slot));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }

    /// Otherwise the program would start and fail in a way that nobody understands.
    fn check_reach(&self) -> Result<(), Cause> {
        let check = |path: &Path, wish: Wish| {
            let reached = rustix::fs::access(path, wish);
            reached.map_err(|error| self.out_of_reach(path, wish, error))
        };
        for (path, right) in &self.paths.needed {
            let enter = match path.is_dir() {
                true => Wish::EXEC_OK,
                false => Wish::EXISTS,
            };
            let wish = match right {
                Right::List | Right::Use => enter,
                Right::Read => enter | Wish::READ_OK,
                Right::Write => enter | Wish::READ_OK | Wish::WRITE_OK,
            };
            check(path, wish)?;
        }
        check(&self.plan.program, Wish::EXEC_OK)
    }

    /// Names the closed folder or file, the program's user, and the remedy.
    fn out_of_reach(&self, path: &Path, wish: Wish, error: Errno) -> Cause {
        if error != Errno::ACCESS {
            return about(path)(error.into());
        }
        let is_closed = |folder: &&Path| rustix::fs::access(*folder, Wish::EXEC_OK).is_err();
        let outermost = path.ancestors().skip(1).filter(is_closed).last();
        let (closed, wish) = outermost.map_or((path, wish), |folder| (folder, Wish::EXEC_OK));
        let rights = [
            (Wish::READ_OK, 'r'),
            (Wish::WRITE_OK, 'w'),
            (Wish::EXEC_OK, 'x'),
        ];
        let rights = rights.iter().filter(|(right, _)| wish.contains(*right));
        let rights: String = rights.map(|(_, letter)| letter).collect();
        let (user, shown) = (rustix::process::geteuid().as_raw(), closed.display());
        let instead = match self.plan.mode {
            Isolation::Uid if closed == path && path.is_dir() => {
                ", or name in the manifest what it needs in that folder, or a weaker `isolation`, which keeps the node's user"
            }
            Isolation::Uid => {
                ", or name a weaker `isolation` in the manifest, which keeps the node's user"
            }
            _ => "",
        };
        let why = format!(
            "{shown} is closed to its user {user}: open it to all users by `chmod o+{rights} {shown}`{instead}"
        );
        about(path)(io::Error::other(why))
    }

    fn limit_files(&self) -> Result<(), Cause> {
        let refused = |error: &dyn std::error::Error| plainly(io::Error::other(error.to_string()));
        // A user of its own separates the program even if the kernel has no Landlock.
        let (level, is_needed) = match self.plan.mode {
            Isolation::Uid => (CompatLevel::BestEffort, false),
            _ => (CompatLevel::HardRequirement, true),
        };
        let handled = AccessFs::from_all(FILES);
        let rules = Ruleset::default()
            .set_compatibility(level)
            .handle_access(handled)
            .and_then(|rules| rules.scope(Scope::from_all(SCOPED)))
            .and_then(|rules| rules.create());
        let mut rules = rules
            .map_err(|error| refused(&error))?
            .set_compatibility(CompatLevel::BestEffort);
        for (path, right) in &self.paths.rights {
            // A path that the program's user cannot reach needs no rule.
            let Ok(opened) = open_path(path) else {
                continue;
            };
            let found = rustix::fs::fstat(&opened).map_err(|error| about(path)(error.into()))?;
            let kind = FileType::from_raw_mode(found.st_mode);
            let access = access(*right, kind == FileType::Directory);
            rules = rules
                .add_rule(PathBeneath::new(opened, access))
                .map_err(|error| refused(&error))?;
        }
        let status = rules.restrict_self().map_err(|error| refused(&error))?;
        match status.ruleset {
            RulesetStatus::NotEnforced if is_needed => {
                Err(plainly(io::Error::from(io::ErrorKind::Unsupported)))
            }
            _ => Ok(()),
        }
    }
}

fn access(right: Right, is_folder: bool) -> BitFlags<AccessFs> {
    let all = match right {
        Right::List => BitFlags::from(AccessFs::ReadDir),
        Right::Read => AccessFs::from_read(FILES),
        Right::Use => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        Right::Write => AccessFs::from_all(FILES),
    };
    match is_folder {
        true => all,
        false => all & AccessFs::from_file(FILES),
    }
}

/// Lowers a limit. A limit that is already lower stays.
fn lower(resource: Resource, most: u64) -> io::Result<()> {
    let present = rustix::process::getrlimit(resource);
    let at_most = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit {
        current: at_most(present.current),
        maximum: at_most(present.maximum),
    };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

fn cover(path: &Path, options: &CStr) -> Result<(), Cause> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("sealbus", path, "tmpfs", flags, options)
        .map_err(|error| about(path)(error.into()))
}

/// Opens a path that is to be put back, before anything covers it. A path that is gone meanwhile is not put back.
fn open_kept(change: &Mount) -> Result<Option<OwnedFd>, Cause> {
    let Mount::Keep(path) = change else {
        return Ok(None);
    };
    match open_path(path) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(about(path)(error.into())),
    }
}

/// Opens a path that has no symbolic links in it, to name it to the kernel. A program that may change a folder on the way
/// could have put a link there meanwhile.
fn open_path(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Kernels before 5.6 do not know this call, and some containers refuse it.
        Err(Errno::NOSYS | Errno::PERM) => {
            rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    }
}

fn put_back(path: &Path, kept: &OwnedFd) -> Result<(), Cause> {
    let source = format!("/proc/self/fd/{}", kept.as_fd().as_raw_fd());
    let made = match fs::metadata(&source).is_ok_and(|about| about.is_dir()) {
        true => make_folder(path),
        false => path
            .parent()
            .map_or(Ok(()), make_folder)
            .and_then(|()| fs::write(path, "")),
    };
    made.map_err(about(path))?;
    rustix::mount::mount_bind_recursive(source, path).map_err(|error| about(path)(error.into()))
}

/// Makes a link in a folder that is covered by now.
fn link_again(path: &Path, target: &Path) -> Result<(), Cause> {
    let made = path.parent().map_or(Ok(()), make_folder);
    let made = made.and_then(|()| symlink(target, path));
    made.map_err(about(path))
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
}

/// Empties the bounding and the ambient set, so that no program gets capabilities ever again, root's programs included.
fn give_up_bounds() -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    if !own.effective.contains(CapabilitySet::SETPCAP) {
        // Without this right there is nothing to give up: new privileges are refused.
        return Ok(());
    }
    rustix::thread::clear_ambient_capability_set()?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel has no further capabilities.
            Err(Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

fn give_up_capabilities() -> io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_that_cannot_be_entered_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("gone");
        let (error, what) = enter(Some(&group)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(what, format!("{}/cgroup.procs", group.display()));
    }

    #[test]
    fn a_link_that_was_put_on_the_way_meanwhile_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("secret/folder")).unwrap();
        symlink(root.join("secret"), root.join("own")).unwrap();
        open_path(&root.join("secret/folder")).unwrap();
        // Without `openat2`, only the last part of the path is looked at.
        if let Err(Errno::NOSYS | Errno::PERM) =
            rustix::fs::openat2(CWD, "/", OFlags::PATH, Mode::empty(), ResolveFlags::empty())
        {
            return;
        }
        for path in ["own", "own/folder"] {
            let refused = open_path(&root.join(path)).unwrap_err();
            assert_eq!(refused, Errno::LOOP, "{path}");
        }
        let kept = open_kept(&Mount::Keep(root.join("own/folder")));
        assert!(kept.is_err());
    }
}
