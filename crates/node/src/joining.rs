//! How a node joins the platform, and comes back to it.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::{NodeConfig, NodeError};
use sealbus_control::clock::{now, timestamp};
use sealbus_control::enrolment::{Joined, ask};
use sealbus_control::statement::{Returning, Signed};
use sealbus_control::{Blob, FaultCode, NodeDescription, Term};
use sealbus_enrolment::{Enrolment, EnrolmentError};
use sealbus_seal::tls::{CertificateSource, TlsError};
use sealbus_seal::token::Token;
use sealbus_seal::{CertificateChain, CertificateError, Credential, KeyPair};

/// How often a starting node reports that it is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);
/// The most reasons for waiting that a node logs while it comes back.
const MOST_REASONS: usize = 8;

fn chain_of(joined: &Joined) -> Result<CertificateChain, CertificateError> {
    CertificateChain::new(
        joined
            .chain
            .iter()
            .map(|der| der.0.clone().into())
            .collect(),
    )
}

pub(crate) async fn join(
    enrolment: &Enrolment,
    config: &NodeConfig,
    token: &Token,
    description: &NodeDescription,
) -> Result<(Joined, Credential), NodeError> {
    let key = KeyPair::generate()?;
    let join = ask::Join {
        secret: sealbus_process::attachment::secret_text(token.secret()),
        name: config.name.clone(),
        now: now(),
        node: description.clone(),
        request: Blob(key.signing_request()?),
    };
    joined(*enrolment.ask(join).await?, key)
}

pub(crate) async fn come_back(
    enrolment: &Enrolment,
    description: &NodeDescription,
    credential: &Credential,
) -> Result<(Joined, Credential), NodeError> {
    let key = KeyPair::generate()?;
    let returning = Returning {
        node: description.clone(),
        request: Blob(key.signing_request()?),
        at: now(),
    };
    let statement = Signed::sign(&returning, credential)?;
    joined(*enrolment.ask(ask::Return { statement }).await?, key)
}

/// Whether the node's own certificate must be renewed.
pub(crate) fn renewal_due(shared: &Shared) -> bool {
    let certificate = shared.credential.load().certificate();
    certificate.map_or(true, |it| it.is_renewal_due(timestamp(now())))
}

/// Fetches a new certificate at the enrolment port, and the news about the Masters.
pub(crate) async fn return_by_enrolment(
    shared: &Shared,
    source: &CertificateSource,
) -> Result<Joined, NodeError> {
    let known = shared.credential.load_full();
    let enrolment = shared.leaders.enrolment();
    let (joined, credential) = come_back(&enrolment, &shared.description, &known).await?;
    let obeyed = shared.leaders.obey(joined.term);
    obeyed.map_err(EnrolmentError::Refused)?;
    shared.leaders.are_at(&joined.masters);
    take_on(shared, source, credential)?;
    Ok(joined)
}

/// Uses a new certificate from now on, even if the disk is full: a node that repeatedly asked for another one would
/// fill the issuance log.
fn take_on(
    shared: &Shared,
    source: &CertificateSource,
    credential: Credential,
) -> Result<(), TlsError> {
    source.renew(&credential)?;
    let enrolment = shared.leaders.enrolment();
    let kept = shared
        .memory
        .keep_identity(&shared.name, &enrolment, &credential);
    if let Err(error) = kept {
        tracing::error!(%error, "the node's new certificate cannot be kept: after a restart the node has the former one");
    }
    shared.credential.store(Arc::new(credential));
    Ok(())
}

/// Waits for `work`, which may take long on a slow disk. Meanwhile the node keeps coming back to the Master, which
/// would otherwise give it up and place its agents elsewhere.
pub(crate) async fn while_coming_back<T>(
    work: impl Future<Output = T>,
    enrolment: &Enrolment,
    description: &NodeDescription,
    credential: &Credential,
) -> T {
    let signs = async {
        loop {
            tokio::time::sleep(SIGN_OF_LIFE).await;
            // The Master must be told that the node is there. The certificate in the answer is not needed.
            if let Err(error) = come_back(enrolment, description, credential).await {
                tracing::debug!(%error, "the Master does not hear that the node is being started");
            }
        }
    };
    tokio::select! {
        done = work => done,
        never = signs => never,
    }
}

/// As [`come_back`], repeated until a Master answers whose term is at least `term`.
pub(crate) async fn come_back_patiently(
    enrolment: &Enrolment,
    description: &NodeDescription,
    credential: &Credential,
    term: Option<Term>,
) -> Result<(Joined, Credential), NodeError> {
    // Each reason once: an operator who has read that no Master answers also hears that another machine has the name.
    let mut told = Vec::new();
    loop {
        let why = match come_back(enrolment, description, credential).await {
            Err(NodeError::Enrolment(error @ EnrolmentError::Unreachable { .. })) => {
                error.to_string()
            }
            Err(NodeError::Enrolment(EnrolmentError::Refused(fault)))
                if fault.code == FaultCode::Unavailable =>
            {
                fault.to_string()
            }
            Ok((joined, _)) if joined.term < term => {
                "a Master answers whose term is over".to_owned()
            }
            other => return other,
        };
        if told.len() < MOST_REASONS && !told.contains(&why) {
            tracing::warn!(%why, "waiting for the Master");
            told.push(why);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn joined(joined: Joined, key: KeyPair) -> Result<(Joined, Credential), NodeError> {
    let credential = Credential::new(key, chain_of(&joined)?)?;
    Ok((joined, credential))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[tokio::test]
    async fn a_new_certificate_counts_even_if_the_disk_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, _reports) = testing::node(folder.path(), testing::no_isolation()).await;
        let (new, root) = testing::certified();
        let source = CertificateSource::with_root(&shared.credential.load(), &root.into()).unwrap();
        // No file can be written beside that of the former certificate.
        std::fs::create_dir(folder.path().join("node.draft")).unwrap();
        let serial = |credential: &Credential| credential.certificate().unwrap().serial();
        let expected = serial(&new);
        take_on(&shared, &source, new).unwrap();
        assert_eq!(serial(&shared.credential.load()), expected);
        assert!(!renewal_due(&shared));
    }
}
