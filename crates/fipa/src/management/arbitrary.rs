//! Arbitrary objects of the ontology, for property tests.

use proptest::prelude::*;

use super::*;
use crate::sl;
use crate::{Aid, DateTime, Expression};

/// Few different words, so that templates often match.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "set", "12", "two words", "\\", ""])
            .prop_map(str::to_owned),
        1 => sl::arbitrary::text().prop_map(|text| text.into_owned()),
    ]
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 0..3)
}

fn user_defined() -> impl Strategy<Value = (String, Expression)> {
    let value = prop_oneof![
        word().prop_map(Expression::from),
        any::<i64>().prop_map(Expression::from),
        Just(Expression::List(vec!["sequence".into(), "a".into()])),
        Just(Expression::List(vec![
            "f".into(),
            Expression::Word(":x".into()),
            3.into()
        ])),
        Just(Expression::List(vec!["f".into()])),
        prop::collection::vec(any::<u8>(), 1..4)
            .prop_filter("reads as text", |it| it.last() != Some(&b'\\'))
            .prop_map(Expression::Bytes),
    ];
    ("X-[a-z]{1,4}", value)
}

pub(crate) fn aid() -> impl Strategy<Value = Aid> {
    let name = prop_oneof![
        Just("a@p".to_owned()),
        Just("b@p".to_owned()),
        "[a-c]{1,2}@[pq]"
    ];
    let leaf = (name, words(), prop::collection::vec(user_defined(), 0..2)).prop_map(
        |(name, addresses, user_defined)| {
            let mut aid = Aid::new(name).unwrap();
            aid.addresses = addresses;
            aid.user_defined = user_defined;
            aid
        },
    );
    leaf.prop_recursive(2, 4, 2, |inner| {
        (inner.clone(), prop::collection::vec(inner, 0..2)).prop_map(|(mut aid, resolvers)| {
            aid.resolvers = resolvers;
            aid
        })
    })
}

fn property() -> impl Strategy<Value = Property> {
    let value = prop_oneof![
        2 => any::<i8>().prop_map(|it| sl::Term::Integer(it.into())),
        1 => sl::arbitrary::term(),
    ];
    (word(), prop::option::of(value)).prop_map(|(name, value)| Property { name, value })
}

pub(crate) fn service() -> impl Strategy<Value = ServiceDescription> {
    let strings = (words(), words(), words());
    let atoms = (
        prop::option::of(word()),
        prop::option::of(word()),
        prop::option::of(word()),
    );
    (atoms, strings, prop::collection::vec(property(), 0..3)).prop_map(
        |((name, service_type, ownership), (protocols, ontologies, languages), properties)| {
            ServiceDescription {
                name,
                service_type,
                protocols,
                ontologies,
                languages,
                ownership,
                properties,
            }
        },
    )
}

pub(crate) fn df_description() -> impl Strategy<Value = DfAgentDescription> {
    let lease_time = prop_oneof![
        Just(DateTime::from_unix_ms(1_800_000_000_000).unwrap()),
        Just(DateTime::after(std::time::Duration::from_secs(10)).unwrap()),
    ];
    let services = prop::collection::vec(service(), 0..3);
    let strings = (words(), words(), words(), words());
    (
        prop::option::of(aid()),
        services,
        strings,
        prop::option::of(lease_time),
    )
        .prop_map(
            |(name, services, (protocols, ontologies, languages, scope), lease_time)| {
                DfAgentDescription {
                    name,
                    services,
                    protocols,
                    ontologies,
                    languages,
                    lease_time,
                    scope,
                }
            },
        )
}

pub(crate) fn ams_description() -> impl Strategy<Value = AmsAgentDescription> {
    use AgentState::*;
    let state = prop::sample::select(vec![Initiated, Active, Suspended, Waiting, Transit, Latent]);
    (
        prop::option::of(aid()),
        prop::option::of(word()),
        prop::option::of(state),
    )
        .prop_map(|(name, ownership, state)| AmsAgentDescription {
            name,
            ownership,
            state,
        })
}

pub(crate) fn constraints() -> impl Strategy<Value = SearchConstraints> {
    (
        prop::option::of(any::<i64>()),
        prop::option::of(any::<i64>()),
        prop::option::of(word()),
    )
        .prop_map(|(max_depth, max_results, search_id)| SearchConstraints {
            max_depth,
            max_results,
            search_id,
        })
}
