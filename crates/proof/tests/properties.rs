//! Properties of every batch, every part of a batch, and every change to either.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use sealbus_proof::{
    AuthorEntry, Hash, LONGEST_PROOF, MOST_MESSAGES, Malformed, Proof, ProvedAuthor, ProvedBatch,
    Statement, Verifier,
};
use sealbus_seal::{SecurityLevel, Timestamp};
use support::{Author, NOW, Said, TestPlatform, alone, encoded, statements};

static PLATFORM: LazyLock<TestPlatform> = LazyLock::new(|| TestPlatform::new("factory"));
static AUTHOR: LazyLock<Author> = LazyLock::new(|| PLATFORM.author("buyer-1"));
static OTHER: LazyLock<Author> = LazyLock::new(|| PLATFORM.author("buyer-2"));
/// The author with its whole chain.
static WHOLE: LazyLock<sealbus_proof::Author> = LazyLock::new(|| {
    let then = Timestamp::from_unix_seconds(NOW / 1000);
    let chain = AUTHOR.credential.chain().clone();
    sealbus_proof::Author::verify(chain, &PLATFORM.trust, then).unwrap()
});

fn verifier() -> Verifier {
    Verifier::new(PLATFORM.name.clone(), SecurityLevel::Signed)
}

/// How many messages each author of a batch has, with the place of an author and of one of its messages.
fn part() -> impl Strategy<Value = (Vec<usize>, usize, usize)> {
    let authors = prop_oneof![
        prop::collection::vec(1usize..=3, 1..=80),
        prop::collection::vec(1usize..=80, 1..=3),
        Just(vec![1; MOST_MESSAGES]),
        Just(vec![MOST_MESSAGES]),
    ];
    let places = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (authors, places).prop_map(|(authors, (author, place))| {
        let author = author.index(authors.len());
        let place = place.index(authors[author]);
        (authors, author, place)
    })
}

/// A batch of these many messages of each author. The one at `author` is the author of the test, and has these statements.
fn batch(authors: &[usize], author: usize) -> (Said, Vec<Hash>) {
    let these = statements(authors[author]);
    let said: Vec<_> = authors
        .iter()
        .enumerate()
        .map(|(at, count)| match at == author {
            true => (&AUTHOR.signer, these.clone()),
            false => (&OTHER.signer, statements(*count)),
        })
        .collect();
    (Said::of(&said, NOW).unwrap(), these)
}

fn statement_parts() -> impl Strategy<Value = (Option<String>, String, Vec<String>, Vec<u8>)> {
    (
        prop::option::of("[a/]{0,3}"),
        "[a=]{0,3}",
        prop::collection::vec("[a@]{0,3}", 0..3),
        prop::collection::vec(0u8..2, 0..3),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_message_of_a_batch_is_proved((authors, author, place) in part()) {
        let (batch, these) = batch(&authors, author);
        let proof = batch.proof(author, place).unwrap();
        let verify = |statement: &Hash| verifier().verify(&AUTHOR.verified, &proof, statement, NOW);
        prop_assert_eq!(verify(&these[place]), Ok(()));
        let bytes = encoded(&proof);
        prop_assert_eq!(bytes.len(), proof.length());
        prop_assert!(bytes.len() <= LONGEST_PROOF);
        prop_assert_eq!(Proof::decode(&bytes).unwrap(), proof.clone());
        prop_assert_eq!(proof.number(), batch.entries[author].first + place as u64);
        // Another statement is not proved, not even one of the same author.
        let mut changed = these[place];
        changed[place % 32] ^= 1 << (place % 8);
        prop_assert!(verify(&changed).is_err());
        prop_assert!(verify(&these[(place + 1) % these.len()]).is_err() || these.len() == 1);
    }

    #[test]
    fn a_changed_bit_of_a_proof_is_refused((authors, author, place) in part(), bit in any::<prop::sample::Index>()) {
        let (batch, these) = batch(&authors, author);
        let mut bytes = encoded(&batch.proof(author, place).unwrap());
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(changed) = Proof::decode(&bytes) {
            let judged = verifier().verify(&AUTHOR.verified, &changed, &these[place], NOW);
            prop_assert!(judged.is_err(), "bit {} counts for nothing", bit);
        }
    }

    #[test]
    fn a_receiver_of_a_whole_batch_proves_each_message((authors, author, place) in part()) {
        let (batch, these) = batch(&authors, author);
        let believed = vec![ProvedAuthor {
            author: WHOLE.clone(),
            delegation: AUTHOR.signer.delegation().clone(),
            entry: batch.entries[author],
            place: author,
            start: 0,
        }];
        let proved = ProvedBatch::new(batch.batch.clone(), these.clone(), believed);
        let evidence = proved.evidence(0, place).unwrap();
        prop_assert_eq!(evidence.statement(), &these[place]);
        prop_assert_eq!(evidence.proof().unwrap(), batch.proof(author, place).unwrap());
        prop_assert!(proved.evidence(0, these.len()).is_err());
        prop_assert!(proved.evidence(1, place).is_err());
    }

    #[test]
    fn different_statements_have_different_bytes(one in statement_parts(), other in statement_parts()) {
        let bytes = |(channel, qos, receivers, message): &(Option<String>, String, Vec<String>, Vec<u8>)| {
            let receivers: Vec<&str> = receivers.iter().map(String::as_str).collect();
            let statement = Statement { channel: channel.as_deref(), qos, receivers: &receivers, message };
            let mut bytes = Vec::new();
            statement.encode(&mut bytes);
            (bytes, statement.hash())
        };
        prop_assert_eq!(one == other, bytes(&one).0 == bytes(&other).0);
        prop_assert_eq!(one == other, bytes(&one).1 == bytes(&other).1);
    }

    #[test]
    fn any_bytes_are_refused_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..LONGEST_PROOF + 40)) {
        if let Ok(proof) = Proof::decode(&bytes) {
            prop_assert_eq!(encoded(&proof), bytes);
        }
    }
}

/// Every bit of one proof, and every length.
#[test]
fn no_bit_of_a_proof_is_without_meaning() {
    let (batch, these) = batch(&[2, 5, 1], 1);
    let bytes = encoded(&batch.proof(1, 2).unwrap());
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let believed = Proof::decode(&changed).is_ok_and(|proof| {
            let judged = verifier().verify(&AUTHOR.verified, &proof, &these[2], NOW);
            judged.is_ok()
        });
        assert!(!believed, "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(Proof::decode(&bytes[..length]).is_err());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(
        Proof::decode(&longer),
        Err(Malformed::Length { .. })
    ));
}

/// No proof names more messages than a batch may have.
#[test]
fn impossible_batches_are_refused() {
    const MOST: u16 = MOST_MESSAGES as u16;
    let bytes = encoded(&alone(&AUTHOR.signer, statements(1)[0], NOW));
    let at = |authors: [u16; 2], messages: [u16; 2]| {
        let mut bytes = bytes.clone();
        let numbers = |numbers: [u16; 2]| numbers.map(u16::to_be_bytes).concat();
        bytes[107..111].copy_from_slice(&numbers(authors));
        bytes[135..139].copy_from_slice(&numbers(messages));
        Proof::decode(&bytes).unwrap_err()
    };
    for wrong in [at([0, 0], [1, 0]), at([1, 1], [1, 0]), at([1, 0], [2, 2])] {
        assert!(matches!(wrong, Malformed::Place { .. }), "{wrong:?}");
    }
    for wrong in [
        at([2, 0], [MOST, 0]),
        at([MOST + 1, 0], [1, 0]),
        at([u16::MAX, 0], [u16::MAX, 0]),
    ] {
        assert!(matches!(wrong, Malformed::TooLarge { .. }), "{wrong:?}");
    }
    assert!(matches!(at([2, 0], [1, 0]), Malformed::Length { .. }));
    for (place, value) in [(0, 1), (1, 2), (2, 0), (2, 9)] {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        let wrong = Proof::decode(&bytes).unwrap_err();
        let is_right = match place {
            0 => wrong == Malformed::Version(1),
            1 => wrong == Malformed::Level(2),
            _ => wrong == Malformed::Algorithm(value),
        };
        assert!(is_right, "{wrong:?}");
    }
    let mut bytes = bytes.clone();
    bytes[127..135].copy_from_slice(&u64::MAX.to_be_bytes());
    assert_eq!(Proof::decode(&bytes).unwrap_err(), Malformed::Numbers);
}

#[test]
fn every_field_of_a_message_is_signed() {
    let said = Statement {
        channel: Some("/dates/business"),
        qos: "priority=7",
        receivers: &["seller-1@factory"],
        message: b"a message",
    };
    let proof = alone(&AUTHOR.signer, said.hash(), NOW);
    let verify = |said: Statement<'_>| {
        let judged = verifier().verify(&AUTHOR.verified, &proof, &said.hash(), NOW);
        judged.is_ok()
    };
    assert!(verify(said));
    for changed in [
        Statement {
            channel: Some("/dates/private"),
            ..said
        },
        Statement {
            channel: Some(""),
            ..said
        },
        Statement {
            channel: None,
            ..said
        },
        Statement {
            qos: "priority=1",
            ..said
        },
        Statement { qos: "", ..said },
        Statement {
            receivers: &["seller-2@factory"],
            ..said
        },
        Statement {
            receivers: &[],
            ..said
        },
        Statement {
            receivers: &["seller-1@factory", "seller-2@factory"],
            ..said
        },
        Statement {
            message: b"b message",
            ..said
        },
        Statement {
            message: b"",
            ..said
        },
    ] {
        assert!(!verify(changed), "{changed:?}");
    }
}

#[test]
fn numbers_are_never_used_twice() {
    let signer = &PLATFORM.author("counted").signer;
    let mut seen = HashSet::new();
    std::thread::scope(|scope| {
        let sign = || {
            let batches = (1..20).map(|size| {
                let said = [(signer, statements(size)), (signer, statements(1))];
                Said::of(&said, NOW).unwrap().entries
            });
            let numbers = |it: AuthorEntry| it.first..it.first + u64::from(it.count);
            batches.flatten().flat_map(numbers).collect::<Vec<u64>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(sign)).collect();
        for thread in threads {
            for number in thread.join().unwrap() {
                assert!(seen.insert(number));
            }
        }
    });
    assert_eq!(seen.len(), 4 * (1..20).map(|size| size + 1).sum::<usize>());
}
