//! Denials for several reasons: code that excuses the certificate of an agent that ended in order learns of the graver one.

use sealbus_seal::encryption::{CertifiedEncryptionKey, EncryptionError, EncryptionKey};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{Credential, IssuingAuthority, KeyPair, Name, ProcessId, Renewed, VerifyError};

use super::support::{ADDRESS, request};
use super::*;

fn because(reason: Reason, at: Timestamp) -> Denial {
    Denial { at, reason }
}

fn certified(by: &IssuingAuthority, grant: &Grant, now: Timestamp) -> Credential {
    let key = KeyPair::generate().unwrap();
    let issued = by.issue(grant, &request(&key), Validity::starting(now, HOUR));
    Credential::new(key, issued.unwrap().chain).unwrap()
}

/// The denial for which no waiting message is sealed to the key that the owner of this certificate states.
fn refusal(platform: &TestPlatform, owner: &Credential) -> Option<Denial> {
    let key = EncryptionKey::generate().unwrap();
    let stated = CertifiedEncryptionKey::sign(owner, key.public()).unwrap();
    let certificate = owner.certificate().unwrap();
    let agent = certificate.identity();
    match stated.verify_for_waiting(agent, &platform.trust, platform.now) {
        Ok(_) => None,
        Err(EncryptionError::NotVerified(VerifyError::Revoked { denial, .. })) => Some(denial),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_end_of_an_agent_excuses_no_revoked_ca() {
    let platform = TestPlatform::new("factory");
    let now = platform.now;
    let stolen = platform
        .root
        .create_authority("ca-2", Validity::starting(now, YEAR))
        .unwrap();
    let (ended, revoked) = (
        because(Reason::Ended, now),
        because(Reason::ByOperator, now),
    );
    let mut list = DenyList::new(platform.authority.identity().clone());
    let mut deny = |serial: Serial, denial: Denial| {
        list.deny_serial(serial, now.plus(YEAR), denial).unwrap();
        let list = list.sign(&platform.authority).unwrap().whole();
        platform.trust.apply_deny_list(&list, now).unwrap();
    };
    // The thief uses the serial number of a certificate that ended in order.
    let grant = Grant::by_operator(platform.agent("alice"), ADDRESS);
    let made_up = certified(&stolen, &grant, now);
    deny(made_up.certificate().unwrap().serial(), ended);
    assert_eq!(refusal(&platform, &made_up), None);
    deny(stolen.certificate().serial(), revoked);
    assert_eq!(refusal(&platform, &made_up), Some(revoked));
    let error = platform.trust.verify(made_up.chain(), now).unwrap_err();
    assert!(error.to_string().contains("authority/ca-2"), "{error}");
}

#[test]
fn the_word_of_an_operator_counts_beside_the_end_of_an_agent() {
    let platform = TestPlatform::new("factory");
    let (now, trust) = (platform.now, &platform.trust);
    let second = platform
        .root
        .create_authority("ca-2", Validity::starting(now, YEAR))
        .unwrap();
    let (ended, revoked) = (
        because(Reason::Ended, now),
        because(Reason::ByOperator, now),
    );
    let (alice, bob) = (platform.agent("alice"), platform.agent("bob"));
    let owner = platform.credential(&alice);
    // A CA that did not know of the operator's denial renewed an earlier certificate.
    let earlier = Renewed {
        serial: serial(7),
        not_before: now.minus(2 * HOUR),
    };
    let (process, node) = (
        ProcessId::random().unwrap(),
        Name::new("node", "node-1").unwrap(),
    );
    let grant = Grant::by_operator(bob.clone(), ADDRESS)
        .to_process(process, node)
        .renewing(earlier);
    let renewed = certified(&platform.authority, &grant, now);

    let mut list = DenyList::new(platform.authority.identity().clone());
    for owner in [&owner, &renewed] {
        let serial = owner.certificate().unwrap().serial();
        list.deny_serial(serial, now.plus(HOUR), ended).unwrap();
    }
    let signed = list.sign(&platform.authority).unwrap().whole();
    trust.apply_deny_list(&signed, now).unwrap();
    assert_eq!(refusal(&platform, &owner), None);
    assert_eq!(refusal(&platform, &renewed), None);

    let mut beside = DenyList::new(second.identity().clone());
    let serial = owner.certificate().unwrap().serial();
    beside.deny_serial(serial, now.plus(HOUR), revoked).unwrap();
    let signed = beside.sign(&second).unwrap().whole();
    trust.apply_deny_list_beside(&signed, now).unwrap();
    list.deny_identity_before(bob, now.minus(HOUR), now.plus(HOUR), revoked)
        .unwrap();
    let signed = list.sign(&platform.authority).unwrap().whole();
    trust.apply_deny_list(&signed, now).unwrap();
    assert_eq!(refusal(&platform, &owner), Some(revoked));
    assert_eq!(refusal(&platform, &renewed), Some(revoked));
}
