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
            .entries()
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

fn lease(token: &str) -> DfFunction {
    let mut entry = DfAgentDescription::of(aid("a@factory"));
    entry.lease_time = Some(token.parse().unwrap());
    DfFunction::Register(entry)
}

#[test]
fn leases_end() {
    for (token, granted) in [
        ("20270101T000010000Z", "20270101T000010000Z"),
        ("+00000000T000010000", "20270101T000010000Z"),
        ("20270101T000010000", "20270101T000010000"),
    ] {
        let mut df = df();
        let outcome = df.handle(
            &asks("a@factory", &lease(token)),
            &agent("a@factory"),
            now(),
        );
        let answer = Answer::read(&outcome.messages[0]).unwrap();
        let entry = answer.granted().unwrap();
        assert_eq!(entry.lease_time, Some(granted.parse::<DateTime>().unwrap()));
        assert_eq!(df.deadline(), Some(after(10)));
        let early = df.tick(after(10) - Duration::from_millis(1));
        assert!(early.batch.is_empty());
        assert_eq!(df.len(), 1);
        let late = df.tick(after(10));
        assert!(!late.batch.is_empty());
        assert_eq!((df.len(), df.deadline()), (0, None));
    }
}

#[test]
fn a_lease_that_has_ended_already_is_refused() {
    for token in [
        "20261231T235959999Z",
        "-00000000T000000001",
        "+00000000T000000000",
    ] {
        let mut df = df();
        let outcome = df.handle(
            &asks("a@factory", &lease(token)),
            &agent("a@factory"),
            now(),
        );
        let (performative, content) = one(&outcome.messages);
        assert_eq!(performative, "refuse");
        let reason = "(unrecognised-parameter-value df-agent-description lease-time))";
        assert!(content.ends_with(reason), "{content}");
    }
}

#[test]
fn long_leases_are_cut_and_renewed_by_modify() {
    let limits = DirectoryLimits {
        longest_lease: Some(Duration::from_secs(60)),
        ..DirectoryLimits::default()
    };
    let mut df = Df::new(aid("df@factory"), limits);
    let forever = DfAgentDescription::of(aid("a@factory"));
    let mut ask = |function: &DfFunction, at| {
        let outcome = df.handle(&asks("a@factory", function), &agent("a@factory"), at);
        let granted = Answer::read(&outcome.messages[0])
            .unwrap()
            .granted()
            .unwrap();
        (
            granted.lease_time.unwrap().system_time(at).unwrap(),
            df.deadline().unwrap(),
        )
    };
    assert_eq!(
        ask(&DfFunction::Register(forever.clone()), now()),
        (after(60), after(60))
    );
    assert_eq!(
        ask(&DfFunction::Modify(forever.clone()), after(30)),
        (after(90), after(90))
    );
    let mut short = forever;
    short.lease_time = Some("+00000000T000005000".parse().unwrap());
    assert_eq!(
        ask(&DfFunction::Modify(short), after(40)),
        (after(45), after(45))
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

/// Asks as the agent that the function is about. Returns the notifications to others.
fn notices(df: &mut Df, name: &str, function: DfFunction) -> Vec<Vec<DfAgentDescription>> {
    let outcome = df.handle(&asks(name, &function), &agent(name), now());
    assert!(
        Answer::read(&outcome.messages[0]).unwrap().is_done(),
        "{:?}",
        outcome.messages
    );
    read_notices(&outcome.messages[1..])
}

fn read_notices(messages: &[AclMessage]) -> Vec<Vec<DfAgentDescription>> {
    let notices = messages.iter().map(|notice| {
        assert_eq!(notice.receivers, [aid("buyer@factory")]);
        assert_eq!(notice.conversation_id, Some("sub1".into()));
        assert_eq!(notice.in_reply_to, Some("rw9".into()));
        assert_eq!(notice.language, Some("fipa-sl".into()));
        Answer::read(notice).unwrap().changes().unwrap()
    });
    notices.collect()
}

#[test]
fn subscribers_are_told_what_comes_changes_and_goes() {
    let mut df = df();
    let gone = DfAgentDescription::of(aid("seller@factory"));
    let seller = offers("seller@factory", "selling");
    assert!(
        notices(
            &mut df,
            "seller@factory",
            DfFunction::Register(seller.clone())
        )
        .is_empty()
    );

    let outcome = df.handle(&wants("selling"), &agent("buyer@factory"), now());
    assert_eq!(Answer::read(&outcome.messages[0]), Ok(Answer::Agreed));
    assert_eq!(read_notices(&outcome.messages[1..]), [[seller.clone()]]);

    let other = offers("other@factory", "cleaning");
    assert!(notices(&mut df, "other@factory", DfFunction::Register(other)).is_empty());
    let mut changed = seller.clone();
    changed.languages.push("fipa-sl".into());
    let told = notices(
        &mut df,
        "seller@factory",
        DfFunction::Modify(changed.clone()),
    );
    assert_eq!(told, [[changed]]);
    let out = offers("seller@factory", "cleaning");
    assert_eq!(
        notices(&mut df, "seller@factory", DfFunction::Modify(out)),
        [[gone.clone()]]
    );
    let back = notices(
        &mut df,
        "seller@factory",
        DfFunction::Modify(seller.clone()),
    );
    assert_eq!(back, [[seller.clone()]]);
    let told = notices(
        &mut df,
        "seller@factory",
        DfFunction::Deregister(gone.clone()),
    );
    assert_eq!(told, [[gone.clone()]]);

    let mut short = seller.clone();
    short.lease_time = Some("20270101T000005000Z".parse().unwrap());
    assert_eq!(
        notices(
            &mut df,
            "seller@factory",
            DfFunction::Register(short.clone())
        ),
        [[short]]
    );
    assert_eq!(read_notices(&df.tick(after(5)).messages), [[gone.clone()]]);

    let _ = notices(
        &mut df,
        "seller@factory",
        DfFunction::Register(seller.clone()),
    );
    assert_eq!(
        read_notices(&df.agent_gone("seller@factory").messages),
        [[gone]]
    );

    let cancel = cancel(&wants("selling"));
    let thief = df.handle(&cancel, &agent("thief@factory"), now());
    assert_eq!(one(&thief.messages).1, "((unexpected-act cancel))");
    let outcome = df.handle(&cancel, &agent("buyer@factory"), now());
    assert!(Answer::read(&outcome.messages[0]).unwrap().is_done());
    assert!(notices(&mut df, "seller@factory", DfFunction::Register(seller)).is_empty());
}

#[test]
fn subscriptions_in_jades_form_are_served() {
    let mut df = df();
    let content = format!(
        "((iota ?x (result (action {DF} (search (df-agent-description) (search-constraints))) ?x)))"
    );
    let mut message = request("buyer@jade", &content).with_language("fipa-sl");
    message.performative = Performative::Subscribe;
    let outcome = df.handle(&message, &agent("buyer@jade"), now());
    let action = format!("(action {DF} (search (df-agent-description) (search-constraints)))");
    assert_eq!(
        one(&outcome.messages),
        ("agree".to_owned(), format!("({action} true)"))
    );
    let entry = DfAgentDescription::of(aid("a@factory"));
    let outcome = df.handle(
        &asks("a@factory", &DfFunction::Register(entry)),
        &agent("a@factory"),
        now(),
    );
    assert_eq!(
        outcome.messages[1].content_text().unwrap(),
        format!(
            "((= (iota ?x (result {action} ?x)) (sequence (df-agent-description :name \
             (agent-identifier :name a@factory)))))"
        )
    );
}

#[test]
fn a_subscriber_that_is_not_reached_is_forgotten() {
    let mut df = df();
    let _ = df.handle(&wants("selling"), &agent("buyer@factory"), now());
    let mut notice = request(
        "ams@factory",
        "((action (agent-identifier :name df@factory) (ACLMessage)) (MTS-error \
         (agent-identifier :name buyer@factory) (internal-error \"gone\")))",
    )
    .with_conversation_id("sub1");
    notice.performative = Performative::Failure;
    // An agent that could send such a notice could end other agents' subscriptions.
    let forged = df.handle(&notice, &agent("thief@factory"), now());
    assert!(forged.batch.is_empty());
    let outcome = df.handle(&notice, &Requester::Platform, now());
    assert!(!outcome.batch.is_empty() && outcome.messages.is_empty());
    let seller = offers("seller@factory", "selling");
    assert!(notices(&mut df, "seller@factory", DfFunction::Register(seller)).is_empty());
}

#[test]
fn every_limit_is_named_when_it_is_met() {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            entries: 1,
            entry_length: 600,
            services: 2,
            words: 12,
            subscriptions_per_agent: 1,
            subscriptions_per_platform: 2,
            subscriptions: 3,
            subscription_length: 1000,
            ..DirectoryLimits::default()
        },
    );
    let mut register = |entry: DfAgentDescription| {
        let message = asks("a@factory", &DfFunction::Register(entry));
        one(&df.handle(&message, &agent("a@factory"), now()).messages)
    };
    let mut check = |entry, limit: &str| {
        let (performative, content) = register(entry);
        assert_eq!(performative, "refuse", "{limit}: {content}");
        let named = format!("the platform's limit '{limit}' allows");
        assert!(content.contains(&named), "{limit}: {content}");
    };
    let mut long = DfAgentDescription::of(aid("a@factory"));
    long.languages.push("x".repeat(600));
    check(long, "entry_length");
    let many = (0..3).fold(DfAgentDescription::of(aid("a@factory")), |entry, _| {
        entry.with_service(ServiceDescription::new("s", "t"))
    });
    check(many, "services");
    let mut wordy = DfAgentDescription::of(aid("a@factory"));
    wordy.protocols = vec!["p".into(); 13];
    check(wordy, "words");
    let value = sealbus_fipa::sl::Term::Set(vec![sealbus_fipa::sl::Term::Integer(1); 13]);
    let nested = ServiceDescription::new("s", "t").with_property("p", value);
    check(
        DfAgentDescription::of(aid("a@factory")).with_service(nested),
        "words",
    );
    assert_eq!(
        register(DfAgentDescription::of(aid("a@factory"))).0,
        "inform"
    );
    let message = asks(
        "b@factory",
        &DfFunction::Register(DfAgentDescription::of(aid("b@factory"))),
    );
    let (_, content) = one(&df.handle(&message, &agent("b@factory"), now()).messages);
    assert!(content.contains("'entries'"), "{content}");

    let mut wants = |agent_name: &str, conversation: &str| {
        let message = wants("t")
            .with_sender(aid(agent_name))
            .with_conversation_id(conversation);
        let outcome = df.handle(&message, &agent(agent_name), now());
        told(&outcome.messages).remove(0)
    };
    assert_eq!(wants("a@factory", "1").0, "agree");
    // The same conversation replaces the subscription.
    assert_eq!(wants("a@factory", "1").0, "agree");
    assert!(
        wants("a@factory", "2")
            .1
            .contains("'subscriptions_per_agent'")
    );
    // All agents of another platform share one allowance, because their names are only claimed.
    assert_eq!(wants("b@jade", "1").0, "agree");
    assert_eq!(wants("c@Jade", "1").0, "agree");
    assert!(
        wants("d@jade", "1")
            .1
            .contains("'subscriptions_per_platform'")
    );
    assert!(wants("c@factory", "1").1.contains("'subscriptions'"));
    assert!(
        wants("c@factory", &"1".repeat(1000))
            .1
            .contains("'subscription_length'")
    );
}

#[test]
fn subscriptions_take_a_bounded_room_together() {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            subscriptions_length_per_agent: 2000,
            subscriptions_length_per_platform: 2000,
            subscriptions_length: 3500,
            ..DirectoryLimits::default()
        },
    );
    let mut wants = |agent_name: &str, conversation: usize| {
        let message = wants("t")
            .with_sender(aid(agent_name))
            .with_conversation_id(format!("{conversation:0900}"));
        let outcome = df.handle(&message, &agent(agent_name), now());
        told(&outcome.messages).remove(0)
    };
    assert_eq!(wants("a@factory", 1).0, "agree");
    // The new subscription takes the place of the one before.
    assert_eq!(wants("a@factory", 1).0, "agree");
    let (performative, content) = wants("a@factory", 2);
    assert_eq!(performative, "refuse");
    assert!(
        content.contains("'subscriptions_length_per_agent' allows 2000"),
        "{content}"
    );
    assert_eq!(wants("a@jade", 1).0, "agree");
    let refused = wants("b@jade", 1).1;
    assert!(
        refused.contains("'subscriptions_length_per_platform'"),
        "{refused}"
    );
    let refused = wants("b@factory", 1).1;
    assert!(refused.contains("'subscriptions_length'"), "{refused}");
}

#[test]
fn what_could_not_be_kept_is_taken_back_and_said() {
    let full = sealbus_store::StoreError::Full {
        path: "/state.redb".into(),
        source: std::io::ErrorKind::StorageFull.into(),
    };
    let mut df = df();
    let seller = offers("seller@factory", "selling");
    let subscribed = df.handle(&wants("selling"), &agent("buyer@factory"), now());
    let apologies = df.revert(subscribed, &full);
    let (performative, content) = one(&apologies);
    assert_eq!(performative, "failure");
    assert!(
        content.contains("internal-error") && content.contains("no space left"),
        "{content}"
    );
    let outcome = df.handle(
        &asks("seller@factory", &DfFunction::Register(seller.clone())),
        &agent("seller@factory"),
        now(),
    );
    assert_eq!(outcome.messages.len(), 1, "the subscription was taken back");
    let mut merged = outcome;
    merged.append(df.handle(
        &asks("seller@factory", &DfFunction::Deregister(seller.clone())),
        &agent("seller@factory"),
        now(),
    ));
    assert_eq!(df.len(), 0);
    let apologies = df.revert(merged, &full);
    assert_eq!(apologies.len(), 2);
    assert_eq!(df.len(), 0);

    let mut short = seller.clone();
    short.lease_time = Some("20270101T000005000Z".parse().unwrap());
    let _ = df.handle(
        &asks("seller@factory", &DfFunction::Register(short.clone())),
        &agent("seller@factory"),
        now(),
    );
    let ended = df.tick(after(5));
    assert_eq!((df.len(), df.deadline()), (0, None));
    assert!(df.revert(ended, &full).is_empty());
    assert_eq!(
        (df.get("seller@factory"), df.deadline()),
        (Some(&short), Some(after(5)))
    );
}

/// A DF with another one, `df@far`, registered.
fn with_df_at_far() -> Df {
    let mut df = df();
    let entry = "(df-agent-description :name (agent-identifier :name df@far :addresses (sequence http://far:1/acc)) \
        :services (set (service-description :name s :type fipa-df)))";
    ask(&mut df, "df@far", &format!("(register {entry})"));
    df
}

fn search_of_depth(depth: u8) -> AclMessage {
    let act = format!(
        "(search (df-agent-description :services (set (service-description :type ping-service))) \
         (search-constraints :max-depth {depth} :max-results -1))"
    );
    request("asker@factory", &format!("((action {DF} {act}))"))
}

#[test]
fn a_search_that_may_go_deeper_goes_on_in_the_dfs_registered_here() {
    let mut df = with_df_at_far();
    ask(
        &mut df,
        "pinger@pyplat",
        &format!("(register {})", pinger()),
    );
    let asker = agent("asker@factory");
    // Without depth the answer comes at once.
    let (performative, content) = one(&df.handle(&search_of_depth(0), &asker, now()).messages);
    assert_eq!(performative, "inform");
    assert!(content.contains("pinger@pyplat"));
    assert_eq!(df.deadline(), None);

    let questions = df.handle(&search_of_depth(2), &asker, now()).messages;
    let [question] = questions.as_slice() else {
        panic!("{questions:?}");
    };
    assert_eq!(question.receivers[0].name, "df@far");
    assert_eq!(question.receivers[0].addresses, ["http://far:1/acc"]);
    let text = question.content_text().unwrap();
    assert!(
        text.contains(":max-depth 1") && text.contains(":search-id"),
        "{text}"
    );
    assert!(df.deadline().is_some());
    // An answer from another agent does not count.
    let answer = |content: &str| {
        question
            .create_reply(Performative::Inform)
            .with_content(content)
    };
    let found = |names: &[&str]| {
        let entries: Vec<String> = names
            .iter()
            .map(|name| format!("(df-agent-description :name (agent-identifier :name {name}))"))
            .collect();
        answer(&format!(
            "((result (action df (search)) (sequence {})))",
            entries.join(" ")
        ))
    };
    let mut forged = found(&["evil@far"]);
    forged.sender = Some(aid("evil@far"));
    assert!(
        df.handle(&forged, &agent("evil@far"), now())
            .messages
            .is_empty()
    );
    // An agent that is found twice is reported once, and this DF does not report agents of other platforms.
    let mut real = found(&[
        "far-pinger@far",
        "far-pinger@far",
        "pinger@pyplat",
        "victim@factory",
        "seller@third",
    ]);
    real.sender = Some(aid("df@far"));
    let (performative, content) = one(&df.handle(&real, &agent("df@far"), now()).messages);
    assert_eq!(performative, "inform");
    assert_eq!(content.matches("far-pinger@far").count(), 1);
    assert!(!content.contains(":X-"), "{content}");
    assert_eq!(content.matches(":name pinger@pyplat").count(), 1);
    for injected in ["victim@factory", "seller@third"] {
        assert!(!content.contains(injected), "{content}");
    }
    assert_eq!(df.deadline(), None);
}

#[test]
fn an_agent_of_this_platform_is_no_df_to_search_on_in() {
    let mut df = df();
    let entry = "(df-agent-description :name (agent-identifier :name mallory@Factory) \
        :services (set (service-description :name s :type fipa-df)))";
    assert_eq!(
        ask(&mut df, "mallory@Factory", &format!("(register {entry})")).0,
        "inform"
    );
    let outcome = df.handle(&search_of_depth(2), &agent("asker@factory"), now());
    let (performative, content) = one(&outcome.messages);
    assert_eq!(performative, "inform");
    assert!(content.ends_with("(sequence)))"), "{content}");
}

#[test]
fn an_agent_of_another_platform_subscribes_only_if_it_may_register() {
    let mut df = df();
    let foreign = |may_register| Requester::Foreign {
        name: "buyer@jade".to_owned(),
        may_register,
    };
    let subscription = wants("selling").with_sender(aid("buyer@jade"));
    let outcome = df.handle(&subscription, &foreign(false), now());
    assert_eq!(one(&outcome.messages).0, "refuse");
    let outcome = df.handle(&subscription, &foreign(true), now());
    assert_eq!(one(&outcome.messages).0, "agree");
    let seller = DfFunction::Register(offers("seller@factory", "selling"));
    let outcome = df.handle(
        &asks("seller@factory", &seller),
        &agent("seller@factory"),
        now(),
    );
    assert_eq!(outcome.messages[1].receivers, [aid("buyer@jade")]);
    let cancel = cancel(&subscription).with_sender(aid("buyer@jade"));
    let outcome = df.handle(&cancel, &foreign(true), now());
    assert_eq!(one(&outcome.messages).0, "inform");
}

#[test]
fn a_df_that_does_not_answer_keeps_no_search_waiting_for_ever() {
    let mut df = with_df_at_far();
    let asker = agent("asker@factory");
    let questions = df.handle(&search_of_depth(1), &asker, now()).messages;
    assert_eq!(questions[0].receivers[0].name, "df@far");
    let deadline = df.deadline().unwrap();
    assert!(df.tick(now()).messages.is_empty());
    let (performative, content) = one(&df.tick(deadline).messages);
    assert_eq!(performative, "inform");
    assert!(content.ends_with("(sequence)))"), "{content}");
    assert_eq!(df.deadline(), None);
}

#[test]
fn a_df_that_asks_is_not_asked_back() {
    let mut df = with_df_at_far();
    let mut search = search_of_depth(3);
    search.sender = Some(aid("df@far"));
    let (performative, _) = one(&df.handle(&search, &agent("df@far"), now()).messages);
    assert_eq!(performative, "inform");
}

#[test]
fn an_agent_of_another_platform_registers_itself_only_if_it_may() {
    let mut df = df();
    let entry = |name: &str| {
        format!(
            "((action {DF} (register (df-agent-description :name (agent-identifier :name {name}) \
             :services (set (service-description :name s :type t))))))"
        )
    };
    let mut register = |name: &str, may_register| {
        let requester = Requester::Foreign {
            name: "a@far".to_owned(),
            may_register,
        };
        one(&df
            .handle(&request("a@far", &entry(name)), &requester, now())
            .messages)
        .0
    };
    assert_eq!(register("a@far", false), "refuse");
    assert_eq!(register("b@factory", true), "refuse");
    assert_eq!(register("a@far", true), "inform");
}

#[test]
fn all_agents_of_another_platform_share_what_it_may_register() {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            entries_per_platform: 2,
            entries_length_per_platform: 500,
            ..DirectoryLimits::default()
        },
    );
    let mut tell = |name: &str, function: DfFunction| {
        let requester = Requester::Foreign {
            name: name.to_owned(),
            may_register: true,
        };
        one(&df
            .handle(&asks(name, &function), &requester, now())
            .messages)
    };
    let entry = |name: &str, length: usize| {
        let mut entry = DfAgentDescription::of(aid(name));
        entry.languages.push("x".repeat(length));
        entry
    };
    let mut done = |name: &str, function: DfFunction| assert_eq!(tell(name, function).0, "inform");
    done("a@far", DfFunction::Register(entry("a@far", 10)));
    done("b@Far", DfFunction::Register(entry("b@Far", 10)));
    done("a@near", DfFunction::Register(entry("a@near", 10)));
    // An entry's own size does not count against its modification.
    done("a@far", DfFunction::Modify(entry("a@far", 200)));
    done("a@far", DfFunction::Modify(entry("a@far", 210)));
    let (performative, content) = tell("c@far", DfFunction::Register(entry("c@far", 10)));
    assert_eq!(performative, "refuse");
    assert!(
        content.contains("'entries_per_platform' allows 2"),
        "{content}"
    );
    let longer = DfFunction::Modify(entry("b@Far", 250));
    let (performative, content) = tell("b@Far", longer);
    assert_eq!(performative, "refuse");
    assert!(
        content.contains("'entries_length_per_platform' allows 500"),
        "{content}"
    );
    let mut done = |name: &str, function: DfFunction| assert_eq!(tell(name, function).0, "inform");
    done(
        "a@far",
        DfFunction::Deregister(DfAgentDescription::of(aid("a@far"))),
    );
    done("c@far", DfFunction::Register(entry("c@far", 250)));
}

#[test]
fn a_search_that_leaves_out_entries_names_the_limit() {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            results: 3,
            results_length: 1000,
            ..DirectoryLimits::default()
        },
    );
    let mut register = |number: usize, length: usize| {
        let mut entry = offers(&format!("a{number}@factory"), "selling");
        entry.languages.push("x".repeat(length));
        let _ = df.place(&entry, now()).unwrap();
        let mut limit = |most: i64| {
            let act =
                format!("(search (df-agent-description) (search-constraints :max-results {most}))");
            let search = request("a@factory", &format!("((action {DF} {act}))"));
            let outcome = df.handle(&search, &agent("a@factory"), now());
            let limit = outcome.messages[0].user_defined_value(crate::client::LIMIT_PARAMETER);
            limit.and_then(|it| it.as_str()).map(str::to_owned)
        };
        (limit(-1), limit(3), limit(4))
    };
    for number in 0..3 {
        assert_eq!(register(number, 10), (None, None, None));
    }
    let told = "more matches, but the platform's limit 'results' allows 3".to_owned();
    // A search for three entries gives three.
    assert_eq!(register(3, 10), (Some(told.clone()), None, Some(told)));
    let (all, three, _) = register(0, 800);
    let told = "more matches, but the platform's limit 'results_length' allows 1000";
    assert_eq!((all.as_deref(), three.as_deref()), (Some(told), Some(told)));
}
