//! Quality of service: of a channel, and of a message that differs from its channel.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sealbus_acl::{DateTime, DateTimeError};
use sealbus_seal::{SecurityLevel, UnknownSecurityLevel};
use thiserror::Error;

use super::moment::Moment;
use crate::lifetime::{Lifetime, LifetimeError};
use crate::transport::{Acknowledgement, Capabilities};

/// The longest text of a QoS, in bytes.
pub const MAX_QOS_LENGTH: usize = 256;

/// How hard the bus tries to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reliability {
    /// At most once: what is lost or finds no room is lost.
    BestEffort,
    /// Sent again until taken; may arrive more than once.
    AtLeastOnce,
    /// Sent again until taken, and recognised if it comes again: once in effect.
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

    /// The one with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Reliability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How urgent: 0 to 9, and 9 is handed out first. The default is 4, as in JMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The highest.
    pub const MAX: Self = Self(9);
    /// How many there are.
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

/// Whether events are kept for those who come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// They are not.
    #[default]
    Transient,
    /// They are, as long as the retention of the log allows.
    Persistent,
    /// They are, for this long.
    PersistentFor(Duration),
}

impl Persistence {
    /// Whether events are kept at all.
    pub const fn is_persistent(self) -> bool {
        !matches!(self, Self::Transient)
    }
}

/// A moment, or an amount of time counted from when the message is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Time {
    /// This moment.
    At(Moment),
    /// This long after publication.
    After(Duration),
}

impl Time {
    /// The moment meant for what is published at `published`.
    pub fn from(self, published: Moment) -> Moment {
        match self {
            Self::At(moment) => moment,
            Self::After(duration) => published.plus(duration),
        }
    }
}

/// What the bus promises for a message on a channel.
///
/// Its text, in URLs and on the command line, lists what differs from the default, in any order:
/// `at-least-once,unordered,persistent=7d,priority=7,valid-from=10s,expiry=20300101T000000000Z,level=auth,ack=disk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qos {
    /// How hard it tries.
    pub reliability: Reliability,
    /// Whether what one sender publishes at one priority arrives in the order it was published. What is held back until
    /// it is valid takes its place then.
    pub ordered: bool,
    /// Whether it is kept for agents that are away, and for those that join later.
    pub persistence: Persistence,
    /// What is handed out first where messages wait.
    pub priority: Priority,
    /// Never handed out before this, also when it waited in a queue or a store.
    pub valid_from: Option<Time>,
    /// Never handed out from then on.
    pub expiry: Option<Time>,
    /// The least security level; `None`: the platform's.
    pub level: Option<SecurityLevel>,
    /// The acknowledgement the publisher waits for; `None`: it does not wait.
    pub acknowledgement: Option<Acknowledgement>,
}

impl Default for Qos {
    /// Once, in order, priority 4, not kept, at the platform's level.
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

/// What a message wants differently from its channel, or a URL from the default. Has the same text as [`Qos`].
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
    /// See [`Qos::level`]. It only raises the level; a weaker one than the channel's changes nothing.
    pub level: Option<SecurityLevel>,
    /// See [`Qos::acknowledgement`].
    pub acknowledgement: Option<Option<Acknowledgement>>,
}

impl Qos {
    /// This QoS, changed by what a message wants differently.
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

    /// What differs from `base`, so that `base.with(&difference)` is this QoS, but for what an override cannot
    /// express: it takes away no time, and lowers no level.
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

    /// Checks that a transport can give all that is promised here.
    ///
    /// # Errors
    /// [`UnavailableQos`], which names each promise that it cannot give.
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
        if let Some(level) = self.level
            && !capabilities.levels.contains(&level)
        {
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

/// What a transport, with what the bus adds to it, can give on channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelCapabilities {
    /// The security levels it reaches.
    pub levels: Vec<SecurityLevel>,
    /// The strongest reliability.
    pub reliability: Reliability,
    /// Whether it keeps the order of each sender.
    pub ordered: bool,
    /// Whether there is a log in which events are kept.
    pub persistent: bool,
    /// Whether messages can be held back until they are valid.
    pub valid_from: bool,
    /// What a publisher can wait for.
    pub acknowledgements: Vec<Acknowledgement>,
    /// Whether filters are evaluated before messages are sent.
    pub filters: bool,
    /// The largest message in bytes, encoded.
    pub largest_message: usize,
}

impl ChannelCapabilities {
    /// Between agents of one process, which need no transport.
    pub fn in_process() -> Self {
        Self {
            levels: SecurityLevel::ALL[..=SecurityLevel::Auth.code() as usize].to_vec(),
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

    /// What the bus makes of a transport that carries its frames: it numbers, recognises what comes twice, holds back and
    /// filters itself, and needs of the transport what only that can give.
    pub fn over(transport: &Capabilities) -> Self {
        let reliability = if transport.resumes {
            Reliability::ExactlyOnce
        } else {
            Reliability::BestEffort
        };
        Self {
            levels: transport.levels.clone(),
            reliability,
            largest_message: transport.largest_message,
            ..Self::in_process()
        }
    }

    /// The same where events can be kept in a log on disk.
    #[must_use]
    pub fn with_log(mut self) -> Self {
        self.persistent = true;
        self.acknowledgements.push(Acknowledgement::OnDisk);
        self
    }
}

/// A part of a [`Qos`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Promise {
    /// More reliable than it can.
    #[error("{wanted} (it reaches {strongest})")]
    Reliability {
        /// Wanted.
        wanted: Reliability,
        /// What it reaches.
        strongest: Reliability,
    },
    /// The order of a sender.
    #[error("ordered")]
    Ordered,
    /// Events that are kept.
    #[error("persistent (there is no log here)")]
    Persistent,
    /// Holding back until a moment.
    #[error("valid-from")]
    ValidFrom,
    /// A security level.
    #[error("level={0}")]
    Level(SecurityLevel),
    /// An acknowledgement.
    #[error("ack={0}")]
    Acknowledgement(Acknowledgement),
    /// An acknowledgement from disk for what is not kept.
    #[error("ack={0} for what is not persistent (add persistent)")]
    AcknowledgementOfTransient(Acknowledgement),
}

/// A transport cannot give what is asked of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableQos {
    /// The transport's name.
    pub transport: String,
    /// All it cannot give.
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

/// Why a text is no QoS.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset} of the QoS: {problem}")]
pub struct QosError {
    /// Where, in bytes from the start of the text.
    pub offset: usize,
    /// What is wrong there.
    pub problem: QosProblem,
}

/// What is wrong with the text of a QoS.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QosProblem {
    /// Longer than [`MAX_QOS_LENGTH`].
    #[error("the text is longer than {MAX_QOS_LENGTH} bytes")]
    TooLong,
    /// No such promise.
    #[error(
        "unknown promise {0:?}; there are best-effort, at-least-once, exactly-once, ordered, unordered, transient, \
         persistent, persistent=, priority=, valid-from=, expiry=, level= and ack="
    )]
    Unknown(String),
    /// Two that say something about the same.
    #[error("says twice what {0} is to be")]
    Twice(&'static str),
    /// No priority.
    #[error("expected a priority from 0 to 9, such as priority=7")]
    Priority,
    /// No length of time.
    #[error(transparent)]
    Lifetime(#[from] LifetimeError),
    /// Neither a length of time nor a date.
    #[error(
        "expected a length of time such as 5s, or a date-time such as 20300101T000000000Z ({0})"
    )]
    Time(DateTimeError),
    /// A date before 1970.
    #[error("a date before 1970 cannot be meant")]
    BeforeEpoch,
    /// No security level.
    #[error(transparent)]
    Level(#[from] UnknownSecurityLevel),
    /// No acknowledgement.
    #[error("expected what is to acknowledge: none, process, agent, disk or majority")]
    Acknowledgement,
}

impl QosOverride {
    fn read(&mut self, item: &str) -> Result<(), (usize, QosProblem)> {
        let (name, value, at) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value), name.len() + 1),
            None => (item, None, 0),
        };
        let twice = |what| (0, QosProblem::Twice(what));
        match (name, value) {
            ("best-effort" | "at-least-once" | "exactly-once", None) => {
                let one = Reliability::ALL
                    .into_iter()
                    .find(|reliability| reliability.as_str() == name);
                set(&mut self.reliability, one, || twice("the reliability"))
            }
            ("ordered" | "unordered", None) => {
                let ordered = name == "ordered";
                set(&mut self.ordered, Some(ordered), || twice("the order"))
            }
            ("transient" | "persistent", None) => {
                let one = match name {
                    "transient" => Persistence::Transient,
                    _ => Persistence::Persistent,
                };
                set(&mut self.persistence, Some(one), || {
                    twice("the persistence")
                })
            }
            ("persistent", Some(value)) => {
                let Lifetime(time) = value
                    .parse()
                    .map_err(|error: LifetimeError| (at, error.into()))?;
                let one = Persistence::PersistentFor(time);
                set(&mut self.persistence, Some(one), || {
                    twice("the persistence")
                })
            }
            ("priority", Some(value)) => {
                let number = match value.as_bytes() {
                    [digit @ b'0'..=b'9'] => Priority::new(digit - b'0'),
                    _ => None,
                };
                let one = number.ok_or((at, QosProblem::Priority))?;
                set(&mut self.priority, Some(one), || twice("the priority"))
            }
            ("valid-from", Some(value)) => {
                let one = read_time(value).map_err(|problem| (at, problem))?;
                set(&mut self.valid_from, Some(one), || twice("valid-from"))
            }
            ("expiry", Some(value)) => {
                let one = read_time(value).map_err(|problem| (at, problem))?;
                set(&mut self.expiry, Some(one), || twice("the expiry"))
            }
            ("level", Some(value)) => {
                let one = value
                    .parse()
                    .map_err(|error: UnknownSecurityLevel| (at, error.into()))?;
                set(&mut self.level, Some(one), || twice("the level"))
            }
            ("ack", Some(value)) => {
                let one = match value {
                    "none" => None,
                    value => Some(
                        Acknowledgement::ALL
                            .into_iter()
                            .find(|one| one.as_str() == value)
                            .ok_or((at, QosProblem::Acknowledgement))?,
                    ),
                };
                set(&mut self.acknowledgement, Some(one), || {
                    twice("the acknowledgement")
                })
            }
            _ => Err((0, QosProblem::Unknown(item.chars().take(40).collect()))),
        }
    }
}

fn set<T, E>(place: &mut Option<T>, value: Option<T>, twice: impl FnOnce() -> E) -> Result<(), E> {
    if place.is_some() {
        return Err(twice());
    }
    *place = value;
    Ok(())
}

fn read_time(text: &str) -> Result<Time, QosProblem> {
    if let Ok(Lifetime(duration)) = text.parse() {
        return Ok(Time::After(duration));
    }
    let date_time = DateTime::parse(text.as_bytes()).map_err(QosProblem::Time)?;
    if let Some(amount) = date_time.amount() {
        return match date_time.origin() {
            sealbus_acl::Origin::Before => Err(QosProblem::BeforeEpoch),
            _ => Ok(Time::After(amount)),
        };
    }
    let milliseconds = date_time.unix_ms(0).map_err(QosProblem::Time)?;
    let milliseconds = u64::try_from(milliseconds).map_err(|_| QosProblem::BeforeEpoch)?;
    Ok(Time::At(Moment::from_unix_ms(milliseconds)))
}

impl FromStr for QosOverride {
    type Err = QosError;

    fn from_str(text: &str) -> Result<Self, QosError> {
        if text.len() > MAX_QOS_LENGTH {
            return Err(QosError {
                offset: MAX_QOS_LENGTH,
                problem: QosProblem::TooLong,
            });
        }
        let mut read = Self::default();
        if text.is_empty() {
            return Ok(read);
        }
        let mut offset = 0;
        for item in text.split(',') {
            read.read(item).map_err(|(at, problem)| QosError {
                offset: offset + at,
                problem,
            })?;
            offset += item.len() + 1;
        }
        Ok(read)
    }
}

impl FromStr for Qos {
    type Err = QosError;

    fn from_str(text: &str) -> Result<Self, QosError> {
        Ok(Self::default().with(&text.parse()?))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(moment) => moment.fmt(f),
            Self::After(duration) => Lifetime(*duration).fmt(f),
        }
    }
}

impl fmt::Display for QosOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut item = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let written = write!(f, "{separator}{text}");
            separator = ",";
            written
        };
        if let Some(reliability) = self.reliability {
            item(f, format_args!("{reliability}"))?;
        }
        if let Some(ordered) = self.ordered {
            item(
                f,
                format_args!("{}", if ordered { "ordered" } else { "unordered" }),
            )?;
        }
        match self.persistence {
            None => {}
            Some(Persistence::Transient) => item(f, format_args!("transient"))?,
            Some(Persistence::Persistent) => item(f, format_args!("persistent"))?,
            Some(Persistence::PersistentFor(time)) => {
                item(f, format_args!("persistent={}", Lifetime(time)))?;
            }
        }
        if let Some(priority) = self.priority {
            item(f, format_args!("priority={priority}"))?;
        }
        if let Some(time) = self.valid_from {
            item(f, format_args!("valid-from={time}"))?;
        }
        if let Some(time) = self.expiry {
            item(f, format_args!("expiry={time}"))?;
        }
        if let Some(level) = self.level {
            item(f, format_args!("level={level}"))?;
        }
        match self.acknowledgement {
            None => {}
            Some(None) => item(f, format_args!("ack=none"))?,
            Some(Some(acknowledgement)) => item(f, format_args!("ack={acknowledgement}"))?,
        }
        Ok(())
    }
}

impl fmt::Display for Qos {
    /// What differs from the default; the default itself reads `exactly-once`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut difference = self.difference(&Self::default());
        difference.reliability = Some(self.reliability);
        difference.fmt(f)
    }
}
