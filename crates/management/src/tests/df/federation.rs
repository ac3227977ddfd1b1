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

/// Sends a search of `from` to a DF that knows `df@far`. Returns the receiver of the one message that follows, and the limit
/// that it names.
fn search_as(
    df: &mut Df,
    from: &str,
    requester: &Requester,
    reply_with: &str,
) -> (String, Option<String>) {
    let search = search_of_depth(1)
        .with_sender(aid(from))
        .with_reply_with(reply_with);
    let outcome = df.handle(&search, requester, now());
    let [message] = outcome.messages.as_slice() else {
        panic!("{:?}", told(&outcome.messages));
    };
    let limit = message.user_defined_value(crate::client::LIMIT_PARAMETER);
    let limit = limit.and_then(|it| it.as_str()).map(str::to_owned);
    (message.receivers[0].name.clone(), limit)
}

/// The limit that keeps a search in this DF.
fn stopped(limit: &str, most: usize) -> Option<String> {
    Some(format!(
        "other DFs were not asked, because the platform's limit '{limit}' allows {most}"
    ))
}

#[test]
fn searches_that_wait_have_a_share_for_each_asker() {
    let limits = DirectoryLimits::default();
    let mut df = with_df_at_far();
    let goes_on = |found: &(String, Option<String>)| *found == ("df@far".to_owned(), None);
    let mallory = agent("mallory@factory");
    let found: Vec<_> = (0..2000)
        .map(|_| search_as(&mut df, "mallory@factory", &mallory, "rw"))
        .collect();
    let (asked, answered) = found.split_at(limits.searches_per_asker);
    assert!(asked.iter().all(goes_on));
    let told = stopped("searches_per_asker", limits.searches_per_asker);
    let here = ("mallory@factory".to_owned(), told.clone());
    assert!(answered.iter().all(|found| *found == here));
    let asker = agent("asker@factory");
    assert!(goes_on(&search_as(&mut df, "asker@factory", &asker, "rw")));

    // Another platform chooses the names of its agents, so all of them have one share.
    let mut foreign = |name: String| {
        let requester = Requester::Foreign {
            name: name.clone(),
            may_register: false,
        };
        search_as(&mut df, &name, &requester, "rw")
    };
    let found: Vec<_> = (0..2000).map(|it| foreign(format!("m{it}@evil"))).collect();
    let asked = found.iter().filter(|found| goes_on(found)).count();
    assert_eq!(asked, limits.searches_per_asker);
    assert_eq!(foreign("m@Evil".to_owned()).1, told);
    assert!(goes_on(&foreign("m@other".to_owned())));

    // The searches that waited have their answers, and make room.
    let deadline = df.deadline().unwrap();
    let answered = df.tick(deadline).messages.len();
    assert_eq!(answered, 2 * limits.searches_per_asker + 2);
    assert!(goes_on(&search_as(
        &mut df,
        "mallory@factory",
        &mallory,
        "rw"
    )));
}

#[test]
fn searches_that_wait_have_bounded_bytes_for_each_asker_and_in_all() {
    let limits = DirectoryLimits {
        searches_length_per_asker: 20_000,
        searches_length: 50_000,
        ..DirectoryLimits::default()
    };
    let mut df = Df::new(aid("df@factory"), limits.clone());
    let _ = df.place(&offers("df@far", "fipa-df"), now()).unwrap();
    let asker = agent("asker@factory");
    let long = "x".repeat(2 << 20);
    let (receiver, limit) = search_as(&mut df, "asker@factory", &asker, &long);
    assert_eq!(receiver, "asker@factory");
    let most = limits.subscription_length;
    assert_eq!(limit, stopped("subscription_length", most));

    let repeated = "x".repeat(6100);
    let mut of_each = Vec::new();
    let mut told = Vec::new();
    for number in 0..5 {
        let name = format!("a{number}@factory");
        let requester = agent(&name);
        let found = (0..10).map(|_| search_as(&mut df, &name, &requester, &repeated));
        let (asked, answered): (Vec<_>, Vec<_>) =
            found.partition(|(receiver, _)| receiver == "df@far");
        of_each.push(asked.len());
        told.extend(answered.into_iter().map(|(_, limit)| limit));
    }
    assert_eq!(of_each, [3, 3, 1, 0, 0]);
    let own = stopped("searches_length_per_asker", 20_000);
    let all = stopped("searches_length", 50_000);
    let count = |limit: &Option<String>| told.iter().filter(|it| *it == limit).count();
    assert_eq!((count(&own), count(&all)), (14, 29));
}

/// The entries that other DFs find count with the request.
#[test]
fn a_search_whose_result_takes_too_much_room_does_not_wait_for_more() {
    let limits = DirectoryLimits {
        searches_length_per_asker: 5000,
        ..DirectoryLimits::default()
    };
    let mut df = Df::new(aid("df@factory"), limits);
    for name in ["df@far", "df@near"] {
        let _ = df.place(&offers(name, "fipa-df"), now()).unwrap();
    }
    let asker = agent("asker@factory");
    let search = |df: &mut Df| df.handle(&search_of_depth(1), &asker, now()).messages;
    let answer = |df: &mut Df, question: &AclMessage, length: usize| {
        let entry = pinger_of("a@far", length).to_term().to_string();
        let mut reply = question
            .create_reply(Performative::Inform)
            .with_content(format!(
                "((result (action df (search)) (sequence {entry})))"
            ));
        reply.sender = Some(aid("df@far"));
        df.handle(&reply, &agent("df@far"), now()).messages
    };
    let questions = search(&mut df);
    assert_eq!(questions.len(), 2);
    // The other DF is waited for.
    assert!(answer(&mut df, &questions[0], 100).is_empty());
    let deadline = df.deadline().unwrap();
    assert_eq!(df.tick(deadline).messages.len(), 1);
    let questions = search(&mut df);
    let ended = answer(&mut df, &questions[0], 5000);
    let [message] = ended.as_slice() else {
        panic!("{:?}", told(&ended));
    };
    assert_eq!(message.receivers, [aid("asker@factory")]);
    assert!(message.content_text().unwrap().contains("a@far"));
    let limit = message.user_defined_value(crate::client::LIMIT_PARAMETER);
    let limit = limit.and_then(|it| it.as_str());
    let named = "more matches, but the platform's limit 'searches_length_per_asker' allows 5000";
    assert_eq!(limit, Some(named));
    assert_eq!(df.deadline(), None);
    // Its room is free again.
    assert_eq!(search(&mut df).len(), 2);
}
