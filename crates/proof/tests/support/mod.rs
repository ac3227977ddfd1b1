//! A platform with certified agents, for the tests.
#![allow(dead_code)] // each test binary uses its part of it

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use sealbus_proof::{Hash, Signer, Statement};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    Credential, Identity, IssuingAuthority, KeyPair, PlatformName, RootAuthority, SecurityLevel,
    SigningRequest, Timestamp, Trust, Validity, VerifiedIdentity,
};
use sealbus_transparency::{Inclusion, MerkleLog};

/// Milliseconds since 1970.
pub(crate) const NOW: u64 = 1_795_000_000_123;
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct TestPlatform {
    pub(crate) name: PlatformName,
    pub(crate) authority: IssuingAuthority,
    /// The root certificate: DER.
    pub(crate) root: Vec<u8>,
    pub(crate) trust: Trust,
}

pub(crate) struct Author {
    pub(crate) credential: Arc<Credential>,
    pub(crate) verified: VerifiedIdentity,
    pub(crate) signer: Signer,
}

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(NOW / 1000)
}

impl TestPlatform {
    pub(crate) fn new(name: &str) -> Self {
        let name = PlatformName::new(name).unwrap();
        let validity = Validity::starting(now(), 1000 * HOUR);
        let root = RootAuthority::create(&name, validity).unwrap();
        let trust =
            Trust::new(name.clone(), &[root.certificate().clone()], Duration::ZERO).unwrap();
        Self {
            root: root.certificate().to_vec(),
            authority: root.create_authority("ca", validity).unwrap(),
            trust,
            name,
        }
    }

    pub(crate) fn certified(&self, identity: &Identity) -> (Arc<Credential>, VerifiedIdentity) {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let grant = Grant::by_operator(identity.clone(), address);
        let validity = Validity::starting(now(), HOUR);
        let issued = self.authority.issue(&grant, &request, validity).unwrap();
        let log = MerkleLog::new();
        let (chain, _) = Inclusion::attach(issued, None, &log, &self.authority, now()).unwrap();
        let credential = Credential::new(key, chain).unwrap();
        let verified = self.trust.verify(credential.chain(), now()).unwrap();
        (Arc::new(credential), verified)
    }

    pub(crate) fn author(&self, name: &str) -> Author {
        let identity = Identity::agent(&self.name, name).unwrap();
        let (credential, verified) = self.certified(&identity);
        Author {
            signer: Signer::new(credential.clone(), SecurityLevel::Signed).unwrap(),
            credential,
            verified,
        }
    }
}

/// The hashes of this many different direct messages.
pub(crate) fn statements(count: usize) -> Vec<Hash> {
    let messages = (0..count).map(|number| format!("message {number}"));
    messages
        .map(|message| {
            let statement = Statement {
                channel: None,
                qos: "",
                receivers: &["seller-1@factory"],
                message: message.as_bytes(),
            };
            statement.hash()
        })
        .collect()
}
