//! A node for tests. It is on no bus and has no Master.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CLOCK_SKEW, Credential, Fingerprint, Identity, IssuingAuthority, KeyPair, PlatformName,
    RootAuthority, SigningRequest, Trust, Validity,
};
use tokio::sync::mpsc;

use super::isolation::{IsolationConfig, ProgramIsolation, SLOTS};
use super::leaders::Leaders;
use super::log::Logs;
use super::memory::Memory;
use super::reports::Reports;
use super::shared::{NodeParts, Shared};
use sealbus_control::clock::{now, timestamp};
use sealbus_control::node::MasterRequest;
use sealbus_control::{
    Blob, NodeDescription, PlatformDescription, ProcessContact, TransportDescription,
};
use sealbus_enrolment::Enrolment;
use sealbus_keeping::node_journal::NodeJournal;
use sealbus_manifest::isolation::Isolation;

const NAME: &str = "node-1";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DAY: Duration = Duration::from_secs(86_400);

fn platform() -> PlatformName {
    PlatformName::new("factory").unwrap()
}

/// A certificate of the node, and the root above it.
pub(crate) fn certified() -> (Credential, Vec<u8>) {
    let (credential, root, _) = certified_by();
    (credential, root)
}

/// As [`certified`], with the CA.
fn certified_by() -> (Credential, Vec<u8>, IssuingAuthority) {
    let platform = platform();
    let day = Validity::starting(timestamp(now()), DAY);
    let root = RootAuthority::create(&platform, day).unwrap();
    let authority = root.create_authority("ca-1", day).unwrap();
    let key = KeyPair::generate().unwrap();
    let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
    let identity = Identity::node(&platform, NAME).unwrap();
    let grant = Grant::by_operator(identity, HERE);
    let issued = authority.issue(&grant, &request, day).unwrap();
    let credential = Credential::new(key, issued.chain).unwrap();
    (credential, root.certificate().to_vec(), authority)
}

/// An isolation config under which programs are not isolated.
pub(crate) fn no_isolation() -> IsolationConfig {
    IsolationConfig {
        mode: Some(Isolation::None),
        launcher: PathBuf::new(),
        hidden: Vec::new(),
        slots: SLOTS,
    }
}

/// A node with this state folder, and the reports for its Master.
pub(crate) async fn node(
    folder: &Path,
    isolation: IsolationConfig,
) -> (Arc<Shared>, mpsc::UnboundedReceiver<MasterRequest>) {
    let (credential, root) = certified();
    under(folder, isolation, credential, root).await
}

/// A node with this state folder, and the CA whose deny lists it obeys.
pub(crate) async fn node_and_ca(folder: &Path) -> (Arc<Shared>, IssuingAuthority) {
    let (credential, root, authority) = certified_by();
    let (shared, _) = under(folder, no_isolation(), credential, root).await;
    (shared, authority)
}

async fn under(
    folder: &Path,
    isolation: IsolationConfig,
    credential: Credential,
    root: Vec<u8>,
) -> (Arc<Shared>, mpsc::UnboundedReceiver<MasterRequest>) {
    let sealing = ProgramIsolation::open(isolation, folder).await.unwrap();
    let memory = Memory::open(folder).unwrap();
    let nowhere = ProcessContact {
        node: "master".to_owned(),
        process: "0".repeat(32),
        address: SocketAddr::new(HERE, 1),
    };
    let description = PlatformDescription {
        name: platform().to_string(),
        level: "auth".to_owned(),
        roots: vec![Blob(root.clone())],
        certificate_lifetime: 3600,
        max_message: 1 << 20,
        master: nowhere.clone(),
        control: nowhere,
        transport: TransportDescription::Mesh,
    };
    let enrolment = Enrolment {
        platform: platform(),
        addresses: vec!["127.0.0.1:1".to_owned()],
        root: Fingerprint::of(&root),
    };
    let opened = NodeJournal::open(&folder.join("journal"), NAME, &platform(), 1 << 20).unwrap();
    let (reports, queue) = Reports::new();
    let shared = Shared::new(NodeParts {
        name: NAME.to_owned(),
        description: NodeDescription {
            address: HERE,
            host: "here".to_owned(),
            processors: 1,
            version: "0".to_owned(),
            isolation: sealing.at_level("auth"),
        },
        platform: description,
        credential,
        leaders: Leaders::new(enrolment, memory.clone()).unwrap(),
        trust: Arc::new(Trust::new(platform(), &[root.into()], CLOCK_SKEW).unwrap()),
        journal: opened,
        logs: Logs::open(folder).unwrap(),
        memory,
        reports,
        sealing,
        attachment: Some(SocketAddr::new(HERE, 1)),
    });
    (shared, queue)
}
