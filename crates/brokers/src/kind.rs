//! The contract of a kind of broker: its section of a manifest, the settings that follow from it, and the client of a
//! process.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sealbus_bus::BoxFuture;
use sealbus_seal::SignatureAlgorithm;
use serde_json::Value;
use thiserror::Error;

use crate::client::{BrokerFailure, Client};
use crate::config::{BrokerConfig, BrokerDescription};
use crate::site::{RunningBroker, Site};

/// One kind of broker. Other crates know a kind only by its name.
pub trait BrokerKind: Send + Sync {
    /// The word that chooses it as `transport` in a manifest. Its section there has the same name.
    fn name(&self) -> &'static str;

    /// Its name in texts for people.
    fn title(&self) -> &'static str;

    /// The targets in the log of the libraries that speak to it. The platform itself reports what they write there.
    fn quiet(&self) -> &'static [&'static str];

    /// The shortest section that is complete.
    fn example(&self) -> &'static str;

    /// Whether the broker accepts certificates that are signed by this algorithm.
    fn accepts(&self, signatures: SignatureAlgorithm) -> bool;

    /// Reads the section. `None`: it has mistakes, and they were reported.
    fn read(&self, section: &mut dyn BrokerSection) -> Option<Arc<dyn NamedBroker>>;

    /// The broker to which [`to_json`](NamedBroker::to_json) gave this form.
    ///
    /// # Errors
    /// If it is not such a form.
    fn named(&self, json: Value) -> serde_json::Result<Arc<dyn NamedBroker>>;

    /// The client of a process on a platform with this description.
    fn client(&self, config: &BrokerConfig, description: &BrokerDescription) -> Arc<dyn Client>;
}

/// The section of a broker in a manifest. A value of another type than the wanted one is reported as a mistake, and then
/// counts as absent.
pub trait BrokerSection {
    /// Reports every other key as a mistake.
    fn only(&mut self, keys: &[&str]);

    /// Whether there is such a key, whatever its value.
    fn has(&self, key: &str) -> bool;

    /// True or false.
    fn truth(&mut self, key: &str) -> Option<bool>;

    /// A text.
    fn text(&mut self, key: &str) -> Option<String>;

    /// A list of texts. It is empty if there is none.
    fn texts(&mut self, key: &str) -> Vec<String>;

    /// A time in seconds.
    fn duration(&mut self, key: &str) -> Option<u64>;

    /// One of these words. Another one is a mistake.
    fn choice(&mut self, key: &str, words: &[&str]) -> Option<String>;

    /// The path of a file that the section names.
    fn path(&self, file: &str) -> String;

    /// Reports a mistake at this key, or at the section without such a key. `help` is the correct form.
    fn problem(&mut self, key: &str, message: String, help: String);
}

/// A broker that a manifest names, as the module of its kind read the section.
pub trait NamedBroker: Any + fmt::Debug + Send + Sync {
    /// Its kind.
    fn kind(&self) -> &'static dyn BrokerKind;

    /// The section in the form in which manifests travel. Equal sections have equal forms.
    fn to_json(&self) -> Value;

    /// Whether this machine can run the platform's broker, and how.
    ///
    /// # Errors
    /// [`BrokerFailure`]: something is not installed.
    fn check(&self) -> Result<&'static str, BrokerFailure>;

    /// The Master's settings, with the secrets from the files that the section names.
    ///
    /// # Errors
    /// [`UnreadableFile`].
    fn settings(&self) -> Result<Arc<dyn BrokerSettings>, UnreadableFile>;
}

/// The settings of a platform's broker.
pub trait BrokerSettings: fmt::Debug + Send + Sync {
    /// Its kind.
    fn kind(&self) -> &'static dyn BrokerKind;

    /// Starts or finds the broker, and makes the parts that all agents share.
    ///
    /// # Errors
    /// [`BrokerFailure`]: something could not be started, reached, written or prepared.
    fn start<'a>(
        &'a self,
        site: &'a Site<'a>,
    ) -> BoxFuture<'a, Result<RunningBroker, BrokerFailure>>;
}

/// A file that a broker's section names cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {}: {error}", .file.display())]
pub struct UnreadableFile {
    /// The file.
    pub file: PathBuf,
    /// The system's error.
    pub error: io::Error,
}
