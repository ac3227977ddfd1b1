//! A login by certificate: each end signs the nonces of both, and shows an X.509 certificate of the authority (ISO/IEC
//! 9798-3, mutual, three passes).

use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, SignatureVerificationAlgorithm, UnixTime,
};
use serde::{Deserialize, Serialize};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::{Party, Reply};
use crate::drivers::techniques::NotBelieved;

const NONCE: usize = 32;
/// The purposes of the signatures, so that neither end can show the other's signature as its own.
const ASKING: &[u8] = b"sealbus bench login v1, asking\0";
const ANSWERING: &[u8] = b"sealbus bench login v1, answering\0";

/// The algorithm of all keys of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Algorithm {
    Ed25519,
    Ecdsa,
}

impl Algorithm {
    fn for_making(self) -> &'static rcgen::SignatureAlgorithm {
        match self {
            Self::Ed25519 => &PKCS_ED25519,
            Self::Ecdsa => &PKCS_ECDSA_P256_SHA256,
        }
    }

    fn for_checking(self) -> &'static dyn SignatureVerificationAlgorithm {
        match self {
            Self::Ed25519 => webpki::aws_lc_rs::ED25519,
            Self::Ecdsa => webpki::aws_lc_rs::ECDSA_P256_SHA256,
        }
    }
}

/// A private key.
enum Key {
    Ed25519(Box<Ed25519KeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
}

impl Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, NotBelieved> {
        Ok(match self {
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Ecdsa(key) => {
                let signature = key.sign(&SystemRandom::new(), message)?;
                signature.as_ref().to_vec()
            }
        })
    }
}

/// The authority. The receivers' process makes it. The senders' process gets it before the time counts, and certifies its
/// own agents.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Authority {
    algorithm: Algorithm,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "benchmark authority");
    params
}

impl Authority {
    pub(crate) fn create(algorithm: Algorithm) -> Result<Self, NotBelieved> {
        let key = rcgen::KeyPair::generate_for(algorithm.for_making())?;
        Ok(Self {
            algorithm,
            certificate: authority_params().self_signed(&key)?.der().to_vec(),
            key: key.serialize_der(),
        })
    }

    /// Certifies a new key for an agent.
    pub(crate) fn certify(&self, name: &str) -> Result<Arc<Certified>, NotBelieved> {
        let own = PrivatePkcs8KeyDer::from(self.key.as_slice());
        let own = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&own, self.algorithm.for_making())?;
        let issuer = Issuer::new(authority_params(), own);
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let key = rcgen::KeyPair::generate_for(self.algorithm.for_making())?;
        let certificate = params.signed_by(&key, &issuer)?.der().to_vec();
        let key = key.serialize_der();
        let key = match self.algorithm {
            Algorithm::Ed25519 => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key)
                .map(|key| Key::Ed25519(Box::new(key))),
            Algorithm::Ecdsa => EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key)
                .map(|key| Key::Ecdsa(Box::new(key))),
        };
        Ok(Arc::new(Certified {
            algorithm: self.algorithm,
            root: self.certificate.clone().into(),
            certificate,
            key: key.map_err(|_| NotBelieved("the new key is none"))?,
        }))
    }
}

/// A key with its certificate, and the authority that its owner believes.
pub(crate) struct Certified {
    algorithm: Algorithm,
    root: CertificateDer<'static>,
    certificate: Vec<u8>,
    key: Key,
}

impl Certified {
    /// The end that asks, in one login.
    pub(crate) fn asking(self: Arc<Self>) -> Result<Box<dyn Party>, NotBelieved> {
        let nonce = nonce()?;
        Ok(Box::new(Asking { own: self, nonce }))
    }

    /// The end that answers, in one login.
    pub(crate) fn answering(self: Arc<Self>) -> Result<Box<dyn Party>, NotBelieved> {
        Ok(Box::new(Answering {
            own: self,
            nonce: nonce()?,
            asked: None,
        }))
    }

    /// The certificate with a signature of `parts`.
    fn prove(&self, parts: &[&[u8]]) -> Result<Vec<u8>, NotBelieved> {
        let length = u32::try_from(self.certificate.len())
            .map_err(|_| NotBelieved("the certificate is too long"))?;
        let mut proof = length.to_be_bytes().to_vec();
        proof.extend_from_slice(&self.certificate);
        proof.extend_from_slice(&self.key.sign(&parts.concat())?);
        Ok(proof)
    }

    /// Checks the certificate of a proof, and its signature of `parts`.
    fn check(&self, proof: &[u8], usage: KeyUsage, parts: &[&[u8]]) -> Result<(), NotBelieved> {
        let short = NotBelieved("the proof is too short");
        let (length, rest) = proof.split_first_chunk().ok_or(short)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (certificate, signature) = rest.split_at_checked(length).ok_or(short)?;
        let certificate = CertificateDer::from(certificate);
        let end = EndEntityCert::try_from(&certificate)?;
        let anchors = [anchor_from_trusted_cert(&self.root)?];
        let algorithm = self.algorithm.for_checking();
        let now = UnixTime::now();
        end.verify_for_usage(&[algorithm], &anchors, &[], now, usage, None, None)?;
        end.verify_signature(algorithm, &parts.concat(), signature)?;
        Ok(())
    }
}

fn nonce() -> Result<[u8; NONCE], NotBelieved> {
    let mut nonce = [0; NONCE];
    SystemRandom::new().fill(&mut nonce)?;
    Ok(nonce)
}

struct Asking {
    own: Arc<Certified>,
    nonce: [u8; NONCE],
}

impl Party for Asking {
    fn begin(&mut self) -> Option<Vec<u8>> {
        Some(self.nonce.to_vec())
    }

    fn hear(&mut self, words: &[u8]) -> Result<Reply, NotBelieved> {
        let short = NotBelieved("the answer is too short");
        let (theirs, proof) = words.split_at_checked(NONCE).ok_or(short)?;
        let parts: [&[u8]; 3] = [ANSWERING, &self.nonce, theirs];
        self.own.check(proof, KeyUsage::server_auth(), &parts)?;
        // The own signature is for these words of the other end alone.
        let proof = self.own.prove(&[ASKING, &self.nonce, words])?;
        Ok(Reply::last(proof))
    }
}

struct Answering {
    own: Arc<Certified>,
    nonce: [u8; NONCE],
    /// The other end's nonce, and the own words.
    asked: Option<([u8; NONCE], Vec<u8>)>,
}

impl Party for Answering {
    fn begin(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn hear(&mut self, words: &[u8]) -> Result<Reply, NotBelieved> {
        if let Some((theirs, said)) = self.asked.take() {
            let parts: [&[u8]; 3] = [ASKING, &theirs, &said];
            self.own.check(words, KeyUsage::client_auth(), &parts)?;
            return Ok(Reply::done());
        }
        let theirs = <[u8; NONCE]>::try_from(words)
            .map_err(|_| NotBelieved("the nonce has another length"))?;
        let mut say = self.nonce.to_vec();
        say.extend_from_slice(&self.own.prove(&[ANSWERING, &theirs, &self.nonce])?);
        self.asked = Some((theirs, say.clone()));
        Ok(Reply::more(say))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{change_each_byte, talk};
    use super::*;

    const ALL: [Algorithm; 2] = [Algorithm::Ed25519, Algorithm::Ecdsa];

    #[test]
    fn each_changed_byte_is_refused() {
        for algorithm in ALL {
            let authority = Authority::create(algorithm).unwrap();
            let [agent, server] = ["agent-7", "server"].map(|it| authority.certify(it).unwrap());
            let bytes = change_each_byte(|| {
                (
                    agent.clone().asking().unwrap(),
                    server.clone().answering().unwrap(),
                )
            });
            assert!(bytes > 600, "{algorithm:?}: {bytes}");
        }
    }

    #[test]
    fn a_certificate_of_another_authority_is_refused() {
        for algorithm in ALL {
            let [ours, others] = [(); 2].map(|()| Authority::create(algorithm).unwrap());
            for (agent, server) in [(&others, &ours), (&ours, &others)] {
                let mut asking = agent.certify("agent-7").unwrap().asking().unwrap();
                let mut answering = server.certify("server").unwrap().answering().unwrap();
                assert!(talk(asking.as_mut(), answering.as_mut(), |_, _| {}).is_err());
            }
        }
    }

    #[test]
    fn a_login_that_was_heard_before_is_refused() {
        for algorithm in ALL {
            let authority = Authority::create(algorithm).unwrap();
            let [agent, server] = ["agent-7", "server"].map(|it| authority.certify(it).unwrap());
            let mut heard = Vec::new();
            let mut asking = agent.asking().unwrap();
            let mut answering = server.clone().answering().unwrap();
            talk(asking.as_mut(), answering.as_mut(), |_, words| {
                heard.push(words.clone());
            })
            .unwrap();
            let mut again = server.answering().unwrap();
            again.hear(&heard[0]).unwrap();
            assert!(again.hear(&heard[2]).is_err());
        }
    }
}
