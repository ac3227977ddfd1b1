//! Certificates of callers of gateways.

use std::net::IpAddr;
use std::time::Duration;

use sealbus_control::Fault;
use sealbus_seal::{CertificateChain, Identity, Timestamp};

use crate::CaService;

impl CaService {
    /// Certifies, for an operator, a caller of a gateway, which shows its certificate there.
    ///
    /// # Errors
    /// As [`certify_own`](Self::certify_own), and [`FaultCode::Full`](sealbus_control::FaultCode::Full) if the deny list would have no room for revoking the
    /// certificate.
    pub fn certify_caller(
        &mut self,
        identity: Identity,
        address: IpAddr,
        request: &[u8],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<CertificateChain, Fault> {
        self.check_room(now)?;
        self.certify_own(identity, address, None, request, lifetime, now)
    }
}
