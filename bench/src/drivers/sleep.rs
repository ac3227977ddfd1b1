//! Sleeps that are exact to the microsecond. The runtime's own timers have a resolution of milliseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sealbus_bench_driver::monotonic_ns;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The least time between two wake-ups, which is as exact as the kernel wakes a sleeping thread. On a virtual machine,
/// setting a timer for the next moment takes up to ten microseconds. With a hundred senders, this is more time than
/// there is.
const APART_NS: u64 = 50_000;

/// A timer of the kernel that wakes all sleepers in this process. With a timer for each, the timers of a hundred
/// senders took most of the processor time, and their messages waited for it.
pub(crate) struct Timer {
    asleep: Arc<Asleep>,
    /// The task that wakes the sleepers.
    waking: AbortHandle,
}

struct Asleep {
    timer: AsyncFd<OwnedFd>,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    /// The sleepers, the next one due first.
    due: BinaryHeap<Reverse<Due>>,
    /// No sleeper is woken before this.
    not_before_ns: u64,
}

/// When a sleeper is due.
struct Due {
    at_ns: u64,
    wake: Arc<Notify>,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at_ns.cmp(&other.at_ns)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at_ns == other.at_ns
    }
}

impl Eq for Due {}

impl Timer {
    // The successor of this function is unsafe. It requires that the descriptor stays the same, and an OwnedFd ensures
    // that.
    #[allow(deprecated)]
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let asleep = Arc::new(Asleep {
            timer: AsyncFd::new(timer)?,
            sleepers: Mutex::default(),
        });
        let its = asleep.clone();
        // A timer that cannot be read or set wakes nobody any more. The instrument then finds that nothing comes, and
        // the log has this error.
        let waking = tokio::spawn(async move {
            loop {
                if let Err(error) = its.wake_next().await {
                    eprintln!("the timer that wakes all senders failed: {error}");
                    return;
                }
            }
        });
        Ok(Self {
            asleep,
            waking: waking.abort_handle(),
        })
    }

    /// A sleeper that uses this timer.
    pub(crate) fn sleeper(&self) -> Sleeper {
        Sleeper {
            asleep: self.asleep.clone(),
            wake: Arc::default(),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.waking.abort();
    }
}

impl Asleep {
    /// Sets the timer to expire at a moment.
    fn set(&self, at_ns: u64) -> io::Result<()> {
        let second = 1_000_000_000;
        let value = Timespec {
            tv_sec: i64::try_from(at_ns / second).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at_ns % second).unwrap_or(0),
        };
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timer = Itimerspec {
            it_interval: never,
            it_value: value,
        };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &timer)?;
        Ok(())
    }

    /// Waits for the timer and wakes the sleepers that are due.
    async fn wake_next(&self) -> io::Result<()> {
        let mut ready = self.timer.readable().await?;
        let mut count = [0; 8];
        match ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut count)?)) {
            Ok(read) => read?,
            Err(_would_block) => return Ok(()),
        };
        let mut sleepers = self.sleepers.lock();
        let now_ns = monotonic_ns();
        sleepers.not_before_ns = now_ns + APART_NS;
        while let Some(Reverse(next)) = sleepers.due.peek() {
            if next.at_ns > now_ns {
                return self.set(next.at_ns.max(sleepers.not_before_ns));
            }
            if let Some(Reverse(due)) = sleepers.due.pop() {
                due.wake.notify_one();
            }
        }
        Ok(())
    }
}

/// One sleeper.
pub(crate) struct Sleeper {
    asleep: Arc<Asleep>,
    wake: Arc<Notify>,
}

impl Sleeper {
    /// Sleeps until the monotonic clock shows `due_ns`.
    pub(crate) async fn until(&mut self, due_ns: u64) -> io::Result<()> {
        while monotonic_ns() < due_ns {
            {
                let mut sleepers = self.asleep.sleepers.lock();
                if (sleepers.due.peek()).is_none_or(|Reverse(next)| due_ns < next.at_ns) {
                    self.asleep.set(due_ns.max(sleepers.not_before_ns))?;
                }
                sleepers.due.push(Reverse(Due {
                    at_ns: due_ns,
                    wake: self.wake.clone(),
                }));
            }
            self.wake.notified().await;
        }
        Ok(())
    }
}
