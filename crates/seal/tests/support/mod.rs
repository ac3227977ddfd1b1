//! A platform's authorities and their certificates, for the tests.
#![allow(dead_code)] // each test binary uses a part of this module

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_seal::issuance::{Grant, Placements};
use sealbus_seal::{
    AuthorityKey, Credential, Identity, Issued, IssuingAuthority, KeyPair, Name, PlatformName,
    ProcessId, RootAuthority, SignatureAlgorithm, SigningRequest, Timestamp, Trust, Validity,
    VerifiedIdentity,
};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 86_400);
pub(crate) const SKEW: Duration = Duration::from_secs(10);
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

pub(crate) struct TestPlatform {
    pub(crate) name: PlatformName,
    pub(crate) root: RootAuthority,
    pub(crate) authority: IssuingAuthority,
    pub(crate) trust: Arc<Trust>,
    pub(crate) now: Timestamp,
}

pub(crate) fn now() -> Timestamp {
    SystemTime::now().into()
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn request(key: &KeyPair) -> SigningRequest {
    SigningRequest::parse(&key.signing_request().unwrap()).unwrap()
}

impl TestPlatform {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, SignatureAlgorithm::Ed25519)
    }

    pub(crate) fn with(name: &str, signatures: SignatureAlgorithm) -> Self {
        let now = now();
        let name = PlatformName::new(name).unwrap();
        let key = AuthorityKey::generate(signatures).unwrap();
        let validity = Validity::starting(now, 10 * YEAR);
        let root = RootAuthority::create_with(key, &name, validity).unwrap();
        let authority = root
            .create_authority("ca-1", Validity::starting(now, YEAR))
            .unwrap();
        let trust = Trust::new(name.clone(), &[root.certificate().clone()], SKEW).unwrap();
        Self {
            name,
            root,
            authority,
            trust: Arc::new(trust),
            now,
        }
    }

    pub(crate) fn agent(&self, name: &str) -> Identity {
        Identity::agent(&self.name, name).unwrap()
    }

    pub(crate) fn node(&self, name: &str) -> Identity {
        Identity::node(&self.name, name).unwrap()
    }

    pub(crate) fn process(&self, node: &str) -> Identity {
        Identity::process(&self.name, node, ProcessId::random().unwrap()).unwrap()
    }

    pub(crate) fn issue(&self, identity: &Identity, validity: Validity) -> (KeyPair, Issued) {
        let key = KeyPair::generate().unwrap();
        let grant = Grant::by_operator(identity.clone(), ADDRESS);
        let issued = self
            .authority
            .issue(&grant, &request(&key), validity)
            .unwrap();
        (key, issued)
    }

    pub(crate) fn credential(&self, identity: &Identity) -> Credential {
        let (key, issued) = self.issue(identity, Validity::starting(self.now, HOUR));
        Credential::new(key, issued.chain).unwrap()
    }

    pub(crate) fn verified(&self, identity: &Identity) -> VerifiedIdentity {
        self.trust
            .verify(self.credential(identity).chain(), self.now)
            .unwrap()
    }
}

/// Agents by the node they were placed on.
#[derive(Default)]
pub(crate) struct PlacedAgents(
    pub(crate) HashMap<&'static str, &'static str>,
    pub(crate) Vec<&'static str>,
);

impl Placements for PlacedAgents {
    fn is_member(&self, node: &Name) -> bool {
        self.1.contains(&node.as_str())
    }

    fn node_of(&self, agent: &Name) -> Option<Name> {
        self.0
            .get(agent.as_str())
            .map(|node| Name::new("node", node).unwrap())
    }
}
