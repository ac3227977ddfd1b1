//! Subscriptions to entries.

use super::*;

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
fn a_subscription_that_is_turned_down_leaves_the_one_before() {
    let mut df = Df::new(
        aid("df@factory"),
        DirectoryLimits {
            subscription_length: 2000,
            ..DirectoryLimits::default()
        },
    );
    let agreed = df.handle(&wants("selling"), &agent("buyer@factory"), now());
    assert_eq!(one(&agreed.messages).0, "agree");
    // The same agent, in the same conversation.
    let long = wants(&"x".repeat(3000));
    let refused = df.handle(&long, &agent("buyer@factory"), now());
    assert_eq!(one(&refused.messages).0, "refuse");
    assert!(refused.batch.is_empty());
    let seller = offers("seller@factory", "selling");
    let register = DfFunction::Register(seller.clone());
    assert_eq!(notices(&mut df, "seller@factory", register), [[seller]]);
}
