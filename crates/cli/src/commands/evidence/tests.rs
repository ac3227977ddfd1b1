//! Records of authors and pages of nodes that lie.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealbus_control::evidence::{EvidencePage, EvidencePosition};
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

#[tokio::test]
async fn a_node_that_always_has_a_further_page_is_named_and_asked_no_more() {
    let trust = TestPlatform::new().trust();
    // One node gives the same page again and again, one goes on for ever, and one answers for another one that was not asked.
    for (step, name, most) in [(0_u64, "liar", 2), (1, "liar", MOST_PAGES), (1, "other", 2)] {
        let mut asked = 0_u32;
        let pages = async |_: EvidenceQuestion| {
            asked += 1;
            let page = EvidencePage {
                node: if asked > 1 { name } else { "liar" }.to_owned(),
                next: Some(EvidencePosition {
                    stream: "record".to_owned(),
                    number: u64::from(asked) * step,
                }),
                ..EvidencePage::default()
            };
            Ok::<_, CliError>(EvidencePages {
                pages: vec![page],
                silent: Vec::new(),
                deny_list: Blob(Vec::new()),
            })
        };
        let mut question = EvidenceQuestion::default();
        let mut head = EvidenceHead::default();
        let gathered = gather(pages, &mut question, &trust, &mut head).await;
        assert!(gathered.unwrap().0.is_empty());
        assert_eq!(asked, most);
        // The gaps name each node that has not given everything, also one that the Master asks no more.
        let named: BTreeSet<&str> = ["liar", name].into();
        assert_eq!(head.gaps.len(), named.len(), "{:?}", head.gaps);
        for name in named {
            assert!(head.gaps.iter().any(|gap| gap.contains(name)), "{name}");
        }
    }
}
