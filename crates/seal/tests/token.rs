//! Tokens: one word, spent once, in time, by the intended user.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use sealbus_seal::token::{Purpose, Secret, Token, TokenBook, TokenError};
use sealbus_seal::{Fingerprint, Name, PlatformName, Timestamp};

const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);
const MINUTE: Duration = Duration::from_secs(60);

fn node(name: &str) -> Name {
    Name::new("node", name).unwrap()
}

fn token(purpose: Purpose, name: Option<&str>) -> Token {
    Token::new(
        purpose,
        PlatformName::new("factory").unwrap(),
        name.map(node),
        vec![
            "10.0.0.1:7117".into(),
            "[::1]:7117".into(),
            "master.example:7117".into(),
        ],
        Fingerprint::from_bytes([7; 32]),
    )
    .unwrap()
}

#[test]
fn a_token_is_one_word_and_back() {
    for purpose in [Purpose::Join, Purpose::Ticket, Purpose::Master] {
        for name in [None, Some("node-1")] {
            let token = token(purpose, name);
            let word = token.to_string();
            assert!(word.bytes().all(|byte| byte.is_ascii_graphic()));
            let prefix = match purpose {
                Purpose::Join => "sealbus-join:",
                Purpose::Ticket => "sealbus-ticket:",
                Purpose::Master => "sealbus-master:",
            };
            assert!(word.starts_with(prefix));
            assert_eq!(Token::parse(purpose, &format!(" {word}\n")).unwrap(), token);
        }
    }
}

#[test]
fn wrong_words_are_refused() {
    let join = token(Purpose::Join, None).to_string();
    assert_eq!(
        Token::parse(Purpose::Ticket, &join),
        Err(TokenError::WrongPurpose {
            expected: Purpose::Ticket,
            found: Purpose::Join
        })
    );
    for cut in 0..join.len() {
        // A cut at an address leaves a shorter list. Every other cut is noticed.
        if let Ok(token) = join[..cut].parse::<Token>() {
            assert!(token.addresses().len() < 3);
        }
    }
    assert!("hunter2".parse::<Token>().is_err());
    assert!("sealbus-join:".parse::<Token>().is_err());
    assert!(
        format!("sealbus-join:{}", "A".repeat(9000))
            .parse::<Token>()
            .is_err()
    );
    let addresses = |addresses: &[&str]| {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        let platform = PlatformName::new("factory").unwrap();
        Token::new(
            Purpose::Join,
            platform,
            None,
            addresses,
            Fingerprint::from_bytes([0; 32]),
        )
    };
    assert!(addresses(&["a:1"]).is_ok());
    for bad in [
        &[][..],
        &["a"],
        &[":1"],
        &["a:b"],
        &["a:99999"],
        &["a b:1"],
        &["a:1"; 9],
    ] {
        assert!(addresses(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(body in "[A-Za-z0-9_-]{0,400}") {
        let _ = format!("sealbus-ticket:{body}").parse::<Token>();
    }

    #[test]
    fn a_book_lets_each_secret_in_once(
        attempts in prop::collection::vec((0..3usize, 0..3usize, 0..200u64), 1..60)
    ) {
        let mut book = TokenBook::new();
        let tokens: Vec<_> = (0..2).map(|_| token(Purpose::Join, None)).collect();
        for token in &tokens {
            book.enter(token, MINUTE, NOW).unwrap();
        }
        let unknown = token(Purpose::Join, None);
        let mut spent = [false; 2];
        let mut now = NOW;
        for (which, user, wait) in attempts {
            now = now.plus(Duration::from_secs(wait / 20));
            let secret = tokens.get(which).unwrap_or(&unknown).secret();
            let result = book.redeem(Purpose::Join, secret, &node(&format!("n{user}")), now);
            let expired = now > NOW.plus(MINUTE);
            match spent.get_mut(which) {
                None => prop_assert_eq!(result, Err(TokenError::Unknown(Purpose::Join))),
                Some(true) => {
                    let redeemed = matches!(result, Err(TokenError::Redeemed { .. }));
                    prop_assert!(redeemed);
                }
                Some(_) if expired => {
                    let expired = matches!(result, Err(TokenError::Expired { .. }));
                    prop_assert!(expired);
                }
                Some(spent) => {
                    prop_assert!(result.is_ok());
                    *spent = true;
                }
            }
        }
    }
}

#[test]
fn each_refusal_has_its_own_reason() {
    let mut book = TokenBook::new();
    let bound = token(Purpose::Join, Some("node-1"));
    let ticket = token(Purpose::Ticket, None);
    let late = token(Purpose::Join, None);
    book.enter(&bound, MINUTE, NOW).unwrap();
    book.enter(&ticket, MINUTE, NOW).unwrap();
    book.enter(&late, Duration::ZERO, NOW).unwrap();

    let mut redeem = |token: &Token, purpose, name: &str, now| {
        book.redeem(purpose, token.secret(), &node(name), now)
            .map(drop)
    };
    let after = NOW.plus(Duration::from_secs(1));
    assert!(matches!(
        redeem(&bound, Purpose::Join, "node-2", after),
        Err(TokenError::WrongName { .. })
    ));
    assert_eq!(redeem(&bound, Purpose::Join, "node-1", after), Ok(()));
    let error = redeem(&bound, Purpose::Join, "node-1", after).unwrap_err();
    assert!(error.to_string().contains("used already"), "{error}");
    assert!(matches!(
        redeem(&ticket, Purpose::Join, "a", after),
        Err(TokenError::WrongPurpose { .. })
    ));
    assert!(matches!(
        redeem(&late, Purpose::Join, "a", after),
        Err(TokenError::Expired { .. })
    ));
    let unknown = token(Purpose::Join, None);
    assert_eq!(
        redeem(&unknown, Purpose::Join, "a", after),
        Err(TokenError::Unknown(Purpose::Join))
    );
}

#[test]
fn a_book_survives_storage_keeps_no_secret_and_forgets() {
    let mut book = TokenBook::new();
    let token = token(Purpose::Join, None);
    let hash = book.enter(&token, MINUTE, NOW).unwrap();
    let stored = serde_json::to_string(&(hash, book.entry(&hash).unwrap())).unwrap();
    let secret = serde_json::to_string(token.secret()).unwrap();
    assert!(!stored.contains(secret.trim_matches('"')));
    let entry = serde_json::from_str(&stored).unwrap();
    let mut book = TokenBook::from_entries([entry]);
    let redeemed = book.redeem(Purpose::Join, token.secret(), &node("n"), NOW);
    assert_eq!(redeemed, Ok(hash));
    assert!(
        book.redeem(Purpose::Join, token.secret(), &node("n"), NOW)
            .is_err()
    );
    book.restore(&hash);
    assert!(
        book.redeem(Purpose::Join, token.secret(), &node("n"), NOW)
            .is_ok()
    );
    assert!(book.forget(NOW.plus(MINUTE)).is_empty());
    assert_eq!(
        book.forget(NOW.plus(Duration::from_secs(2 * 86_400))),
        [hash]
    );
    assert_eq!(
        book.redeem(Purpose::Join, token.secret(), &node("n"), NOW),
        Err(TokenError::Unknown(Purpose::Join))
    );
}

#[test]
fn a_book_is_bounded() {
    let mut book = TokenBook::new();
    let enter = |book: &mut TokenBook, now| {
        let secret = Secret::random().unwrap();
        book.enter_secret(Purpose::Ticket, None, &secret, MINUTE, now)
    };
    for _ in 0..sealbus_seal::token::MOST_TOKENS {
        enter(&mut book, NOW).unwrap();
    }
    assert_eq!(enter(&mut book, NOW), Err(TokenError::Full));
    assert!(enter(&mut book, NOW.plus(Duration::from_secs(2 * 86_400))).is_ok());
}

#[test]
fn secrets_are_not_shown() {
    let token = token(Purpose::Join, None);
    let shown = format!("{token:?} {:?}", token.secret());
    assert!(
        shown.contains("Secret(..)")
            && !shown.contains(&format!("{:?}", token.secret().as_bytes()))
    );
    let word = serde_json::to_string(token.secret()).unwrap();
    assert_eq!(
        &serde_json::from_str::<Secret>(&word).unwrap(),
        token.secret()
    );
    assert!("short".parse::<Secret>().is_err());
}
