//! Any text: an error inside the text, or a filter that decides about a message within its cost, or a key that has a value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_channels::{
    ChannelFilter, ChannelHeader, ChannelPath, EventKey, Mechanism, Moment, Qos,
};
use sealbus_fipa::{AclMessage, Content, Expression, Number, Performative};

fuzz_target!(|text: &str| {
    let (filter, key) = (ChannelFilter::new(text), EventKey::new(text));
    for error in [filter.as_ref().err(), key.as_ref().err()]
        .into_iter()
        .flatten()
    {
        assert!(error.offset <= text.len());
    }
    let Ok(channel) = ChannelPath::new("/dates/business") else {
        return;
    };
    let moment = Moment::from_unix_ms(1_000);
    let header = ChannelHeader::new(Mechanism::Event, channel, Qos::default(), 1, moment);
    let items = (0..100).map(Expression::from).collect();
    let weight = Number::parse("2.5").map_or(Expression::from(2), Expression::Number);
    let message = AclMessage {
        content: Some(Content::Text("lunch ".repeat(100))),
        user_defined: vec![
            ("X-price".to_owned(), Expression::from(9)),
            ("X-weight".to_owned(), weight),
            ("X-list".to_owned(), Expression::List(items)),
        ],
        ..AclMessage::new(Performative::Inform)
    };
    if let Ok(filter) = filter {
        let _ = filter.matches(&header, &message.view());
    }
    if let Ok(key) = key {
        let _ = key.of(&header, &message.view());
    }
});
