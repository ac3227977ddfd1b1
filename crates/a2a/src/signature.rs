//! Signatures of cards (specification, section 8.4): a JWS (RFC 7515) over the canonical card (RFC 8785).
//!
//! The gateway's own agent signs, with the key that its certificate of this platform names. The certificate and those above it
//! stand in the signature (`x5c`), so who knows the platform's authority needs nothing else. The keys are also published
//! (`jku`), for those who only know the host.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use sealbus::Voice;
use sealbus_seal::{Credential, PublicKey};
use serde_json::{Value, json};

use crate::canonical::canonical;

/// The path of the published keys.
pub(crate) const KEYS: &str = "/.well-known/jwks.json";
/// Published keys: a card may be read just before its signer's certificate is renewed.
const PUBLISHED: usize = 2;

/// Signs cards.
pub(crate) struct Signer {
    voice: Voice,
    /// The latest keys, the newest last.
    keys: Mutex<Vec<PublicKey>>,
}

impl Signer {
    /// Signs in the name of this agent.
    pub(crate) fn new(voice: Voice) -> Self {
        Self {
            voice,
            keys: Mutex::default(),
        }
    }

    /// The present credential. None at security levels without certificates.
    fn credential(&self) -> Option<Arc<Credential>> {
        let credential = self.voice.sender().outbox().agent().credential()?;
        let key = credential.key().public_key();
        let mut keys = self.keys.lock();
        if keys.last() != Some(key) {
            if keys.len() == PUBLISHED {
                keys.remove(0);
            }
            keys.push(*key);
        }
        Some(credential)
    }

    /// Adds a signature to a card, if the platform's level has certificates. `base` is how the caller reaches the gateway.
    pub(crate) fn sign(&self, card: &mut Value, base: &str) {
        let Some(credential) = self.credential() else {
            return;
        };
        match signature(card, &credential, base) {
            Ok(signature) => card["signatures"] = json!([signature]),
            Err(error) => tracing::error!(%error, "a card is shown without a signature"),
        }
    }

    /// The published keys (RFC 7517, RFC 8037).
    pub(crate) fn keys(&self) -> Value {
        let _ = self.credential();
        let keys = self.keys.lock();
        let keys: Vec<Value> = keys.iter().map(key).collect();
        json!({ "keys": keys })
    }
}

fn key(key: &PublicKey) -> Value {
    json!({
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
        "kid": key.to_string(), "x": URL_SAFE_NO_PAD.encode(key.as_bytes()),
    })
}

/// The signature of a card that has none. Members of a card are never empty, so no two rules on what to leave out differ on it.
fn signature(
    card: &Value,
    credential: &Credential,
    base: &str,
) -> Result<Value, sealbus_seal::KeyError> {
    let chain = credential.chain().to_certificates();
    let chain: Vec<String> = chain.iter().map(|it| STANDARD.encode(it)).collect();
    let protected = json!({
        "alg": "EdDSA", "typ": "JOSE", "kid": credential.key().public_key().to_string(),
        "jku": format!("{base}{KEYS}"), "x5c": chain,
    });
    let protected = URL_SAFE_NO_PAD.encode(protected.to_string());
    let payload = URL_SAFE_NO_PAD.encode(canonical(card));
    let signature = credential
        .key()
        .sign(format!("{protected}.{payload}").as_bytes())?;
    Ok(json!({
        "protected": protected,
        "signature": URL_SAFE_NO_PAD.encode(signature.as_bytes()),
    }))
}
