//! Properties of every batch, every part of a batch, and every change to either.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use proptest::prelude::*;
use sealbus_proof::{MAX_BATCH, MAX_PROOF_LENGTH, Malformed, Proof, Statement, Verifier};
use sealbus_seal::SecurityLevel;
use support::{Author, NOW, TestPlatform, statements};

static PLATFORM: LazyLock<TestPlatform> = LazyLock::new(|| TestPlatform::new("factory"));
static AUTHOR: LazyLock<Author> = LazyLock::new(|| PLATFORM.author("buyer-1"));

fn verifier() -> Verifier {
    Verifier::new(PLATFORM.name.clone(), SecurityLevel::Signed)
}

fn encoded(proof: &Proof) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.encode(&mut bytes);
    bytes
}

/// A batch's size and some successive places in it.
fn part() -> impl Strategy<Value = (usize, Range<usize>)> {
    (1..=MAX_BATCH).prop_flat_map(|size| {
        (0..size, 1..=size)
            .prop_map(move |(start, length)| (size, start..(start + length).min(size)))
    })
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
    fn every_part_of_a_batch_is_proved((size, places) in part()) {
        let all = statements(size);
        let batch = AUTHOR.signer.sign(all.clone(), NOW).unwrap();
        let proof = batch.proof(&places).unwrap();
        let part = &all[places.clone()];
        prop_assert_eq!(verifier().verify(&AUTHOR.verified, &proof, part, NOW), Ok(()));
        let bytes = encoded(&proof);
        prop_assert_eq!(bytes.len(), proof.length());
        prop_assert!(bytes.len() <= MAX_PROOF_LENGTH);
        prop_assert_eq!(Proof::decode(&bytes).unwrap(), proof.clone());
        // Each message of the part has a proof of its own.
        for (index, place) in places.clone().enumerate() {
            let alone = proof.of_one(part, index).unwrap();
            prop_assert_eq!(&alone, &batch.proof(&(place..place + 1)).unwrap());
            prop_assert_eq!(alone.numbers().start, proof.numbers().start + index as u64);
        }
        prop_assert!(proof.of_one(part, part.len()).is_err());
    }

    #[test]
    fn a_changed_bit_of_a_proof_is_refused((size, places) in part(), bit in any::<prop::sample::Index>()) {
        let all = statements(size);
        let proof = AUTHOR.signer.sign(all.clone(), NOW).unwrap().proof(&places).unwrap();
        let mut bytes = encoded(&proof);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(changed) = Proof::decode(&bytes) {
            let judged = verifier().verify(&AUTHOR.verified, &changed, &all[places], NOW);
            prop_assert!(judged.is_err(), "bit {} counts for nothing", bit);
        }
    }

    #[test]
    fn other_statements_are_refused((size, places) in part(), at in any::<prop::sample::Index>(), bit in 0usize..256) {
        let all = statements(size);
        let proof = AUTHOR.signer.sign(all.clone(), NOW).unwrap().proof(&places).unwrap();
        let verify = |statements: &[sealbus_proof::Hash]| {
            verifier().verify(&AUTHOR.verified, &proof, statements, NOW).is_ok()
        };
        let part = all[places].to_vec();
        let mut changed = part.clone();
        changed[at.index(part.len())][bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!verify(&changed));
        prop_assert!(!verify(&part[1..]));
        prop_assert!(!verify(&[&part[..], &part[..1]].concat()));
        if part.len() > 1 {
            let mut swapped = part.clone();
            swapped.swap(0, part.len() - 1);
            prop_assert!(!verify(&swapped), "the order is signed too");
        }
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
    fn any_bytes_are_refused_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..MAX_PROOF_LENGTH + 40)) {
        if let Ok(proof) = Proof::decode(&bytes) {
            prop_assert_eq!(encoded(&proof), bytes);
        }
    }
}

/// Every bit of one proof, and every length.
#[test]
fn no_bit_of_a_proof_is_without_meaning() {
    let all = statements(5);
    let batch = AUTHOR.signer.sign(all.clone(), NOW).unwrap();
    let bytes = encoded(&batch.proof(&(1..3)).unwrap());
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let believed = Proof::decode(&changed).is_ok_and(|proof| {
            let judged = verifier().verify(&AUTHOR.verified, &proof, &all[1..3], NOW);
            judged.is_ok()
        });
        assert!(!believed, "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(matches!(
            Proof::decode(&bytes[..length]),
            Err(Malformed::Length { .. })
        ));
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(
        Proof::decode(&longer),
        Err(Malformed::Length { .. })
    ));
}

#[test]
fn every_field_of_a_message_is_signed() {
    let said = Statement {
        channel: Some("/dates/business"),
        qos: "priority=7",
        receivers: &["seller-1@factory"],
        message: b"a message",
    };
    let proof = AUTHOR.signer.sign(vec![said.hash()], NOW).unwrap();
    let proof = proof.proof(&(0..1)).unwrap();
    let verify = |said: Statement<'_>| {
        let hash = said.hash();
        verifier()
            .verify(&AUTHOR.verified, &proof, &[hash], NOW)
            .is_ok()
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

/// The goal of 200 bytes for each message, when 64 to one receiver are signed together.
#[test]
fn a_batch_adds_few_bytes() {
    let batch = AUTHOR.signer.sign(statements(64), NOW).unwrap();
    assert_eq!(batch.proof(&(0..64)).unwrap().length(), 104);
    // Alone, a message of this batch needs six hashes.
    assert_eq!(batch.proof(&(17..18)).unwrap().length(), 104 + 6 * 32);
}

#[test]
fn numbers_are_never_used_twice() {
    let signer = &PLATFORM.author("counted").signer;
    let mut seen = HashSet::new();
    std::thread::scope(|scope| {
        let sign = || {
            let batches = (1..20).map(|size| signer.sign(statements(size), NOW).unwrap());
            let sizes = batches.zip(1..);
            sizes
                .flat_map(|(batch, size)| batch.proof(&(0..size)).unwrap().numbers())
                .collect::<Vec<u64>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(sign)).collect();
        for thread in threads {
            for number in thread.join().unwrap() {
                assert!(seen.insert(number));
            }
        }
    });
    assert_eq!(seen.len(), 4 * (1..20).sum::<usize>());
}
