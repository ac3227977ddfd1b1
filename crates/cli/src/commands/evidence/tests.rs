//! Records of authors that lie.

use std::sync::Arc;

use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_proof::{BatchKey, Signer};

use super::*;
use crate::commands::issuance_log::tests::TestPlatform;

#[test]
fn an_author_that_gives_a_number_twice_prevents_no_file() {
    let platform = TestPlatform::new();
    let (credential, _) = platform.agent("mallory");
    let credential = Arc::new(credential);
    let key = BatchKey::new(platform.name.clone(), SecurityLevel::Signed);
    let key = Arc::new(key);
    let trust = platform.trust();
    let said = |content: &str| {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(Aid::new("mallory@factory").unwrap())
            .with_content(content);
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        // Each signer begins with the number 0.
        let signer = Signer::new(credential.clone(), key.clone()).unwrap();
        let statement = Statement::direct("sink@factory", &bytes);
        let evidence = signer.sign_one(statement, now()).unwrap();
        let message = ProvedMessage {
            channel: None,
            qos: String::new(),
            receivers: vec!["sink@factory".to_owned()],
            message: Blob(bytes),
            evidence: Blob(evidence),
        };
        checked(message, &trust).unwrap()
    };
    let mut found = Found::default();
    found.add(said("one")).unwrap();
    // It comes again from another node.
    found.add(said("one")).unwrap();
    let further = found.add(said("two")).unwrap_err();
    assert!(further.contains("with the number 0"), "{further}");
    assert_eq!(found.messages.len(), 1);
}
