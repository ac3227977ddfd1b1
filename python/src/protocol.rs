//! The interaction protocols' machines, for `sealbus/conversation.py`. All rules are in `sealbus_protocols`.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyString;
use sealbus::Filter;
use sealbus_fipa::{AclMessage, Aid};
use sealbus_protocols::{
    ActError, Branch, Initiator, Participant, Protocol, Received, Refused, To,
};

use crate::acl::aid::{self, PyAid};
use crate::acl::message::PyAclMessage;
use crate::error;
use crate::filter::PyFilter;

/// One side of a conversation, without any I/O. Times are milliseconds after 1970.
#[pyclass(frozen, subclass, module = "sealbus._sealbus", name = "Side")]
pub(crate) struct PySide(Side);

/// The initiator's side of a conversation.
#[pyclass(frozen, extends = PySide, module = "sealbus._sealbus", name = "Initiator")]
pub(crate) struct PyInitiator(Arc<Mutex<Initiator>>);

/// A participant's side of a conversation.
#[pyclass(frozen, extends = PySide, module = "sealbus._sealbus", name = "Participant")]
pub(crate) struct PyParticipant(Arc<Mutex<Participant>>);

enum Side {
    Initiator(Arc<Mutex<Initiator>>),
    Participant(Arc<Mutex<Participant>>),
}

/// Applies an expression to the machine of either role.
macro_rules! either {
    ($side:expr, $machine:ident => $does:expr) => {
        match &$side.0 {
            Side::Initiator(machine) => (|$machine: &mut Initiator| $does)(&mut machine.lock()),
            Side::Participant(machine) => (|$machine: &mut Participant| $does)(&mut machine.lock()),
        }
    };
}

/// The state of an initiator's conversation with one participant.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Branch")]
pub(crate) struct PyBranch(Branch);

/// A message that is no part of the conversation, and the answer that the standard asks for.
#[pyclass(frozen, module = "sealbus._sealbus", name = "Refused")]
pub(crate) struct PyRefused(Refused);

/// The messages that open the protocol of this name.
#[pyfunction]
pub(crate) fn opens(protocol: &str) -> PyResult<PyFilter> {
    let protocol = named(protocol)?;
    Ok(PyFilter(Filter::matching(move |message| {
        let opened = Protocol::opened_with(&message.performative(), message.protocol().as_deref());
        opened.is_some_and(|opened| opened.name() == protocol.name())
    })))
}

/// The name of the protocol that a message opens.
#[pyfunction]
pub(crate) fn opened_by(message: &Bound<'_, PyAclMessage>) -> Option<&'static str> {
    Protocol::opened_by(&message.get().to_shared()).map(Protocol::name)
}

/// The message that a proxy embeds, as the recruiter sends it.
#[pyfunction]
pub(crate) fn forward(
    embedded: &Bound<'_, PyAclMessage>,
    proxy: &Bound<'_, PyAclMessage>,
    targets: Vec<Bound<'_, PyAid>>,
    designated: &Bound<'_, PyAid>,
) -> PyAclMessage {
    let targets = targets.iter().map(|agent| agent.get().0.clone());
    let (embedded, proxy) = (embedded.get().to_message(), proxy.get().to_shared());
    PyAclMessage::new(sealbus_protocols::forward(
        embedded,
        &proxy,
        targets,
        designated.get().0.clone(),
    ))
}

fn named(name: &str) -> PyResult<&'static Protocol> {
    Protocol::named(name)
        .ok_or_else(|| error::protocol(format!("there is no interaction protocol {name:?}")))
}

fn forbidden(problem: ActError) -> PyErr {
    error::protocol(problem)
}

fn sent(messages: Vec<AclMessage>) -> Vec<PyAclMessage> {
    messages.into_iter().map(PyAclMessage::new).collect()
}

fn received<'py>(py: Python<'py>, done: Result<Received, Refused>) -> PyResult<Bound<'py, PyAny>> {
    let meaning = match done {
        Ok(Received::Step) => "step",
        Ok(Received::Cancel) => "cancel",
        Ok(Received::NotCancelled) => "not-cancelled",
        Ok(Received::Recruit) => "recruit",
        Err(refused) => return Ok(Bound::new(py, PyRefused(refused))?.into_any()),
    };
    Ok(PyString::intern(py, meaning).into_any())
}

#[pymethods]
impl PySide {
    fn receive<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyAclMessage>,
        now: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let message = message.get().to_shared();
        received(py, either!(self, machine => machine.receive(&message, now)))
    }

    #[getter]
    fn deadline(&self) -> Option<i64> {
        either!(self, machine => machine.deadline())
    }

    fn end_by(&self, moment: i64) {
        either!(self, machine => machine.end_by(moment));
    }

    fn conclude(&self) {
        either!(self, machine => machine.conclude());
    }

    #[getter]
    fn refused(&self) -> u64 {
        either!(self, machine => machine.refused())
    }
}

#[pymethods]
impl PyInitiator {
    /// Opens a conversation. Returns it with the messages to send.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        protocol: &str,
        conversation_id: String,
        participants: Vec<Bound<'_, PyAid>>,
        draft: &Bound<'_, PyAclMessage>,
        now: i64,
    ) -> PyResult<(Py<Self>, Vec<PyAclMessage>)> {
        let participants = participants.iter().map(|agent| agent.get().0.clone());
        let draft = draft.get().to_shared();
        let (initiator, messages) =
            Initiator::open(named(protocol)?, conversation_id, participants, &draft, now)
                .map_err(forbidden)?;
        let machine = Arc::new(Mutex::new(initiator));
        let side = PyClassInitializer::from(PySide(Side::Initiator(machine.clone())));
        let opened = Py::new(py, side.add_subclass(Self(machine)))?;
        Ok((opened, sent(messages)))
    }

    /// Sends a further message to these participants, or to all whose conversation is open.
    #[pyo3(signature = (draft, now, to = None))]
    fn send(
        &self,
        draft: &Bound<'_, PyAclMessage>,
        now: i64,
        to: Option<Vec<Bound<'_, PyAid>>>,
    ) -> PyResult<Vec<PyAclMessage>> {
        let draft = draft.get().to_shared();
        let agents: Option<Vec<Aid>> =
            to.map(|to| to.iter().map(|agent| agent.get().0.clone()).collect());
        let to = agents.as_deref().map_or(To::All, To::Agents);
        let messages = self.0.lock().send(to, &draft, now).map_err(forbidden)?;
        Ok(sent(messages))
    }

    fn advance(&self, now: i64) -> Vec<PyAclMessage> {
        sent(self.0.lock().advance(now))
    }

    fn undeliverable(&self, participant: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.lock().undeliverable(&aid::from_python(participant)?);
        Ok(())
    }

    #[getter]
    fn branches(&self) -> Vec<PyBranch> {
        let initiator = self.0.lock();
        initiator.branches().iter().cloned().map(PyBranch).collect()
    }

    fn branch(&self, participant: &Bound<'_, PyAny>) -> PyResult<Option<PyBranch>> {
        let participant = aid::from_python(participant)?;
        let initiator = self.0.lock();
        Ok(initiator.branch(&participant).cloned().map(PyBranch))
    }

    /// The number of participants at this stage whose conversation is open.
    fn count_at(&self, stage: &str) -> usize {
        let initiator = self.0.lock();
        let branches = initiator.branches().iter();
        branches
            .filter(|it| it.outcome().is_none() && it.stage().as_str() == stage)
            .count()
    }

    #[getter]
    fn has_ended(&self) -> bool {
        self.0.lock().has_ended()
    }
}

#[pymethods]
impl PyParticipant {
    /// Enters the conversation that a message opens.
    #[staticmethod]
    fn open<'py>(
        py: Python<'py>,
        protocol: &str,
        message: &Bound<'py, PyAclMessage>,
        now: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let message = message.get().to_shared();
        match Participant::open(named(protocol)?, &message, now) {
            Ok(participant) => {
                let machine = Arc::new(Mutex::new(participant));
                let side = PyClassInitializer::from(PySide(Side::Participant(machine.clone())));
                Ok(Bound::new(py, side.add_subclass(Self(machine)))?.into_any())
            }
            Err(refused) => Ok(Bound::new(py, PyRefused(refused))?.into_any()),
        }
    }

    fn send(&self, draft: &Bound<'_, PyAclMessage>, now: i64) -> PyResult<PyAclMessage> {
        let draft = draft.get().to_shared();
        let message = self.0.lock().send(&draft, now).map_err(forbidden)?;
        Ok(PyAclMessage::new(message))
    }

    fn answer_cancel(&self, draft: &Bound<'_, PyAclMessage>, now: i64) -> PyResult<PyAclMessage> {
        let draft = draft.get().to_shared();
        let message = self.0.lock().answer_cancel(&draft, now);
        Ok(PyAclMessage::new(message.map_err(forbidden)?))
    }

    fn advance(&self, now: i64) {
        self.0.lock().advance(now);
    }

    fn undeliverable(&self) {
        self.0.lock().undeliverable();
    }

    #[getter]
    fn initiator(&self) -> PyAid {
        PyAid(self.0.lock().initiator().clone())
    }

    #[getter]
    fn stage(&self) -> &'static str {
        self.0.lock().stage().as_str()
    }

    #[getter]
    fn outcome(&self) -> Option<&'static str> {
        self.0.lock().outcome().map(|outcome| outcome.as_str())
    }

    #[getter]
    fn is_cancelling(&self) -> bool {
        self.0.lock().is_cancelling()
    }
}

#[pymethods]
impl PyBranch {
    #[getter]
    fn agent(&self) -> PyAid {
        PyAid(self.0.agent().clone())
    }

    #[getter]
    fn stage(&self) -> &'static str {
        self.0.stage().as_str()
    }

    #[getter]
    fn outcome(&self) -> Option<&'static str> {
        self.0.outcome().map(|outcome| outcome.as_str())
    }

    #[getter]
    fn is_cancelling(&self) -> bool {
        self.0.is_cancelling()
    }
}

#[pymethods]
impl PyRefused {
    #[getter]
    fn reason(&self) -> String {
        self.0.reason.to_string()
    }

    /// Whether the message came after the end of the conversation with its sender.
    #[getter]
    fn is_late(&self) -> bool {
        self.0.is_late()
    }

    #[getter]
    fn answer(&self) -> Option<PyAclMessage> {
        let answer = self.0.answer.as_deref();
        answer.cloned().map(PyAclMessage::new)
    }
}
