//! Orders whose changes the store does not take.

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
