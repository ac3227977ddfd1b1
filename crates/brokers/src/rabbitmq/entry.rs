//! `[rabbitmq]` of a manifest.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RabbitKind;
use super::managed::{BrokerError, ManagedBroker};
use super::site::{BrokerChoice, RabbitSettings};
use crate::client::BrokerFailure;
use crate::config::{BrokerPromise, Login};
use crate::kind::{BrokerKind, BrokerSection, BrokerSettings, NamedBroker, UnreadableFile};

const KEYS: &[&str] = &[
    MANAGED,
    ADDRESSES,
    MANAGEMENT,
    OPERATOR,
    PASSWORD_FILE,
    LIFE,
    PROMISE,
];
const MANAGED: &str = "managed";
const ADDRESSES: &str = "addresses";
const MANAGEMENT: &str = "management";
const OPERATOR: &str = "operator";
const PASSWORD_FILE: &str = "password-file";
/// The keys that a managed broker may have besides.
const LIFE: &str = "message-life";
const PROMISE: &str = "promise";

/// `[rabbitmq]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RabbitEntry {
    /// The broker that the platform uses.
    #[serde(flatten)]
    pub broker: ChosenBroker,
    /// Seconds after which an untaken message becomes a dead letter. Without this value, no message does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_life: Option<u64>,
    /// The broker's promise about messages between processes.
    #[serde(default)]
    pub promise: BrokerPromise,
}

/// The RabbitMQ that a manifest chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "broker", rename_all = "kebab-case")]
pub enum ChosenBroker {
    /// `managed = true`: a private broker, which is started and ended with the platform.
    Managed,
    /// An existing broker.
    Existing {
        /// The brokers of the cluster, as `HOST:PORT`.
        addresses: Vec<String>,
        /// The management interfaces (HTTPS) of the brokers, as `HOST:PORT`.
        management: Vec<String>,
        /// The name of a user with the rights of a management administrator.
        operator: String,
        /// The file with this user's password, relative to the manifest.
        password_file: String,
    },
}

impl RabbitEntry {
    /// Reads the section. `None`: its mistakes were reported.
    pub(super) fn read(section: &mut dyn BrokerSection) -> Option<Self> {
        section.only(KEYS);
        let managed = section.truth(MANAGED);
        if managed.is_none() && section.has(MANAGED) {
            return None;
        }
        let message_life = section.duration(LIFE);
        let promise = section.choice(PROMISE, &["durable", "transient"]);
        let promise = match promise.as_deref() {
            Some("transient") => BrokerPromise::Transient,
            _ => BrokerPromise::Durable,
        };
        let broker = match managed {
            Some(true) => managed_by_the_platform(section)?,
            _ => existing(section)?,
        };
        Some(Self {
            broker,
            message_life,
            promise,
        })
    }
}

fn managed_by_the_platform(section: &mut dyn BrokerSection) -> Option<ChosenBroker> {
    let mut others = [ADDRESSES, MANAGEMENT, OPERATOR, PASSWORD_FILE].into_iter();
    if let Some(key) = others.find(|key| section.has(key)) {
        let help = format!("remove {key}, or managed = true");
        section.problem(key, format!("a managed broker needs no {key}"), help);
        return None;
    }
    Some(ChosenBroker::Managed)
}

fn existing(section: &mut dyn BrokerSection) -> Option<ChosenBroker> {
    let agents = addresses(section, ADDRESSES);
    let management = addresses(section, MANAGEMENT);
    let operator = needed(section, OPERATOR, "operator = \"sealbus\"");
    let password_file = needed(
        section,
        PASSWORD_FILE,
        "password-file = \"operator.secret\"",
    );
    Some(ChosenBroker::Existing {
        addresses: agents?,
        management: management?,
        operator: operator?,
        password_file: section.path(&password_file?),
    })
}

fn needed(section: &mut dyn BrokerSection, key: &str, example: &str) -> Option<String> {
    let found = section.text(key);
    if found.is_none() && !section.has(key) {
        let help = format!("add {example}, or managed = true");
        section.problem(key, format!("[rabbitmq] has no {key}"), help);
    }
    found
}

fn addresses(section: &mut dyn BrokerSection, key: &str) -> Option<Vec<String>> {
    let addresses = section.texts(key);
    if !section.has(key) {
        let help = format!("add {key} = [\"127.0.0.1:5671\"], or managed = true");
        section.problem(key, format!("[rabbitmq] has no {key}"), help);
        return None;
    }
    let is_address = |text: &String| {
        text.rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    if addresses.is_empty() || !addresses.iter().all(is_address) {
        let help = format!("write {key} = [\"127.0.0.1:5671\"]");
        section.problem(key, format!("{key} is not a list of HOST:PORT"), help);
        return None;
    }
    Some(addresses)
}

impl NamedBroker for RabbitEntry {
    fn kind(&self) -> &'static dyn BrokerKind {
        &RabbitKind
    }

    fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn check(&self) -> Result<&'static str, BrokerFailure> {
        match self.broker {
            ChosenBroker::Managed if ManagedBroker::is_installed() => Ok("RabbitMQ is installed"),
            ChosenBroker::Managed => Err(BrokerFailure::new(BrokerError::NotInstalled)),
            ChosenBroker::Existing { .. } => Ok(
                "a RabbitMQ of your own; `sealbus broker status` shows it once the platform runs",
            ),
        }
    }

    fn settings(&self) -> Result<Arc<dyn BrokerSettings>, UnreadableFile> {
        let broker = match &self.broker {
            ChosenBroker::Managed => BrokerChoice::Managed,
            ChosenBroker::Existing {
                addresses,
                management,
                operator,
                password_file,
            } => {
                let unreadable = |error| UnreadableFile {
                    file: password_file.into(),
                    error,
                };
                let password = fs::read_to_string(password_file).map_err(unreadable)?;
                BrokerChoice::Existing {
                    addresses: addresses.clone(),
                    management: management.clone(),
                    operator: Login {
                        user: operator.clone(),
                        password: password.trim_end().to_owned(),
                    },
                }
            }
        };
        Ok(Arc::new(RabbitSettings {
            broker,
            promise: self.promise,
            message_life: self.message_life.map(Duration::from_secs),
        }))
    }
}
