//! The proof that comes with a certificate.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use proptest::prelude::*;
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    AuthorityKey, CertificateChain, Identity, Issued, IssuingAuthority, KeyPair, LONGEST_INCLUSION,
    PlatformName, RootAuthority, SignatureAlgorithm, SigningRequest, Timestamp, Trust, Validity,
};
use sealbus_transparency::{
    Hash, Inclusion, IssuanceRecord, MerkleLog, NotLogged, inclusion_proof, leaf_hash,
    verify_inclusion,
};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);

struct Scene {
    platform: PlatformName,
    root: RootAuthority,
    authority: IssuingAuthority,
    trust: Trust,
}

impl Scene {
    fn new() -> Self {
        Self::with(SignatureAlgorithm::Ed25519)
    }

    fn with(signatures: SignatureAlgorithm) -> Self {
        let platform = PlatformName::new("factory").unwrap();
        let key = AuthorityKey::generate(signatures).unwrap();
        let validity = Validity::starting(NOW, HOUR);
        let root = RootAuthority::create_with(key, &platform, validity).unwrap();
        let roots = [root.certificate().clone()];
        Self {
            authority: root
                .create_authority("ca", Validity::starting(NOW, HOUR))
                .unwrap(),
            trust: Trust::new(platform.clone(), &roots, Duration::ZERO).unwrap(),
            root,
            platform,
        }
    }

    fn issued(&self, agent: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let identity = Identity::agent(&self.platform, agent).unwrap();
        let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let validity = Validity::starting(NOW, HOUR);
        self.authority.issue(&grant, &request, validity).unwrap()
    }

    fn node(&self) -> Identity {
        Identity::node(&self.platform, "node-1").unwrap()
    }

    fn attach(&self, issued: Issued, log: &MerkleLog) -> (CertificateChain, IssuanceRecord) {
        let node = self.node();
        Inclusion::attach(issued, Some(&node), log, &self.authority, NOW).unwrap()
    }

    fn check(&self, chain: &CertificateChain) -> Result<(), NotLogged> {
        Inclusion::check_of(chain, &self.trust)
    }
}

#[test]
fn each_certificate_is_proved_by_the_log_that_it_comes_next_in() {
    SignatureAlgorithm::ALL
        .into_iter()
        .for_each(each_certificate_is_proved);
}

fn each_certificate_is_proved(signatures: SignatureAlgorithm) {
    let scene = Scene::with(signatures);
    let signature = signatures.signature_length();
    let mut log = MerkleLog::new();
    let mut leaves: Vec<Hash> = Vec::new();
    for number in 0..70 {
        let issued = scene.issued(&format!("agent-{number}"));
        let (chain, record) = scene.attach(issued, &log);
        let leaf = record.to_leaf().unwrap();
        log.append(&leaf);
        leaves.push(leaf_hash(&leaf));
        scene.check(&chain).unwrap();
        // The same proof in the words of RFC 9162: the subtrees are its path, from the other end.
        let size = log.size();
        let path = inclusion_proof(leaves.as_slice(), size, size - 1).unwrap();
        verify_inclusion(&leaf_hash(&leaf), size - 1, size, &log.root(), &path).unwrap();
        let mut named = path.clone();
        named.reverse();
        let proof = chain.inclusion().unwrap();
        let end = proof.len() - signature;
        assert_eq!(proof[end - 32 * named.len()..end], named.concat());
        // The proof goes where the chain goes.
        let mut wire = Vec::new();
        chain.encode(&mut wire);
        let (again, rest) = CertificateChain::decode_prefix(&wire).unwrap();
        assert_eq!((&again, rest.len()), (&chain, 0));
    }
}

#[test]
fn a_certificate_that_the_log_lacks_is_refused_by_name() {
    let scene = Scene::new();
    let log = MerkleLog::from_leaf_hashes((0..11).map(|number| [number; 32]));
    let secret = scene.issued("victim");
    let name = secret.certificate.identity().clone();
    assert_eq!(
        scene.check(&secret.chain).unwrap_err(),
        NotLogged::NoProof(name.clone())
    );
    // The proof of another certificate, or of the same one by another CA of the platform.
    let (other, _) = scene.attach(scene.issued("victim"), &log);
    let borrowed = other.inclusion().unwrap().to_vec();
    let borrowed = secret.chain.clone().with_inclusion(borrowed).unwrap();
    let error = scene.check(&borrowed).unwrap_err();
    assert!(
        matches!(&error, NotLogged::NotSigned { identity, size: 12, .. } if *identity == name),
        "{error}"
    );
    let valid = Validity::starting(NOW, HOUR);
    let second = scene.root.create_authority("ca-2", valid).unwrap();
    let (by_second, _) = Inclusion::attach(secret.clone(), None, &log, &second, NOW).unwrap();
    assert!(matches!(
        scene.check(&by_second),
        Err(NotLogged::NotSigned { .. })
    ));
    // The proof of a CA that the owner of the certificate made up.
    let own_root = RootAuthority::create(&scene.platform, valid).unwrap();
    let own = own_root.create_authority("ca", valid).unwrap();
    let behind = own.chain().to_certificates();
    let leaf = secret.chain.leaf().to_vec().into();
    let chain = std::iter::once(leaf).chain(behind).collect();
    let made_up = Issued {
        chain: CertificateChain::new(chain).unwrap(),
        ..secret
    };
    let (made_up, _) = Inclusion::attach(made_up, None, &log, &own, NOW).unwrap();
    assert!(matches!(
        scene.check(&made_up),
        Err(NotLogged::NotVerified(_))
    ));
    // A good proof is remembered for itself alone.
    scene.check(&other).unwrap();
    let stripped = other.clone().without_inclusion();
    assert!(scene.check(&stripped).is_err());
    assert!(scene.check(&borrowed).is_err());
    scene.check(&other).unwrap();
}

#[test]
fn a_proof_in_which_a_bit_was_changed_is_refused() {
    let scene = Scene::new();
    let log = MerkleLog::from_leaf_hashes((0..7).map(|number| [number; 32]));
    let (chain, _) = scene.attach(scene.issued("victim"), &log);
    let good = chain.inclusion().unwrap().to_vec();
    for bit in 0..good.len() * 8 {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let changed = chain.clone().with_inclusion(changed).unwrap();
        assert!(scene.check(&changed).is_err(), "bit {bit}");
    }
    for length in 0..good.len() {
        let cut = chain.clone().with_inclusion(good[..length].to_vec());
        assert!(scene.check(&cut.unwrap()).is_err());
    }
    assert!(
        chain
            .clone()
            .with_inclusion(vec![0; LONGEST_INCLUSION + 1])
            .is_err()
    );
}

#[test]
fn a_proof_with_ml_dsa_in_which_a_byte_was_changed_is_refused() {
    let scene = Scene::with(SignatureAlgorithm::MlDsa65);
    let log = MerkleLog::from_leaf_hashes((0..7).map(|number| [number; 32]));
    let (chain, _) = scene.attach(scene.issued("victim"), &log);
    scene.check(&chain).unwrap();
    let good = chain.inclusion().unwrap().to_vec();
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        let changed = chain.clone().with_inclusion(changed).unwrap();
        assert!(scene.check(&changed).is_err(), "byte {at}");
    }
    // The signature of the other kind, at its place.
    let start = good.len() - SignatureAlgorithm::MlDsa65.signature_length();
    let short = chain.clone().with_inclusion(good[..start + 64].to_vec());
    assert!(scene.check(&short.unwrap()).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_no_proof_or_one_with_one_form(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Some(proof) = Inclusion::decode(&bytes) {
            prop_assert_eq!(proof.encode(), bytes);
        }
    }
}
