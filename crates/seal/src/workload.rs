//! Workload tokens: signed statements for servers outside the platform that do not use its TLS. A token is a JSON Web
//! Token (RFC 7519), signed with ES256 (RFC 7518, section 3.4), because few such servers accept Ed25519. The key is
//! therefore not that of the certificates, and neither key signs what the other may sign.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::key::{KeyError, random};
use crate::sha256;
use crate::timestamp::Timestamp;

/// The longest audience that a token may have, in bytes.
const LONGEST_AUDIENCE: usize = 1024;

/// Checks the audience of a token.
///
/// # Errors
/// The fault in the audience.
pub fn check_audience(audience: &str) -> Result<(), &'static str> {
    if audience.is_empty() {
        Err("the audience of a workload token is empty")
    } else if audience.len() > LONGEST_AUDIENCE {
        Err("the audience of a workload token is too long")
    } else if audience.chars().any(char::is_control) {
        Err("the audience of a workload token has control characters")
    } else {
        Ok(())
    }
}

/// A P-256 key that signs workload tokens. It cannot be copied, and is never written anywhere.
pub struct WorkloadKey {
    pair: EcdsaKeyPair,
    public: JsonWebKey,
}

/// The public half of a [`WorkloadKey`], as a JSON Web Key (RFC 7517).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonWebKey {
    /// The family of algorithms: `EC`.
    pub kty: String,
    /// The curve: `P-256`.
    pub crv: String,
    /// The algorithm: `ES256`.
    pub alg: String,
    /// Its use: `sig`.
    #[serde(rename = "use")]
    pub usage: String,
    /// The key's thumbprint (RFC 7638), by which tokens name it.
    pub kid: String,
    /// A coordinate of the point, in base64url.
    pub x: String,
    /// The other coordinate.
    pub y: String,
}

/// The claims of a token. All but the audience are the issuer's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadClaims<'a> {
    /// The issuer (`iss`), a URL.
    pub issuer: &'a str,
    /// The agent's URI, such as `spiffe://factory/agent/seller`: `sub`, and `client_id` as in RFC 9068.
    pub subject: &'a str,
    /// The URI of the agent that shows the token for the subject (`act`, RFC 8693, section 4.1; and `client_id`). If
    /// there is none, the subject itself shows it.
    pub actor: Option<&'a str>,
    /// The receiver of the token (`aud`).
    pub audience: &'a str,
    /// When the token is made (`iat`).
    pub issued: Timestamp,
    /// When the token expires (`exp`).
    pub expires: Timestamp,
}

impl WorkloadKey {
    /// Makes a new key.
    ///
    /// # Errors
    /// [`KeyError`] if the library makes no key.
    pub fn generate() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
            .map_err(|_| KeyError::NoRandomness)?;
        // An uncompressed point: 4, then the two coordinates.
        let point = pair.public_key().as_ref();
        let (x, y) = match point.strip_prefix(&[4]) {
            Some(point) if point.len() == 64 => point.split_at(32),
            _ => return Err(KeyError::Unusable),
        };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let thumbed = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let public = JsonWebKey {
            kty: "EC".to_owned(),
            crv: "P-256".to_owned(),
            alg: "ES256".to_owned(),
            usage: "sig".to_owned(),
            kid: URL_SAFE_NO_PAD.encode(sha256(&[thumbed.as_bytes()])),
            x,
            y,
        };
        Ok(Self { pair, public })
    }

    /// Its public half.
    pub fn public(&self) -> &JsonWebKey {
        &self.public
    }

    /// Makes a token: a JWS in its compact form (RFC 7515). Its type is `JWT`, because verifiers of SPIFFE tokens
    /// refuse any other. It has a random number of its own (`jti`).
    ///
    /// # Errors
    /// [`KeyError`] if the library does not sign.
    pub fn sign(&self, claims: &WorkloadClaims<'_>) -> Result<String, KeyError> {
        let number = URL_SAFE_NO_PAD.encode(random::<16>()?);
        let head = serde_json::json!({"alg": "ES256", "typ": "JWT", "kid": self.public.kid});
        let mut body = serde_json::json!({
            "iss": claims.issuer,
            "sub": claims.subject,
            "client_id": claims.actor.unwrap_or(claims.subject),
            "aud": claims.audience,
            "iat": claims.issued.as_unix_seconds(),
            "exp": claims.expires.as_unix_seconds(),
            "jti": number,
        });
        if let Some(actor) = claims.actor {
            body["act"] = serde_json::json!({ "sub": actor });
        }
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(head), part(body));
        let signature = (self.pair)
            .sign(&SystemRandom::new(), signed.as_bytes())
            .map_err(|_| KeyError::Unusable)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl fmt::Debug for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkloadKey({})", self.public.kid)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_token_says_what_it_was_made_for_under_the_published_key() {
        let key = WorkloadKey::generate().unwrap();
        let claims = WorkloadClaims {
            issuer: "https://tea.example",
            subject: "spiffe://factory/agent/seller",
            actor: None,
            audience: "a \"b\\\n",
            issued: Timestamp::from_unix_seconds(1000),
            expires: Timestamp::from_unix_seconds(1300),
        };
        let (one, other) = (key.sign(&claims).unwrap(), key.sign(&claims).unwrap());
        let (signed, signature) = one.rsplit_once('.').unwrap();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let (head, body) = signed.split_once('.').unwrap();
        let read = |text: &str| serde_json::from_slice::<serde_json::Value>(&decode(text)).unwrap();
        assert_eq!(read(head)["kid"], key.public().kid.as_str());
        let body = read(body);
        assert_eq!(body["sub"], claims.subject);
        assert_eq!(body["aud"], claims.audience);
        assert_eq!((&body["iat"], &body["exp"]), (&1000.into(), &1300.into()));
        let other = read(other.split('.').nth(1).unwrap());
        assert_ne!(body["jti"], other["jti"]);
        assert_eq!((&body["client_id"], body.get("act")), (&body["sub"], None));
        let actor = "spiffe://factory/agent/clerk";
        let through = WorkloadClaims {
            actor: Some(actor),
            ..claims.clone()
        };
        let through = key.sign(&through).unwrap();
        let through = read(through.split('.').nth(1).unwrap());
        assert_eq!(through["sub"], claims.subject);
        assert_eq!(
            (&through["client_id"], &through["act"]["sub"]),
            (&actor.into(), &actor.into())
        );
        let mut point = vec![4];
        point.extend(decode(&key.public().x));
        point.extend(decode(&key.public().y));
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        assert!(public.verify(signed.as_bytes(), &decode(signature)).is_ok());
        assert!(public.verify(head.as_bytes(), &decode(signature)).is_err());
        assert_ne!(key.public(), WorkloadKey::generate().unwrap().public());
    }

    #[test]
    fn a_published_key_is_a_json_web_key() {
        let key = WorkloadKey::generate().unwrap();
        let told = serde_json::to_value(key.public()).unwrap();
        let names: Vec<&str> = told
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(names.len(), 7);
        assert_eq!((&told["kty"], &told["use"]), (&"EC".into(), &"sig".into()));
        assert!(told.get("d").is_none(), "{told}");
        let read: JsonWebKey = serde_json::from_value(told).unwrap();
        assert_eq!(&read, key.public());
    }
}
