//! Starts of agents that are given up.

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
        state: AgentState::Active,
    };
    let expected = [active.clone(), AgentReport::Ended, active];
    assert_eq!(reports_about(&host, "alice"), expected);
    alice.send(inform(&alice, "hello")).await.unwrap();
    process.close().await;
}
