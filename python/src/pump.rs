//! The bridge from the runtime's thread to one asyncio loop: a descriptor that becomes readable, and a list of news.
//!
//! The runtime's side never takes the interpreter's lock: it writes its news to a list. The loop takes the list, and is
//! woken at most once for any amount of news. One future across threads for each message would wake the loop each time,
//! and cost many times as much.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::task::{AbortHandle, yield_now};

use crate::error;
use crate::event::{Descriptor, Event};
use crate::runtime::{self, Owned};

/// How often all ready tasks of the runtime have a turn before it has caught up: more often than one task wakes the next
/// between an agent's call and another agent's mailbox.
const ROUNDS: usize = 16;

/// The outcome of a call. The loop's thread turns it into a Python value.
pub(crate) type Outcome = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

#[derive(Default)]
struct Happened {
    /// The mailboxes with mail, by the numbers that their owners gave them.
    mailboxes: Vec<u64>,
    /// Finished calls, by the number of the call.
    calls: Vec<(u64, Outcome)>,
}

/// The runtime's side of the pump. Tasks of the runtime and the hooks of mailboxes hold it.
pub(crate) struct Signal {
    event: Event,
    /// Whether the loop was woken and has not taken the news yet.
    woken: AtomicBool,
    /// Whether the loop drives the runtime itself, so that no descriptor needs to wake it.
    driven: AtomicBool,
    driver: AtomicWaker,
    happened: Mutex<Happened>,
}

impl Signal {
    /// Tells the loop that a mailbox has mail.
    pub(crate) fn mail(&self, mailbox: u64) {
        self.happened.lock().mailboxes.push(mailbox);
        self.wake();
    }

    fn call_finished(&self, call: u64, outcome: Outcome) {
        self.happened.lock().calls.push((call, outcome));
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.driven.load(Ordering::Acquire) {
            self.driver.wake();
        } else {
            self.event.set();
        }
    }

    /// From now on news wake a driver, not the descriptor.
    #[cfg(unix)]
    pub(crate) fn drive(&self) {
        self.driven.store(true, Ordering::Release);
    }

    /// Whether there is news. If not, the context's task is woken when there is.
    #[cfg(unix)]
    pub(crate) fn poll(&self, context: &std::task::Context<'_>) -> bool {
        self.driver.register(context.waker());
        self.woken.load(Ordering::Acquire)
    }

    fn take(&self) -> Happened {
        if !self.driven.load(Ordering::Acquire) {
            self.event.clear();
        }
        // Allow the next wake before taking the lists: none is missed, and news in between wakes the loop once more
        // than needed.
        self.woken.store(false, Ordering::Release);
        std::mem::take(&mut *self.happened.lock())
    }
}

/// Wakes one asyncio loop when agents have mail or calls have ended.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Pump")]
pub(crate) struct PyPump {
    signal: Owned<Arc<Signal>>,
    calls: Owned<Mutex<HashMap<u64, AbortHandle>>>,
}

/// A call that has ended: its number, its error, its result.
type Ended = (u64, Option<PyErr>, Option<Py<PyAny>>);

#[pymethods]
impl PyPump {
    #[new]
    fn new() -> PyResult<Self> {
        let event = Event::new().map_err(|problem| {
            error::platform(format!("nothing can wake the event loop: {problem}"))
        })?;
        let signal = Signal {
            event,
            woken: AtomicBool::new(false),
            driven: AtomicBool::new(false),
            driver: AtomicWaker::new(),
            happened: Mutex::default(),
        };
        Ok(Self {
            signal: Owned::new(Arc::new(signal)),
            calls: Owned::new(Mutex::default()),
        })
    }

    /// Whether there is news that was not taken yet.
    fn has_news(&self) -> PyResult<bool> {
        Ok(self.signal.get()?.woken.load(Ordering::Acquire))
    }

    fn fileno(&self) -> PyResult<Descriptor> {
        Ok(self.signal.get()?.event.descriptor())
    }

    /// The news since the last call: mailboxes that have mail, and calls that have ended.
    fn take(&self, py: Python<'_>) -> PyResult<(Vec<u64>, Vec<Ended>)> {
        let happened = self.signal.get()?.take();
        let calls = self.calls.get()?;
        let mut ended = Vec::with_capacity(happened.calls.len());
        for (call, outcome) in happened.calls {
            calls.lock().remove(&call);
            ended.push(match outcome(py) {
                Ok(value) => (call, None, Some(value)),
                Err(raised) => (call, Some(raised), None),
            });
        }
        Ok((happened.mailboxes, ended))
    }

    /// Ends when the runtime has done the work that it could do at the beginning, and what followed from it.
    fn catch_up(&self, call: u64) -> PyResult<()> {
        self.call(call, async {
            for _ in 0..ROUNDS {
                yield_now().await;
            }
            |py: Python<'_>| Ok(py.None())
        })
    }

    /// Cancels a call that nobody waits for any more.
    fn cancel(&self, call: u64) -> PyResult<()> {
        if let Some(task) = self.calls.get()?.lock().remove(&call) {
            task.abort();
        }
        Ok(())
    }
}

impl PyPump {
    pub(crate) fn signal(&self) -> PyResult<Arc<Signal>> {
        Ok(self.signal.get()?.clone())
    }

    /// Runs `work` on the runtime, and reports its outcome to the loop under the number `call`.
    pub(crate) fn call<T, F>(&self, call: u64, work: F) -> PyResult<()>
    where
        F: Future<Output = T> + Send + 'static,
        T: FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
    {
        let signal = self.signal()?;
        let mut calls = self.calls.get()?.lock();
        let task = runtime::handle()?.spawn(async move {
            let outcome: Outcome = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(outcome) => Box::new(outcome),
                Err(_) => Box::new(|_| {
                    Err(error::platform(
                        "a defect of Sealbus; its message is on stderr",
                    ))
                }),
            };
            signal.call_finished(call, outcome);
        });
        calls.insert(call, task.abort_handle());
        Ok(())
    }
}
