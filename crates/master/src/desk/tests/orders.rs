//! Orders whose changes the store does not take.

use futures_util::FutureExt;
use sealbus_store::WithCommits;

use super::*;

#[tokio::test]
async fn an_order_that_is_repeated_is_not_answered_as_stored_before_it_is() {
    let disk = Arc::new(MemoryStore::new());
    let (desk, _outward, _news) = open(parts(), disk.clone());
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let certify = move |desk: &mut Desk, now| {
        let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let (thief, time) = (desk.agent("thief")?, timestamp(now));
        desk.ca.certify_own(thief, here, None, &request, life, time)
    };
    desk.run(certify).await.unwrap();
    let revoke =
        |what: &'static str| desk.order(move |desk, now| desk.revoke_by_hand(what, "stolen", now));
    disk.set_full(true);
    for _ in 0..3 {
        let fault = revoke("thief").await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Storage);
    }
    let kept = desk.run_or_keep(|desk, now| {
        let revoked = desk.revoke_by_hand("thief", "stolen", now)?;
        Ok((revoked, None))
    });
    assert_eq!(kept.await.unwrap_err().code, FaultCode::Storage);
    // An order that is refused is answered with the reason, and a question with the answer.
    let fault = revoke("nobody").await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unknown);
    let denied = desk.run(|desk, now| Ok(desk.ca.revoked_by_hand("thief", timestamp(now))));
    assert_eq!(denied.await.unwrap().len(), 1);
    disk.set_full(false);
    assert_eq!(revoke("thief").await.unwrap().len(), 1);
}

#[tokio::test]
async fn events_that_come_and_go_while_the_store_is_away_leave_no_changes() {
    const KEPT: usize = 50_000;
    let written = Arc::new(Mutex::new((0, 0)));
    let seen = written.clone();
    let store = Arc::new(WithCommits::new(move |store, batch: Batch| {
        for (key, value) in batch.changes() {
            let mut seen = seen.lock();
            match value {
                _ if !CertificationLog::is_row(key) => {}
                Some(_) => seen.0 += 1,
                None => seen.1 += 1,
            }
        }
        async move { store.commit(batch).await }.boxed()
    }));
    let (desk, _outward, _news) = open(parts(), store);
    desk.store_answers(&Err(StoreError::Away {
        members: "etcd".to_owned(),
        detail: "it was stopped".to_owned(),
    }));
    for number in [KEPT, 1000] {
        let entering = desk.run(move |desk, now| {
            for _ in 0..number {
                let what = "refused".to_owned();
                let events = desk.ca.events();
                events.enter(0, "guest", None, None, what, timestamp(now));
            }
            Ok(())
        });
        assert_eq!(entering.await.unwrap_err().code, FaultCode::Storage);
    }
    desk.store_answers(&Ok(()));
    desk.run(|_, _| Ok(())).await.unwrap();
    assert_eq!(*written.lock(), (KEPT, 0));
}

#[tokio::test]
async fn an_operator_that_waits_for_an_event_hears_of_it_once_it_is_stored() {
    let disk = Arc::new(MemoryStore::new());
    let (desk, mut outward, _news) = open(parts(), disk.clone());
    disk.set_full(true);
    let (sender, mut told) = oneshot::channel();
    let settling = desk.run(move |desk, now| {
        // This is to be stored.
        desk.state.join(Some("node-1"), description(), now)?;
        desk.waiting.insert("guest".to_owned(), vec![sender]);
        let about = crate::state::About::Expect {
            group: "guest".to_owned(),
            node: "node-1".to_owned(),
        };
        let answer = Ok(sealbus_control::node::NodeAnswer::Done);
        desk.state.answered(about, answer, now);
        Ok(())
    });
    assert_eq!(settling.await.unwrap_err().code, FaultCode::Storage);
    assert!(outward.try_recv().is_err() && told.try_recv().is_err());
    disk.set_full(false);
    loop {
        if let Outward::Settled { waiting, result } = outward.recv().await.unwrap() {
            assert_eq!((waiting.len(), result), (1, Ok("node-1".to_owned())));
            break;
        }
    }
}
