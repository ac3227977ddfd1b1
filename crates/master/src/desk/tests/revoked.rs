//! Revocations that name something else too, or do not fit.

use super::*;

#[tokio::test]
async fn an_agent_whose_name_is_a_serial_number_is_denied_when_its_revocation_is_taken_in() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let denied = desk.run(|desk, now| {
        let name = "0123456789abcdef0123456789abcdef";
        let revoked = Unstored::Revoked {
            what: name.to_owned(),
            said: "stolen".to_owned(),
            at: timestamp(now),
        };
        desk.take_in(revoked, now)?;
        Ok(desk.ca.is_denied(&desk.agent(name)?))
    });
    assert!(denied.await.unwrap());
}

#[tokio::test]
async fn an_agent_is_barred_although_the_deny_list_takes_no_more_senders() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let process = expect(&desk, "guest").await.unwrap();
    let request = KeyPair::generate().unwrap().signing_request().unwrap();
    let found = desk.run(move |desk, now| {
        let (here, life) = ([127, 0, 0, 1].into(), Duration::from_secs(3600));
        let (guest, time) = (desk.agent("guest")?, timestamp(now));
        desk.ca
            .certify_own(guest, here, Some(&process), &request, life, time)?;
        // Each of them takes 178 bytes of a mebibyte.
        for number in 0..5_900 {
            let sender = desk.agent(&format!("{number:0>128}"))?;
            desk.ca.revoke_unknown(sender, "", time)?;
        }
        let fault = desk.revoke_by_hand("guest", "stolen", now).unwrap_err();
        let denied = desk.ca.revoked_by_hand("guest", time).len();
        let is_barred = desk.state.is_barred(&process, "guest");
        Ok((fault.code, denied, is_barred))
    });
    assert_eq!(found.await.unwrap(), (FaultCode::Full, 1, true));
}
