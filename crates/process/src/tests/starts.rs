//! Starts of agents that are given up or refused.

use std::task::Poll;

use futures_util::poll;

use super::*;

/// The reports about an agent.
fn reports_about(host: &TestHost, agent: &str) -> Vec<AgentReport> {
    let reports = host.reports.lock();
    let about = reports.iter().filter(|(name, _)| name == agent);
    about.map(|(_, report)| report.clone()).collect()
}

#[tokio::test]
async fn an_agent_whose_start_is_given_up_leaves_and_is_started_again() {
    let (host, _tell) = TestHost::new(&World::new(), &[], HOUR, Vec::new());
    let process = Process::open(host.clone(), None).await.unwrap();
    let certified = host.certified.load(Ordering::SeqCst);
    let (answer, held_up) = oneshot::channel();
    host.held_up.lock().push(held_up);
    {
        let mut start = Box::pin(process.agent("alice"));
        while host.certified.load(Ordering::SeqCst) == certified {
            assert!(matches!(poll!(&mut start), Poll::Pending));
            tokio::task::yield_now().await;
        }
    }
    // The platform has certified alice, and its answer is under way.
    let mut again = Box::pin(process.agent("alice"));
    assert!(matches!(poll!(&mut again), Poll::Pending));
    answer.send(()).unwrap();
    let alice = again.await.unwrap();
    let active = AgentReport::State {
        state: PlacedState::Active,
    };
    let expected = [active.clone(), AgentReport::Ended, active];
    assert_eq!(reports_about(&host, "alice"), expected);
    alice.send(inform(&alice, "hello")).await.unwrap();
    process.close().await;
}

/// Without these reports, the node may end the process with the first agent that it knows of.
#[tokio::test]
async fn a_process_without_an_agent_that_was_refused_reports_the_others_once_more() {
    let (host, tell) = TestHost::new(&World::new(), &["alice", "bob"], HOUR, Vec::new());
    let process = Process::open(host.clone(), None).await.unwrap();
    let _alice = process.agent("alice").await.unwrap();
    let revoked = Fault::new(FaultCode::NotPermitted, "bob was revoked by an operator");
    *host.fault.lock() = Some(revoked);
    assert!(process.agent("bob").await.is_err());
    process.announce().await.unwrap();
    tell.send(Command::AttachedAgain).await.unwrap();
    // Commands are obeyed in order.
    let (answer, heard) = oneshot::channel();
    tell.send(Command::Heard { answer }).await.unwrap();
    heard.await.unwrap();
    process.close().await;
    let reports = reports_about(&host, "alice").into_iter();
    let active = reports.filter(|report| matches!(report, AgentReport::State { .. }));
    assert_eq!(active.count(), 2);
}
