//! Quality of service (QoS): that of a channel, and that of a message that differs from its channel.

mod capabilities;
mod text;

use std::fmt;
use std::time::Duration;

use sealbus_seal::SecurityLevel;

use sealbus_bus::{Acknowledgement, Downgrade, Moment};

pub use capabilities::{ChannelCapabilities, Promise, UnavailableQos};
pub use text::{LONGEST_QOS, QosError, QosProblem};

/// How hard the bus tries to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reliability {
    /// At most once: an event that is lost or finds no room is not sent again.
    BestEffort,
    /// At least once: sent again until taken, and may arrive more than once.
    AtLeastOnce,
    /// Exactly once: sent again until taken, and repeats are recognised, so that the message takes effect once.
    #[default]
    ExactlyOnce,
}

impl Reliability {
    /// All of them, weakest first.
    pub const ALL: [Self; 3] = [Self::BestEffort, Self::AtLeastOnce, Self::ExactlyOnce];

    /// Its name in the text of a [`Qos`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        }
    }

    /// Its number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reliability with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Reliability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The urgency, 0 to 9; messages of priority 9 are handed out first. The default is 4, as in JMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The highest priority.
    pub const MAX: Self = Self(9);
    /// The number of priorities.
    pub const COUNT: usize = 10;

    /// The priority of this number, if it is at most 9.
    pub const fn new(number: u8) -> Option<Self> {
        if number > Self::MAX.0 {
            None
        } else {
            Some(Self(number))
        }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(4)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether events are kept for later subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// Events are not kept.
    #[default]
    Transient,
    /// Events are kept as long as the retention of the log allows.
    Persistent,
    /// Events are kept for this long.
    PersistentFor(Duration),
}

impl Persistence {
    /// Whether events are kept at all.
    pub const fn is_persistent(self) -> bool {
        !matches!(self, Self::Transient)
    }
}

/// A moment, or a length of time after publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Time {
    /// This moment.
    At(Moment),
    /// This long after publication.
    After(Duration),
}

impl Time {
    /// The moment for a message that is published at `published`.
    pub fn from(self, published: Moment) -> Moment {
        match self {
            Self::At(moment) => moment,
            Self::After(duration) => published.plus(duration),
        }
    }
}

/// The promises of the bus for a message on a channel.
///
/// Its text, in URLs and on the command line, lists the differences from the default, in any order:
/// `at-least-once,unordered,persistent=7d,priority=7,valid-from=10s,expiry=20300101T000000000Z,level=auth,ack=disk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qos {
    /// How hard the bus tries to deliver.
    pub reliability: Reliability,
    /// Whether the messages of one sender at one priority arrive in the order of publication. A message that is held
    /// back takes its place in the order when it becomes valid.
    pub ordered: bool,
    /// Whether the message is kept for agents that are away, and for agents that join later.
    pub persistence: Persistence,
    /// The order in which waiting messages are handed out.
    pub priority: Priority,
    /// The time before which the message is never handed out, even if it has waited in a queue or a store.
    pub valid_from: Option<Time>,
    /// The time from which the message is never handed out.
    pub expiry: Option<Time>,
    /// The least security level; `None`: the platform's.
    pub level: Option<SecurityLevel>,
    /// The acknowledgement that the publisher waits for; `None`: the publisher does not wait.
    pub acknowledgement: Option<Acknowledgement>,
}

impl Default for Qos {
    /// The default: exactly once, in order, priority 4, not kept, at the platform's level.
    fn default() -> Self {
        Self {
            reliability: Reliability::ExactlyOnce,
            ordered: true,
            persistence: Persistence::Transient,
            priority: Priority::default(),
            valid_from: None,
            expiry: None,
            level: None,
            acknowledgement: None,
        }
    }
}

/// The differences of a message from its channel, or of a URL from the default. It has the same text form as [`Qos`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QosOverride {
    /// See [`Qos::reliability`].
    pub reliability: Option<Reliability>,
    /// See [`Qos::ordered`].
    pub ordered: Option<bool>,
    /// See [`Qos::persistence`].
    pub persistence: Option<Persistence>,
    /// See [`Qos::priority`].
    pub priority: Option<Priority>,
    /// See [`Qos::valid_from`].
    pub valid_from: Option<Time>,
    /// See [`Qos::expiry`].
    pub expiry: Option<Time>,
    /// See [`Qos::level`]. An override only raises the level: see [`Qos::raised`].
    pub level: Option<SecurityLevel>,
    /// See [`Qos::acknowledgement`].
    pub acknowledgement: Option<Option<Acknowledgement>>,
}

impl Qos {
    /// This QoS with the message's overrides applied.
    #[must_use]
    pub fn with(&self, change: &QosOverride) -> Self {
        Self {
            reliability: change.reliability.unwrap_or(self.reliability),
            ordered: change.ordered.unwrap_or(self.ordered),
            persistence: change.persistence.unwrap_or(self.persistence),
            priority: change.priority.unwrap_or(self.priority),
            valid_from: change.valid_from.or(self.valid_from),
            expiry: change.expiry.or(self.expiry),
            level: self.level.max(change.level),
            acknowledgement: change.acknowledgement.unwrap_or(self.acknowledgement),
        }
    }

    /// As [`with`](Self::with), for an agent that asks for the change. `platform`: the level of all messages.
    ///
    /// # Errors
    /// [`Downgrade`] if the change asks for a level below this QoS's or the platform's.
    pub fn raised(
        &self,
        change: &QosOverride,
        platform: Option<SecurityLevel>,
    ) -> Result<Self, Downgrade> {
        Downgrade::check(change.level, self.level.max(platform))?;
        Ok(self.with(change))
    }

    /// The override for which `base.with(&difference)` is this QoS. An override cannot remove a time or lower a level,
    /// so such differences are lost.
    pub fn difference(&self, base: &Self) -> QosOverride {
        fn changed<T: PartialEq>(ours: T, theirs: T) -> Option<T> {
            (ours != theirs).then_some(ours)
        }
        QosOverride {
            reliability: changed(self.reliability, base.reliability),
            ordered: changed(self.ordered, base.ordered),
            persistence: changed(self.persistence, base.persistence),
            priority: changed(self.priority, base.priority),
            valid_from: changed(self.valid_from, base.valid_from).flatten(),
            expiry: changed(self.expiry, base.expiry).flatten(),
            level: changed(self.level, base.level).flatten(),
            acknowledgement: changed(self.acknowledgement, base.acknowledgement),
        }
    }

    /// Checks that a transport can keep every promise of this QoS.
    ///
    /// # Errors
    /// [`UnavailableQos`], which names each promise that the transport cannot keep.
    pub fn check_against(
        &self,
        capabilities: &ChannelCapabilities,
        transport: &str,
    ) -> Result<(), UnavailableQos> {
        let mut missing = Vec::new();
        if self.reliability > capabilities.reliability {
            missing.push(Promise::Reliability {
                wanted: self.reliability,
                strongest: capabilities.reliability,
            });
        }
        if self.ordered && !capabilities.ordered {
            missing.push(Promise::Ordered);
        }
        if self.persistence.is_persistent() && !capabilities.persistent {
            missing.push(Promise::Persistent);
        }
        if self.valid_from.is_some() && !capabilities.valid_from {
            missing.push(Promise::ValidFrom);
        }
        let level = self.level.unwrap_or(capabilities.level);
        if !capabilities.levels.contains(&level) {
            missing.push(Promise::Level(level));
        }
        if let Some(wanted) = self.acknowledgement {
            if !capabilities.acknowledgements.contains(&wanted) {
                missing.push(Promise::Acknowledgement(wanted));
            } else if wanted >= Acknowledgement::OnDisk && !self.persistence.is_persistent() {
                missing.push(Promise::AcknowledgementOfTransient(wanted));
            }
        }
        if missing.is_empty() {
            Ok(())
        } else {
            Err(UnavailableQos {
                transport: transport.to_owned(),
                missing,
            })
        }
    }
}
