//! Certificates of nodes that join or come back, and reports of nodes about certificates of their processes.

use std::net::IpAddr;

use sealbus_control::Fault;
use sealbus_seal::{CertificateChain, Identity, Timestamp};

use super::{CaService, NODE_CERTIFICATE, subject};

impl CaService {
    /// Certifies a node that joined or came back. Each certificate counts against the share of the node.
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

    /// Enters the report of a node that a certificate came back to the process that holds its key. No more reports are entered
    /// than certificates may be issued to the process, so a node cannot report without end.
    pub fn came_back(&mut self, process: &str, subject: &str, node: &str, now: Timestamp) {
        // No name has a comma.
        let share = format!("{subject}, came back");
        if self
            .shares
            .take(process, &share, self.lifetime, now)
            .is_ok()
        {
            let what = "its certificate came back to it".to_owned();
            self.events.enter(6, subject, Some(node), None, what, now);
        }
    }

    /// Checks whether the share of a node of this name is used up. This takes nothing from the share.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`](sealbus_control::FaultCode::Unavailable): a node waits then, and asks again.
    pub fn check_node(&mut self, node: &str, now: Timestamp) -> Result<(), Fault> {
        self.shares.check_node(node, now)
    }
}
