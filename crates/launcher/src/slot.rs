//! The end of all processes of a slot.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::thread::Uid;

use super::plan::{IsolationStep, NotIsolated};

/// The least user of a slot. The system's own users have smaller numbers.
const LEAST: u32 = 1000;

/// Becomes the user of a slot and ends every process of that user at once, including those that left their process
/// group. Only root can do so.
///
/// # Errors
/// The user cannot be taken on.
pub(crate) fn end(uid: u32) -> Result<(), NotIsolated> {
    let failed = |error: io::Error| NotIsolated::because(IsolationStep::User, &error, "");
    if uid < LEAST {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let user = Uid::from_raw(uid);
    rustix::thread::set_thread_res_uid(user, user, user).map_err(|error| failed(error.into()))?;
    end_own().map_err(failed)
}

/// Ends every other process of this process's user. The user must be that of a slot.
pub(crate) fn end_own() -> io::Result<()> {
    if rustix::process::geteuid().as_raw() < LEAST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The kernel signals all at once, so no process escapes by starting others. It spares the caller.
    match kill(Pid::from_raw(-1), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
