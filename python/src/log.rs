//! Hands the runtime's log records to Python's `logging`.
//!
//! Threads of the runtime write records to a bounded queue and wake an event loop's pump. The loop takes them in batches, so
//! no record waits for the interpreter's lock.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::error;
use crate::pump::{PyPump, Signal};

/// The most records that wait. Further records are counted and dropped.
const MOST_WAITING: usize = 4096;
/// The longest text of a record, in bytes.
const LONGEST: usize = 16 << 10;
/// The longest wait for a lock: a fork may have left it locked for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time in seconds since 1970, the level as a number of `logging`, the target, and the text.
type Record = (f64, u8, &'static str, String);

static WAITING: Mutex<VecDeque<Record>> = Mutex::new(VecDeque::new());
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Whether there have been records since the last `take_log`: their first one wakes a pump.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
static PUMPS: RwLock<Vec<Weak<Signal>>> = RwLock::new(Vec::new());

struct Forwarding;

impl<S: Subscriber> Layer<S> for Forwarding {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0.0, |since| since.as_secs_f64());
        let record = (seconds, level, event.metadata().target(), text.finish());
        // A fork may have left this lock locked, too. The child then loses its records, and continues.
        let Some(mut waiting) = WAITING.try_lock_for(PATIENCE) else {
            return;
        };
        if waiting.len() < MOST_WAITING {
            waiting.push_back(record);
        } else {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        }
        drop(waiting);
        if !IS_TOLD.swap(true, Ordering::AcqRel)
            && let Some(pumps) = PUMPS.try_read()
            && let Some(signal) = pumps.iter().rev().find_map(Weak::upgrade)
        {
            signal.wake();
        }
    }
}

/// The text of a record: its message, and its other fields as `name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(mut self) -> String {
        if self.message.is_empty() {
            self.fields.drain(..self.fields.len().min(1));
        }
        self.message.push_str(&self.fields);
        let end = self.message.floor_char_boundary(LONGEST);
        self.message.truncate(end);
        self.message
    }

    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => self.message.write_fmt(value),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }
}

/// From now on, all events that pass `filter` go to `take_log`. False if this process logs in another way already.
#[pyfunction]
pub(crate) fn forward_log(filter: &str) -> PyResult<bool> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|problem| error::platform(format!("the filter of the log: {problem}")))?;
    let subscriber = tracing_subscriber::registry().with(Forwarding.with_filter(filter));
    Ok(subscriber.try_init().is_ok())
}

/// This filter, which also leaves out what the libraries of brokers write to the log.
#[pyfunction]
pub(crate) fn quiet_log(filter: &str) -> String {
    sealbus_process::quiet_log(filter)
}

/// Wakes this pump whenever there are records. With None, in the child after a fork, no earlier pump is woken any more.
#[pyfunction]
#[pyo3(signature = (pump))]
pub(crate) fn tell_of_log(pump: Option<&PyPump>) -> PyResult<()> {
    let signal = pump.map(PyPump::signal).transpose()?;
    if let Some(mut pumps) = PUMPS.try_write_for(PATIENCE) {
        match signal {
            Some(signal) => {
                pumps.retain(|pump| pump.strong_count() > 0);
                pumps.push(Arc::downgrade(&signal));
            }
            None => pumps.clear(),
        }
    }
    Ok(())
}

/// The records since the last call, and the number of dropped ones.
#[pyfunction]
pub(crate) fn take_log() -> (Vec<Record>, u64) {
    if !IS_TOLD.swap(false, Ordering::AcqRel) {
        return (Vec::new(), 0);
    }
    let Some(mut waiting) = WAITING.try_lock_for(PATIENCE) else {
        return (Vec::new(), 0);
    };
    let records = waiting.drain(..).collect();
    (records, LEFT_OUT.swap(0, Ordering::Relaxed))
}
