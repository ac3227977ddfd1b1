//! The proof that a certificate is in the issuance log. Its CA hands it out with the certificate.

use sealbus_seal::{
    Certificate, CertificateChain, CertificateError, Fingerprint, Identity, Issued,
    IssuingAuthority, SignatureAlgorithm, Timestamp, Trust, VerifyError,
};
use thiserror::Error;

use crate::checkpoint::Checkpoint;
use crate::error::LogError;
use crate::record::IssuanceRecord;
use crate::tree::{Hash, MerkleLog};

const VERSION: u8 = 1;

/// The proof that a certificate is the last entry of a log, of which the certificate's CA signed the checkpoint.
///
/// It repeats nothing that the certificate says. It has about 140 bytes, and 32 for each complete subtree before the entry:
/// at most 20 in a log of a million entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inclusion {
    /// The number of entries before this one.
    before: u64,
    issued_at: Timestamp,
    on_behalf_of: Option<Identity>,
    /// The complete subtrees before the entry, largest first.
    subtrees: Vec<Hash>,
    /// The CA's signature of the checkpoint.
    signature: Vec<u8>,
}

/// Why a certificate does not count as one of the issuance log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotLogged {
    /// No proof came with the certificate.
    #[error("the certificate of {0} came without a proof that it is in the issuance log")]
    NoProof(Identity),
    /// The bytes are no proof.
    #[error("the proof that the certificate of {0} is in the issuance log cannot be read")]
    Malformed(Identity),
    /// The CA signed no such checkpoint.
    #[error(
        "the certificate of {identity} is not in the issuance log: {authority} did not sign a log of {size} entries that ends with it"
    )]
    NotSigned {
        /// The certified identity.
        identity: Identity,
        /// The CA behind the certificate.
        authority: Identity,
        /// The number of entries that the proof states.
        size: u64,
    },
    /// The certificate's CA is not one of this platform's CAs.
    #[error(transparent)]
    NotVerified(#[from] VerifyError),
    /// A certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The entry or the tree cannot be made.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Inclusion {
    /// Gives a certificate that was just issued the proof that it comes next in `log`. Returns its chain with the proof, and
    /// the record that the caller has yet to append to the log.
    ///
    /// # Errors
    /// If the entry cannot be written, or the authority cannot sign.
    pub fn attach(
        issued: Issued,
        on_behalf_of: Option<&Identity>,
        log: &MerkleLog,
        authority: &IssuingAuthority,
        now: Timestamp,
    ) -> Result<(CertificateChain, IssuanceRecord), LogError> {
        let Issued { chain, certificate } = issued;
        let name = authority.identity();
        let record = IssuanceRecord::of(&certificate, chain.leaf(), on_behalf_of, name, now);
        let mut with = log.clone();
        with.append(&record.to_leaf()?);
        let proof = Self {
            before: log.size(),
            issued_at: record.issued_at,
            on_behalf_of: record.on_behalf_of.clone(),
            subtrees: log.frontier().to_vec(),
            signature: Checkpoint::of(name, &with).signature(authority)?,
        };
        let chain = chain.with_inclusion(proof.encode());
        let chain = chain.map_err(|error| LogError::Encoding(error.to_string()))?;
        Ok((chain, record))
    }

    /// The number of entries of the log that ends with the certificate.
    pub fn size(&self) -> u64 {
        self.before + 1
    }

    /// The wire form, as docs/evidence.md describes it.
    pub fn encode(&self) -> Vec<u8> {
        let node = self.on_behalf_of.as_ref().map(ToString::to_string);
        let node = node.unwrap_or_default();
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.before.to_be_bytes());
        out.extend_from_slice(&self.issued_at.as_unix_seconds().to_be_bytes());
        out.extend_from_slice(&(node.len() as u16).to_be_bytes());
        out.extend_from_slice(node.as_bytes());
        self.subtrees
            .iter()
            .for_each(|hash| out.extend_from_slice(hash));
        out.extend_from_slice(&self.signature);
        out
    }

    /// Reads a wire form that fills `bytes` exactly. `None` if the bytes are no proof. Each proof has one form.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        let (before, rest) = rest.split_first_chunk()?;
        let (issued_at, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (node, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        let before = u64::from_be_bytes(*before);
        let (subtrees, signature) = rest.split_at_checked(32 * before.count_ones() as usize)?;
        let (subtrees, _) = subtrees.as_chunks();
        let mut lengths = SignatureAlgorithm::ALL
            .iter()
            .map(|it| it.signature_length());
        let is_sound = version == VERSION
            && before < u64::MAX
            && lengths.any(|length| length == signature.len());
        let node = str::from_utf8(node).ok().filter(|_| is_sound)?;
        let on_behalf_of: Option<Identity> = match node {
            "" => None,
            node => Some(node.parse().ok()?),
        };
        let read = Self {
            before,
            issued_at: Timestamp::from_unix_seconds(u64::from_be_bytes(*issued_at)),
            on_behalf_of,
            subtrees: subtrees.to_vec(),
            signature: signature.to_vec(),
        };
        (read.encode() == bytes).then_some(read)
    }

    /// Checks that the CA of a chain signed a log that ends with the chain's leaf.
    ///
    /// The caller must verify the chain.
    ///
    /// # Errors
    /// [`NotLogged`].
    pub fn check(&self, chain: &CertificateChain) -> Result<(), NotLogged> {
        let leaf = chain.certificate()?;
        let Some(issuer) = chain.issuers().first() else {
            return Err(NotLogged::NoProof(leaf.identity().clone()));
        };
        let issuer = Certificate::parse(issuer)?;
        let authority = issuer.identity();
        let record = IssuanceRecord::of(
            &leaf,
            chain.leaf(),
            self.on_behalf_of.as_ref(),
            authority,
            self.issued_at,
        );
        let mut log = MerkleLog::from_frontier(self.before, self.subtrees.clone())?;
        log.append(&record.to_leaf()?);
        match Checkpoint::of(authority, &log).is_signed(issuer.public_key(), &self.signature) {
            true => Ok(()),
            false => Err(NotLogged::NotSigned {
                identity: leaf.identity().clone(),
                authority: authority.clone(),
                size: log.size(),
            }),
        }
    }

    /// Checks that the leaf of a chain is in its CA's log, by the proof that came with the chain. Also checks that the chain
    /// leads to a root of this platform, because its owner could otherwise have made up the CA. `trust` remembers the chains
    /// for which both were found true.
    ///
    /// The caller must judge dates and deny lists.
    ///
    /// # Errors
    /// [`NotLogged`].
    pub fn check_of(chain: &CertificateChain, trust: &Trust) -> Result<(), NotLogged> {
        Self::check_once(chain, trust, |leaf| {
            trust.verify_as_of(chain, leaf.not_before())?;
            Ok(())
        })
    }

    /// As [`check_of`](Self::check_of), for a chain that `trust` has just verified: its signatures are not checked again.
    ///
    /// # Errors
    /// [`NotLogged`].
    pub fn check_of_verified(chain: &CertificateChain, trust: &Trust) -> Result<(), NotLogged> {
        Self::check_once(chain, trust, |_| Ok(()))
    }

    fn check_once(
        chain: &CertificateChain,
        trust: &Trust,
        verify: impl FnOnce(&Certificate) -> Result<(), NotLogged>,
    ) -> Result<(), NotLogged> {
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        trust.once(Fingerprint::of(&bytes), || {
            let leaf = chain.certificate()?;
            verify(&leaf)?;
            let identity = || leaf.identity().clone();
            match chain.inclusion() {
                None => Err(NotLogged::NoProof(identity())),
                Some(proof) => match Self::decode(proof) {
                    None => Err(NotLogged::Malformed(identity())),
                    Some(proof) => proof.check(chain),
                },
            }
        })
    }
}
