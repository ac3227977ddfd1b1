//! The rules that hold in every protocol: deadlines, cancelling, and messages that are no part of the conversation.

#![allow(clippy::unwrap_used)]

use sealbus_fipa::{AclMessage, Aid, DateTime, Performative};
use sealbus_protocols::{
    ActError, CONTRACT_NET, DUTCH_AUCTION, ENGLISH_AUCTION, Initiator, Outcome, Participant,
    Protocol, REQUEST, Reason, Received, SUBSCRIBE, Stage, To,
};

fn aid(name: &str) -> Aid {
    Aid::new(name).unwrap()
}

fn draft(act: Performative) -> AclMessage {
    AclMessage::new(act)
}

fn due(act: Performative, milliseconds: i64) -> AclMessage {
    draft(act).with_reply_by(DateTime::from_unix_ms(milliseconds).unwrap())
}

fn open(
    protocol: &'static Protocol,
    names: &[&str],
    opening: &AclMessage,
) -> (Initiator, AclMessage) {
    let agents = names.iter().map(|name| aid(name));
    let (initiator, mut messages) = Initiator::open(protocol, "c1", agents, opening, 0).unwrap();
    assert_eq!(messages.len(), 1);
    (initiator, messages.remove(0).with_sender(aid("initiator")))
}

fn answer(participant: &mut Participant, name: &str, act: Performative) -> AclMessage {
    participant
        .send(&draft(act), 0)
        .unwrap()
        .with_sender(aid(name))
}

#[test]
fn a_contract_net_tells_who_won_refused_and_kept_silent() {
    let names = ["a", "b", "c", "d"];
    let (mut net, call) = open(&CONTRACT_NET, &names, &due(Performative::Cfp, 100));
    assert_eq!(call.receivers, names.map(aid));
    let enter = || Participant::open(&CONTRACT_NET, &call, 0).unwrap();
    let (mut a, mut b, mut c, mut d) = (enter(), enter(), enter(), enter());
    net.receive(&answer(&mut a, "a", Performative::Propose), 1)
        .unwrap();
    net.receive(&answer(&mut b, "b", Performative::Propose), 2)
        .unwrap();
    net.receive(&answer(&mut c, "c", Performative::Refuse), 3)
        .unwrap();
    let late = answer(&mut d, "d", Performative::Propose);
    assert_eq!(net.at(Stage::Called).count(), 1);
    assert_eq!(net.deadline(), Some(100));
    assert_eq!(net.advance(100), []);
    assert_eq!(
        net.silent()
            .map(|it| it.agent().name.as_str())
            .collect::<Vec<_>>(),
        ["d"]
    );

    let refused = net.receive(&late, 101).unwrap_err();
    assert!(matches!(
        refused.reason,
        Reason::Late {
            outcome: Outcome::TimedOut,
            ..
        }
    ));
    let reject = refused.answer.unwrap();
    assert_eq!(reject.performative, Performative::RejectProposal);
    assert_eq!(reject.in_reply_to, late.reply_with);
    d.receive(&reject.with_sender(aid("initiator")), 101)
        .unwrap();
    assert_eq!(d.outcome(), Some(Outcome::Rejected));

    let accept = net
        .send(
            To::Agents(&[aid("a")]),
            &draft(Performative::AcceptProposal),
            102,
        )
        .unwrap();
    let reject = net
        .send(
            To::Stage(Stage::Proposed),
            &draft(Performative::RejectProposal),
            102,
        )
        .unwrap();
    assert_eq!(accept[0].receivers, [aid("a")]);
    assert_eq!(reject[0].receivers, [aid("b")]);
    a.receive(&accept[0].clone().with_sender(aid("initiator")), 102)
        .unwrap();
    net.receive(&answer(&mut a, "a", Performative::Inform), 103)
        .unwrap();
    let outcomes = net.branches().iter().map(|it| it.outcome().unwrap());
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        [
            Outcome::Done,
            Outcome::Rejected,
            Outcome::Refused,
            Outcome::TimedOut
        ]
    );
    assert!(net.has_ended() && net.deadline().is_none());
    assert_eq!(net.refused(), 1);
}

#[test]
fn a_participant_that_may_still_work_learns_of_the_time_out() {
    let (mut asking, request) = open(&REQUEST, &["a"], &due(Performative::Request, 100));
    let mut asked = Participant::open(&REQUEST, &request, 0).unwrap();
    asking
        .receive(&answer(&mut asked, "a", Performative::Agree), 50)
        .unwrap();
    assert_eq!(asking.deadline(), None, "reply-by is for the next answer");
    asking.end_by(1_000);
    let messages = asking.advance(1_000);
    assert_eq!(messages[0].performative, Performative::Cancel);
    assert_eq!(asking.branches()[0].stage(), Stage::Agreed);
    assert_eq!(asking.branches()[0].outcome(), Some(Outcome::TimedOut));
    let cancel = messages[0].clone().with_sender(aid("initiator"));
    assert_eq!(asked.receive(&cancel, 1_000), Ok(Received::Cancel));
    let confirmed = asked
        .answer_cancel(&draft(Performative::Inform), 1_000)
        .unwrap();
    let refused = asking
        .receive(&confirmed.with_sender(aid("a")), 1_001)
        .unwrap_err();
    assert!(refused.answer.is_none());
}

#[test]
fn an_undecided_proposal_is_rejected_at_the_end() {
    let (mut net, call) = open(&CONTRACT_NET, &["a"], &draft(Performative::Cfp));
    let mut a = Participant::open(&CONTRACT_NET, &call, 0).unwrap();
    let proposal = answer(&mut a, "a", Performative::Propose);
    net.receive(&proposal, 1).unwrap();
    net.end_by(10);
    // A message that arrives before the program lets time pass finds the deadline passed all the same.
    assert!(net.receive(&proposal, 10).is_err());
    assert!(net.deadline().is_some_and(|moment| moment <= 10));
    let messages = net.advance(10);
    assert_eq!(messages[0].performative, Performative::RejectProposal);
    assert_eq!(messages[0].in_reply_to, proposal.reply_with);
    assert_eq!(net.deadline(), None);
}

#[test]
fn a_participant_answers_before_reply_by() {
    let (_, request) = open(&REQUEST, &["a"], &due(Performative::Request, 100));
    let mut asked = Participant::open(&REQUEST, &request, 0).unwrap();
    assert_eq!(asked.deadline(), Some(100));
    let late = asked.send(&draft(Performative::Inform), 100);
    assert!(matches!(
        late,
        Err(ActError::Ended {
            outcome: Outcome::TimedOut,
            ..
        })
    ));
}

#[test]
fn a_bid_is_good_until_its_reply_by_on_both_sides() {
    let (mut net, call) = open(&CONTRACT_NET, &["a"], &draft(Performative::Cfp));
    let mut a = Participant::open(&CONTRACT_NET, &call, 0).unwrap();
    let bid = a
        .send(&due(Performative::Propose, 70), 0)
        .unwrap()
        .with_sender(aid("a"));
    net.receive(&bid, 1).unwrap();
    assert_eq!((net.deadline(), a.deadline()), (Some(70), Some(70)));
    a.advance(70);
    assert_eq!(a.outcome(), Some(Outcome::TimedOut));
}

#[test]
fn the_result_may_cross_the_cancel() {
    let (mut asking, request) = open(&REQUEST, &["a"], &draft(Performative::Request));
    let mut asked = Participant::open(&REQUEST, &request, 0).unwrap();
    let done = answer(&mut asked, "a", Performative::Inform);
    let cancel = asking
        .send(To::All, &due(Performative::Cancel, 100), 0)
        .unwrap();
    let late = asked.receive(&cancel[0].clone().with_sender(aid("initiator")), 0);
    assert!(matches!(late.unwrap_err().reason, Reason::Late { .. }));
    assert!(asking.branches()[0].is_cancelling());
    asking.receive(&done, 0).unwrap();
    assert_eq!(asking.branches()[0].outcome(), Some(Outcome::Done));
}

#[test]
fn a_cancel_without_answer_ends_at_its_deadline() {
    let (mut asking, opening) = open(&SUBSCRIBE, &["df"], &draft(Performative::Subscribe));
    let mut df = Participant::open(&SUBSCRIBE, &opening, 0).unwrap();
    asking
        .receive(&answer(&mut df, "df", Performative::Agree), 0)
        .unwrap();
    asking
        .send(To::All, &due(Performative::Cancel, 100), 0)
        .unwrap();
    let again = asking.send(To::All, &draft(Performative::Cancel), 0);
    assert!(matches!(again, Err(ActError::Forbidden { .. })));
    // News that was under way does not lift the deadline.
    asking
        .receive(&answer(&mut df, "df", Performative::Inform), 0)
        .unwrap();
    assert_eq!(asking.advance(100), []);
    assert_eq!(asking.branches()[0].outcome(), Some(Outcome::Unconfirmed));
    assert_eq!(asking.silent().count(), 1);
}

#[test]
fn foreign_messages_change_nothing() {
    let (mut asking, request) = open(&REQUEST, &["a"], &draft(Performative::Request));
    let mut asked = Participant::open(&REQUEST, &request, 0).unwrap();
    let done = answer(&mut asked, "a", Performative::Inform);
    let refused = |asking: &mut Initiator, message: AclMessage| {
        let refused = asking.receive(&message, 0).unwrap_err();
        assert!(refused.answer.is_none());
        refused.reason
    };
    let stranger = refused(&mut asking, done.clone().with_sender(aid("m")));
    assert_eq!(stranger, Reason::Stranger("m".into()));
    let other = refused(&mut asking, done.clone().with_conversation_id("c2"));
    assert_eq!(other, Reason::OtherConversation);
    let other = refused(&mut asking, done.clone().with_protocol("fipa-query"));
    assert_eq!(other, Reason::OtherProtocol("fipa-query".into()));
    let stale = refused(&mut asking, done.clone().with_in_reply_to("another"));
    assert!(matches!(stale, Reason::Stale { .. }));
    let mut nameless = done.clone();
    nameless.sender = None;
    assert_eq!(refused(&mut asking, nameless), Reason::NoSender);
    asking.receive(&done, 0).unwrap();
    assert!(matches!(refused(&mut asking, done), Reason::Late { .. }));
    assert_eq!(asking.refused(), 6);
}

#[test]
fn a_doubled_message_harms_nobody() {
    let (mut net, call) = open(&CONTRACT_NET, &["a"], &draft(Performative::Cfp));
    let mut a = Participant::open(&CONTRACT_NET, &call, 0).unwrap();
    assert!(a.receive(&call, 0).unwrap_err().answer.is_none());
    let proposal = answer(&mut a, "a", Performative::Propose);
    net.receive(&proposal, 0).unwrap();
    let refused = net.receive(&proposal, 0).unwrap_err();
    assert!(matches!(refused.reason, Reason::OutOfOrder { .. }));
    assert!(refused.answer.is_none());
    net.send(To::All, &draft(Performative::AcceptProposal), 0)
        .unwrap();
    assert!(net.receive(&proposal, 0).unwrap_err().answer.is_none());
}

#[test]
fn an_act_outside_the_protocol_is_not_understood_and_ends_the_branch() {
    let (mut asking, request) = open(&REQUEST, &["a", "b"], &draft(Performative::Request));
    let strange = draft(Performative::Propagate)
        .with_sender(aid("a"))
        .with_conversation_id("c1")
        .with_reply_with("r1");
    let refused = asking.receive(&strange, 0).unwrap_err();
    assert!(matches!(refused.reason, Reason::Forbidden { .. }));
    let answer = refused.answer.unwrap();
    assert_eq!(answer.performative, Performative::NotUnderstood);
    assert_eq!(answer.in_reply_to, Some("r1".into()));
    assert_eq!(
        asking.branch(&aid("a")).unwrap().outcome(),
        Some(Outcome::NotUnderstood)
    );
    assert_eq!(asking.branch(&aid("b")).unwrap().outcome(), None);
    assert!(asking.receive(&strange, 0).unwrap_err().answer.is_none());

    let refused = Participant::open(&CONTRACT_NET, &request, 0).unwrap_err();
    assert!(matches!(refused.reason, Reason::OtherProtocol(_)));
    let refused = Participant::open(&REQUEST, &strange, 0).unwrap_err();
    assert!(matches!(refused.reason, Reason::NotOpening { .. }));
    assert_eq!(refused.answer.unwrap().receivers, [aid("a")]);
}

#[test]
fn agents_that_leave_out_tags_and_protocol_are_understood() {
    let (mut asking, _) = open(&REQUEST, &["a"], &draft(Performative::Request));
    let plain = |act| draft(act).with_sender(aid("a")).with_conversation_id("c1");
    asking.receive(&plain(Performative::Agree), 0).unwrap();
    asking.receive(&plain(Performative::Inform), 0).unwrap();
    assert_eq!(asking.branches()[0].outcome(), Some(Outcome::Done));

    let opening = draft(Performative::Request).with_sender(aid("i"));
    assert_eq!(
        Protocol::opened_by(&opening).unwrap().name(),
        "fipa-request"
    );
    let mut asked = Participant::open(&REQUEST, &opening, 0).unwrap();
    assert_eq!(
        answer(&mut asked, "a", Performative::Inform).conversation_id,
        None
    );
}

#[test]
fn answers_go_where_the_opening_asks_for_them() {
    let opening = draft(Performative::Request)
        .with_sender(aid("i"))
        .with_reply_to(aid("j"))
        .with_conversation_id("c1");
    let mut asked = Participant::open(&REQUEST, &opening, 0).unwrap();
    assert_eq!(
        answer(&mut asked, "a", Performative::Agree).receivers,
        [aid("j")]
    );
    let cancel = draft(Performative::Cancel)
        .with_conversation_id("c1")
        .with_sender(aid("j"));
    assert_eq!(asked.receive(&cancel, 0), Ok(Received::Cancel));
}

#[test]
fn an_undelivered_message_ends_one_branch() {
    let (mut asking, request) = open(&REQUEST, &["a", "b"], &draft(Performative::Request));
    asking.undeliverable(&aid("a"));
    asking.undeliverable(&aid("m"));
    assert_eq!(asking.branches()[0].outcome(), Some(Outcome::Undeliverable));
    assert_eq!(asking.branches()[1].outcome(), None);
    let mut asked = Participant::open(&REQUEST, &request, 0).unwrap();
    asked.undeliverable();
    assert_eq!(asked.outcome(), Some(Outcome::Undeliverable));
}

#[test]
fn a_conversation_needs_an_id_and_participants_named_once() {
    let request = draft(Performative::Request);
    let open = |id: &str, names: &[&str]| {
        let agents = names.iter().map(|name| aid(name));
        Initiator::open(&REQUEST, id, agents, &request, 0).unwrap_err()
    };
    assert_eq!(open("", &["a"]), ActError::NoConversationId);
    assert_eq!(open("c1", &[]), ActError::NoParticipants);
    assert_eq!(
        open("c1", &["b", "a", "b"]),
        ActError::NamedTwice("b".into())
    );
}

#[test]
fn a_message_goes_to_all_chosen_or_to_none() {
    let (mut net, call) = open(&CONTRACT_NET, &["a", "b"], &draft(Performative::Cfp));
    let mut a = Participant::open(&CONTRACT_NET, &call, 0).unwrap();
    net.receive(&answer(&mut a, "a", Performative::Propose), 0)
        .unwrap();
    let accept = draft(Performative::AcceptProposal);
    let both = net.send(To::All, &accept, 0);
    assert!(matches!(both, Err(ActError::Forbidden { agent, .. }) if agent == "b"));
    let unknown = net.send(To::Agents(&[aid("m")]), &accept, 0);
    assert_eq!(unknown.unwrap_err(), ActError::NotAParticipant("m".into()));
    let nobody = net.send(To::Stage(Stage::Ordered), &accept, 0);
    assert!(matches!(nobody, Err(ActError::Nobody { .. })));
    assert_eq!(
        net.send(To::Stage(Stage::Proposed), &accept, 0)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn more_participants_than_a_message_may_name_get_several_messages() {
    let agents = (0..5_000).map(|number| aid(&format!("a{number}")));
    let request = draft(Performative::Request);
    let (initiator, messages) = Initiator::open(&REQUEST, "c1", agents, &request, 0).unwrap();
    let counts = messages.iter().map(|it| it.receivers.len());
    assert_eq!(counts.collect::<Vec<_>>(), [4_096, 904]);
    assert_eq!(initiator.branches().len(), 5_000);
}

#[test]
fn a_round_of_an_auction_ends_and_the_silent_bidder_stays() {
    for protocol in [&ENGLISH_AUCTION, &DUTCH_AUCTION] {
        let (mut auction, opening) = open(protocol, &["a", "b"], &draft(Performative::Inform));
        let mut a = Participant::open(protocol, &opening, 0).unwrap();
        let call = auction
            .send(To::All, &due(Performative::Cfp, 10), 0)
            .unwrap();
        a.receive(&call[0].clone().with_sender(aid("initiator")), 0)
            .unwrap();
        let late = answer(&mut a, "a", Performative::Propose);
        assert_eq!(auction.advance(10), []);
        assert_eq!(auction.at(Stage::Announced).count(), 2);

        // The bid for the first round crosses the call for the second.
        let call = auction
            .send(To::All, &due(Performative::Cfp, 20), 10)
            .unwrap();
        let refused = auction.receive(&late, 11).unwrap_err();
        assert!(matches!(refused.reason, Reason::Stale { .. }));
        let reject = refused.answer.unwrap().with_sender(aid("initiator"));
        a.receive(&call[0].clone().with_sender(aid("initiator")), 11)
            .unwrap();
        assert_eq!(a.stage(), Stage::Called);
        assert!(a.receive(&reject, 11).is_err());
        let bid = a
            .send(&draft(Performative::Propose), 12)
            .unwrap()
            .with_sender(aid("a"));
        auction.receive(&bid, 12).unwrap();
        assert_eq!(auction.at(Stage::Proposed).count(), 1);
    }
}
