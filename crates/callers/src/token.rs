//! Access tokens (RFC 9068): JSON Web Tokens of one issuer for one resource, and the issuer's published keys (RFC 7517).
//! Free of I/O, but for the clock.
//!
//! Nothing that a token says about its own check is believed. The key decides which algorithms count, and only keys of the
//! published set count.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// Longest token that is looked at, in bytes.
pub(crate) const LONGEST_TOKEN: usize = 8 << 10;
/// Most published keys of an issuer.
const KEYS: usize = 64;
/// How far the issuer's clock may be from ours, in seconds.
const LEEWAY: u64 = 30;

/// The rights that a token grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRights {
    /// The caller, by the issuer's word (`sub`).
    pub subject: String,
    /// The caller's rights (`scope`).
    pub scopes: Vec<String>,
    /// From when the token is refused, in seconds since 1970: its end (`exp`), and the distance that clocks may have.
    pub expires: u64,
}

/// Why a token grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// A resource server takes no tokens of this kind.
    #[error("it is not an access token: {0}")]
    NoToken(&'static str),
    /// Its key is not published, or not yet known here.
    #[error("it names a key that its issuer has not published")]
    UnknownKey,
    /// The signature, a date or a name is wrong.
    #[error("it does not count: {0}")]
    Refused(String),
    /// It is good for whoever holds a certificate or a key, and this caller does not prove that.
    #[error("it is bound to a certificate that the caller does not show")]
    Unbound,
}

/// A text is no set of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// It is no JSON of this form.
    #[error("it is no JSON Web Key Set: {0}")]
    Json(#[from] serde_json::Error),
    /// No key is of use.
    #[error("none of its {0} keys verifies signatures of access tokens")]
    NoKey(usize),
    /// There are too many.
    #[error("it has more than {KEYS} keys")]
    TooMany,
}

/// The published keys of an issuer.
pub struct KeySet {
    keys: Vec<Key>,
}

struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Why a signature is not that of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It names another key.
    #[error("it names a key that is not known here")]
    UnknownKey,
    /// The key decides how it signs.
    #[error("its algorithm is not that of the key")]
    Algorithm,
    /// The key did not sign this.
    #[error("it is not the key's signature of this text")]
    Wrong,
}

/// The claims that a token must make.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// The issuer (`iss`).
    pub issuer: &'a str,
    /// Its audience (`aud`).
    pub resource: &'a str,
    /// The SHA-256 hash, in base64url, of the certificate that the caller has proved to hold (RFC 8705).
    pub certificate: Option<&'a str>,
}

#[derive(Deserialize)]
struct Claims {
    // One text: the library would take a list of issuers, too.
    #[serde(rename = "iss")]
    _issuer: String,
    sub: String,
    exp: Number,
    scope: Option<String>,
    cnf: Option<Value>,
}

impl KeySet {
    /// Reads a JSON Web Key Set. Keys of no use are left out: symmetric ones, those for encryption, those of other curves.
    ///
    /// # Errors
    /// [`KeySetError`].
    pub fn read(text: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Box<RawValue>>,
        }
        let Set { keys } = serde_json::from_slice(text)?;
        if keys.len() > KEYS {
            return Err(KeySetError::TooMany);
        }
        let usable: Vec<Key> = keys.iter().filter_map(|key| Key::read(key)).collect();
        if usable.is_empty() {
            return Err(KeySetError::NoKey(keys.len()));
        }
        Ok(Self { keys: usable })
    }

    /// The key that a head names (`kid`). Without a name, it is the only one.
    fn named(&self, id: Option<&str>) -> Option<&Key> {
        let mut found = self.keys.iter().filter(|key| match id {
            Some(id) => key.id.as_deref() == Some(id),
            None => self.keys.len() == 1,
        });
        found.next()
    }

    /// Checks a signature (RFC 7515) over a text: its head and its payload, in base64url with a dot between them. `algorithm` and
    /// `key` are what the head says (`alg`, `kid`).
    ///
    /// # Errors
    /// [`SignatureError`].
    pub fn verify(
        &self,
        algorithm: &str,
        key: Option<&str>,
        text: &str,
        signature: &str,
    ) -> Result<(), SignatureError> {
        let key = self.named(key).ok_or(SignatureError::UnknownKey)?;
        let algorithm = algorithm.parse().ok();
        let algorithm = algorithm.filter(|it| key.algorithms.contains(it));
        let algorithm = algorithm.ok_or(SignatureError::Algorithm)?;
        let checked = jsonwebtoken::crypto::verify(signature, text.as_bytes(), &key.key, algorithm);
        match checked {
            Ok(true) => Ok(()),
            _ => Err(SignatureError::Wrong),
        }
    }

    /// Checks a token.
    ///
    /// # Errors
    /// [`NotGranted`]. With [`NotGranted::UnknownKey`] a newer set may know better.
    pub fn check(&self, token: &str, expected: &Expected<'_>) -> Result<TokenRights, NotGranted> {
        if token.len() > LONGEST_TOKEN {
            return Err(NotGranted::NoToken("it is too long"));
        }
        let header =
            decode_header(token).map_err(|_| NotGranted::NoToken("its head cannot be read"))?;
        let kind = header.typ.as_deref().unwrap_or("JWT");
        let kind = kind.to_ascii_lowercase();
        if !["jwt", "at+jwt", "application/at+jwt"].contains(&kind.as_str()) {
            return Err(NotGranted::NoToken("its type is another"));
        }
        if header.crit.is_some() {
            return Err(NotGranted::NoToken(
                "it demands what nobody here knows (crit)",
            ));
        }
        let key = self.named(header.kid.as_deref());
        let key = key.ok_or(NotGranted::UnknownKey)?;
        let mut validation = Validation::new(Algorithm::RS256);
        validation.algorithms.clone_from(&key.algorithms);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[expected.issuer]);
        validation.set_audience(&[expected.resource]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let checked = decode::<Claims>(token, &key.key, &validation);
        let claims = checked.map_err(|error| refused(error.kind()))?.claims;
        if let Some(bound) = claims.cnf {
            let holder = bound.get("x5t#S256").and_then(Value::as_str);
            let is_only = bound.as_object().is_some_and(|bound| bound.len() == 1);
            if !is_only || holder.is_none() || holder != expected.certificate {
                return Err(NotGranted::Unbound);
            }
        }
        let scopes = claims.scope.unwrap_or_default();
        // Dates of this form may have fractions, which the check rounds. It takes the token for the whole of the last second.
        let rounded = || claims.exp.as_f64().unwrap_or_default().round() as u64;
        let end = claims.exp.as_u64().unwrap_or_else(rounded);
        Ok(TokenRights {
            subject: claims.sub,
            scopes: scopes.split_ascii_whitespace().map(str::to_owned).collect(),
            expires: end.saturating_add(LEEWAY + 1),
        })
    }
}

fn refused(kind: &ErrorKind) -> NotGranted {
    NotGranted::Refused(
        match kind {
            ErrorKind::ExpiredSignature => "it has expired",
            ErrorKind::ImmatureSignature => "its time has not come",
            ErrorKind::InvalidAudience => "it is for another resource (aud)",
            ErrorKind::InvalidIssuer => "it is of another issuer (iss)",
            ErrorKind::InvalidSignature => "its signature is not the issuer's",
            ErrorKind::InvalidAlgorithm => "its algorithm is not that of the key",
            ErrorKind::MissingRequiredClaim(name) => {
                return NotGranted::Refused(format!("it does not say {name}"));
            }
            _ => "it cannot be read",
        }
        .to_owned(),
    )
}

impl Key {
    fn read(text: &RawValue) -> Option<Self> {
        let jwk: Jwk = serde_json::from_str(text.get()).ok()?;
        let usual = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => vec![
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                vec![Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
                vec![Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // A published symmetric key is no secret.
            _ => return None,
        };
        let is_for = &jwk.common.public_key_use;
        if !matches!(is_for, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let algorithms: Vec<Algorithm> = match &jwk.common.key_algorithm {
            Some(only) => {
                let only = only.to_string().parse().ok()?;
                usual.into_iter().filter(|it| *it == only).collect()
            }
            None => usual,
        };
        Some(Self {
            key: DecodingKey::from_jwk(&jwk).ok()?,
            id: jwk.common.key_id,
            algorithms,
        })
        .filter(|key| !key.algorithms.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const EXPECTED: Expected<'static> = Expected {
        issuer: "https://login.example",
        resource: "https://tea.example/mcp",
        certificate: None,
    };

    fn now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap().as_secs()
    }

    fn claims() -> Value {
        json!({
            "iss": "https://login.example", "aud": "https://tea.example/mcp", "sub": "client-1",
            "exp": now() + 600, "scope": "read buy",
        })
    }

    /// An issuer with one key.
    struct Login {
        secret: EncodingKey,
        public: Vec<u8>,
        keys: KeySet,
    }

    fn login() -> Login {
        let pair = Ed25519KeyPair::generate().unwrap();
        let public = pair.public_key().as_ref().to_vec();
        let x = URL_SAFE_NO_PAD.encode(&public);
        let set = json!({"keys": [
            {"kty": "oct", "kid": "open", "k": "c2VjcmV0"},
            {"kty": "nonsense"},
            {"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x},
        ]});
        Login {
            secret: EncodingKey::from_ed_der(pair.to_pkcs8().unwrap().as_ref()),
            public,
            keys: KeySet::read(set.to_string().as_bytes()).unwrap(),
        }
    }

    fn head(change: impl FnOnce(&mut Header)) -> Header {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some("1".to_owned());
        change(&mut header);
        header
    }

    #[test]
    fn a_token_speaks_for_its_subject_with_its_scopes() {
        let login = login();
        let check = |header: &Header, claims: &Value| {
            let token = encode(header, claims, &login.secret).unwrap();
            login.keys.check(&token, &EXPECTED)
        };
        let granted = check(&head(|it| it.typ = Some("at+jwt".into())), &claims()).unwrap();
        assert_eq!(granted.subject, "client-1");
        assert_eq!(granted.scopes, ["read", "buy"]);
        assert!(granted.expires >= now() + 500);
        let mut several = claims();
        several["aud"] = json!(["https://other.example", "https://tea.example/mcp"]);
        several["exp"] = json!(now() as f64 + 60.5);
        several.as_object_mut().unwrap().remove("scope");
        let granted = check(&head(|it| it.kid = None), &several).unwrap();
        assert!(granted.scopes.is_empty() && granted.expires >= now());
        // A right lasts as long as its token is accepted.
        let mut late = claims();
        late["exp"] = json!(now() - LEEWAY / 2);
        assert!(check(&head(|_| ()), &late).unwrap().expires > now());
    }

    #[test]
    fn tokens_of_others_grant_nothing() {
        let (login, other) = (login(), login());
        let wrong = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            let token = encode(&head(|_| ()), &claims, &login.secret).unwrap();
            login.keys.check(&token, &EXPECTED).unwrap_err()
        };
        for (name, value) in [
            ("aud", json!("https://tea.example")),
            ("aud", json!(["https://other.example"])),
            ("aud", json!([])),
            ("aud", Value::Null),
            ("iss", json!("https://login.example/")),
            (
                "iss",
                json!(["https://login.example", "https://evil.example"]),
            ),
            ("iss", Value::Null),
            ("sub", Value::Null),
            ("sub", json!(7)),
            ("exp", json!(now() - 60)),
            ("exp", json!("tomorrow")),
            ("exp", json!(-1)),
            ("exp", Value::Null),
            ("nbf", json!(now() + 600)),
        ] {
            let error = wrong(name, value.clone());
            assert!(
                matches!(error, NotGranted::Refused(_)),
                "{name} {value}: {error}"
            );
        }
        for cnf in [
            json!({"x5t#S256": "abc"}),
            json!({"jkt": "abc"}),
            json!({}),
            json!("x"),
        ] {
            assert_eq!(wrong("cnf", cnf), NotGranted::Unbound);
        }
        // Heads that choose their own check.
        let check = |token: &str| login.keys.check(token, &EXPECTED).unwrap_err();
        let signed = |header: &Header| encode(header, &claims(), &login.secret).unwrap();
        assert_eq!(
            check(&signed(&head(|it| it.kid = Some("2".into())))),
            NotGranted::UnknownKey
        );
        assert_eq!(
            check(&signed(&head(|it| it.kid = Some("open".into())))),
            NotGranted::UnknownKey
        );
        for header in [
            head(|it| it.typ = Some("dpop+jwt".into())),
            head(|it| it.crit = Some(vec!["b64".into()])),
        ] {
            assert!(matches!(check(&signed(&header)), NotGranted::NoToken(_)));
        }
        let foreign = encode(&head(|_| ()), &claims(), &other.secret).unwrap();
        assert!(matches!(check(&foreign), NotGranted::Refused(_)));
        let symmetric = head(|it| it.alg = Algorithm::HS256);
        let symmetric = encode(
            &symmetric,
            &claims(),
            &EncodingKey::from_secret(&login.public),
        );
        assert!(matches!(check(&symmetric.unwrap()), NotGranted::Refused(_)));
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        for alg in ["none", "None", "NONE", "EdDSA"] {
            let header = part(json!({"alg": alg, "kid": "1", "typ": "JWT"}));
            let bare = format!("{header}.{}.", part(claims()));
            assert!(login.keys.check(&bare, &EXPECTED).is_err(), "{alg}");
        }
        let good = signed(&head(|_| ()));
        let (body, signature) = good.rsplit_once('.').unwrap();
        let mut claims = claims();
        claims["sub"] = json!("admin");
        let (header, _) = body.split_once('.').unwrap();
        let forged = format!("{header}.{}.{signature}", part(claims));
        assert!(matches!(check(&forged), NotGranted::Refused(_)));
        let long = format!("{header}.{}.{signature}", "e".repeat(LONGEST_TOKEN));
        assert!(matches!(check(&long), NotGranted::NoToken(_)));
    }

    #[test]
    fn a_bound_token_is_good_for_the_holder_of_the_certificate() {
        let login = login();
        let mut claims = claims();
        claims["cnf"] = json!({"x5t#S256": "holder"});
        let token = encode(&head(|_| ()), &claims, &login.secret).unwrap();
        let check = |certificate| {
            let expected = Expected {
                certificate,
                ..EXPECTED
            };
            login.keys.check(&token, &expected)
        };
        assert!(check(Some("holder")).is_ok());
        assert_eq!(check(Some("thief")), Err(NotGranted::Unbound));
        assert_eq!(check(None), Err(NotGranted::Unbound));
    }

    /// The signatures of RFC 7515, appendices A.2 and A.3, are good; the tokens have other claims than ours.
    #[test]
    fn signatures_of_the_standard_are_understood() {
        let set = br#"{"keys": [
            {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig",
             "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
        let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
        let keys = KeySet::read(set).unwrap();
        let good = keys.check(token, &EXPECTED).unwrap_err().to_string();
        assert!(!good.contains("signature"), "{good}");
        let changed = token.replace("DtEhU3", "DtEhU4");
        let bad = keys.check(&changed, &EXPECTED).unwrap_err().to_string();
        assert!(bad.contains("signature"), "{bad}");
        assert!(KeySet::read(br#"{"keys": []}"#).is_err());
        assert!(KeySet::read(br#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#).is_err());
        let many = vec!["{}"; KEYS + 1].join(",");
        let many = KeySet::read(format!(r#"{{"keys": [{many}]}}"#).as_bytes());
        assert!(matches!(many, Err(KeySetError::TooMany)));
    }

    proptest! {
        #[test]
        fn no_text_grants_anything(head: String, claims: String, rest in "[-_a-zA-Z0-9.]{0,200}") {
            let login = login();
            let (head, claims) = (URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
            for token in [format!("{head}.{claims}.{rest}"), format!("{head}.{rest}"), rest] {
                prop_assert!(login.keys.check(&token, &EXPECTED).is_err());
            }
        }
    }
}
