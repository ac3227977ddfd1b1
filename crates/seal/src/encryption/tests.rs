//! Known answers: those of RFC 9180 for the key schedule over X25519, and those of another implementation for the whole.

use aws_lc_rs::aead::{AES_128_GCM, CHACHA20_POLY1305};

use super::context::{EncryptionContext, Suite};
use super::*;

/// An instance of RFC 9180, appendix A, in mode base with X25519.
struct Known {
    suite: Suite,
    secret: &'static str,
    /// The numbers of messages, and their sealed forms.
    sealed: [(u64, &'static str); 6],
}

const INFO: &[u8] = b"Ode on a Grecian Urn";
const MESSAGE: &[u8] = b"Beauty is truth, truth beauty";

/// A.1.1: AES-128-GCM. A.2.1: ChaCha20-Poly1305.
const KNOWN: [Known; 2] = [
    Known {
        suite: Suite {
            numbers: [0x20, 1, 1],
            aead: &AES_128_GCM,
        },
        secret: "fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc",
        sealed: [
            (
                0,
                "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
            ),
            (
                1,
                "af2d7e9ac9ae7e270f46ba1f975be53c09f8d875bdc8535458c2494e8a6eab251c03d0c22a56b8ca42c2063b84",
            ),
            (
                2,
                "498dfcabd92e8acedc281e85af1cb4e3e31c7dc394a1ca20e173cb72516491588d96a19ad4a683518973dcc180",
            ),
            (
                4,
                "583bd32bc67a5994bb8ceaca813d369bca7b2a42408cddef5e22f880b631215a09fc0012bc69fccaa251c0246d",
            ),
            (
                255,
                "7175db9717964058640a3a11fb9007941a5d1757fda1a6935c805c21af32505bf106deefec4a49ac38d71c9e0a",
            ),
            (
                256,
                "957f9800542b0b8891badb026d79cc54597cb2d225b54c00c5238c25d05c30e3fbeda97d2e0e1aba483a2df9f2",
            ),
        ],
    },
    Known {
        suite: Suite {
            numbers: [0x20, 1, 3],
            aead: &CHACHA20_POLY1305,
        },
        secret: "0bbe78490412b4bbea4812666f7916932b828bba79942424abb65244930d69a7",
        sealed: [
            (
                0,
                "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
            ),
            (
                1,
                "6b53c051e4199c518de79594e1c4ab18b96f081549d45ce015be002090bb119e85285337cc95ba5f59992dc98c",
            ),
            (
                2,
                "71146bd6795ccc9c49ce25dda112a48f202ad220559502cef1f34271e0cb4b02b4f10ecac6f48c32f878fae86b",
            ),
            (
                4,
                "63357a2aa291f5a4e5f27db6baa2af8cf77427c7c1a909e0b37214dd47db122bb153495ff0b02e9e54a50dbe16",
            ),
            (
                255,
                "18ab939d63ddec9f6ac2b60d61d36a7375d2070c9b683861110757062c52b8880a5f6b3936da9cd6c23ef2a95c",
            ),
            (
                256,
                "7a4a13e9ef23978e2c520fd4d2e757514ae160cd0cd05e556ef692370ca53076214c0c40d4c728d6ed9e727a5b",
            ),
        ],
    },
];

fn secret_of<const LENGTH: usize>(digits: &str) -> [u8; LENGTH] {
    let bytes = HEXLOWER.decode(digits.as_bytes()).unwrap();
    bytes.try_into().unwrap()
}

#[test]
fn messages_are_sealed_as_the_rfc_says() {
    for known in KNOWN {
        let secret = SharedSecret::new(secret_of(known.secret));
        let mut sealing = EncryptionContext::new(&known.suite, &secret, INFO).unwrap();
        let mut opening = EncryptionContext::new(&known.suite, &secret, INFO).unwrap();
        let mut expected = known.sealed.iter().peekable();
        for number in 0..=256_u64 {
            let associated = format!("Count-{number}");
            let mut sealed = MESSAGE.to_vec();
            sealing.seal(associated.as_bytes(), &mut sealed).unwrap();
            if let Some((_, answer)) = expected.next_if(|(at, _)| *at == number) {
                assert_eq!(HEXLOWER.encode(&sealed), *answer, "{number}");
            }
            let opened = opening.open(associated.as_bytes(), &mut sealed).unwrap();
            assert_eq!(opened, MESSAGE);
        }
        assert!(expected.next().is_none());
    }
}

/// The bytes of a member of the file with another implementation's answers.
fn member(name: &str) -> Vec<u8> {
    let text = include_str!("known/hybrid.txt");
    let digits = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .unwrap();
    HEXLOWER.decode(digits.as_bytes()).unwrap()
}

#[test]
fn what_another_implementation_sealed_is_opened() {
    let expanded = member("lattice key");
    let lattice = DecapsulationKey::new(&ML_KEM_768, &expanded).unwrap();
    // The private key contains the public half (FIPS 203, section 7.1).
    let lattice_public = &expanded[1152..][..LATTICE_KEY];
    let curve = agreement::PrivateKey::from_private_key(&X25519, &member("curve key")).unwrap();
    let key = EncryptionKey::of(lattice, lattice_public, curve).unwrap();
    let encapsulation = Encapsulation::from_bytes(&member("encapsulation")).unwrap();
    let mut opening = Opening::begin(&key, &encapsulation, &member("info")).unwrap();
    let mut sealed = member("sealed");
    assert_eq!(opening.open(b"", &mut sealed).unwrap(), member("message"));
}

/// RFC 9180, appendix A.1.1.2.
#[test]
fn further_secrets_are_those_of_the_standard() {
    let Known { suite, secret, .. } = &KNOWN[0];
    let secret = SharedSecret::new(secret_of(secret));
    let messages = EncryptionContext::new(suite, &secret, INFO).unwrap();
    for (purpose, answer) in [
        (
            &b""[..],
            "3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee",
        ),
        (
            &[0],
            "2e8f0b54673c7029649d4eb9d5e33bf1872cf76d623ff164ac185da9e88c21a5",
        ),
        (
            b"TestContext",
            "e9e43065102c3836401bed8c3c3c75ae46be1639869391d62c61f1ec7af54931",
        ),
    ] {
        let exported = messages.export(suite, purpose);
        assert_eq!(HEXLOWER.encode(exported.as_slice()), answer);
    }
}

#[test]
fn a_secret_is_used_for_a_bounded_number_of_messages() {
    let suite = &KNOWN[0].suite;
    let mut sealing = EncryptionContext::new(suite, &SharedSecret::default(), INFO).unwrap();
    sealing.set_number(u64::MAX);
    let sealed = sealing.seal(b"", &mut MESSAGE.to_vec());
    assert_eq!(sealed, Err(EncryptionError::Exhausted));
}
