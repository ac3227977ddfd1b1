use proptest::prelude::*;

use super::*;
use crate::{DecodeError, DecodeProblem, Limits};

fn read(text: &str) -> Content<'_> {
    Content::parse(text, &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &[u8]) -> DecodeError {
    Content::parse(text, &Limits::default()).unwrap_err()
}

#[test]
fn what_is_written_tidily_comes_back_to_the_byte() {
    for text in [
        "((action (agent-identifier :name j) (deliver box017 (loc 12 19))) (priority order567 low))",
        "((iota ?x (= (price widget) ?x)))",
        "((action ams@p (search (ams-agent-description) (search-constraints :max-results -1))))",
        "((done (action a (get-description))))",
        "((result (action a (f)) (sequence (g :x 1.5 :y 1e300 :z -0.25))))",
        "((forall ?x (exists ?y (and (p ?x) (not (q ?y))))))",
        "((B (agent-identifier :name i) (implies (p a) (equiv p q))))",
        "((feasible (| (action i a) (; (action j b) (action k c))) true) false)",
        "((action i (f 20260304T050607089Z +00000000T011500035 \"a b\" \"say \\\"hi\\\" \\ there\")))",
        "((all (sequence ?x ?y) (p ?x ?y)) already-registered)",
        "((action i (\"set\" (set) (sequence) \"12\" #3\"a\0\n)))",
        "((result (action i (get-description)) (ap-description :name \"\\\"plat9\\\"\")))",
        "((inform :sender (agent-identifier :name i) :content \"x y\") (unexpected-act inform))",
        "(unrecognised-value content)",
    ] {
        assert_eq!(read(text).to_string(), text);
    }
}

#[test]
fn many_spellings_are_one_tree() {
    for (odd, plain) in [
        ("\t( ( ACTION  a(F) ) )\n", "((action a (F)))"),
        ("((already-registered))", "(already-registered)"),
        ("((p \"word\" 0x1F -0x1f +7))", "((p word 31 -31 7))"),
        ("((p 12. .5 1.E2 12e3))", "((p 12.0 0.5 100.0 12000.0))"),
        ("(TRUE \"true\")", "(true \"true\")"),
        ("((forall ?\"x\" (p ?x)))", "((forall ?x (p ?x)))"),
        ("((p :\"name\" x))", "((p :name x))"),
        ("((p (SET a) (Not b)))", "((p (set a) (\"not\" b)))"),
        (
            "((Unsupported-value \"language\"))",
            "((Unsupported-value language))",
        ),
    ] {
        assert_eq!(read(odd).to_string(), plain);
    }
}

#[test]
fn reading_borrows() {
    let text = String::from("((p word \"quoted\" #3\"abc ?x))");
    let content = read(&text);
    let ContentExpression::Proposition(Wff::Predicate(predicate)) = &content.expressions[0] else {
        panic!("not a predicate: {content:?}");
    };
    let Arguments::Positional(arguments) = &predicate.arguments else {
        panic!("named")
    };
    for argument in arguments {
        let borrowed = match argument {
            Term::Text(it) | Term::Variable(it) => matches!(it, Text::Borrowed(_)),
            Term::Bytes(it) => matches!(it, std::borrow::Cow::Borrowed(_)),
            _ => false,
        };
        assert!(borrowed, "{argument:?}");
    }
}

#[test]
fn text_that_quotes_cannot_hold_goes_by_length() {
    let term = Term::text("ends in \\");
    assert_eq!(term.to_bytes(), b"#9\"ends in \\");
    assert_eq!(
        Term::parse(&term.to_bytes(), &Limits::default()).unwrap(),
        term
    );
}

#[test]
fn errors_say_where_and_what() {
    for (text, at, expected) in [
        ("", 0, "'(' before the content"),
        ("x", 0, "'(' before the content"),
        (
            "()",
            1,
            "an action, a proposition or an identifying expression",
        ),
        (
            "(12)",
            1,
            "an action, a proposition or an identifying expression",
        ),
        (
            "((set a b))",
            2,
            "an action, a proposition or an identifying expression",
        ),
        ("((action a))", 10, "a term"),
        ("((action a b c))", 13, "')'"),
        ("((and p))", 7, "a proposition"),
        ("((and p q r))", 10, "')'"),
        ("((done x))", 7, "an action, (action …), (| …) or (; …)"),
        ("((done (not x)))", 8, "'action', '|' or ';'"),
        ("((forall x p))", 9, "a variable"),
        ("((p ? x))", 5, "a variable name after '?'"),
        ("((p :a b c))", 9, "a parameter name such as :name, or ')'"),
        ("((p a :b c))", 6, "a term"),
        (
            "((p 12ab))",
            4,
            "a number or date-time (quote a string that begins with a digit or '-')",
        ),
        ("((p #x))", 5, "a length and '\"'"),
        ("((p \"abc)", 9, "the closing quote of a string"),
        ("((p \"abc\\\")", 11, "the closing quote of a string"),
        ("((p #9\"abc))", 12, "the rest of a byte string"),
        (
            "((p #99999999999999999999999\"abc))",
            5,
            "a length and '\"'",
        ),
        (
            "((p #18446744073709551615\"abc))",
            31,
            "the rest of a byte string",
        ),
        (
            "((p x)",
            6,
            "an action, a proposition or an identifying expression",
        ),
        ("((p x", 5, "a term"),
        ("(p) q", 4, "the end"),
        ("((p ()))", 5, "a symbol after '('"),
    ] {
        match error(text.as_bytes()) {
            DecodeError {
                offset,
                problem:
                    DecodeProblem::Unexpected {
                        expected: found, ..
                    },
            } => {
                assert_eq!((offset, found), (at, expected), "{text}");
            }
            other => panic!("{text}: {other}"),
        }
    }
    for (text, shown) in [
        (
            &b"((p ab\xff))"[..],
            "byte 6: expected UTF-8 (send other bytes as #N\"), found text that is not UTF-8",
        ),
        (
            b"((p 9223372036854775808))",
            "byte 4: the number does not fit into 64 bits",
        ),
        (
            b"((p 1e999))",
            "byte 4: the number does not fit into 64 bits",
        ),
        (
            b"((p 20261304T000000000))",
            "byte 4: the date-time has a month that the calendar does not have",
        ),
    ] {
        assert_eq!(error(text).to_string(), shown);
    }
}

#[test]
fn limits_hold_and_name_themselves() {
    let error = |text: &str, message_length, depth, values| {
        let limits = Limits {
            message_length,
            depth,
            values,
            ..Limits::DEFAULT
        };
        Content::parse(text, &limits)
            .map_err(|error| (error.offset, error.problem))
            .err()
    };
    let limit = |offset, what, limit| Some((offset, DecodeProblem::Limit { what, limit }));
    assert_eq!(error("(true)", 5, 9, 9), limit(5, "bytes of SL", 5));
    assert_eq!(error("((f (g)))", 99, 3, 9), None);
    assert_eq!(
        error("((f (g (h))))", 99, 3, 9),
        limit(7, "parentheses inside one another", 3)
    );
    assert_eq!(error("((f a b c))", 99, 9, 3), limit(8, "values", 3));
}

#[test]
fn the_deepest_nesting_fits_a_small_stack() {
    let limits = Limits {
        depth: usize::MAX,
        ..Limits::default()
    };
    let run = move || {
        for (open, close) in [
            ("(f ", ")"),
            ("(not ", ")"),
            ("(and p ", ")"),
            ("(done (action a b) ", ")"),
            ("(p (set ", "))"),
            ("(p (all ?x ", "))"),
            ("(p (action a ", "))"),
        ] {
            let levels = 126 / close.len();
            let text = format!("({}x{})", open.repeat(levels), close.repeat(levels));
            let content = Content::parse(&text, &limits).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(content.clone().into_owned().to_string(), text);
            content.profile();
            let deeper = format!("({}", open.repeat(100_000));
            assert!(matches!(
                Content::parse(&deeper, &limits),
                Err(DecodeError {
                    problem: DecodeProblem::Limit { limit: 128, .. },
                    ..
                })
            ));
        }
    };
    std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn profiles_are_told_apart() {
    for (text, profile) in [
        ("((action a (f (set 1) (sequence x))))", Profile::Sl0),
        (
            "((done (action a (f))) (result (action a (f)) 1))",
            Profile::Sl0,
        ),
        ("((not (and p q)))", Profile::Sl1),
        ("((iota ?x (p ?x)))", Profile::Sl2),
        ("((= a b))", Profile::Sl2),
        ("((done (action a b) p))", Profile::Sl2),
        (
            "((forall ?x (forall ?y (exists ?z (p ?x ?y ?z)))))",
            Profile::Sl2,
        ),
        ("((B a (exists ?z (p ?z))))", Profile::Sl2),
        ("((exists ?x (forall ?y (p ?x ?y))))", Profile::Sl),
        ("((not (exists ?x (p ?x))))", Profile::Sl),
    ] {
        assert_eq!(read(text).profile(), profile, "{text}");
    }
    let error = read("((not p))").check(Profile::Sl0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "'not' is not part of fipa-sl0: use fipa-sl1 or more"
    );
    assert_eq!("FIPA-SL2".parse(), Ok(Profile::Sl2));
}

proptest! {
    #[test]
    fn any_content_survives(content in arbitrary::content()) {
        let bytes = content.to_bytes();
        let limits = Limits::default();
        let back = Content::parse(&bytes, &limits);
        prop_assert_eq!(back.as_ref(), Ok(&content), "{}", content);
        prop_assert_eq!(back.unwrap().into_owned(), content);
    }

    #[test]
    fn a_content_keeps_within_its_own_profile(content in arbitrary::content()) {
        let profile = content.profile();
        prop_assert!(content.check(profile).is_ok());
        prop_assert!(content.check(Profile::Sl).is_ok());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Content::parse(&bytes, &Limits::default());
    }

    #[test]
    fn what_can_be_read_is_written_in_one_way(text in "[()#\"\\\\ :?a-c=|12tT+-.]{0,40}") {
        let limits = Limits::default();
        if let Ok(content) = Content::parse(&text, &limits) {
            let written = content.to_bytes();
            let again = Content::parse(&written, &limits).unwrap();
            prop_assert_eq!(&again, &content);
            prop_assert_eq!(again.to_bytes(), written);
        }
    }
}
