//! Proofs made or bent by others than the author, and floods of wrong ones.
#![allow(clippy::unwrap_used)]

mod support;

use sealbus_proof::{MAX_BATCH, NotProved, Proof, SignError, Signer, Verifier, WRONG_SIGNATURES};
use sealbus_seal::{Identity, ProcessId, SecurityLevel};
use support::{Author, NOW, TestPlatform, statements};

fn verifier(platform: &TestPlatform) -> Verifier {
    Verifier::new(platform.name.clone(), SecurityLevel::Signed)
}

/// A proof with some of its bytes replaced by those of another one.
fn spliced(into: &Proof, from: &Proof, bytes: std::ops::Range<usize>) -> Proof {
    let (mut target, mut source) = (Vec::new(), Vec::new());
    into.encode(&mut target);
    from.encode(&mut source);
    target[bytes.clone()].copy_from_slice(&source[bytes]);
    Proof::decode(&target).unwrap()
}

fn is_wrong(judged: &Result<(), NotProved>) -> bool {
    matches!(judged, Err(NotProved::WrongSignature { .. }))
}

#[test]
fn a_path_of_another_batch_is_refused() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let (these, mut others) = (statements(8), statements(8));
    others[7][0] ^= 1;
    let one = author.signer.sign(these.clone(), NOW).unwrap();
    let other = author.signer.sign(others, NOW).unwrap();
    let (one, other) = (one.proof(&(2..3)).unwrap(), other.proof(&(2..3)).unwrap());
    let mut verifier = verifier(&platform);
    let mut judge = |proof: &Proof| verifier.verify(&author.verified, proof, &these[2..3], NOW);
    assert_eq!(judge(&one), Ok(()));
    // The statement at place 2 is the same in both batches, so the other batch proves it as well.
    assert_eq!(judge(&other), Ok(()));
    let (path, signature) = (40..40 + 96, 40 + 96..40 + 96 + 64);
    assert!(is_wrong(&judge(&spliced(&one, &other, path))));
    assert!(is_wrong(&judge(&spliced(&one, &other, signature))));
}

#[test]
fn a_proof_holds_for_its_author_platform_and_level_only() {
    let (platform, elsewhere) = (TestPlatform::new("factory"), TestPlatform::new("market"));
    let (author, mallory) = (platform.author("buyer-1"), platform.author("mallory"));
    let these = statements(3);
    let proof = author
        .signer
        .sign(these.clone(), NOW)
        .unwrap()
        .proof(&(0..3))
        .unwrap();
    let judge = |verifier: &mut Verifier, author: &Author, proof: &Proof| {
        verifier.verify(&author.verified, proof, &these, NOW)
    };
    let here = &mut verifier(&platform);
    assert_eq!(judge(here, &author, &proof), Ok(()));

    // Another agent's proof, also with the author's serial number written into it.
    assert!(matches!(
        judge(here, &mallory, &proof),
        Err(NotProved::OtherCertificate { .. })
    ));
    let mallorys = mallory
        .signer
        .sign(these.clone(), NOW)
        .unwrap()
        .proof(&(0..3))
        .unwrap();
    let serial = 2..18;
    assert!(is_wrong(&judge(
        here,
        &author,
        &spliced(&mallorys, &proof, serial.clone())
    )));
    assert!(is_wrong(&judge(
        here,
        &mallory,
        &spliced(&proof, &mallorys, serial)
    )));

    // An agent of the same name of another platform.
    let stranger = elsewhere.author("buyer-1");
    assert!(matches!(
        judge(here, &stranger, &proof),
        Err(NotProved::NotAnAuthor { .. })
    ));
    assert!(matches!(
        judge(&mut verifier(&elsewhere), &author, &proof),
        Err(NotProved::NotAnAuthor { .. })
    ));

    // Another level, also with the level's number changed.
    let sealed = Signer::new(author.credential.clone(), SecurityLevel::Sealed).unwrap();
    let sealed = sealed
        .sign(these.clone(), NOW)
        .unwrap()
        .proof(&(0..3))
        .unwrap();
    assert_eq!(
        judge(here, &author, &sealed),
        Err(NotProved::OtherLevel {
            author: author.verified.identity().clone(),
            wanted: SecurityLevel::Signed,
            found: SecurityLevel::Sealed,
        })
    );
    assert!(is_wrong(&judge(
        here,
        &author,
        &spliced(&sealed, &proof, 1..2)
    )));
    let mut there = Verifier::new(platform.name.clone(), SecurityLevel::Sealed);
    assert!(matches!(
        judge(&mut there, &author, &proof),
        Err(NotProved::OtherLevel { .. })
    ));
    assert!(is_wrong(&judge(
        &mut there,
        &author,
        &spliced(&proof, &sealed, 1..2)
    )));
}

#[test]
fn a_renewed_certificate_of_the_same_agent_is_another_one() {
    let platform = TestPlatform::new("factory");
    let (before, after) = (platform.author("buyer-1"), platform.author("buyer-1"));
    let these = statements(1);
    let proof = before
        .signer
        .sign(these.clone(), NOW)
        .unwrap()
        .proof(&(0..1))
        .unwrap();
    let mut verifier = verifier(&platform);
    assert!(matches!(
        verifier.verify(&after.verified, &proof, &these, NOW),
        Err(NotProved::OtherCertificate { .. })
    ));
    assert_eq!(
        verifier.verify(&before.verified, &proof, &these, NOW),
        Ok(())
    );
}

#[test]
fn a_time_outside_the_certificate_or_ahead_is_refused() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let these = statements(1);
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
        let proof = author
            .signer
            .sign(these.clone(), signed_at)
            .unwrap()
            .proof(&(0..1))
            .unwrap();
        let judged = verifier(&platform).verify(&author.verified, &proof, &these, checked_at);
        assert_eq!(
            judged.is_ok(),
            is_believed,
            "signed at {signed_at}: {judged:?}"
        );
        assert!(judged.is_ok() || matches!(judged, Err(NotProved::NotThen { .. })));
    }
}

#[test]
fn ten_thousand_wrong_signatures_cost_few_checks_and_disturb_nobody_else() {
    let platform = TestPlatform::new("factory");
    let (mallory, honest) = (platform.author("mallory"), platform.author("honest"));
    let these = statements(1);
    let good = mallory
        .signer
        .sign(these.clone(), NOW)
        .unwrap()
        .proof(&(0..1))
        .unwrap();
    let mut bytes = Vec::new();
    good.encode(&mut bytes);
    let (mut of_mallory, mut of_honest) = (verifier(&platform), verifier(&platform));
    let (mut checked, mut refused_unseen) = (0, 0);
    for number in 0..10_000u64 {
        // Each a new signature, so that none is remembered.
        bytes[60..68].copy_from_slice(&number.to_be_bytes());
        let wrong = Proof::decode(&bytes).unwrap();
        match of_mallory.verify(&mallory.verified, &wrong, &these, NOW + number / 10) {
            Err(NotProved::WrongSignature { .. }) => checked += 1,
            Err(NotProved::TooManyWrong { .. }) => refused_unseen += 1,
            other => panic!("{other:?}"),
        }
        let said = vec![statements(2)[1]];
        if number % 500 == 0 {
            let proof = honest
                .signer
                .sign(said.clone(), NOW)
                .unwrap()
                .proof(&(0..1))
                .unwrap();
            assert_eq!(
                of_honest.verify(&honest.verified, &proof, &said, NOW),
                Ok(())
            );
        }
    }
    // All of them came within a second.
    assert_eq!(checked, WRONG_SIGNATURES);
    assert_eq!(refused_unseen, 10_000 - WRONG_SIGNATURES);
    let mut judge = |now| of_mallory.verify(&mallory.verified, &good, &these, now);
    assert!(matches!(
        judge(NOW + 999),
        Err(NotProved::TooManyWrong { .. })
    ));
    assert_eq!(judge(NOW + 1_000), Ok(()));
    // A clock that is set back forgives nothing and refuses nothing more.
    assert_eq!(judge(NOW - 5_000), Ok(()));
}

#[test]
fn a_batch_that_comes_message_by_message_costs_one_signature() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let these = statements(MAX_BATCH);
    let batch = author.signer.sign(these.clone(), NOW).unwrap();
    let mut verifier = verifier(&platform);
    let mut judge = |place: usize, proof: &Proof| {
        verifier.verify(&author.verified, proof, &these[place..place + 1], NOW)
    };
    assert_eq!(judge(0, &batch.proof(&(0..1)).unwrap()), Ok(()));
    for place in 1..MAX_BATCH {
        let proof = batch.proof(&(place..place + 1)).unwrap();
        assert_eq!(judge(place, &proof), Ok(()));
        // A remembered root does not make another signature good.
        let mut bytes = Vec::new();
        proof.encode(&mut bytes);
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
        let signer = Signer::new(author.credential.clone(), level);
        assert_eq!(signer.unwrap_err(), SignError::Level(level));
    }
    let process =
        Identity::process(&platform.name, "node-1", ProcessId::random().unwrap()).unwrap();
    let (credential, verified) = platform.certified(&process);
    assert_eq!(
        Signer::new(credential, SecurityLevel::Signed).unwrap_err(),
        SignError::NotAnAgent(process)
    );
    let proof = author
        .signer
        .sign(statements(1), NOW)
        .unwrap()
        .proof(&(0..1))
        .unwrap();
    assert!(matches!(
        verifier(&platform).verify(&verified, &proof, &statements(1), NOW),
        Err(NotProved::NotAnAuthor { .. })
    ));
    for count in [0, MAX_BATCH + 1] {
        let refused = author.signer.sign(vec![[0; 32]; count], NOW);
        assert!(matches!(refused, Err(SignError::Count { .. })));
    }
    let batch = author.signer.sign(statements(2), NOW).unwrap();
    for places in [0..0, 0..3, 2..3] {
        assert!(matches!(
            batch.proof(&places),
            Err(SignError::NotInBatch(_))
        ));
    }
}
