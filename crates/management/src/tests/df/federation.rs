//! Searches that go on in other directories.

use super::*;

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

const LOCAL: &str = "here@factory";

fn pinger_of(name: &str, length: usize) -> DfAgentDescription {
    let mut entry = offers(name, "ping-service");
    entry.languages.push("x".repeat(length));
    entry
}

/// A DF with small limits, an entry, and `df@far` registered.
fn with_small_limits(length: usize) -> Df {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            results: 3,
            results_length: 1000,
            ..DirectoryLimits::default()
        },
    );
    let far = offers("df@far", "fipa-df");
    let _ = df.place(&far, now()).unwrap();
    let _ = df.place(&pinger_of(LOCAL, length), now()).unwrap();
    df
}

/// Searches for `most` entries, here and in `df@far`, which finds these and may name a limit of its own. Returns the question
/// to `df@far`, the agents found, and the limit that the answer names.
fn search_on(
    df: &mut Df,
    most: i64,
    far: &[DfAgentDescription],
    its_limit: Option<&str>,
) -> (String, Vec<String>, Option<String>) {
    let search = DfFunction::Search(
        DfAgentDescription::default().with_service(ServiceDescription::of_type("ping-service")),
        SearchConstraints {
            max_depth: Some(1),
            max_results: Some(most),
            search_id: None,
        },
    );
    let search = asks("asker@factory", &search);
    let mut questions = df.handle(&search, &agent("asker@factory"), now()).messages;
    let question = questions.remove(0);
    assert_eq!(question.receivers[0].name, "df@far");
    let entries: Vec<String> = far.iter().map(|it| it.to_term().to_string()).collect();
    let entries = entries.join(" ");
    let mut reply = question
        .create_reply(Performative::Inform)
        .with_content(format!(
            "((result (action df (search)) (sequence {entries})))"
        ));
    reply.sender = Some(aid("df@far"));
    crate::dialogue::name_limit(&mut reply, its_limit.map(str::to_owned));
    let outcome = df.handle(&reply, &agent("df@far"), now());
    let [answer] = outcome.messages.as_slice() else {
        panic!("{:?}", told(&outcome.messages));
    };
    let found = Answer::read(answer)
        .unwrap()
        .found(DfAgentDescription::from_term)
        .unwrap();
    let found = found.into_iter().map(|it| it.name.unwrap().name).collect();
    let limit = answer.user_defined_value(crate::client::LIMIT_PARAMETER);
    let limit = limit.and_then(|it| it.as_str()).map(str::to_owned);
    let question = question.content_text().unwrap().to_owned();
    (question, found, limit)
}

#[test]
fn a_search_that_goes_on_names_the_limit_that_left_out_entries() {
    let number = "more matches, but the platform's limit 'results' allows 3";
    let length = "more matches, but the platform's limit 'results_length' allows 1000";
    let far = ["a@far", "b@far", "c@far"].map(|name| pinger_of(name, 1));
    // The other DF is asked for one entry more than the answer may hold.
    let (question, found, limit) = search_on(&mut with_small_limits(1), 9, &far, None);
    assert!(question.contains(":max-results 3"), "{question}");
    assert_eq!(found, [LOCAL, "a@far", "b@far"]);
    assert_eq!(limit.as_deref(), Some(number));
    let (_, found, limit) = search_on(&mut with_small_limits(1), -1, &far, None);
    assert_eq!((found.len(), limit.as_deref()), (3, Some(number)));
    // An asker that gets as many as it wants misses none.
    let (question, found, limit) = search_on(&mut with_small_limits(1), 3, &far, None);
    assert!(question.contains(":max-results 2"), "{question}");
    assert_eq!((found.len(), limit), (3, None));
    let (_, found, limit) = search_on(&mut with_small_limits(1), -1, &far[..2], None);
    assert_eq!((found.len(), limit), (3, None));

    // The entries of this DF count.
    let far = [pinger_of("long@far", 600), pinger_of("short@far", 1)];
    let (_, found, limit) = search_on(&mut with_small_limits(600), -1, &far, None);
    assert_eq!(found, [LOCAL, "short@far"]);
    assert_eq!(limit.as_deref(), Some(length));
    // This DF itself left out an entry.
    let mut df = with_small_limits(600);
    let _ = df.place(&pinger_of("more@factory", 600), now()).unwrap();
    let (_, found, limit) = search_on(&mut df, -1, &[], None);
    assert_eq!(found, [LOCAL]);
    assert_eq!(limit.as_deref(), Some(length));
    // The other DF left out entries.
    let (_, found, limit) = search_on(&mut with_small_limits(1), -1, &[], Some(number));
    assert_eq!(found, [LOCAL]);
    assert_eq!(limit, Some(format!("df@far: {number}")));
}

#[test]
fn a_full_answer_waits_for_the_dfs_that_may_know_of_more() {
    let mut df = with_small_limits(1);
    for name in ["second@factory", "third@factory"] {
        let _ = df.place(&pinger_of(name, 1), now()).unwrap();
    }
    let far = [pinger_of("a@far", 1)];
    let (_, found, limit) = search_on(&mut df, -1, &far, None);
    assert_eq!(found.len(), 3);
    assert!(limit.unwrap().contains("'results' allows 3"));
}
