//! Members of the moment read a message, and nobody else does.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sealbus_mls::{Change, Group, GroupError, Member};
use sealbus_seal::encryption::LONGEST_KEY_PACKAGE;
use support::{Agent, HOUR, Platform};

fn group(platform: &Platform, publisher: &Agent) -> Group {
    Group::new(&publisher.credential, &platform.trust, platform.now).unwrap()
}

/// A group with these members.
fn with(platform: &Platform, publisher: &Agent, agents: &[&Agent]) -> (Group, Vec<Member>) {
    let mut group = group(platform, publisher);
    let candidates: Vec<_> = agents.iter().map(|it| platform.candidate(it)).collect();
    let change = group.change(&[], &candidates, platform.now).unwrap();
    assert_eq!(change.commit, None);
    let welcome = change.welcome.unwrap();
    let members = agents
        .iter()
        .map(|agent| platform.join(agent, &welcome, publisher).unwrap())
        .collect();
    (group, members)
}

#[test]
fn members_read_what_the_publisher_writes_and_others_do_not() {
    let platform = Platform::new();
    let [publisher, alice, bob, eve] =
        ["publisher", "alice", "bob", "eve"].map(|it| platform.agent(it));
    let (mut group, mut members) = with(&platform, &publisher, &[&alice, &bob]);
    let sealed = group.seal(b"/offers", b"the price is 7").unwrap();
    assert!(!sealed.windows(5).any(|it| it == b"price"));
    for member in &mut members {
        assert_eq!(
            &*member.open(b"/offers", &sealed).unwrap(),
            b"the price is 7"
        );
        // Once.
        assert!(member.open(b"/offers", &sealed).is_err());
    }
    let change = group
        .change(&[], &[platform.candidate(&bob)], platform.now)
        .unwrap();
    let refused = platform.join(&eve, &change.welcome.unwrap(), &publisher);
    assert!(matches!(refused, Err(GroupError::NotInvited)));
}

#[test]
fn what_was_changed_or_moved_does_not_open() {
    let platform = Platform::new();
    let [publisher, alice] = ["publisher", "alice"].map(|it| platform.agent(it));
    let (mut group, mut members) = with(&platform, &publisher, &[&alice]);
    let sealed = group.seal(b"/offers", b"7").unwrap();
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 1;
        assert!(
            members[0].open(b"/offers", &changed).is_err(),
            "byte {place}"
        );
    }
    assert!(matches!(
        members[0].open(b"/wages", &group.seal(b"/offers", b"8").unwrap()),
        Err(GroupError::AnotherContext)
    ));
    // It goes on with the next message.
    let next = group.seal(b"/offers", b"9").unwrap();
    assert_eq!(&*members[0].open(b"/offers", &next).unwrap(), b"9");
    let earlier = sealed;
    assert!(members[0].open(b"/offers", &earlier).is_err());
}

#[test]
fn who_was_removed_reads_nothing_more_and_who_is_new_nothing_before() {
    let platform = Platform::new();
    let [publisher, alice, bob, carol] =
        ["publisher", "alice", "bob", "carol"].map(|it| platform.agent(it));
    let (mut group, mut members) = with(&platform, &publisher, &[&alice, &bob]);
    let before = group.seal(b"", b"before").unwrap();
    let removed = [alice.identity.clone()];
    let joining = [platform.candidate(&carol)];
    let Change { commit, welcome } = group.change(&removed, &joining, platform.now).unwrap();
    let commit = commit.unwrap();
    let after = group.seal(b"", b"after").unwrap();
    let mut carols = platform
        .join(&carol, &welcome.unwrap(), &publisher)
        .unwrap();
    assert!(carols.open(b"", &before).is_err());
    assert_eq!(&*carols.open(b"", &after).unwrap(), b"after");
    assert_eq!(&*members[1].open(b"", &before).unwrap(), b"before");
    assert!(members[1].open(b"", &after).is_err());
    members[1].follow(&commit).unwrap();
    assert_eq!(&*members[1].open(b"", &after).unwrap(), b"after");
    // Alice opens it neither with the old secrets nor by following the change.
    assert!(members[0].open(b"", &after).is_err());
    assert!(matches!(
        members[0].follow(&commit),
        Err(GroupError::Removed)
    ));
    assert!(members[0].open(b"", &after).is_err());
}

#[test]
fn a_member_without_its_state_joins_again() {
    let platform = Platform::new();
    let [publisher, alice, bob] = ["publisher", "alice", "bob"].map(|it| platform.agent(it));
    let (mut group, mut members) = with(&platform, &publisher, &[&alice, &bob]);
    let again = platform.candidate(&alice);
    let change = group.change(&[], &[again], platform.now).unwrap();
    let mut alices = platform
        .join(&alice, &change.welcome.unwrap(), &publisher)
        .unwrap();
    members[1].follow(&change.commit.unwrap()).unwrap();
    let sealed = group.seal(b"", b"hello").unwrap();
    assert_eq!(&*alices.open(b"", &sealed).unwrap(), b"hello");
    assert_eq!(&*members[1].open(b"", &sealed).unwrap(), b"hello");
    assert_eq!(group.members().count(), 2);
}

#[test]
fn only_the_certified_agent_joins() {
    let platform = Platform::new();
    let [alice, mallory] = ["alice", "mallory"].map(|it| platform.agent(it));
    let package = alice.invitee.offer(platform.now).unwrap();
    let refused = platform
        .check(&package, &mallory, &mallory.identity)
        .err()
        .unwrap();
    assert!(
        matches!(refused, GroupError::AnotherAgent { .. }),
        "{refused}"
    );
    for place in (0..package.len()).step_by(7) {
        let mut changed = package.clone();
        changed[place] ^= 1;
        assert!(
            platform.check(&changed, &alice, &alice.identity).is_err(),
            "byte {place}"
        );
    }
    let elsewhere = Platform::new().agent("alice");
    let package = elsewhere.invitee.offer(platform.now).unwrap();
    let refused = platform
        .check(&package, &elsewhere, &alice.identity)
        .err()
        .unwrap();
    assert!(matches!(refused, GroupError::NotVerified(_)), "{refused}");
    let refused = platform.check(&vec![0; LONGEST_KEY_PACKAGE + 1], &alice, &alice.identity);
    assert!(matches!(refused, Err(GroupError::TooLong { .. })));
}

#[test]
fn nobody_joins_with_a_certificate_that_was_revoked_or_has_ended() {
    let mut platform = Platform::new();
    let [publisher, alice] = ["publisher", "alice"].map(|it| platform.agent(it));
    let package = alice.invitee.offer(platform.now).unwrap();
    let (mut group, _) = with(&platform, &publisher, &[&alice]);
    assert!(group.goes_on(&platform.trust, platform.now));
    platform.deny(&alice);
    let refused = platform
        .check(&package, &alice, &alice.identity)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("revoked"), "{refused}");
    let (_, verified) = group.members().next().unwrap();
    assert!(platform.trust.check(verified, platform.now).is_err());
    platform.now = platform.now.plus(2 * HOUR);
    assert!(!group.goes_on(&platform.trust, platform.now));
    assert!(group.is_due(platform.now));
    let refused = platform.check(&package, &alice, &alice.identity);
    assert!(refused.is_err());
    group
        .change(std::slice::from_ref(&alice.identity), &[], platform.now)
        .unwrap();
}

#[test]
fn a_member_may_be_left_out_of_as_many_messages_as_an_epoch_has() {
    let platform = Platform::new();
    let [publisher, alice] = ["publisher", "alice"].map(|it| platform.agent(it));
    let (mut group, mut members) = with(&platform, &publisher, &[&alice]);
    let mut last = group.seal(b"", b"0").unwrap();
    while !group.is_due(platform.now) {
        last = group.seal(b"", b"the last").unwrap();
    }
    assert_eq!(&*members[0].open(b"", &last).unwrap(), b"the last");
    let change = group.change(&[], &[], platform.now).unwrap();
    assert!(!group.is_due(platform.now));
    members[0].follow(&change.commit.unwrap()).unwrap();
    let next = group.seal(b"", b"the next").unwrap();
    assert_eq!(&*members[0].open(b"", &next).unwrap(), b"the next");
}

#[derive(Clone, Debug)]
enum Step {
    /// These agents leave, and those join.
    Change(BTreeSet<usize>, BTreeSet<usize>),
    /// The agent's process loses all that it knows of the group.
    Forget(usize),
    /// A message for all members but these.
    Message(BTreeSet<usize>),
}

const AGENTS: usize = 5;

fn some() -> impl Strategy<Value = BTreeSet<usize>> {
    proptest::collection::btree_set(0..AGENTS, 0..3)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (some(), some()).prop_map(|(leaving, joining)| Step::Change(leaving, joining)),
        1 => (0..AGENTS).prop_map(Step::Forget),
        4 => some().prop_map(Step::Message),
    ];
    proptest::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn members_of_the_moment_read_exactly_what_is_written_meanwhile(steps in steps()) {
        let platform = Platform::new();
        let publisher = platform.agent("publisher");
        let agents: Vec<_> = (0..AGENTS).map(|it| platform.agent(&format!("agent-{it}"))).collect();
        let mut group = group(&platform, &publisher);
        // The states of the agents, those of former members included; and the members whose state is good.
        let mut states: BTreeMap<usize, Member> = BTreeMap::new();
        let (mut members, mut good) = (BTreeSet::new(), BTreeSet::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Change(leaving, joining) => {
                    let gone: Vec<_> = leaving.iter().map(|it| agents[*it].identity.clone()).collect();
                    let new: Vec<_> = joining.iter().map(|it| platform.candidate(&agents[*it])).collect();
                    let change = group.change(&gone, &new, platform.now).unwrap();
                    for agent in leaving.union(&joining) {
                        members.remove(agent);
                        good.remove(agent);
                    }
                    prop_assert_eq!(change.commit.is_some(), !members.is_empty());
                    // Whoever left may follow as well as it can.
                    for (agent, state) in &mut states {
                        if let Some(commit) = &change.commit {
                            prop_assert_eq!(state.follow(commit).is_ok(), good.contains(agent));
                        }
                    }
                    if let Some(welcome) = &change.welcome {
                        for (agent, it) in agents.iter().enumerate() {
                            let joined = platform.join(it, welcome, &publisher);
                            prop_assert_eq!(joined.is_ok(), joining.contains(&agent));
                            if let Ok(state) = joined {
                                states.insert(agent, state);
                                members.insert(agent);
                                good.insert(agent);
                            }
                        }
                    }
                }
                Step::Forget(agent) => {
                    states.remove(&agent);
                    good.remove(&agent);
                }
                Step::Message(left_out) => {
                    let text = format!("message {number}");
                    let sealed = group.seal(b"/offers", text.as_bytes()).unwrap();
                    for (agent, state) in &mut states {
                        if left_out.contains(agent) {
                            continue;
                        }
                        let opened = state.open(b"/offers", &sealed);
                        prop_assert_eq!(opened.is_ok(), good.contains(agent));
                        if let Ok(opened) = opened {
                            prop_assert_eq!(&*opened, text.as_bytes());
                        }
                    }
                }
            }
            let names: BTreeSet<_> = members.iter().map(|it| agents[*it].identity.clone()).collect();
            prop_assert_eq!(group.members().map(|(agent, _)| agent.clone()).collect::<BTreeSet<_>>(), names);
        }
    }

    #[test]
    fn any_bytes_are_an_error_at_worst(bytes in proptest::collection::vec(any::<u8>(), 0..2000), at in any::<u16>(), bit in 0..8_u8) {
        let platform = Platform::new();
        let [publisher, alice, bob] = ["publisher", "alice", "bob"].map(|it| platform.agent(it));
        let (mut group, mut members) = with(&platform, &publisher, &[&alice]);
        let Change { commit, welcome } = group.change(&[], &[platform.candidate(&bob)], platform.now).unwrap();
        let (mut commit, mut welcome) = (commit.unwrap(), welcome.unwrap());
        let flip = |whole: &mut Vec<u8>| {
            let at = usize::from(at) % whole.len();
            whole[at] ^= 1 << bit;
        };
        flip(&mut commit);
        flip(&mut welcome);
        prop_assert!(members[0].follow(&commit).is_err());
        prop_assert!(platform.join(&bob, &welcome, &publisher).is_err());
        prop_assert!(members[0].follow(&bytes).is_err());
        prop_assert!(members[0].open(b"", &bytes).is_err());
        prop_assert!(platform.join(&bob, &bytes, &publisher).is_err());
        prop_assert!(platform.check(&bytes, &bob, &bob.identity).is_err());
    }
}
