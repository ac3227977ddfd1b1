//! Messages and their parts through `serde`, and the equality of parts.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use sealbus_fipa::{
    AclMessage, Aid, AidRef, Content, DateTime, Expression, Limits, Performative, bitefficient,
    json,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn message() -> AclMessage {
    AclMessage::new(Performative::Propose)
        .with_sender(Aid::new("seller@factory").unwrap())
        .with_receiver(
            Aid::new("buyer@factory")
                .unwrap()
                .with_address("http://127.0.0.1:7778/acc")
                .with_resolver(Aid::new("ams@factory").unwrap()),
        )
        .with_conversation_id("12345E67")
        .with_reply_by(DateTime::from_unix_ms(1_700_000_000_000).unwrap())
        .with_user_defined("X-hops", 3)
        .with_content(b"\xff\0".as_slice())
}

#[track_caller]
fn through_serde<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
}

#[test]
fn messages_and_their_parts_pass_through_serde() {
    let message = message();
    through_serde(&message);
    through_serde(&message.receivers[0]);
    through_serde(&Performative::Cfp);
    through_serde(&Performative::from("whistle"));
    through_serde(&Content::from("text"));
    through_serde(&Content::from(vec![0, 255]));
    through_serde(&Expression::List(vec![
        Expression::from("word"),
        Expression::from("two words"),
        Expression::from(7),
    ]));
    through_serde(&message.reply_by.unwrap());
    assert!(serde_json::from_str::<Aid>(r#"{"name":""}"#).is_err());
    assert!(serde_json::from_str::<AclMessage>(r#"{"performative":""}"#).is_err());
}

#[test]
fn the_form_is_that_of_the_json_encoding() {
    let mut encoded = Vec::new();
    json::encode(&message(), &mut encoded).unwrap();
    assert_eq!(serde_json::to_vec(&message()).unwrap(), encoded);
}

#[test]
fn equal_are_agents_and_messages_of_which_all_parts_are() {
    let here = Aid::new("buyer@factory")
        .unwrap()
        .with_address("http://a/acc");
    let there = Aid::new("buyer@factory")
        .unwrap()
        .with_address("http://b/acc");
    let other = Aid::new("seller@factory")
        .unwrap()
        .with_address("http://a/acc");
    assert_ne!(here, there);
    assert_eq!(
        HashSet::from([here.clone(), there.clone(), here.clone()]).len(),
        2
    );
    assert!(here.names_same_agent(&there) && !here.names_same_agent(&other));
    let to = |aid: &Aid| AclMessage::new(Performative::Inform).with_receiver(aid.clone());
    assert_eq!(to(&here), to(&here));
    assert_ne!(to(&here), to(&there));

    let mut wire = Vec::new();
    bitefficient::encode(&to(&here), &mut wire).unwrap();
    let view = bitefficient::decode_ref(&wire, &Limits::DEFAULT).unwrap();
    let read = view.receivers().next().unwrap();
    assert_eq!(read, AidRef::from(&here));
    assert_ne!(read, AidRef::from(&there));
    assert!(read.names_same_agent(&AidRef::from(&there)));
}
