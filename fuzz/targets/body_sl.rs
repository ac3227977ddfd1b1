//! Any SL as an action or a predicate of an ontology: an error with a place, or a value that is written and read back as
//! itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus::acl::{Aid, DateTime};
use sealbus::body::{Action, Body, Element, Predicate, WithBody};
use sealbus::{AclMessage, Performative};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Item {
    Book {
        title: String,
        price: f64,
        #[serde(default)]
        authors: Vec<String>,
        published: Option<DateTime>,
        signed: Option<bool>,
    },
    Box(Bundle),
    Nothing,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Bundle {
    items: Vec<Item>,
    count: i32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Sell {
    item: Item,
    buyer: Aid,
}

impl Element for Sell {
    const ONTOLOGY: &'static str = "trade";
}

fn check<B: Body + PartialEq + std::fmt::Debug>(message: &AclMessage) {
    match message.body::<B>() {
        // A body that cannot be written is an error too: the names of an agent may be too long, its resolvers too deep.
        Ok(body) => {
            if let Ok(again) = AclMessage::new(Performative::Request).with_body(&body) {
                assert_eq!(again.body(), Ok(body));
            }
        }
        Err(error) => {
            assert!(error.place().starts_with('$'));
            assert!(error.to_string().len() < 2000);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let message = AclMessage::new(Performative::Request).with_content(bytes);
    check::<Action<Sell>>(&message);
    check::<Predicate<Sell>>(&message);
});
