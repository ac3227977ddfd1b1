//! Checkpoints (C2SP tlog-checkpoint): signed statements of a tree's size and root.

use base64::Engine as _;
use sealbus_seal::{Identity, IssuingAuthority, KeyPair, Timestamp, VerifyingKey};

use crate::base64;
use crate::error::LogError;
use crate::note::{KeyKind, Note, NoteKey, NoteSignature};
use crate::tree::{Hash, MerkleLog, empty_root};

/// Longest checkpoint with its signatures, in bytes.
pub const LONGEST_CHECKPOINT: usize = 64 * 1024;

/// The size and the root of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the log.
    pub origin: String,
    /// The number of entries.
    pub size: u64,
    /// The root hash.
    pub root: Hash,
}

impl Checkpoint {
    /// The checkpoint of an authority's log.
    pub fn of(authority: &Identity, log: &MerkleLog) -> Self {
        Self {
            origin: Self::origin_of(authority),
            size: log.size(),
            root: log.root(),
        }
    }

    /// The name of an authority's log: its URI and `/issuance`.
    pub fn origin_of(authority: &Identity) -> String {
        format!("{authority}/issuance")
    }

    /// The key of an authority's log. It is the authority's own key.
    ///
    /// # Errors
    /// [`LogError::Malformed`] if no note could carry the name. No identity has such a name.
    pub fn key_of(authority: &Identity, key: VerifyingKey) -> Result<NoteKey, LogError> {
        NoteKey::new(&Self::origin_of(authority), KeyKind::Log, key)
    }

    fn text(&self) -> String {
        let root = base64().encode(self.root);
        format!("{}\n{}\n{root}\n", self.origin, self.size)
    }

    /// The checkpoint as a signed note: origin, size and root on a line each, an empty line, and the signature.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn sign(&self, authority: &IssuingAuthority) -> Result<Note, LogError> {
        let text = self.text();
        let signature = NoteSignature::of_log(&self.origin, authority.key(), &text)?;
        Ok(Note::new(text, vec![signature]))
    }

    /// The authority's signature alone.
    pub(crate) fn signature(&self, authority: &IssuingAuthority) -> Result<Vec<u8>, LogError> {
        Ok(authority.key().sign(self.text().as_bytes())?)
    }

    /// Whether a log's key made this signature.
    pub(crate) fn is_signed(&self, key: &VerifyingKey, signature: &[u8]) -> bool {
        key.verifies(self.text().as_bytes(), signature)
    }

    /// The cosignature of a witness of this name at this time.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn cosign(
        &self,
        witness: &str,
        key: &KeyPair,
        at: Timestamp,
    ) -> Result<NoteSignature, LogError> {
        NoteSignature::of_witness(witness, key, &self.text(), at)
    }

    /// Reads the checkpoint of a note and checks that `key` signed it.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(note: &Note, key: &NoteKey) -> Result<Self, LogError> {
        let checkpoint = Self::parse(note.text())?;
        if checkpoint.origin != key.name() {
            return Err(LogError::Malformed("it is of another log"));
        }
        note.verify(key)?;
        Ok(checkpoint)
    }

    /// Reads the text of a checkpoint. Its form is exact: a checkpoint has one text. Lines after the third, which
    /// tlog-checkpoint allows and advises against, are refused.
    ///
    /// # Errors
    /// [`LogError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, LogError> {
        let malformed = LogError::Malformed;
        let lines: Vec<&str> = text
            .strip_suffix('\n')
            .ok_or(malformed("its last line has no end"))?
            .splitn(4, '\n')
            .collect();
        let [origin, size, root] = lines[..] else {
            return Err(malformed("it does not have three lines"));
        };
        let root = base64()
            .decode(root)
            .ok()
            .and_then(|root| root.try_into().ok())
            .ok_or(malformed("its third line is not a hash"))?;
        let checkpoint = Self {
            origin: origin.to_owned(),
            size: size
                .parse()
                .map_err(|_| malformed("its second line is not a size"))?,
            root,
        };
        if origin.is_empty() || checkpoint.text() != text {
            return Err(malformed("it is not in its one form"));
        }
        if checkpoint.size == 0 && root != empty_root() {
            return Err(malformed("an empty log has another root"));
        }
        Ok(checkpoint)
    }
}
