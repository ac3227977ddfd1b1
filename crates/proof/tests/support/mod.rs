//! A platform with certified agents, for the tests.
#![allow(dead_code)] // each test binary uses its part of it

pub(crate) mod scene;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use sealbus_proof::{
    AuthorEntry, Batch, BatchKey, Hash, Proof, SignError, SignedBatch, Signer, Statement,
};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    AuthorityKey, Credential, Identity, IssuingAuthority, KeyPair, MlDsaKeyPair, PlatformName,
    RootAuthority, SecurityLevel, SignatureAlgorithm, SigningRequest, Timestamp, Trust, Validity,
    VerifiedIdentity,
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
    /// The key of the process of its agents.
    pub(crate) key: Arc<BatchKey>,
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
        Self::with(name, SignatureAlgorithm::Ed25519)
    }

    pub(crate) fn with(name: &str, signatures: SignatureAlgorithm) -> Self {
        let name = PlatformName::new(name).unwrap();
        let validity = Validity::starting(now(), 1000 * HOUR);
        let key = AuthorityKey::generate(signatures).unwrap();
        let root = RootAuthority::create_with(key, &name, validity).unwrap();
        let trust =
            Trust::new(name.clone(), &[root.certificate().clone()], Duration::ZERO).unwrap();
        Self {
            root: root.certificate().to_vec(),
            authority: root.create_authority("ca", validity).unwrap(),
            trust,
            key: Arc::new(BatchKey::new(name.clone(), SecurityLevel::Signed)),
            name,
        }
    }

    pub(crate) fn certified(&self, identity: &Identity) -> (Arc<Credential>, VerifiedIdentity) {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.certified_by(&Grant::by_operator(identity.clone(), address))
    }

    fn certified_by(&self, grant: &Grant) -> (Arc<Credential>, VerifiedIdentity) {
        let identity = grant.identity();
        let key = KeyPair::generate().unwrap();
        let is_quantum = self.trust.signatures() == SignatureAlgorithm::MlDsa65;
        let has_second = is_quantum && matches!(identity, Identity::Agent { .. });
        let second = has_second.then(|| MlDsaKeyPair::generate().unwrap());
        let public = second.as_ref().map(MlDsaKeyPair::public_key);
        let request = key.signing_request_with(public, None).unwrap();
        let request = SigningRequest::parse(&request).unwrap();
        let validity = Validity::starting(now(), HOUR);
        let issued = self.authority.issue(grant, &request, validity).unwrap();
        let log = MerkleLog::new();
        let (chain, _) = Inclusion::attach(issued, None, &log, &self.authority, now()).unwrap();
        let mut credential = Credential::new(key, chain).unwrap();
        if let Some(second) = second {
            credential = credential.with_second(second).unwrap();
        }
        let verified = self.trust.verify(credential.chain(), now()).unwrap();
        (Arc::new(credential), verified)
    }

    pub(crate) fn author(&self, name: &str) -> Author {
        let identity = Identity::agent(&self.name, name).unwrap();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.author_by(&Grant::by_operator(identity, address))
    }

    pub(crate) fn author_by(&self, grant: &Grant) -> Author {
        let (credential, verified) = self.certified_by(grant);
        Author {
            signer: Signer::new(credential.clone(), self.key.clone()).unwrap(),
            credential,
            verified,
        }
    }
}

/// A signed batch, with all that its proofs need.
pub(crate) struct Said {
    pub(crate) batch: SignedBatch,
    pub(crate) entries: Vec<AuthorEntry>,
    delegations: Vec<sealbus_proof::BatchKeyDelegation>,
    statements: Vec<Vec<Hash>>,
}

impl Said {
    /// These authors say this in one batch.
    pub(crate) fn of(said: &[(&Signer, Vec<Hash>)], time: u64) -> Result<Self, SignError> {
        let mut batch = Batch::new(said[0].0.key().clone());
        let entries = said
            .iter()
            .map(|(signer, statements)| batch.add(signer, statements));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            batch: batch.sign(time)?,
            delegations: said.iter().map(|it| it.0.delegation().clone()).collect(),
            statements: said.iter().map(|it| it.1.clone()).collect(),
        })
    }

    /// The proof of a statement of an author, by their places.
    pub(crate) fn proof(&self, author: usize, place: usize) -> Result<Proof, SignError> {
        let (delegation, entry) = (&self.delegations[author], &self.entries[author]);
        self.batch
            .proof(delegation, entry, author, &self.statements[author], place)
    }
}

/// The proof of one statement in a batch of its own.
pub(crate) fn alone(signer: &Signer, statement: Hash, time: u64) -> Proof {
    let said = Said::of(&[(signer, vec![statement])], time).unwrap();
    said.proof(0, 0).unwrap()
}

pub(crate) fn encoded(proof: &Proof) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.encode(&mut bytes);
    bytes
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
