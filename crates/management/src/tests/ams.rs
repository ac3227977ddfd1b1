use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, AmsFunction, ApDescription, ApService, SearchConstraints,
};

use super::*;
use crate::client::{Answer, ask_ams, cancel, subscribe_agents};

fn ams() -> Ams {
    Ams::new(aid("ams@factory"), DirectoryLimits::default())
}

fn in_state(name: &str, state: AgentState) -> AmsAgentDescription {
    AmsAgentDescription {
        state: Some(state),
        ..AmsAgentDescription::of(aid(name))
    }
}

fn ask(ams: &mut Ams, requester: &Requester, function: &AmsFunction) -> String {
    let message = ask_ams(&aid("ams@factory"), function)
        .with_sender(aid("a@factory"))
        .with_conversation_id("c1");
    let (performative, content) = one(&ams.handle(&message, requester, now()).messages);
    match performative.as_str() {
        "inform" => performative,
        _ => content
            .rsplit_once("))) ")
            .map_or(content.clone(), |(_, it)| it.replace(')', "")),
    }
}

#[test]
fn agents_register_change_and_leave() {
    let mut ams = ams();
    let me = agent("a@factory");
    let entry = AmsAgentDescription {
        ownership: Some("me inc".into()),
        ..AmsAgentDescription::of(aid("a@factory"))
    };
    let register = AmsFunction::Register(entry.clone());
    let modify = AmsFunction::Modify(in_state("a@factory", AgentState::Suspended));
    let deregister = AmsFunction::Deregister(entry);
    assert_eq!(ask(&mut ams, &me, &modify), "not-registered");
    assert_eq!(ask(&mut ams, &me, &deregister), "not-registered");
    for other in [agent("b@factory"), Requester::Unproved] {
        assert_eq!(ask(&mut ams, &other, &register), "unauthorised");
    }
    assert_eq!(ask(&mut ams, &me, &register), "inform");
    assert_eq!(
        ams.get("a@factory").unwrap().state,
        Some(AgentState::Active)
    );
    assert_eq!(ask(&mut ams, &me, &register), "already-registered");
    for other in [agent("b@factory"), Requester::Unproved] {
        assert_eq!(ask(&mut ams, &other, &modify), "unauthorised");
        assert_eq!(ask(&mut ams, &other, &deregister), "unauthorised");
    }
    assert_eq!(ask(&mut ams, &me, &modify), "inform");
    let modified = ams.get("a@factory").unwrap();
    assert_eq!(
        (modified.state, &modified.ownership),
        (Some(AgentState::Suspended), &None)
    );
    assert_eq!(ask(&mut ams, &me, &deregister), "inform");
    assert!(ams.is_empty());
    assert_eq!(ask(&mut ams, &Requester::Platform, &register), "inform");
}

#[test]
fn the_master_enters_what_it_knows() {
    let mut ams = ams();
    let me = aid("a@factory");
    let _ = ams
        .place(in_state("a@factory", AgentState::Waiting))
        .unwrap();
    for (state, known) in [
        (Some(AgentState::Initiated), 1),
        (None, 0),
        (Some(AgentState::Transit), 1),
    ] {
        let outcome = ams.follow(&me, state).unwrap();
        assert!(!outcome.batch.is_empty());
        assert_eq!(
            (ams.len(), ams.get("a@factory").and_then(|it| it.state)),
            (known, state)
        );
    }
    let modify = AmsFunction::Modify(in_state("a@factory", AgentState::Active));
    assert_eq!(
        ask(&mut ams, &agent("master@elsewhere"), &modify),
        "unauthorised"
    );
    assert_eq!(ask(&mut ams, &agent("master@factory"), &modify), "inform");
}

#[test]
fn the_life_cycle_is_that_of_the_standard() {
    use AgentState::*;
    let states = [Initiated, Active, Suspended, Waiting, Transit];
    let by_agent = [
        (Active, Suspended),
        (Active, Waiting),
        (Active, Transit),
        (Suspended, Active),
        (Waiting, Active),
        (Transit, Active),
    ];
    let by_platform = [(Initiated, Active)];
    for from in states {
        for to in states {
            let mut ams = ams();
            let _ = ams.place(in_state("a@factory", from)).unwrap();
            let possible = from == to || by_agent.contains(&(from, to));
            let modify = AmsFunction::Modify(in_state("a@factory", to));
            let answer = ask(&mut ams, &agent("a@factory"), &modify);
            let expected = if possible {
                "inform"
            } else if by_platform.contains(&(from, to)) {
                "unauthorised"
            } else {
                "(unrecognised-parameter-value ams-agent-description state"
            };
            assert_eq!(answer, expected, "{from} to {to} by the agent");

            let _ = ams.place(in_state("a@factory", from)).unwrap();
            let possible = possible || by_platform.contains(&(from, to));
            let answer = ask(&mut ams, &Requester::Platform, &modify);
            assert_eq!(answer == "inform", possible, "{from} to {to}");
            let now = if possible { to } else { from };
            assert_eq!(ams.get("a@factory").unwrap().state, Some(now));
        }
        let mut ams = ams();
        let _ = ams.place(in_state("a@factory", from)).unwrap();
        assert!(!ams.remove("a@factory").batch.is_empty());
        assert!(ams.is_empty());
    }
    let mut ams = ams();
    let latent = AmsFunction::Register(in_state("a@factory", Latent));
    let answer = ask(&mut ams, &agent("a@factory"), &latent);
    assert_eq!(
        answer,
        "(unrecognised-parameter-value ams-agent-description state"
    );
}

#[test]
fn a_modification_without_state_keeps_it() {
    let mut ams = ams();
    let _ = ams
        .place(in_state("a@factory", AgentState::Suspended))
        .unwrap();
    let modify = AmsFunction::Modify(AmsAgentDescription::of(aid("a@factory")));
    assert_eq!(ask(&mut ams, &agent("a@factory"), &modify), "inform");
    assert_eq!(
        ams.get("a@factory").unwrap().state,
        Some(AgentState::Suspended)
    );
}

#[test]
fn the_platform_describes_itself_also_after_a_restart() {
    let described = |ams: &mut Ams| {
        let message = ask_ams(&aid("ams@factory"), &AmsFunction::GetDescription)
            .with_sender(aid("a@factory"));
        let outcome = ams.handle(&message, &Requester::Unproved, now());
        let found = Answer::read(&outcome.messages[0])
            .unwrap()
            .found(ApDescription::from_term);
        let platform = found.unwrap().remove(0);
        assert_eq!(platform.name, "factory");
        platform.services
    };
    let services = [ApService {
        name: "fipa.mts.mtp.http.std".into(),
        service_type: "fipa.mts.mtp.http.std".into(),
        addresses: vec!["http://127.0.0.1:7100/acc".into()],
    }];
    let store = MemoryStore::new();
    let mut ams = ams();
    commit(&store, &ams.set_services(services.to_vec()).batch);
    assert_eq!(described(&mut ams), services);
    let unchanged = ams.set_services(services.to_vec());
    assert!(unchanged.batch.is_empty());
    let load = Ams::load(aid("ams@factory"), DirectoryLimits::default(), &store);
    let mut ams = ready(load).unwrap();
    assert_eq!(described(&mut ams), services);
    let full = sealbus_store::StoreError::TooLarge { length: 1 };
    let outcome = ams.set_services(Vec::new());
    assert_eq!(described(&mut ams), []);
    assert!(ams.revert(outcome, &full).is_empty());
    assert_eq!(described(&mut ams), services);
}

#[test]
fn agents_are_found_by_state_owner_and_name() {
    let mut ams = ams();
    for (name, state, owner) in [
        ("a@factory", AgentState::Active, "x"),
        ("b@factory", AgentState::Waiting, "x"),
        ("c@factory", AgentState::Active, "y"),
    ] {
        let entry = AmsAgentDescription {
            ownership: Some(owner.into()),
            ..in_state(name, state)
        };
        let _ = ams.place(entry).unwrap();
    }
    let mut found = |template: AmsAgentDescription| {
        let search = AmsFunction::Search(template, SearchConstraints::all());
        let message = ask_ams(&aid("ams@factory"), &search).with_sender(aid("z@factory"));
        let outcome = ams.handle(&message, &agent("z@factory"), now());
        let agents = Answer::read(&outcome.messages[0])
            .unwrap()
            .found(AmsAgentDescription::from_term)
            .unwrap();
        agents
            .into_iter()
            .map(|it| it.name.unwrap().local_name().to_owned())
            .collect::<String>()
    };
    let active = Some(AgentState::Active);
    let owner = |owner: &str| Some(owner.to_owned());
    assert_eq!(found(AmsAgentDescription::default()), "abc");
    assert_eq!(
        found(AmsAgentDescription {
            state: active,
            ..Default::default()
        }),
        "ac"
    );
    assert_eq!(
        found(AmsAgentDescription {
            ownership: owner("x"),
            ..Default::default()
        }),
        "ab"
    );
    assert_eq!(
        found(AmsAgentDescription {
            ownership: owner("x"),
            state: active,
            name: None
        }),
        "a"
    );
    assert_eq!(found(AmsAgentDescription::of(aid("b@factory"))), "b");
    assert_eq!(found(in_state("b@factory", AgentState::Active)), "");
}

#[test]
fn what_could_not_be_kept_is_taken_back() {
    let full = sealbus_store::StoreError::TooLarge { length: 1 };
    let mut ams = ams();
    let kept = in_state("a@factory", AgentState::Active);
    let _ = ams.place(kept.clone()).unwrap();
    let mut outcome = ams
        .follow(&aid("a@factory"), Some(AgentState::Waiting))
        .unwrap();
    outcome.append(ams.remove("a@factory"));
    outcome.append(
        ams.place(in_state("b@factory", AgentState::Active))
            .unwrap(),
    );
    assert!(ams.revert(outcome, &full).is_empty());
    assert_eq!((ams.len(), ams.get("a@factory")), (1, Some(&kept)));
    let register = AmsFunction::Register(AmsAgentDescription::of(aid("c@factory")));
    let message = ask_ams(&aid("ams@factory"), &register).with_sender(aid("c@factory"));
    let outcome = ams.handle(&message, &agent("c@factory"), now());
    let (performative, content) = one(&ams.revert(outcome, &full));
    assert_eq!(performative, "failure");
    assert!(
        content.ends_with("(internal-error \"a value of 1 bytes is too large for the store\"))")
    );
    assert_eq!(ams.len(), 1);
}

// ----- subscriptions

fn watches(template: AmsAgentDescription) -> AclMessage {
    subscribe_agents(&aid("ams@factory"), template, SearchConstraints::all())
        .with_sender(aid("watcher@factory"))
        .with_conversation_id("watch")
        .with_reply_with("rw9")
}

fn read_notices(messages: &[AclMessage]) -> Vec<Vec<AmsAgentDescription>> {
    let notices = messages.iter().map(|notice| {
        assert_eq!(notice.receivers, [aid("watcher@factory")]);
        assert_eq!(notice.conversation_id, Some("watch".into()));
        assert_eq!(notice.in_reply_to, Some("rw9".into()));
        Answer::read(notice)
            .unwrap()
            .news(AmsAgentDescription::from_term)
            .unwrap()
    });
    notices.collect()
}

#[test]
fn subscribers_learn_which_agents_come_and_go() {
    let mut ams = ams();
    let watcher = agent("watcher@factory");
    let place = |ams: &mut Ams, name: &str, state| {
        let outcome = ams.follow(&aid(name), Some(state)).unwrap();
        read_notices(&outcome.messages)
    };
    assert!(place(&mut ams, "a@factory", AgentState::Active).is_empty());

    let all = watches(AmsAgentDescription::default());
    let outcome = ams.handle(&all, &watcher, now());
    assert_eq!(Answer::read(&outcome.messages[0]), Ok(Answer::Agreed));
    let active = in_state("a@factory", AgentState::Active);
    assert_eq!(read_notices(&outcome.messages[1..]), [[active]]);

    let come = in_state("b@factory", AgentState::Initiated);
    assert_eq!(
        place(&mut ams, "b@factory", AgentState::Initiated),
        [[come]]
    );
    let changed = in_state("b@factory", AgentState::Active);
    assert_eq!(
        place(&mut ams, "b@factory", AgentState::Active),
        [[changed]]
    );
    // Nothing has changed.
    assert!(place(&mut ams, "b@factory", AgentState::Active).is_empty());

    // The agent that asks is answered first.
    let suspend = AmsFunction::Modify(in_state("b@factory", AgentState::Suspended));
    let message = ask_ams(&aid("ams@factory"), &suspend)
        .with_sender(aid("b@factory"))
        .with_conversation_id("c1");
    let outcome = ams.handle(&message, &agent("b@factory"), now());
    assert!(Answer::read(&outcome.messages[0]).unwrap().is_done());
    let suspended = in_state("b@factory", AgentState::Suspended);
    assert_eq!(read_notices(&outcome.messages[1..]), [[suspended]]);

    let gone = AmsAgentDescription::of(aid("b@factory"));
    let outcome = ams.follow(&aid("b@factory"), None).unwrap();
    assert_eq!(read_notices(&outcome.messages), [[gone]]);

    // Another agent cannot end the subscription.
    let end = cancel(&all).with_sender(aid("b@factory"));
    let outcome = ams.handle(&end, &agent("b@factory"), now());
    assert_eq!(one(&outcome.messages).0, "not-understood");
    let outcome = ams.handle(&cancel(&all), &watcher, now());
    assert!(Answer::read(&outcome.messages[0]).unwrap().is_done());
    assert!(place(&mut ams, "c@factory", AgentState::Active).is_empty());
}

#[test]
fn a_template_says_which_agents_a_subscriber_follows() {
    let mut ams = ams();
    let active = AmsAgentDescription {
        state: Some(AgentState::Active),
        ..AmsAgentDescription::default()
    };
    let watched = ams.handle(&watches(active), &agent("watcher@factory"), now());
    assert_eq!(watched.messages.len(), 1);
    let mut follow = |state| {
        let outcome = ams.follow(&aid("a@factory"), state).unwrap();
        read_notices(&outcome.messages)
    };
    assert!(follow(Some(AgentState::Initiated)).is_empty());
    let come = in_state("a@factory", AgentState::Active);
    assert_eq!(follow(Some(AgentState::Active)), [[come]]);
    // The agent no longer matches, and the notice is the same as if it had gone.
    let gone = AmsAgentDescription::of(aid("a@factory"));
    assert_eq!(follow(Some(AgentState::Transit)), [[gone]]);
    assert!(follow(None).is_empty());
}

#[test]
fn a_subscriber_that_is_gone_is_forgotten() {
    let mut ams = ams();
    let watcher = aid("watcher@factory");
    let _ = ams.follow(&watcher, Some(AgentState::Active)).unwrap();
    let all = watches(AmsAgentDescription::default());
    let subscribed = ams.handle(&all, &agent("watcher@factory"), now());
    // The watcher itself is there.
    assert_eq!(subscribed.messages.len(), 2);
    let _ = ams.follow(&watcher, None).unwrap();
    let outcome = ams.follow(&aid("a@factory"), Some(AgentState::Active));
    assert!(outcome.unwrap().messages.is_empty());
}

#[test]
fn only_agents_with_a_proved_name_subscribe() {
    let mut ams = ams();
    let all = watches(AmsAgentDescription::default());
    let foreign = |may_register| Requester::Foreign {
        name: "watcher@factory".into(),
        may_register,
    };
    for requester in [Requester::Unproved, foreign(false)] {
        let (performative, content) = one(&ams.handle(&all, &requester, now()).messages);
        assert_eq!(performative, "refuse");
        assert!(content.contains("unauthorised"), "{content}");
    }
    assert_eq!(ams.handle(&all, &foreign(true), now()).messages.len(), 1);
}
