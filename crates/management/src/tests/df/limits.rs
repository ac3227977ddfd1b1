//! Limits of the directory, and a directory that cannot keep an entry.

use super::*;

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

/// A directory commits the changes of several requests together.
#[test]
fn all_that_ask_beside_a_change_that_is_not_kept_are_answered() {
    let mut df = df();
    let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::all());
    let register = DfFunction::Register(offers("seller@factory", "selling"));
    let _ = df.handle(&wants("selling"), &agent("buyer@factory"), now());
    let mut round = df.handle(
        &asks("seller@factory", &register),
        &agent("seller@factory"),
        now(),
    );
    for message in [
        asks("a@factory", &search),
        asks("a@factory", &register),
        request("a@factory", "nonsense"),
    ] {
        round.append(df.handle(&message, &agent("a@factory"), now()));
    }
    let full = sealbus_store::StoreError::TooLarge { length: 1 };
    let failures = df.revert(round, &full);
    let receivers: Vec<_> = failures.iter().map(|it| it.receivers[0].clone()).collect();
    assert_eq!(
        receivers,
        ["seller@factory", "a@factory", "a@factory", "a@factory"].map(aid)
    );
    let action = "((action (agent-identifier :name df@factory) ";
    for (failure, begins) in told(&failures).into_iter().zip([
        format!("{action}(register "),
        format!("{action}(search "),
        format!("{action}(register "),
        "((internal-error ".to_owned(),
    ]) {
        let (performative, content) = failure;
        assert_eq!(performative, "failure");
        assert!(content.starts_with(&begins), "{content}");
        assert!(content.contains("too large for the store"), "{content}");
    }
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

/// An agent may search for, and follow, all that another one may register.
#[test]
fn the_largest_entry_can_be_searched_for_and_followed() {
    let limits = DirectoryLimits::default();
    let mut df = df();
    let mut largest = DfAgentDescription::of(aid("a@factory"));
    // Name, type and the languages are the words of a service.
    let languages = limits.words / limits.services - 2;
    for number in 0..limits.services {
        let mut service = ServiceDescription::new(format!("s{number}"), "t");
        service.languages = (0..languages).map(|it| format!("l{it}")).collect();
        largest = largest.with_service(service);
    }
    let length = |entry: &DfAgentDescription| entry.to_term().to_bytes().len();
    let missing = limits.entry_length - length(&largest);
    largest.services[0].languages[0].push_str(&"x".repeat(missing));
    assert_eq!(length(&largest), limits.entry_length);
    let mut ask = |function: DfFunction| {
        let message = asks("a@factory", &function);
        df.handle(&message, &agent("a@factory"), now()).messages
    };
    assert_eq!(one(&ask(DfFunction::Register(largest.clone()))).0, "inform");
    let all = SearchConstraints::all();
    let found = ask(DfFunction::Search(largest.clone(), all.clone()));
    let found = Answer::read(&found[0]).unwrap();
    let found = found.found(DfAgentDescription::from_term).unwrap();
    assert_eq!(found, [largest.clone()]);
    let message = subscribe(&aid("df@factory"), largest, all)
        .with_sender(aid("b@factory"))
        .with_conversation_id("1");
    let outcome = df.handle(&message, &agent("b@factory"), now());
    let (performative, content) = told(&outcome.messages).remove(0);
    assert_eq!(performative, "agree", "{}", &content[content.len() - 200..]);
}
