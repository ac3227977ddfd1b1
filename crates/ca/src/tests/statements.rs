use sealbus_control::statement::{Signed, StatementError, Vouching};
use sealbus_control::{Blob, Subject};

use super::*;

#[test]
fn a_statement_is_believed_only_whole_fresh_and_of_a_certified_node() {
    let root = root();
    let mut service = service(&root);
    let node = node(&mut service);
    let now = NOW.as_unix_seconds() * 1000;
    let vouching = Vouching {
        process: "p".to_owned(),
        subject: Subject::Process,
        request: Blob(vec![1, 2, 3]),
        held: None,
        at: now,
    };
    let voucher = Signed::sign(&vouching, &node).unwrap();
    let (identity, opened) = voucher.open::<Vouching>(service.trust(), now).unwrap();
    assert_eq!(
        identity.identity(),
        &Identity::node(&platform(), "node-1").unwrap()
    );
    assert_eq!(opened, vouching);
    let text = serde_json::to_string(&voucher).unwrap();
    let shorter = Signed::sign(
        &Vouching {
            process: "q".to_owned(),
            ..vouching
        },
        &node,
    )
    .unwrap();
    let signature = |text: &str| text[text.find("\"signature\"").unwrap()..].to_owned();
    let other = serde_json::to_string(&shorter).unwrap();
    let text = text.replace(&signature(&text), &signature(&other));
    let changed: Signed = serde_json::from_str(&text).unwrap();
    assert!(matches!(
        changed.open::<Vouching>(service.trust(), now),
        Err(StatementError::NotSigned(_))
    ));
    assert!(matches!(
        voucher.open::<Vouching>(service.trust(), now + 3_000_000),
        Err(StatementError::Stale { .. })
    ));
    // Differing clocks are no verdict on the identity, and neither is an expired certificate.
    let late = |seconds: u64| {
        let error = voucher
            .open::<Vouching>(service.trust(), now + seconds * 1000)
            .unwrap_err();
        let fault = error.fault(FaultCode::Unavailable, "");
        (fault.code, fault.message)
    };
    let (code, message) = late(300);
    assert_eq!(code, FaultCode::ClockSkew);
    assert!(message.contains("300 s apart"), "{message}");
    assert_eq!(late(7200).0, FaultCode::ClockSkew);
    let stranger = self::service(&self::root());
    assert!(matches!(
        voucher.open::<Vouching>(stranger.trust(), now),
        Err(StatementError::Node(_))
    ));
}

#[test]
fn a_certificate_of_tomorrow_proves_its_node_today() {
    let root = root();
    let mut service = service(&root);
    let day = Duration::from_secs(86_400);
    let key = KeyPair::generate().unwrap();
    let identity = Identity::node(&platform(), "node-1").unwrap();
    let request = key.signing_request().unwrap();
    let tomorrow = NOW.plus(day);
    let chain = service
        .certify_own(identity.clone(), HERE, None, &request, day, tomorrow)
        .unwrap();
    let node = Credential::new(key, chain).unwrap();
    assert!(service.trust().verify(node.chain(), NOW).is_err());
    let now = NOW.as_unix_seconds() * 1000;
    let vouching = Vouching {
        process: "p".to_owned(),
        subject: Subject::Process,
        request: Blob(vec![1]),
        held: None,
        at: now,
    };
    let voucher = Signed::sign(&vouching, &node).unwrap();
    let (found, _) = voucher.open::<Vouching>(service.trust(), now).unwrap();
    assert_eq!(found.identity(), &identity);
    // A revoked certificate proves nothing.
    service.revoke_by_hand("node-1", "", tomorrow).unwrap();
    service.publish(NOW).unwrap();
    let error = voucher.open::<Vouching>(service.trust(), now).unwrap_err();
    assert!(matches!(
        error,
        StatementError::Node(sealbus_seal::VerifyError::Revoked { .. })
    ));
}
