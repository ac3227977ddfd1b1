use sealbus::{Aid, Platform};
use sealbus_callers::CallerAgent;
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::sync::oneshot;

use super::*;
use crate::catalogue::Exposed;
use crate::log::{TaskFacts, View};
use crate::work::Work;

/// The tasks of a caller, and its platform.
pub(crate) async fn tasks() -> (Platform, Tasks) {
    let platform = Platform::embedded().await.unwrap();
    let (agent, caller) = CallerAgent::new();
    platform.start("assistant", agent).await.unwrap();
    let (tasks, _) = Tasks::new(caller.await.unwrap(), None);
    (platform, tasks)
}

fn message(name: &str, text: &str) -> Box<RawValue> {
    let message = json!({"messageId": name, "role": "ROLE_USER", "parts": [{"text": text}]});
    to_raw_value(&message).unwrap()
}

/// A conversation at work that began with this text, and the messages that the work gets.
async fn talk(tasks: &Tasks, first: &str) -> (Arc<Task>, mpsc::Receiver<String>) {
    let id = new_id().unwrap();
    let opening = Opening {
        agent: "clock".to_owned(),
        head: Arc::new(TaskFacts {
            id: id.clone(),
            context: "c".to_owned(),
            result: "request".to_owned(),
        }),
        at: now(),
        name: id,
        hash: [0; 32],
        message: message("first", first),
        metadata: None,
        extensions: Vec::new(),
        is_talk: true,
    };
    let (task, is_new) = tasks.open(opening).unwrap();
    assert!(is_new && tasks.enter(&task, State::Working, None));
    let (out, heard) = oneshot::channel();
    task.put_to_work(|answers| async move { drop(out.send(answers)) });
    (task, heard.await.unwrap())
}

#[tokio::test]
async fn a_message_that_comes_again_is_heard_once() {
    let (_platform, tasks) = tasks().await;
    let (task, mut heard) = talk(&tasks, "hello").await;
    let say = |name: &str, text: &str| tasks.answer(&task, message(name, text), text.to_owned());
    assert_eq!(say("m", "blue"), Ok(()));
    assert_eq!(say("m", "blue"), Ok(()));
    // Another text of that name is another message.
    assert_eq!(say("m", "red"), Ok(()));
    assert_eq!(heard.recv().await.as_deref(), Some("blue"));
    assert_eq!(heard.recv().await.as_deref(), Some("red"));
    // The answer to one question is not the answer to the next one.
    assert!(tasks.enter(&task, State::InputRequired, Some("which?")));
    assert_eq!(say("n", "this"), Ok(()));
    assert_eq!(task.state(), State::Working);
    assert!(tasks.enter(&task, State::InputRequired, Some("and then?")));
    assert_eq!(say("n", "this"), Ok(()));
    assert_eq!(task.state(), State::InputRequired);
    assert_eq!(heard.recv().await.as_deref(), Some("this"));
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn a_message_that_the_work_does_not_get_is_not_in_the_history() {
    let (_platform, tasks) = tasks().await;
    let (task, mut heard) = talk(&tasks, "hello").await;
    let say = |text: &str| tasks.answer(&task, message(text, text), text.to_owned());
    let is_kept = |text: &str| task.read(|log| log.has(&message(text, text)));
    for number in 0..MOST_HEARD {
        assert_eq!(say(&number.to_string()), Ok(()));
    }
    assert!(matches!(say("late"), Err(Fault::Exhausted(_))));
    assert!(!is_kept("late"));
    assert_eq!(heard.recv().await.as_deref(), Some("0"));
    assert_eq!(say("late"), Ok(()));
    assert!(is_kept("late"));
    drop(heard);
    assert!(matches!(say("later"), Err(Fault::UnsupportedOperation(_))));
    assert!(!is_kept("later"));
}

#[tokio::test]
async fn a_task_that_fails_for_want_of_room_may_forget_a_long_message() {
    let (_platform, tasks) = tasks().await;
    let part = |bytes: usize| Change::Part {
        part: to_raw_value(&"x".repeat(bytes)).unwrap(),
        is_whole: false,
    };
    // 256 KiB are left.
    for _ in 0..4 {
        let (task, _) = talk(&tasks, "hello").await;
        assert!(tasks.change(&task, &part(LONGEST_TASK - (64 << 10))));
    }
    let long = "x".repeat(100 << 10);
    let (task, _) = talk(&tasks, &long).await;
    // The history is full.
    for number in 1..64 {
        let message = message(&number.to_string(), "more");
        assert!(tasks.change(&task, &Change::Said { message }));
    }
    assert!(task.read(|log| log.has(&message("first", &long))));
    assert!(tasks.change(&task, &part(200 << 10)));
    assert_eq!(task.state(), State::Failed);
    assert!(!task.read(|log| log.has(&message("first", &long))));
    let held = tasks.held.lock();
    let bytes: usize = held.by_change.values().map(|it| it.read(Log::bytes)).sum();
    assert_eq!(held.bytes, bytes);
}

/// An agent that ends at each attempt is not asked for ever.
#[tokio::test]
async fn a_task_at_its_eighth_attempt_does_not_begin_again() {
    let (_platform, tasks) = tasks().await;
    let tasks = Arc::new(tasks);
    let clock = Arc::new(Exposed {
        aid: Aid::new("clock@factory").unwrap(),
        local: "clock".to_owned(),
        platform: "factory".to_owned(),
        skills: Vec::new(),
    });
    // A conversation does not begin again at any attempt. The reason shows which rule ended it.
    for (attempt, why) in [
        (7, "begin another conversation"),
        (8, "ended 8 times during the work"),
    ] {
        let (task, _) = talk(&tasks, "hello").await;
        for _ in 1..attempt {
            assert!(tasks.change(&task, &Change::Again));
        }
        Work::again(&tasks, &task, clock.clone());
        assert_eq!(task.state(), State::Failed);
        let shown = task.read(|log| log.shown(View::whole(None)));
        assert!(shown.get().contains(why), "{shown}");
    }
}
