//! Leases of entries.

use super::*;

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
