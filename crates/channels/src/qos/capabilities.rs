//! The qualities that channels can give. Any other quality is refused by name.

use std::fmt;

use sealbus_seal::SecurityLevel;
use thiserror::Error;

use super::Reliability;
use sealbus_bus::{Acknowledgement, Capabilities};

/// The qualities that a transport and the bus together can give on channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelCapabilities {
    /// The security level of all messages.
    pub level: SecurityLevel,
    /// The security levels that a message can ask for.
    pub levels: Vec<SecurityLevel>,
    /// The strongest reliability.
    pub reliability: Reliability,
    /// Whether it keeps the order of each sender.
    pub ordered: bool,
    /// Whether there is a log that keeps events.
    pub persistent: bool,
    /// Whether messages can be held back until they are valid.
    pub valid_from: bool,
    /// The acknowledgements that a publisher can wait for.
    pub acknowledgements: Vec<Acknowledgement>,
    /// Whether filters are evaluated before messages are sent.
    pub filters: bool,
    /// The largest message in bytes, encoded.
    pub largest_message: usize,
}

impl ChannelCapabilities {
    /// The capabilities between agents of one process, which need no transport.
    pub fn in_process() -> Self {
        Self {
            // Messages between agents of one process are not signed.
            level: SecurityLevel::None,
            levels: SecurityLevel::Auth.and_weaker(),
            reliability: Reliability::ExactlyOnce,
            ordered: true,
            persistent: false,
            valid_from: true,
            acknowledgements: vec![
                Acknowledgement::ReceiverProcess,
                Acknowledgement::ReceiverAgent,
            ],
            filters: true,
            largest_message: usize::MAX,
        }
    }

    /// The capabilities of the bus over a transport that carries its frames. The bus itself numbers frames, recognises
    /// repeats, holds messages back and filters. It needs the transport only for the rest.
    pub fn over(transport: &Capabilities) -> Self {
        let reliability = if transport.resumes {
            Reliability::ExactlyOnce
        } else {
            Reliability::BestEffort
        };
        Self {
            level: transport.level,
            levels: transport.levels.clone(),
            reliability,
            largest_message: transport.largest_message,
            ..Self::in_process()
        }
    }

    /// The same capabilities, with a log on disk that keeps events.
    #[must_use]
    pub(crate) fn with_log(mut self) -> Self {
        self.persistent = true;
        self.acknowledgements.push(Acknowledgement::OnDisk);
        self
    }
}

/// A promise of a [`Qos`](super::Qos) that is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Promise {
    /// A reliability.
    #[error("{wanted} (it reaches {strongest})")]
    Reliability {
        /// The reliability that was asked for.
        wanted: Reliability,
        /// The strongest one that is available.
        strongest: Reliability,
    },
    /// The order of a sender.
    #[error("ordered")]
    Ordered,
    /// Events that are kept.
    #[error("persistent (there is no log here)")]
    Persistent,
    /// Holding messages back until a moment.
    #[error("valid-from")]
    ValidFrom,
    /// A security level.
    #[error("level={0}")]
    Level(SecurityLevel),
    /// An acknowledgement.
    #[error("ack={0}")]
    Acknowledgement(Acknowledgement),
    /// An acknowledgement from disk, for events that are not kept.
    #[error("ack={0} for what is not persistent (add persistent)")]
    AcknowledgementOfTransient(Acknowledgement),
    /// The last event of each key, for events that are not kept.
    #[error("last-per-key of what is not persistent (add persistent)")]
    LastPerKeyOfTransient,
}

/// A transport cannot give the quality that a channel needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableQos {
    /// The transport's name.
    pub transport: String,
    /// Everything that it cannot give.
    pub missing: Vec<Promise>,
}

impl fmt::Display for UnavailableQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the transport {} cannot give ", self.transport)?;
        for (index, promise) in self.missing.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{promise}")?;
        }
        f.write_str(": ask for less, or use another transport")
    }
}

impl std::error::Error for UnavailableQos {}
