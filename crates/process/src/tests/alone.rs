//! One process on its own: agents, names, certificates, wishes, and moves.

use futures_util::future::join_all;

use super::*;

async fn open(lifetime: Duration) -> (Process, Arc<TestHost>, mpsc::Sender<Command>) {
    let (host, tell) = TestHost::new(&World::new(), &[], lifetime, Vec::new());
    (Process::open(host.clone(), None).await.unwrap(), host, tell)
}

#[tokio::test]
async fn a_transport_of_a_later_version_is_refused_by_its_name() {
    let (mut host, _tell) = TestHost::new(&World::new(), &["alice"], HOUR, Vec::new());
    let later = r#"{ "kind": "pigeons", "addresses": ["10.0.0.5:1"] }"#;
    let membership = &mut Arc::get_mut(&mut host).unwrap().membership;
    membership.platform.transport = serde_json::from_str(later).unwrap();
    let error = Process::open(host, None).await.err().unwrap();
    let OpenError::Description(why) = &error else {
        panic!("{error}");
    };
    assert!(why.contains("no transport pigeons"), "{why}");
}

#[tokio::test]
async fn certified_agents_talk_and_leave() {
    let (process, host, _tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    alice.send(inform(&bob, "hello")).await.unwrap();
    let received = bob.receive().await.unwrap();
    assert!(matches!(received.provenance(), Provenance::SameProcess));
    assert_eq!(received.message().sender().unwrap().name(), "alice@factory");

    let forged = inform(&bob, "hello").with_sender(process.peer("carol").unwrap());
    assert!(matches!(
        alice.send(forged).await,
        Err(SendError::ForgedSender { .. })
    ));

    let nobody =
        AclMessage::new(Performative::Inform).with_receiver(process.peer("nobody").unwrap());
    bob.send(nobody).await.unwrap();
    let notice = bob.receive().await.unwrap();
    assert!(matches!(notice.provenance(), Provenance::Platform));

    alice.leave(Parting::Failed("tired".to_owned()));
    drop(bob);
    process.close().await;
    assert_eq!(process.ended().await, ProcessEnd::Closed);
    let reports = host.reports.lock().clone();
    let active = AgentReport::State {
        state: PlacedState::Active,
    };
    assert_eq!(
        reports,
        [
            ("alice".to_owned(), active.clone()),
            ("bob".to_owned(), active),
            (
                "alice".to_owned(),
                AgentReport::Failed {
                    error: "tired".to_owned()
                }
            ),
            ("bob".to_owned(), AgentReport::Ended),
        ]
    );
    assert!(matches!(
        process.agent("late").await,
        Err(OpenAgentError::Ending { .. })
    ));
}

/// The node may have been started again. If it knew of no other agent, it would end the process with the first one.
#[tokio::test]
async fn a_process_that_attached_again_reports_the_agents_that_live_in_it() {
    let (process, host, tell) = open(HOUR).await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| process.agent(name));
    let (_alice, bob, _carol) = tokio::try_join!(alice, bob, carol).unwrap();
    drop(bob);
    tell.send(Command::AttachedAgain).await.unwrap();
    // Commands are obeyed in order.
    let (answer, heard) = oneshot::channel();
    tell.send(Command::Heard { answer }).await.unwrap();
    heard.await.unwrap();
    process.close().await;
    let reports = host.reports.lock();
    let active = |(_, report): &&(String, AgentReport)| matches!(report, AgentReport::State { .. });
    let mut again: Vec<_> = reports.iter().filter(active).skip(3).collect();
    again.sort_by_key(|(agent, _)| agent);
    let names: Vec<&str> = again.iter().map(|(agent, _)| agent.as_str()).collect();
    assert_eq!(names, ["alice", "carol"]);
}

#[tokio::test]
async fn names_are_checked() {
    let (process, _host, _tell) = open(HOUR).await;
    let _alice = process.agent("alice").await.unwrap();
    assert!(matches!(
        process.agent("alice").await,
        Err(OpenAgentError::Attach(AttachError::NameTaken(name))) if name == "alice@factory"
    ));
    assert!(matches!(
        process.agent("no blanks").await,
        Err(OpenAgentError::Certification {
            source: CertificationError::Refused(_),
            ..
        })
    ));
}

/// The platform answers each request within some seconds, or not at all.
#[tokio::test]
async fn a_crowd_does_not_ask_for_all_its_certificates_at_once() {
    let (process, host, _tell) = open(HOUR).await;
    let names: Vec<String> = (0..400).map(|n| format!("agent-{n}")).collect();
    let agents = join_all(names.iter().map(|name| process.agent(name))).await;
    assert!(agents.iter().all(Result::is_ok));
    assert_eq!(*host.certifying.lock(), (0, 256));
}

/// Certificates live two seconds. Traffic goes on while they are renewed again and again.
#[tokio::test]
async fn certificates_renew_themselves_under_traffic() {
    let (process, host, _tell) = open(Duration::from_secs(2)).await;
    let alice = process.agent("alice").await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let serial = || {
        let agent = process.bus().agent("alice@factory").unwrap();
        agent.credential().unwrap().certificate().unwrap().serial()
    };
    let first = serial();
    let mut sent = 0;
    while host.certified.load(Ordering::SeqCst) < 6 {
        alice.send(inform(&bob, &sent.to_string())).await.unwrap();
        assert_eq!(read(&mut bob).await, sent.to_string());
        sent += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_ne!(serial(), first);
}

#[tokio::test]
async fn renewal_is_tried_again_while_the_platform_is_away() {
    let (process, host, _tell) = open(Duration::from_secs(2)).await;
    let _alice = process.agent("alice").await.unwrap();
    *host.fault.lock() = Some(Fault::new(FaultCode::Unavailable, "the Master is away"));
    let asked = host.asked.load(Ordering::SeqCst);
    let is_tried_twice = || host.asked.load(Ordering::SeqCst) >= asked + 2;
    until("two attempts", is_tried_twice).await;
    *host.fault.lock() = None;
    while host.certified.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(process.end(), None);
}

/// Another start under a name that is taken changes nothing for the running agent, and its identity leaves with it.
#[tokio::test]
async fn a_running_agent_keeps_its_long_lived_identity() {
    let place = tempfile::tempdir().unwrap();
    let [own, other] =
        ["own", "other"].map(|name| LongLivedKey::create(&place.path().join(name)).unwrap());
    let (process, host, _tell) = open(Duration::from_secs(2)).await;
    let identity = || {
        let agent = process.bus().agent("alice@factory").unwrap();
        let certificate = agent.credential().unwrap().certificate().unwrap();
        certificate.long_lived_identity()
    };
    let alice = process.agent_with("alice", Some(own.clone())).await;
    let alice = alice.unwrap();
    process.identify("alice", other.clone());
    let taken = process.agent_with("alice", Some(other.clone())).await;
    let taken = taken.unwrap_err();
    assert!(
        matches!(taken, OpenAgentError::Attach(AttachError::NameTaken(_))),
        "{taken}"
    );
    while host.certified.load(Ordering::SeqCst) < 3 {
        assert_eq!(identity(), Some(own.fingerprint()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(identity(), Some(own.fingerprint()));
    drop(alice);
    let _alice = process.agent("alice").await.unwrap();
    assert_eq!(identity(), Some(other.fingerprint()));
    drop(process.agent_with("bob", Some(own)).await.unwrap());
    let bob = process.agent("bob").await.unwrap();
    let agent = process.bus().agent(&bob.aid().name).unwrap();
    let certificate = agent.credential().unwrap().certificate().unwrap();
    assert_eq!(certificate.long_lived(), None);
}

/// A refusal that another identity caused does not end the running agent.
#[tokio::test]
async fn a_name_that_is_taken_is_no_verdict_at_renewal() {
    let (process, host, _tell) = open(Duration::from_secs(2)).await;
    let _alice = process.agent("alice").await.unwrap();
    *host.fault.lock() = Some(Fault::new(FaultCode::NameTaken, "with another identity"));
    let asked = host.asked.load(Ordering::SeqCst);
    while host.asked.load(Ordering::SeqCst) < asked + 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    *host.fault.lock() = None;
    while host.certified.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(process.end(), None);
}

#[tokio::test]
async fn an_agent_the_platform_does_not_renew_ends() {
    let (process, host, _tell) = open(Duration::from_secs(2)).await;
    let alice = process.agent("alice").await.unwrap();
    *host.fault.lock() = Some(Fault::new(
        FaultCode::NotPlaced,
        "alice is placed elsewhere",
    ));
    alice.wishes().stop_wished().await;
    assert!(
        matches!(process.ended().await, ProcessEnd::Revoked { who, .. } if who == "alice@factory")
    );
    assert!(process.bus().agent("alice@factory").is_none());
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_and_the_others_go_on() {
    let (process, host, _tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let mallory = process.agent("mallory").await.unwrap();
    host.world.deny("mallory").await;
    mallory.wishes().stop_wished().await;
    assert!(matches!(
        mallory.try_send(inform(&bob, "still here")),
        Err(TrySendError::Failed(SendError::Detached(_)))
    ));
    alice.send(inform(&bob, "peace")).await.unwrap();
    assert_eq!(read(&mut bob).await, "peace");
    assert_eq!(process.end(), None);
    // The platform is told in the background.
    let is_told = || {
        let reports = host.reports.lock();
        reports.iter().any(|(agent, report)| {
            agent == "mallory"
                && matches!(report, AgentReport::Failed { error } if error.contains("revoked"))
        })
    };
    while !is_told() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_report_is_brought_again_while_the_platform_cannot_take_it() {
    let (process, host, _tell) = open(HOUR).await;
    let codes = [FaultCode::Storage, FaultCode::Full, FaultCode::Unavailable];
    let faults = codes.map(|code| Fault::new(code, "not now"));
    host.not_reported.lock().extend(faults);
    let _alice = process.agent("alice").await.unwrap();
    let is_told = || {
        host.reports
            .lock()
            .iter()
            .any(|(agent, _)| agent == "alice")
    };
    while !is_told() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(host.not_reported.lock().is_empty());
}

#[tokio::test]
async fn when_the_platform_is_gone_the_agents_are_told() {
    let (process, host, tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    host.world.processes.lock().clear();
    drop(tell);
    alice.wishes().stop_wished().await;
    assert_eq!(
        process.ended().await,
        ProcessEnd::PlatformGone {
            node: "node-1".to_owned()
        }
    );
}

/// An agent that does nothing but hand over its state when asked, and count the messages that it received.
async fn drive(mut agent: AgentHandle, state: Vec<u8>) -> (Thawed, AgentHandle) {
    let wishes = agent.wishes();
    assert_eq!(wishes.wished().await, Wish::Freeze);
    let thawed = agent.hand_over(state).await;
    (thawed, agent)
}

#[tokio::test]
async fn agents_that_move_take_state_and_unread_messages_along() {
    let (process, host, tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let bob = process.agent("bob").await.unwrap();
    for number in 0..3 {
        alice.send(inform(&bob, &number.to_string())).await.unwrap();
    }
    let alice = tokio::spawn(drive(alice, b"state of alice".to_vec()));
    let bob = tokio::spawn(drive(bob, b"state of bob".to_vec()));
    let mut frozen = ask_to_freeze(&tell).await.await.unwrap().unwrap();
    frozen.sort_by(|a, b| a.agent.cmp(&b.agent));
    assert_eq!(frozen[0].state.0, b"state of alice");
    assert_eq!(frozen[1].mailbox.len(), 3);

    tell.send(Command::Stop {
        grace: HOUR,
        reason: "moved".to_owned(),
    })
    .await
    .unwrap();
    assert_eq!(alice.await.unwrap().0, Thawed::Gone);
    assert_eq!(bob.await.unwrap().0, Thawed::Gone);
    assert_eq!(process.ended().await, ProcessEnd::Moved);
    assert!(
        !host
            .reports
            .lock()
            .iter()
            .any(|(_, report)| matches!(report, AgentReport::Ended))
    );

    // The other node starts here.
    let (host, _tell) = TestHost::new(&World::new(), &[], HOUR, frozen);
    let process = Process::open(host, None).await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    assert_eq!(bob.take_state().as_deref(), Some(&b"state of bob"[..]));
    assert_eq!(bob.take_state(), None);
    let first = bob.receive().await.unwrap();
    assert!(
        matches!(first.provenance(), Provenance::Carried(who) if who.is_agent_named("alice@factory"))
    );
    for number in 1..3 {
        assert_eq!(read(&mut bob).await, number.to_string());
    }
}

/// An agent that is killed during its move goes on for a moment where it was, and ends in order there.
#[tokio::test]
async fn an_agent_at_rest_that_is_killed_ends_in_order() {
    let (process, _host, tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let bob = process.agent("bob").await.unwrap();
    for number in 0..3 {
        alice.send(inform(&bob, &number.to_string())).await.unwrap();
    }
    let alice = tokio::spawn(drive(alice, Vec::new()));
    let bob = tokio::spawn(drive(bob, Vec::new()));
    let mut frozen = ask_to_freeze(&tell).await.await.unwrap().unwrap();
    frozen.sort_by(|a, b| a.agent.cmp(&b.agent));
    assert_eq!(frozen[1].mailbox.len(), 3);
    tell.send(Command::Thaw).await.unwrap();
    let stop = Command::Stop {
        grace: HOUR,
        reason: "killed".to_owned(),
    };
    tell.send(stop).await.unwrap();
    let (went_on, mut alice) = alice.await.unwrap();
    assert_eq!(went_on, Thawed::GoOn);
    let (went_on, bob) = bob.await.unwrap();
    assert_eq!(went_on, Thawed::GoOn);
    bob.wishes().stop_wished().await;
    assert_eq!(process.end(), None);
    bob.leave(Parting::Ended);
    for _ in 0..3 {
        let notice = alice.mailbox().try_recv().unwrap();
        assert_eq!(notice.message().performative(), Performative::Failure);
    }
    assert!(alice.mailbox().try_recv().is_none());
}

#[tokio::test]
async fn an_inherited_mailbox_is_not_believed_blindly() {
    let forged = AclMessage::new(Performative::Inform)
        .with_sender(sealbus_fipa::Aid::new("alice@factory").unwrap());
    let mut bytes = Vec::new();
    sealbus_fipa::bitefficient::encode(&forged, &mut bytes).unwrap();
    let identity = "spiffe://factory/agent/mallory".to_owned();
    let waiting = |bytes: Vec<u8>, identity: &str| sealbus_control::WaitingMessage {
        message: Blob(bytes),
        provenance: sealbus_control::WaitingProvenance::SameProcess {
            identity: identity.to_owned(),
        },
    };
    for mailbox in [
        waiting(bytes, &identity),
        waiting(b"no message".to_vec(), &identity),
    ] {
        let frozen = FrozenAgent {
            agent: "bob".to_owned(),
            state: Blob::default(),
            mailbox: vec![mailbox],
        };
        let (host, _tell) = TestHost::new(&World::new(), &[], HOUR, vec![frozen]);
        let process = Process::open(host, None).await.unwrap();
        assert!(matches!(
            process.agent("bob").await,
            Err(OpenAgentError::Inheritance { .. })
        ));
        assert!(process.bus().agent("bob@factory").is_none());
    }
}

#[tokio::test]
async fn agents_whose_move_fails_go_on_with_their_messages() {
    let (process, _host, tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let bob = process.agent("bob").await.unwrap();
    let sender = alice.sender();
    alice.send(inform(&bob, "before")).await.unwrap();
    let alice = tokio::spawn(drive(alice, Vec::new()));
    let bob = tokio::spawn(drive(bob, Vec::new()));
    ask_to_freeze(&tell).await.await.unwrap().unwrap();
    tell.send(Command::Thaw).await.unwrap();
    let (thawed, alice) = alice.await.unwrap();
    assert_eq!(thawed, Thawed::GoOn);
    let (thawed, mut bob) = bob.await.unwrap();
    assert_eq!(thawed, Thawed::GoOn);
    alice.send(inform(&bob, "after")).await.unwrap();
    sender.send(inform(&bob, "by the sender")).await.unwrap();
    assert_eq!(read(&mut bob).await, "before");
    assert_eq!(read(&mut bob).await, "after");
    assert_eq!(read(&mut bob).await, "by the sender");
    assert_eq!(bob.wishes().current(), None);
}

#[tokio::test]
async fn an_agent_that_cannot_move_keeps_all_where_they_are() {
    let (process, _host, tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let alice = tokio::spawn(drive(alice, Vec::new()));
    let frozen = ask_to_freeze(&tell).await;
    assert_eq!(bob.wishes().wished().await, Wish::Freeze);
    bob.decline_move("it holds a file open");
    let reason = frozen.await.unwrap().unwrap_err();
    assert!(
        reason.contains("bob cannot be moved: it holds a file open"),
        "{reason}"
    );
    let (thawed, alice) = alice.await.unwrap();
    assert_eq!(thawed, Thawed::GoOn);
    alice.send(inform(&bob, "well")).await.unwrap();
    assert_eq!(read(&mut bob).await, "well");
}

#[tokio::test]
async fn the_hook_is_called_for_messages_and_wishes() {
    let (process, _host, _tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let mut bob = process.agent("bob").await.unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    bob.set_hook(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    alice.send(inform(&bob, "one")).await.unwrap();
    alice.send(inform(&bob, "two")).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    process.stop("the test is over");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert_eq!(bob.wishes().current(), Some(Wish::Stop));
}

/// Several tasks wait for the wishes of one agent, and one task in several places. Some give up.
#[tokio::test]
async fn everyone_who_waits_hears_of_a_wish() {
    let (process, _host, _tell) = open(HOUR).await;
    let alice = process.agent("alice").await.unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let wishes = alice.wishes();
            tokio::spawn(async move {
                let outer = wishes.stop_wished();
                tokio::pin!(outer);
                for _ in 0..3 {
                    // This wait gives up at once. The task's other wait must not be forgotten because of it.
                    let inner = tokio::time::timeout(Duration::from_millis(1), wishes.wished());
                    tokio::select! {
                        () = &mut outer => return number,
                        outcome = inner => if outcome.is_ok() { return number },
                    }
                }
                outer.await;
                number
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    process.stop("the test is over");
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), number);
    }
}
