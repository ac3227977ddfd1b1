//! The runtime of this process. It has one thread of its own, which never takes the interpreter's lock, and which
//! stands back while an event loop drives the runtime itself (`driver.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::error;

/// How often this process's ancestors were forked; what was made before the last fork is dead.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static SHARED: Mutex<Option<(u32, Arc<Shared>)>> = Mutex::new(None);

/// How long event loops that drive the runtime may be busy with other things before the thread drives it.
const PATIENCE: Duration = Duration::from_millis(3);

/// The runtime, and who drives it.
pub(crate) struct Shared {
    runtime: Runtime,
    started: Instant,
    /// Event loops that drive the runtime when they have nothing else to do.
    loops: AtomicUsize,
    /// Those of them that are doing it now.
    inside: AtomicUsize,
    /// When the last one stopped doing it, in nanoseconds since the start.
    left: AtomicU64,
    /// The thread sleeps until it is unparked.
    parked: AtomicBool,
    /// The thread drives the runtime, and stops when it is notified.
    driving: AtomicBool,
    relieve: Notify,
    thread: Mutex<Option<Thread>>,
}

/// The runtime, started when it is first asked for.
pub(crate) fn shared() -> PyResult<Arc<Shared>> {
    let generation = generation();
    // Only held by threads that hold the interpreter's lock too, so no fork can catch it locked.
    let mut started = SHARED.lock();
    if let Some((of, shared)) = &*started
        && *of == generation
    {
        return Ok(shared.clone());
    }
    // A parent's runtime has no thread here: nothing of it may run, not even to end it.
    std::mem::forget(started.take());
    let failed =
        |problem: std::io::Error| error::platform(format!("the runtime did not start: {problem}"));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name("sealbus-blocking")
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

/// A handle to the runtime.
pub(crate) fn handle() -> PyResult<Handle> {
    Ok(shared()?.runtime.handle().clone())
}

impl Shared {
    /// The work of the runtime's thread: it drives the runtime, except while event loops do, or have only just left it.
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
            // Arrivals from before the loop was visible are seen now.
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

    /// An event loop comes that will drive the runtime.
    pub(crate) fn join(&self) {
        self.left.store(self.now(), Ordering::SeqCst);
        self.loops.fetch_add(1, Ordering::SeqCst);
        self.relieve.notify_one();
    }

    /// An event loop will drive the runtime no longer.
    pub(crate) fn part(&self) {
        self.loops.fetch_sub(1, Ordering::SeqCst);
        self.unpark();
    }

    /// Drives the runtime until `until` is ready. Others may do so at the same time: one of them has the work, and the
    /// next takes it over when that one is done.
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

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// To be called in the child after each fork.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Something that belongs to the runtime. In a child that was forked it can neither be used nor dropped, for the locks
/// inside may be held for ever by a thread that is not there.
pub(crate) struct Owned<T> {
    generation: u32,
    /// None only while it is dropped.
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
