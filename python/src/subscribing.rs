//! Subscriptions with the options that Python gives.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};
use sealbus::channel::{
    ChannelPattern, FlowPolicy, Moment, QueueLimits, Replay, SubscribeError, Subscribing,
};
use sealbus::process::Outbox;

use crate::channel::PySubscriptionHandle;
use crate::error;
use crate::last_events;

/// Subscribes with the options that `sealbus/channel.py` gives.
pub(crate) fn subscribe(
    outbox: Arc<Outbox>,
    options: &Bound<'_, PyDict>,
) -> PyResult<PySubscriptionHandle> {
    fn option<'py, T>(options: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>>
    where
        T: FromPyObjectOwned<'py>,
    {
        match options.get_item(name)? {
            Some(value) if !value.is_none() => value.extract().map(Some).map_err(Into::into),
            _ => Ok(None),
        }
    }
    let pattern: String = option(options, "pattern")?.unwrap_or_default();
    let pattern = ChannelPattern::new(&pattern).map_err(error::channel)?;
    let mut subscribing = Subscribing::new(outbox, pattern);
    if let Some(filter) = option::<String>(options, "filter")? {
        subscribing = subscribing.filter(filter);
    }
    if let Some(policy) = option::<String>(options, "policy")? {
        subscribing = subscribing.policy(policy.parse::<FlowPolicy>().map_err(error::channel)?);
    }
    let mut limits = QueueLimits::default();
    if let Some(events) = option(options, "events")? {
        limits.events = events;
    }
    if let Some(bytes) = option(options, "bytes")? {
        limits.bytes = bytes;
    }
    subscribing = subscribing.limits(limits);
    match option::<String>(options, "takes")?.as_deref() {
        None | Some("events") => {}
        Some("requests") => subscribing = subscribing.only_requests(),
        Some("all") => subscribing = subscribing.answering(),
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "there is no takes='{other}': it is 'events', 'requests' or 'all'"
            )));
        }
    }
    if let Some(name) = option::<String>(options, "durable")? {
        subscribing = subscribing.durable(name).since(Replay::Resume);
    }
    if let Some(group) = option::<String>(options, "group")? {
        subscribing = subscribing.group(group);
    }
    if let Some(prefetch) = option(options, "prefetch")? {
        subscribing = subscribing.prefetch(prefetch);
    }
    let replay = match (
        option::<u64>(options, "since_ms")?,
        option::<u64>(options, "last")?,
        option::<u64>(options, "number")?,
        option::<String>(options, "last_per")?,
    ) {
        (Some(milliseconds), _, _, _) => Some(Replay::Since(Moment::from_unix_ms(milliseconds))),
        (_, Some(count), _, _) => Some(Replay::Last(count)),
        (_, _, Some(number), _) => Some(Replay::From(number)),
        (_, _, _, Some(name)) => Some(Replay::LastPerKey(last_events::key(&name)?)),
        _ => None,
    };
    if let Some(replay) = replay {
        subscribing = subscribing.since(replay);
    }
    let subscription = subscribing.open().map_err(|problem| match &problem {
        SubscribeError::Filter(problem) => error::filter(problem),
        _ => error::channel(problem),
    })?;
    Ok(PySubscriptionHandle::new(subscription))
}
