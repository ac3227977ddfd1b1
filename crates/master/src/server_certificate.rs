//! The certificate that newcomers see at the Master's enrolment port.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_control::clock::{now, timestamp};
use sealbus_control::names::MASTER_NODE;
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::tls::CertificateSource;
use sealbus_seal::{Credential, Identity, KeyPair};

use crate::desk::DeskHandle;
use crate::master_error::MasterError;

/// Life of the certificate.
const LIFE: Duration = Duration::from_secs(30 * 86_400);
/// How often the Master checks whether the certificate is to be renewed. One pause until then would be too long if the machine
/// sleeps.
const LOOK: Duration = Duration::from_secs(60);

/// Certifies the Master for newcomers.
pub(super) async fn issue(desk: &DeskHandle, address: IpAddr) -> Result<Credential, MasterError> {
    let key = KeyPair::generate()?;
    let request = key.signing_request()?;
    let chain = desk
        .run(move |desk, now| {
            let identity = Identity::node(&desk.name, MASTER_NODE)
                .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
            let life = LIFE;
            desk.ca
                .certify_own(identity, address, None, &request, life, timestamp(now))
        })
        .await?;
    Ok(Credential::new(key, chain)?)
}

/// Renews the certificate in time. Never returns.
pub(super) async fn renew(
    desk: DeskHandle,
    address: IpAddr,
    mut shown: Credential,
    source: Arc<CertificateSource>,
) {
    loop {
        tokio::time::sleep(LOOK).await;
        let certificate = shown.certificate();
        if certificate.is_ok_and(|it| !it.is_renewal_due(timestamp(now()))) {
            continue;
        }
        match renewed(&desk, address, &source).await {
            Ok(credential) => shown = credential,
            Err(error) => {
                tracing::error!(%error, "the Master's server certificate could not be renewed yet");
            }
        }
    }
}

async fn renewed(
    desk: &DeskHandle,
    address: IpAddr,
    source: &CertificateSource,
) -> Result<Credential, MasterError> {
    // If the store is away, each attempt would issue a certificate in vain.
    desk.check_store()?;
    let credential = issue(desk, address).await?;
    source.renew(&credential)?;
    Ok(credential)
}

#[cfg(test)]
mod tests {
    use sealbus_seal::{PlatformName, RootAuthority, Timestamp, Validity};

    use super::*;

    #[test]
    fn half_of_the_life_by_the_wall_clock_decides_however_long_the_machine_slept() {
        let name = PlatformName::new("factory").unwrap();
        let made = Timestamp::from_unix_seconds(1_800_000_000);
        let root = RootAuthority::create(&name, Validity::starting(made, LIFE * 2)).unwrap();
        let life = Validity::starting(made, LIFE);
        let authority = root.create_authority("ca", life).unwrap();
        let certificate = authority.certificate();
        let day = Duration::from_secs(86_400);
        let hour = Duration::from_secs(3600);
        assert!(!certificate.is_renewal_due(made));
        assert!(!certificate.is_renewal_due(made.plus(LIFE / 2 - hour)));
        // A failed attempt is repeated: the renewal stays due, even when the certificate has ended.
        for later in [LIFE / 2 + hour, LIFE / 2 + day, LIFE + day] {
            assert!(certificate.is_renewal_due(made.plus(later)));
        }
        // The clock was ahead when it was issued.
        assert!(certificate.is_renewal_due(made.minus(hour)));
    }
}
