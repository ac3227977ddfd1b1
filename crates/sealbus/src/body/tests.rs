use proptest::prelude::*;
use sealbus_fipa::{AclMessage, Expression, Performative};
use serde::{Deserialize, Serialize};

use super::{BYTES, Body, BodyError, JSON, Json, LIMITS, PROTOBUF, SL, WithBody, WrittenBody};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Bid {
    cost: f64,
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Bids {
    bids: Vec<Bid>,
}

fn inform(content: &str) -> AclMessage {
    AclMessage::new(Performative::Inform).with_content(content)
}

fn error_of<B: Body>(message: &AclMessage) -> BodyError {
    message.body::<B>().err().unwrap()
}

#[test]
fn json_comes_back_with_its_language() {
    let bids = Bids {
        bids: vec![Bid {
            cost: 2.5,
            note: None,
        }],
    };
    let message = AclMessage::new(Performative::Propose)
        .with_body(&Json(bids.clone()))
        .unwrap();
    assert_eq!(message.language, Some(Expression::from("application/json")));
    assert_eq!(message.body::<Json<Bids>>().unwrap(), Json(bids));
}

#[test]
fn a_text_answers_a_typed_body_in_no_language() {
    let answer = |language: &str, said: WrittenBody| {
        let question = inform("?").with_language(language).with_ontology("trade");
        let answer = said.answer(&question.view(), Performative::Inform);
        (answer.language, answer.ontology)
    };
    let text = || WrittenBody::from("seven");
    for language in ["application/json; charset=utf-8", PROTOBUF, BYTES] {
        assert_eq!(answer(language, text()), (None, None), "{language}");
    }
    let same = |language: &str| (Some(language.into()), Some("trade".into()));
    for language in ["fipa-sl0", "prolog"] {
        assert_eq!(answer(language, text()), same(language));
    }
    let number = || Json(7).write().unwrap();
    assert_eq!(answer(JSON, number()), same(JSON));
    assert_eq!(answer(SL, number()), (Some(JSON.into()), None));
}

#[test]
fn the_place_of_a_mistake_is_told() {
    let message = inform(r#"{"bids": [{"cost": 1}, {"cost": 2}, {"cost": "3"}]}"#);
    let error = error_of::<Json<Bids>>(&message);
    assert_eq!(error.place(), "$.bids[2].cost");
    let message = inform(r#"{"bids": ["#);
    let error = error_of::<Json<Bids>>(&message);
    assert!(error.to_string().contains("line 1 column 10"), "{error}");
    let message = inform(r#"{"bids": []} and more"#);
    assert_eq!(error_of::<Json<Bids>>(&message).place(), "$");
    let message = inform("[1, 2, true]");
    let error = error_of::<Json<Vec<u8>>>(&message);
    assert_eq!(error.place(), "$[2]");
}

#[test]
fn the_language_is_checked_if_there_is_one() {
    let message = inform(r#"{"bids": []}"#);
    assert!(message.body::<Json<Bids>>().is_ok());
    let same = message
        .clone()
        .with_language("Application/JSON; charset=utf-8");
    assert!(same.body::<Json<Bids>>().is_ok());
    let other = message.with_language("fipa-sl");
    assert_eq!(
        error_of::<Json<Bids>>(&other),
        BodyError::Language {
            expected: "application/json",
            found: "fipa-sl".to_owned()
        }
    );
    let empty = AclMessage::new(Performative::Inform);
    assert_eq!(error_of::<Json<Bids>>(&empty), BodyError::Missing);
    assert_eq!(error_of::<String>(&empty), BodyError::Missing);
}

#[test]
fn what_the_language_cannot_say_is_an_error_of_the_writer() {
    let keys = std::collections::BTreeMap::from([(vec![1u8], 1)]);
    let error = AclMessage::new(Performative::Inform)
        .with_body(&Json(keys))
        .err();
    assert!(error.is_some());
}

#[test]
fn text_and_bytes_are_bodies() {
    let message = inform("hello");
    assert_eq!(message.body::<String>().unwrap(), "hello");
    let message = AclMessage::new(Performative::Inform)
        .with_body(&vec![0u8, 255])
        .unwrap();
    assert_eq!(
        message.language,
        Some(Expression::from("application/octet-stream"))
    );
    assert_eq!(message.body::<Vec<u8>>().unwrap(), [0, 255]);
    assert!(message.body::<String>().is_err());
}

#[test]
fn a_body_of_another_language_takes_the_ontology_away() {
    let request = AclMessage::new(Performative::Request)
        .with_language("fipa-sl")
        .with_ontology("trade");
    let reply = request.with_body(&Json(1)).unwrap();
    assert_eq!(reply.ontology, None);
    let named = AclMessage::new(Performative::Request).with_ontology("trade");
    let named = named.with_body(&Json(1)).unwrap();
    assert_eq!(named.ontology, Some(Expression::from("trade")));
}

#[test]
fn too_deep_and_too_many_are_refused_before_anything_is_built() {
    let deep = inform(&"[".repeat(100_000));
    let error = error_of::<Json<serde_json::Value>>(&deep).to_string();
    assert!(error.contains("nested"), "{error}");
    let many = inform(&format!("[{}1]", "1,".repeat(LIMITS.values)));
    let error = error_of::<Json<serde_json::Value>>(&many).to_string();
    assert!(error.contains("values"), "{error}");
}

proptest! {
    #[test]
    fn any_text_is_a_value_or_an_error_with_a_place(text in ".{0,200}") {
        let message = inform(&text);
        if let Err(error) = message.body::<Json<Bids>>() {
            prop_assert!(error.place().starts_with('$'));
            prop_assert!(error.to_string().len() < 1000);
        }
    }

    #[test]
    fn any_bids_come_back(costs in proptest::collection::vec((proptest::num::f64::NORMAL, proptest::option::of(".*")), 0..20)) {
        let bids = costs.into_iter().map(|(cost, note)| Bid { cost, note });
        let bids = Json(Bids { bids: bids.collect() });
        let message = AclMessage::new(Performative::Inform).with_body(&bids).unwrap();
        prop_assert_eq!(message.body::<Json<Bids>>().unwrap(), bids);
    }
}

mod sl {
    use super::*;
    use crate::acl::sl::{Content, from_term, to_term};
    use crate::acl::{Aid, DateTime};
    use crate::body::{Action, Done, Element, Outcome, Predicate};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Book {
        title: String,
        price: f64,
        authors: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        edition: Option<i64>,
        published: Option<DateTime>,
        signed: Option<bool>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Item {
        Book(Book),
        #[serde(rename = "CD")]
        Disc {
            title: String,
        },
        Nothing,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Sell {
        item: Item,
        buyer: Aid,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Open;

    impl Element for Sell {
        const ONTOLOGY: &'static str = "book-trading";
    }

    impl Element for Open {
        const ONTOLOGY: &'static str = "book-trading";
    }

    fn book() -> Book {
        Book {
            title: "Agents talk".to_owned(),
            price: 12.5,
            authors: vec!["a b".to_owned(), "c".to_owned()],
            edition: None,
            published: Some(DateTime::parse(b"20260304T050607089Z").unwrap()),
            signed: Some(true),
        }
    }

    fn sell(item: Item) -> Action<Sell> {
        let aid = |name: &str| Aid::new(name).unwrap();
        Action {
            agent: aid("seller@shop"),
            act: Sell {
                item,
                buyer: aid("buyer@home").with_address("http://home/acc"),
            },
        }
    }

    fn comes_back<B: Body + PartialEq + std::fmt::Debug>(body: &B) -> AclMessage {
        let message = AclMessage::new(Performative::Inform)
            .with_body(body)
            .unwrap();
        assert_eq!(message.body::<B>().unwrap(), *body);
        message
    }

    #[test]
    fn an_action_is_written_as_jade_writes_it() {
        let message = comes_back(&sell(Item::Book(book())));
        assert_eq!(
            message
                .content
                .as_ref()
                .and_then(|it| it.as_text())
                .unwrap(),
            concat!(
                "((action (agent-identifier :name seller@shop) (Sell :item (Book :title \"Agents talk\" :price 12.5 ",
                ":authors (sequence \"a b\" c) :published 20260304T050607089Z :signed true) ",
                ":buyer (agent-identifier :name buyer@home :addresses (sequence http://home/acc)))))"
            )
        );
        assert_eq!(message.language, Some(Expression::from("fipa-sl")));
        assert_eq!(message.ontology, Some(Expression::from("book-trading")));
    }

    #[test]
    fn all_forms_come_back() {
        let disc = Item::Disc {
            title: "Songs".to_owned(),
        };
        comes_back(&sell(disc.clone()));
        comes_back(&Done(sell(Item::Nothing)));
        comes_back(&Outcome {
            action: sell(Item::Nothing),
            value: vec![1, 2],
        });
        let message = comes_back(&Predicate(Open));
        assert_eq!(message.content.unwrap().as_text(), Some("(Open)"));
        let owned = comes_back(&Predicate(Owned {
            owner: "true".to_owned(),
            item: Some(disc),
            note: None,
        }));
        assert_eq!(
            owned.content.unwrap().as_text(),
            Some("((Owned \"true\" (CD :title Songs)))")
        );
        let term = to_term(&book()).unwrap();
        assert_eq!(from_term::<Book>(&term).unwrap(), book());
    }

    #[test]
    fn slots_come_in_any_form() {
        let message = inform(
            "((ACTION (agent-identifier :name s) (sell (book :Title x :PRICE 2 :authors (set))
              (agent-identifier b))) (and p q))",
        );
        let action = message.body::<Action<Sell>>().unwrap();
        let Item::Book(book) = action.act.item else {
            panic!("no book");
        };
        assert_eq!((book.title.as_str(), book.price), ("x", 2.0));
        assert_eq!(action.act.buyer.name, "b");
    }

    #[test]
    fn the_place_of_a_mistake_is_told() {
        let wrong = |content: &str| error_of::<Action<Sell>>(&inform(content)).to_string();
        let act = |item: &str| {
            wrong(&format!(
                "((action (agent-identifier :name s) (Sell :item {item} :buyer (agent-identifier :name b))))"
            ))
        };
        assert!(act("(Book :title x :price cheap :authors (sequence))").starts_with("$.item"));
        assert!(act("5").contains("Book, CD, Nothing"));
        assert_eq!(wrong("((p))"), "$: expected an action, got p");
        assert!(wrong("nonsense (").starts_with("$: "));
        let other = inform("((p))").with_ontology("music");
        assert!(matches!(
            error_of::<Action<Sell>>(&other),
            BodyError::Ontology { .. }
        ));
        let json = inform("((p))").with_language("application/json");
        assert!(matches!(
            error_of::<Content<'static>>(&json),
            BodyError::Language { .. }
        ));
        let small = inform("((p))").with_language("FIPA-SL0");
        assert!(small.body::<Content<'static>>().is_ok());
    }

    #[test]
    fn what_sl_cannot_say_is_an_error_of_the_writer() {
        let error = to_term(&std::collections::BTreeMap::from([(1, 2)]));
        assert!(error.is_err());
        assert!(to_term(&f64::NAN).is_err());
        assert!(to_term(&u64::MAX).is_err());
        assert!(to_term(&[None, Some(1)]).is_err());
        let gap = Predicate(Owned {
            owner: "j".to_owned(),
            item: None,
            note: Some("n".to_owned()),
        });
        let error = AclMessage::new(Performative::Inform)
            .with_body(&gap)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("item cannot be left out"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_book_comes_back(title in ".*", price in -1e9..1e9, authors in proptest::collection::vec(".*", 0..4), edition: Option<i64>, signed: Option<bool>) {
            let book = Book { title, price, authors, edition, published: None, signed };
            let message = comes_back(&Predicate(Bound { item: book }));
            prop_assert!(message.body::<Content<'static>>().is_ok());
        }

        #[test]
        fn any_expression_is_a_value_or_an_error(text in "[()a-c:\"0-9 .?]{0,60}") {
            let message = inform(&format!("((action (agent-identifier :name s) (Sell {text})))"));
            if let Err(error) = message.body::<Action<Sell>>() {
                prop_assert!(error.place().starts_with('$'));
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Bound {
        item: Book,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Owned {
        owner: String,
        item: Option<Item>,
        note: Option<String>,
    }

    impl Element for Owned {
        const ONTOLOGY: &'static str = "book-trading";
    }

    impl Element for Bound {
        const ONTOLOGY: &'static str = "book-trading";
    }
}

#[cfg(feature = "protobuf")]
mod protobuf {
    use super::*;
    use crate::body::Protobuf;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Task {
        #[prost(string, tag = "1")]
        title: String,
        #[prost(double, tag = "2")]
        hours: f64,
    }

    impl prost::Name for Task {
        const NAME: &'static str = "Task";
        const PACKAGE: &'static str = "factory.v1";
    }

    #[test]
    fn a_protobuf_message_comes_back_with_its_name() {
        let task = Protobuf(Task {
            title: "paint".to_owned(),
            hours: 2.5,
        });
        let message = AclMessage::new(Performative::Request)
            .with_body(&task)
            .unwrap();
        assert_eq!(message.ontology, Some(Expression::from("factory.v1.Task")));
        assert_eq!(message.body::<Protobuf<Task>>().unwrap(), task);
        let other = message.clone().with_ontology("factory.v1.Order");
        assert!(matches!(
            error_of::<Protobuf<Task>>(&other),
            BodyError::Ontology { .. }
        ));
        let damaged = message.with_content(vec![0xff; 3]);
        assert_eq!(error_of::<Protobuf<Task>>(&damaged).place(), "$");
    }
}
