//! A [`Checker`] that remembers a beginning accepts, refuses and finds exactly the same as a reader without memory.

#![allow(clippy::unwrap_used)]

mod arbitrary;

use arbitrary::wild_message;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use sealbus_fipa::bitefficient::{Checker, EncodedMessage, Likeness, encode};
use sealbus_fipa::{AclMessage, Aid, Limits, Performative};

/// The result of a reader without memory for the same bytes.
fn expected(bytes: &[u8], limits: &Limits) -> Result<(AclMessage, usize), String> {
    let message = EncodedMessage::new(bytes, limits).map_err(|error| error.to_string())?;
    Ok((message.message().to_owned(), message.length()))
}

fn sender(message: &AclMessage) -> Option<&Aid> {
    message.sender.as_ref()
}

/// Checks messages in a row, and compares each result with that of a reader without memory. Returns how often the
/// checker knew the sender, and how often all but the content.
fn check_all(limits: Limits, messages: &[Vec<u8>]) -> (usize, usize) {
    let mut checker = Checker::new(limits);
    let mut last: Option<AclMessage> = None;
    let mut known = (0, 0);
    for bytes in messages {
        let checked = checker.check(bytes.as_slice());
        let found = checked.map(|(message, likeness)| {
            let owned = message.message().to_owned();
            if likeness >= Likeness::Sender {
                known.0 += 1;
                assert_eq!(last.as_ref().and_then(sender), sender(&owned));
            }
            if likeness == Likeness::AllButContent {
                known.1 += 1;
                let same_content = last.take().map(|last| AclMessage {
                    content: owned.content.clone(),
                    ..last
                });
                assert_eq!(same_content.as_ref(), Some(&owned));
            }
            last = Some(owned.clone());
            (owned, message.length())
        });
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expected(bytes, &limits),
            "{}",
            bytes.escape_ascii()
        );
    }
    known
}

fn encoded(message: &AclMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).unwrap();
    bytes
}

fn from(sender: &str) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(sender).unwrap())
        .with_receiver(Aid::new("bob@factory").unwrap())
}

#[test]
fn a_row_of_one_sender_is_known_until_another_writes() {
    let row = [
        encoded(&from("alice@factory").with_content("1")),
        encoded(&from("alice@factory").with_content("22").with_ontology("x")),
        encoded(&from("alice@factory")),
        encoded(&from("carol@factory").with_content("3")),
        encoded(&from("carol@factory").with_content("4")),
    ];
    assert_eq!(check_all(Limits::DEFAULT, &row), (3, 1));
}

/// The sender may stand behind the beginning. Then the beginning says nothing about it.
#[test]
fn a_sender_after_the_beginning_is_never_taken_for_known() {
    let late = |sender: &str| {
        let mut bytes = encoded(&from(sender).with_content("x"));
        // The parameter's code, the AID's mark, a word, and the end of the AID.
        let sender: Vec<u8> = bytes.drain(3..3 + 3 + sender.len() + 2).collect();
        let end = bytes.len() - 1;
        bytes.splice(end..end, sender);
        bytes
    };
    let limits = Limits::DEFAULT;
    let row = [late("alice@factory"), late("mallory@factory")];
    for bytes in &row {
        assert!(expected(bytes, &limits).unwrap().0.sender.is_some());
    }
    assert_eq!(check_all(limits, &row), (0, 0));
}

/// The sender of an unsound message is not the sender of the sound one before it.
#[test]
fn an_unsound_message_is_forgotten() {
    let mut unsound = encoded(&from("mallory@factory").with_content("x"));
    unsound.pop();
    let row = [
        encoded(&from("alice@factory").with_content("x")),
        unsound,
        encoded(&from("mallory@factory").with_content("x")),
    ];
    assert_eq!(check_all(Limits::DEFAULT, &row), (0, 0));
}

#[test]
fn parameters_beyond_64_kib_are_found() {
    let far = from("alice@factory")
        .with_user_defined("X-long", "y".repeat(70_000))
        .with_content("far");
    let at_the_limit = (65_400..65_560).map(|length| {
        encoded(
            &from("alice@factory")
                .with_user_defined("X-long", "y".repeat(length))
                .with_content("far"),
        )
    });
    let row: Vec<_> = at_the_limit.chain([encoded(&far), encoded(&far)]).collect();
    assert_eq!(check_all(Limits::DEFAULT, &row), (row.len() - 1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_comes_it_says_the_same(
        messages in vec(wild_message(), 1..4),
        picks in vec((any::<Index>(), proptest::option::of((any::<Index>(), any::<u8>()))), 1..12),
        values in 1usize..40,
        length in 20usize..400,
    ) {
        let encoded: Vec<Vec<u8>> = messages
            .iter()
            .filter_map(|message| {
                let mut bytes = Vec::new();
                encode(message, &mut bytes).ok().map(|()| bytes)
            })
            .collect();
        prop_assume!(!encoded.is_empty());
        let row: Vec<Vec<u8>> = picks
            .iter()
            .map(|(which, damage)| {
                let mut bytes = which.get(&encoded).clone();
                if let Some((at, byte)) = damage {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                bytes
            })
            .collect();
        check_all(Limits::DEFAULT, &row);
        check_all(Limits { values, message_length: length, ..Limits::DEFAULT }, &row);
    }
}
