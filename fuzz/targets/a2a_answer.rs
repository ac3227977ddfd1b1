//! Any card, with any signatures, and any answers of an agent of others: what is new in them is about one task, and ends once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_a2a::neighbour::answer::{Told, body, json, response};
use sealbus_a2a::neighbour::card::{Card, parse};
use sealbus_a2a::neighbour::fault::rest_fault;
use sealbus_a2a::neighbour::signature::{Signers, is_signed, published_at};
use sealbus_a2a::neighbour::task::{Following, News};
use sealbus_seal::Timestamp;

fuzz_target!(|bytes: &[u8]| {
    let from = "https://agents.example/.well-known/agent-card.json";
    let from = from.parse().expect("an address");
    if let Ok(found) = parse(bytes) {
        // Nobody has the private half of this key of RFC 8037.
        let keys =
            br#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let signers = Signers::keys(keys).expect("a key");
        if is_signed(&found) {
            assert!(signers.verify(&found, Timestamp::default()).is_err());
        }
        if let Some(at) = published_at(&found, &from) {
            assert!(
                at.host()
                    .is_some_and(|host| host.eq_ignore_ascii_case("agents.example"))
            );
        }
    }
    let found = parse(bytes).unwrap_or_default();
    if let Ok(card) = Card::read(found, &from, &["other.example".to_owned()]) {
        let url = card.interface.url.to_ascii_lowercase();
        assert!(
            url.starts_with("https://agents.example") || url.starts_with("https://other.example"),
            "{url}"
        );
        assert!(card.skills.len() <= 64);
    }
    let _ = rest_fault(500, bytes);
    let mut following = Following::default();
    let mut ends = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(told) = json(line) else { continue };
        let _ = response(told.clone(), "1");
        let _ = Told::task(told.clone());
        let Ok(told) = Told::read(told) else { continue };
        for news in following.take(told).into_iter().flatten() {
            match news {
                News::Part(part) => drop(body(vec![part])),
                News::Ended(_) => ends += 1,
                _ => {}
            }
        }
    }
    assert!(ends <= 1);
});
