//! System calls that a sealed program may not make. All others are allowed, so that a program does not break when its
//! language's library uses a new call for an old purpose.

use std::collections::BTreeMap;
use std::io;

use sealbus_manifest::isolation::Isolation;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::plan::Plan;

/// The rules by the number of the system call. A call without rules is refused with any arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls about namespaces and mounts, about other processes, and about the kernel itself, and calls around the filter.
const REFUSED: &[i64] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // No filter sees the operations of io_uring.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// System V's shared memory, semaphores and queues, and POSIX queues. Only the rights of the user protect them.
const SHARED_BY_USER: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that can change another process of the same user, and the index of the argument that names the process. There,
/// 0 names the caller.
const OF_OTHERS: &[(i64, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
];

/// The calls among [`OF_OTHERS`] that can change all processes of a user, and the first argument with which they do:
/// `PRIO_USER`, `IOPRIO_WHO_USER`. There, 0 names the caller's user.
const OF_USERS: [(i64, u64); 2] = [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)];

/// Flags of `clone` that make namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Families of sockets that reach the kernel rather than other programs.
const FAMILIES: [libc::c_int; 4] = [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK, libc::AF_XDP];

/// The bits of a socket's type without its flags.
const KIND: u64 = 0xf;
/// The argument of `personality` that asks for the present one and changes nothing.
const PRESENT: u64 = 0xffff_ffff;
/// Calls with this bit come from programs for the x32 interface of x86-64 kernels.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// Numbers of the x32 interface itself: `ptrace`, `kexec_load`, `process_vm_readv`, `process_vm_writev`.
#[cfg(target_arch = "x86_64")]
const REFUSED_X32: [i64; 4] = [521, 528, 539, 540];

/// Applies the filters to this thread, and to all that it becomes and starts.
///
/// # Errors
/// The system refuses them, or they cannot be compiled for this machine.
pub(crate) fn apply(plan: &Plan) -> io::Result<()> {
    // A library that does not find `clone3` calls `clone`. A filter sees the flags of `clone`.
    let unknown = Rules::from([(libc::SYS_clone3, Vec::new())]);
    for (rules, errno) in [(unknown, libc::ENOSYS), (rules(plan)?, libc::EPERM)] {
        let program = compile(rules, errno).map_err(io::Error::other)?;
        apply_filter(&program).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other),
        })?;
    }
    Ok(())
}

fn compile(rules: Rules, errno: libc::c_int) -> Result<BpfProgram, seccompiler::BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)?.try_into()
}

fn rules(plan: &Plan) -> io::Result<Rules> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let mut refuse_if = |call: i64, conditions: &[(u8, SeccompCmpOp, u64)]| {
        let conditions = conditions.iter().map(|(argument, compare, value)| {
            SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, compare.clone(), *value)
        });
        let rule = conditions
            .collect::<Result<_, _>>()
            .and_then(SeccompRule::new);
        rules
            .entry(call)
            .or_default()
            .push(rule.map_err(io::Error::other)?);
        Ok::<_, io::Error>(())
    };
    let bits = |number: libc::c_int| u64::from(number.unsigned_abs());
    for namespace in NAMESPACES {
        refuse_if(
            libc::SYS_clone,
            &[(0, MaskedEq(bits(namespace)), bits(namespace))],
        )?;
    }
    for family in FAMILIES {
        refuse_if(libc::SYS_socket, &[(0, Eq, bits(family))])?;
    }
    refuse_if(libc::SYS_personality, &[(0, Ne, PRESENT), (0, Ne, 0)])?;
    // `TIOCSTI` types in another program's terminal.
    refuse_if(libc::SYS_ioctl, &[(1, Eq, libc::TIOCSTI)])?;
    let unix = bits(libc::AF_UNIX);
    if !plan.may_open_unix_sockets() {
        refuse_if(libc::SYS_socket, &[(0, Eq, unix)])?;
        // Both ends of such a pair can be connected again, to any socket. The kernel treats `SOCK_RAW` in the same way.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            let of_kind = (1, MaskedEq(KIND), bits(kind));
            refuse_if(libc::SYS_socketpair, &[(0, Eq, unix), of_kind])?;
        }
    }
    if plan.mode != Isolation::Uid {
        for (call, argument) in OF_OTHERS {
            refuse_if(*call, &[(*argument, Ne, 0)])?;
        }
        for (call, all_of_a_user) in OF_USERS {
            refuse_if(call, &[(0, Eq, all_of_a_user)])?;
        }
    }
    if plan.mode == Isolation::Landlock {
        rules.extend(SHARED_BY_USER.iter().map(|call| (*call, Vec::new())));
    }
    #[cfg(target_arch = "x86_64")]
    {
        let same: Vec<_> = rules
            .iter()
            .map(|(call, rules)| (call | X32, rules.clone()))
            .collect();
        rules.extend(same);
        rules.extend(REFUSED_X32.map(|call| (call | X32, Vec::new())));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sealbus_manifest::isolation::Confinement;

    use super::*;

    fn rules_of(mode: Isolation, unix_sockets: bool) -> Rules {
        let confinement = Confinement {
            unix_sockets,
            ..Confinement::default()
        };
        let plan = Plan {
            mode,
            program: PathBuf::new(),
            arguments: Vec::new(),
            directory: PathBuf::new(),
            environment: BTreeMap::new(),
            work: PathBuf::new(),
            public: None,
            attachment: None,
            hidden: Vec::new(),
            home: None,
            confinement,
            slot: None,
            control_group: None,
        };
        rules(&plan).unwrap()
    }

    #[test]
    fn the_filter_of_every_mode_compiles_for_this_machine() {
        for mode in [Isolation::Landlock, Isolation::Namespace, Isolation::Uid] {
            for unix_sockets in [false, true] {
                compile(rules_of(mode, unix_sockets), libc::EPERM).unwrap();
            }
        }
    }

    #[test]
    fn only_a_program_that_shares_its_user_is_kept_from_what_users_share() {
        let shared = rules_of(Isolation::Landlock, false);
        let own = rules_of(Isolation::Uid, false);
        assert!(
            shared.contains_key(&libc::SYS_shmget) && shared.contains_key(&libc::SYS_socketpair)
        );
        for call in [libc::SYS_shmget, libc::SYS_socketpair, libc::SYS_prlimit64] {
            assert!(!own.contains_key(&call));
        }
        let asked = rules_of(Isolation::Landlock, true);
        assert!(!asked.contains_key(&libc::SYS_socketpair));
    }

    #[test]
    fn a_program_that_shares_its_user_changes_no_priority_of_all_that_the_user_runs() {
        for (call, all_of_a_user) in [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)] {
            let (equal, word) = (SeccompCmpOp::Eq, SeccompCmpArgLen::Dword);
            let condition = SeccompCondition::new(0, word, equal, all_of_a_user).unwrap();
            let rule = SeccompRule::new(vec![condition]).unwrap();
            for mode in [Isolation::Landlock, Isolation::Namespace] {
                assert!(rules_of(mode, false)[&call].contains(&rule), "{mode}");
            }
            assert!(!rules_of(Isolation::Uid, false).contains_key(&call));
        }
    }
}
