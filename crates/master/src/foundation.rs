//! Opens a desk on a store: reads the stored state, or begins a new one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_brokers::BrokerSettings;
use sealbus_seal::{
    CLOCK_SKEW, PlatformName, ProcessId, SecurityLevel, SignatureAlgorithm, Trust, TrustError,
};
use tokio::sync::{mpsc, watch};

use super::authorities::{Authorities, AuthoritiesError};
use super::desk::{DeskHandle, KEY_ROW, Keys, News, Outward, Parts, TOKEN_ROW, Tokens, open};
use super::issuance_log::{OutsideWitness, folder_in};
use super::state::{DamagedRow, DrawName, MasterState, TimeLimits};
use super::written::Written;
use sealbus_ca::{CaService, CaServiceError};
use sealbus_control::clock::{now, timestamp};
use sealbus_control::names::MASTER_NODE;
use sealbus_control::{
    Blob, Fault, FaultCode, PlatformDescription, ProcessContact, Rules, TransportDescription,
};
use sealbus_store::etcd::EtcdSettings;
use sealbus_store::{Store, StoreError, read_all};
use sealbus_transparency::LogFile;

/// The settings of a platform, as its owner chose them.
#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// The platform's name.
    pub name: PlatformName,
    /// Security level.
    pub level: SecurityLevel,
    /// The algorithm of the root's and the CAs' keys, if it is prescribed. It is chosen once.
    pub signatures: Option<SignatureAlgorithm>,
    /// Lifetime of agents' and processes' certificates.
    pub certificate_lifetime: Duration,
    /// The URL by which workload tokens name their issuer. Without one there are no such tokens.
    pub workload_issuer: Option<String>,
    /// Largest ACL message in bytes.
    pub max_message: u64,
    /// The rules for all processes.
    pub rules: Rules,
    /// How long the Master waits for nodes and processes.
    pub patience: TimeLimits,
    /// The platform's broker. Without one it uses the mesh.
    pub broker: Option<Arc<dyn BrokerSettings>>,
    /// Witnesses of the issuance log besides the nodes.
    pub witnesses: Vec<OutsideWitness>,
    /// The etcd that holds the platform's state. Without one it is in the state directory.
    pub etcd: Option<EtcdSettings>,
}

impl PlatformSettings {
    /// The default settings for a platform of this name.
    pub fn new(name: PlatformName) -> Self {
        Self {
            name,
            level: SecurityLevel::default(),
            signatures: None,
            certificate_lifetime: Duration::from_secs(3600),
            workload_issuer: None,
            max_message: 16 << 20,
            rules: Rules::default(),
            patience: TimeLimits::default(),
            broker: None,
            witnesses: Vec::new(),
            etcd: None,
        }
    }

    /// Checks that the settings go with the algorithm of the root's key, whatever the manifest says of it.
    pub(crate) fn check_signatures(
        &self,
        signatures: SignatureAlgorithm,
    ) -> Result<(), FoundationError> {
        let broker = self.broker.as_ref().map(|broker| broker.kind());
        let broker = broker.filter(|kind| !kind.accepts(signatures));
        let problem = if signatures == SignatureAlgorithm::Ed25519 {
            return Ok(());
        } else if self.level < SecurityLevel::Signed {
            "agents sign nothing below the level signed: choose signed or sealed".to_owned()
        } else if let Some(kind) = broker {
            let (broker, section) = (kind.title(), kind.name());
            format!("{broker} does not know this algorithm in certificates: remove [{section}]")
        } else if !self.witnesses.is_empty() {
            "witnesses outside the platform know checkpoints with Ed25519 only: remove [[witness]]"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(FoundationError::Signatures {
            signatures,
            problem,
        })
    }
}

/// The reason why the Master's state could not be read or begun.
#[derive(Debug, thiserror::Error)]
pub enum FoundationError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The authorities could not be made or loaded.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The CA service cannot go on from its stored state.
    #[error(transparent)]
    CaService(#[from] CaServiceError),
    /// A row of the Master's state is damaged.
    #[error(transparent)]
    Row(#[from] DamagedRow),
    /// The root certificate is not valid.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The settings do not go with the algorithm of the root's key.
    #[error("the platform's signatures are {signatures}, as its root says, and {problem}")]
    Signatures {
        /// The algorithm of the root's key.
        signatures: SignatureAlgorithm,
        /// The setting that does not go with it, and the remedy.
        problem: String,
    },
}

/// An open desk.
pub(crate) struct Foundation {
    /// The handle for submitting jobs.
    pub(crate) desk: DeskHandle,
    /// The output of the desk.
    pub(crate) outward: mpsc::UnboundedReceiver<Outward>,
    /// The versions that observers watch.
    pub(crate) news: watch::Receiver<News>,
    /// The root certificate, DER.
    pub(crate) root: Vec<u8>,
}

/// Opens the desk on the state in `store`. The issuance log is in `directory`; without that folder it ends with the
/// process. `address` is the address on which the Master's own process will listen, as
/// far as it is known.
///
/// # Errors
/// [`FoundationError`].
pub(crate) async fn lay(
    settings: &PlatformSettings,
    authorities: Authorities,
    store: Arc<dyn Store>,
    directory: Option<&Path>,
    address: SocketAddr,
) -> Result<Foundation, FoundationError> {
    let Authorities { root, issuing } = authorities;
    let now = now();
    let roots = [root.clone().into()];
    let trust = Arc::new(Trust::new(settings.name.clone(), &roots, CLOCK_SKEW)?);
    let mut rows: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let prefixes = MasterState::ROWS
        .into_iter()
        .chain(CaService::ROWS)
        .chain([TOKEN_ROW, KEY_ROW]);
    for prefix in prefixes {
        read_all(&*store, prefix, |key, entry| {
            rows.insert(key, entry.value);
        })
        .await?;
    }
    let view = || {
        rows.iter()
            .map(|(key, value)| (key.as_str(), value.as_slice()))
    };
    let lifetime = settings.certificate_lifetime;
    let read = directory.map(|directory| {
        move |authority: &str, file: LogFile| folder_in(directory, authority).read(file)
    });
    let files = read.as_ref().map(|read| read as _);
    let mut ca = CaService::load(issuing, trust, lifetime, view(), files, timestamp(now))?;
    ca.issue_workload_tokens(settings.workload_issuer.clone());
    let revision = Written::last(&*store).await?.next_revision(now);
    let mut state = MasterState::load(view(), revision, settings.patience, draw_name(), now)?;
    state.set_rules(settings.rules.clone());
    let tokens = Tokens::load(view())?;
    let keys = Keys::load(view());
    let contact = ProcessContact {
        node: MASTER_NODE.to_owned(),
        process: String::new(),
        address,
    };
    let platform = PlatformDescription {
        name: settings.name.to_string(),
        level: settings.level.to_string(),
        roots: vec![Blob(root.clone())],
        certificate_lifetime: lifetime.as_secs(),
        max_message: settings.max_message,
        control: contact.clone(),
        master: contact,
        transport: TransportDescription::Mesh,
    };
    let name = settings.name.clone();
    let (desk, outward, news) = open(
        Parts {
            state,
            ca,
            tokens,
            keys,
            platform,
            name,
        },
        store,
    );
    Ok(Foundation {
        desk,
        outward,
        news,
        root,
    })
}

fn draw_name() -> DrawName {
    Box::new(|| {
        ProcessId::random()
            .map(|id| id.to_string())
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use sealbus_brokers::BrokerPromise;
    use sealbus_brokers::rabbitmq::{BrokerChoice, RabbitSettings};
    use sealbus_seal::KeyPair;
    use sealbus_transparency::{KeyKind, NoteKey};

    use super::*;

    #[test]
    fn what_the_roots_algorithm_does_not_go_with_is_refused() {
        let name = PlatformName::new("factory").unwrap();
        let with = |level, change: fn(&mut PlatformSettings)| {
            let mut settings = PlatformSettings::new(name.clone());
            settings.level = level;
            change(&mut settings);
            let [classical, quantum] = SignatureAlgorithm::ALL;
            settings.check_signatures(classical).unwrap();
            let refused = settings.check_signatures(quantum).err();
            refused.map(|error| error.to_string())
        };
        for level in [SecurityLevel::Signed, SecurityLevel::Sealed] {
            assert_eq!(with(level, |_| ()), None);
        }
        let refused = with(SecurityLevel::Auth, |_| ()).unwrap();
        assert!(refused.contains("sign nothing"), "{refused}");
        let refused = with(SecurityLevel::Signed, |settings| {
            settings.broker = Some(Arc::new(RabbitSettings {
                broker: BrokerChoice::Managed,
                promise: BrokerPromise::Durable,
                message_life: None,
            }));
        });
        let said = "RabbitMQ does not know this algorithm in certificates: remove [rabbitmq]";
        assert!(refused.unwrap().ends_with(said));
        let refused = with(SecurityLevel::Signed, |settings| {
            let key = *KeyPair::generate().unwrap().public_key();
            settings.witnesses = vec![OutsideWitness {
                host: "w.example".to_owned(),
                path: "/x".to_owned(),
                key: NoteKey::new("w.example", KeyKind::Witness, key).unwrap(),
            }];
        });
        assert!(refused.unwrap().contains("[[witness]]"));
    }
}
