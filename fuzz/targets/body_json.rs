//! Any JSON as the body of a message: an error with a place, or a value that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus::body::{Json, WithBody};
use sealbus::{AclMessage, Performative};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Shape {
    Circle { radius: f64 },
    Group { members: Vec<Shape> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    title: String,
    count: u8,
    price: Option<f64>,
    shapes: Vec<Shape>,
    whatever: Option<serde_json::Value>,
}

fuzz_target!(|bytes: &[u8]| {
    let message = AclMessage::new(Performative::Request).with_content(bytes);
    match message.body::<Json<Order>>() {
        Ok(order) => {
            let again = AclMessage::new(Performative::Request).with_body(&order);
            assert_eq!(again.and_then(|message| message.body()), Ok(order));
        }
        Err(error) => {
            assert!(error.place().starts_with('$'));
            assert!(error.to_string().len() < 2000);
        }
    }
});
