//! Sleeping to the microsecond: the runtime's own timers know milliseconds only.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sealbus_bench_driver::monotonic_ns;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel.
pub(crate) struct Sleeper(AsyncFd<OwnedFd>);

impl Sleeper {
    // The successor is an unsafe function; what it asks for, that the descriptor stays the same, an OwnedFd keeps.
    #[allow(deprecated)]
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::new(timer)?))
    }

    /// Sleeps until the monotonic clock shows `due_ns`.
    pub(crate) async fn until(&mut self, due_ns: u64) -> io::Result<()> {
        if monotonic_ns() >= due_ns {
            return Ok(());
        }
        let second = 1_000_000_000;
        let value = Timespec {
            tv_sec: i64::try_from(due_ns / second).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(due_ns % second).unwrap_or(0),
        };
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timer = Itimerspec {
            it_interval: never,
            it_value: value,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &timer)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut count = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut count)?)) {
                Ok(read) => {
                    read?;
                    return Ok(());
                }
                Err(_would_block) => {}
            }
        }
    }
}
