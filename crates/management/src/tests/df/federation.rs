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
