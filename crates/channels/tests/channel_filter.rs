//! Filters: their meaning, also compared with a second implementation of CEL; the places of their faults; and their low cost.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use sealbus_channels::{
    ChannelFilter, ChannelHeader, ChannelPath, EvaluationError, FilterProblem, Mechanism, Moment,
    Qos,
};
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_fipa::{AclMessage, Aid, Content, Expression, Limits, Number, Performative};

fn aid(name: &str) -> Aid {
    Aid {
        name: name.to_owned(),
        addresses: Vec::new(),
        resolvers: Vec::new(),
        user_defined: Vec::new(),
    }
}

fn header() -> ChannelHeader {
    ChannelHeader::new(
        Mechanism::Event,
        ChannelPath::new("/dates/business").unwrap(),
        "priority=7,persistent".parse::<Qos>().unwrap(),
        12,
        Moment::from_unix_ms(1_000),
    )
}

fn message() -> AclMessage {
    AclMessage {
        sender: Some(aid("seller-1@factory")),
        receivers: vec![aid("a@factory"), aid("b@factory")],
        content: Some(Content::Text("lunch at Müller's".to_owned())),
        language: Some(Expression::from("fipa-sl")),
        user_defined: vec![
            ("X-price".to_owned(), Expression::from(9)),
            (
                "X-weight".to_owned(),
                Expression::Number(Number::parse("2.5").unwrap()),
            ),
            ("X-urgent".to_owned(), Expression::from("true")),
            ("X-place".to_owned(), Expression::from("at home")),
            (
                "X-tags".to_owned(),
                Expression::List(vec![Expression::from("a"), Expression::from(3)]),
            ),
            ("X-raw".to_owned(), Expression::Bytes(vec![1, 2])),
        ],
        ..AclMessage::new(Performative::Inform)
    }
}

fn encoded(message: &AclMessage) -> EncodedMessage<Vec<u8>> {
    let mut bytes = Vec::new();
    bitefficient::encode(message, &mut bytes).unwrap();
    EncodedMessage::new(bytes, &Limits::default()).unwrap()
}

fn evaluate(text: &str) -> Result<bool, EvaluationError> {
    let filter = ChannelFilter::new(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let message = message();
    let shared = filter.matches(&header(), &message.view());
    let decoded = filter.matches(&header(), &encoded(&message).message());
    assert_eq!(decoded, shared, "{text}");
    shared
}

#[test]
fn parameters_properties_and_the_header_are_seen() {
    for text in [
        "performative == 'inform'",
        "sender.startsWith(\"seller-\") && sender.endsWith('@factory')",
        "'b@factory' in receivers && size(receivers) == 2 && reply_to.size() == 0",
        "receivers.exists(one, one == 'a@factory') && receivers.all(one, one.endsWith('factory'))",
        "content.contains('lunch') && content.matches('M.ller') && content.size() == 17",
        "language == 'fipa-sl' && ontology == '' && protocol == '' && conversation_id == ''",
        "properties.price < 10 && properties.price >= 9.0 && properties['X-price'] == 9",
        "properties.weight * 2.0 == 5.0 && properties.urgent && properties.place == 'at home'",
        "has(properties.price) && !has(properties.colour) && 'X-price' in properties",
        "properties.tags[1] == 3 && 'a' in properties.tags && properties.tags == ['a', 3]",
        "channel == '/dates/business' && channel.startsWith('/dates/') && mechanism == 'event'",
        "priority > 6 && persistent && number == 12 && published == 1000",
        "!has(properties.colour) || properties.colour == 'red'",
        "properties.colour == 'red' || true // as in CEL, an error is overruled",
        "(properties.price > 5 ? 'high' : 'low') == 'high'",
        "-9223372036854775808 < 0 && 0x10 == 16u && 1.5e1 == 15.0 && r'\\d' == '\\\\d' && '\\u00fc' == 'ü'",
        "string(properties.price) + '!' == '9!' && int('12') == 12 && double('1.5') == 1.5 && int(2.9) == 2",
        "7 / 2 == 3 && -7 % 3 == -1 && 7 - 2 - 1 == 4 && 2 + 3 * 4 == 14",
    ] {
        assert_eq!(evaluate(text), Ok(true), "{text}");
    }
}

#[test]
fn what_cannot_be_evaluated_is_not_fulfilled_and_says_why() {
    for (text, error) in [
        ("properties.colour == 'red'", EvaluationError::NoProperty),
        ("properties.place < 10", EvaluationError::Type),
        ("properties.price", EvaluationError::Type),
        ("properties.raw == 1", EvaluationError::Type),
        ("properties.tags[2] == 1", EvaluationError::Index),
        (
            "properties.price / (priority - 7) == 1",
            EvaluationError::Arithmetic,
        ),
        ("int(properties.place) == 1", EvaluationError::Conversion),
    ] {
        assert_eq!(evaluate(text), Err(error), "{text}");
    }
    let mut bytes = message();
    bytes.content = Some(Content::Bytes(vec![0, 159]));
    let filter = ChannelFilter::new("content == 'a'").unwrap();
    assert_eq!(
        filter.matches(&header(), &bytes.view()),
        Err(EvaluationError::ContentNotText)
    );
}

#[test]
fn a_wrong_expression_is_refused_at_its_place() {
    for (text, line, column) in [
        ("", 1, 1),
        ("properties.price <", 1, 19),
        ("properties.price < 10)", 1, 22),
        ("price < 10", 1, 1),
        ("content ==\n  'ü' && proprieties.x == 1", 2, 10),
        ("content = 'a'", 1, 9),
        ("content == 'a", 1, 12),
        ("content == 'a\\q'", 1, 14),
        ("content == 12x", 1, 12),
        ("priority == 99999999999999999999", 1, 13),
        ("content.length() == 1", 1, 9),
        ("content.lower == 'a'", 1, 9),
        ("content.startsWith('a', 'b')", 1, 9),
        ("content.matches('(')", 1, 17),
        ("content.matches(language)", 1, 17),
        ("priority + 1", 1, 1),
        ("content && true", 1, 1),
        ("!priority", 1, 2),
        ("has(content)", 1, 5),
        ("{'a': 1} == {}", 1, 1),
        ("b'a' == b'a'", 1, 1),
        ("receivers.map(r, r) == []", 1, 11),
        ("if == 1", 1, 1),
        ("true # no comment", 1, 6),
    ] {
        let error = ChannelFilter::new(text).unwrap_err();
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}: {error}"
        );
    }
    let error = ChannelFilter::new("properties.price <").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 19 of the filter: expected a value, a variable or '(', found the end"
    );
}

#[test]
fn hostile_expressions_are_refused_or_cut_off() {
    for text in [
        "(".repeat(2_000),
        "[".repeat(2_000),
        "!".repeat(2_000),
        "-".repeat(2_000) + "1",
        "!!(!!!!!!(!!!!(((((!!(!!(!!!!((".repeat(5) + "1",
        "1+".repeat(500) + "1 == 1",
        "true ? ".repeat(200) + "true",
        format!("content{} == 'a'", "[0]".repeat(400)),
        "a.".repeat(500),
        format!("content.matches('{}')", "(a{9}){9}{9}{9}{9}{9}{9}"),
        format!("content == '{}'", "x".repeat(3_000)),
        "\\".repeat(500),
        "'".repeat(999),
    ] {
        assert!(ChannelFilter::new(&text).is_err(), "{text}");
    }
    // A long chain is not nested.
    let chain = vec!["priority == 7"; 100].join(" && ");
    assert_eq!(evaluate(&chain), Ok(true));

    let mut large = message();
    large.content = Some(Content::Text("x".repeat(1 << 20)));
    large.user_defined = vec![(
        "X-list".to_owned(),
        Expression::List((0..2_000).map(Expression::from).collect()),
    )];
    for text in [
        "content + content + content + content + content + content + content + content == ''",
        "properties.list.all(a, properties.list.all(b, a + b >= 0))",
        "content.matches('(a+)+$') && content.matches('x*x*x*x*x*y')",
        "receivers.all(r, content != r + content)",
    ] {
        let result = ChannelFilter::new(text)
            .unwrap()
            .matches(&header(), &large.view());
        assert!(
            matches!(result, Err(EvaluationError::Cost) | Ok(false)),
            "{text}: {result:?}"
        );
    }
    let error = ChannelFilter::new(&"(".repeat(100)).unwrap_err();
    assert_eq!(error.problem, FilterProblem::TooDeep);
}

#[test]
fn a_search_pays_for_each_state_of_its_pattern() {
    let mut long = message();
    let mut search = |length: usize, pattern: &str| {
        long.content = Some(Content::Text("a".repeat(length)));
        ChannelFilter::new(&format!("content.matches(r'{pattern}')"))
            .map(|filter| filter.matches(&header(), &long.view()))
    };
    let costly = search(190_000, "a[ab]{3000}[c-h]");
    let is_refused = matches!(costly, Err(_) | Ok(Err(EvaluationError::Cost)));
    assert!(is_refused, "{costly:?}");
    for usual in ["M.ller", r"\w+@\w+", "(?i)lunch", "^b+$"] {
        assert_eq!(search(150_000, usual), Ok(Ok(false)), "{usual}");
    }
}

#[test]
fn the_patterns_of_a_filter_share_their_room() {
    let filter = |count: usize, condition: &str| {
        ChannelFilter::new(&vec![condition; count].join(" || ")).map_err(|error| error.problem)
    };
    assert!(filter(60, "content.matches('a.c')").is_ok());
    let large = r"content.matches(r'\w{4}')";
    assert!(filter(1, large).is_ok());
    assert_eq!(filter(60, large), Err(FilterProblem::LargePatterns));
}

#[test]
fn each_look_at_an_encoded_message_is_paid_for() {
    let long = || "x".repeat(1 << 20);
    let mut large = message();
    large.content = Some(Content::Text(long()));
    large.user_defined = vec![("X-long".to_owned(), Expression::String(long()))];
    large.language = Some(Expression::List(vec![Expression::from("x"); 30_000]));
    large.sender.as_mut().unwrap().addresses = vec!["x".to_owned(); 30_000];
    let encoded = encoded(&large);
    let evaluate = |text: &str| {
        let filter = ChannelFilter::new(text).unwrap();
        filter.matches(&header(), &encoded.message())
    };
    assert_eq!(evaluate("has(properties.long)"), Ok(true));
    let items = "[1, 2, 3, 4, 5, 6, 7, 8, 9]";
    for look in [
        "content.startsWith('y')",
        "has(properties.zz)",
        "language == 'y'",
        "sender == 'y'",
        "size(receivers) == 0",
    ] {
        let text = format!("{items}.exists(a, {items}.exists(b, {look}))");
        assert_eq!(evaluate(&text), Err(EvaluationError::Cost), "{look}");
    }
}

/// Expressions that both implementations know. `properties` has the parameters of `message`, by their names without `X-`.
fn operand() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "0",
        "1",
        "9",
        "-3",
        "2.5",
        "9.0",
        "4u",
        "true",
        "false",
        "null",
        "'a'",
        "'at home'",
        "''",
        "priority",
        "number",
        "persistent",
        "content",
        "language",
        "receivers",
        "properties.price",
        "properties.weight",
        "properties.urgent",
        "properties.place",
        "properties.tags",
        "properties.missing",
        "has(properties.price)",
        "has(properties.missing)",
        "9223372036854775807",
        "1e300",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let binary = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||", "in",
        ]);
        prop_oneof![
            6 => (inner.clone(), binary, inner.clone())
                .prop_map(|(one, operator, two)| format!("({one} {operator} {two})")),
            1 => inner.clone().prop_map(|one| format!("!({one})")),
            1 => inner.clone().prop_map(|one| format!("-({one})")),
            1 => (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(one, two, three)| format!("(({one}) ? ({two}) : ({three}))")),
            1 => prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            1 => (inner.clone(), prop::sample::select(vec!["startsWith", "endsWith", "contains"]), inner.clone())
                .prop_map(|(one, test, two)| format!("({one}).{test}({two})")),
            1 => (prop::sample::select(vec!["size", "string", "double", "int"]), inner.clone())
                .prop_map(|(function, one)| format!("{function}({one})")),
            1 => (inner.clone(), prop::sample::select(vec!["all", "exists"]), prop::sample::select(vec![
                "x == 'a'", "x == 3", "x > 0", "x in ['a', 1]", "true", "x",
            ])).prop_map(|(list, quantifier, condition)| format!("({list}).{quantifier}(x, {condition})")),
            1 => (inner.clone(), inner).prop_map(|(list, index)| format!("({list})[{index}]")),
        ]
    })
}

fn of(choices: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(choices).prop_map(str::to_owned)
}

/// Conditions, most of which can be decided.
fn condition() -> impl Strategy<Value = String> {
    let number = of(&[
        "0",
        "9",
        "-3",
        "7",
        "priority",
        "number",
        "properties.price",
        "int(properties.weight)",
        "size(receivers)",
        "properties.tags[1]",
        "content.size()",
    ])
    .prop_recursive(2, 6, 2, |inner| {
        (inner.clone(), of(&["+", "-", "*", "/", "%"]), inner)
            .prop_map(|(one, operator, two)| format!("({one} {operator} {two})"))
    });
    let any_number = prop_oneof![
        number.clone(),
        of(&["2.5", "9.0", "4u", "properties.weight", "1e300"])
    ];
    let text = prop_oneof![
        of(&[
            "'a'",
            "'fipa-sl'",
            "''",
            "'at'",
            "language",
            "content",
            "properties.place",
            "properties.tags[0]",
            "receivers[1]"
        ]),
        number.prop_map(|number| format!("string({number})")),
    ];
    let comparison = of(&["<", "<=", ">", ">=", "==", "!="]);
    let test = prop_oneof![
        (any_number.clone(), comparison.clone(), any_number)
            .prop_map(|(one, operator, two)| format!("{one} {operator} {two}")),
        (text.clone(), comparison, text.clone())
            .prop_map(|(one, operator, two)| format!("{one} {operator} {two}")),
        (
            text.clone(),
            of(&["startsWith", "endsWith", "contains"]),
            text.clone()
        )
            .prop_map(|(one, test, two)| format!("{one}.{test}({two})")),
        (
            text.clone(),
            of(&["receivers", "properties.tags", "['a', '9']", "properties"])
        )
            .prop_map(|(one, list)| format!("{one} in {list}")),
        (
            of(&["receivers", "properties.tags", "[1, 'a']"]),
            of(&["all", "exists"]),
            text
        )
            .prop_map(|(list, quantifier, text)| format!("{list}.{quantifier}(x, x == {text})")),
        of(&[
            "has(properties.price)",
            "properties.missing == 1",
            "persistent",
            "properties.urgent",
            "content.matches('l.*h')"
        ]),
        operand(),
    ];
    test.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            3 => (inner.clone(), of(&["&&", "||", "==", "!="]), inner.clone())
                .prop_map(|(one, operator, two)| format!("({one}) {operator} ({two})")),
            1 => inner.clone().prop_map(|one| format!("!({one})")),
            1 => (inner.clone(), inner.clone(), inner)
                .prop_map(|(one, two, three)| format!("({one}) ? ({two}) : ({three})")),
        ]
    })
}

fn reference(text: &str) -> Result<bool, String> {
    use cel::objects::{Map, Value};
    let list = |items: Vec<Value>| Value::List(items.into());
    let text_of = |text: &str| Value::String(text.to_owned().into());
    let properties: std::collections::HashMap<String, Value> = [
        ("price", Value::Int(9)),
        ("weight", Value::Float(2.5)),
        ("urgent", Value::Bool(true)),
        ("place", text_of("at home")),
        ("tags", list(vec![text_of("a"), Value::Int(3)])),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let program = cel::Program::compile(text).map_err(|error| error.to_string())?;
    let mut context = cel::Context::default();
    let variables = [
        ("priority", Value::Int(7)),
        ("number", Value::Int(12)),
        ("persistent", Value::Bool(true)),
        ("content", text_of("lunch at Müller's")),
        ("language", text_of("fipa-sl")),
        (
            "receivers",
            list(vec![text_of("a@factory"), text_of("b@factory")]),
        ),
        ("properties", Value::Map(Map::from(properties))),
    ];
    for (name, value) in variables {
        context.add_variable_from_value(name, value);
    }
    match program.execute(&context) {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_second_implementation_of_the_language_agrees() {
    // The other parser needs more stack than a test's thread has.
    let compare = || {
        let config = ProptestConfig::with_cases(3_000);
        // The same expressions every time, so that the counts below are the same, too.
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let decided = std::cell::Cell::new(0);
        TestRunner::new_with_rng(config, random)
            .run(&condition(), |text| {
                // An expression that can never be a condition is refused before it is evaluated for a message.
                if let Ok(filter) = ChannelFilter::new(&text) {
                    let ours = filter.matches(&header(), &message().view());
                    let theirs = reference(&text);
                    decided.set(decided.get() + u32::from(ours.is_ok()));
                    prop_assert_eq!(
                        ours.ok(),
                        theirs.clone().ok(),
                        "{}: {:?} {:?}",
                        text,
                        ours,
                        theirs
                    );
                }
                Ok(())
            })
            .unwrap();
        assert!(decided.get() > 1_000, "only {} were decided", decided.get());
    };
    std::thread::Builder::new()
        .stack_size(256 << 20)
        .spawn(compare)
        .unwrap()
        .join()
        .unwrap();
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader_or_the_evaluation(text in prop_oneof![
        "\\PC{0,80}",
        "[a-z0-9 ().,!?:<>=&|+*/%'\"\\[\\]\\\\-]{0,80}",
        operand(),
    ]) {
        match ChannelFilter::new(&text) {
            Ok(filter) => { let _ = filter.matches(&header(), &message().view()); }
            Err(error) => {
                prop_assert!(error.offset <= text.len());
                prop_assert!(error.line >= 1 && error.column >= 1);
            }
        }
    }
}
