//! Keys: equal values are equal texts, and a key is a name.

#![allow(clippy::unwrap_used)]

use sealbus_channels::{
    ChannelHeader, ChannelPath, EvaluationError, EventKey, LONGEST_KEY, Mechanism, Moment, Qos,
};
use sealbus_fipa::{AclMessage, Expression, Number, Performative};

fn key_of(name: &str, property: Expression) -> Result<String, EvaluationError> {
    let message = AclMessage::new(Performative::Inform).with_user_defined("X-key", property);
    let header = ChannelHeader::new(
        Mechanism::Event,
        ChannelPath::new("/readings").unwrap(),
        Qos::default(),
        12,
        Moment::from_unix_ms(1_000),
    );
    EventKey::new(name).unwrap().of(&header, &message.view())
}

#[test]
fn a_key_is_a_name_and_equal_values_are_equal_texts() {
    let number = |text: &str| Expression::Number(Number::parse(text).unwrap());
    let list = |items: &[&str]| Expression::List(items.iter().map(|it| (*it).into()).collect());
    let values = [
        vec![Expression::from(1), number("1.0"), number("10e-1")],
        vec![number("1.5")],
        vec![Expression::String("1".to_owned())],
        vec![
            Expression::from("red"),
            Expression::String("red".to_owned()),
        ],
        vec![Expression::from("true")],
        vec![list(&["a", "b"])],
        vec![list(&["ab"])],
        vec![list(&["a,b"])],
        vec![list(&[])],
    ];
    let mut known = Vec::new();
    for same in values {
        let mut texts: Vec<_> = same
            .into_iter()
            .map(|value| key_of("properties.key", value).unwrap())
            .collect();
        texts.dedup();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(!known.contains(&texts[0]), "{texts:?}");
        known.append(&mut texts);
    }
    assert_eq!(
        key_of("properties.other", Expression::from(1)),
        Err(EvaluationError::NoProperty)
    );
    let long = |length| Expression::String("x".repeat(length));
    assert!(key_of("properties.key", long(LONGEST_KEY)).is_ok());
    assert_eq!(
        key_of("properties.key", long(LONGEST_KEY + 1)),
        Err(EvaluationError::LongKey)
    );
    let many = Expression::List(vec![long(500); 10]);
    assert_eq!(
        key_of("properties.key", many),
        Err(EvaluationError::LongKey)
    );
    for name in ["sender", "channel", "properties[\"key\"]", "content"] {
        assert!(EventKey::new(name).is_ok(), "{name}");
    }
    for name in [
        "properties",
        "1",
        "price",
        "sender + channel",
        "",
        "sender ==",
    ] {
        let error = EventKey::new(name).unwrap_err();
        assert!(error.offset <= name.len(), "{name}: {error}");
    }
}
