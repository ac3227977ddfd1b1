//! `transport` of `[platform]`, and the section of the broker that it names. The module of the broker's kind reads the
//! section.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::Arc;

use sealbus_brokers::{BROKER_KINDS, BrokerSection, NamedBroker, broker_kind};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::read::Reader;

/// The transport without a broker.
const MESH: &str = "mesh";

/// Most characters of an unknown section's name in an error.
const LONGEST_NAME: usize = 64;

/// The broker that a manifest names.
#[derive(Clone, Debug)]
pub struct BrokerEntry(Arc<dyn NamedBroker>);

impl Deref for BrokerEntry {
    type Target = dyn NamedBroker;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl PartialEq for BrokerEntry {
    fn eq(&self, other: &Self) -> bool {
        self.kind().name() == other.kind().name() && self.to_json() == other.to_json()
    }
}

impl Eq for BrokerEntry {}

/// Writes the broker as a member with the name of its kind.
pub(super) fn write<S: Serializer>(
    broker: &Option<BrokerEntry>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let named = broker.iter();
    serializer.collect_map(named.map(|broker| (broker.kind().name(), broker.to_json())))
}

/// Reads the broker from the members that a manifest has besides the others.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BrokerEntry>, D::Error> {
    let mut members = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let mut kinds = BROKER_KINDS.iter();
    let named = kinds.find_map(|kind| Some((kind, members.remove(kind.name())?)));
    let broker = named.map(|(kind, section)| kind.named(section));
    let broker = broker.transpose().map_err(D::Error::custom)?;
    // The section may be of a broker that this build does not know. The platform would then run on the mesh instead.
    if let Some(unknown) = members.keys().next() {
        let shown: String = unknown.chars().take(LONGEST_NAME).collect();
        return Err(D::Error::custom(format!(
            "this build of Sealbus knows neither a broker nor a section [{shown}]: install one that does, or remove the section"
        )));
    }
    Ok(broker.map(BrokerEntry))
}

impl<'t> Reader<'t> {
    /// The broker that `transport` names, from the section of the same name. The mesh has none.
    pub(super) fn broker(&mut self, root: &DeTable<'t>) -> Option<BrokerEntry> {
        let transport = root
            .get("platform")
            .and_then(|platform| match platform.get_ref() {
                DeValue::Table(table) => self.text_of(table, "transport"),
                _ => None,
            });
        let chosen = transport.as_ref().and_then(|(name, _)| broker_kind(name));
        let others = BROKER_KINDS.iter().map(|kind| kind.name());
        let mut others = others.filter(|name| chosen.is_none_or(|kind| kind.name() != *name));
        let other = others.find_map(|name| Some((name, root.get(name)?)));
        let Some((transport, at)) = transport else {
            if let Some((name, value)) = other {
                let help = format!("write transport = \"{name}\" in [platform]");
                let message = format!("[{name}] is there, but the platform runs on the mesh");
                self.problem(value.span(), message, Some(help));
            }
            return None;
        };
        let unfit = || format!("transport \"{transport}\" does not fit the rest of the manifest");
        let (message, help) = match (chosen, other) {
            (None, None) if transport == MESH => return None,
            (None, Some((name, _))) if transport == MESH => {
                let help = format!("remove [{name}], or write transport = \"{name}\"");
                (unfit(), help)
            }
            (None, _) => {
                let names = BROKER_KINDS.iter().map(|kind| kind.name());
                let names: Vec<&str> = [MESH].into_iter().chain(names).collect();
                (unfit(), format!("write \"{}\"", names.join("\" or \"")))
            }
            (Some(_), Some((name, _))) => (unfit(), format!("remove [{name}]")),
            (Some(kind), None) => match root.get(kind.name()) {
                None => {
                    let (name, example) = (kind.name(), kind.example());
                    let help = format!("add\n[{name}]\n{example}");
                    let message =
                        format!("transport \"{name}\" needs a [{name}] that says which broker");
                    (message, help)
                }
                Some(_) if root.contains_key("gateway") => {
                    let help = "remove [gateway], or run the platform on the mesh".to_owned();
                    let title = kind.title();
                    let message = format!("{title} does not carry the gateway to other platforms");
                    (message, help)
                }
                Some(value) => {
                    let mut section = BrokerTable {
                        name: kind.name(),
                        table: self.table(value, kind.name())?,
                        span: value.span(),
                        reader: self,
                    };
                    return kind.read(&mut section).map(BrokerEntry);
                }
            },
        };
        self.problem(at, message, Some(help));
        None
    }
}

/// The section of a broker.
struct BrokerTable<'r, 't> {
    name: &'static str,
    table: &'r DeTable<'t>,
    span: Range<usize>,
    reader: &'r mut Reader<'t>,
}

impl BrokerSection for BrokerTable<'_, '_> {
    fn only(&mut self, keys: &[&str]) {
        let place = format!("in [{}]", self.name);
        self.reader.unknown_keys(self.table, keys, &place);
    }

    fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn truth(&mut self, key: &str) -> Option<bool> {
        self.reader.truth(self.table, key)
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let found = self.reader.text_of(self.table, key);
        found.map(|(text, _)| text)
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        self.reader.texts(self.table, key)
    }

    fn duration(&mut self, key: &str) -> Option<u64> {
        self.reader.duration(self.table, key)
    }

    fn choice(&mut self, key: &str, words: &[&str]) -> Option<String> {
        let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, *word)).collect();
        let chosen = self.reader.choice(self.table, key, &words);
        chosen.map(str::to_owned)
    }

    fn path(&self, file: &str) -> String {
        self.reader.directory.join(file).display().to_string()
    }

    fn problem(&mut self, key: &str, message: String, help: String) {
        let at = self.table.get(key);
        let at = at.map_or_else(|| self.span.clone(), |value| value.span());
        self.reader.problem(at, message, Some(help));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::{Manifest, ManifestError};

    /// Reads a manifest with these keys in `[platform]` and these sections.
    fn manifest(platform: &str, sections: &str) -> Result<Manifest, ManifestError> {
        let text = format!("[platform]\nname = \"factory\"\n{platform}\n{sections}\n");
        Manifest::parse("platform.toml", &text, Path::new("/srv"))
    }

    fn read(rabbitmq: &str) -> Result<Value, ManifestError> {
        let section = format!("[rabbitmq]\n{rabbitmq}");
        let manifest = manifest("transport = \"rabbitmq\"", &section)?;
        Ok(manifest.broker.unwrap().to_json())
    }

    #[test]
    fn a_broker_travels_in_the_form_that_other_versions_know() {
        for (text, form) in [
            (
                "managed = true",
                json!({ "broker": "managed", "promise": "durable" }),
            ),
            (
                "managed = true\npromise = \"durable\"",
                json!({ "broker": "managed", "promise": "durable" }),
            ),
            (
                "managed = true\npromise = \"transient\"\nmessage-life = \"1h\"",
                json!({ "broker": "managed", "promise": "transient", "message_life": 3600 }),
            ),
            (
                "addresses = [\"a:1\"]\nmanagement = [\"a:2\"]\noperator = \"o\"\npassword-file = \"p\"",
                json!({
                    "broker": "existing", "promise": "durable", "addresses": ["a:1"],
                    "management": ["a:2"], "operator": "o", "password_file": "/srv/p",
                }),
            ),
        ] {
            assert_eq!(read(text).unwrap(), form);
        }
        let managed = manifest("transport = \"rabbitmq\"", "[rabbitmq]\nmanaged = true").unwrap();
        let mut sent = serde_json::to_value(&managed).unwrap();
        let section = json!({ "broker": "managed", "promise": "durable" });
        assert_eq!(sent["rabbitmq"], section);
        // An earlier version sends no promise.
        sent["rabbitmq"] = json!({ "broker": "managed" });
        assert_eq!(serde_json::from_value::<Manifest>(sent).unwrap(), managed);
        let mut sent = serde_json::to_value(&managed).unwrap();
        sent["rabbitmq"] = json!({ "broker": "elsewhere" });
        assert!(serde_json::from_value::<Manifest>(sent).is_err());
        let on_the_mesh = manifest("", "").unwrap();
        let sent = serde_json::to_value(&on_the_mesh).unwrap();
        assert_eq!(sent.get("rabbitmq"), None);
        assert_eq!(
            serde_json::from_value::<Manifest>(sent).unwrap(),
            on_the_mesh
        );
    }

    #[test]
    fn a_broker_that_this_build_lacks_is_refused_by_name() {
        let on_the_mesh = manifest("", "").unwrap();
        let managed = manifest("transport = \"rabbitmq\"", "[rabbitmq]\nmanaged = true").unwrap();
        for known in [on_the_mesh, managed] {
            let mut sent = serde_json::to_value(&known).unwrap();
            assert_eq!(
                serde_json::from_value::<Manifest>(sent.clone()).unwrap(),
                known
            );
            sent["pigeons"] = json!({ "broker": "managed" });
            let refused = serde_json::from_value::<Manifest>(sent).unwrap_err();
            assert!(refused.to_string().contains("[pigeons]"), "{refused}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_correct_form() {
        const ON_RABBITMQ: &str = "transport = \"rabbitmq\"";
        const MANAGED: &str = "[rabbitmq]\nmanaged = true";
        for (platform, sections, message, help) in [
            (
                ON_RABBITMQ,
                "",
                "transport \"rabbitmq\" needs a [rabbitmq] that says which broker",
                "add\n[rabbitmq]\nmanaged = true",
            ),
            (
                "",
                MANAGED,
                "[rabbitmq] is there, but the platform runs on the mesh",
                "write transport = \"rabbitmq\" in [platform]",
            ),
            (
                "transport = \"mesh\"",
                MANAGED,
                "transport \"mesh\" does not fit the rest of the manifest",
                "remove [rabbitmq], or write transport = \"rabbitmq\"",
            ),
            (
                "transport = \"pigeons\"",
                "",
                "transport \"pigeons\" does not fit the rest of the manifest",
                "write \"mesh\" or \"rabbitmq\"",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\nmanaged = true\n[gateway.http]\nlisten = \"127.0.0.1:7100\"",
                "RabbitMQ does not carry the gateway to other platforms",
                "remove [gateway], or run the platform on the mesh",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\nmanaged = 1",
                "`managed` is a whole number, not true or false",
                "write true or false",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\nmanaged = true\noperator = \"o\"",
                "a managed broker needs no operator",
                "remove operator, or managed = true",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\nmanaged = true\npromise = \"transiant\"",
                "`promise` cannot be \"transiant\"",
                "did you mean `transient`?",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\nmanaged = true\npromises = \"durable\"",
                "unknown key `promises` in [rabbitmq]",
                "did you mean `promise`?",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\naddresses = [\"a:1\"]\nmanagement = [\"a\"]\noperator = \"o\"\npassword-file = \"p\"",
                "management is not a list of HOST:PORT",
                "write management = [\"127.0.0.1:5671\"]",
            ),
            (
                ON_RABBITMQ,
                "[rabbitmq]\naddresses = [\"a:1\"]\nmanagement = [\"a:2\"]\noperator = \"o\"",
                "[rabbitmq] has no password-file",
                "add password-file = \"operator.secret\", or managed = true",
            ),
        ] {
            let problems = manifest(platform, sections).unwrap_err().problems;
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].message, message);
            assert_eq!(problems[0].help.as_deref(), Some(help));
        }
    }
}
