//! Messages and envelopes of every shape, for property tests.

// Each test uses a part of it.
#![allow(dead_code)]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sealbus_fipa::envelope::{Envelope, EnvelopeParameters, Received};
use sealbus_fipa::{AclMessage, Aid, Content, DateTime, Expression, Number, Performative, is_word};

/// Words that every encoding can carry.
fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z_:!?*+.][a-zA-Z0-9@#\"'&<>;:=+.\\\\-]{0,14}"
        .prop_filter("looks like a number or date", |text| {
            is_word(text.as_bytes())
        })
}

/// Words of the standard with letters outside ASCII. A protocol may be such a word.
fn foreign_word() -> impl Strategy<Value = String> {
    "[a-zA-Zäß日\u{a0}\u{2028}\u{85}][a-z0-9\"äß日\u{a0}]{0,9}[a-zä\u{a0}\u{2003}]"
}

/// Text that every encoding can carry: text that XML allows, without a backslash at its end.
fn text() -> impl Strategy<Value = String> {
    let any = "([ -~\t\r\näß日🦀]|\\\\\"|#[0-9]\"|]]>|&amp;|\"){0,20}";
    prop_oneof![
        any.prop_map(|text| text.to_string()),
        "[a-z0-9(). ]{0,30}",
        word()
    ]
    .prop_map(|text| text.trim_end_matches('\\').to_owned())
}

/// Any text at all.
fn wild_text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => text(),
        2 => any::<String>(),
        1 => "([\0\\\\\"#0-9() ]|\u{1}|\u{fffe}){0,8}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9-]{0,8}@[a-z0-9.]{1,8}",
        "[a-zA-Z0-9 #@\"()ä\\\\-]{1,12}",
    ]
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::hexadecimal),
        "[+-]?[0-9]{1,5}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{1,3})?"
            .prop_filter_map("not a number", |text| Number::parse(&text)),
        "[+-]?\\.[0-9]{1,4}".prop_filter_map("not a number", |text| Number::parse(&text)),
    ]
}

pub(crate) fn date_time() -> impl Strategy<Value = DateTime> {
    prop_oneof![
        (0i64..4_000_000_000_000).prop_filter_map("range", |ms| DateTime::from_unix_ms(ms).ok()),
        "[+-][0-9]{8}T[0-9]{9}[a-zA-Z]?"
            .prop_filter_map("not a date-time", |text| DateTime::parse(text.as_bytes())
                .ok()),
        "(19|20)[0-9]{2}0[1-9][12][0-9]T1[0-9][0-5][0-9][0-5][0-9][0-9]{3}[zZA]?"
            .prop_filter_map("not a date-time", |text| DateTime::parse(text.as_bytes())
                .ok()),
    ]
}

fn expression(
    word: BoxedStrategy<String>,
    text: BoxedStrategy<String>,
    bytes: BoxedStrategy<Vec<u8>>,
) -> BoxedStrategy<Expression> {
    prop_oneof![
        4 => word.prop_map(Expression::Word),
        3 => text.prop_map(Expression::String),
        2 => number().prop_map(Expression::Number),
        1 => date_time().prop_map(Expression::DateTime),
        1 => bytes.prop_map(Expression::Bytes),
    ]
    .prop_recursive(4, 24, 5, |inner| {
        vec(inner, 0..5).prop_map(Expression::List)
    })
    .boxed()
}

fn aid(name: BoxedStrategy<String>, value: BoxedStrategy<Expression>) -> BoxedStrategy<Aid> {
    let plain = (
        name,
        vec("[a-z]{2,5}://[a-z0-9.:/&=\"-]{1,20}", 0..3),
        distinct(value),
    )
        .prop_map(|(name, addresses, user_defined)| Aid {
            name,
            addresses,
            resolvers: Vec::new(),
            user_defined,
        });
    plain
        .prop_recursive(3, 6, 2, |inner| {
            (inner.clone(), vec(inner, 0..3)).prop_map(|(aid, resolvers)| Aid { resolvers, ..aid })
        })
        .boxed()
}

/// User-defined parameters under distinct names.
fn distinct(value: BoxedStrategy<Expression>) -> BoxedStrategy<Vec<(String, Expression)>> {
    vec(("[Xx]-[a-zA-Z0-9.]{1,6}", value), 0..3)
        .prop_map(|mut parameters| {
            for (index, (name, _)) in parameters.iter_mut().enumerate() {
                name.push_str(&format!("-{index}"));
            }
            parameters
        })
        .boxed()
}

fn message(
    word: BoxedStrategy<String>,
    name: BoxedStrategy<String>,
    text: BoxedStrategy<String>,
    bytes: BoxedStrategy<Vec<u8>>,
) -> impl Strategy<Value = AclMessage> {
    let value = expression(word.clone(), text.clone(), bytes);
    let aid = aid(name, value.clone());
    let content = option::of(prop_oneof![
        3 => text.prop_map(Content::Text),
        2 => vec(any::<u8>(), 0..40).prop_map(Content::Bytes),
        1 => vec(any::<u8>(), 250..260).prop_map(Content::Bytes),
    ]);
    let performative = prop_oneof![
        4 => (0usize..22).prop_map(|index| Performative::STANDARD[index].clone()),
        1 => word.clone().prop_map(|name| Performative::from(name.as_str())),
    ];
    let agents = (
        performative,
        option::of(aid.clone()),
        vec(aid.clone(), 0..3),
        vec(aid, 0..2),
        content,
        distinct(value.clone()),
    );
    let value = option::of(value);
    let values = (
        value.clone(),
        value.clone(),
        value.clone(),
        value.clone(),
        value.clone(),
        value,
        option::of(prop_oneof![3 => word, 1 => foreign_word()]),
        option::of(date_time()),
    );
    (agents, values).prop_map(|(agents, values)| AclMessage {
        performative: agents.0,
        sender: agents.1,
        receivers: agents.2,
        reply_to: agents.3,
        content: agents.4,
        user_defined: agents.5,
        language: values.0,
        encoding: values.1,
        ontology: values.2,
        conversation_id: values.3,
        reply_with: values.4,
        in_reply_to: values.5,
        protocol: values.6,
        reply_by: values.7,
    })
}

fn texts(text: BoxedStrategy<String>) -> BoxedStrategy<Vec<(String, String)>> {
    vec(("[Xx]-[a-zA-Z0-9.]{1,6}", text), 0..3)
        .prop_map(|mut parameters| {
            for (index, (name, _)) in parameters.iter_mut().enumerate() {
                name.push_str(&format!("-{index}"));
            }
            parameters
        })
        .boxed()
}

fn parameters(
    aid: BoxedStrategy<Aid>,
    text: BoxedStrategy<String>,
    name: BoxedStrategy<String>,
) -> BoxedStrategy<EnvelopeParameters> {
    let representation = prop_oneof![
        Just("fipa.acl.rep.bitefficient.std".to_owned()),
        Just("fipa.acl.rep.string.std".to_owned()),
        Just("fipa.acl.rep.xml.std".to_owned()),
        name.clone(),
    ];
    let received = (
        text.clone(),
        date_time(),
        option::of(text.clone()),
        option::of(text.clone()),
        option::of(text.clone()),
        texts(text.clone()),
    )
        .prop_map(|(by, date, from, id, via, user_defined)| Received {
            by: by.trim_start_matches('\n').to_owned(),
            date,
            from,
            id,
            via,
            user_defined,
        });
    let agents = (
        vec(aid.clone(), 0..3),
        option::of(aid.clone()),
        vec(aid, 0..2),
    );
    let rest = (
        option::of(text.clone()),
        representation,
        option::of(any::<u64>()),
        option::of(name),
        date_time(),
        option::of(received),
        option::of(text.clone().prop_map(Content::Text)),
        texts(text),
    );
    (agents, rest)
        .prop_map(|(agents, rest)| EnvelopeParameters {
            to: agents.0,
            from: agents.1,
            intended_receivers: agents.2,
            comments: rest.0,
            acl_representation: Some(rest.1),
            payload_length: rest.2,
            payload_encoding: rest.3,
            date: Some(rest.4),
            received: rest.5,
            transport_behaviour: rest.6,
            user_defined: rest.7,
        })
        .boxed()
}

/// Envelopes that every encoding can carry.
pub(crate) fn portable_envelope() -> impl Strategy<Value = Envelope> {
    let name = "[a-z][a-z0-9-]{0,8}@[a-z0-9.]{1,8}".boxed();
    let string = prop_oneof![text().prop_map(Expression::String)].boxed();
    let parameters = parameters(aid(name.clone(), string), text().boxed(), name);
    (parameters.clone(), vec(parameters, 0..3)).prop_map(|(base, mut revisions)| {
        revisions.retain(|revision| revision.received.is_some());
        for revision in &mut revisions {
            revision.date = None;
        }
        Envelope { base, revisions }
    })
}

/// Envelopes with any values, some of which some encodings cannot carry.
pub(crate) fn wild_envelope() -> impl Strategy<Value = Envelope> {
    let wild = wild_text().boxed();
    let value = expression(word().boxed(), wild.clone(), vec(any::<u8>(), 0..9).boxed());
    let parameters = parameters(aid(wild.clone(), value), wild.clone(), wild);
    (parameters.clone(), vec(parameters, 0..3))
        .prop_map(|(base, revisions)| Envelope { base, revisions })
}

/// Messages that every encoding can carry.
pub(crate) fn portable_message() -> impl Strategy<Value = AclMessage> {
    let bytes = "[a-z0-9\"() ]{0,10}".prop_map(String::into_bytes).boxed();
    message(word().boxed(), name().boxed(), text().boxed(), bytes)
}

/// Messages with any values, some of which some encodings cannot carry.
pub(crate) fn wild_message() -> impl Strategy<Value = AclMessage> {
    let wild = wild_text().boxed();
    let bytes = vec(any::<u8>(), 0..20).boxed();
    message(
        prop_oneof![4 => word(), 1 => wild.clone()].boxed(),
        prop_oneof![4 => name(), 1 => wild.clone()].boxed(),
        wild,
        bytes,
    )
}
