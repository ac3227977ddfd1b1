//! An agent's place on the bus, for `sealbus/life.py`. Nothing here waits: an operation that must wait is a call of the
//! pump.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use sealbus::Filter;
use sealbus::channel::Channel;
use sealbus::process::OpenRequest;
use sealbus_bus::Moment;
use sealbus_bus::{Acknowledgement, Delivery, ReceivedMessage, TrySendError, Unsent};
use sealbus_fipa::{AclMessage, Aid};
use sealbus_process::{AgentHandle, Parting, Thawed, Wish};

use crate::acl::aid::PyAid;
use crate::acl::message::PyAclMessage;
use crate::channel::{self, PyChannelHandle, PySubscriptionHandle};
use crate::conversation::{PyConversation, PyOpenRequest};
use crate::delegation::PyDelegation;
use crate::error;
use crate::filter::PyFilter;
use crate::message::PyMessage;
use crate::pump::PyPump;
use crate::runtime::{self, Owned};
use crate::subscribing;

/// An agent's access to the bus.
#[pyclass(frozen, module = "sealbus._sealbus", name = "AgentHandle")]
pub(crate) struct PyAgentHandle {
    aid: Aid,
    platform: String,
    place: Owned<Arc<OwnedHandle>>,
}

/// None when the agent has left, and while its state is handed over.
struct OwnedHandle(Mutex<Option<AgentHandle>>);

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // A task of the runtime reports to the platform that the agent leaves.
        let runtime = runtime::handle();
        let _entered = runtime.as_ref().map(|runtime| runtime.enter());
        drop(self.0.get_mut().take());
    }
}

/// A message that waits for room on its way to some of its receivers.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Unsent")]
pub(crate) struct PyUnsent(Mutex<Option<Unsent>>);

impl From<Unsent> for PyUnsent {
    fn from(unsent: Unsent) -> Self {
        Self(Mutex::new(Some(unsent)))
    }
}

/// The most messages that `try_send_many` hands to the bus together.
const ROW: usize = 1024;

impl PyAgentHandle {
    pub(crate) fn new(handle: AgentHandle) -> Self {
        Self {
            aid: handle.aid().clone(),
            platform: handle.process().platform().to_owned(),
            place: Owned::new(Arc::new(OwnedHandle(Mutex::new(Some(handle))))),
        }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, Option<AgentHandle>>> {
        Ok(self.place.get()?.0.lock())
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut AgentHandle) -> T) -> PyResult<T> {
        match self.lock()?.as_mut() {
            Some(handle) => Ok(act(handle)),
            None => Err(error::agent_stopped(
                &self.aid.name,
                "has left the platform",
            )),
        }
    }

    /// The message for sending, with the chain of its work. Receivers without a platform belong to this one.
    fn addressed(
        &self,
        message: &PyAclMessage,
        chain: Option<&Bound<'_, PyDelegation>>,
    ) -> Arc<AclMessage> {
        let mut message = message.to_shared();
        if message
            .receivers
            .iter()
            .any(|receiver| receiver.platform().is_none())
        {
            for receiver in &mut Arc::make_mut(&mut message).receivers {
                if receiver.platform().is_none() {
                    receiver.name = format!("{}@{}", receiver.name, self.platform);
                }
            }
        }
        match chain {
            Some(chain) => chain.get().put_into(message),
            None => message,
        }
    }

    fn send(&self, handle: &AgentHandle, message: Arc<AclMessage>) -> PyResult<Option<PyUnsent>> {
        match handle.try_send(message) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(unsent)) => Ok(Some(unsent.into())),
            Err(TrySendError::Failed(problem)) => Err(error::send(&self.aid.name, &problem)),
        }
    }

    fn take(
        &self,
        py: Python<'_>,
        take: impl FnOnce(&mut AgentHandle) -> Option<ReceivedMessage>,
    ) -> PyResult<Option<Py<PyMessage>>> {
        let taken = self.with(take)?;
        taken
            .map(|received| PyMessage::make(py, received))
            .transpose()
    }
}

fn takes(filter: &Filter, received: &ReceivedMessage) -> bool {
    filter.is_any() || filter.takes(&received.message())
}

#[pymethods]
impl PyAgentHandle {
    #[getter]
    fn name(&self) -> &str {
        self.aid.local_name()
    }

    #[getter]
    fn aid(&self) -> PyAid {
        PyAid(self.aid.clone())
    }

    #[getter]
    fn platform(&self) -> &str {
        &self.platform
    }

    /// Makes `pump` report mail and wishes under the number `mailbox`.
    fn set_hook(&self, pump: &PyPump, mailbox: u64) -> PyResult<()> {
        let signal = pump.signal()?;
        self.with(|handle| handle.set_hook(move || signal.mail(mailbox)))
    }

    /// The platform's wish: `stop`, `freeze` or nothing.
    fn wish(&self) -> PyResult<Option<&'static str>> {
        let wish = match self.lock()?.as_ref() {
            Some(handle) => handle.wishes().current(),
            None => None,
        };
        Ok(wish.map(|wish| match wish {
            Wish::Stop => "stop",
            Wish::Freeze => "freeze",
        }))
    }

    // ----- sending

    /// Sends without waiting. The returned rest has found no room, and `finish` must send it.
    fn try_send(&self, message: &Bound<'_, PyAclMessage>) -> PyResult<Option<PyUnsent>> {
        let chain = PyDelegation::present(message.py())?;
        let message = self.addressed(message.get(), chain.as_ref());
        self.with(|handle| self.send(handle, message))?
    }

    /// Sends messages from number `first` on. Returns the number of the first message that it has not tried, and the
    /// rest of the message before it if that message found no room.
    fn try_send_many(
        &self,
        messages: &Bound<'_, PyList>,
        first: usize,
    ) -> PyResult<(usize, Option<PyUnsent>)> {
        let chain = PyDelegation::present(messages.py())?;
        let mut next = first;
        while next < messages.len() {
            let mut row = VecDeque::with_capacity(ROW.min(messages.len() - next));
            let mut fault = None;
            for index in next..messages.len().min(next + ROW) {
                match messages.get_item(index)?.cast_into::<PyAclMessage>() {
                    Ok(message) => row.push_back(self.addressed(message.get(), chain.as_ref())),
                    Err(error) => {
                        fault = Some(error.into());
                        break;
                    }
                }
            }
            let end = next + row.len();
            let sent = self.with(|handle| handle.outbox().try_send_many(&mut row))?;
            next = end - row.len();
            match sent {
                Ok(()) => {}
                Err(TrySendError::Full(unsent)) => return Ok((next, Some(unsent.into()))),
                Err(TrySendError::Failed(problem)) => {
                    return Err(error::send(&self.aid.name, &problem));
                }
            }
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        Ok((next, None))
    }

    /// Tries again to send the rest that `try_send` returned, to each receiver separately. Returns one rest for each
    /// receiver without room.
    fn try_each(&self, unsent: &PyUnsent) -> PyResult<Vec<PyUnsent>> {
        let mut rests = Vec::new();
        let unsent = unsent.0.lock().take();
        for mut rest in unsent.into_iter().flat_map(Unsent::split) {
            match self.with(|handle| handle.outbox().try_finish(&mut rest))? {
                Ok(true) => {}
                Ok(false) => rests.push(rest.into()),
                Err(problem) => return Err(error::send(&self.aid.name, &problem)),
            }
        }
        Ok(rests)
    }

    /// Waits for room for the rest that `try_send` returned.
    fn finish(&self, pump: &PyPump, call: u64, unsent: &PyUnsent, is_answer: bool) -> PyResult<()> {
        let Some(mut unsent) = unsent.0.lock().take() else {
            return Err(error::platform("this message was finished before"));
        };
        let outbox = self.with(|handle| handle.outbox().clone())?;
        let agent = self.aid.name.clone();
        pump.call(call, async move {
            let outcome = match is_answer {
                true => outbox.finish_answer(&mut unsent).await,
                false => outbox.finish(&mut unsent).await,
            };
            move |py: Python<'_>| match outcome {
                Ok(()) => Ok(py.None()),
                Err(problem) => Err(error::send(&agent, &problem)),
            }
        })
    }

    /// Sends a message that is kept for its receivers. Times are in milliseconds since 1970.
    #[pyo3(signature = (pump, call, message, expiry, valid_from, receipt))]
    fn send_persistent(
        &self,
        pump: &PyPump,
        call: u64,
        message: &Bound<'_, PyAclMessage>,
        expiry: Option<u64>,
        valid_from: Option<u64>,
        receipt: Option<&str>,
    ) -> PyResult<()> {
        let receipt = match receipt {
            None => None,
            Some("disk") => Some(Acknowledgement::OnDisk),
            Some("process") => Some(Acknowledgement::ReceiverProcess),
            Some("agent") => Some(Acknowledgement::ReceiverAgent),
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "there is no receipt '{other}': a receipt is 'disk', 'process' or 'agent'"
                )));
            }
        };
        let delivery = Delivery {
            persistent: true,
            expiry: expiry.map(Moment::from_unix_ms),
            valid_from: valid_from.map(Moment::from_unix_ms),
            receipt,
            // The message itself states the level.
            level: None,
        };
        let chain = PyDelegation::present(message.py())?;
        let message = self.addressed(message.get(), chain.as_ref());
        let outbox = self.with(|handle| handle.outbox().clone())?;
        let agent = self.aid.name.clone();
        pump.call(call, async move {
            let outcome = outbox.send_with(message, delivery).await;
            move |py: Python<'_>| match outcome {
                Ok(()) => Ok(py.None()),
                Err(problem) => Err(error::send(&agent, &problem)),
            }
        })
    }

    /// Opens the conversation of a request. Returns the request, which must still be sent, and the place where its
    /// replies arrive.
    fn open_request(
        &self,
        request: &Bound<'_, PyAclMessage>,
    ) -> PyResult<(PyAclMessage, PyOpenRequest)> {
        let chain = PyDelegation::present(request.py())?;
        let mut request = Arc::unwrap_or_clone(self.addressed(request.get(), chain.as_ref()));
        // A message without its sender would be copied once more when it is sent.
        request.sender.get_or_insert_with(|| self.aid.clone());
        let open = self.with(|handle| {
            OpenRequest::open(handle.sender(), &handle.conversations(), &mut request)
        })?;
        Ok((PyAclMessage::new(request), PyOpenRequest::new(open)))
    }

    /// Opens the conversation of this name, with all agents or with one. From now on its messages go to it, not to the
    /// mailbox.
    fn open_conversation(
        &self,
        id: &str,
        peer: Option<&Bound<'_, PyAid>>,
    ) -> PyResult<PyConversation> {
        let opened = self.with(|handle| match peer {
            Some(peer) => handle.conversations().open_with(id, &peer.get().0.name),
            None => handle.conversations().open(id),
        })?;
        opened.map(PyConversation::new).map_err(error::protocol)
    }

    /// Opens a conversation that has no name, for the replies to one message.
    fn open_replies(&self, tag: &str) -> PyResult<PyConversation> {
        let opened = self.with(|handle| handle.conversations().open_reply(None, tag))?;
        Ok(PyConversation::new(opened))
    }

    /// The number of dropped messages: those that arrived after the end of their conversation, or that it left unread.
    #[getter]
    fn late_messages(&self) -> PyResult<u64> {
        self.with(|handle| handle.conversations().ignored())
    }

    // ----- receiving

    fn try_receive(
        &self,
        py: Python<'_>,
        filter: Option<&Bound<'_, PyFilter>>,
    ) -> PyResult<Option<Py<PyMessage>>> {
        self.take(py, |handle| match filter {
            // A search through the mailbox would take its rows of messages apart.
            None => handle.mailbox().try_recv(),
            Some(filter) => handle
                .mailbox()
                .try_receive_matching(|received| takes(&filter.get().0, received)),
        })
    }

    /// The first message with this conversation-id that `filter` takes. Does not look at other messages.
    fn try_receive_named(
        &self,
        py: Python<'_>,
        id: &str,
        filter: &Bound<'_, PyFilter>,
    ) -> PyResult<Option<Py<PyMessage>>> {
        let matches = |received: &ReceivedMessage| takes(&filter.get().0, received);
        self.take(py, |handle| handle.mailbox().try_receive_named(id, matches))
    }

    /// After the platform has given up this process: the next failure that the agent has not received.
    fn try_receive_failure(&self, py: Python<'_>) -> PyResult<Option<Py<PyMessage>>> {
        self.take(py, AgentHandle::try_receive_failure)
    }

    /// The first message that none of `filters` takes. A filter of None takes every message.
    fn try_receive_except(
        &self,
        py: Python<'_>,
        filters: Vec<Option<Bound<'_, PyFilter>>>,
    ) -> PyResult<Option<Py<PyMessage>>> {
        let matches = |received: &ReceivedMessage| {
            !filters.iter().any(|filter| match filter {
                None => true,
                Some(filter) => takes(&filter.get().0, received),
            })
        };
        self.take(py, |handle| handle.mailbox().try_receive_matching(matches))
    }

    fn try_receive_many<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let mut received = Vec::new();
        self.with(|handle| handle.mailbox().try_recv_many(&mut received, most))?;
        let messages: PyResult<Vec<_>> = received
            .into_iter()
            .map(|received| PyMessage::make(py, received))
            .collect();
        PyList::new(py, messages?)
    }

    /// Whether there is a message that `filter` takes. If not, the hook will report the next message.
    fn has_mail(&self, filter: Option<&Bound<'_, PyFilter>>) -> PyResult<bool> {
        let Some(filter) = filter else {
            return self.with(|handle| {
                let mailbox = handle.mailbox();
                // Even without taking a message, this makes an empty mailbox report its next one.
                mailbox.try_recv_many(&mut Vec::new(), 0);
                !mailbox.is_empty()
            });
        };
        let mut found = false;
        self.with(|handle| {
            handle.mailbox().try_receive_matching(|received| {
                found = found || takes(&filter.get().0, received);
                false
            })
        })?;
        Ok(found)
    }

    // ----- channels

    /// The channel of a path or an address.
    fn channel(&self, address: &str, qos: &str) -> PyResult<PyChannelHandle> {
        let change = channel::qos(qos)?;
        let opened = self.with(|handle| {
            Channel::open(handle.outbox().clone(), &self.platform, address)
                .and_then(|channel| channel.with_qos(change))
        })?;
        let channel = opened.map_err(error::channel)?;
        Ok(PyChannelHandle::new(&self.aid.name, channel))
    }

    /// Subscribes to the channels of a pattern.
    fn subscribe(&self, options: &Bound<'_, PyDict>) -> PyResult<PySubscriptionHandle> {
        let outbox = self.with(|handle| handle.outbox().clone())?;
        subscribing::subscribe(outbox, options)
    }

    // ----- living

    /// The state that the agent was moved with.
    fn take_state<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let state = self.with(AgentHandle::take_state)?;
        Ok(state.map(|state| PyBytes::new(py, &state)))
    }

    /// Stops the agent's subscriptions from handing out events, before its state is saved.
    fn come_to_rest(&self) -> PyResult<()> {
        self.with(|handle| handle.come_to_rest())
    }

    /// Hands the agent's state to the platform. The outcome says whether the agent continues elsewhere.
    fn hand_over(&self, pump: &PyPump, call: u64, state: Vec<u8>) -> PyResult<()> {
        let place = self.place.get()?.clone();
        let Some(mut handle) = place.0.lock().take() else {
            return Err(error::agent_stopped(
                &self.aid.name,
                "has left the platform",
            ));
        };
        pump.call(call, async move {
            let gone = handle.hand_over(state).await == Thawed::Gone;
            *place.0.lock() = Some(handle);
            move |py: Python<'_>| Ok(gone.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    fn decline_move(&self, reason: &str) -> PyResult<()> {
        self.with(|handle| handle.decline_move(reason))
    }

    /// Whether some events that the agent has published have not arrived yet.
    fn has_undelivered(&self) -> PyResult<bool> {
        self.with(|handle| !handle.undelivered().is_empty())
    }

    /// Waits until the events that the agent has published have arrived, for `limit` seconds at most.
    fn delivered(&self, pump: &PyPump, call: u64, limit: f64) -> PyResult<()> {
        let limit = Duration::try_from_secs_f64(limit).map_err(error::channel)?;
        let delivered = self.with(|handle| handle.until_delivered(limit))?;
        pump.call(call, async move {
            delivered.await;
            |py: Python<'_>| Ok(py.None())
        })
    }

    /// Leaves the platform. The agent has `ended`, `failed` or `moved`.
    fn leave(&self, parting: &str, failure: String) -> PyResult<()> {
        let runtime = runtime::handle()?;
        let _entered = runtime.enter();
        let handle = self.lock()?.take();
        if let Some(handle) = handle {
            handle.leave(match parting {
                "moved" => Parting::Moved,
                "failed" => Parting::Failed(failure),
                _ => Parting::Ended,
            });
        }
        Ok(())
    }
}
