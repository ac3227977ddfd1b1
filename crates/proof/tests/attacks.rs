//! Proofs made or bent by others than the author, and floods of wrong ones.
#![allow(clippy::unwrap_used)]

mod support;

use std::ops::Range;
use std::sync::Arc;

use sealbus_proof::{
    BatchKey, BatchKeyDelegation, Hash, MOST_MESSAGES, NotProved, Proof, SignError, SignedBatch,
    Signer, Verifier, WRONG_SIGNATURES,
};
use sealbus_seal::{Identity, ProcessId, SecurityLevel};
use support::{Author, NOW, Said, TestPlatform, alone, encoded, statements};

/// Where the fields of a proof stand.
const LEVEL: Range<usize> = 1..2;
const KEY: Range<usize> = 2..35;
const DELEGATION: Range<usize> = 2..99;
const TIME: Range<usize> = 99..107;
const AUTHORS: Range<usize> = 107..111;
const SERIAL: Range<usize> = 111..127;
const FIRST: Range<usize> = 127..135;
const PLACES: Range<usize> = 135..139;
const HASHES: usize = 139;

fn verifier(platform: &TestPlatform) -> Verifier {
    Verifier::new(platform.name.clone(), SecurityLevel::Signed)
}

/// A proof with some of its bytes replaced by those of another one.
fn spliced(into: &Proof, from: &Proof, bytes: Range<usize>) -> Proof {
    let (mut target, source) = (encoded(into), encoded(from));
    target[bytes.clone()].copy_from_slice(&source[bytes]);
    Proof::decode(&target).unwrap()
}

fn is_wrong(judged: &Result<(), NotProved>) -> bool {
    matches!(judged, Err(NotProved::WrongSignature))
}

fn is_not_delegated(judged: &Result<(), NotProved>) -> bool {
    matches!(judged, Err(NotProved::NotDelegated { .. }))
}

#[test]
fn a_path_of_another_batch_is_refused() {
    let platform = TestPlatform::new("factory");
    let (author, other) = (platform.author("buyer-1"), platform.author("buyer-2"));
    let these = statements(8);
    let batch = |changed: usize| {
        let mut all = these.clone();
        all[changed][0] ^= 1;
        Said::of(&[(&author.signer, all.clone()), (&other.signer, all)], NOW).unwrap()
    };
    let (one, two) = (batch(7), batch(6));
    let (first, second) = (one.proof(0, 2).unwrap(), two.proof(0, 2).unwrap());
    let mut verifier = verifier(&platform);
    let mut judge = |proof: &Proof| verifier.verify(&author.verified, proof, &these[2], NOW);
    assert_eq!(judge(&first), Ok(()));
    // The statement at place 2 is the same in both batches, so the other batch proves it as well.
    assert_eq!(judge(&second), Ok(()));
    for part in [
        // The path among the author's statements, and among the authors.
        HASHES..HASHES + 3 * 32,
        HASHES + 3 * 32..HASHES + 4 * 32,
        HASHES + 4 * 32..HASHES + 4 * 32 + 64,
        FIRST,
    ] {
        assert!(is_wrong(&judge(&spliced(&first, &second, part))));
    }
}

/// An author's entry in another batch, at another place, with another count; and a message under another author.
#[test]
fn an_entry_counts_in_its_own_place_alone() {
    let platform = TestPlatform::new("factory");
    let authors: Vec<Author> = ["a", "b", "c", "d"].map(|it| platform.author(it)).into();
    let these = statements(4);
    let said = |authors: &[&Author]| {
        let said: Vec<_> = authors
            .iter()
            .map(|author| (&author.signer, these.clone()))
            .collect();
        Said::of(&said, NOW).unwrap()
    };
    let [a, b, c, d] = &authors[..] else {
        unreachable!()
    };
    let batch = said(&[a, b, c, d]);
    let good = batch.proof(1, 2).unwrap();
    let mut verifier = verifier(&platform);
    let mut judge = |author: &Author, proof: &Proof| {
        verifier.forgiven();
        verifier.verify(&author.verified, proof, &these[2], NOW)
    };
    assert_eq!(judge(b, &good), Ok(()));
    // At the place of another author, whose path is as long, and among other authors.
    let mut moved = encoded(&good);
    moved[AUTHORS].copy_from_slice(&[0, 4, 0, 2]);
    assert!(is_wrong(&judge(b, &Proof::decode(&moved).unwrap())));
    moved[AUTHORS].copy_from_slice(&[0, 3, 0, 1]);
    assert!(is_wrong(&judge(b, &Proof::decode(&moved).unwrap())));
    // At another place and in another count of the same author's messages.
    for places in [[0, 4, 0, 3], [0, 4, 0, 0], [0, 3, 0, 0]] {
        let mut moved = encoded(&good);
        moved[PLACES].copy_from_slice(&places);
        assert!(is_wrong(&judge(b, &Proof::decode(&moved).unwrap())));
    }
    // Under another number, so that a message would count twice.
    let mut again = encoded(&good);
    again[FIRST].copy_from_slice(&7u64.to_be_bytes());
    assert!(is_wrong(&judge(b, &Proof::decode(&again).unwrap())));
    // In another batch of the same process.
    let other = said(&[a, b, c, d]).proof(1, 2).unwrap();
    let (first, last) = (HASHES, encoded(&good).len());
    assert!(is_wrong(&judge(b, &spliced(&good, &other, first..last))));
    assert!(is_wrong(&judge(
        b,
        &spliced(&good, &other, last - 64..last)
    )));
    // A message that is proved under another author of the same batch: with that author's delegation and certificate.
    let of_c = batch.proof(2, 2).unwrap();
    let bent = spliced(&spliced(&good, &of_c, DELEGATION), &of_c, SERIAL);
    assert!(is_wrong(&judge(c, &bent)));
    assert!(is_not_delegated(&judge(c, &spliced(&good, &of_c, SERIAL))));
    assert!(is_not_delegated(&judge(
        b,
        &spliced(&good, &of_c, DELEGATION)
    )));
}

/// A delegation holds for its key, agent, certificate and platform. A key that nobody delegated to signs for nobody.
#[test]
fn only_what_an_agent_delegated_counts() {
    let (platform, elsewhere) = (TestPlatform::new("factory"), TestPlatform::new("market"));
    let (author, mallory) = (platform.author("buyer-1"), platform.author("mallory"));
    let renewed = platform.author("buyer-1");
    let namesake = elsewhere.author("buyer-1");
    let said = statements(1)[0];
    // Mallory's process has a key of its own, and signs batches with the author's entries.
    let own = Arc::new(BatchKey::new(platform.name.clone(), SecurityLevel::Signed));
    let of_mallory = Signer::new(mallory.credential.clone(), own.clone()).unwrap();
    let forged = {
        // The author never saw this key: the test alone can make such a signer.
        let signer = Signer::new(author.credential.clone(), own).unwrap();
        alone(&signer, said, NOW)
    };
    let mut verifier = verifier(&platform);
    let mut judge = |proof: &Proof| {
        verifier.forgiven();
        verifier.verify(&author.verified, proof, &said, NOW)
    };
    assert_eq!(judge(&forged), Ok(()));
    let good = alone(&author.signer, said, NOW);
    for delegation in [
        of_mallory.delegation(),
        mallory.signer.delegation(),
        renewed.signer.delegation(),
        namesake.signer.delegation(),
    ] {
        for proof in [&forged, &good] {
            let mut bytes = encoded(proof);
            // Its signature alone, and the key with it.
            let mut wire = Vec::new();
            delegation.encode(&mut wire);
            bytes[KEY.end..DELEGATION.end].copy_from_slice(&wire[KEY.len()..]);
            assert!(is_not_delegated(&judge(&Proof::decode(&bytes).unwrap())));
            bytes[DELEGATION].copy_from_slice(&wire);
            assert!(is_not_delegated(&judge(&Proof::decode(&bytes).unwrap())));
        }
    }
    // The author's delegation to its own process, beside a signature of mallory's key.
    assert!(is_wrong(&judge(&spliced(&forged, &good, DELEGATION))));
    // A delegation says nothing by itself.
    let mut wire = Vec::new();
    author.signer.delegation().encode(&mut wire);
    for bit in 0..wire.len() * 8 {
        let mut changed = wire.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let Ok(changed) = BatchKeyDelegation::decode(&changed) else {
            continue;
        };
        verifier.forgiven();
        assert!(is_not_delegated(&verifier.delegated(
            &author.verified,
            &changed,
            NOW
        )));
    }
    for length in 0..wire.len() {
        assert!(BatchKeyDelegation::decode(&wire[..length]).is_err());
    }
    assert!(BatchKeyDelegation::decode(&[&wire[..], &[0]].concat()).is_err());
}

/// A process that has ended left its batches behind. The agent has a new certificate in its new process.
#[test]
fn a_batch_of_a_former_process_proves_nothing_under_a_new_certificate() {
    let platform = TestPlatform::new("factory");
    let before = platform.author("buyer-1");
    let said = statements(1)[0];
    let old = alone(&before.signer, said, NOW);
    let after = platform.author("buyer-1");
    let key = Arc::new(BatchKey::new(platform.name.clone(), SecurityLevel::Signed));
    let after = Author {
        signer: Signer::new(after.credential.clone(), key).unwrap(),
        ..after
    };
    let new = alone(&after.signer, said, NOW);
    let mut verifier = verifier(&platform);
    let mut judge = |proof: &Proof| verifier.verify(&after.verified, proof, &said, NOW);
    assert_eq!(judge(&new), Ok(()));
    assert!(matches!(
        judge(&old),
        Err(NotProved::OtherCertificate { .. })
    ));
    assert!(is_not_delegated(&judge(&spliced(&old, &new, SERIAL))));
    let bent = spliced(&spliced(&old, &new, SERIAL), &new, DELEGATION);
    assert!(is_wrong(&judge(&bent)));
}

#[test]
fn a_proof_holds_for_its_author_platform_and_level_only() {
    let (platform, elsewhere) = (TestPlatform::new("factory"), TestPlatform::new("market"));
    let (author, mallory) = (platform.author("buyer-1"), platform.author("mallory"));
    let said = statements(1)[0];
    let proof = alone(&author.signer, said, NOW);
    let judge = |verifier: &mut Verifier, author: &Author, proof: &Proof| {
        verifier.verify(&author.verified, proof, &said, NOW)
    };
    let here = &mut verifier(&platform);
    assert_eq!(judge(here, &author, &proof), Ok(()));

    // The proof of another agent, also with the author's serial number written into it.
    assert!(matches!(
        judge(here, &mallory, &proof),
        Err(NotProved::OtherCertificate { .. })
    ));
    let of_mallory = alone(&mallory.signer, said, NOW);
    let bent = spliced(&of_mallory, &proof, SERIAL);
    assert!(is_not_delegated(&judge(here, &author, &bent)));
    let bent = spliced(&bent, &proof, DELEGATION);
    assert!(is_wrong(&judge(here, &author, &bent)));

    // An agent of the same name of another platform.
    let stranger = elsewhere.author("buyer-1");
    let of_stranger = alone(&stranger.signer, said, NOW);
    assert!(matches!(
        judge(here, &stranger, &of_stranger),
        Err(NotProved::NotAnAuthor { .. })
    ));
    assert!(matches!(
        judge(&mut verifier(&elsewhere), &author, &proof),
        Err(NotProved::NotAnAuthor { .. })
    ));

    // Another level, also with the level's number changed.
    let key = BatchKey::new(platform.name.clone(), SecurityLevel::Sealed);
    let sealed = Signer::new(author.credential.clone(), Arc::new(key)).unwrap();
    let sealed = alone(&sealed, said, NOW);
    assert_eq!(
        judge(here, &author, &sealed),
        Err(NotProved::OtherLevel {
            wanted: SecurityLevel::Signed,
            found: SecurityLevel::Sealed,
        })
    );
    let bent = spliced(&sealed, &proof, LEVEL);
    assert!(is_wrong(&judge(here, &author, &bent)));
    let mut there = Verifier::new(platform.name.clone(), SecurityLevel::Sealed);
    assert!(matches!(
        judge(&mut there, &author, &proof),
        Err(NotProved::OtherLevel { .. })
    ));
    let bent = spliced(&proof, &sealed, LEVEL);
    assert!(is_wrong(&judge(&mut there, &author, &bent)));
}

/// A batch as its receiver checks it, whole.
#[test]
fn a_batch_holds_for_its_platform_level_key_time_and_authors_only() {
    let platform = TestPlatform::new("factory");
    let (one, other) = (platform.author("buyer-1"), platform.author("buyer-2"));
    let these = statements(3);
    let said = Said::of(
        &[(&one.signer, these.clone()), (&other.signer, these.clone())],
        NOW,
    )
    .unwrap();
    let leaves: Vec<Hash> = said.entries.iter().map(|it| it.leaf(&these)).collect();
    let key = said.batch.key().clone();
    let level = SecurityLevel::Signed;
    let judge = |verifier: &mut Verifier, time, leaves: &[Hash], signature: &[u8]| {
        let level = verifier.level();
        let batch = SignedBatch::received(level, key.clone(), time, signature, leaves.to_vec());
        verifier.signed(&batch, NOW)
    };
    let good = said.batch.signature();
    let here = &mut verifier(&platform);
    assert_eq!(judge(here, NOW, &leaves, good), Ok(()));
    assert!(is_wrong(&judge(here, NOW + 1, &leaves, good)));
    assert!(is_wrong(&judge(here, NOW, &leaves[..1], good)));
    assert!(is_wrong(&judge(here, NOW, &[leaves[1], leaves[0]], good)));
    assert!(is_wrong(&judge(here, NOW, &[leaves[0]; 2], good)));
    assert!(is_wrong(&judge(here, NOW, &leaves, &good[..63])));
    assert!(is_wrong(&judge(here, NOW, &leaves, &[])));
    let mut there = Verifier::new(platform.name.clone(), SecurityLevel::Sealed);
    assert!(is_wrong(&judge(&mut there, NOW, &leaves, good)));
    let mut elsewhere = Verifier::new(TestPlatform::new("market").name, level);
    assert!(is_wrong(&judge(&mut elsewhere, NOW, &leaves, good)));
    let strange = alone(
        &TestPlatform::new("factory").author("a").signer,
        these[0],
        NOW,
    );
    let batch = SignedBatch::received(
        level,
        strange.delegation().key().clone(),
        NOW,
        good,
        leaves.clone(),
    );
    assert!(is_wrong(&here.signed(&batch, NOW)));
    // Entries in which anything is changed.
    for bit in 0..4 {
        let mut entry = said.entries[0];
        match bit {
            0 => entry.first += 1,
            1 => entry.count += 1,
            2 => entry.serial = other.verified.serial(),
            _ => entry.certificate = other.verified.fingerprint(),
        }
        let changed = [entry.leaf(&these), leaves[1]];
        here.forgiven();
        assert!(is_wrong(&judge(here, NOW, &changed, good)));
    }
}

#[test]
fn a_time_outside_the_certificate_or_ahead_is_refused() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let said = statements(1)[0];
    let milliseconds = |time: sealbus_seal::Timestamp| time.as_unix_seconds() * 1000;
    let begin = milliseconds(author.verified.not_before());
    let end = milliseconds(author.verified.not_after());
    for (signed_at, checked_at, is_believed) in [
        (NOW, NOW, true),
        (NOW, end + 1_000_000_000, true),
        (NOW + 9_000, NOW, true),
        (NOW + 12_000, NOW, false),
        (begin - 9_000, NOW, true),
        (begin - 12_000, NOW, false),
        (end + 9_000, end + 1_000_000_000, true),
        (end + 12_000, end + 1_000_000_000, false),
        (0, NOW, false),
        (u64::MAX, NOW, false),
    ] {
        let proof = alone(&author.signer, said, signed_at);
        let judged = verifier(&platform).verify(&author.verified, &proof, &said, checked_at);
        assert_eq!(
            judged.is_ok(),
            is_believed,
            "signed at {signed_at}: {judged:?}"
        );
        assert!(judged.is_ok() || matches!(judged, Err(NotProved::NotThen { .. })));
    }
    // The time is signed.
    let other = alone(&author.signer, said, NOW + 1);
    let bent = spliced(&alone(&author.signer, said, NOW), &other, TIME);
    let judged = verifier(&platform).verify(&author.verified, &bent, &said, NOW);
    assert!(is_wrong(&judged));
}

#[test]
fn ten_thousand_wrong_signatures_cost_few_checks_and_disturb_nobody_else() {
    let platform = TestPlatform::new("factory");
    let (mallory, honest) = (platform.author("mallory"), platform.author("honest"));
    let said = statements(1)[0];
    let good = alone(&mallory.signer, said, NOW);
    let bytes = encoded(&good);
    // Wrong signatures of batches, and wrong delegations.
    for at in [HASHES..HASHES + 8, KEY.end..KEY.end + 8] {
        let mut bytes = bytes.clone();
        let (mut of_mallory, mut of_honest) = (verifier(&platform), verifier(&platform));
        let (mut checked, mut refused_unseen) = (0, 0);
        for number in 0..10_000u64 {
            // Each a new signature, so that none is remembered.
            bytes[at.clone()].copy_from_slice(&number.to_be_bytes());
            let wrong = Proof::decode(&bytes).unwrap();
            match of_mallory.verify(&mallory.verified, &wrong, &said, NOW + number / 10) {
                Err(NotProved::WrongSignature | NotProved::NotDelegated { .. }) => checked += 1,
                Err(NotProved::TooManyWrong) => refused_unseen += 1,
                other => panic!("{other:?}"),
            }
            let said = statements(2)[1];
            if number % 500 == 0 {
                let proof = alone(&honest.signer, said, NOW);
                let judged = of_honest.verify(&honest.verified, &proof, &said, NOW);
                assert_eq!(judged, Ok(()));
            }
        }
        // All of them came within a second.
        assert_eq!(checked, WRONG_SIGNATURES);
        assert_eq!(refused_unseen, 10_000 - WRONG_SIGNATURES);
        let mut judge = |now| of_mallory.verify(&mallory.verified, &good, &said, now);
        assert_eq!(judge(NOW + 999), Err(NotProved::TooManyWrong));
        assert_eq!(judge(NOW + 1_000), Ok(()));
        // A clock that is set back forgives nothing and refuses nothing more.
        assert_eq!(judge(NOW - 5_000), Ok(()));
    }
}

#[test]
fn a_remembered_batch_makes_no_other_signature_good() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let these = statements(MOST_MESSAGES);
    let batch = Said::of(&[(&author.signer, these.clone())], NOW).unwrap();
    let mut verifier = verifier(&platform);
    let mut judge =
        |place: usize, proof: &Proof| verifier.verify(&author.verified, proof, &these[place], NOW);
    for place in 0..MOST_MESSAGES {
        let proof = batch.proof(0, place).unwrap();
        assert_eq!(judge(place, &proof), Ok(()));
        let mut bytes = encoded(&proof);
        *bytes.last_mut().unwrap() ^= 1;
        if place < 4 {
            assert!(is_wrong(&judge(place, &Proof::decode(&bytes).unwrap())));
        }
    }
}

#[test]
fn only_agents_sign_and_only_where_signatures_are_asked_for() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    for level in [SecurityLevel::None, SecurityLevel::Tls, SecurityLevel::Auth] {
        let key = Arc::new(BatchKey::new(platform.name.clone(), level));
        let signer = Signer::new(author.credential.clone(), key);
        assert_eq!(signer.unwrap_err(), SignError::Level(level));
    }
    let process =
        Identity::process(&platform.name, "node-1", ProcessId::random().unwrap()).unwrap();
    let (credential, verified) = platform.certified(&process);
    assert_eq!(
        Signer::new(credential, platform.key.clone()).unwrap_err(),
        SignError::NotAnAgent(process)
    );
    let delegation = author.signer.delegation();
    assert!(matches!(
        verifier(&platform).delegated(&verified, delegation, NOW),
        Err(NotProved::NotAnAuthor { .. })
    ));
    let said = |counts: &[usize]| {
        let said = counts.iter().map(|it| (&author.signer, vec![[0; 32]; *it]));
        Said::of(&said.collect::<Vec<_>>(), NOW).map(|_| ())
    };
    for counts in [&[0][..], &[MOST_MESSAGES + 1], &[MOST_MESSAGES, 1], &[1, 0]] {
        assert!(matches!(said(counts), Err(SignError::Count { .. })));
    }
    assert_eq!(said(&[MOST_MESSAGES - 1, 1]), Ok(()));
    assert_eq!(said(&[1; MOST_MESSAGES]), Ok(()));
    let batch = sealbus_proof::Batch::new(platform.key.clone());
    assert!(matches!(batch.sign(NOW), Err(SignError::Count { .. })));
    let batch = Said::of(&[(&author.signer, statements(2))], NOW).unwrap();
    assert!(matches!(batch.proof(0, 2), Err(SignError::NotInBatch(_))));
}

/// Tests try more wrong signatures than a source may send at once.
trait Forgiven {
    fn forgiven(&mut self);
}

impl Forgiven for Verifier {
    fn forgiven(&mut self) {
        *self = Verifier::new(self.platform().clone(), self.level());
    }
}
