//! Revocation by operators, and the acts of other Masters' CAs without knowledge of the state.

use sealbus_ca::{IssuedCertificate, Unstored, named_process};
use sealbus_control::admin::CertificateStatus;
use sealbus_control::clock::timestamp;
use sealbus_control::{Fault, FaultCode, Subject, UnixMillis};
use sealbus_seal::denylist::Reason;
use sealbus_seal::{CertificateChain, Identity, Serial};

use super::Desk;
use crate::vouching::check_process;

impl Desk {
    /// The identity of a node of this platform.
    ///
    /// # Errors
    /// [`FaultCode::IllegalName`].
    pub(crate) fn node(&self, name: &str) -> Result<Identity, Fault> {
        Identity::node(&self.name, name)
            .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
    }

    /// Revokes an agent's certificates, those of a process with its agents, by its [identity](named_process), or one certificate
    /// by its serial number, by an operator's order. The process that held a revoked certificate gets no other one for the same
    /// agent. An agent that is placed, or waits for its next start, may have a living certificate of another CA. That certificate
    /// is denied, and the agent is not started again. The same holds for a node, and for a process that is placed. An order that
    /// was carried out before gets the same answer again. A restored state may not know the owner of the name or the number, so
    /// everything of that name is denied, known or not.
    ///
    /// # Errors
    /// As [`CaService::revoke_by_hand`]. If the deny list is full, its process gets no other certificate all the same.
    pub(crate) fn revoke_by_hand(
        &mut self,
        what: &str,
        said: &str,
        now: UnixMillis,
    ) -> Result<Vec<CertificateStatus>, Fault> {
        let local = what.split('@').next().unwrap_or(what);
        let process = named_process(&self.name, what);
        // The identity of a process ends with its id.
        let id = process.as_ref().and_then(|_| what.rsplit('/').next());
        let named = |desk: &Self| process.clone().map_or_else(|| desk.agent(local), Ok);
        let is_expected = match id {
            Some(id) => self.state.process(id).is_some(),
            None => !self.state.processes_of(local).is_empty() || self.state.waits_for_start(local),
        };
        let may_lack = self.state.was_restored();
        let is_node = id.is_none() && (self.state.nodes().contains_key(local) || may_lack);
        let time = timestamp(now);
        let revoked = match self.ca.revoke_by_hand(what, said, time) {
            Err(fault) if fault.code == FaultCode::Unknown && may_lack => {
                Ok(self.ca.revoked_by_hand(what, time))
            }
            Err(fault) if fault.code == FaultCode::Unknown && is_expected => {
                let expected = named(self)?;
                let denied = self.ca.revoke_unknown(expected, said, time);
                denied.map(|()| Vec::new())
            }
            Err(fault) if fault.code == FaultCode::Unknown && is_node => Ok(Vec::new()),
            // The answer to an earlier order may have been lost.
            Err(fault) if fault.code == FaultCode::Unknown => {
                let already = self.ca.revoked_by_hand(what, time);
                let is_denied = |named| self.ca.is_denied(&named);
                return match already.is_empty() && !named(self).is_ok_and(is_denied) {
                    true => Err(fault),
                    false => Ok(already.iter().map(IssuedCertificate::status).collect()),
                };
            }
            revoked => revoked,
        };
        let (revoked, failure) = match revoked {
            Ok(revoked) => {
                tracing::warn!(%what, reason = said, "revoked by an operator");
                (revoked, None)
            }
            // Some of the certificates may be denied.
            Err(fault) => {
                tracing::error!(%what, reason = said, %fault, "not entirely revoked by an operator");
                (self.ca.revoked_by_hand(what, time), Some(fault))
            }
        };
        for certificate in &revoked {
            let process = certificate.process.as_deref().unwrap_or_default();
            match &certificate.record.identity {
                Identity::Agent { name, .. } => {
                    self.keys.forget(name.as_str());
                    self.state.bar(process, Some(name.as_str()));
                }
                Identity::Process { .. } => self.state.bar(process, None),
                Identity::Node { .. } | Identity::Authority { .. } => {}
            }
        }
        if let Some(id) = id {
            self.state.bar(id, None);
        }
        self.keys.forget(local);
        self.state.bar_everywhere(local);
        if may_lack && let Ok(unknown) = named(self) {
            self.ca.revoke_unknown(unknown, said, time)?;
            if let Ok(serial) = what.parse::<Serial>() {
                self.ca.revoke_unknown_serial(serial, said, time)?;
            }
        }
        if is_node {
            let node = self.node(local)?;
            self.ca.revoke_unknown(node, said, time)?;
        }
        match failure {
            Some(fault) => Err(fault),
            None => Ok(revoked.iter().map(IssuedCertificate::status).collect()),
        }
    }

    /// Checks that an operator may revoke `what`. A node's own process gets certificates as long as its node is trusted, so
    /// nothing would come of revoking the process alone.
    ///
    /// # Errors
    /// [`FaultCode::NotPermitted`] for a node's own process.
    pub(crate) fn check_revocable(&self, what: &str) -> Result<(), Fault> {
        let process = named_process(&self.name, what);
        // The identity of a process ends with its id.
        let id = process.and_then(|_| what.rsplit('/').next());
        let mut nodes = self.state.nodes().iter();
        let own = nodes.find(|(_, it)| id == Some(it.process.as_str()) && !it.state.is_gone());
        match own {
            None => Ok(()),
            Some((node, _)) => {
                let message = format!("{what} is the own process of the node {node}");
                let advice = format!("`sealbus ca revoke {node}` revokes the node with it");
                Err(Fault::new(FaultCode::NotPermitted, message).advise(advice))
            }
        }
    }

    /// Takes in an act of a Master's CA that did not know the state.
    ///
    /// # Errors
    /// If the act cannot be believed, or the deny list is full.
    pub(crate) fn take_in(&mut self, act: Unstored, now: UnixMillis) -> Result<(), Fault> {
        match act {
            Unstored::Renewed {
                chain,
                node,
                process,
                at,
            } => {
                let chain = CertificateChain::decode(&chain.0)
                    .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
                let time = timestamp(now);
                let certificate = self.ca.take_in(&chain, &node, &process, at, time)?;
                let subject = match certificate.identity() {
                    Identity::Agent { name, .. } => Subject::Agent {
                        name: name.to_string(),
                    },
                    _ => Subject::Process,
                };
                let has_right = match check_process(&self.state, &node, &process, &subject) {
                    Ok(()) => true,
                    // A platform that is being restored does not know yet.
                    Err(fault) => fault.code == FaultCode::Unavailable,
                };
                let earlier = certificate.renews();
                let denied = earlier.and_then(|earlier| self.ca.denial(earlier.serial));
                let serial = certificate.serial();
                if self.ca.denial(serial).is_some() || denied.is_none() && has_right {
                    return Ok(());
                }
                // A process that ends renews its certificates until it has ended.
                let is_in_order = denied.is_some_and(|denied| {
                    !matches!(denied.reason, Reason::NodeLost | Reason::ByOperator)
                });
                if certificate.not_after() >= time && !is_in_order {
                    tracing::warn!(identity = %certificate.identity(), %node,
                        "was renewed without a right to it while the store was away: it is revoked");
                }
                self.ca.revoke_renewed(serial, time)
            }
            Unstored::Revoked { what, said, at } => {
                match self.revoke_by_hand(&what, &said, now) {
                    // The certificates have ended, are denied by another act, or are yet to be taken in.
                    Err(fault) if fault.code == FaultCode::Unknown => {
                        if let Ok(serial) = what.parse::<Serial>() {
                            let time = timestamp(now);
                            self.ca.revoke_unknown_serial(serial, &said, time)?;
                        }
                    }
                    revoked => drop(revoked?),
                }
                if let Some(process) = named_process(&self.name, &what) {
                    let time = timestamp(now);
                    return self.ca.take_in_denial(process, &said, at, time);
                }
                // A serial number may be the name of an agent, too.
                let local = what.split('@').next().unwrap_or(&what);
                self.state.bar_everywhere(local);
                // A node that the restored state does not know may come back, too.
                let is_node = self.state.nodes().contains_key(local) || self.state.was_restored();
                let node = is_node.then(|| self.node(local)).transpose()?;
                for identity in std::iter::once(self.agent(local)?).chain(node) {
                    self.ca
                        .take_in_denial(identity, &said, at, timestamp(now))?;
                }
                Ok(())
            }
        }
    }
}
