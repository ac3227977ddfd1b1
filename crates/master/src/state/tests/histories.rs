//! The invariants of the state machine, after any history.

use proptest::prelude::*;

use super::*;
use crate::placement::{PlacementWish, place};

#[derive(Clone, Debug)]
enum Step {
    Start(u8),
    Live(u8),
    Crash(u8),
    CrashSource(u8),
    Finish(u8),
    Kill(u8),
    Move(u8, u8),
    Freeze(u8, bool),
    NodeBack(u8),
    Wait(u16),
    KillMaster,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..4).prop_map(Step::Start),
        (0_u8..4).prop_map(Step::Live),
        (0_u8..4).prop_map(Step::Crash),
        (0_u8..4).prop_map(Step::CrashSource),
        (0_u8..4).prop_map(Step::Finish),
        (0_u8..4).prop_map(Step::Kill),
        (0_u8..4, 1_u8..4).prop_map(|(agent, node)| Step::Move(agent, node)),
        (0_u8..4, any::<bool>()).prop_map(|(agent, done)| Step::Freeze(agent, done)),
        (1_u8..4).prop_map(Step::NodeBack),
        (0_u16..9000).prop_map(Step::Wait),
        Just(Step::KillMaster),
    ]
}

proptest! {
    /// Random histories, with kills of the Master between any two steps. An agent is known in at most one process,
    /// every process given up has been revoked, the directory agrees with the groups, and names no process that has ended.
    #[test]
    fn any_history_keeps_the_invariants(history in prop::collection::vec(steps(), 1..60)) {
        let mut master = with_nodes(3);
        let mut rows: BTreeMap<String, Vec<u8>> = master
            .take_rows(0)
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        let mut revocations: Vec<String> = Vec::new();
        let mut ever: Vec<String> = Vec::new();
        let mut ended: Vec<String> = Vec::new();
        let mut now = 0;
        for step in history {
            let name = |n: u8| format!("a{n}");
            let present = |master: &MasterState, n: u8| {
                master.group_of(&name(n)).and_then(|(_, group)| group.process.clone())
            };
            let mut exited = |master: &mut MasterState, process: Process, exit| {
                master.exited(&process.id, &exit, now);
                ended.push(process.id);
            };
            match step {
                Step::Start(n) => { let _ = master.start(&[entry(&name(n))], now); }
                Step::Live(n) => if present(&master, n).is_some_and(|it| !ended.contains(&it.id)) {
                    let process = live(&mut master, &name(n), now);
                    master.uses_channels(&process.id, now);
                },
                Step::Crash(n) => if let Some(process) = present(&master, n) {
                    exited(&mut master, process, Exit::Signal { signal: 11 });
                },
                Step::CrashSource(n) => {
                    let group = master.group_of(&name(n)).map(|(_, group)| group);
                    let moving = group.and_then(|group| group.moving.clone());
                    if let Some(source) = moving.and_then(|moving| moving.source) {
                        exited(&mut master, source, Exit::Signal { signal: 11 });
                    }
                },
                Step::Finish(n) => if let Some(process) = present(&master, n) {
                    exited(&mut master, process, Exit::Code { code: 0 });
                },
                Step::Kill(n) => { let _ = master.kill(&name(n), Duration::from_secs(1), now); }
                Step::Move(n, node) => {
                    let _ = master.move_agent(&name(n), &format!("node-{node}"), now);
                }
                Step::Freeze(n, done) => if let Some(process) = present(&master, n) {
                    let result = if done {
                        Ok(NodeAnswer::Frozen { size: 1 })
                    } else {
                        Err(Fault::new(FaultCode::Internal, "no"))
                    };
                    let about = About::Freeze { group: name(n), process: process.id };
                    master.answered(about, result, now);
                },
                Step::NodeBack(n) => {
                    let node = format!("node-{n}");
                    let running: Vec<RunningProcess> = master
                        .placed_on(&node)
                        .into_iter()
                        .map(|process| RunningProcess {
                            process, pid: Some(1), address: None, channels: false, agents: Vec::new(),
                        })
                        .collect();
                    let _ = master.register(
                        &node, description(), contact(&master, &node), None, &running, now,
                    );
                }
                Step::Wait(ms) => {
                    now += u64::from(ms);
                    master.heartbeat("node-1", &Standing::default(), now);
                    master.tick(now);
                }
                Step::KillMaster => {
                    master = load_at(&rows, now);
                }
            }
            keep(&mut master, &mut rows, now);
            for effect in master.take_effects() {
                if let Effect::Revoke { process, agent: None, .. } = effect {
                    revocations.push(process);
                }
            }
            let mut known = 0;
            let mut use_channels = BTreeSet::new();
            for (name, group) in master.groups() {
                for process in group.processes() {
                    known += 1;
                    if !ever.contains(&process.id) {
                        ever.push(process.id.clone());
                    }
                    prop_assert!(master.process(&process.id).is_some());
                    if process.channels && let Some(contact) = process.contact() {
                        prop_assert!(!ended.contains(&process.id), "{:?} has ended", contact);
                        use_channels.insert(contact.process);
                    }
                }
                for agent in &group.agents {
                    let (location, _) = situation(group, agent);
                    prop_assert_eq!(master.directory().locate(agent), location);
                    prop_assert_eq!(master.agents.get(agent), Some(name));
                }
                prop_assert!(group.process.is_none() || group.start_at.is_none());
                prop_assert!(group.wanted || group.start_at.is_none());
            }
            prop_assert_eq!(master.processes.len(), known);
            let named = master.directory().processes().into_iter().map(|it| it.process);
            prop_assert_eq!(named.collect::<BTreeSet<_>>(), use_channels);
            for node in ["node-1", "node-2", "node-3"] {
                let placed = master.groups().values().filter(|group| {
                    group.process.as_ref().is_some_and(|process| process.node == node)
                });
                let placed = placed.map(|group| group.agents.len() as u64).sum::<u64>();
                prop_assert_eq!(master.loads.on(node), placed);
                let has_one = |(_, group): &(&String, &Group)| group.processes().any(|process| process.node == node);
                let groups = master.groups().iter().filter(has_one).map(|(name, _)| name);
                prop_assert!(master.loads.groups_on(node).eq(groups));
            }
            let groups = master.groups().iter();
            let due = groups.clone().filter_map(|(name, group)| Some((loads::due(group)?, name)));
            let due: BTreeSet<_> = due.collect();
            prop_assert!(master.loads.due_by(UnixMillis::MAX).eq(due.iter().map(|(_, name)| *name)));
            let next = due.iter().map(|(at, _)| *at).find(|at| *at > now);
            prop_assert_eq!(master.loads.next_after(now), next);
            let waiting = groups.filter(|(_, group)| loads::waits(group));
            prop_assert!(master.loads.waiting().eq(waiting.clone().map(|(name, _)| name)));
            // No group waits that could be placed.
            for (name, group) in waiting {
                let wish = PlacementWish {
                    pin: group.pin.as_deref(),
                    forbid: &group.forbid,
                    isolation: group.origin.isolation(),
                };
                prop_assert!(place(&master.candidates(), wish).is_err(), "{} waits", name);
            }
            for process in &ever {
                let placed = master.groups().values().any(|group| {
                    group.processes().any(|p| p.id == *process)
                });
                prop_assert!(placed || revocations.contains(process), "{} given up", process);
            }
        }
    }
}
