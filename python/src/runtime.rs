//! The runtime of this process. Its own thread never takes the interpreter's lock, and pauses while an event loop drives
//! the runtime itself (`driver.rs`). If the program asks for more threads, they do the work of all connections, and the
//! loop's thread only waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::error;

/// The number of forks that led to this process. Values that were made before the last fork are dead.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static SHARED: Mutex<Option<(u32, Arc<Shared>)>> = Mutex::new(None);

/// The threads that the program asked for.
static THREADS: AtomicUsize = AtomicUsize::new(1);

/// The most threads. More threads than processors are of no use, and each takes memory.
const MOST_THREADS: usize = 256;

/// How long event loops that drive the runtime may do other work before the thread drives it.
const PATIENCE: Duration = Duration::from_millis(3);

/// The runtime, and the state of its drivers.
pub(crate) struct Shared {
    runtime: Runtime,
    started: Instant,
    /// Event loops that drive the runtime when they have nothing else to do.
    loops: AtomicUsize,
    /// The loops among them that drive it now.
    inside: AtomicUsize,
    /// When the last loop stopped driving, in nanoseconds since the start.
    left: AtomicU64,
    /// Whether the thread sleeps until it is unparked.
    parked: AtomicBool,
    /// Whether the thread drives the runtime. It stops when it is notified.
    driving: AtomicBool,
    relieve: Notify,
    thread: Mutex<Option<Thread>>,
}

/// The runtime, which starts at the first call.
pub(crate) fn shared() -> PyResult<Arc<Shared>> {
    let generation = generation();
    // Only threads that hold the interpreter's lock hold this one too, so no fork can catch it locked.
    let mut started = SHARED.lock();
    if let Some((of, shared)) = &*started
        && *of == generation
    {
        return Ok(shared.clone());
    }
    // The parent's runtime has no thread in this child. Forget it: no part of it may run, not even its destructor.
    std::mem::forget(started.take());
    let failed =
        |problem: std::io::Error| error::platform(format!("the runtime did not start: {problem}"));
    let mut builder = match THREADS.load(Ordering::Relaxed) {
        1 => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let runtime = builder
        .enable_all()
        .thread_name("sealbus-work")
        .build()
        .map_err(failed)?;
    let shared = Arc::new(Shared {
        runtime,
        started: Instant::now(),
        loops: AtomicUsize::new(0),
        inside: AtomicUsize::new(0),
        left: AtomicU64::new(0),
        parked: AtomicBool::new(false),
        driving: AtomicBool::new(false),
        relieve: Notify::new(),
        thread: Mutex::new(None),
    });
    let driver = shared.clone();
    let thread = thread::Builder::new()
        .name("sealbus".to_owned())
        .spawn(move || driver.run())
        .map_err(failed)?;
    *shared.thread.lock() = Some(thread.thread().clone());
    *started = Some((generation, shared.clone()));
    Ok(shared)
}

/// Sets how many threads the runtime has. This must happen before the first agent, and before the first event loop of this
/// package.
#[pyfunction]
pub(crate) fn set_threads(threads: usize) -> PyResult<()> {
    if !(1..=MOST_THREADS).contains(&threads) {
        let message = format!("threads must be from 1 to {MOST_THREADS}, not {threads}");
        return Err(PyValueError::new_err(message));
    }
    let started = SHARED.lock();
    let runs = matches!(&*started, Some((of, _)) if *of == generation());
    let former = THREADS.load(Ordering::Relaxed);
    if runs && former != threads {
        return Err(error::platform(format!(
            "`threads` is {former} in this program already: give it to the first `run` or `Platform`, before an event loop begins"
        )));
    }
    THREADS.store(threads, Ordering::Relaxed);
    Ok(())
}

/// A handle to the runtime.
pub(crate) fn handle() -> PyResult<Handle> {
    Ok(shared()?.runtime.handle().clone())
}

impl Shared {
    /// The work of the runtime's thread. It drives the runtime, except while event loops drive it or have only just
    /// stopped.
    fn run(&self) {
        loop {
            if self.loops.load(Ordering::SeqCst) > 0 {
                if self.inside.load(Ordering::SeqCst) > 0 {
                    self.park();
                    continue;
                }
                let away = self.now().saturating_sub(self.left.load(Ordering::SeqCst));
                let patience = PATIENCE.saturating_sub(Duration::from_nanos(away));
                if !patience.is_zero() {
                    thread::sleep(patience);
                    continue;
                }
            }
            self.driving.store(true, Ordering::SeqCst);
            // First handle arrivals from before the loop became visible.
            if self.inside.load(Ordering::SeqCst) == 0 {
                self.runtime.block_on(self.relieve.notified());
            }
            self.driving.store(false, Ordering::SeqCst);
        }
    }

    fn park(&self) {
        self.parked.store(true, Ordering::SeqCst);
        if self.inside.load(Ordering::SeqCst) > 0 {
            thread::park();
        }
        self.parked.store(false, Ordering::SeqCst);
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The event loops' side: loops whose selector waits in the runtime.
#[cfg(unix)]
impl Shared {
    /// Notes that one more event loop will drive the runtime.
    pub(crate) fn join(&self) {
        self.left.store(self.now(), Ordering::SeqCst);
        self.loops.fetch_add(1, Ordering::SeqCst);
        self.relieve.notify_one();
    }

    /// Notes that one event loop will drive the runtime no longer.
    pub(crate) fn part(&self) {
        self.loops.fetch_sub(1, Ordering::SeqCst);
        self.unpark();
    }

    /// Drives the runtime until `until` is ready. If several threads drive it at the same time, one does the work, and
    /// another takes over when that one is done.
    pub(crate) fn drive<F: Future>(&self, until: F) -> F::Output {
        self.inside.fetch_add(1, Ordering::SeqCst);
        if self.driving.load(Ordering::SeqCst) {
            self.relieve.notify_one();
        }
        let output = self.runtime.block_on(until);
        self.left.store(self.now(), Ordering::SeqCst);
        if self.inside.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.unpark();
        }
        output
    }

    fn unpark(&self) {
        if self.parked.load(Ordering::SeqCst)
            && let Some(thread) = &*self.thread.lock()
        {
            thread.unpark();
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }
}

fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Must be called in the child after each fork.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A value that belongs to the runtime. A forked child can neither use nor drop it, because a thread that does not
/// exist in the child may hold the locks inside for ever.
pub(crate) struct Owned<T> {
    generation: u32,
    /// None only while the value is being dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            generation: generation(),
            value: Some(value),
        }
    }

    pub(crate) fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.generation == generation() => Ok(value),
            _ => Err(error::platform(
                "this process was forked from the one whose agents these are: start agents of its own, \
                 or let multiprocessing 'spawn' it",
            )),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.generation != generation() {
            std::mem::forget(self.value.take());
        }
    }
}
