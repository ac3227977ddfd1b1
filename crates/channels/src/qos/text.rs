//! The text of a QoS, in addresses, on the command line and in Python.

use std::fmt;
use std::str::FromStr;

use sealbus_fipa::{DateTime, DateTimeError};
use sealbus_seal::UnknownSecurityLevel;
use thiserror::Error;

use super::{Persistence, Priority, Qos, QosOverride, Reliability, Time};
use sealbus_bus::Acknowledgement;
use sealbus_bus::Moment;
use sealbus_bus::{Lifetime, LifetimeError};

/// The longest text of a QoS, in bytes.
pub const LONGEST_QOS: usize = 256;

/// The reason why a text is not a QoS.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset} of the QoS: {problem}")]
pub struct QosError {
    /// The place of the fault, in bytes from the start of the text.
    pub offset: usize,
    /// The fault at that place.
    pub problem: QosProblem,
}

/// The fault in the text of a QoS.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QosProblem {
    /// Longer than [`LONGEST_QOS`].
    #[error("the text is longer than {LONGEST_QOS} bytes")]
    TooLong,
    /// An unknown promise.
    #[error(
        "unknown promise {0:?}; there are best-effort, at-least-once, exactly-once, ordered, unordered, transient, \
         persistent, persistent=, priority=, valid-from=, expiry=, level= and ack="
    )]
    Unknown(String),
    /// Two promises about the same quality.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// The priority is not valid.
    #[error("expected a priority from 0 to 9, such as priority=7")]
    Priority,
    /// The length of time is not valid.
    #[error(transparent)]
    Lifetime(#[from] LifetimeError),
    /// The text is neither a length of time nor a date.
    #[error(
        "expected a length of time such as 5s, or a date-time such as 20300101T000000000Z ({0})"
    )]
    Time(DateTimeError),
    /// A date before 1970.
    #[error("a date before 1970 is not allowed")]
    BeforeEpoch,
    /// The security level is not known.
    #[error(transparent)]
    Level(#[from] UnknownSecurityLevel),
    /// The acknowledgement is not known.
    #[error("expected one of none, process, agent, disk or majority")]
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
            sealbus_fipa::Origin::Before => Err(QosProblem::BeforeEpoch),
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
        if text.len() > LONGEST_QOS {
            return Err(QosError {
                offset: LONGEST_QOS,
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
    /// Writes the differences from the default. The default itself reads `exactly-once`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut difference = self.difference(&Self::default());
        difference.reliability = Some(self.reliability);
        difference.fmt(f)
    }
}
