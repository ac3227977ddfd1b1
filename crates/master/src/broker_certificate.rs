//! Certifies brokers: the managed one, and those that operators run themselves.

use std::net::IpAddr;
use std::time::Duration;

use sealbus_brokers::BROKER;
use sealbus_seal::{CertificateChain, Identity};

use super::desk::DeskHandle;
use sealbus_control::clock::timestamp;
use sealbus_control::{Fault, FaultCode};

/// Life of a broker's certificate. A managed broker gets a new one at each start of the Master.
const LIFE: Duration = Duration::from_secs(365 * 86_400);

/// Certifies a broker at `address`, and enters the certificate in the log. Returns the root certificate (DER) and the
/// broker's chain.
pub(super) async fn certify_broker(
    desk: &DeskHandle,
    address: IpAddr,
    request: Vec<u8>,
) -> Result<(Vec<u8>, CertificateChain), Fault> {
    desk.run(move |desk, now| {
        let identity = Identity::agent(&desk.name, BROKER)
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        let now = timestamp(now);
        let chain = desk
            .ca
            .certify_own(identity, address, None, &request, LIFE, now)?;
        let root = desk.platform.roots.first().cloned().unwrap_or_default();
        Ok((root.0, chain))
    })
    .await
}
