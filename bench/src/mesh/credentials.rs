//! Certificates for the two processes. The first process is the authority; the second asks it over its pipes.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    AuthorityKey, CLOCK_SKEW, CertificateChain, Credential, Identity, IssuingAuthority, KeyPair,
    MlDsaKeyPair, PlatformName, RootAuthority, SignatureAlgorithm, SigningRequest, Timestamp,
    Trust, Validity,
};
use sealbus_transparency::{Inclusion, MerkleLog};

const LIFETIME: Duration = Duration::from_secs(86_400);
const PLATFORM: &str = "bench";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The platform of the benchmark.
pub(crate) fn platform() -> Result<PlatformName> {
    Ok(PlatformName::new(PLATFORM)?)
}

/// The certification authority.
pub(crate) struct Authority {
    root: RootAuthority,
    issuing: IssuingAuthority,
}

impl Authority {
    pub(crate) fn create() -> Result<Self> {
        Self::with(SignatureAlgorithm::Ed25519)
    }

    pub(crate) fn with(signatures: SignatureAlgorithm) -> Result<Self> {
        let validity = Validity::starting(Timestamp::from(SystemTime::now()), LIFETIME);
        let key = AuthorityKey::generate(signatures)?;
        let root = RootAuthority::create_with(key, &platform()?, validity)?;
        let issuing = root.create_authority("ca-1", validity)?;
        Ok(Self { root, issuing })
    }

    pub(crate) fn trust(&self) -> Result<Arc<Trust>> {
        trust(self.root.certificate())
    }

    fn certify(&self, identity: Identity, request: &[u8]) -> Result<CertificateChain> {
        let validity = Validity::starting(Timestamp::from(SystemTime::now()), LIFETIME);
        let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
        let issued = self
            .issuing
            .issue(&grant, &SigningRequest::parse(request)?, validity)?;
        // Each certificate is the first one of a log of its own.
        let (log, now) = (MerkleLog::new(), Timestamp::from(SystemTime::now()));
        Ok(Inclusion::attach(issued, None, &log, &self.issuing, now)?.0)
    }

    pub(crate) fn credential(&self, identity: Identity) -> Result<Arc<Credential>> {
        let key = KeyPair::generate()?;
        let second = match self.root.key().algorithm() {
            SignatureAlgorithm::MlDsa65 => Some(MlDsaKeyPair::generate()?),
            SignatureAlgorithm::Ed25519 => None,
        };
        let public = second.as_ref().map(MlDsaKeyPair::public_key);
        let mut chain = self.certify(identity, &key.signing_request_with(public, None)?)?;
        chain.share_issuers(self.issuing.chain());
        let credential = Credential::new(key, chain)?;
        Ok(Arc::new(match second {
            Some(second) => credential.with_second(second)?,
            None => credential,
        }))
    }

    /// The root certificate, DER.
    pub(crate) fn root(&self) -> &[u8] {
        self.root.certificate()
    }

    pub(crate) fn root_text(&self) -> String {
        to_text(self.root.certificate())
    }

    /// Answers `IDENTITY REQUEST` with a chain.
    pub(crate) fn certify_text(&self, request: &str) -> Result<String> {
        let (identity, request) = request.split_once(' ').ok_or("a request has two words")?;
        let chain = self.certify(identity.parse()?, &from_text(request)?)?;
        let mut encoded = Vec::new();
        chain.encode(&mut encoded);
        Ok(to_text(&encoded))
    }
}

fn trust(root: &[u8]) -> Result<Arc<Trust>> {
    Ok(Arc::new(Trust::new(
        platform()?,
        &[root.to_vec().into()],
        CLOCK_SKEW,
    )?))
}

/// The second process's side, which asks for its certificates over a pipe or a socket.
pub(crate) struct Customer<R, W> {
    pub(crate) trust: Arc<Trust>,
    answers: R,
    requests: W,
}

impl<R: BufRead, W: Write> Customer<R, W> {
    /// The first line is the root's certificate.
    pub(crate) fn new(mut answers: R, requests: W) -> Result<Self> {
        Ok(Self {
            trust: trust(&from_text(&read_line_of(&mut answers)?)?)?,
            answers,
            requests,
        })
    }

    pub(crate) fn credential(&mut self, identity: &Identity) -> Result<Arc<Credential>> {
        let key = KeyPair::generate()?;
        let request = to_text(&key.signing_request()?);
        writeln!(self.requests, "certify {identity} {request}")?;
        self.requests.flush()?;
        let chain = CertificateChain::decode(&from_text(&read_line_of(&mut self.answers)?)?)?;
        Ok(Arc::new(Credential::new(key, chain)?))
    }
}

fn read_line_of(lines: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

pub(crate) fn read_line() -> Result<String> {
    read_line_of(&mut std::io::stdin().lock())
}

fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Result<Vec<u8>> {
    let digits = |at| text.get(at..at + 2).ok_or("an odd number of digits");
    (0..text.len())
        .step_by(2)
        .map(|at| Ok(u8::from_str_radix(digits(at)?, 16)?))
        .collect()
}
