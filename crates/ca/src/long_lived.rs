//! Long-lived identities: as long as an agent has a certificate in force that names one, the agent is certified with no other
//! one.
//!
//! Otherwise a node could have an agent of its choice certified beside the one that has the identity. An agent that has ended may be
//! certified anew with another identity or without one, because its certificates are denied.

use sealbus_control::{Fault, FaultCode};
use sealbus_seal::{Fingerprint, Identity, PublicKey, SigningRequest, Timestamp};

use crate::{CaService, IssuedCertificate, subject};

impl CaService {
    /// Checks the long-lived identity that a request names, or does not name.
    pub(crate) fn check_long_lived(
        &self,
        wanted: &Identity,
        request: &SigningRequest,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let stated = check_stated(wanted, request)?;
        let name = subject(wanted);
        let in_force = |found: &&IssuedCertificate| {
            let record = &found.record;
            record.identity == *wanted && found.revoked.is_none() && record.not_after >= now
        };
        for found in self.issued.of_subject(&name).filter(in_force) {
            let until = found.record.not_after;
            check_same(wanted, found.record.long_lived_identity, stated, until)?;
        }
        Ok(())
    }
}

/// The fingerprint of the long-lived identity that a request names, if its key signed for this agent and this key.
pub(crate) fn check_stated(
    wanted: &Identity,
    request: &SigningRequest,
) -> Result<Option<Fingerprint>, Fault> {
    match request.long_lived() {
        Some(stated)
            if !(request.public_key().ed25519())
                .is_some_and(|certified| stated.is_of(wanted, certified, request.second())) =>
        {
            let message = format!(
                "the signing request for {} names a long-lived identity whose key did not sign for this agent and this key",
                subject(wanted)
            );
            Err(Fault::new(FaultCode::BadRequest, message))
        }
        stated => Ok(stated.map(|stated| PublicKey::fingerprint(stated.key()))),
    }
}

/// Checks that a request names the long-lived identity of a certificate in force. An agent may get one that had none.
pub(crate) fn check_same(
    wanted: &Identity,
    held: Option<Fingerprint>,
    stated: Option<Fingerprint>,
    until: Timestamp,
) -> Result<(), Fault> {
    let Some(held) = held.filter(|held| Some(*held) != stated) else {
        return Ok(());
    };
    let asked = match stated {
        Some(stated) => format!("with {stated}"),
        None => "without it".to_owned(),
    };
    let message = format!(
        "{} is certified with the long-lived identity {held} until {until}, and not {asked}: end the agent first",
        subject(wanted)
    );
    // This is no verdict about the agent that runs: asking again with its own identity helps.
    Err(Fault::new(FaultCode::NameTaken, message))
}
