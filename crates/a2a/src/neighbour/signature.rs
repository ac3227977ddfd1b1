//! Signatures of the cards of others (specification, section 8.4): a JWS (RFC 7515) over the canonical card (RFC 8785). Free of I/O.
//!
//! Nothing that a signature says about its own check is believed: the entry in the manifest, or the server that the card came from,
//! says which keys count, and a key decides which algorithms count.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::Uri;
use sealbus_callers::shown;
use sealbus_callers::token::{KeySet, SignatureError};
use sealbus_manifest::A2A_AGENT;
use sealbus_seal::{
    CLOCK_SKEW, Certificate, CertificateChain, Identity, Signature as Signed, Timestamp, Trust,
};
use sealbus_web::trust::{CertificateFileError, certificates};
use serde::Deserialize;
use serde_json::{Value, json};

use super::card::is_at;
use crate::canonical::{canonical, without_empty};

/// Most signatures of a card.
const MOST_SIGNATURES: usize = 8;
/// Longest head of a signature, in bytes.
const LONGEST_HEAD: usize = 64 << 10;
/// Longest file or answer with keys, in bytes.
pub(crate) const LONGEST_KEYS: usize = 256 << 10;
/// Longest name of a key that is shown, in bytes.
const LONGEST_NAME: usize = 128;

/// Why a card is not signed by one whose word counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardSignatureError {
    /// It has no signature.
    #[error("its card is not signed")]
    Unsigned,
    /// Nobody would check so many.
    #[error("its card has more than {MOST_SIGNATURES} signatures")]
    TooMany,
    /// It is no signature, or one of a kind that is not known here.
    #[error("the signature of its card cannot be read: {0}")]
    Unreadable(&'static str),
    /// It is not that of a key that counts.
    #[error("the signature of its card does not count: {0}")]
    Key(#[from] SignatureError),
    /// It is not that of the platform's gateway.
    #[error("the signature of its card does not count: {0}")]
    Certificate(String),
    /// No key that counts can be had.
    #[error("the signature of its card cannot be checked: {0}")]
    NoKeys(String),
}

/// Those whose signature of a card counts.
pub enum Signers {
    /// The holders of these keys.
    Keys(KeySet),
    /// The gateway for A2A of another platform of Sealbus.
    Platform(Box<Trust>),
}

/// A card as it was signed.
#[derive(Debug, PartialEq, Eq)]
pub struct SignedCard {
    /// The members that the signature covers.
    pub card: Value,
    /// The signer, in words.
    pub signer: String,
}

#[derive(Deserialize)]
struct WrittenSignature {
    protected: String,
    signature: String,
}

#[derive(Deserialize)]
struct SignatureHeader {
    alg: String,
    kid: Option<String>,
    jku: Option<String>,
    crit: Option<Value>,
    #[serde(default)]
    x5c: Vec<String>,
}

fn signatures(card: &Value) -> &[Value] {
    let written = card.get("signatures").and_then(Value::as_array);
    written.map(Vec::as_slice).unwrap_or_default()
}

impl WrittenSignature {
    fn read(signature: &Value) -> Result<(Self, SignatureHeader), CardSignatureError> {
        let unreadable = CardSignatureError::Unreadable;
        let written = Self::deserialize(signature);
        let written = written.map_err(|_| unreadable("it has no `protected` or `signature`"))?;
        if written.protected.len() > LONGEST_HEAD {
            return Err(unreadable("its head is too long"));
        }
        let head = URL_SAFE_NO_PAD.decode(&written.protected).ok();
        let head = head.and_then(|head| serde_json::from_slice::<SignatureHeader>(&head).ok());
        let head = head.ok_or_else(|| unreadable("its head is none"))?;
        if head.crit.is_some() {
            return Err(unreadable("it demands what nobody here knows (crit)"));
        }
        Ok((written, head))
    }
}

/// Whether somebody signed a card.
pub fn is_signed(card: &Value) -> bool {
    !signatures(card).is_empty()
}

/// The address at which the server of the card publishes the key of a signature (`jku`), if it does. Other servers' keys prove
/// nothing.
pub fn published_at(card: &Value, from: &Uri) -> Option<Uri> {
    let mut heads = signatures(card).iter().take(MOST_SIGNATURES);
    heads.find_map(|signature| {
        let (_, head) = WrittenSignature::read(signature).ok()?;
        let at: Uri = head.jku?.parse().ok()?;
        let has_user = at.authority()?.as_str().contains('@');
        (is_at(&at, from) && !has_user).then_some(at)
    })
}

impl Signers {
    /// Reads a file: a JSON Web Key Set or one key of it, or the root certificates of a platform in PEM.
    ///
    /// # Errors
    /// [`CertificateFileError`].
    pub fn read(file: &Path) -> Result<Self, CertificateFileError> {
        let failed = |problem: &dyn std::fmt::Display| CertificateFileError::new(file, problem);
        let text = std::fs::read(file).map_err(|error| failed(&error))?;
        if text.len() > LONGEST_KEYS {
            return Err(failed(&format!("it has more than {LONGEST_KEYS} bytes")));
        }
        if text.trim_ascii_start().starts_with(b"{") {
            return Self::keys(&text).map_err(|error| failed(&error));
        }
        let roots = certificates(file)?;
        let platform = roots.first().map(|root| Certificate::parse(root));
        let no_root = || failed(&"it holds neither a JSON Web Key Set nor the root of a platform");
        let platform = platform.ok_or_else(no_root)?;
        let platform = platform.map_err(|error| failed(&error))?;
        let platform = platform.identity().platform().clone();
        let trust = Trust::new(platform, &roots, CLOCK_SKEW);
        let trust = trust.map_err(|error| failed(&error))?;
        Ok(Self::Platform(Box::new(trust)))
    }

    /// Reads a JSON Web Key Set, or one key of it.
    ///
    /// # Errors
    /// If none of its keys is of use.
    pub fn keys(text: &[u8]) -> Result<Self, sealbus_callers::token::KeySetError> {
        let one: Option<Value> = serde_json::from_slice(text).ok();
        let set = match one.filter(|one| one.get("kty").is_some()) {
            Some(one) => KeySet::read(json!({"keys": [one]}).to_string().as_bytes()),
            None => KeySet::read(text),
        };
        set.map(Self::Keys)
    }

    /// The card as one of them signed it.
    ///
    /// Signers differ about empty members: some leave them out before they sign. So what was signed is returned, and the rest of
    /// the card does not count.
    ///
    /// # Errors
    /// [`CardSignatureError`], of the last signature if there are several.
    pub fn verify(&self, card: &Value, now: Timestamp) -> Result<SignedCard, CardSignatureError> {
        let signatures = signatures(card);
        if signatures.len() > MOST_SIGNATURES {
            return Err(CardSignatureError::TooMany);
        }
        let mut whole = card.clone();
        if let Some(members) = whole.as_object_mut() {
            members.remove("signatures");
        }
        let rest = without_empty(&whole).filter(|rest| *rest != whole);
        let mut failed = CardSignatureError::Unsigned;
        for signature in signatures {
            let (written, head) = match WrittenSignature::read(signature) {
                Ok(read) => read,
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            for form in std::iter::once(&whole).chain(&rest) {
                let payload = URL_SAFE_NO_PAD.encode(canonical(form));
                let text = format!("{}.{payload}", written.protected);
                match self.check(&head, &text, &written.signature, now) {
                    Ok(signer) => {
                        let card = form.clone();
                        return Ok(SignedCard { card, signer });
                    }
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    /// Checks one signature. Returns the signer.
    fn check(
        &self,
        head: &SignatureHeader,
        text: &str,
        signature: &str,
        now: Timestamp,
    ) -> Result<String, CardSignatureError> {
        match self {
            Self::Keys(keys) => {
                keys.verify(&head.alg, head.kid.as_deref(), text, signature)?;
                Ok(match &head.kid {
                    Some(name) => format!("the key {}", shown(name, LONGEST_NAME)),
                    None => "the only key".to_owned(),
                })
            }
            Self::Platform(trust) => {
                let wrong = |error: &dyn std::fmt::Display| {
                    CardSignatureError::Certificate(error.to_string())
                };
                if head.alg != "EdDSA" {
                    return Err(SignatureError::Algorithm.into());
                }
                let chain = head.x5c.iter().map(|it| STANDARD.decode(it));
                let chain: Result<Vec<_>, _> = chain.map(|it| it.map(Into::into)).collect();
                let chain = chain.map_err(|_| CardSignatureError::Unreadable("its x5c is none"))?;
                let chain = CertificateChain::new(chain).map_err(|error| wrong(&error))?;
                let proved = trust.verify(&chain, now).map_err(|error| wrong(&error))?;
                let gateway = Identity::agent(trust.platform(), A2A_AGENT);
                if gateway.ok().as_ref() != Some(proved.identity()) {
                    let problem = format!("it is that of {}", proved.identity());
                    return Err(wrong(&problem));
                }
                let bytes = URL_SAFE_NO_PAD.decode(signature).ok();
                let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
                let bytes = bytes.ok_or(SignatureError::Wrong)?;
                let key = proved.public_key();
                match key.verifies(text.as_bytes(), &Signed::from_bytes(bytes)) {
                    true => Ok(format!("{A2A_AGENT}@{}", trust.platform().as_str())),
                    false => Err(SignatureError::Wrong.into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
