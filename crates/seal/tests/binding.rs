//! Proofs of agents on a connection.
#![allow(clippy::unwrap_used)]

mod support;

use rustls_pki_types::CertificateDer;
use sealbus_seal::binding::{Binding, BindingError, BoundConnection, Role};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::{CertificateChain, SecurityLevel, Validity, VerifyError};
use support::{HOUR, TestPlatform, seconds};

fn channel(exporter: u8, level: SecurityLevel) -> BoundConnection {
    BoundConnection::with_exporter([exporter; 32], level, 1)
}

#[test]
fn a_proof_holds_on_its_own_connection_only() {
    let platform = TestPlatform::new("factory");
    let agent = platform.credential(&platform.agent("a"));
    let here = channel(1, SecurityLevel::Auth);
    let proof = Binding::prove(&agent, &here, Role::Client).unwrap();
    let verify = |channel: &BoundConnection, prover| {
        proof.verify(channel, prover, &platform.trust, platform.now)
    };
    let verified = verify(&here, Role::Client).unwrap();
    assert_eq!(verified.identity(), &platform.agent("a"));
    assert_eq!(verified.serial(), agent.certificate().unwrap().serial());
    // Twice: the second time from the cache.
    verify(&here, Role::Client).unwrap();

    let not_proved =
        |result: Result<_, BindingError>| matches!(result, Err(BindingError::NotProved { .. }));
    assert!(
        not_proved(verify(&channel(2, SecurityLevel::Auth), Role::Client)),
        "replayed"
    );
    assert!(not_proved(verify(&here, Role::Server)), "reflected");
    for level in SecurityLevel::ALL
        .into_iter()
        .filter(|level| *level != SecurityLevel::Auth)
    {
        assert!(
            not_proved(verify(&channel(1, level), Role::Client)),
            "level {level}"
        );
    }
    let other_version = BoundConnection::with_exporter([1; 32], SecurityLevel::Auth, 2);
    assert!(
        not_proved(verify(&other_version, Role::Client)),
        "protocol version"
    );
}

#[test]
fn a_proof_speaks_for_nobody_else() {
    let platform = TestPlatform::new("factory");
    let (mallory, alice) = (
        platform.credential(&platform.agent("mallory")),
        platform.credential(&platform.agent("alice")),
    );
    let here = channel(1, SecurityLevel::Auth);
    let mut forged = Vec::new();
    alice.chain().encode(&mut forged);
    let mut own = Vec::new();
    Binding::prove(&mallory, &here, Role::Client)
        .unwrap()
        .encode(&mut own);
    forged.extend_from_slice(&own[own.len() - 64..]);
    let forged = Binding::decode(&forged).unwrap();
    let error = forged
        .verify(&here, Role::Client, &platform.trust, platform.now)
        .unwrap_err();
    assert!(matches!(error, BindingError::NotProved { .. }), "{error}");
    assert!(
        error.to_string().contains("spiffe://factory/agent/alice"),
        "{error}"
    );
}

#[test]
fn a_proof_with_an_older_certificate_of_the_same_key_is_not_one_with_the_newer() {
    let platform = TestPlatform::new("factory");
    let (key, first) = platform.issue(&platform.agent("a"), Validity::starting(platform.now, HOUR));
    let request = support::request(&key);
    let grant = sealbus_seal::issuance::Grant::by_operator(platform.agent("a"), support::ADDRESS);
    let second = platform
        .authority
        .issue(&grant, &request, Validity::starting(platform.now, HOUR))
        .unwrap();
    let here = channel(1, SecurityLevel::Auth);
    let credential = sealbus_seal::Credential::new(key, first.chain).unwrap();
    let mut wire = Vec::new();
    Binding::prove(&credential, &here, Role::Server)
        .unwrap()
        .encode(&mut wire);
    let mut swapped = Vec::new();
    second.chain.encode(&mut swapped);
    swapped.extend_from_slice(&wire[wire.len() - 64..]);
    let swapped = Binding::decode(&swapped).unwrap();
    assert!(matches!(
        swapped.verify(&here, Role::Server, &platform.trust, platform.now),
        Err(BindingError::NotProved { .. })
    ));
}

#[test]
fn only_agents_are_bound() {
    let platform = TestPlatform::new("factory");
    let here = channel(1, SecurityLevel::Auth);
    for identity in [platform.node("node-1"), platform.process("node-1")] {
        let credential = platform.credential(&identity);
        let proof = Binding::prove(&credential, &here, Role::Client).unwrap();
        assert!(matches!(
            proof.verify(&here, Role::Client, &platform.trust, platform.now),
            Err(BindingError::NotVerified(VerifyError::WrongKind { .. }))
        ));
    }
}

#[test]
fn certificates_that_are_not_good_bind_nobody() {
    let platform = TestPlatform::new("factory");
    let here = channel(1, SecurityLevel::Auth);
    let agent = platform.credential(&platform.agent("a"));
    let proof = Binding::prove(&agent, &here, Role::Client).unwrap();
    let verify = |now| {
        proof
            .verify(&here, Role::Client, &platform.trust, now)
            .map(|_| ())
            .map_err(|error| match error {
                BindingError::NotVerified(error) => error,
                error => panic!("{error}"),
            })
    };
    verify(platform.now).unwrap();
    assert!(matches!(
        verify(platform.now.plus(2 * HOUR)),
        Err(VerifyError::Expired { .. })
    ));
    assert!(matches!(
        verify(platform.now.minus(HOUR)),
        Err(VerifyError::NotYetValid { .. })
    ));

    let mut list = DenyList::new(platform.authority.identity().clone());
    let denial = Denial {
        at: platform.now,
        reason: Reason::Killed,
    };
    list.deny_identity(platform.agent("a"), platform.now.plus(HOUR), denial)
        .unwrap();
    let list = list.sign(&platform.authority).unwrap().whole();
    platform.trust.apply_deny_list(&list, platform.now).unwrap();
    assert!(matches!(
        verify(platform.now.plus(seconds(1))),
        Err(VerifyError::Revoked { .. })
    ));

    let foreign = TestPlatform::new("factory");
    let proof = Binding::prove(
        &foreign.credential(&foreign.agent("a")),
        &here,
        Role::Client,
    )
    .unwrap();
    assert!(matches!(
        proof.verify(&here, Role::Client, &platform.trust, platform.now),
        Err(BindingError::NotVerified(VerifyError::UnknownIssuer { .. }))
    ));
    let elsewhere = TestPlatform::new("elsewhere");
    let proof = Binding::prove(
        &elsewhere.credential(&elsewhere.agent("a")),
        &here,
        Role::Client,
    )
    .unwrap();
    assert!(matches!(
        proof.verify(&here, Role::Client, &platform.trust, platform.now),
        Err(BindingError::NotVerified(VerifyError::UnknownIssuer { .. }))
    ));
}

#[test]
fn wire_form_round_trips_and_every_change_is_noticed() {
    let platform = TestPlatform::new("factory");
    let here = channel(1, SecurityLevel::Auth);
    let proof = Binding::prove(
        &platform.credential(&platform.agent("a")),
        &here,
        Role::Client,
    )
    .unwrap();
    let mut wire = Vec::new();
    proof.encode(&mut wire);
    assert_eq!(Binding::decode(&wire).unwrap(), proof);
    for cut in 0..wire.len() {
        assert!(Binding::decode(&wire[..cut]).is_err());
    }
    let leaf_length = proof.chain().leaf().len();
    for position in (0..3 + leaf_length).chain(wire.len() - 64..wire.len()) {
        let mut altered = wire.clone();
        altered[position] ^= 0x40;
        let believed = Binding::decode(&altered).is_ok_and(|binding| {
            binding
                .verify(&here, Role::Client, &platform.trust, platform.now)
                .is_ok()
        });
        assert!(!believed, "byte {position}");
    }
    let too_long = CertificateChain::new(vec![CertificateDer::from(vec![0; 10]); 5]);
    assert!(too_long.is_err());
}
