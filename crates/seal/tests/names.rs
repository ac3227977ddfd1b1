//! Names and identities: one spelling each, and good errors for all others.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sealbus_seal::{Identity, IdentityError, Name, PlatformName, ProcessId};

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9][a-zA-Z0-9._-]{0,40}"
}

fn identity() -> impl Strategy<Value = Identity> {
    let platform = "[a-z0-9][a-z0-9._-]{0,20}".prop_map(|name| PlatformName::new(&name).unwrap());
    (platform, name(), any::<[u8; 16]>(), 0..4).prop_map(|(platform, name, process, kind)| {
        match kind {
            0 => Identity::agent(&platform, &name),
            1 => Identity::node(&platform, &name),
            2 => Identity::process(&platform, &name, ProcessId::from_bytes(process)),
            _ => Identity::authority(&platform, &name),
        }
        .unwrap()
    })
}

proptest! {
    #[test]
    fn identities_round_trip(identity in identity()) {
        let uri = identity.to_string();
        prop_assert_eq!(&uri.parse::<Identity>().unwrap(), &identity);
        let json = serde_json::to_string(&identity).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Identity>(&json).unwrap(), &identity);
        if let Some(agent) = identity.agent_name() {
            prop_assert_eq!(&Identity::from_agent_name(&agent).unwrap(), &identity);
            prop_assert!(identity.is_agent_named(&agent));
        }
    }

    #[test]
    fn different_identities_have_different_uris(one in identity(), two in identity()) {
        prop_assert_eq!(one == two, one.to_string() == two.to_string());
    }

    /// Every accepted text is the only spelling of its meaning.
    #[test]
    fn no_second_spelling(text in "(spiffe|SPIFFE|https)://[a-cA-C./%@-]{0,6}/(agent|node|authority|Agent)/[a-c./%@ -]{0,6}(/process/[0-9a-fA-F]{32})?/?") {
        if let Ok(identity) = text.parse::<Identity>() {
            prop_assert_eq!(identity.to_string(), text);
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,300}") {
        let _ = text.parse::<Identity>();
        let _ = Identity::from_agent_name(&text);
        let _ = text.parse::<ProcessId>();
        if let Ok(name) = Name::new("agent", &text) {
            prop_assert_eq!(name.as_str(), text);
        }
    }
}

#[test]
fn uris_are_as_documented() {
    let platform = PlatformName::new("factory").unwrap();
    let process = ProcessId::from_bytes([0xab; 16]);
    for (identity, uri) in [
        (
            Identity::agent(&platform, "seller-3"),
            "spiffe://factory/agent/seller-3",
        ),
        (
            Identity::node(&platform, "node-1"),
            "spiffe://factory/node/node-1",
        ),
        (
            Identity::process(&platform, "node-1", process),
            "spiffe://factory/node/node-1/process/abababababababababababababababab",
        ),
        (
            Identity::authority(&platform, "ca-1"),
            "spiffe://factory/authority/ca-1",
        ),
    ] {
        assert_eq!(identity.unwrap().to_string(), uri);
    }
}

#[test]
fn illegal_names_are_explained() {
    let agent = |name: &str| Name::new("agent", name).unwrap_err().to_string();
    assert_eq!(agent(""), "the agent name is empty");
    assert_eq!(
        agent("sel ler"),
        "the agent name \"sel ler\" holds ' ' at position 4: use letters, digits, '-', '_' and '.'"
    );
    assert_eq!(
        agent("-x"),
        "the agent name \"-x\" holds '-' at position 1: start with a letter or a digit"
    );
    assert!(agent("a@b").contains("'@' at position 2"));
    assert!(agent("käse").contains("'ä' at position 2"));
    assert!(agent("..").contains("position 1"));
    assert!(matches!(
        Name::new("agent", &"x".repeat(129)),
        Err(IdentityError::TooLong { length: 129, .. })
    ));
    assert!(Name::new("agent", &"x".repeat(128)).is_ok());
    assert_eq!(
        PlatformName::new("Factory").unwrap_err().to_string(),
        "the platform name \"Factory\" holds 'F' at position 1: use lower-case letters, digits, '-', '_' and '.'"
    );
    let error = Identity::from_agent_name("seller").unwrap_err().to_string();
    assert!(error.contains("name@platform"), "{error}");
}

#[test]
fn foreign_uris_are_refused() {
    for uri in [
        "",
        "spiffe://",
        "spiffe://factory",
        "spiffe://factory/",
        "spiffe://factory/agent",
        "spiffe://factory/agent/",
        "spiffe://factory/agent/a/",
        "spiffe://factory/agent/a/b",
        "spiffe://factory//agent/a",
        "spiffe://Factory/agent/a",
        "SPIFFE://factory/agent/a",
        "spiffe://factory/agent/%61",
        "spiffe://user@factory/agent/a",
        "spiffe://factory:1/agent/a",
        "spiffe://factory/agent/a?x",
        "spiffe://factory/robot/a",
        "spiffe://factory/node/n/process/abc",
        "spiffe://factory/node/n/process/ABABABABABABABABABABABABABABABAB",
        "spiffe://factory/node/n/process/abababababababababababababababab/x",
        "spiffe://factory/node/n/process",
    ] {
        assert!(uri.parse::<Identity>().is_err(), "{uri}");
    }
}

#[test]
fn an_agent_is_known_by_its_full_name_only() {
    let identity = Identity::from_agent_name("a@factory").unwrap();
    for name in [
        "a",
        "a@",
        "@factory",
        "a@factory2",
        "a@xfactory",
        "b@factory",
        "a@@factory",
        "",
    ] {
        assert!(!identity.is_agent_named(name), "{name}");
    }
    let node: Identity = "spiffe://factory/node/a".parse().unwrap();
    assert!(!node.is_agent_named("a@factory"));
    assert_eq!(node.agent_name(), None);
}
