//! Messages sealed to an agent, and the statements that say which key belongs to the agent.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::LazyLock;

use proptest::prelude::*;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::encryption::{
    CertifiedEncryptionKey, Commitment, Encapsulation, EncryptionError, EncryptionKey,
    EncryptionPublicKey, Opening, Salt, Salts, Sealing, SharedSecret,
};
use sealbus_seal::{Identity, Validity, VerifyError};
use support::{HOUR, TestPlatform};

const INFO: &[u8] = b"buyer-1@factory to seller-1@factory";

static KEY: LazyLock<EncryptionKey> = LazyLock::new(|| EncryptionKey::generate().unwrap());

fn sealed(sealing: &mut Sealing, associated: &[u8], message: &[u8]) -> Vec<u8> {
    let mut sealed = message.to_vec();
    sealing.seal(associated, &mut sealed).unwrap();
    assert_eq!(sealed.len(), message.len() + Sealing::ADDED);
    sealed
}

#[test]
fn only_the_key_that_was_meant_opens_a_message() {
    let other = EncryptionKey::generate().unwrap();
    let (encapsulation, mut sealing) = Sealing::begin(KEY.public(), INFO).unwrap();
    let message = sealed(&mut sealing, b"", b"the price is 7");
    let open = |key: &EncryptionKey, info: &[u8]| {
        let mut opening = Opening::begin(key, &encapsulation, info)?;
        opening.open(b"", &mut message.clone()).map(<[u8]>::to_vec)
    };
    assert_eq!(open(&KEY, INFO).unwrap(), b"the price is 7");
    let not_opened = Err(EncryptionError::NotOpened { number: 0 });
    assert_eq!(open(&other, INFO), not_opened);
    assert_eq!(open(&KEY, b"somebody else"), not_opened);
}

#[test]
fn each_secret_is_new() {
    let (first, mut one) = Sealing::begin(KEY.public(), INFO).unwrap();
    let (second, mut two) = Sealing::begin(KEY.public(), INFO).unwrap();
    assert_ne!(first, second);
    assert_ne!(
        sealed(&mut one, b"", b"the same"),
        sealed(&mut two, b"", b"the same")
    );
}

#[test]
fn keys_that_give_no_secret_are_refused() {
    let good = KEY.public().as_bytes();
    for length in [0, good.len() - 1, good.len() + 1] {
        let key = EncryptionPublicKey::from_bytes(&vec![1; length]);
        assert_eq!(key, Err(EncryptionError::KeyLength(length)));
        let wrong = length.min(1000);
        assert_eq!(
            Encapsulation::from_bytes(&vec![1; wrong]),
            Err(EncryptionError::EncapsulationLength(wrong))
        );
    }
    // A point of low order: everybody knows its secret.
    let mut low = good.to_vec();
    let curve = low.len() - 32;
    low[curve..].fill(0);
    // Coefficients that exceed the modulus of ML-KEM (FIPS 203, section 7.2).
    let mut beyond = good.to_vec();
    beyond[..1152].fill(0xff);
    for key in [low, beyond] {
        let key = EncryptionPublicKey::from_bytes(&key).unwrap();
        assert_eq!(
            Sealing::begin(&key, INFO).map(|_| ()),
            Err(EncryptionError::UnusableKey)
        );
    }
    let (encapsulation, _) = Sealing::begin(KEY.public(), INFO).unwrap();
    let mut low = encapsulation.as_bytes().to_vec();
    let curve = low.len() - 32;
    low[curve..].fill(0);
    let low = Encapsulation::from_bytes(&low).unwrap();
    assert_eq!(
        Opening::begin(&KEY, &low, INFO).map(|_| ()),
        Err(EncryptionError::NotEncapsulated)
    );
}

#[test]
fn a_key_is_believed_of_the_agent_that_signed_it_alone() {
    let platform = TestPlatform::new("factory");
    let (alice, mallory) = (platform.agent("alice"), platform.agent("mallory"));
    let credential = platform.credential(&alice);
    let stated = CertifiedEncryptionKey::sign(&credential, KEY.public()).unwrap();
    let verify = |stated: &CertifiedEncryptionKey, agent, now| {
        stated.verify(agent, &platform.trust, now).cloned()
    };
    assert_eq!(
        verify(&stated, &alice, platform.now).unwrap(),
        *KEY.public()
    );
    assert_eq!(
        verify(&stated, &mallory, platform.now),
        Err(EncryptionError::AnotherAgent {
            wanted: mallory.clone(),
            found: alice.clone(),
        })
    );

    // A directory puts its own key in place of the agent's.
    let mut wire = Vec::new();
    stated.encode(&mut wire);
    let own = EncryptionKey::generate().unwrap();
    let key = wire.len() - 64 - own.public().as_bytes().len();
    wire[key..][..own.public().as_bytes().len()].copy_from_slice(own.public().as_bytes());
    let swapped = CertifiedEncryptionKey::decode(&wire).unwrap();
    assert_eq!(
        verify(&swapped, &alice, platform.now),
        Err(EncryptionError::NotSigned {
            identity: alice.clone()
        })
    );

    // Another agent's signature under the agent's certificate.
    let foreign = platform.credential(&mallory);
    let mut signature = Vec::new();
    CertifiedEncryptionKey::sign(&foreign, own.public())
        .unwrap()
        .encode(&mut signature);
    let signature = &signature[signature.len() - 64..];
    let end = wire.len() - 64;
    wire[end..].copy_from_slice(signature);
    let forged = CertifiedEncryptionKey::decode(&wire).unwrap();
    assert!(matches!(
        verify(&forged, &alice, platform.now),
        Err(EncryptionError::NotSigned { .. })
    ));

    assert!(matches!(
        verify(&stated, &alice, platform.now.plus(2 * HOUR)),
        Err(EncryptionError::NotVerified(VerifyError::Expired { .. }))
    ));
    let elsewhere = TestPlatform::new("factory");
    assert!(matches!(
        stated.verify(&alice, &elsewhere.trust, platform.now),
        Err(EncryptionError::NotVerified(_))
    ));
}

#[test]
fn nodes_and_revoked_agents_state_no_keys() {
    let platform = TestPlatform::new("factory");
    for identity in [platform.node("node-1"), platform.process("node-1")] {
        let credential = platform.credential(&identity);
        let stated = CertifiedEncryptionKey::sign(&credential, KEY.public()).unwrap();
        assert!(matches!(
            stated.verify(&identity, &platform.trust, platform.now),
            Err(EncryptionError::NotVerified(VerifyError::WrongKind { .. }))
        ));
    }
    let alice = platform.agent("alice");
    let stated = CertifiedEncryptionKey::sign(&platform.credential(&alice), KEY.public()).unwrap();
    deny(&platform, &alice, Reason::Killed);
    assert!(matches!(
        stated.verify(&alice, &platform.trust, platform.now.plus(HOUR / 60)),
        Err(EncryptionError::NotVerified(VerifyError::Revoked { .. }))
    ));
}

#[test]
fn a_statement_is_for_one_certificate() {
    let platform = TestPlatform::new("factory");
    let alice = platform.agent("alice");
    let (key, first) = platform.issue(&alice, Validity::starting(platform.now, HOUR));
    let request = support::request(&key);
    let grant = sealbus_seal::issuance::Grant::by_operator(alice.clone(), support::ADDRESS);
    let second = platform
        .authority
        .issue(&grant, &request, Validity::starting(platform.now, HOUR))
        .unwrap();
    let credential = sealbus_seal::Credential::new(key, first.chain).unwrap();
    let mut wire = Vec::new();
    let stated = CertifiedEncryptionKey::sign(&credential, KEY.public()).unwrap();
    stated.encode(&mut wire);
    let mut first_chain = Vec::new();
    credential.chain().encode(&mut first_chain);
    let mut moved = Vec::new();
    second.chain.encode(&mut moved);
    moved.extend_from_slice(&wire[first_chain.len()..]);
    let moved = CertifiedEncryptionKey::decode(&moved).unwrap();
    assert_eq!(
        moved.verify(&alice, &platform.trust, platform.now),
        Err(EncryptionError::NotSigned { identity: alice })
    );
}

#[test]
fn wire_form_round_trips_and_every_change_is_noticed() {
    let platform = TestPlatform::new("factory");
    let alice = platform.agent("alice");
    let stated = CertifiedEncryptionKey::sign(&platform.credential(&alice), KEY.public()).unwrap();
    let mut wire = Vec::new();
    stated.encode(&mut wire);
    assert_eq!(CertifiedEncryptionKey::decode(&wire).unwrap(), stated);
    for cut in 0..wire.len() {
        assert!(CertifiedEncryptionKey::decode(&wire[..cut]).is_err());
    }
    wire.push(0);
    assert_eq!(
        CertifiedEncryptionKey::decode(&wire),
        Err(EncryptionError::StatementLength)
    );
    wire.pop();
    let of_key_and_signature = wire.len() - 64 - KEY.public().as_bytes().len();
    for position in of_key_and_signature..wire.len() {
        let mut altered = wire.clone();
        altered[position] ^= 0x40;
        let believed = CertifiedEncryptionKey::decode(&altered)
            .is_ok_and(|stated| stated.verify(&alice, &platform.trust, platform.now).is_ok());
        assert!(!believed, "byte {position}");
    }
}

/// An act of an attacker with the sealed messages on their way.
#[derive(Clone, Debug)]
enum Act {
    /// Hands over the message with this number.
    Pass(usize),
    /// Hands it over with a bit changed.
    Change(usize, usize),
    /// Hands it over with other associated data.
    Relabel(usize),
    /// Hands it over without its end.
    Cut(usize, usize),
    /// Hands over bytes of the attacker's own.
    Inject(Vec<u8>),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..8_usize).prop_map(Act::Pass),
        1 => (0..8_usize, any::<usize>()).prop_map(|(which, bit)| Act::Change(which, bit)),
        1 => (0..8_usize).prop_map(Act::Relabel),
        1 => (0..8_usize, any::<usize>()).prop_map(|(which, length)| Act::Cut(which, length)),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Act::Inject),
    ];
    prop::collection::vec(act, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever an attacker changes, drops, repeats, reorders and injects, the receiver reads nothing but a beginning
    /// of the sealed messages. The right message can always be read when it finally comes.
    #[test]
    fn the_receiver_reads_what_was_sealed_in_its_order(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 8),
        acts in acts(),
    ) {
        let (encapsulation, mut sealing) = Sealing::begin(KEY.public(), INFO).unwrap();
        let sent: Vec<_> = messages
            .iter()
            .map(|message| sealed(&mut sealing, b"label", message))
            .collect();
        let mut opening = Opening::begin(&KEY, &encapsulation, INFO).unwrap();
        let mut read = 0;
        for act in acts {
            let (mut bytes, label, right) = match act {
                Act::Pass(which) => (sent[which].clone(), "label", which == read),
                Act::Change(which, bit) => {
                    let mut bytes = sent[which].clone();
                    let bit = bit % (bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    (bytes, "label", false)
                }
                Act::Relabel(which) => (sent[which].clone(), "other", false),
                Act::Cut(which, length) => {
                    let mut bytes = sent[which].clone();
                    bytes.truncate(length % bytes.len());
                    (bytes, "label", false)
                }
                Act::Inject(bytes) => (bytes, "label", false),
            };
            match opening.open(label.as_bytes(), &mut bytes) {
                Ok(opened) => {
                    prop_assert!(right);
                    prop_assert_eq!(opened, &messages[read][..]);
                    read += 1;
                }
                Err(error) => {
                    prop_assert!(!right);
                    prop_assert_eq!(error, EncryptionError::NotOpened { number: read as u64 });
                }
            }
        }
        for (message, sent) in messages.iter().zip(&sent).skip(read) {
            let mut bytes = sent.clone();
            prop_assert_eq!(opening.open(b"label", &mut bytes).unwrap(), &message[..]);
        }
    }

    /// A changed encapsulation is refused, or leads to a secret under which nothing opens.
    #[test]
    fn a_changed_encapsulation_opens_nothing(bit in any::<prop::sample::Index>()) {
        let (encapsulation, mut sealing) = Sealing::begin(KEY.public(), INFO).unwrap();
        let mut message = sealed(&mut sealing, b"", b"the price is 7");
        let mut bytes = encapsulation.as_bytes().to_vec();
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let changed = Encapsulation::from_bytes(&bytes).unwrap();
        let opened = Opening::begin(&KEY, &changed, INFO)
            .and_then(|mut opening| opening.open(b"", &mut message).map(<[u8]>::to_vec));
        prop_assert!(opened.is_err(), "bit {bit}");
    }
}

#[test]
fn a_key_from_a_file_opens_what_was_sealed_to_it() {
    let bytes = KEY.to_bytes().unwrap();
    let read = EncryptionKey::from_bytes(&bytes).unwrap();
    assert_eq!(read.public(), KEY.public());
    assert_eq!(read.public().id(), KEY.public().id());
    let (encapsulation, mut sealing) = Sealing::begin(KEY.public(), INFO).unwrap();
    let first = sealed(&mut sealing, b"", b"one");
    assert_eq!(sealing.number(), 1);
    let second = sealed(&mut sealing, b"", b"two");
    let opening = Opening::begin(&read, &encapsulation, INFO).unwrap();
    let again = Opening::with_secret(opening.secret().clone(), INFO).unwrap();
    assert_eq!(opening.export(b"salts"), sealing.export(b"salts"));
    assert_ne!(opening.export(b"salts"), opening.export(b"another"));
    for opening in [&opening, &again] {
        for (number, message, said) in [(1, &second, b"two"), (0, &first, b"one")] {
            let opened = opening
                .open_at(number, b"", &mut message.clone())
                .map(<[u8]>::to_vec);
            assert_eq!(opened.unwrap(), said);
        }
    }
    for length in [0, 32, 2400, bytes.len() - 1, bytes.len() + 1] {
        let mut cut = bytes.to_vec();
        cut.resize(length, 0);
        assert_eq!(
            EncryptionKey::from_bytes(&cut).map(|_| ()),
            Err(EncryptionError::NotAKey)
        );
    }
}

#[test]
fn the_salts_under_a_secret_follow_from_their_numbers() {
    let salts = Salts::new(SharedSecret::new([7; 32]));
    let [first, second] = [0, 1].map(|number| salts.of(number));
    assert_ne!(first, second);
    assert_eq!(first, Salts::new(SharedSecret::new([7; 32])).of(0));
    assert_ne!(first, Salts::new(SharedSecret::new([8; 32])).of(0));
    let known = [
        0xf2, 0x22, 0xa2, 0x0b, 0x21, 0x92, 0x7d, 0x88, 0xe7, 0x23, 0x77, 0x03, 0x1f, 0x01, 0xef,
        0xe0, 0xde, 0x43, 0x96, 0xc6, 0x7e, 0xa9, 0x44, 0xd8, 0x2d, 0xbf, 0x80, 0x12, 0x6f, 0xe1,
        0x1e, 0x6d,
    ];
    assert_eq!(second.as_bytes(), &known);
}

#[test]
fn a_commitment_fits_one_message_and_one_salt() {
    let (salt, other) = (Salt::random().unwrap(), Salt::random().unwrap());
    let commitment = Commitment::new(&salt, b"the price is 7");
    assert_eq!(commitment, Commitment::new(&salt, b"the price is 7"));
    assert_ne!(commitment, Commitment::new(&salt, b"the price is 8"));
    assert_ne!(commitment, Commitment::new(&other, b"the price is 7"));
    // The pieces of a message count as the message, however long it is.
    for length in [0, 1, 400, 457, 458, 459, 3000] {
        let message = vec![7; length];
        let (first, rest) = message.split_at(length / 3);
        let whole = Commitment::new(&salt, &message);
        assert_eq!(whole, Commitment::to_pieces(&salt, &[first, b"", rest]));
        assert_ne!(whole, Commitment::to_pieces(&salt, &[first, b"8", rest]));
        let all = [&b"sealbus commitment v1\0"[..], salt.as_bytes(), &message].concat();
        let known = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &all);
        assert_eq!(whole.as_bytes(), known.as_ref());
    }
}

/// Denies the certificates of `agent` for this reason.
fn deny(platform: &TestPlatform, agent: &Identity, reason: Reason) {
    let mut list = DenyList::new(platform.authority.identity().clone());
    let denial = Denial {
        at: platform.now,
        reason,
    };
    list.deny_identity(agent.clone(), platform.now.plus(HOUR), denial)
        .unwrap();
    let list = list.sign(&platform.authority).unwrap().whole();
    platform.trust.apply_deny_list(&list, platform.now).unwrap();
}

#[test]
fn the_latest_key_of_an_absent_agent_is_good_for_messages_that_wait() {
    const DAY: u64 = 24;
    let platform = TestPlatform::new("factory");
    let alice = platform.agent("alice");
    let credential = platform.credential(&alice);
    let stated = CertifiedEncryptionKey::sign(&credential, KEY.public()).unwrap();
    let later = |hours: u64| platform.now.plus(HOUR * u32::try_from(hours).unwrap());
    let verify = |now| {
        stated
            .verify_for_waiting(&alice, &platform.trust, now)
            .map(|(key, _)| key.clone())
    };
    assert_eq!(verify(platform.now).unwrap(), *KEY.public());
    assert!(
        stated
            .verify(&alice, &platform.trust, later(3 * DAY))
            .is_err()
    );
    assert_eq!(verify(later(3 * DAY)).unwrap(), *KEY.public());
    assert_eq!(
        verify(later(32 * DAY)),
        Err(EncryptionError::TooOld {
            identity: alice.clone()
        })
    );
    let other = platform.agent("bob");
    assert!(matches!(
        stated.verify_for_waiting(&other, &platform.trust, platform.now),
        Err(EncryptionError::AnotherAgent { .. })
    ));
    let foreign = TestPlatform::new("factory");
    assert!(matches!(
        stated.verify_for_waiting(&alice, &foreign.trust, platform.now),
        Err(EncryptionError::NotVerified(_))
    ));
}

#[test]
fn a_key_of_an_agent_that_left_is_good_for_waiting_messages_and_that_of_a_revoked_one_for_none() {
    for (reason, is_good) in [
        (Reason::Ended, true),
        (Reason::Killed, true),
        (Reason::Moved, true),
        (Reason::ByOperator, false),
    ] {
        let platform = TestPlatform::new("factory");
        let alice = platform.agent("alice");
        let credential = platform.credential(&alice);
        let stated = CertifiedEncryptionKey::sign(&credential, KEY.public()).unwrap();
        deny(&platform, &alice, reason);
        let now = platform.now.plus(HOUR / 60);
        assert!(stated.verify(&alice, &platform.trust, now).is_err());
        let verified = stated.verify_for_waiting(&alice, &platform.trust, now);
        assert_eq!(verified.is_ok(), is_good, "{reason:?}");
    }
}
