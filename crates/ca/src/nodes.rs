//! Certificates of nodes that join or come back.

use std::net::IpAddr;

use sealbus_control::Fault;
use sealbus_seal::{CertificateChain, Identity, Timestamp};

use super::{CaService, NODE_CERTIFICATE, subject};

impl CaService {
    /// Certifies a node that joined or came back. Each takes one from the share of the node.
    ///
    /// # Errors
    /// As [`check_node`](Self::check_node) and [`certify_own`](Self::certify_own).
    pub fn certify_node(
        &mut self,
        identity: Identity,
        address: IpAddr,
        request: &[u8],
        now: Timestamp,
    ) -> Result<CertificateChain, Fault> {
        self.shares.take_of_node(&subject(&identity), now)?;
        self.certify_own(identity, address, None, request, NODE_CERTIFICATE, now)
    }

    /// Checks whether the share of a node of this name is used up. It takes nothing from it.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`](sealbus_control::FaultCode::Unavailable): a node waits then, and asks again.
    pub fn check_node(&self, node: &str, now: Timestamp) -> Result<(), Fault> {
        self.shares.check_node(node, now)
    }
}
