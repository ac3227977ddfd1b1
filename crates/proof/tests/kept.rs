//! Evidence that is kept beside a message, and checked long after.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use sealbus_proof::{
    Author, Evidence, NotAnAuthor, NotEvident, NotLogged, NotProved, ProvedAuthor, ProvedBatch,
    Statement, Verifier, WRONG_SIGNATURES, sign_together,
};
use sealbus_seal::{CertificateChain, SecurityLevel, Timestamp};
use support::{NOW, Said, TestPlatform, statements};

const LEVEL: SecurityLevel = SecurityLevel::Signed;

#[test]
fn evidence_is_believed_after_the_certificate_has_ended() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let said = Statement::direct("seller-1@factory", b"hello");
    let kept = author.signer.sign_one(said, NOW).unwrap();
    let years_later = NOW + 20 * 365 * 86_400_000;
    let evidence = Evidence::decode(&kept, said, LEVEL, &platform.trust, years_later).unwrap();
    assert_eq!(evidence.author(), &author.verified);
    assert_eq!(evidence.statement(), &said);
    let mut again = Vec::new();
    evidence.encode(&mut again).unwrap();
    assert_eq!(again, kept);
    // A statement of a batch is kept by itself.
    let these = statements(7);
    let other = platform.author("buyer-2");
    let said = [
        (&other.signer, statements(2)),
        (&author.signer, these.clone()),
    ];
    let said = Said::of(&said, NOW).unwrap();
    let then = Timestamp::from_unix_seconds(NOW / 1000);
    let whole = Author::verify(evidence.chain().clone(), &platform.trust, then).unwrap();
    let believed = vec![ProvedAuthor {
        author: whole,
        delegation: author.signer.delegation().clone(),
        entry: said.entries[1],
        place: 1,
        start: 2,
    }];
    let all = [statements(2), these.clone()].concat();
    let batch = ProvedBatch::new(said.batch, all, believed);
    for (place, said) in these.into_iter().enumerate() {
        let mut kept = Vec::new();
        batch.evidence(0, place).unwrap().encode(&mut kept).unwrap();
        let evidence = Evidence::decode(&kept, said, LEVEL, &platform.trust, NOW).unwrap();
        // The number 0 was that of the message that was signed alone.
        assert_eq!(evidence.proof().unwrap().number(), 1 + place as u64);
    }
}

#[test]
fn what_several_authors_sign_together_is_believed_one_by_one() {
    let platform = TestPlatform::new("factory");
    let authors = [platform.author("buyer-1"), platform.author("buyer-2")];
    let said = [statements(5), statements(2)];
    let signers = [
        (&authors[0].signer, &*said[0]),
        (&authors[1].signer, &*said[1]),
    ];
    let kept = sign_together(&signers, NOW).unwrap();
    let mut verifier = Verifier::new(platform.trust.platform().clone(), LEVEL);
    let mut decode = |bytes: &[u8], statement| {
        Evidence::decode_with(&mut verifier, bytes, statement, &platform.trust, NOW)
    };
    let places = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)];
    assert_eq!(kept.len(), places.len());
    for (bytes, (author, place)) in kept.iter().zip(places) {
        let evidence = decode(bytes, said[author][place]).unwrap();
        assert_eq!(evidence.author(), &authors[author].verified);
        assert_eq!((evidence.number(), evidence.time()), (place as u64, NOW));
    }
    // It proves nothing else, and a source that keeps trying is not looked at any more.
    for _ in 0..WRONG_SIGNATURES {
        let error = decode(&kept[0], said[0][1]).unwrap_err();
        let NotEvident::NotProved(NotProved::WrongSignature) = error else {
            panic!("{error}");
        };
    }
    let error = decode(&kept[0], said[0][0]).unwrap_err();
    let NotEvident::NotProved(NotProved::TooManyWrong) = error else {
        panic!("{error}");
    };
}

#[test]
fn a_source_that_shows_wrong_certificates_is_not_looked_at_any_more() {
    let platform = TestPlatform::new("factory");
    let foreign = TestPlatform::new("factory").author("buyer-1");
    let statement = Statement::direct("seller-1@factory", b"hello");
    let kept = foreign.signer.sign_one(statement, NOW).unwrap();
    let mut verifier = Verifier::new(platform.trust.platform().clone(), LEVEL);
    let mut decode =
        || Evidence::decode_with(&mut verifier, &kept, statement, &platform.trust, NOW);
    for _ in 0..WRONG_SIGNATURES {
        let NotEvident::Author(_) = decode().unwrap_err() else {
            panic!("a foreign author is believed");
        };
    }
    let NotEvident::NotProved(NotProved::TooManyWrong) = decode().unwrap_err() else {
        panic!("it is looked at again");
    };
}

#[test]
fn evidence_in_which_a_bit_was_changed_is_not_believed() {
    let platform = TestPlatform::new("factory");
    let said = Statement::direct("seller-1@factory", b"hello");
    let kept = platform.author("buyer-1").signer.sign_one(said, NOW);
    let kept = kept.unwrap();
    let believed = |bytes: &[u8]| Evidence::decode(bytes, said, LEVEL, &platform.trust, NOW);
    assert!(believed(&kept).is_ok());
    for bit in 0..kept.len() * 8 {
        let mut changed = kept.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(believed(&changed).is_err(), "bit {bit}");
    }
    for length in 0..kept.len() {
        assert!(believed(&kept[..length]).is_err());
    }
    assert!(believed(&[&kept[..], &[0]].concat()).is_err());
}

#[test]
fn evidence_of_a_certificate_that_the_log_lacks_is_not_believed() {
    let platform = TestPlatform::new("factory");
    let author = platform.author("buyer-1");
    let said = Statement::direct("seller-1@factory", b"hello");
    let kept = author.signer.sign_one(said, NOW).unwrap();
    let (chain, proof) = CertificateChain::decode_prefix(&kept).unwrap();
    let mut stripped = Vec::new();
    chain.without_inclusion().encode(&mut stripped);
    stripped.extend_from_slice(proof);
    let judged = Evidence::decode(&stripped, said, LEVEL, &platform.trust, NOW);
    let identity = author.verified.identity().clone();
    let wrong = NotAnAuthor::NotLogged(NotLogged::NoProof(identity));
    assert_eq!(judged.unwrap_err(), NotEvident::Author(wrong));
}

#[test]
fn evidence_holds_for_its_message_receiver_time_level_and_platform_only() {
    let (platform, elsewhere) = (TestPlatform::new("factory"), TestPlatform::new("factory"));
    let author = platform.author("buyer-1");
    let said = Statement::direct("seller-1@factory", b"hello");
    let kept = author.signer.sign_one(said, NOW).unwrap();
    for other in [
        Statement::direct("seller-2@factory", b"hello"),
        Statement::direct("seller-1@factory", b"hello!"),
    ] {
        let judged = Evidence::decode(&kept, other, LEVEL, &platform.trust, NOW);
        let wrong = NotProved::WrongSignature;
        assert_eq!(judged.unwrap_err(), NotEvident::NotProved(wrong));
    }
    let at_sealed = Evidence::decode(&kept, said, SecurityLevel::Sealed, &platform.trust, NOW);
    assert!(matches!(
        at_sealed,
        Err(NotEvident::NotProved(NotProved::OtherLevel { .. }))
    ));
    // A platform of the same name that has another root.
    let judged = Evidence::decode(&kept, said, LEVEL, &elsewhere.trust, NOW);
    assert!(matches!(judged, Err(NotEvident::Author(_))));
    // A time before or after that of the certificate.
    for time in [
        NOW - Duration::from_secs(86_400 * 365 * 30).as_millis() as u64,
        NOW + Duration::from_secs(86_400 * 365 * 30).as_millis() as u64,
    ] {
        let kept = author.signer.sign_one(said, time).unwrap();
        let judged = Evidence::decode(&kept, said, LEVEL, &platform.trust, u64::MAX);
        assert!(matches!(judged, Err(NotEvident::Author(_))));
    }
}
