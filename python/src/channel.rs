//! Channels, for `sealbus/channel.py`. Nothing here waits: an operation that must wait is a call of the pump.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sealbus::channel::{
    Channel, ChannelEvent, ChannelReplies, ChannelSubscription, LogRetention, Mechanism,
    QosOverride, Reach, RequestOptions,
};
use sealbus_bus::ReceivedMessage;
use sealbus_channels::Ended;

use crate::acl::aid::user_defined_to_python;
use crate::acl::message::PyAclMessage;
use crate::delegation::carried;
use crate::error;
use crate::last_events;
use crate::message::PyMessage;
use crate::pump::PyPump;
use crate::runtime::Owned;

/// The text of a QoS.
pub(crate) fn qos(text: &str) -> PyResult<QosOverride> {
    text.parse().map_err(error::channel)
}

/// An event from a channel: a `Message` to read, with the channel's own details.
#[pyclass(frozen, extends = PyMessage, module = "sealbus", name = "ChannelEvent")]
pub(crate) struct PyChannelEvent {
    event: ChannelEvent,
    /// The subscription through which the agent answers a request.
    source: Option<Owned<Arc<ChannelSubscription>>>,
}

impl PyChannelEvent {
    fn make(
        py: Python<'_>,
        event: ChannelEvent,
        source: Option<&Arc<ChannelSubscription>>,
    ) -> PyResult<Py<Self>> {
        let provenance = event.provenance().clone();
        let kept = event.log().map(|_| event.header().number);
        let mut facts = PyMessage::new(provenance.clone(), kept, event.may_be_again());
        facts.is_sealed = event.message().is_sealed();
        let message = event.message().clone().into_message();
        let message = PyAclMessage::received(ReceivedMessage::shared(message, provenance));
        let source = source
            .filter(|_| event.is_request())
            .map(|source| Owned::new(source.clone()));
        let initializer = PyClassInitializer::from(message)
            .add_subclass(facts)
            .add_subclass(Self { event, source });
        Py::new(py, initializer)
    }
}

#[pymethods]
impl PyChannelEvent {
    #[getter]
    fn channel(&self) -> &str {
        self.event.channel().as_str()
    }

    #[getter]
    fn mechanism(&self) -> &'static str {
        match self.event.mechanism() {
            Mechanism::Event => "event",
            Mechanism::Message { .. } => "message",
            Mechanism::Request { .. } => "request",
            Mechanism::Reply { .. } => "reply",
        }
    }

    #[getter]
    fn number(&self) -> u64 {
        self.event.header().number
    }

    #[getter]
    fn priority(&self) -> u8 {
        self.event.header().qos.priority.get()
    }

    #[getter]
    fn qos(&self) -> String {
        self.event.header().qos.to_string()
    }

    /// The properties with which it was published, by the names that filters use: the user-defined parameters without `X-`.
    #[getter]
    fn properties(slf: PyRef<'_, Self>) -> PyResult<Bound<'_, PyDict>> {
        let parameters = slf.as_super().as_super().view().user_defined();
        let properties = parameters.map(|(name, value)| {
            let marked = name.strip_prefix("X-").or_else(|| name.strip_prefix("x-"));
            (marked.unwrap_or(name), value.to_owned())
        });
        user_defined_to_python(slf.py(), properties)
    }

    /// The node from whose log it was read, if any.
    #[getter]
    fn log(&self) -> Option<&str> {
        self.event.log()
    }

    /// The number of events before this one that the channel's retention had removed.
    #[getter]
    fn missed(&self) -> u64 {
        self.event.missed()
    }

    /// The time of publishing, by its sender's clock: milliseconds since 1970.
    #[getter]
    fn published_ms(&self) -> u64 {
        self.event.header().published.unix_ms()
    }

    /// Answers this request.
    fn answer(&self, pump: &PyPump, call: u64, reply: &Bound<'_, PyAclMessage>) -> PyResult<()> {
        let Some(source) = &self.source else {
            return Err(error::acl("only a request on a channel can be answered so"));
        };
        let source = source.get()?.clone();
        let reply = reply.get().to_shared();
        let event = self.event.clone();
        pump.call(call, async move {
            let answered = source.answer_with(&event, reply).await;
            move |py: Python<'_>| match answered {
                Ok(()) => Ok(py.None()),
                Err(problem) => Err(error::publish("the answer", &problem)),
            }
        })
    }

    /// Declines this question, so that the asker does not wait for an answer.
    fn decline(&self) -> PyResult<()> {
        if let Some(source) = &self.source {
            source.get()?.decline(&self.event);
        }
        Ok(())
    }
}

/// A channel of one agent.
#[pyclass(frozen, module = "sealbus._sealbus", name = "ChannelHandle")]
pub(crate) struct PyChannelHandle {
    agent: String,
    channel: Owned<Channel>,
}

/// The fields of `sealbus.channel.Reach`.
type Reached = (usize, usize, Option<(String, u64)>, usize);

/// The numbers of subscriptions of this process and of other processes to which a message was sent, its place in a log,
/// and the number of groups that have it.
fn reach(reach: Reach) -> Reached {
    let kept = reach
        .kept
        .map(|place| (place.node.to_string(), place.number));
    (reach.here, reach.processes, kept, reach.groups)
}

impl PyChannelHandle {
    pub(crate) fn new(agent: &str, channel: Channel) -> Self {
        Self {
            agent: agent.to_owned(),
            channel: Owned::new(channel),
        }
    }
}

#[pymethods]
impl PyChannelHandle {
    #[getter]
    fn path(&self) -> PyResult<&str> {
        Ok(self.channel.get()?.path().as_str())
    }

    #[getter]
    fn qos(&self) -> PyResult<String> {
        Ok(self.channel.get()?.qos().to_string())
    }

    #[getter]
    fn agent(&self) -> PyResult<Option<&str>> {
        Ok(self.channel.get()?.agent())
    }

    /// Sets the retention of the channel: seconds, events, bytes.
    fn retain(
        &self,
        pump: &PyPump,
        call: u64,
        age: Option<f64>,
        count: Option<u64>,
        bytes: Option<u64>,
    ) -> PyResult<()> {
        let age = age.map(Duration::try_from_secs_f64).transpose();
        let retention = LogRetention {
            age: age.map_err(error::channel)?,
            count,
            bytes,
        };
        let channel = self.channel.get()?.clone();
        pump.call(call, async move {
            let retained = channel.retain(retention).await;
            move |py: Python<'_>| match retained {
                Ok(()) => Ok(py.None()),
                Err(problem) => Err(error::channel(problem)),
            }
        })
    }

    /// Publishes without waiting. Returns None if it must wait.
    fn try_publish(
        &self,
        message: &Bound<'_, PyAclMessage>,
        qos: &str,
    ) -> PyResult<Option<Reached>> {
        let change = self::qos(qos)?;
        let message = carried(message.py(), message.get().to_shared())?;
        let published = self.channel.get()?.try_publish_with(message, change);
        match published {
            Ok(done) => Ok(done.map(reach)),
            Err(problem) => Err(error::publish(&self.agent, &problem)),
        }
    }

    fn publish(
        &self,
        pump: &PyPump,
        call: u64,
        message: &Bound<'_, PyAclMessage>,
        qos: &str,
    ) -> PyResult<()> {
        let change = self::qos(qos)?;
        let message = carried(message.py(), message.get().to_shared())?;
        let (channel, agent) = (self.channel.get()?.clone(), self.agent.clone());
        pump.call(call, async move {
            let published = channel.publish_with(message, change).await;
            move |py: Python<'_>| match published {
                Ok(done) => Ok(reach(done).into_pyobject(py)?.into_any().unbind()),
                Err(problem) => Err(error::publish(&agent, &problem)),
            }
        })
    }

    fn send(
        &self,
        pump: &PyPump,
        call: u64,
        receiver: String,
        message: &Bound<'_, PyAclMessage>,
        qos: &str,
    ) -> PyResult<()> {
        let change = self::qos(qos)?;
        let message = carried(message.py(), message.get().to_shared())?;
        let (channel, agent) = (self.channel.get()?.clone(), self.agent.clone());
        pump.call(call, async move {
            let sent = channel.send_with(&receiver, message, change).await;
            move |py: Python<'_>| match sent {
                Ok(_) => Ok(py.None()),
                Err(problem) => Err(error::publish(&agent, &problem)),
            }
        })
    }

    /// Asks everyone. The outcome is a `RepliesHandle`.
    fn request(
        &self,
        pump: &PyPump,
        call: u64,
        message: &Bound<'_, PyAclMessage>,
        within: f64,
        first: Option<usize>,
        qos: &str,
    ) -> PyResult<()> {
        let change = self::qos(qos)?;
        let within = Duration::try_from_secs_f64(within).map_err(error::channel)?;
        let options = RequestOptions { within, first };
        let message = carried(message.py(), message.get().to_shared())?;
        let (channel, agent) = (self.channel.get()?.clone(), self.agent.clone());
        pump.call(call, async move {
            let asked = channel.request_with(message, options, change).await;
            move |py: Python<'_>| match asked {
                Ok(replies) => {
                    let replies = Arc::new(tokio::sync::Mutex::new(replies));
                    Ok(Py::new(py, PyRepliesHandle(Owned::new(replies)))?.into_any())
                }
                Err(problem) => Err(error::publish(&agent, &problem)),
            }
        })
    }

    /// Asks all nodes for the last event of each key. The outcome is the events; the nodes that did not answer, each
    /// with the reason; and the number of events that have no key, or for which the filter could not be evaluated.
    fn last(
        &self,
        pump: &PyPump,
        call: u64,
        per: &str,
        filter: String,
        within: f64,
    ) -> PyResult<()> {
        let key = last_events::key(per)?;
        let within = Duration::try_from_secs_f64(within).map_err(error::channel)?;
        let channel = self.channel.get()?.clone();
        pump.call(call, async move {
            let last = channel.last(&key, &filter, within).await;
            move |py: Python<'_>| {
                let make = |event| Ok(PyChannelEvent::make(py, event, None)?.into_any());
                last_events::outcome(py, last, make)
            }
        })
    }
}

/// The answers to a request.
#[pyclass(frozen, module = "sealbus._sealbus", name = "RepliesHandle")]
pub(crate) struct PyRepliesHandle(Owned<Arc<tokio::sync::Mutex<ChannelReplies>>>);

#[pymethods]
impl PyRepliesHandle {
    /// The outcome is the next answer, or None when the request is over.
    fn next(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let replies = self.0.get()?.clone();
        pump.call(call, async move {
            let reply = replies.lock().await.next().await;
            move |py: Python<'_>| match reply {
                None => Ok(py.None()),
                Some(reply) => Ok(PyChannelEvent::make(py, reply, None)?.into_any()),
            }
        })
    }

    /// The agents that were asked and have not answered. The outcome is a list of names.
    fn missing(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let replies = self.0.get()?.clone();
        pump.call(call, async move {
            let missing = replies.lock().await.missing();
            move |py: Python<'_>| {
                let names: Vec<&str> = missing.iter().map(|name| &**name).collect();
                Ok(names.into_pyobject(py)?.into_any().unbind())
            }
        })
    }
}

/// The fields of `sealbus.channel.Counters`.
type Counts = (u64, u64, u64, u64, u64, u64, u64);

/// A subscription of one agent.
#[pyclass(frozen, module = "sealbus._sealbus", name = "SubscriptionHandle")]
pub(crate) struct PySubscriptionHandle(Mutex<Option<Owned<Arc<ChannelSubscription>>>>);

impl PySubscriptionHandle {
    pub(crate) fn new(subscription: ChannelSubscription) -> Self {
        Self(Mutex::new(Some(Owned::new(Arc::new(subscription)))))
    }

    fn open(&self) -> PyResult<Arc<ChannelSubscription>> {
        match &*self.0.lock() {
            Some(open) => Ok(open.get()?.clone()),
            None => Err(error::channel("the subscription was cancelled")),
        }
    }
}

#[pymethods]
impl PySubscriptionHandle {
    /// The next event, if one is there.
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<PyChannelEvent>>> {
        let open = self.0.lock();
        let Some(open) = &*open else { return Ok(None) };
        let subscription = open.get()?;
        subscription
            .try_next()
            .map(|event| PyChannelEvent::make(py, event, Some(subscription)))
            .transpose()
    }

    /// Acknowledges the events taken so far as handled.
    fn settle(&self) -> PyResult<()> {
        if let Some(open) = &*self.0.lock() {
            open.get()?.settle();
        }
        Ok(())
    }

    /// Waits until the platform knows that channels are used here. The outcome says whether it does.
    fn listed(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let subscription = self.open()?;
        pump.call(call, async move {
            let is_listed = subscription.listed().await;
            move |py: Python<'_>| Ok(is_listed.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    /// Whether `listed` would not wait.
    fn is_listed(&self) -> PyResult<bool> {
        Ok(self.open()?.is_listed())
    }

    /// Waits until there is an event, without taking it. The outcome is nothing, or the reason why no further event
    /// will come.
    fn wait(&self, pump: &PyPump, call: u64) -> PyResult<()> {
        let subscription = self.open()?;
        pump.call(call, async move {
            let is_there = poll_fn(|waiting| subscription.poll_ready(waiting)).await;
            let ended = subscription.ended();
            move |py: Python<'_>| {
                let why = (!is_there).then(|| ended.unwrap_or(Ended::Cancelled).to_string());
                Ok(why.into_pyobject(py)?.into_any().unbind())
            }
        })
    }

    /// The numbers of events taken, handed out, and lost by expiry and by the policy; how often publishers had to wait;
    /// and for how many events the filter could not be evaluated.
    fn counters(&self) -> PyResult<Option<Counts>> {
        let open = self.0.lock();
        let Some(open) = &*open else { return Ok(None) };
        let counters = open.get()?.counters();
        Ok(Some((
            counters.taken,
            counters.handed_out,
            counters.expired,
            counters.dropped,
            counters.pushed_back,
            counters.filter_errors,
            counters.missed,
        )))
    }

    /// The logs that the subscription cannot read further: node, channel, and damage.
    fn damaged(&self) -> PyResult<Vec<(String, String, String)>> {
        let open = self.0.lock();
        let Some(open) = &*open else {
            return Ok(Vec::new());
        };
        let damaged = open.get()?.damaged().into_iter();
        let damaged =
            damaged.map(|log| (log.node.to_string(), log.channel.to_string(), log.damage));
        Ok(damaged.collect())
    }

    fn cancel(&self) {
        drop(self.0.lock().take());
    }
}
