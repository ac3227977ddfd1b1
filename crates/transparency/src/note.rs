//! Signed notes (C2SP signed-note), and the cosignatures of witnesses (C2SP tlog-cosignature).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use sealbus_seal::{AuthorityKey, KeyPair, SignatureAlgorithm, Timestamp, VerifyingKey};

use crate::base64;
use crate::error::LogError;

/// Most signatures of a note. A note with more is refused. Each node of a platform adds one.
pub const MOST_SIGNATURES: usize = 1024;
/// Longest name of a key.
const LONGEST_NAME: usize = 512;
/// Longest signature, after base64. Algorithms that are not known here may be longer than Ed25519.
const LONGEST_SIGNATURE: usize = 8192;
/// An em dash and a space begin each signature's line.
const MARK: &str = "\u{2014} ";

/// The kind of a note's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The key of a log, which signs the text. With Ed25519 the kind is that of signed-note. Other algorithms have an identifier
    /// of their own.
    Log,
    /// The Ed25519 key of a witness, which signs the time and the text (cosignature/v1).
    Witness,
}

/// A log's ML-DSA-65 signature of the text. The formats give it no byte, so 255 stands before a name.
const ML_DSA_65: &[u8] = b"\xffsealbus ml-dsa-65 log v1\0";

/// The name and public key of a signer. The text form is the `vkey` of signed-note: `name+hint+key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    kind: KeyKind,
    key: VerifyingKey,
}

/// One signature of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the signer's key.
    pub name: String,
    hint: [u8; 4],
    bytes: Vec<u8>,
}

/// A text and its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl NoteKey {
    /// A key of this name.
    ///
    /// # Errors
    /// [`LogError::Malformed`] if no note could carry the name.
    pub fn new(name: &str, kind: KeyKind, key: impl Into<VerifyingKey>) -> Result<Self, LogError> {
        if !is_name(name) {
            return Err(LogError::Malformed("a key's name is not valid"));
        }
        let (name, key) = (name.to_owned(), key.into());
        if kind == KeyKind::Witness && key.ed25519().is_none() {
            return Err(LogError::Malformed("a witness has an Ed25519 key"));
        }
        Ok(Self { name, kind, key })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The first four bytes of SHA-256 of name, newline, kind and key.
    fn hint(&self) -> [u8; 4] {
        let (name, key) = (self.name.as_bytes(), self.key.as_bytes());
        let [a, b, c, d, ..] = crate::sha256(&[name, b"\n", self.identifier(), key].concat());
        [a, b, c, d]
    }

    /// The bytes that the formats give the kind and the algorithm.
    fn identifier(&self) -> &'static [u8] {
        match (self.kind, self.key.algorithm()) {
            (KeyKind::Witness, _) => &[4],
            (KeyKind::Log, SignatureAlgorithm::Ed25519) => &[1],
            (KeyKind::Log, SignatureAlgorithm::MlDsa65) => ML_DSA_65,
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_bad =
        |character: char| character == '+' || character.is_whitespace() || character.is_control();
    (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(is_bad)
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [self.identifier(), self.key.as_bytes()].concat();
        let hint = u32::from_be_bytes(self.hint());
        write!(f, "{}+{hint:08x}+{}", self.name, base64().encode(key))
    }
}

impl FromStr for NoteKey {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, LogError> {
        let malformed = LogError::Malformed("not a key: name+hint+key is wanted");
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(hint), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed);
        };
        let bytes = base64().decode(key).map_err(|_| malformed.clone())?;
        let (kind, algorithm, key) = match bytes.split_first() {
            Some((1, key)) => (KeyKind::Log, SignatureAlgorithm::Ed25519, key),
            Some((4, key)) => (KeyKind::Witness, SignatureAlgorithm::Ed25519, key),
            _ => match bytes.strip_prefix(ML_DSA_65) {
                Some(key) => (KeyKind::Log, SignatureAlgorithm::MlDsa65, key),
                None => return Err(LogError::Malformed("the key is of an unknown algorithm")),
            },
        };
        let key = VerifyingKey::from_bytes(algorithm, key).ok_or(malformed.clone())?;
        let made = Self::new(name, kind, key)?;
        if format!("{:08x}", u32::from_be_bytes(made.hint())) != hint {
            return Err(LogError::Malformed("the key's hint does not fit it"));
        }
        Ok(made)
    }
}

impl NoteSignature {
    /// A log's signature of the text.
    ///
    /// # Errors
    /// If the key cannot sign, or the name is not valid.
    pub(crate) fn of_log(name: &str, pair: &AuthorityKey, text: &str) -> Result<Self, LogError> {
        let key = NoteKey::new(name, KeyKind::Log, pair.public_key())?;
        let bytes = pair.sign(text.as_bytes())?;
        Ok(Self::made(&key, bytes))
    }

    /// A witness's cosignature of the text at this time.
    ///
    /// # Errors
    /// If the key cannot sign, or the name is not valid.
    pub(crate) fn of_witness(
        name: &str,
        pair: &KeyPair,
        text: &str,
        at: Timestamp,
    ) -> Result<Self, LogError> {
        let key = NoteKey::new(name, KeyKind::Witness, *pair.public_key())?;
        let seconds = at.as_unix_seconds();
        let signature = pair.sign(cosigned(seconds, text).as_bytes())?;
        let bytes = [&seconds.to_be_bytes(), signature.as_bytes().as_slice()].concat();
        Ok(Self::made(&key, bytes))
    }

    fn made(key: &NoteKey, bytes: Vec<u8>) -> Self {
        Self {
            name: key.name.clone(),
            hint: key.hint(),
            bytes,
        }
    }

    /// Reads one line, without its end.
    ///
    /// # Errors
    /// [`LogError::Malformed`].
    pub fn parse(line: &str) -> Result<Self, LogError> {
        let malformed = LogError::Malformed("a signature's line is not valid");
        let (name, signature) = line
            .strip_prefix(MARK)
            .and_then(|line| line.split_once(' '))
            .filter(|(name, signature)| is_name(name) && signature.len() <= LONGEST_SIGNATURE)
            .ok_or(malformed.clone())?;
        let bytes = base64().decode(signature).map_err(|_| malformed.clone())?;
        let (hint, bytes) = bytes.split_first_chunk::<4>().ok_or(malformed.clone())?;
        if bytes.is_empty() {
            return Err(malformed);
        }
        Ok(Self {
            name: name.to_owned(),
            hint: *hint,
            bytes: bytes.to_vec(),
        })
    }
}

/// The line, without its end.
impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.hint.as_slice(), &self.bytes].concat();
        write!(f, "{MARK}{} {}", self.name, base64().encode(bytes))
    }
}

/// The text that a witness signs.
fn cosigned(seconds: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {seconds}\n{text}")
}

impl Note {
    pub(crate) fn new(text: String, signatures: Vec<NoteSignature>) -> Self {
        Self { text, signatures }
    }

    /// Reads a note.
    ///
    /// # Errors
    /// [`LogError::Malformed`].
    pub fn parse(note: &str) -> Result<Self, LogError> {
        let malformed = LogError::Malformed;
        if note.chars().any(|it| it.is_ascii_control() && it != '\n') {
            return Err(malformed("it contains control characters"));
        }
        // The text may have empty lines of its own: the last one ends it.
        let end = note.rfind("\n\n").ok_or(malformed("it has no signature"))?;
        let (text, signatures) = (&note[..=end], &note[end + 2..]);
        let lines = signatures
            .strip_suffix('\n')
            .ok_or(malformed("its last line has no end"))?;
        if lines.split('\n').count() > MOST_SIGNATURES {
            return Err(malformed("it has too many signatures"));
        }
        let signatures = lines.split('\n').map(NoteSignature::parse);
        Ok(Self {
            text: text.to_owned(),
            signatures: signatures.collect::<Result<_, _>>()?,
        })
    }

    /// The signed text. It ends with a line end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures. None of them is checked yet.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Adds a signature. A note with [`MOST_SIGNATURES`] stays as it is: nobody could read a longer one. Returns whether the
    /// signature was added.
    pub fn add(&mut self, signature: NoteSignature) -> bool {
        let is_new =
            self.signatures.len() < MOST_SIGNATURES && !self.signatures.contains(&signature);
        if is_new {
            self.signatures.push(signature);
        }
        is_new
    }

    /// The note with only the signatures that one of `keys` made, so that nobody can lengthen a kept note.
    #[must_use]
    pub fn signed_by(&self, keys: &[&NoteKey]) -> Self {
        let is_good = |signature: &&NoteSignature| {
            let mut keys = keys.iter();
            keys.any(|key| self.time_of(key, signature).is_some())
        };
        let signatures = self.signatures.iter().filter(is_good).cloned().collect();
        Self::new(self.text.clone(), signatures)
    }

    /// Checks that the note has a good signature of this key. The result is the latest time that a witness stated,
    /// or 0 for a log, which states none.
    ///
    /// # Errors
    /// [`LogError::NotSigned`].
    pub fn verify(&self, key: &NoteKey) -> Result<Timestamp, LogError> {
        let signatures = self.signatures.iter();
        signatures
            .filter_map(|signature| self.time_of(key, signature))
            .max()
            .ok_or_else(|| LogError::NotSigned(key.name.clone()))
    }

    /// The time that this signature states, if it is good and of this key.
    fn time_of(&self, key: &NoteKey, signature: &NoteSignature) -> Option<Timestamp> {
        if signature.name != key.name || signature.hint != key.hint() {
            return None;
        }
        let (seconds, bytes, signed) = match key.kind {
            KeyKind::Log => (0, signature.bytes.as_slice(), self.text.clone()),
            KeyKind::Witness => {
                let (seconds, bytes) = signature.bytes.split_first_chunk::<8>()?;
                let seconds = u64::from_be_bytes(*seconds);
                (seconds, bytes, cosigned(seconds, &self.text))
            }
        };
        key.key
            .verifies(signed.as_bytes(), bytes)
            .then_some(Timestamp::from_unix_seconds(seconds))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        let mut signatures = self.signatures.iter();
        signatures.try_for_each(|signature| writeln!(f, "{signature}"))
    }
}
