use std::net::SocketAddr;
use std::path::Path;

use parking_lot::Mutex;
use sealbus_bus::Mailbox;
use sealbus_control::correspondence::Correspondent;
use sealbus_control::directory::{DirectoryStep, DirectoryUpdate, Slices};
use sealbus_control::host::Membership;
use sealbus_control::node::{MasterAnswer, MasterRequest};
use sealbus_control::post::{AboutLetter, Cover};
use sealbus_control::{Blob, DirectoryChange, ProcessContact, Rules};
use sealbus_fipa::{AclMessage, Aid};
use sealbus_process::Process;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::host::NodeHost;
use crate::memory::Remembered;
use crate::processes::Entry;
use crate::shared::Presence;
use crate::testing;

/// Far longer than anything takes.
const LATE: Duration = Duration::from_secs(120);

fn letter(
    provenance: WaitingProvenance,
    sender: &str,
    performative: &Performative,
    is_notice: bool,
) -> PostedLetter {
    let message = AclMessage::new(performative.clone()).with_sender(Aid::new(sender).unwrap());
    let mut bytes = Vec::new();
    bitefficient::encode(&message, &mut bytes).unwrap();
    PostedLetter {
        cover: Cover {
            origin: 1,
            sequence: 1,
            hops: 1,
            again: false,
            receiver: "bob".to_owned(),
            provenance,
            posted: 0,
            expiry: 1,
            valid_from: None,
            receipt: None,
            about: is_notice.then(|| AboutLetter {
                receiver: "carol".to_owned(),
                number: 1,
                failure: *performative == Performative::Failure,
            }),
        },
        message: Blob(bytes),
    }
}

fn alice() -> WaitingProvenance {
    WaitingProvenance::SameProcess {
        identity: "spiffe://factory/agent/alice".to_owned(),
    }
}

/// A letter from alice to bob.
fn letters() -> Vec<PostedLetter> {
    vec![letter(
        alice(),
        "alice@factory",
        &Performative::Request,
        false,
    )]
}

/// A node on a bus of its own, with the mailbox of its agent; and the agent of the Master, which does not answer by
/// itself, with its mailbox.
async fn on_a_bus(folder: &Path) -> (Arc<Shared>, Mailbox, Correspondent, Mailbox) {
    let (shared, _) = testing::node(folder, testing::no_isolation()).await;
    let (commands, received) = mpsc::channel(1);
    let host = NodeHost {
        shared: shared.clone(),
        membership: Membership {
            platform: shared.platform.read().clone(),
            node: shared.name.clone(),
            process: "0".repeat(32),
            agents: Vec::new(),
            address: shared.address(),
            port: 0,
            deny_list: shared.deny_list(),
            processes: None,
            rules: Rules::default(),
            inherits: false,
            all_use_channels: false,
            reachable: false,
        },
        announced: Mutex::new(None),
        commands: Mutex::new(Some(received)),
    };
    let process = Process::open(Arc::new(host), None).await.unwrap();
    let attach = |name: &str| process.bus().attach(name, None, None).unwrap();
    let (outbox, unread) = attach("node-1@factory");
    let (master, asked) = attach("master@factory");
    let presence = Presence {
        correspondent: Correspondent::new(Arc::new(outbox)),
        process: process.clone(),
        commands,
    };
    shared.presence.send_replace(Some(presence));
    (shared, unread, Correspondent::new(Arc::new(master)), asked)
}

fn node_2() -> DirectoryChange {
    DirectoryChange {
        agent: "node-2".to_owned(),
        location: AgentLocation::Process(ProcessContact {
            node: "node-2".to_owned(),
            process: "2".repeat(32),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
        }),
    }
}

/// The directory: node-2, and bob in a process of the node itself.
fn learn_the_places(shared: &Shared) {
    let bob = DirectoryChange {
        agent: "bob".to_owned(),
        location: AgentLocation::Process(ProcessContact {
            node: shared.name.clone(),
            process: "1".repeat(32),
            address: SocketAddr::from(([127, 0, 0, 1], 2)),
        }),
    };
    let update = DirectoryUpdate {
        to: 1,
        slices: Slices::ALL,
        changes: vec![DirectoryStep::Agent(node_2()), DirectoryStep::Agent(bob)],
        ..DirectoryUpdate::default()
    };
    shared.replica.lock().answered(update);
}

#[tokio::test]
async fn an_agent_that_is_no_node_holds_up_no_letters_while_the_master_is_away() {
    let place = tempfile::tempdir().unwrap();
    let (shared, _unread, _master, _asked) = on_a_bus(place.path()).await;
    learn_the_places(&shared);
    // The Master does not answer, so these wait as long as the test likes.
    let carry = || Box::pin(shared.carried_here("mallory", letters()));
    let mut carried: Vec<_> = std::iter::repeat_with(carry).take(16).collect();
    for carried in &mut carried {
        assert!(carried.as_mut().now_or_never().is_none());
    }
    let mut sought = Box::pin(shared.trail_of("mallory", "bob", &[]));
    assert!(sought.as_mut().now_or_never().is_none());

    let kept = timeout(LATE, shared.carried_here("node-2", letters())).await;
    assert_eq!(kept.unwrap().unwrap(), vec![None::<Fault>]);
    let trail = timeout(LATE, shared.trail_of("node-2", "bob", &[])).await;
    assert_eq!(trail.unwrap().unwrap().arrivals, 1);
}

/// Otherwise its later letters could come in before those that wait for the Master's answer.
#[tokio::test]
async fn a_node_that_is_not_known_here_yet_brings_its_letters_again() {
    let place = tempfile::tempdir().unwrap();
    let (shared, mut unread, master, mut asked) = on_a_bus(place.path()).await;
    let answering = async {
        let asked = asked.recv().await.unwrap();
        let (_, request, reply) = master.receive(asked).unwrap().open::<MasterRequest>();
        assert!(matches!(request, Ok(MasterRequest::Resolve { .. })));
        let known = MasterAnswer::from(node_2().location);
        reply.send(Ok(known)).await;
        let answer = unread.recv().await.unwrap();
        shared.correspondent().unwrap().receive(answer);
    };
    let (early, ()) = tokio::join!(shared.carried_here("node-2", letters()), answering);
    assert_eq!(early.unwrap_err().code, FaultCode::Unavailable);
    assert_eq!(shared.post.list("bob").1, 0);

    learn_the_places(&shared);
    let kept = shared.carried_here("node-2", letters()).await;
    assert_eq!(kept.unwrap(), vec![None::<Fault>]);
}

/// A node in other hands could otherwise have mailboxes made without end.
#[tokio::test]
async fn letters_that_a_node_brings_for_names_that_are_not_here_leave_no_mailbox() {
    let place = tempfile::tempdir().unwrap();
    let (shared, _unread, _master, _asked) = on_a_bus(place.path()).await;
    learn_the_places(&shared);
    let (ams, failure) = ("ams@factory", &Performative::Failure);
    for number in 0..100 {
        let mut brought = vec![
            letter(alice(), "alice@factory", &Performative::Request, false),
            letter(WaitingProvenance::Platform, ams, failure, true),
        ];
        for letter in &mut brought {
            letter.cover.receiver = format!("invented-{number}");
        }
        let refused = shared.carried_here("node-2", brought).await.unwrap();
        let codes = refused.into_iter().map(|fault| fault.unwrap().code);
        assert!(codes.eq([FaultCode::NotPlaced; 2]), "{number}");
    }
    let mailboxes = std::fs::read_dir(place.path().join("journal")).unwrap();
    let names = mailboxes.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.contains("invented")).collect();
    assert!(names.is_empty(), "{names:?}");

    // A letter that is here already is recognised, also after its receiver has moved on.
    let bring = || shared.carried_here("node-2", letters());
    assert_eq!(bring().await.unwrap(), vec![None::<Fault>]);
    let left = DirectoryUpdate {
        from: 1,
        to: 2,
        slices: Slices::ALL,
        changes: vec![DirectoryStep::Agent(DirectoryChange {
            agent: "bob".to_owned(),
            location: AgentLocation::InTransit,
        })],
        ..DirectoryUpdate::default()
    };
    shared.replica.lock().answered(left);
    assert_eq!(bring().await.unwrap(), vec![None::<Fault>]);
    let mut later = letters();
    later[0].cover.sequence = 2;
    let refused = shared.carried_here("node-2", later).await.unwrap();
    assert!(matches!(&refused[..], [Some(fault)] if fault.code == FaultCode::NotPlaced));
}

#[test]
fn a_node_carries_no_letters_without_proof_and_speaks_for_the_platform_in_notices_alone() {
    use WaitingProvenance::{Claimed, Foreign, Platform};
    let (ams, failure) = ("ams@factory", &Performative::Failure);
    let (request, inform) = (&Performative::Request, &Performative::Inform);
    for (letter, is_right) in [
        (letter(alice(), "alice@factory", request, false), true),
        (letter(alice(), "alice@factory", failure, true), false),
        (letter(Claimed, "alice@factory", request, false), false),
        (letter(Foreign, "alice@else", request, false), false),
        (letter(Platform, ams, failure, true), true),
        (letter(Platform, ams, inform, true), true),
        (letter(Platform, ams, failure, false), false),
        (letter(Platform, ams, request, true), false),
        (letter(Platform, "bob@factory", failure, true), false),
    ] {
        assert_eq!(unproved(&letter, ams).is_none(), is_right, "{letter:?}");
    }
}

/// A node with the process `p`, in which alice is.
async fn with_alice(folder: &Path) -> Arc<Shared> {
    let (shared, _reports) = testing::node(folder, testing::no_isolation()).await;
    let launch = serde_json::json!({
        "process": "p", "group": "p", "agents": ["alice"], "command": [], "environment": {},
    });
    let entry = Entry::new(Remembered::new(serde_json::from_value(launch).unwrap()));
    shared
        .processes
        .entries
        .lock()
        .insert("p".to_owned(), entry);
    shared
}

/// All agents are on another node.
struct AllElsewhere(mpsc::UnboundedSender<PostedLetter>);

impl Ways for AllElsewhere {
    fn whereabouts(&self, _: &str) -> Whereabouts {
        Whereabouts::There("node-2".to_owned())
    }

    fn deliver<'a>(
        &'a self,
        _: &'a str,
        _: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        unreachable!("nobody is here")
    }

    fn forward<'a>(
        &'a self,
        _: &'a str,
        letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>> {
        let taken: Vec<Option<Fault>> = vec![None; letters.len()];
        for letter in letters {
            self.0.send(letter).unwrap();
        }
        std::future::ready(Ok(taken)).boxed()
    }

    fn trail<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>> {
        unreachable!("no letter went to a third node")
    }
}

/// A process brings the notices that came too late for its agents to take along. It cannot write to anybody else in the
/// platform's name.
#[tokio::test]
async fn a_process_brings_notices_for_its_own_agents_once_they_move_and_the_next_node_takes_them() {
    let (ams, failure) = ("ams@factory", &Performative::Failure);
    let place = tempfile::tempdir().unwrap();
    let shared = with_alice(place.path()).await;
    let notice = |receiver: &str, sender: &str, performative: &Performative| {
        let mut notice = letter(WaitingProvenance::Platform, sender, performative, true);
        notice.cover.receiver = receiver.to_owned();
        notice.cover.expiry = now() + 3_600_000;
        vec![notice]
    };
    let early = shared.post_of("p", notice("alice", ams, failure)).await;
    assert_eq!(early.unwrap_err().code, FaultCode::NotPermitted);
    let hand_in = |entry: &mut Entry| entry.remembered.handed_in = Some(7);
    shared.processes.with("p", hand_in).unwrap();
    for forged in [
        notice("bob", ams, failure),
        notice("alice", "alice@factory", failure),
        notice("alice", ams, &Performative::Inform),
    ] {
        let fault = shared.post_of("p", forged).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::NotPermitted, "{fault}");
    }
    let kept = shared.post_of("p", notice("alice", ams, failure)).await;
    assert_eq!(kept.unwrap(), vec![None::<Fault>]);
    assert_eq!(
        (shared.post.list("alice").1, shared.post.list("bob").1),
        (1, 0)
    );

    let (carried, mut carrying) = mpsc::unbounded_channel();
    let ways = Arc::new(AllElsewhere(carried));
    let carriers = tokio::spawn(sealbus_keeping::post::run(shared.post.clone(), ways));
    let notice = timeout(LATE, carrying.recv()).await.unwrap().unwrap();
    assert_eq!(unproved(&notice, ams), None);
    assert_eq!(notice.cover.receiver, "alice");
    carriers.abort();
}

/// Otherwise it could make the mailboxes forget letters that they had from others.
#[tokio::test]
async fn a_process_numbers_its_letters_under_one_origin() {
    let place = tempfile::tempdir().unwrap();
    let shared = with_alice(place.path()).await;
    let posted = |origin, sequence| {
        let mut posted = letters().remove(0);
        posted.cover.origin = origin;
        posted.cover.sequence = sequence;
        posted
    };
    let first = shared.post_of("p", vec![posted(7, 1)]).await;
    assert_eq!(first.unwrap(), vec![None::<Fault>]);
    for letters in [vec![posted(8, 1)], vec![posted(7, 2), posted(8, 2)]] {
        let fault = shared.post_of("p", letters).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::BadRequest);
        assert!(fault.message.contains("the process p "), "{fault}");
    }
    let second = shared.post_of("p", vec![posted(7, 2)]).await;
    assert_eq!(second.unwrap(), vec![None::<Fault>]);
    assert_eq!(shared.post.list("bob").1, 2);
}

#[test]
fn what_a_process_states_of_a_sender_is_cut_in_the_fault() {
    let identity = "spiffe://factory/agent/\u{1b}".repeat(100_000);
    let fault = not_its_own("p-1", &WaitingProvenance::SameProcess { identity });
    assert_eq!(fault.code, FaultCode::NotPermitted);
    assert!(
        fault
            .message
            .starts_with("the process p-1 posts for SameProcess")
    );
    assert!(fault.message.len() < 1024 && !fault.message.contains('\u{1b}'));
}
