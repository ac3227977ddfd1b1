use futures_util::FutureExt;

use super::turn::AT_ONCE;
use super::*;
use crate::testing;
use sealbus_control::attachment::FrozenPart;

fn remembered() -> Remembered {
    Remembered::new(Launch {
        process: "p".to_owned(),
        group: "a".to_owned(),
        agents: vec!["a".to_owned()],
        command: Vec::new(),
        directory: None,
        environment: BTreeMap::new(),
        confinement: Default::default(),
        inherits: None,
    })
}

/// A restarted node does not know which agents live in the processes that it takes over. Until a process reports one,
/// it does not count as finished.
#[test]
fn a_process_that_was_taken_over_is_not_done_before_it_reports() {
    let processes = Processes::default();
    let is_done = || processes.with("p", |entry| entry.is_done()).unwrap();
    let entry = Entry::taken_over(remembered());
    processes.entries.lock().insert("p".to_owned(), entry);
    assert!(!is_done());
    processes.reported("p", "a", Some(PlacedState::Active));
    assert!(!is_done());
    processes.reported("p", "a", None);
    assert!(is_done());
    // A process that began on this node, and in which no agent ever lived, has nothing to wait for.
    processes
        .entries
        .lock()
        .insert("p".to_owned(), Entry::new(remembered()));
    assert!(is_done());
}

/// The number of the freeze.
const FREEZE: u64 = 7;

/// The process `p`, whose agents are to be moved to `node-2`.
fn processes_in_a_freeze() -> Processes {
    let processes = Processes::default();
    begin_freezing(&processes);
    processes
}

fn begin_freezing(processes: &Processes) {
    processes
        .entries
        .lock()
        .insert("p".to_owned(), Entry::new(remembered()));
    let frozen = FrozenProcess::begun(FREEZE, vec!["a".to_owned()], "node-2");
    processes.frozen.lock().insert("p".to_owned(), frozen);
    processes
        .with("p", |entry| {
            entry.freezing = Some(FreezeInProgress::begun(FREEZE))
        })
        .unwrap();
}

fn part(index: u32, more: bool, bytes: &str) -> FrozenPart {
    FrozenPart {
        index,
        more,
        bytes: sealbus_control::Blob(bytes.as_bytes().to_vec()),
    }
}

fn hand_in(processes: &Processes) -> Result<(), Fault> {
    let whole = processes.add_frozen_part("p", FREEZE, &part(0, false, "agents"))?;
    processes.handed_in("p", whole.expect("it is the last part"))
}

/// A process sends a part again if the answer was lost.
#[test]
fn a_part_that_comes_again_is_there_already_and_none_is_left_out() {
    let processes = processes_in_a_freeze();
    let bring = |number, part| processes.add_frozen_part("p", number, &part);
    let is_refused = |number, part| {
        let refused = bring(number, part).map(|_| ()).unwrap_err();
        refused.code == FaultCode::BadRequest
    };
    for _ in 0..2 {
        assert!(bring(FREEZE, part(0, true, "ag")).unwrap().is_none());
    }
    assert!(is_refused(FREEZE, part(2, false, "s")));
    assert!(is_refused(
        FREEZE - 1,
        part(1, false, "of an earlier freeze")
    ));
    let whole = bring(FREEZE, part(1, false, "ents")).unwrap().unwrap();
    // The answer may be lost before the part is on disk, and after.
    let last = || bring(FREEZE, part(1, false, "ents"));
    assert!(last().unwrap().is_none());
    processes.handed_in("p", whole).unwrap();
    assert!(last().unwrap().is_none());
    let whole = processes.fetch("node-2", "p", 0).unwrap();
    assert_eq!(whole.bytes.0, b"agents");
    assert!(is_refused(FREEZE + 1, part(0, false, "of a later freeze")));

    assert!(matches!(processes.thaw("p"), Ok(AfterMove::GoesOn(_))));
    assert!(last().is_err());
}

#[test]
fn a_freeze_is_given_up_as_long_as_not_all_is_handed_in() {
    let processes = processes_in_a_freeze();
    assert_eq!(processes.give_up_freeze("p", FREEZE - 1), None);
    hand_in(&processes).unwrap();
    assert_eq!(processes.give_up_freeze("p", FREEZE), Some(6));

    let processes = processes_in_a_freeze();
    let last = part(0, false, "agents");
    let whole = processes
        .add_frozen_part("p", FREEZE, &last)
        .unwrap()
        .unwrap();
    assert_eq!(processes.give_up_freeze("p", FREEZE), None);
    assert!(processes.handed_in("p", whole).is_err());
    assert!(processes.add_frozen_part("p", FREEZE, &last).is_err());
}

/// The disk may be slow, so that the node gives up the freeze in the meantime.
#[test]
fn a_freeze_that_is_given_up_while_it_is_noted_is_no_freeze_after_a_restart_of_the_node() {
    let place = tempfile::tempdir().unwrap();
    // Writes to the disk wait for the only thread.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1);
    runtime.build().unwrap().block_on(async {
        let (shared, _reports) = testing::node(place.path(), testing::no_isolation()).await;
        let processes = &shared.processes;
        begin_freezing(processes);
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        let disk = tokio::task::spawn_blocking(move || waits.recv());
        let last = part(0, false, "agents");
        let mut taking = Box::pin(shared.take_frozen_part("p", FREEZE, &last));
        assert!(taking.as_mut().now_or_never().is_none());
        assert_eq!(processes.give_up_freeze("p", FREEZE), None);
        drop(goes_on);
        assert!(taking.await.is_err());
        assert!(disk.await.unwrap().is_err());
        assert_eq!(shared.memory.processes().unwrap()[0].handed_in, None);
    });
}

/// The agents may live elsewhere by then. The Master says whether they go on here.
#[tokio::test]
async fn a_node_that_is_started_again_thaws_nothing_that_was_handed_in() {
    let directory = tempfile::tempdir().unwrap();
    let memory = crate::memory::Memory::open(directory.path()).unwrap();
    let started_again = || {
        let (processes, mut known) = (Processes::default(), memory.processes().unwrap());
        let entry = Entry::taken_over(known.remove(0));
        processes.entries.lock().insert("p".to_owned(), entry);
        processes
    };
    let last = part(0, false, "agents");
    let processes = processes_in_a_freeze();
    let whole = processes
        .add_frozen_part("p", FREEZE, &last)
        .unwrap()
        .unwrap();
    processes.note("p", &memory).await;
    processes.handed_in("p", whole).unwrap();

    let processes = started_again();
    assert!(
        processes
            .add_frozen_part("p", FREEZE, &last)
            .unwrap()
            .is_none()
    );
    let (stream, _peer) = tokio::io::duplex(1);
    let (caller, _requests, _drive) = sealbus_control::rpc::open(stream, 1);
    processes.connect("p", &caller, 1).unwrap();
    // The Master asks again for the lost parts. The move fails.
    let freeze = || {
        let (waiting, _) = tokio::sync::oneshot::channel();
        processes.begin_freeze("p", FREEZE + 1, "node-2", waiting)
    };
    assert_eq!(freeze().err().unwrap().code, FaultCode::NotPermitted);
    assert!(matches!(processes.thaw("p"), Ok(AfterMove::GoesOn(_))));
    processes.note("p", &memory).await;
    assert!(started_again().add_frozen_part("p", FREEZE, &last).is_err());
    assert!(freeze().unwrap().is_some());
}

/// A Master that takes over asks again for the agents that the process handed over for the former one.
#[test]
fn what_a_process_handed_over_is_there_after_its_end() {
    let processes = processes_in_a_freeze();
    hand_in(&processes).unwrap();
    processes.entries.lock().remove("p");
    assert_eq!(processes.frozen_for("p", "node-2"), Some(6));
    assert_eq!(processes.frozen_for("p", "node-3"), None);
}

/// The process answers as long as it has not handed in its agents, or if the move has failed. Otherwise the node
/// answers, whether it notices the end of the process before or after the end of the move.
#[test]
fn either_a_process_that_ends_answers_what_its_agents_have_not_read_or_its_node_does() {
    let processes = processes_in_a_freeze();
    assert!(!processes.not_frozen("p", "it ends"));
    assert!(hand_in(&processes).is_err());

    for has_ended in [false, true] {
        let processes = processes_in_a_freeze();
        hand_in(&processes).unwrap();
        assert!(processes.not_frozen("p", "it ends"));
        if has_ended {
            processes.entries.lock().remove("p");
        }
        assert!(matches!(processes.thaw("p"), Ok(AfterMove::Answer(_))));
        assert!(!matches!(processes.thaw("p"), Ok(AfterMove::Answer(_))));
    }

    let processes = processes_in_a_freeze();
    hand_in(&processes).unwrap();
    assert!(matches!(processes.thaw("p"), Ok(AfterMove::GoesOn(_))));
    assert!(!processes.not_frozen("p", "it ends"));

    // A part that comes after the move has failed is refused.
    let processes = processes_in_a_freeze();
    processes.frozen.lock().clear();
    assert!(hand_in(&processes).is_err());
}

/// Notices are kept even on a full disk, so their bytes and their number have a limit.
#[test]
fn a_process_brings_so_many_notices_for_agents_that_it_has_handed_in_and_none_for_others() {
    let processes = processes_in_a_freeze();
    let bring = |count, bytes| processes.brings_notices("p", count, bytes);
    let refused = |count, bytes| bring(count, bytes).unwrap_err().code;
    assert_eq!(refused(1, 1), FaultCode::NotPermitted);
    hand_in(&processes).unwrap();
    for _ in 0..15 {
        bring(1, 1 << 20).unwrap();
    }
    // So many short notices take as much room as a long one.
    assert_eq!(refused(1024, 0), FaultCode::Full);
    assert!(processes.thaw("p").is_ok());
    assert_eq!(refused(1, 1), FaultCode::NotPermitted);
}

/// No Master tells the node how the move ended.
#[test]
fn a_node_answers_what_nobody_has_fetched_and_nothing_else() {
    for is_fetched in [false, true] {
        let processes = processes_in_a_freeze();
        hand_in(&processes).unwrap();
        if is_fetched {
            processes.fetch("node-2", "p", 0).unwrap();
        }
        assert!(processes.not_frozen("p", "it ends"));
        assert_eq!(processes.forget_frozen("p").is_none(), is_fetched);
    }
}

/// The Master is told the agents of a node each time one of them changes, so they are collected only when a process
/// comes or goes.
#[test]
fn the_agents_of_a_node_are_collected_when_a_process_comes_or_goes() {
    let processes = Processes::default();
    let enter = |name: &str| {
        let mut remembered = remembered();
        remembered.launch.agents = vec![name.to_owned()];
        let entry = Entry::new(remembered);
        processes.entries.lock().insert(name.to_owned(), entry);
    };
    enter("p");
    let before = processes.agents();
    processes.reported("p", "p", Some(PlacedState::Active));
    assert!(Arc::ptr_eq(&before, &processes.agents()));
    enter("q");
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(*processes.agents(), names(&["p", "q"]));
    processes.entries.lock().remove("p");
    assert_eq!(*processes.agents(), names(&["q"]));
}

#[test]
fn a_fault_lists_the_first_agents_alone() {
    let mut launch = remembered().launch;
    launch.agents = (0..1000).map(|number| format!("a{number:03}")).collect();
    let placement = Placement::of(&launch);
    assert!(placement.has("a999") && !placement.has("a"));
    let listed = placement.listed();
    assert!(
        listed.starts_with("a000, a001") && listed.ends_with("a015 and 984 more"),
        "{listed}"
    );
    launch.agents.truncate(1);
    assert_eq!(Placement::of(&launch).listed(), "a000");
}

/// A restarted node has its processes back before they attach.
#[tokio::test]
async fn what_needs_an_attached_process_waits_for_it_a_while() {
    let (soon, late) = (Duration::from_millis(1), Duration::from_secs(600));
    let processes = Processes::default();
    assert!(processes.await_attachment("p", late).await.is_err());
    let entry = Entry::taken_over(remembered());
    processes.entries.lock().insert("p".to_owned(), entry);
    processes.await_attachment("p", soon).await.unwrap();

    let (stream, _peer) = tokio::io::duplex(1);
    let (caller, _requests, _drive) = sealbus_control::rpc::open(stream, 1);
    let attach = async {
        tokio::task::yield_now().await;
        processes.connect("p", &caller, 1).unwrap();
    };
    let (attached, _) = tokio::join!(processes.await_attachment("p", late), attach);
    attached.unwrap();
    processes.await_attachment("p", late).await.unwrap();
}

/// The turn of an attached process with this name.
fn attached(processes: &Processes, name: &str) -> Turn {
    let entry = Entry::new(remembered());
    processes.entries.lock().insert(name.to_owned(), entry);
    let (stream, _peer) = tokio::io::duplex(1);
    let (caller, _requests, _drive) = sealbus_control::rpc::open(stream, 1);
    processes.connect(name, &caller, 1).unwrap()
}

/// A subscription has one question for each node, which waits nearly all the time. Certificates must be renewed nevertheless.
#[test]
fn questions_that_wait_for_events_leave_their_places_to_other_requests() {
    let processes = Processes::default();
    let turn = attached(&processes, "p");
    let place = || turn.place().now_or_never().flatten();
    let mut waiting = Vec::new();
    for _ in 0..1024 {
        let mut place = place().unwrap();
        let waits = place.leave(100, false).unwrap();
        waiting.push((place, waits));
    }
    // This is limited. The next question stays in its place.
    let mut last = place().unwrap();
    assert_eq!(last.leave(100, false).unwrap_err().code, FaultCode::Full);
    let mut working: Vec<_> = std::iter::from_fn(place).collect();
    assert_eq!(working.len(), AT_ONCE - 1);

    // A question that has waited continues when there is a place.
    let (mut first, waits) = waiting.swap_remove(0);
    assert!(first.come_back().now_or_never().is_none());
    working.truncate(1);
    assert!(first.come_back().now_or_never().is_some());
    drop((first, waits));
    drop(last.leave(100, false).unwrap());
    // There are fewer long questions.
    waiting.clear();
    for is_room in [true, false] {
        let mut place = place().unwrap();
        let waits = place.leave(20 << 20, false);
        assert_eq!(waits.is_ok(), is_room);
        waiting.extend(waits.ok().map(|waits| (place, waits)));
    }
}

/// Another node works on a limited number of this node's requests, and not all of them may wait for events.
#[test]
fn questions_to_other_nodes_leave_room_for_other_requests_to_them() {
    let processes = Processes::default();
    let turns = ["p", "q", "r"].map(|name| attached(&processes, name));
    let ask_long = |turn: &Turn, bytes: usize| {
        let mut place = turn.place().now_or_never().flatten().unwrap();
        let waits = place.leave(bytes, true);
        waits.map(|waits| (place, waits))
    };
    let ask = |turn: &Turn| ask_long(turn, 100);
    let both = turns[..2].iter().cycle().take(2 * 1024);
    let waiting: Vec<_> = both.map(|turn| ask(turn).unwrap()).collect();
    let refused = ask(&turns[2]).err().unwrap();
    assert_eq!(refused.code, FaultCode::Full);
    // A question to this node goes on.
    let mut place = turns[2].place().now_or_never().flatten().unwrap();
    drop(place.leave(100, false).unwrap());
    drop(waiting);
    assert!(ask(&turns[2]).is_ok());
    // It also takes a limited number of bytes.
    let long = ask_long(&turns[0], 20 << 20).unwrap();
    let refused = ask_long(&turns[1], 20 << 20).err().unwrap();
    assert_eq!(refused.code, FaultCode::Full);
    drop(long);
}
