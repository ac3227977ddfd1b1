//! Denials of the senders of waiting messages.

use super::*;

/// Denies the agents with these numbers, which have the longest names.
fn deny(service: &mut CaService, numbers: std::ops::Range<usize>) {
    let platform = PlatformName::new(&"p".repeat(128)).unwrap();
    let denial = Denial {
        at: NOW,
        reason: Reason::ByOperator,
    };
    for number in numbers {
        let sender = Identity::agent(&platform, &format!("{number:0>128}")).unwrap();
        service
            .deny_list
            .deny_identity_before(sender, NOW, NOW.plus(HOUR), denial)
            .unwrap();
    }
}

#[test]
fn as_many_senders_are_denied_as_operators_have_room_for_and_no_more() {
    let mut service = service(&root());
    let named = |name: &str| Identity::agent(&platform(), name).unwrap();
    let certify = |service: &mut CaService, name: &str| {
        let request = KeyPair::generate().unwrap().signing_request().unwrap();
        let certified = service.certify_own(named(name), HERE, Some(name), &request, HOUR, NOW);
        certified.unwrap().certificate().unwrap().serial()
    };
    certify(&mut service, "last");
    deny(&mut service, 0..3499);
    service.revoke_by_hand("last", "stolen", NOW).unwrap();
    assert!(service.is_denied(&named("last")));
    deny(&mut service, 3499..3506);

    // The certificate is denied. The operator is told that its waiting messages are not.
    let serial = certify(&mut service, "late");
    let fault = service.revoke_by_hand("late", "stolen", NOW).unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    assert!(fault.to_string().contains("no more senders"), "{fault}");
    assert!(service.denial(serial).is_some() && !service.is_denied(&named("late")));
    assert_eq!(service.revoked_by_hand("late", NOW).len(), 1);
    // One that is denied already takes no more room.
    certify(&mut service, "last");
    service.revoke_by_hand("last", "stolen", NOW).unwrap();
}

/// A certificate of a gateway's caller may live for so long.
#[test]
fn an_agent_is_denied_for_as_long_as_any_certificate_that_is_not_known() {
    let mut service = service(&root());
    let caller = Identity::agent(&platform(), "caller").unwrap();
    let revoked = caller.clone();
    service.revoke_unknown(revoked, "stolen", NOW).unwrap();
    service.prune(NOW.plus(NODE_CERTIFICATE));
    assert!(service.is_denied(&caller));
}

/// Its agent runs in the gateway, with a certificate of its own.
#[test]
fn a_callers_certificate_that_is_revoked_by_its_number_leaves_its_agent_as_it_is() {
    let mut service = service(&root());
    let caller = Identity::agent(&platform(), "caller").unwrap();
    let certify = |service: &mut CaService, process| {
        let request = KeyPair::generate().unwrap().signing_request().unwrap();
        let certified = service.certify_own(caller.clone(), HERE, process, &request, HOUR, NOW);
        certified.unwrap().certificate().unwrap().serial()
    };
    let agents = certify(&mut service, Some("gateway"));
    let shown = certify(&mut service, None);
    service
        .revoke_by_hand(&shown.to_string(), "lost", NOW)
        .unwrap();
    assert!(service.denial(shown).is_some() && service.denial(agents).is_none());
    assert!(!service.is_denied(&caller));
    // The caller as a whole is revoked by its name.
    service.revoke_by_hand("caller", "stolen", NOW).unwrap();
    assert!(service.denial(agents).is_some() && service.is_denied(&caller));
}
