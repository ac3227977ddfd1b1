//! The work beside the agents: the report of refusals, and renewals while a deny list comes or an agent leaves.

use super::meshed::open;
use super::*;

/// Begins to renew all certificates, of which there is one. The platform's answer is held back until the returned end
/// is told.
async fn renew(process: &Process, host: &TestHost) -> oneshot::Sender<()> {
    let asked = host.asked.load(Ordering::SeqCst);
    let (arrives, held_up) = oneshot::channel();
    host.held_up.lock().push(held_up);
    assert_eq!(process.shared.renew_at_once(|_| true), 1);
    process.shared.renewals_changed.notify_one();
    until("a renewal", || host.asked.load(Ordering::SeqCst) > asked).await;
    arrives
}

#[tokio::test]
async fn commands_are_obeyed_while_the_node_does_not_answer_a_report_of_refusals() {
    let (process, host, tell) = open(&World::new(), &[], HOUR).await;
    let (comes, reported) = oneshot::channel();
    *host.unanswered.lock() = Some(comes);
    let why = "it is a test".to_owned();
    process.bus().refused(
        "mallory@factory",
        None,
        None,
        RefusalReason::NotPermitted,
        why.clone(),
    );
    reported.await.unwrap();
    let stop = Command::Stop {
        grace: HOUR,
        reason: why,
    };
    tell.send(stop).await.unwrap();
    let stopping = tokio::time::timeout(DEADLINE, process.stopping());
    assert_eq!(stopping.await.unwrap().grace, Some(HOUR));
}

/// Revokes the CA. The process has obeyed when this returns.
async fn revoke_ca(world: &World, tell: &mpsc::Sender<Command>) {
    let signed = {
        let mut list = world.deny_list.lock();
        let ca = world.authority.certificate();
        let denial = Denial {
            at: now(),
            reason: Reason::ByOperator,
        };
        list.deny_serial(ca.serial(), ca.not_after(), denial)
            .unwrap();
        list.sign(&world.authority).unwrap().whole()
    };
    tell.send(Command::DenyList(Blob(signed))).await.unwrap();
    // Commands are obeyed in order.
    let (answer, heard) = oneshot::channel();
    tell.send(Command::Heard { answer }).await.unwrap();
    heard.await.unwrap();
}

/// Nobody believes such a certificate, and half of its life may be long.
#[tokio::test]
async fn a_certificate_whose_ca_is_revoked_while_it_is_on_its_way_is_renewed_soon() {
    for agents in [Vec::new(), vec!["alice"]] {
        let world = World::new();
        let (process, host, tell) = open(&world, &agents, HOUR).await;
        // A process that nobody can reach has no certificate, and the agents of the other one are not open yet.
        let _alice = match agents.is_empty() {
            true => Some(process.agent("alice").await.unwrap()),
            false => None,
        };
        let arrives = renew(&process, &host).await;
        revoke_ca(&world, &tell).await;
        assert_eq!(host.asked.load(Ordering::SeqCst), 2);
        arrives.send(()).unwrap();
        until("another renewal", || host.asked.load(Ordering::SeqCst) > 2).await;
        assert_eq!(process.end(), None);
    }
}

#[tokio::test]
async fn an_agent_that_begins_while_its_ca_is_revoked_gets_another_certificate_soon() {
    let world = World::new();
    let (process, host, tell) = open(&world, &[], HOUR).await;
    let (arrives, held_up) = oneshot::channel();
    host.held_up.lock().push(held_up);
    let revoking = async {
        until("a request", || host.asked.load(Ordering::SeqCst) == 1).await;
        revoke_ca(&world, &tell).await;
        arrives.send(()).unwrap();
    };
    let (alice, ()) = tokio::join!(process.agent("alice"), revoking);
    let _alice = alice.unwrap();
    until("another one", || host.asked.load(Ordering::SeqCst) > 1).await;
}

#[tokio::test]
async fn a_renewal_that_comes_after_its_agent_left_changes_nothing_for_another_one_of_that_name() {
    let (process, host, _tell) = open(&World::new(), &[], HOUR).await;
    let serial = || {
        let agent = process.bus().agent("alice@factory").unwrap();
        agent.credential().unwrap().certificate().unwrap().serial()
    };
    let alice = process.agent("alice").await.unwrap();
    let former = {
        let agents = process.shared.agents.lock();
        agents
            .by_number
            .values()
            .next()
            .map(Arc::downgrade)
            .unwrap()
    };
    let arrives = renew(&process, &host).await;
    drop(alice);
    let _alice = process.agent("alice").await.unwrap();
    let present = serial();
    arrives.send(()).unwrap();
    until("the end of the renewal", || former.strong_count() == 0).await;
    assert_eq!(serial(), present);
}
