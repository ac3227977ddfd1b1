//! No spans: the feature `telemetry` is off.

use std::error::Error;
use std::sync::Arc;

use sealbus_bus::Provenance;
use sealbus_fipa::{AclMessage, Aid, Performative};

use super::carried;
use crate::fault::AtFault;

/// The span that ends when a message is accepted. Without the feature there is none.
pub(crate) struct Sending;

/// A message on its way to its receivers.
pub(crate) fn sending(_: &Aid, message: Arc<AclMessage>) -> (Arc<AclMessage>, Sending) {
    (carried(message), Sending)
}

/// A message on its way to a channel.
pub(crate) fn publishing(
    _: &str,
    _: &'static str,
    _: &str,
    message: Arc<AclMessage>,
) -> (Arc<AclMessage>, Sending) {
    (carried(message), Sending)
}

/// The handling of a message.
pub(crate) struct Handling;

impl Handling {
    pub(crate) fn of(_: &Aid, _: &AclMessage, _: &Provenance, _: Option<&str>) -> Self {
        Self
    }

    pub(crate) fn within<F: Future>(&self, work: F) -> F {
        work
    }

    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }
}

/// Does nothing about the error that a handler returned.
pub(crate) fn failed(_: AtFault, _: &Performative, _: &(dyn Error + 'static)) {}
