mod federation;
mod leases;
mod limits;
mod subscriptions;

use sealbus_fipa::DateTime;
use sealbus_fipa::management::{DfAgentDescription, SearchConstraints, ServiceDescription};

use super::*;
use crate::client::{Answer, cancel, subscribe};

const DF: &str =
    "(agent-identifier :name df@factory :addresses (sequence http://127.0.0.1:7878/acc))";
const ME: &str =
    "(agent-identifier :name pinger@pyplat :addresses (sequence http://127.0.0.1:7990/acc))";

fn df() -> Df {
    Df::new(aid("df@factory"), DirectoryLimits::default())
}

/// The registration that was sent to a live JADE 4.6.5.
fn pinger() -> String {
    format!(
        "(df-agent-description :name {ME} :protocols (set fipa-request) :ontologies (set planets) \
         :languages (set fipa-sl) :services (set (service-description :name ping :type \
         ping-service :ownership \"me inc\" :ontologies (set planets) :properties (set (property \
         :name cost :value 12)))))"
    )
}

/// The entry as it comes back, with its slots in this crate's order.
fn pinger_back() -> String {
    format!(
        "(df-agent-description :name {ME} :services (set (service-description :name ping :type \
         ping-service :ontologies (set planets) :ownership \"me inc\" :properties (set (property \
         :name cost :value 12)))) :protocols (set fipa-request) :ontologies (set planets) \
         :languages (set fipa-sl))"
    )
}

/// Asks as `from`, with proof. Returns the performative and content of the one answer.
fn ask(df: &mut Df, from: &str, act: &str) -> (String, String) {
    let message = request(from, &format!("((action {DF} {act}))"));
    one(&df.handle(&message, &agent(from), now()).messages)
}

/// The part after the action in a tuple, or the value in a result.
fn rest(act: &str, (performative, content): (String, String)) -> String {
    let action = format!("(action {DF} {act})");
    let rest = content
        .strip_prefix('(')
        .unwrap()
        .strip_suffix(')')
        .unwrap();
    let rest = rest.replacen(&action, "ACTION", 1);
    format!("{performative} {rest}")
}

#[test]
fn requests_that_a_live_jade_answered_are_answered_alike() {
    let mut df = df();
    let me = "pinger@pyplat";
    let service = "(service-description :type ping-service)";
    let search = format!(
        "(search (df-agent-description :services (set {service})) (search-constraints :max-depth 0 :max-results 5))"
    );
    let register = format!("(register {})", pinger());
    let deregister = format!("(deregister (df-agent-description :name {ME}))");
    let modify = format!(
        "(modify (df-agent-description :name {ME} :services (set (service-description :name ping \
         :type ping-service)) :lease-time 20271121T000000000Z))"
    );
    let found = format!("inform (result ACTION (sequence {}))", pinger_back());
    let all = "(search (df-agent-description) (search-constraints :max-results -1))";
    let nameless = "(register (df-agent-description :services (set)))";
    let serviceless = format!(
        "(register (df-agent-description :name {ME} :services (set (service-description :type x))))"
    );
    for (act, expected) in [
        (search.as_str(), "inform (result ACTION (sequence))"),
        (&deregister, "failure ACTION not-registered"),
        (&modify, "failure ACTION not-registered"),
        (&register, "inform (done ACTION)"),
        (&register, "failure ACTION already-registered"),
        (&search, &found),
        (all, &found),
        (&modify, "inform (done ACTION)"),
        (&deregister, "inform (done ACTION)"),
        (&deregister, "failure ACTION not-registered"),
        (
            nameless,
            "refuse ACTION (missing-parameter df-agent-description name)",
        ),
        (
            &serviceless,
            "refuse ACTION (missing-parameter service-description name)",
        ),
        (
            "(frobnicate x)",
            "refuse ACTION (unsupported-function frobnicate)",
        ),
        (
            "(search)",
            "refuse ACTION (missing-argument df-agent-description)",
        ),
    ] {
        let answer = ask(&mut df, me, act);
        assert_eq!(rest(act, answer), expected, "{act}");
    }
}

#[test]
fn an_answer_belongs_to_its_request() {
    let mut df = df();
    let act = "(search (df-agent-description) (search-constraints))";
    let message = request("a@factory", &format!("((action {DF} {act}))"));
    let answer = &df.handle(&message, &agent("a@factory"), now()).messages[0];
    assert_eq!(answer.sender.as_ref(), Some(&aid("df@factory")));
    assert_eq!(answer.receivers, [aid("a@factory")]);
    assert_eq!(answer.in_reply_to, message.reply_with);
    assert_eq!(answer.conversation_id, message.conversation_id);
    assert_eq!(answer.protocol, message.protocol);
    assert_eq!(answer.ontology, message.ontology);
    assert_eq!(answer.language, message.language);
}

/// Otherwise an agent could make the DF write to agents that the agent itself must not write to, and to twenty thousand
/// of them at once.
#[test]
fn only_the_asker_is_answered_whatever_its_reply_to_says() {
    let mut df = df();
    let act = "(search (df-agent-description) (search-constraints))";
    let many = || (0..20_000).map(|number| aid(&format!("b{number}@factory")));
    let search = request("a@factory", &format!("((action {DF} {act}))"));
    let refused = request("a@factory", "secret");
    let subscription = wants("selling").with_sender(aid("a@factory"));
    for mut message in [search, refused, subscription] {
        message.reply_to.extend(many());
        let outcome = df.handle(&message, &agent("a@factory"), now());
        let [answer] = outcome.messages.as_slice() else {
            panic!("{:?}", told(&outcome.messages));
        };
        assert_eq!(answer.receivers, [aid("a@factory")]);
    }
    let entry = DfFunction::Register(offers("seller@factory", "selling"));
    let outcome = df.handle(
        &asks("seller@factory", &entry),
        &agent("seller@factory"),
        now(),
    );
    let told: Vec<_> = outcome
        .messages
        .iter()
        .map(|it| it.receivers.clone())
        .collect();
    assert_eq!(told, [[aid("seller@factory")], [aid("a@factory")]]);
}

#[test]
fn an_action_of_another_agent_is_not_performed() {
    let mut df = df();
    let register = "(register (df-agent-description :name (agent-identifier :name a@factory)))";
    let asked = |actor: &str| request("a@factory", &format!("((action {actor} {register}))"));
    for actor in [
        "(agent-identifier :name df@elsewhere)",
        "(agent-identifier :name ams@factory)",
        "df",
    ] {
        let outcome = df.handle(&asked(actor), &agent("a@factory"), now());
        let (performative, content) = one(&outcome.messages);
        assert_eq!(performative, "refuse", "{actor}");
        assert!(
            content.contains("(unrecognised-parameter-value action actor)"),
            "{content}"
        );
        assert_eq!(df.len(), 0);
    }
    // Platforms are distinguished without regard to letter case.
    let outcome = df.handle(
        &asked("(agent-identifier :name df@Factory)"),
        &agent("a@factory"),
        now(),
    );
    assert_eq!(one(&outcome.messages).0, "inform");
    let mut subscription = wants("selling");
    let content = subscription
        .content_text()
        .unwrap()
        .replace("df@factory", "df@elsewhere");
    subscription = subscription.with_content(content);
    let outcome = df.handle(&subscription, &agent("buyer@factory"), now());
    assert_eq!(one(&outcome.messages).0, "refuse");
}

#[test]
fn what_cannot_be_read_is_not_understood() {
    let mut df = df();
    let mut answer = |message: &AclMessage| {
        let outcome = df.handle(message, &agent("a@factory"), now());
        (one(&outcome.messages), outcome.messages[0].language.clone())
    };
    let content = "(unrecognised-value content)";
    let understood = |content: &str| {
        (
            ("not-understood".to_owned(), format!("({content})")),
            Some("fipa-sl0".into()),
        )
    };
    for nonsense in [
        "",
        "hello",
        "((action",
        "(true)",
        "((iota ?x (p ?x)))",
        "((action a b) (action a b))",
    ] {
        assert_eq!(
            answer(&request("a@factory", nonsense)),
            understood(content),
            "{nonsense}"
        );
    }
    let mut message = request("a@factory", "x");
    message.content = None;
    assert_eq!(answer(&message), understood(content));
    let message = request("a@factory", "x").with_language("kif");
    assert_eq!(answer(&message), understood("(unsupported-value language)"));
    let message = request("a@factory", "x").with_ontology("planets");
    assert_eq!(answer(&message), understood("(unsupported-value ontology)"));
    let mut message = request("a@factory", "x");
    message.performative = Performative::QueryRef;
    assert_eq!(answer(&message), understood("(unsupported-act query-ref)"));
    message.performative = Performative::Cancel;
    assert_eq!(answer(&message), understood("(unexpected-act cancel)"));
}

#[test]
fn answers_and_statements_are_never_answered() {
    let mut df = df();
    for performative in Performative::STANDARD {
        let mut message = request("a@factory", "nonsense");
        message.performative = performative.clone();
        let quiet = !super::super::dialogue::asks(&performative);
        let outcome = df.handle(&message, &agent("a@factory"), now());
        assert_eq!(outcome.messages.is_empty(), quiet, "{performative:?}");
        message.sender = None;
        assert!(
            df.handle(&message, &Requester::Unproved, now())
                .messages
                .is_empty()
        );
    }
}

#[test]
fn only_its_owner_changes_an_entry() {
    let mut df = df();
    let seller = DfAgentDescription::of(aid("seller@factory"));
    let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::all());
    let register = DfFunction::Register(seller.clone());
    let others = [
        agent("thief@factory"),
        agent("seller@elsewhere"),
        Requester::Unproved,
    ];
    let mut try_as = |function: &DfFunction, requester: &Requester| {
        // The message claims the owner as its sender each time, but the proof counts.
        let outcome = df.handle(&asks("seller@factory", function), requester, now());
        let (performative, content) = one(&outcome.messages);
        (
            performative,
            content.ends_with(" unauthorised)"),
            outcome.batch.is_empty(),
        )
    };
    let refused = ("refuse".to_owned(), true, true);
    let done = ("inform".to_owned(), false, false);
    for other in &others {
        assert_eq!(try_as(&register, other), refused);
        assert_eq!(try_as(&search, other), ("inform".to_owned(), false, true));
    }
    assert_eq!(try_as(&register, &agent("seller@factory")), done);
    let modify = DfFunction::Modify(seller.clone());
    let deregister = DfFunction::Deregister(seller);
    for function in [&modify, &deregister] {
        for other in &others {
            assert_eq!(try_as(function, other), refused);
        }
        assert_eq!(try_as(function, &agent("seller@factory")), done);
    }
}

#[test]
fn the_platform_files_entries_for_agents() {
    let mut df = df();
    let seller = offers("seller@factory", "selling");
    let _ = df.handle(&wants("selling"), &agent("buyer@factory"), now());
    for _ in 0..2 {
        let outcome = df.place(&seller, now()).unwrap();
        assert!(!outcome.batch.is_empty());
        assert_eq!(read_notices(&outcome.messages), [[seller.clone()]]);
        assert_eq!(df.get("seller@factory"), Some(&seller));
    }
    let nameless = DfAgentDescription::default();
    assert!(df.place(&nameless, now()).is_err());
}

#[test]
fn a_search_gives_as_many_as_it_is_asked_for() {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            results: 4,
            ..DirectoryLimits::default()
        },
    );
    for number in 0..6 {
        let name = format!("a{number}@factory");
        let entry = DfAgentDescription::of(aid(&name));
        let _ = df.handle(
            &asks(&name, &DfFunction::Register(entry)),
            &agent(&name),
            now(),
        );
    }
    let mut found = |constraints: SearchConstraints| {
        let search = DfFunction::Search(DfAgentDescription::default(), constraints);
        let outcome = df.handle(&asks("x@factory", &search), &agent("x@factory"), now());
        let entries = Answer::read(&outcome.messages[0])
            .unwrap()
            .found(DfAgentDescription::from_term)
            .unwrap();
        entries
            .into_iter()
            .map(|it| it.name.unwrap().name)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(SearchConstraints::default()), ["a0@factory"]);
    assert_eq!(found(SearchConstraints::at_most(0)).len(), 0);
    assert_eq!(found(SearchConstraints::at_most(3)).len(), 3);
    assert_eq!(found(SearchConstraints::at_most(9)).len(), 4);
    assert_eq!(found(SearchConstraints::all()).len(), 4);
}

#[test]
fn a_search_that_comes_back_is_not_done_again() {
    let mut df = df();
    let constraints = SearchConstraints {
        search_id: Some("df@plat9-1".into()),
        ..Default::default()
    };
    let search = asks(
        "x@factory",
        &DfFunction::Search(Default::default(), constraints),
    );
    let mut performative = || one(&df.handle(&search, &agent("x@factory"), now()).messages).0;
    assert_eq!(performative(), "inform");
    assert_eq!(performative(), "failure");
    let constraints = SearchConstraints {
        search_id: Some("x".repeat(2000)),
        ..Default::default()
    };
    let search = asks(
        "x@factory",
        &DfFunction::Search(Default::default(), constraints),
    );
    assert_eq!(
        one(&df.handle(&search, &agent("x@factory"), now()).messages).0,
        "refuse"
    );
}

fn wants(service_type: &str) -> AclMessage {
    let template =
        DfAgentDescription::default().with_service(ServiceDescription::of_type(service_type));
    subscribe(&aid("df@factory"), template, SearchConstraints::all())
        .with_sender(aid("buyer@factory"))
        .with_conversation_id("sub1")
        .with_reply_with("rw9")
}

fn offers(name: &str, service_type: &str) -> DfAgentDescription {
    DfAgentDescription::of(aid(name)).with_service(ServiceDescription::new("s", service_type))
}

fn read_notices(messages: &[AclMessage]) -> Vec<Vec<DfAgentDescription>> {
    let notices = messages.iter().map(|notice| {
        assert_eq!(notice.receivers, [aid("buyer@factory")]);
        assert_eq!(notice.conversation_id, Some("sub1".into()));
        assert_eq!(notice.in_reply_to, Some("rw9".into()));
        assert_eq!(notice.language, Some("fipa-sl".into()));
        Answer::read(notice)
            .unwrap()
            .news(DfAgentDescription::from_term)
            .unwrap()
    });
    notices.collect()
}
