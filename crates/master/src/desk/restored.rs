//! The facts that a Master learns again after its store was restored from an older copy.

use std::collections::BTreeSet;

use sealbus_seal::denylist::Reason;
use sealbus_seal::{Certificate, CertificateChain, Holding, Identity};

use super::Desk;
use sealbus_control::authority::CertificatePage;
use sealbus_control::clock::timestamp;
use sealbus_control::{Fault, UnixMillis};

/// Most bytes of certificates in one part that are checked, unless the first one is longer. Each certificate costs time, and
/// nodes show half as many bytes.
const LONGEST_PART: usize = 64 * 1024;

impl Desk {
    /// Takes back certificates of a process that a restored store does not know. Its node shows them; if this `is_first`,
    /// with the process's own. The process is believed if the CA certified it on this node. So is each of its agents that
    /// has a valid certificate in it. Certificates of others are passed over. So are those beyond the longest part, and all
    /// later ones. Returns the agent after which the node is to go on.
    pub(crate) fn take_back_process(
        &mut self,
        node: &str,
        process: &str,
        shown: CertificatePage,
        is_first: bool,
        now: UnixMillis,
    ) -> Option<String> {
        let mut agents = BTreeSet::new();
        let mut bytes = 0;
        let read = shown
            .chains
            .iter()
            .enumerate()
            .take_while(|(index, chain)| {
                bytes += chain.0.len();
                *index == 0 || bytes <= LONGEST_PART
            });
        let read: Vec<_> = read.map(|(_, chain)| chain).collect();
        let is_too_long = read.len() < shown.chains.len();
        if is_too_long && let Some(left_out) = self.log.admit(node.to_owned()) {
            tracing::warn!(%node, %process, left_out,
                "shows more than {LONGEST_PART} bytes of certificates at a time: the rest is not believed");
        }
        let next = shown.next.filter(|_| !is_too_long);
        let decoded = read.into_iter();
        let decoded = decoded.filter_map(|chain| CertificateChain::decode(&chain.0).ok());
        let verified: Vec<_> = decoded
            .filter_map(|chain| {
                let verified = self.ca.trust().verify(&chain, timestamp(now)).ok()?;
                is_of(verified.certificate(), node, process).then_some((chain, verified))
            })
            .collect();
        for (_, verified) in &verified {
            match verified.identity() {
                Identity::Process { .. } if is_first => self.state.is_certified(node, process),
                Identity::Agent { name, .. } => {
                    agents.insert(name.to_string());
                }
                Identity::Process { .. } | Identity::Node { .. } | Identity::Authority { .. } => {}
            }
        }
        if !self.state.certified(node, process, agents) {
            // If the process was certified and then doubted, it is shown anew.
            if is_first {
                self.state.has_shown_all(node, process);
            }
            return None;
        }
        for (chain, _) in &verified {
            let taken = self
                .ca
                .take_back_certificate(chain, process, timestamp(now));
            if let Err(fault) = taken {
                tracing::error!(%process, %fault, "a certificate could not be taken back");
            }
        }
        if next.is_none() {
            self.state.has_shown_all(node, process);
        }
        next
    }

    /// Takes back a deny list from a node, because the store is an older copy.
    ///
    /// # Errors
    /// As [`CaService::take_back`].
    pub(crate) fn take_back(&mut self, list: &[u8], now: UnixMillis) -> Result<(), Fault> {
        let taken = self.ca.take_back(list, timestamp(now))?;
        if taken.is_new {
            self.state.doubt_certificates();
        }
        for (identity, at) in taken.by_operator {
            let Identity::Agent { name, .. } = identity else {
                continue;
            };
            // A process that began after the revocation has nothing to do with it.
            let older = |process: &String| {
                let found = self.state.process(process);
                found.is_some_and(|(_, process)| process.since / 1000 <= at.as_unix_seconds())
            };
            let mut processes = self.state.processes_of(name.as_str());
            processes.retain(older);
            for process in processes {
                self.state.bar(&process, Some(name.as_str()));
                let reason = Reason::ByOperator;
                self.ca
                    .revoke_process(&process, Some(name.as_str()), reason, timestamp(now))?;
            }
        }
        Ok(())
    }
}

/// Whether a certificate was issued to this process on this node. Chains are public, so a node may show those of others.
/// The CA names the holder in each certificate of an agent that runs in a process. A certificate that names no holder,
/// such as that of a gateway's caller, says nothing about any process.
fn is_of(certificate: &Certificate, node: &str, process: &str) -> bool {
    let is_held =
        |holder: &Holding| holder.node.as_str() == node && holder.process.to_string() == process;
    match certificate.identity() {
        Identity::Agent { .. } => certificate.holding().is_some_and(is_held),
        // The process's own identity names both.
        Identity::Process {
            process: its,
            node: on,
            ..
        } => {
            its.to_string() == process
                && on.as_str() == node
                && certificate.holding().is_none_or(is_held)
        }
        Identity::Node { .. } | Identity::Authority { .. } => false,
    }
}
