use super::*;

fn enter(log: &mut Log, state: State, text: Option<&str>, now: &str) -> bool {
    let text = text.map(str::to_owned);
    log.apply(&Change::Enter { state, text }, now)
}

fn add(log: &mut Log, part: Value) -> bool {
    let part = to_raw_value(&part).unwrap();
    let is_whole = false;
    log.apply(&Change::Part { part, is_whole }, "")
}

fn log() -> Log {
    let head = TaskFacts {
        id: "t".to_owned(),
        context: "c".to_owned(),
        result: "brew".to_owned(),
    };
    Log::new(
        head.into(),
        to_raw_value("hello").unwrap(),
        "now".to_owned(),
    )
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

/// All events after a number.
fn rest(log: &Log, mut number: u64) -> Vec<(u64, Value)> {
    let mut rest = Vec::new();
    while let Some(next) = log.after(number) {
        number = next.number;
        rest.push((number, value(&next.told)));
    }
    rest
}

#[test]
fn a_task_is_what_its_events_say() {
    let mut log = log();
    assert!(enter(&mut log, State::Working, None, "1"));
    assert!(add(&mut log, json!({"text": "a"})));
    assert!(add(&mut log, json!({"text": "b"})));
    assert!(enter(&mut log, State::Completed, None, "2"));
    let task = value(&log.shown(View::whole(None)));
    assert_eq!(
        task["status"],
        json!({"state": "TASK_STATE_COMPLETED", "timestamp": "2"})
    );
    assert_eq!(
        task["artifacts"][0]["parts"],
        json!([{"text": "a"}, {"text": "b"}])
    );
    assert_eq!(task["history"], json!(["hello"]));
    let events = rest(&log, 0);
    let numbers: Vec<u64> = events.iter().map(|it| it.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(events[1].1["artifactUpdate"]["append"], false);
    assert_eq!(events[2].1["artifactUpdate"]["append"], true);
    assert!(log.after(3).unwrap().is_last);
    assert!(log.after(4).is_none());
    assert!(log.after(u64::MAX).is_none());
    // A stream that broke continues at its last event.
    assert_eq!(rest(&log, 2), events[2..]);
    // The task does not change any more.
    assert!(!add(&mut log, json!({"text": "c"})));
    assert!(!enter(&mut log, State::Canceled, None, "3"));
    assert_eq!(rest(&log, 0), events);
    let short = value(&log.shown(View {
        history: Some(0),
        artifacts: false,
    }));
    assert!(short.get("history").is_none() && short.get("artifacts").is_none());
}

#[test]
fn a_message_in_place_of_a_task_is_the_answer() {
    let mut log = log();
    let say = |text: &str| Change::Say {
        text: text.to_owned(),
        about: Map::new(),
    };
    assert!(log.apply(&say("hello"), "1"));
    let answer = value(&log.answer(View::whole(None)));
    assert_eq!(answer["message"]["parts"], json!([{"text": "hello"}]));
    assert_eq!(answer["message"]["role"], "ROLE_AGENT");
    assert_eq!(log.state(), State::Completed);
    assert!(!log.apply(&say("again"), "2"));
}

#[test]
fn progress_without_end_takes_no_memory() {
    let mut log = log();
    for step in 0..10_000 {
        enter(&mut log, State::Working, Some(&format!("step {step}")), "");
    }
    assert_eq!(rest(&log, 0).len(), MOST_NOTICES);
    assert!(log.bytes() < MOST_NOTICES * 512);
    assert_eq!(log.last(), 10_000);
    for _ in 0..1_000 {
        log.remember(to_raw_value("again").unwrap());
    }
    assert_eq!(
        value(&log.shown(View::whole(None)))["history"]
            .as_array()
            .unwrap()
            .len(),
        MOST_HISTORY
    );
}

#[test]
fn a_task_that_begins_again_has_the_parts_of_its_last_attempt() {
    let mut log = log();
    enter(&mut log, State::Working, None, "1");
    add(&mut log, json!({"text": "a".repeat(1_000)}));
    let (seen, bytes) = (log.last(), log.bytes());
    assert!(log.apply(&Change::Again, "2"));
    assert!(log.bytes() < bytes);
    add(&mut log, json!({"text": "b"}));
    enter(&mut log, State::Completed, None, "3");
    let task = value(&log.shown(View::whole(None)));
    assert_eq!(task["artifacts"][0]["parts"], json!([{"text": "b"}]));
    // A reader of the first part learns that it no longer counts.
    let events = rest(&log, seen);
    assert_eq!(
        events[0].1["statusUpdate"]["status"]["state"],
        State::Working.as_str()
    );
    assert_eq!(events[1].1["artifactUpdate"]["append"], false);
    assert_eq!(events.len(), 3);
    assert_eq!(log.attempt(), 2);
}

#[test]
fn states_are_read_as_they_are_written() {
    for state in [State::Submitted, State::InputRequired, State::Rejected] {
        assert_eq!(State::read(state.as_str()), Some(state));
    }
    assert_eq!(State::read("TASK_STATE_UNSPECIFIED"), None);
}
