//! `[rabbitmq]`: the broker that carries a platform's messages.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::read::Reader;

pub(super) const KEYS: &[&str] = &[
    "managed",
    "addresses",
    "management",
    "operator",
    "password-file",
    LIFE,
    PROMISE,
];
/// The keys that a managed broker may have besides.
const LIFE: &str = "message-life";
const PROMISE: &str = "promise";

/// `[rabbitmq]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RabbitEntry {
    /// The broker that the platform uses.
    #[serde(flatten)]
    pub broker: BrokerEntry,
    /// Seconds after which an untaken message becomes a dead letter. Without this value, no message does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_life: Option<u64>,
    /// The broker's promise about messages between processes.
    #[serde(default)]
    pub promise: PromiseEntry,
}

/// The promise of a platform's broker about the messages that it has confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromiseEntry {
    /// They are on the disks of most of the brokers.
    #[default]
    Durable,
    /// They are in the memory of a broker, and are lost if it ends.
    Transient,
}

/// The RabbitMQ that a platform uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "broker", rename_all = "kebab-case")]
pub enum BrokerEntry {
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

impl<'t> Reader<'t> {
    /// The broker that `transport` and `[rabbitmq]` name. The mesh has none.
    pub(super) fn rabbitmq(&mut self, root: &DeTable<'t>) -> Option<RabbitEntry> {
        let transport = root
            .get("platform")
            .and_then(|platform| match platform.get_ref() {
                DeValue::Table(table) => self.text_of(table, "transport"),
                _ => None,
            });
        let entry = root.get("rabbitmq");
        match (transport, entry) {
            (None, None) => None,
            (Some((name, _)), None) if name == "mesh" => None,
            (Some((name, at)), None) if name == "rabbitmq" => {
                let help = "add\n[rabbitmq]\nmanaged = true".to_owned();
                let message = "transport \"rabbitmq\" needs a [rabbitmq] that says which broker";
                self.problem(at, message, Some(help));
                None
            }
            (Some((name, at)), _) if name != "rabbitmq" => {
                let help = match name.as_str() {
                    "mesh" => "remove [rabbitmq], or write transport = \"rabbitmq\"",
                    _ => "write \"mesh\" or \"rabbitmq\"",
                };
                let message = format!("transport \"{name}\" and what else is written do not fit");
                self.problem(at, message, Some(help.to_owned()));
                None
            }
            (None, Some(value)) => {
                let help = "write transport = \"rabbitmq\" in [platform]".to_owned();
                let message = "[rabbitmq] is there, and the platform runs on the mesh";
                self.problem(value.span(), message, Some(help));
                None
            }
            (Some((_, at)), Some(_)) if root.contains_key("gateway") => {
                let help = "remove [gateway], or run the platform on the mesh".to_owned();
                let message = "the gateway to other platforms is not carried by RabbitMQ";
                self.problem(at, message, Some(help));
                None
            }
            (Some(_), Some(value)) => {
                let table = self.table(value, "rabbitmq")?;
                self.broker(table, value.span())
            }
            (Some(_), None) => None,
        }
    }

    fn broker(&mut self, table: &DeTable<'t>, span: Range<usize>) -> Option<RabbitEntry> {
        self.unknown_keys(table, KEYS, "in [rabbitmq]");
        let managed = match table
            .get("managed")
            .map(|value| (value.get_ref(), value.span()))
        {
            Some((DeValue::Boolean(managed), _)) => *managed,
            Some((other, at)) => {
                self.wrong_type(at, "managed", other, "true or false");
                return None;
            }
            None => false,
        };
        let message_life = self.duration(table, LIFE);
        let promises = [
            ("durable", PromiseEntry::Durable),
            ("transient", PromiseEntry::Transient),
        ];
        let promise = self.choice(table, PROMISE, &promises).unwrap_or_default();
        let others = KEYS.iter().skip(1);
        let others = others.filter(|key| ![LIFE, PROMISE].contains(*key));
        let others = others.filter(|key| table.contains_key(**key));
        if managed {
            if let Some(key) = others.map(|key| (*key).to_owned()).next() {
                let at = table.get(key.as_str()).map_or(span, |value| value.span());
                let help = format!("remove {key}, or managed = true");
                let message = format!("a managed broker needs no {key}");
                self.problem(at, message, Some(help));
                return None;
            }
            return Some(RabbitEntry {
                broker: BrokerEntry::Managed,
                message_life,
                promise,
            });
        }
        let addresses = self.addresses(table, "addresses", &span);
        let management = self.addresses(table, "management", &span);
        let operator = self.needed(table, "operator", "operator = \"sealbus\"", &span);
        let password_file = self.needed(
            table,
            "password-file",
            "password-file = \"operator.secret\"",
            &span,
        );
        Some(RabbitEntry {
            broker: BrokerEntry::Existing {
                addresses: addresses?,
                management: management?,
                operator: operator?,
                password_file: self.directory.join(password_file?).display().to_string(),
            },
            message_life,
            promise,
        })
    }

    fn needed(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        example: &str,
        span: &Range<usize>,
    ) -> Option<String> {
        let found = self.text_of(table, key);
        if found.is_none() && !table.contains_key(key) {
            let message = format!("[rabbitmq] has no {key}");
            self.problem(
                span.clone(),
                message,
                Some(format!("add {example}, or managed = true")),
            );
        }
        found.map(|(text, _)| text)
    }

    fn addresses(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        span: &Range<usize>,
    ) -> Option<Vec<String>> {
        let addresses = self.texts(table, key);
        if !table.contains_key(key) {
            let help = format!("add {key} = [\"127.0.0.1:5671\"], or managed = true");
            self.problem(span.clone(), format!("[rabbitmq] has no {key}"), Some(help));
            return None;
        }
        let at = table.get(key).map_or(span.clone(), |value| value.span());
        let is_address = |text: &String| {
            text.rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if addresses.is_empty() || !addresses.iter().all(is_address) {
            let message = format!("{key} is not a list of HOST:PORT");
            let help = format!("write {key} = [\"127.0.0.1:5671\"]");
            self.problem(at, message, Some(help));
            return None;
        }
        Some(addresses)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BrokerEntry, PromiseEntry, RabbitEntry};
    use crate::{Manifest, ManifestProblem};

    fn read(rabbitmq: &str) -> Result<Option<RabbitEntry>, Vec<ManifestProblem>> {
        let text = format!(
            "[platform]\nname = \"factory\"\ntransport = \"rabbitmq\"\n[rabbitmq]\n{rabbitmq}"
        );
        let manifest = Manifest::parse("platform.toml", &text, Path::new("/"));
        manifest
            .map(|manifest| manifest.rabbitmq)
            .map_err(|error| error.problems)
    }

    #[test]
    fn a_managed_broker_may_promise_something_else() {
        for (text, promise) in [
            ("managed = true", PromiseEntry::Durable),
            (
                "managed = true\npromise = \"durable\"",
                PromiseEntry::Durable,
            ),
            (
                "managed = true\npromise = \"transient\"",
                PromiseEntry::Transient,
            ),
        ] {
            let entry = read(text).unwrap().unwrap();
            assert_eq!(entry.broker, BrokerEntry::Managed);
            assert_eq!(entry.promise, promise);
        }
    }

    #[test]
    fn another_word_is_refused_with_the_right_ones() {
        let problems = read("managed = true\npromise = \"transiant\"").unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].message, "`promise` cannot be \"transiant\"");
        let help = problems[0].help.as_deref().unwrap_or_default();
        assert!(help.contains("transient"), "{help}");
    }
}
