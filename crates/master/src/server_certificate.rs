//! The certificate that newcomers see at the Master's enrolment port.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sealbus_control::clock::timestamp;
use sealbus_control::names::MASTER_NODE;
use sealbus_control::{Fault, FaultCode};
use sealbus_seal::tls::CertificateSource;
use sealbus_seal::{Credential, Identity, KeyPair};

use crate::desk::DeskHandle;
use crate::master_error::MasterError;

/// Life of the certificate.
const LIFE: Duration = Duration::from_secs(30 * 86_400);

/// Certifies the Master for those that join.
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

/// Renews the certificate in time. Returns never.
pub(super) async fn renew(desk: DeskHandle, address: IpAddr, source: Arc<CertificateSource>) {
    loop {
        tokio::time::sleep(LIFE / 2).await;
        let renewed = match issue(&desk, address).await {
            Ok(credential) => source.renew(&credential).map_err(MasterError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = renewed {
            tracing::error!(%error, "the Master's server certificate could not be renewed");
        }
    }
}
