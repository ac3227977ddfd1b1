use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use proptest::prelude::*;
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    Credential, IssuingAuthority, KeyPair, PlatformName, RootAuthority, SigningRequest, Validity,
};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn card() -> Value {
    json!({
        "name": "Wetter", "description": "Sagt Wetter vor – überall.", "version": "1", "provider": {"organization": "", "url": "https://a.example"},
        "capabilities": {"streaming": true, "extensions": [{"uri": "urn:x", "params": {"most": 4.50, "least": 1e-7}}]},
        "skills": [{"id": "rain", "name": "Rain", "tags": [], "description": "Says whether it rains."}],
    })
}

struct Key(Ed25519KeyPair);

impl Key {
    fn new() -> Self {
        Self(Ed25519KeyPair::generate().unwrap())
    }

    fn public(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref())
    }

    fn published(&self, id: &str) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": self.public()})
    }

    fn sign(&self, card: &Value, head: &Value) -> Value {
        jws(card, head, |text| self.0.sign(text).as_ref().to_vec())
    }
}

fn jws(card: &Value, head: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Value {
    let protected = URL_SAFE_NO_PAD.encode(head.to_string());
    let text = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(canonical(card)));
    let signature = URL_SAFE_NO_PAD.encode(sign(text.as_bytes()));
    json!({"protected": protected, "signature": signature})
}

fn head() -> Value {
    json!({"alg": "EdDSA", "kid": "1", "typ": "JOSE"})
}

fn with(mut card: Value, signatures: Value) -> Value {
    card["signatures"] = signatures;
    card
}

fn signers(keys: &[&Value]) -> Signers {
    Signers::keys(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

#[test]
fn a_card_is_that_of_the_key_that_signed_it() {
    let (key, other) = (Key::new(), Key::new());
    let known = signers(&[&other.published("2"), &key.published("1")]);
    let signed = with(card(), json!([key.sign(&card(), &head())]));
    let found = known.verify(&signed, now()).unwrap();
    assert_eq!(found.card, card());
    assert_eq!(found.signer, "the key 1");
    // One of several signatures is enough, as while a key is renewed.
    let several = with(
        card(),
        json!([
            other.sign(&card(), &json!({"alg": "EdDSA", "kid": "3"})),
            {"protected": "?", "signature": ""},
            key.sign(&card(), &head()),
        ]),
    );
    assert!(known.verify(&several, now()).is_ok());
    // A key by itself, and a signature that names none.
    let only = Signers::keys(key.published("1").to_string().as_bytes()).unwrap();
    let unnamed = with(card(), json!([key.sign(&card(), &json!({"alg": "EdDSA"}))]));
    assert_eq!(only.verify(&unnamed, now()).unwrap().signer, "the only key");
    assert_eq!(
        known.verify(&unnamed, now()),
        Err(SignatureError::UnknownKey.into())
    );
}

#[test]
fn what_a_signer_left_out_does_not_count() {
    let key = Key::new();
    let rest = without_empty(&card()).unwrap();
    let signed = with(card(), json!([key.sign(&rest, &head())]));
    let known = signers(&[&key.published("1")]);
    assert_eq!(known.verify(&signed, now()).unwrap().card, rest);
    // So nothing is gained by what is added to a card.
    let mut added = signed;
    added["documentationUrl"] = "".into();
    added["securitySchemes"] = json!({"none": {"mtlsSecurityScheme": {}}});
    assert_eq!(known.verify(&added, now()).unwrap().card, rest);
}

#[test]
fn a_changed_card_is_refused() {
    let key = Key::new();
    let known = signers(&[&key.published("1")]);
    let signature = key.sign(&card(), &head());
    for (place, value) in [
        ("/name", json!("Wetter ")),
        ("/capabilities/streaming", json!(false)),
        ("/capabilities/extensions/0/params/most", json!(5)),
        ("/skills/0/id", json!("snow")),
        ("/skills", json!([])),
        ("/version", json!(1)),
    ] {
        let mut changed = with(card(), json!([signature]));
        *changed.pointer_mut(place).unwrap() = value;
        let found = known.verify(&changed, now());
        assert_eq!(found, Err(SignatureError::Wrong.into()), "{place}");
    }
    let mut longer = with(card(), json!([signature]));
    longer["url"] = "https://evil.example".into();
    assert!(known.verify(&longer, now()).is_err());
}

#[test]
fn a_signature_does_not_choose_its_own_check() {
    let key = Key::new();
    let known = signers(&[&key.published("1")]);
    let refused = |signature: Value| {
        let signed = with(card(), json!([signature]));
        known.verify(&signed, now()).unwrap_err()
    };
    for alg in [
        "none", "None", "NONE", "", "HS256", "ES256", "RS256", "PS512", "EdDSA2",
    ] {
        let head = json!({"alg": alg, "kid": "1"});
        assert_eq!(
            refused(key.sign(&card(), &head)),
            SignatureError::Algorithm.into()
        );
        let unsigned = jws(&card(), &head, |_| Vec::new());
        assert_eq!(refused(unsigned), SignatureError::Algorithm.into());
    }
    // The public key as a secret.
    let secret = hmac::Key::new(hmac::HMAC_SHA256, key.0.public_key().as_ref());
    let confused = jws(&card(), &json!({"alg": "HS256", "kid": "1"}), |text| {
        hmac::sign(&secret, text).as_ref().to_vec()
    });
    assert_eq!(refused(confused), SignatureError::Algorithm.into());
    // A symmetric key of the set is none.
    let symmetric = json!({"keys": [{"kty": "oct", "kid": "1", "k": "c2VjcmV0"}]});
    assert!(Signers::keys(symmetric.to_string().as_bytes()).is_err());
    // Another key under the name of this one, and keys that the signature itself brings.
    let stranger = Key::new();
    assert_eq!(
        refused(stranger.sign(&card(), &head())),
        SignatureError::Wrong.into()
    );
    let brought = json!({"alg": "EdDSA", "jwk": stranger.published("1"), "x5c": [], "kid": "1"});
    assert_eq!(
        refused(stranger.sign(&card(), &brought)),
        SignatureError::Wrong.into()
    );
    let empty = jws(&card(), &head(), |_| Vec::new());
    assert_eq!(refused(empty), SignatureError::Wrong.into());
    for head in [
        json!({"alg": "EdDSA", "kid": "1", "crit": ["b64"], "b64": false}),
        json!({"kid": "1"}),
        json!({"alg": ["EdDSA"], "kid": "1"}),
        json!([]),
    ] {
        let signature = key.sign(&card(), &head);
        assert!(
            matches!(refused(signature), CardSignatureError::Unreadable(_)),
            "{head}"
        );
    }
    for signature in [
        json!({}),
        json!("x"),
        json!({"protected": 1, "signature": ""}),
    ] {
        assert!(matches!(
            refused(signature),
            CardSignatureError::Unreadable(_)
        ));
    }
    let long = json!({"protected": "e".repeat(LONGEST_HEAD + 1), "signature": ""});
    assert!(matches!(refused(long), CardSignatureError::Unreadable(_)));
}

#[test]
fn a_card_without_signatures_or_with_many_is_refused() {
    let key = Key::new();
    let known = signers(&[&key.published("1")]);
    for none in [
        card(),
        with(card(), json!([])),
        with(card(), json!("x")),
        json!([]),
        json!(7),
    ] {
        assert_eq!(
            known.verify(&none, now()),
            Err(CardSignatureError::Unsigned)
        );
    }
    let many = vec![key.sign(&card(), &head()); MOST_SIGNATURES + 1];
    let many = with(card(), many.into());
    assert_eq!(known.verify(&many, now()), Err(CardSignatureError::TooMany));
}

#[test]
fn keys_are_published_where_the_card_is() {
    let from = "https://agents.example/.well-known/agent-card.json"
        .parse()
        .unwrap();
    let key = Key::new();
    let found = |jku: &str| {
        let head = json!({"alg": "EdDSA", "jku": jku});
        published_at(&with(card(), json!([key.sign(&card(), &head)])), &from)
    };
    let near = "https://AGENTS.example:443/keys";
    assert_eq!(
        found(near).map(|it| it.path().to_owned()),
        Some("/keys".to_owned())
    );
    for far in [
        "http://agents.example/keys",
        "https://agents.example:8443/keys",
        "https://agents.example.evil.example/keys",
        "https://user@agents.example/keys",
        "https://evil.example/keys",
        "/keys",
        "file:///etc/passwd",
        "",
    ] {
        assert_eq!(found(far), None, "{far}");
    }
    assert_eq!(published_at(&card(), &from), None);
}

/// A platform with an authority, and a credential of one of its agents.
struct Platform {
    root: RootAuthority,
    issuing: IssuingAuthority,
}

impl Platform {
    fn new(name: &str) -> Self {
        let name = PlatformName::new(name).unwrap();
        let root = RootAuthority::create(&name, Validity::starting(now(), DAY)).unwrap();
        let issuing = root.create_authority("ca-1", Validity::starting(now(), DAY));
        let issuing = issuing.unwrap();
        Self { root, issuing }
    }

    fn agent(&self, name: &str) -> Credential {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let identity = Identity::from_agent_name(name).unwrap();
        let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let validity = Validity::starting(now(), DAY);
        let issued = self.issuing.issue(&grant, &request, validity).unwrap();
        Credential::new(key, issued.chain).unwrap()
    }

    fn signers(&self) -> Signers {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.pem");
        let pem = sealbus_seal::certificate_pem(self.root.certificate());
        std::fs::write(&file, pem).unwrap();
        Signers::read(&file).unwrap()
    }
}

fn signed_by(credential: &Credential, alg: &str) -> Value {
    let chain = credential.chain().to_certificates();
    let chain: Vec<String> = chain.iter().map(|it| STANDARD.encode(it)).collect();
    let signature = jws(&card(), &json!({"alg": alg, "x5c": chain}), |text| {
        credential.key().sign(text).unwrap().as_bytes().to_vec()
    });
    with(card(), json!([signature]))
}

#[test]
fn the_gateway_of_a_platform_signs_by_its_certificate() {
    let (factory, other) = (Platform::new("factory"), Platform::new("factory"));
    let known = factory.signers();
    let signed = signed_by(&factory.agent("a2a@factory"), "EdDSA");
    assert_eq!(known.verify(&signed, now()).unwrap().signer, "a2a@factory");
    // Another agent of the platform, another platform of the same name, a time that has passed.
    let agent = known.verify(
        &signed_by(&factory.agent("mallory@factory"), "EdDSA"),
        now(),
    );
    assert!(agent.unwrap_err().to_string().contains("mallory"));
    let stranger = signed_by(&other.agent("a2a@factory"), "EdDSA");
    assert!(matches!(
        known.verify(&stranger, now()),
        Err(CardSignatureError::Certificate(_))
    ));
    let later = now().plus(DAY * 2);
    assert!(matches!(
        known.verify(&signed, later),
        Err(CardSignatureError::Certificate(_))
    ));
    let other = signed_by(&factory.agent("a2a@factory"), "none");
    assert_eq!(
        known.verify(&other, now()),
        Err(SignatureError::Algorithm.into())
    );
    // The certificate of the gateway, and the signature of somebody else.
    let mut stolen = signed.clone();
    stolen["name"] = "Other".into();
    assert_eq!(
        known.verify(&stolen, now()),
        Err(SignatureError::Wrong.into())
    );
    let bare = with(card(), json!([Key::new().sign(&card(), &head())]));
    assert!(known.verify(&bare, now()).is_err());
}

#[test]
fn a_file_of_something_else_is_no_signer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signer");
    assert!(Signers::read(&file).is_err());
    for text in [
        "",
        "{}",
        "{\"keys\": []}",
        "-----BEGIN PUBLIC KEY-----\n",
        &"{".repeat(LONGEST_KEYS + 1),
    ] {
        std::fs::write(&file, text).unwrap();
        assert!(
            Signers::read(&file).is_err(),
            "{}",
            &text[..text.len().min(20)]
        );
    }
}

proptest! {
    #[test]
    fn no_text_is_a_signature(protected in "\\PC{0,40}", signature in "[-_a-zA-Z0-9]{0,90}", alg in "[A-Za-z0-9]{0,6}") {
        let known = signers(&[&Key::new().published("1")]);
        let encoded = URL_SAFE_NO_PAD.encode(json!({"alg": alg, "kid": "1"}).to_string());
        for protected in [&protected, &encoded] {
            let signed = with(card(), json!([{"protected": protected, "signature": signature}]));
            prop_assert!(known.verify(&signed, now()).is_err());
        }
    }
}
