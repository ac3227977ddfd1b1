//! Arbitrary SL, for property tests.

use proptest::prelude::*;

use super::*;
use crate::DateTime;

type Tree = Term<'static>;

/// Strings that challenge a printer: keywords, numbers, quotes, backslashes, blanks, any character.
pub(crate) fn text() -> impl Strategy<Value = Text<'static>> {
    let word = "[a-z][a-z0-9.@:/_-]{0,8}";
    let odd = prop::sample::select(vec![
        "",
        "set",
        "SEQUENCE",
        "true",
        "False",
        "and",
        "b",
        "=",
        "|",
        ";",
        "12",
        "-1",
        "+x",
        ".5",
        "0x1f",
        "19960415T083000000",
        "?x",
        ":x",
        "#3\"abc",
        "a b",
        "(",
        ")",
        "a\"b",
        "\\",
        "a\\",
        "\\\"",
        "\"\\",
        "é",
        "\0",
    ]);
    prop_oneof![
        4 => word.prop_map(Text::Owned),
        2 => odd.prop_map(Text::Borrowed),
        1 => any::<String>().prop_map(Text::Owned),
    ]
}

fn date_time() -> impl Strategy<Value = DateTime> {
    prop_oneof![
        (0i64..4_000_000_000_000).prop_map(|ms| DateTime::from_unix_ms(ms).unwrap()),
        (0u64..4_000_000_000_000)
            .prop_map(|ms| DateTime::after(std::time::Duration::from_millis(ms)).unwrap()),
    ]
}

/// Bytes have a form of their own, except text that ends in a backslash (see [`Term::Bytes`]).
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..8)
        .prop_filter("reads as text", |it| it.last() != Some(&b'\\'))
}

fn constant() -> impl Strategy<Value = Tree> {
    prop_oneof![
        4 => text().prop_map(Term::Text),
        1 => any::<bool>().prop_map(Term::Truth),
        1 => text().prop_map(Term::Variable),
        1 => bytes().prop_map(|it| Term::Bytes(it.into())),
        1 => any::<i64>().prop_map(Term::Integer),
        1 => any::<f64>().prop_filter_map("finite", |it| Float::new(it).map(Term::Float)),
        1 => date_time().prop_map(Term::DateTime),
    ]
}

fn arguments(
    term: impl Strategy<Value = Tree> + Clone,
) -> impl Strategy<Value = Arguments<'static>> {
    let parameter = (text(), term.clone()).prop_map(|(name, value)| Parameter { name, value });
    prop_oneof![
        prop::collection::vec(term, 0..4).prop_map(Arguments::Positional),
        prop::collection::vec(parameter, 1..4).prop_map(Arguments::Named),
    ]
}

fn action(
    term: impl Strategy<Value = Tree> + Clone,
) -> impl Strategy<Value = ActionExpression<'static>> + Clone {
    let simple = (term.clone(), term).prop_map(|(agent, act)| ActionExpression::new(agent, act));
    prop_oneof![
        3 => simple.clone(),
        1 => (simple.clone(), simple.clone())
            .prop_map(|it| ActionExpression::Choice(Box::new(it))),
        1 => (simple.clone(), simple).prop_map(|it| ActionExpression::Sequence(Box::new(it))),
    ]
}

fn operator() -> impl Strategy<Value = ReferentialOperator> {
    use ReferentialOperator::*;
    prop::sample::select(vec![Iota, Any, All])
}

/// Any term, with formulas in it through identifying expressions.
pub(crate) fn term() -> impl Strategy<Value = Tree> + Clone {
    constant().prop_recursive(4, 24, 4, |inner| {
        let condition = wff_of(inner.clone().boxed(), 1);
        prop_oneof![
            (text(), arguments(inner.clone())).prop_map(|(symbol, arguments)| Term::Function(
                Box::new(FunctionalTerm { symbol, arguments })
            )),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Term::Sequence),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Term::Set),
            action(inner.clone()).prop_map(|it| Term::Action(Box::new(it))),
            (operator(), inner, condition).prop_map(|(operator, term, condition)| {
                Term::Identifying(Box::new(IdentifyingExpression {
                    operator,
                    term,
                    condition,
                }))
            }),
        ]
    })
}

fn wff_of(term: BoxedStrategy<Tree>, depth: u32) -> BoxedStrategy<Wff<'static>> {
    let predicate =
        (text(), arguments(term.clone())).prop_map(|(symbol, arguments)| match arguments {
            Arguments::Positional(none) if none.is_empty() => Wff::Symbol(symbol),
            arguments => Wff::Predicate(Box::new(FunctionalTerm { symbol, arguments })),
        });
    let atomic = prop_oneof![
        Just(Wff::True),
        Just(Wff::False),
        text().prop_map(Wff::Symbol),
        predicate,
        (term.clone(), term.clone()).prop_map(|it| Wff::Equals(Box::new(it))),
        (term.clone(), term.clone()).prop_map(|it| Wff::Result(Box::new(it))),
    ];
    atomic
        .prop_recursive(depth, 16, 2, move |inner| {
            use Connective::*;
            use ModalOperator::*;
            let connective = prop::sample::select(vec![And, Or, Implies, Equiv]);
            let modal = prop::sample::select(vec![Believes, Uncertain, PersistentGoal, Intends]);
            let quantifier = prop::sample::select(vec![Quantifier::ForAll, Quantifier::Exists]);
            let acted = (action(term.clone()), prop::option::of(inner.clone()));
            prop_oneof![
                inner.clone().prop_map(|it| Wff::Not(Box::new(it))),
                (connective, inner.clone(), inner.clone())
                    .prop_map(|(it, a, b)| Wff::Connective(it, Box::new((a, b)))),
                (quantifier, text(), inner.clone())
                    .prop_map(|(it, variable, wff)| Wff::Quantified(it, variable, Box::new(wff))),
                (modal, term.clone(), inner)
                    .prop_map(|(it, agent, wff)| Wff::Modal(it, Box::new((agent, wff)))),
                acted.clone().prop_map(|it| Wff::Feasible(Box::new(it))),
                acted.prop_map(|it| Wff::Done(Box::new(it))),
            ]
        })
        .boxed()
}

pub(crate) fn content() -> impl Strategy<Value = Content<'static>> {
    let expression = prop_oneof![
        action(term()).prop_map(ContentExpression::Action),
        wff_of(term().boxed(), 3).prop_map(ContentExpression::Proposition),
        (operator(), term(), wff_of(term().boxed(), 2)).prop_map(|(operator, term, condition)| {
            ContentExpression::Identifying(IdentifyingExpression {
                operator,
                term,
                condition,
            })
        }),
    ];
    prop::collection::vec(expression, 1..4).prop_map(|expressions| Content { expressions })
}
