//! Lets an asyncio loop drive the runtime on its own thread while the loop has nothing else to do.
//!
//! A loop that waits for the runtime's thread to wake it, and wakes that thread to send, pays for waking two threads
//! with each message. Here the loop's selector waits *in* the runtime: sockets are served where messages are handled.

use std::future::poll_fn;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error;
use crate::pump::{PyPump, Signal};
use crate::runtime::{self, Owned, Shared};

/// The longest wait of a select. After it the loop runs once without news.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A pump has news.
const PUMPS: u8 = 1;
/// The loop's own descriptors may be ready.
const DESCRIPTORS: u8 = 2;

/// The native half of a loop's selector: the selector waits in it.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Driver")]
pub(crate) struct PyDriver(Owned<Driver>);

struct Driver {
    shared: Arc<Shared>,
    /// The epoll instance with the loop's own descriptors, itself watched as a descriptor. None once it is closed.
    epoll: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    signals: Mutex<Vec<Arc<Signal>>>,
}

#[pymethods]
impl PyDriver {
    /// Makes a driver for a selector whose epoll instance has this descriptor.
    #[new]
    fn new(epoll: i32) -> PyResult<Self> {
        let shared = runtime::shared()?;
        let _entered = shared.handle().enter();
        let epoll = watch(epoll).map_err(|problem| {
            error::platform(format!(
                "cannot watch the event loop's descriptors: {problem}"
            ))
        })?;
        shared.join();
        Ok(Self(Owned::new(Driver {
            shared: shared.clone(),
            epoll: Mutex::new(Some(Arc::new(epoll))),
            signals: Mutex::default(),
        })))
    }

    /// From now on the pump wakes this driver alone.
    fn attach(&self, pump: &PyPump) -> PyResult<()> {
        let signal = pump.signal()?;
        signal.drive();
        self.0.get()?.signals.lock().push(signal);
        Ok(())
    }

    fn detach(&self, pump: &PyPump) -> PyResult<()> {
        let signal = pump.signal()?;
        self.0
            .get()?
            .signals
            .lock()
            .retain(|held| !Arc::ptr_eq(held, &signal));
        Ok(())
    }

    /// Drives the runtime until something happens, or until `timeout` seconds have passed. None waits without end. Bit
    /// 1 means that a pump has news, bit 2 that descriptors are ready.
    fn drive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u8> {
        let driver = self.0.get()?;
        let Some(epoll) = driver.epoll.lock().clone() else {
            return Ok(0);
        };
        let timeout = timeout.map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .unwrap_or_default()
                .min(LONGEST)
        });
        Ok(py.detach(|| driver.shared.drive(driver.wait(&epoll, timeout))))
    }

    fn close(&self) -> PyResult<()> {
        let driver = self.0.get()?;
        let _entered = driver.shared.handle().enter();
        if driver.epoll.lock().take().is_some() {
            driver.shared.part();
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.epoll.get_mut().take().is_some() {
            self.shared.part();
        }
    }
}

impl Driver {
    async fn wait(&self, epoll: &AsyncFd<OwnedFd>, timeout: Option<Duration>) -> u8 {
        if timeout != Some(Duration::ZERO) {
            let happened = poll_fn(|context| match self.happened(context, epoll) {
                0 => Poll::Pending,
                happened => Poll::Ready(happened),
            });
            return match timeout {
                None => happened.await,
                Some(timeout) => tokio::time::timeout(timeout, happened).await.unwrap_or(0),
            };
        }
        // The loop has more to do. But first the ready tasks of the runtime get a turn, and then those whose sockets are ready.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        poll_fn(|context| Poll::Ready(self.happened(context, epoll))).await
    }

    fn happened(&self, context: &mut Context<'_>, epoll: &AsyncFd<OwnedFd>) -> u8 {
        let mut happened = 0;
        for signal in &*self.signals.lock() {
            if signal.poll(context) {
                happened |= PUMPS;
            }
        }
        if poll_descriptors(context, epoll).is_ready() {
            happened |= DESCRIPTORS;
        }
        happened
    }
}

/// Watches a duplicate of a Python descriptor.
#[expect(unsafe_code, reason = "a descriptor from Python is a number")]
fn watch(descriptor: i32) -> io::Result<AsyncFd<OwnedFd>> {
    if descriptor < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the descriptor is not -1, and it is borrowed only until it is duplicated. Its owner, the calling
    // selector, is alive. If the number is wrong after all, this fails or duplicates another file.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
    // SAFETY: as long as an `OwnedFd` lives, its descriptor stays the same and open, and nobody can reach it inside the
    // `AsyncFd`.
    Ok(unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?)
}

/// Ready when one of the loop's own descriptors has become ready. Readiness is reported once: the loop looks until it
/// has found nothing.
fn poll_descriptors(context: &mut Context<'_>, epoll: &AsyncFd<OwnedFd>) -> Poll<()> {
    if let Ok(mut guard) = ready!(epoll.poll_read_ready(context)) {
        // This happens before the loop looks, so that later readiness is reported again.
        guard.clear_ready();
    }
    Poll::Ready(())
}
